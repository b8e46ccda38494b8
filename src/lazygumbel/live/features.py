"""The rows of a snapshot as `Features`, by the ids that users know."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Mask, Vectors
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Block, Features
from lazygumbel.rows.names import Names

if TYPE_CHECKING:  # its distributions know these features
    from lazygumbel.live.snapshot import Snapshot

__all__ = ["LiveFeatures", "LiveNames"]


class LiveNames(Names):
    """Names of the rows that there are, by id."""

    def __init__(self, snapshot: "Snapshot") -> None:
        self._snapshot = snapshot

    def __len__(self) -> int:
        return self._snapshot.n

    def _checked(self, ids: npt.NDArray[Any]) -> Ints:
        return self._snapshot.locate(ids, "ids")[0]

    def _at(self, row: int) -> str:
        if not 0 <= row < self._snapshot.size:
            raise IndexError(f"row {row} of {self._snapshot.size}")
        _, part_of, places = self._snapshot.locate(np.array(row), "ids")
        names = self._snapshot.parts[int(part_of)].names
        if names is None:
            raise IndexError(f"row {row} has no name")
        return names[int(places)]

    def __iter__(self) -> Iterator[str]:
        return (self._at(i) for i in self._snapshot.ids.tolist())

    @cached_property
    def _ids(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in self._snapshot.parts:
            names = part.names
            if names is not None:
                for place in part.kept.tolist():
                    name, i = names[place], int(part.ids[place])
                    found[name] = min(i, found.get(name, i))
        return found


class LiveFeatures(Features):
    """The rows that there are. Their ids need not run from 0 to n - 1: `ids` are all of them."""

    def __init__(self, snapshot: "Snapshot") -> None:
        self._snapshot = snapshot
        self.names = None if snapshot.tail.names is None else LiveNames(snapshot)
        self.live = snapshot.n

    @property
    def ids(self) -> Ints:
        """Of all rows, ascending."""
        return self._snapshot.ids

    @property
    def n(self) -> int:
        """Number of rows that were not removed."""
        return self._snapshot.n

    @property
    def size(self) -> int:
        """Ids are below this number; not all of them have a row."""
        return self._snapshot.size

    @property
    def at_hand(self) -> bool:
        """No: rows lie in several arrays."""
        return False

    @property
    def d(self) -> int:
        """Length of a row."""
        return self._snapshot.d

    def __repr__(self) -> str:
        return f"LiveFeatures(n={self.n:,}, d={self.d}, {self._snapshot.size:,} ids given)"

    @property
    def stored(self) -> npt.NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]  # there is no one array
        """Refused: the rows lie in several arrays."""
        self._refuse("stored")

    @property
    def order(self) -> Ints | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Refused: rows have no positions."""
        self._refuse("order")

    @property
    def positions(self) -> Ints | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Refused: rows have no positions."""
        self._refuse("positions")

    @property
    def dead(self) -> Mask | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Refused: rows have no positions."""
        self._refuse("dead")

    def gather(self, ids: npt.ArrayLike) -> Vectors:
        """The rows with these ids, shape ids.shape + (d,), a copy; ids of removed rows are refused."""
        return self._snapshot.gather(ids)

    def score(self, ids: Ints, queries: Vectors, owner: Ints | None = None) -> Vectors:
        """Inner products phi[ids[j]] . queries[owner[j]], shape (m,)."""
        rows = Features(self._snapshot.gather(ids), max_norm=self.max_norm)
        return rows.score(np.arange(len(ids)), queries, owner)

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """All rows as float32, a bounded number at a time, with their ids."""
        for part in self._snapshot.parts:
            for places, block in part.shown.features.blocks(rows):
                yield Block(part.ids[places], block)

    @property
    def max_norm(self) -> float:
        """The largest norm that a row has, or had before it was removed."""
        return self._snapshot.max_norm

    def check_finite(self, progress: Progress | None = None) -> None:
        """Nothing to do: rows were checked when they came."""

    def plain(self) -> Features:
        """Refused: an index takes rows whose ids run from 0 to n - 1."""
        self._refuse("features")

    def reordered(self, order: Ints, progress: Progress | None = None) -> Features:  # noqa: ARG002  # nothing is done
        """Refused: rows have no positions."""
        self._refuse("reordered")

    def unit_norm(self) -> Features:
        """Refused: take `model.settled().features`."""
        self._refuse("unit_norm")

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"{what}: the rows of this model have changed and do not lie in one array; model.settled() has them "
            "in one, in the order of their ids"
        )
