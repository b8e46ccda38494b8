"""Rows to be shared out, taken a range of ids at a time: of a model, of an array, of one file or of many."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from lazygumbel import datasets
from lazygumbel.model import LogLinear
from lazygumbel.rows.features import Features, Source
from lazygumbel.rows.names import Names

__all__ = ["OpenedRows", "RowSource", "are_paths", "open_rows"]

RowSource = LogLinear | Features | Source | Sequence[str | PathLike[str]]
"""A model or its folder, an array (memory-mapped ones stay so), a file that `datasets.read` knows, or many of those."""


class OpenedRows(Protocol):
    """Rows that need not be in memory."""

    @property
    def n(self) -> int:
        """Number of rows."""
        ...

    @property
    def d(self) -> int:
        """Length of a row."""
        ...

    @property
    def named(self) -> bool:
        """Whether the rows have names."""
        ...

    def take(self, start: int, stop: int) -> Features:
        """The rows with the ids `start` to `stop`, which get the ids 0 to stop - start."""
        ...

    def fingerprint(self) -> str:
        """The same for the same rows, so that a split is not resumed with others."""
        ...


def open_rows(source: RowSource) -> OpenedRows:
    """The rows of whatever holds some."""
    if isinstance(source, LogLinear):
        return _Single(_of_model(source))
    if isinstance(source, Features):
        return _Single(source)
    if isinstance(source, str | PathLike):
        path = Path(source)
        return _Single(_of_model(LogLinear.load(path))) if path.is_dir() else _Single(datasets.read(path))
    if are_paths(source):
        return _Files.of([Path(path) for path in cast("Sequence[str]", source)])
    return _Single(Features.of(cast("Source", source)))


def _of_model(model: LogLinear) -> Features:
    if model.size > model.features.n:
        raise ValueError(
            f"model: {model.size - model.features.n} of its rows were removed, but ids of shards have no gaps; split "
            "model.settled(), whose ids are places in model.ids"
        )
    return model.settled().features


@dataclass(frozen=True, eq=False)
class _Single:
    features: Features

    @property
    def n(self) -> int:
        return self.features.n

    @property
    def d(self) -> int:
        return self.features.d

    @property
    def named(self) -> bool:
        return self.features.names is not None

    def take(self, start: int, stop: int) -> Features:
        held = self.features
        names = None if held.names is None else _cut(held.names, start, stop)
        # In the order of ids a range is a view, which stays on disk if it is there.
        rows = held.stored[start:stop] if held.order is None else held.gather(np.arange(start, stop))
        return Features.of(rows, names=names)

    def fingerprint(self) -> str:
        some = np.linspace(0, self.n - 1, min(self.n, 256)).astype(np.int64)
        return _digest(self.n, self.d, self.named, self.features.gather(some).tobytes())


@dataclass(frozen=True, eq=False)
class _Files:
    """Files one after the other; one at a time is open, so each must fit in memory or be memory-mapped."""

    paths: Sequence[Path]
    offsets: Sequence[int]
    """Where the rows of each file start, and the number of all rows."""
    d: int
    named: bool

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "_Files":
        offsets, shapes = [0], set[tuple[int, bool]]()
        for path in paths:
            rows = datasets.read(path)
            offsets.append(offsets[-1] + rows.n)
            shapes.add((rows.d, rows.names is not None))
            if len(shapes) > 1:
                raise ValueError(f"source: {path} differs from {paths[0]} in columns, or in having names")
        return cls(paths, offsets, *shapes.pop())

    @property
    def n(self) -> int:
        return self.offsets[-1]

    def take(self, start: int, stop: int) -> Features:
        parts = list(self._parts(start, stop))
        if len(parts) == 1:
            return parts[0]
        rows = np.empty((stop - start, self.d), dtype=np.float32)
        at = 0
        for part in parts:
            for _, block in part.blocks():
                rows[at : at + len(block)] = block
                at += len(block)
        names = [name for part in parts for name in part.names or ()]
        return Features.of(rows, names=names if self.named else None)

    def fingerprint(self) -> str:
        files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self.paths]
        return _digest(self.n, self.d, self.named, files)

    def _parts(self, start: int, stop: int) -> Iterator[Features]:
        for path, first, end in zip(self.paths, self.offsets, self.offsets[1:], strict=False):
            low, high = max(start, first), min(stop, end)
            if low < high:
                yield _Single(datasets.read(path)).take(low - first, high - first)


def are_paths(source: object) -> bool:
    """Whether it is a list of files."""
    if not isinstance(source, list | tuple):
        return False
    held = cast("Sequence[Any]", source)
    return bool(held) and all(isinstance(path, str | PathLike) for path in held)


def _cut(names: Names, start: int, stop: int) -> Names:
    offsets = names.offsets[start : stop + 1]
    return Names(names.text[offsets[0] : offsets[-1]], offsets - offsets[0])


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
