"""`Store`: what a run keeps on disk, so that one that was interrupted goes on where it was."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.persist import replacing
from lazygumbel_evaluation.report.wording import plain

__all__ = ["Store", "write_json"]


@dataclass(frozen=True)
class Store:
    """A folder of results by key. It may be deleted at any time: what is missing is made again."""

    folder: Path

    @classmethod
    def within(cls, out: Path) -> "Store":
        """The store of the run whose results are in `out`."""
        return cls(out / "lazygumbel-cache")

    def clear(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> Path:
        """Of a file or folder in the store, which is made if there is none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / name

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, as plain data; made once."""
        path = self.path(f"{key}.json")
        if not path.exists():
            write_json(path, make())
        return json.loads(path.read_text(encoding="utf-8"))

    def once_arrays(self, key: str, make: Callable[[], dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
        """The same for arrays."""
        path = self.path(f"{key}.npz")
        if not path.exists():
            made = make()
            with replacing(path) as stream:
                np.savez(stream, allow_pickle=False, **made)
        with np.load(path, allow_pickle=False) as held:
            return dict(held)

    @property
    def bytes(self) -> int:
        """On disk."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


def write_json(path: Path, value: Any) -> None:
    """Replace a file in one step: whoever reads it sees the old or the new, whole."""
    text = json.dumps(plain(value), indent=1, allow_nan=False)
    with replacing(path) as stream:
        stream.write(text.encode())
