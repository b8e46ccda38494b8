"""`Live`: the one writer of rows that change. Readers take `snapshot`, which is replaced, never changed."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.checks import plain_array
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.live.building import merge, rebuild
from lazygumbel.live.features import LiveNames
from lazygumbel.live.segment import Segment
from lazygumbel.live.snapshot import Snapshot
from lazygumbel.live.sources import largest_square
from lazygumbel.live.standard import Standard
from lazygumbel.live.tail import Tail
from lazygumbel.progress import Progress, Silent
from lazygumbel.rows.names import Names

__all__ = ["Change", "Journal", "Live", "check_names", "check_rows", "first_segment"]


_TAIL = 2048
"""Rows of a tail: as many as one dense pass scores in the time that a scan takes to start."""
_RATIO, _MERGED, _SEGMENTS = 3, 2**17, 3
"""A segment is merged with the next when it is less than so many times as large, or has fewer rows than these, which
are moved in less time than a draw from one more segment costs in the long run; or when there are more segments."""
_SEED = 20170811
_SILENT = Silent()


class Change(NamedTuple):
    """What happens to rows: some ids lose theirs, and some get others."""

    removed: Ints
    ids: Ints
    """That get rows: new ones, or some of those removed."""
    rows: Vectors
    names: list[str] | None


class Journal(Protocol):
    """What makes changes durable."""

    def append(self, change: Change) -> None:
        """On disk when this returns; nothing has happened when it fails."""
        ...

    def compacted(self, segment: Segment, size: int, built: Standard | None) -> None:
        """The segment holds all rows: it is on disk, and the log is empty, when this returns."""
        ...


class Live:
    """Rows that come and go."""

    def __init__(self, base: Segment, size: int, built: Standard | None = None) -> None:
        self.base = base
        """What was built; other segments share its rotation and its means."""
        self.built = built or Standard.of(base)
        """How rows lay in these cells when they were trained; None without cells."""
        self.added, self.removed = 0, 0
        """Rows that came and went since."""
        self.journal: Journal | None = None
        self._writing = Lock()
        self._ahead = False
        self._rng = np.random.default_rng(_SEED)
        self.snapshot = Snapshot((base,), self._tail(base), size)

    def add(self, rows: npt.ArrayLike, names: Iterable[str] | None) -> Ints:
        """Some more rows, all or none of them; returns their ids."""
        with self._writing:
            now = self.snapshot
            found = check_rows(rows, now.d)
            called = check_names(names, len(found), named=now.tail.names is not None)
            ids = np.arange(now.size, now.size + len(found))
            self._make(Change(ids[:0], ids, found, called))
            return ids

    def remove(self, ids: npt.ArrayLike, *, last: bool = False) -> None:
        """Remove rows, all or none of them; the `last` one only where others hold more."""
        with self._writing:
            gone = self._distinct(ids)
            if len(gone) == self.snapshot.n and not last:
                raise ValueError(f"ids are all {len(gone)} rows of the model; at least one must be left")
            self._make(Change(gone, gone[:0], np.empty((0, self.snapshot.d), dtype=np.float32), None))

    def replace(self, ids: npt.ArrayLike, rows: npt.ArrayLike) -> None:
        """Other rows under the same ids and names, all or none of them."""
        with self._writing:
            now = self.snapshot
            found, changed = check_rows(rows, now.d), self._distinct(ids)
            if len(changed) != len(found):
                raise ValueError(f"rows has {len(found)} rows, but ids has {len(changed)}")
            self._make(Change(changed, changed, found, self._names_of(changed)))

    def compact(self, progress: Progress, *, anew: bool = False) -> None:
        """All rows in one segment, removed ones dropped; readers go on meanwhile."""
        with self._writing:
            if self._ahead:
                raise ValueError("the log holds a change that was not made here; load the model again")
            now = self.snapshot
            merged = self.settle(now, progress, anew=anew).as_build()
            built = Standard.of(merged) if anew else self.standard(now)
            if self.journal is not None:
                self.journal.compacted(merged, now.size, built)
            self.base, self.built, self.added, self.removed = merged, built, 0, 0
            self.snapshot = Snapshot((merged,), self._tail(merged), now.size)

    @property
    def compacted(self) -> bool:
        """Whether all rows are in one segment, as they were built or compacted."""
        parts = self.snapshot.parts
        return len(parts) == 1 and parts[0] is self.base

    def calibrate(self, index: PartitionIndex) -> None:
        """The same rows under their index with another calibration; in memory, until they are saved."""
        with self._writing:
            if not self.compacted or index.features is not self.base.index.features:
                raise ValueError("calibrate: rows have changed meanwhile; call compact() and calibrate again")
            now = self.snapshot
            self.base = self.base.under(index)
            self.snapshot = Snapshot((self.base,), now.tail, now.size)

    def standard(self, snapshot: Snapshot) -> Standard | None:
        """What the drift of these rows is measured against when they lie under one index."""
        return None if self.built is None else self.built.among(self.base, snapshot.parts)[0]

    def settle(self, snapshot: Snapshot, progress: Progress, *, anew: bool = False) -> Segment:
        """All rows of a snapshot in one segment; or in cells that are trained anew."""
        only = snapshot.parts[0]
        if len(snapshot.parts) == 1 and only.count == len(only.ids) and only in snapshot.segments and not anew:
            return only
        rng = np.random.default_rng(_SEED)
        if anew and isinstance(self.base.index, PartitionIndex):
            return rebuild(snapshot.parts, rng, progress)
        return merge(snapshot.parts, self.base, rng, progress)

    def fork(self) -> "Live":
        """The rows as they are, in memory, with changes of their own."""
        other, now = copy(self), self.snapshot
        other.journal, other._writing, other._ahead = None, Lock(), False
        other.snapshot = replace(now, tail=now.tail.copied())
        return other

    def replay(self, change: Change) -> None:
        """Make a change again that is on disk already; `ValueError` if it is none that can have been made here."""
        with self._writing:
            removed, ids, now = change.removed, change.ids, self.snapshot
            if len(ids):
                check_rows(change.rows, now.d)
                check_names(change.names, len(ids), named=now.tail.names is not None)
            if len(removed):
                self._distinct(removed)
            expected = removed if len(removed) else np.arange(now.size, now.size + len(ids))
            if len(ids) and not np.array_equal(ids, expected):
                raise ValueError("ids are neither those that lost their rows nor the next ones")
            self._apply(change)

    def _make(self, change: Change) -> None:
        if not len(change.removed) and not len(change.ids):
            return
        if self._ahead:
            raise ValueError("the log holds a change that was not made here, for want of memory or time; load it again")
        if self.journal is not None:
            self._ahead = True  # until it is made here too: ids that were logged must not be given again
            try:
                self.journal.append(change)
            except BaseException:
                self._ahead = False
                raise
        self._apply(change)
        self._ahead = False

    def _apply(self, change: Change) -> None:
        now = self.snapshot
        if len(change.removed):
            now = self._without(now, change.removed)
        self.snapshot = self._plus(now, change) if len(change.ids) else now
        self.removed += len(change.removed)
        self.added += len(change.ids)

    @staticmethod
    def _without(now: Snapshot, ids: Ints) -> Snapshot:
        part_of, places = now.find(ids)
        segments, tail = list(now.segments), now.tail
        for p, part in enumerate(now.parts):
            here = places[part_of == p]
            if not len(here):
                continue
            if part in segments:
                segments[segments.index(part)] = part.without(here)
            else:
                tail = tail.without(here)
        return Snapshot(tuple(segments), tail, now.size)

    def _plus(self, now: Snapshot, change: Change) -> Snapshot:
        rows, ids, names = change.rows, change.ids, change.names
        longest = largest_square(rows) ** 0.5
        size = max(now.size, int(ids[-1]) + 1)  # new ids ascend, and others were given before
        if len(ids) <= now.tail.left:
            return Snapshot(now.segments, now.tail.plus(rows, ids, names, longest), size)
        whole = Tail(rows, ids, names, len(ids), longest)
        return self._sealed(now, [now.tail, whole], size)

    def _sealed(self, now: Snapshot, tails: Sequence[Tail], size: int) -> Snapshot:
        """The rows of tails in a segment, together with those of segments that are not much larger."""
        kept = [segment for segment in now.segments if segment.count]
        taken = [tail.segment() for tail in tails if tail.live]
        count = sum(part.count for part in taken)
        while (
            kept
            and kept[-1] is not self._shown_base(kept)
            and (kept[-1].count < max(_RATIO * count, _MERGED) or len(kept) > _SEGMENTS)
        ):
            taken.append(kept.pop())
            count += taken[-1].count
        new = merge(taken, self.base, self._rng, _SILENT).beside(self.base)
        return Snapshot((*kept, new), self._tail(self.base), size)

    def _shown_base(self, segments: Sequence[Segment]) -> Segment | None:
        """What is left of the build."""
        return next((one for one in segments if one.ids is self.base.ids), None)

    def _tail(self, base: Segment) -> Tail:
        return Tail.empty(_TAIL, base.index.features.d, named=base.names is not None)

    def _distinct(self, ids: npt.ArrayLike) -> Ints:
        asked, _, _ = self.snapshot.locate(ids, "ids")
        if asked.ndim != 1:
            raise ValueError(f"ids must have shape (m,), not {asked.shape}")
        if len(np.unique(asked)) < len(asked):
            values, counts = np.unique(asked, return_counts=True)
            raise ValueError(f"ids holds {values[counts > 1][0]} more than once")
        return asked

    def _names_of(self, ids: Ints) -> list[str] | None:
        if self.snapshot.tail.names is None:
            return None
        called = LiveNames(self.snapshot)
        return [called[i] for i in ids.tolist()]


def check_rows(rows: npt.ArrayLike, d: int) -> Vectors:
    """Rows of shape (m, d), float32, finite: the first that is not is named by its number."""
    array = plain_array(rows, "rows")
    if array.ndim != 2 or array.shape[1] != d:
        raise ValueError(f"rows must have shape (m, {d}), not {array.shape}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"rows must hold real numbers, not dtype {array.dtype}")
    if array.dtype == np.float32:
        found = np.array(array, order="C")
    else:
        with np.errstate(over="ignore"):
            found = np.array(array, dtype=np.float32, order="C")
    finite = np.isfinite(found)
    if not finite.all():
        wrong = int(np.argmin(finite.all(axis=1)))
        raise ValueError(f"rows[{wrong}] holds NaN, infinity or a value beyond float32; none of the rows was taken")
    return found


def check_names(names: Iterable[str] | None, count: int, *, named: bool) -> list[str] | None:
    """One for each row, where rows have names."""
    if not named:
        if names is not None:
            raise ValueError("names: the rows of this model have no names; add rows without")
        return None
    if names is None or isinstance(names, str):
        raise ValueError("names: the rows of this model have names; give a sequence of one for each row")
    packed = names if isinstance(names, Names) else Names.of(names)
    if len(packed) != count:
        raise ValueError(f"names has {len(packed)} entries, but rows has {count} rows")
    return list(packed)


def first_segment(index: ExactIndex | PartitionIndex, ids: Ints | None) -> Segment:
    """What was built, or loaded; without ids these are 0 to n - 1."""
    features = index.features
    return Segment(index, np.arange(features.n) if ids is None else ids, features.names, built=True)
