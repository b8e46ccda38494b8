"""`Segment`: rows with an index of their own, and which of them were removed. Immutable."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.distribution import Distribution, Exclude
from lazygumbel.indexes import ExactIndex, Index, PartitionIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.methods import Bounded, Calibrated, Exhaustive, Query

__all__ = ["Named", "Segment"]

T = TypeVar("T")
_AWARE = Bounded, Calibrated, Exhaustive
"""Methods that see only what an index shows; others count on ids from 0 to n - 1, and removed ones are excluded."""


class Named(Protocol):
    """Names by place."""

    def __getitem__(self, i: int, /) -> str:
        """The name at a place."""
        ...


class Segment:
    """A part of a model: see `parts.Part`. Rows have places in it, which are the ids of its index."""

    def __init__(
        self,
        index: ExactIndex | PartitionIndex,
        ids: Ints,
        names: Named | None,
        *,
        sorted_ids: bool = True,
        cells: Ints | None = None,
        built: bool = False,
    ) -> None:
        self.index = index
        """Over all rows, the removed ones too."""
        self.shown = index
        """The same, which shows only the others."""
        self.ids = ids
        """Of each place, (n,)."""
        self.names: Named | None = names
        """Of each place."""
        self.cells = cells
        """Which cells of the build those of the index are; None for the build itself."""
        self.set_aside: Calibration | None = None
        """What was measured with rows that were removed since: its target is no longer assured."""
        self.built = built
        """Whether it was built as a whole; what came later answers to methods as well as it can."""
        self.count = index.features.n
        """Rows that were not removed."""
        self._sorted = sorted_ids
        self._identical = sorted_ids and len(ids) > 0 and int(ids[0]) == 0 and int(ids[-1]) == len(ids) - 1

    @property
    def is_plain(self) -> bool:
        """Whether ids are places and no row was removed."""
        return self._identical and self.count == len(self.ids)

    @cached_property
    def dead(self) -> Ints:
        """Places of rows that were removed, ascending."""
        features = self.shown.features
        if features.dead is None:
            return np.empty(0, dtype=np.int64)
        positions = np.flatnonzero(features.dead)
        return positions if features.order is None else np.sort(features.order[positions])

    @cached_property
    def kept(self) -> Ints:
        """Places of the others, ascending."""
        return np.setdiff1d(np.arange(len(self.ids)), self.dead, assume_unique=True)

    @cached_property
    def stored_ids(self) -> Ints:
        """Of each position, read-only, (n,)."""
        order = self.index.features.order
        found = self.ids.view() if order is None else self.ids[order]
        found.flags.writeable = False
        return found

    def find(self, ids: Ints) -> Ints:
        """The place of each id; -1 where there is none, or its row was removed."""
        if self._identical:
            places = np.where(ids < len(self.ids), ids, -1)
        else:
            order, keys = self._lookup
            at = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
            places = np.where(keys[at] == ids, at if order is None else order[at], -1)
        features = self.shown.features
        if features.dead is not None:
            gone = features.dead[features.locate(np.maximum(places, 0))]
            places = np.where(gone, -1, places)
        return places

    @cached_property
    def _lookup(self) -> tuple[Ints | None, Ints]:
        """Places in the order of their ids, and these; of an id that was replaced only the place that counts."""
        if self._sorted:
            return None, self.ids
        order = self.kept[np.argsort(self.ids[self.kept], kind="stable")]
        return order, self.ids[order]

    def without(self, places: Ints) -> "Segment":
        """The same rows, less those at these places."""
        other = copy(self)
        for cached in ("dead", "kept", "_lookup"):
            other.__dict__.pop(cached, None)
        if isinstance(self.index, PartitionIndex) and self.index.calibration is not None:
            other.index, other.set_aside = self.index.calibrated(None), self.index.calibration
        other.shown = self.shown.without(places)
        other.count = self.count - len(places)
        return other

    def beside(self, build: "Segment") -> "Segment":
        """The same rows, in cells that are known to have the means of the build's, if they do."""
        mine, theirs, cells = self.index, build.index, self.cells
        if not isinstance(mine, PartitionIndex) or not isinstance(theirs, PartitionIndex) or cells is None:
            return self
        shared = np.array_equal(mine.partition.means, theirs.partition.means[cells])
        return self.under(mine.in_cells_of(cells)) if shared else self

    def as_build(self) -> "Segment":
        """The same rows, as others will lie beside them."""
        other = copy(self)
        other.built, other.cells = True, None
        return other

    def under(self, index: PartitionIndex) -> "Segment":
        """The same rows under another index; none of them was removed."""
        other = copy(self)
        other.index = other.shown = index
        return other

    def method(self, given: object) -> Any:
        """What answers to a method that a user asked for: codes are no better than scoring every row."""
        if isinstance(given, Calibrated) and self.set_aside is not None:
            return Bounded(delta=given.delta)
        if self.built or not isinstance(given, Bounded | Calibrated):
            return given
        if isinstance(self.index, ExactIndex):
            return Exhaustive()
        return Bounded(delta=given.delta) if isinstance(given, Calibrated) else given

    def __call__(self, theta: Vectors, *, temperature: float) -> "SegmentDistribution":
        return SegmentDistribution(self, theta, temperature)


class SegmentDistribution(Distribution):
    """The distribution over the rows of a segment that were not removed; ids are places."""

    def __init__(self, segment: Segment, theta: npt.ArrayLike, temperature: float) -> None:
        super().__init__(segment.shown, theta, temperature)
        self._segment = segment

    def _chosen(self, method: object, capability: type[T], default: Callable[[Index], T]) -> T:
        return super()._chosen(self._segment.method(method), capability, default)

    def _asked(self, method: object, exclude: Exclude) -> Query:
        segment, query = self._segment, self.query(exclude)
        if isinstance(method, _AWARE) or segment.count == len(segment.ids):
            return query
        excluded = tuple(np.union1d(segment.dead, ids) for ids in query.excluded)
        return replace(query, index=segment.index, excluded=excluded)
