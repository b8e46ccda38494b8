"""Which shard has a row. A row that was built has the id that it had before the split; shards hold ranges of those.

A row that was added to shard s of S, as the j-th since the build, has the id n + j S + s, where n rows were built: ids
follow from those that shards give, are given once, and need no table. What was removed is known by its ids.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Mask
from lazygumbel._support.checks import check_ids
from lazygumbel.indexes import Index
from lazygumbel.sharded.manifest import Manifest, Shard
from lazygumbel.sharded.requests import Lost, Standing

__all__ = ["Holding", "ShardPlaces"]

_NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Holding:
    """A shard, and the rows that it has now. Its own ids are those that it gave."""

    shard: Shard
    standing: Standing
    built: int
    """Rows of the model that were built."""
    shards: int

    @property
    def number(self) -> int:
        """Of the shard."""
        return self.shard.shard

    @property
    def count(self) -> int:
        """Rows that there are."""
        return self.standing.count

    @property
    def dead(self) -> Ints:
        """Its own ids of rows that were removed."""
        return _NONE if self.standing.dead is None else self.standing.dead

    @property
    def size(self) -> int:
        """One more than the largest id of the model that it has given."""
        return int(self.ids_of(np.array(self.standing.given - 1))) + 1

    def ids_of(self, own: Ints) -> Ints:
        """Ids of the model."""
        later = own - self.shard.rows
        return np.where(later < 0, own + self.shard.start, self.built + later * self.shards + self.number)

    def has(self, own: Ints) -> Mask:
        """Whether there are rows with these ids of its own."""
        there = own < self.standing.given
        dead = self.dead
        if len(dead):
            there &= dead[np.minimum(np.searchsorted(dead, own), len(dead) - 1)] != own
        return there


class ShardPlaces:
    """The rows of all shards, each in one version; the `Places` of a merged distribution."""

    def __init__(self, manifest: Manifest, standings: Mapping[int, Standing], lost: Mapping[int, Lost]) -> None:
        self.shards = [
            Holding(shard, standings[shard.shard], manifest.n, len(manifest.shards))
            for shard in manifest.shards
            if shard.shard in standings
        ]
        """Those that can have rows; places count these."""
        self.filled = [holding for holding in self.shards if holding.count]
        """Those that have some."""
        self.lost = lost
        """Shards of which it is not known which rows they have."""
        self.n = sum(holding.count for holding in self.shards)
        self.d = manifest.d
        self.size = max(manifest.n, *(holding.size for holding in self.shards))
        self.max_norm = max(holding.standing.max_norm for holding in self.shards)
        """The largest norm that a row has, or had before it was removed."""
        self._built, self._stride = manifest.n, len(manifest.shards)
        self._plain = all(holding.standing.given == holding.count == holding.shard.rows for holding in self.shards)
        self._starts = np.array([holding.shard.start for holding in self.shards], dtype=np.int64)
        self._rows = np.array([holding.shard.rows for holding in self.shards], dtype=np.int64)
        self._place_of = np.full(len(manifest.shards), -1, dtype=np.int64)
        self._place_of[[holding.number for holding in self.shards]] = np.arange(len(self.shards))

    @cached_property
    def ids(self) -> Ints:
        """Of all rows, ascending."""
        if self._plain:
            return np.arange(self.n)
        own = [(one, np.setdiff1d(np.arange(one.standing.given), one.dead, assume_unique=True)) for one in self.shards]
        return np.sort(np.concatenate([holding.ids_of(ids) for holding, ids in own]))

    @cached_property
    def version(self) -> str:
        """The same for the same rows in the same shards."""
        held = "\n".join(holding.standing.version for holding in self.shards)
        return hashlib.sha256(held.encode()).hexdigest()[:16]

    @property
    def index_type(self) -> type[Index] | None:
        """Of the indexes, where all shards have the same kind."""
        kinds = {holding.standing.index_type for holding in self.shards if holding.standing.given}
        return kinds.pop() if len(kinds) == 1 else None

    def versions(self, shards: Mapping[int, object]) -> dict[int, str | None]:
        """Of some shards."""
        return {holding.number: holding.standing.version for holding in self.shards if holding.number in shards}

    def find(self, ids: Ints) -> tuple[Ints, Ints]:
        """For each id the place of its shard, -1 where there is no such row, and its own id there."""
        place = np.searchsorted(self._starts, ids, side="right") - 1
        own = ids - self._starts[place]
        if self._plain:
            return place, own
        turn, shard = np.divmod(ids - self._built, self._stride)
        place = np.where(turn < 0, place, self._place_of[shard])
        own = np.where(turn < 0, own, self._rows[place] + turn)
        for p, holding in enumerate(self.shards):
            place = np.where((place == p) & ~holding.has(own), -1, place)
        return place, own

    def locate(self, ids: npt.ArrayLike, name: str) -> tuple[Ints, Ints, Ints]:
        """Checked ids with their places: those of removed rows are refused."""
        asked = check_ids(ids, name, self.size)
        place, own = self.find(asked)
        if (place < 0).any():
            raise ValueError(f"{name} holds {asked[place < 0].flat[0]}, but no row has this id (any more)")
        return asked, place, own
