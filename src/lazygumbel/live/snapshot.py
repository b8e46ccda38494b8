"""`Snapshot`: the rows at one moment. Immutable, so that a reader needs no lock."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.checks import check_ids
from lazygumbel.live.drawing import LiveDistribution
from lazygumbel.live.segment import Segment
from lazygumbel.live.tail import Tail
from lazygumbel.results import Naming

__all__ = ["Snapshot"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Segments, largest first, and the rows that came last. `Places` of a merged distribution, too."""

    segments: tuple[Segment, ...]
    tail: Tail
    size: int
    """Ids that were given so far, from 0 on; those of removed rows are not given again."""

    @cached_property
    def parts(self) -> tuple[Segment, ...]:
        """What has rows that can be drawn."""
        live = [segment for segment in self.segments if segment.count]
        return (*live, self.tail.segment()) if self.tail.live else tuple(live)

    @cached_property
    def max_norm(self) -> float:
        """Of the longest row, or more."""
        return max((part.index.features.max_norm for part in self.parts), default=0.0)

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(segment.count for segment in self.segments) + self.tail.live

    @property
    def d(self) -> int:
        """Length of a row."""
        return self.tail.rows.shape[1]

    @property
    def plain(self) -> Segment | None:
        """The only segment, if it holds all ids there ever were."""
        only = self.parts[0] if len(self.parts) == 1 else None
        return only if only is not None and only.is_plain and only.count == self.size else None

    @cached_property
    def ids(self) -> Ints:
        """Of all rows, ascending."""
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *(part.ids[part.kept] for part in self.parts)]))

    def find(self, ids: Ints) -> tuple[Ints, Ints]:
        """For each id its part, -1 where there is no such row any more, and its place in that part."""
        part_of, places = np.full(ids.shape, -1, dtype=np.int64), np.zeros(ids.shape, dtype=np.int64)
        for p, part in enumerate(self.parts):
            found = part.find(ids)
            part_of = np.where(found >= 0, p, part_of)
            places = np.where(found >= 0, found, places)
        return part_of, places

    def locate(self, ids: npt.ArrayLike, name: str) -> tuple[Ints, Ints, Ints]:
        """Checked ids with their parts and places: those of removed rows are refused."""
        asked = check_ids(ids, name, self.size)
        part_of, places = self.find(asked)
        if (part_of < 0).any():
            gone = asked[part_of < 0].flat[0]
            raise ValueError(f"{name} holds {gone}, but the row with this id was removed")
        return asked, part_of, places

    def gather(self, ids: npt.ArrayLike, name: str = "ids") -> Vectors:
        """The rows with these ids, shape ids.shape + (d,)."""
        asked, part_of, places = self.locate(ids, name)
        rows = np.empty((*asked.shape, self.d), dtype=np.float32)
        for p, part in enumerate(self.parts):
            here = part_of == p
            if here.any():
                rows[here] = part.index.features.gather(places[here])
        return rows

    def __call__(self, theta: npt.ArrayLike, temperature: float, naming: Naming | None = None) -> LiveDistribution:
        return LiveDistribution(self, theta, temperature, naming=naming)
