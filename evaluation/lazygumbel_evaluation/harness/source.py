"""Where the rows and the thetas of a run come from, and at which temperature they meet."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazygumbel import datasets
from lazygumbel._support.checks import check_count, check_number
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["PAPER_TEMPERATURE", "Source"]

PAPER_TEMPERATURE = 0.05
_OF_THE_PAPER: dict[str, Callable[[int], Features]] = {
    "glove": lambda _: datasets.glove(),
    "synthetic": lambda seed: datasets.synthetic(rng=seed),
}
"""Sets that are taken as the paper takes its own: rows of length one, at its temperature."""


@dataclass(frozen=True)
class Source:
    """Rows that have not been read yet, and thetas, if they come from a file of their own."""

    name: str
    """Tells data sets apart in a report; of a file, the name without folder and suffix."""
    path: Path | None
    seed: int
    temperature: float
    unit_norm: bool
    """Whether rows are scaled to length one."""
    thetas: Path | None

    @classmethod
    def of(
        cls,
        data: str,
        seed: int,
        *,
        thetas: Path | None = None,
        temperature: float | None = None,
        unit_norm: bool | None = None,
    ) -> "Source":
        """The source called `data`: glove, synthetic, or a file, whose rows are taken as they are.

        By default the temperature is the paper's for the sets of the paper, and one for a file.
        """
        known, path = data in _OF_THE_PAPER, Path(data)
        if not known and not path.is_file():
            raise ValueError(f"data must be glove, synthetic or the path of a file of rows; there is no file {data!r}")
        if known and unit_norm is False:
            raise ValueError(f"unit_norm: the rows of {data} have length one; give a file of rows that have not")
        if thetas is not None and not Path(thetas).is_file():
            raise ValueError(f"thetas: there is no file {str(thetas)!r}")
        if temperature is None:
            temperature = PAPER_TEMPERATURE if known else 1.0
        return cls(
            data if known else path.stem,
            None if known else path,
            check_count(seed, "seed", least=0),
            check_number(temperature, "temperature", above=0.0),
            known or bool(unit_norm),
            None if thetas is None else Path(thetas),
        )

    def settings(self) -> dict[str, Any]:
        """What tells one run from another, as plain data; the sizes tell files of the same name apart."""
        return {
            "data": self.name,
            "bytes": None if self.path is None else self.path.stat().st_size,
            "temperature": self.temperature,
            "unit_norm": self.unit_norm,
            "thetas": None if self.thetas is None else self.thetas.stem,
            "thetas_bytes": None if self.thetas is None else self.thetas.stat().st_size,
            "seed": self.seed,
        }

    def read(self, progress: Progress | None = None) -> Features:
        """The rows."""
        if self.path is None:
            return _OF_THE_PAPER[self.name](self.seed)
        return (datasets.unit_rows if self.unit_norm else datasets.read)(self.path, progress=progress)

    def read_thetas(self, d: int) -> Features | None:
        """The thetas of the user's, if there are any."""
        if self.thetas is None:
            return None
        found = datasets.read(self.thetas)
        if found.d != d:
            raise ValueError(f"thetas: {self.thetas} has {found.d} columns, but the rows have {d}")
        return found
