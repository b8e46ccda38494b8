"""The rows of several parts that were not removed, on their way into one segment."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.threads import map_threads
from lazygumbel.indexes import PartitionIndex
from lazygumbel.live.segment import Segment
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features
from lazygumbel.rows.names import Names

__all__ = ["Source", "Sources", "in_pieces", "largest_square", "pieces"]

R = TypeVar("R")

_AT_ONCE = 2**13
"""Rows that a thread takes at a time."""
_SPARSE = 8
"""Ids that were given to one that is left, from which on they are sorted: a table would take too much memory."""


class Source(NamedTuple):
    """The rows of one part, in the order in which they are stored."""

    part: Segment
    positions: Ints
    start: int
    """Where they begin among those of all parts."""

    @property
    def entries(self) -> slice:
        """Which they are among those of all parts."""
        return slice(self.start, self.start + len(self.positions))

    @property
    def coded(self) -> PartitionIndex | None:
        """The index that has codes of them."""
        return self.part.index if isinstance(self.part.index, PartitionIndex) else None

    @property
    def places(self) -> Ints:
        """In the part."""
        order = self.part.index.features.order
        return self.positions if order is None else order[self.positions]

    def rows(self, some: Ints | slice) -> Vectors:
        """Some of the rows."""
        return self.part.index.features.stored[self.positions[some]].astype(np.float32, copy=False)


class Sources(NamedTuple):
    """The rows of all parts, one part after the other."""

    each: Sequence[Source]
    ids: Ints
    """Of all rows, ascending."""
    ranks: Ints
    """Which of these each row has."""

    @classmethod
    def of(cls, parts: Sequence[Segment]) -> "Sources":
        """What was not removed."""
        each: list[Source] = []
        ids: list[Ints] = []
        for part in parts:
            dead = part.shown.features.dead
            positions = np.arange(len(part.ids)) if dead is None else np.flatnonzero(~dead)
            each.append(Source(part, positions, sum(map(len, ids))))
            ids.append(part.ids[each[-1].places])
        return cls(each, *_ranked(np.concatenate(ids)))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.ids)

    @property
    def d(self) -> int:
        """Length of a row."""
        return self.each[0].part.index.features.d

    def split(self, entries: Ints) -> list[tuple[Source, Ints]]:
        """Of some rows, ascending, those of each part, as their numbers among its own."""
        starts = np.searchsorted(entries, [source.start for source in self.each])
        return [
            (source, some - source.start)
            for source, some in zip(self.each, np.split(entries, starts[1:]), strict=True)
            if len(some)
        ]

    def stored(self, to: Ints, progress: Progress) -> Features:
        """The rows, each at the position that `to` says, under the ids 0 to n - 1 in the order of theirs."""
        rows, squares = np.empty((self.n, self.d), dtype=np.float32), [0.0]
        with progress.task("copying rows", self.n) as task:
            for source in self.each:

                def copy(some: slice, source: Source = source) -> int:
                    mine = source.rows(some)
                    rows[to[source.entries][some]] = mine
                    squares.append(largest_square(mine))
                    return len(mine)

                for count in in_pieces(copy, len(source.positions)):
                    task.advance(count)
        rows.flags.writeable = False
        names, longest = self._names(), max(squares) ** 0.5
        if to is self.ranks:
            return Features(rows, names=names, max_norm=longest)
        order, positions = np.empty_like(to), np.empty_like(to)
        order[to], positions[self.ranks] = self.ranks, to
        return Features(rows, order=order, positions=positions, names=names, max_norm=longest)

    def _names(self) -> Names | None:
        if self.each[0].part.names is None:
            return None
        flat: list[str] = [""] * self.n
        for source in self.each:
            named, ranks = source.part.names, cast("list[int]", self.ranks[source.entries].tolist())
            for rank, place in zip(ranks, cast("list[int]", source.places.tolist()), strict=True):
                flat[rank] = "" if named is None else named[place]
        return Names.of(flat)


def _ranked(ids: Ints) -> tuple[Ints, Ints]:
    """Distinct ids in order, and which of these each is."""
    if int(ids.max()) > _SPARSE * len(ids):
        by_id = np.argsort(ids)
        ranks = np.empty_like(by_id)
        ranks[by_id] = np.arange(len(by_id))
        return ids[by_id], ranks
    given = np.zeros(int(ids.max()) + 1, dtype=np.bool_)  # a table takes a tenth of the time of a sort
    given[ids] = True
    return np.flatnonzero(given), (np.cumsum(given) - 1)[ids]


def pieces(count: int) -> list[slice]:
    """So many things, in pieces for threads."""
    return [slice(start, min(start + _AT_ONCE, count)) for start in range(0, count, _AT_ONCE)]


def in_pieces(function: Callable[[slice], R], count: int) -> Iterator[R]:
    """Call a function with pieces of so many things, on threads if there are several."""
    found = pieces(count)
    return map(function, found) if len(found) < 2 else map_threads(function, found)


def largest_square(rows: Vectors) -> float:
    """Of the norms of some rows."""
    if len(rows) == 1:  # in a quarter of the time
        wide = rows[0].astype(np.float64)
        return float(np.dot(wide, wide))
    with np.errstate(over="ignore", under="ignore"):
        found = float(np.einsum("nd,nd->n", rows, rows).max(initial=0.0))
    if 1e-30 < found < 1e38:
        return found
    return float(np.einsum("nd,nd->n", rows, rows, dtype=np.float64).max(initial=0.0))
