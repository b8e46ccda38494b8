"""Where the rows of a run come from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lazygumbel import datasets
from lazygumbel.features import Features
from lazygumbel.progress import Progress

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """Rows that have not been read yet."""

    name: str
    """Tells data sets apart in a report; of a file, the name without folder and suffix."""
    size: int | None
    """Bytes of the file, so that another file of the same name is noticed."""
    read: Callable[[Progress | None], Features]
    """The rows, of unit norm."""

    @classmethod
    def of(cls, data: str, seed: int) -> "Source":
        """The source called `data`: glove, synthetic, or a file."""
        if data == "glove":
            return cls("glove", None, lambda _: datasets.glove())
        if data == "synthetic":
            return cls("synthetic", None, lambda _: datasets.synthetic(rng=seed))
        path = Path(data)
        if not path.is_file():
            raise ValueError(f"data must be glove, synthetic or the path of a file of rows; there is no file {data!r}")
        return cls(path.stem, path.stat().st_size, lambda progress: datasets.read(path, progress=progress).unit_norm())
