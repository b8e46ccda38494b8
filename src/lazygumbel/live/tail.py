"""`Tail`: the rows that came last, few enough to score every one of them.

Room is shared by the tails that follow each other: a writer only writes where the tails before it do not look.
"""

from dataclasses import dataclass, replace

import numpy as np

from lazygumbel._support.arrays import Ints, Mask, Vectors
from lazygumbel.indexes import ExactIndex
from lazygumbel.live.segment import Segment
from lazygumbel.rows.features import Features

__all__ = ["Tail"]


@dataclass(frozen=True, eq=False)
class Tail:
    """The first `count` rows of some room."""

    rows: Vectors
    """(room, d)"""
    ids: Ints
    """(room,)"""
    names: list[str] | None
    count: int = 0
    max_norm: float = 0.0
    dead: Mask | None = None
    """Places whose rows were removed, (count,)."""

    @classmethod
    def empty(cls, room: int, d: int, *, named: bool) -> "Tail":
        """Room for so many rows."""
        rows, ids = np.empty((room, d), dtype=np.float32), np.empty(room, dtype=np.int64)
        return cls(rows, ids, [] if named else None)

    @property
    def left(self) -> int:
        """Rows that there is still room for."""
        return len(self.rows) - self.count

    @property
    def live(self) -> int:
        """Rows that were not removed."""
        return self.count if self.dead is None else self.count - int(np.count_nonzero(self.dead))

    def copied(self) -> "Tail":
        """The same rows, with room of their own."""
        names = None if self.names is None else self.names[: self.count]
        return replace(self, rows=self.rows.copy(), ids=self.ids.copy(), names=names)

    def plus(self, rows: Vectors, ids: Ints, names: list[str] | None, max_norm: float) -> "Tail":
        """With some more rows, for which there is room."""
        last = self.count + len(ids)
        self.rows[self.count : last] = rows
        self.ids[self.count : last] = ids
        if self.names is not None and names is not None:
            self.names[self.count :] = names
        dead = None
        if self.dead is not None:
            dead = np.zeros(last, dtype=np.bool_)
            dead[: self.count] = self.dead
        return Tail(self.rows, self.ids, self.names, last, max(self.max_norm, max_norm), dead)

    def without(self, places: Ints) -> "Tail":
        """Less the rows at these places."""
        dead = np.zeros(self.count, dtype=np.bool_) if self.dead is None else self.dead.copy()
        dead[places] = True
        return replace(self, dead=dead)

    def segment(self) -> Segment:
        """The rows as a part."""
        rows, ids = self.rows[: self.count], self.ids[: self.count]
        rows.flags.writeable = False
        segment = Segment(ExactIndex(Features(rows, max_norm=self.max_norm)), ids, self.names, sorted_ids=False)
        return segment if self.dead is None else segment.without(np.flatnonzero(self.dead))
