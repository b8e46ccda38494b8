"""`ShardedFeatures`: rows and names, fetched from the shards that hold them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_ids
from lazygumbel.sharded.manifest import Manifest
from lazygumbel.sharded.requests import Replies, Request, Requests, Verb
from lazygumbel.sharded.script import Ranges

__all__ = ["ShardedFeatures"]

Ints = npt.NDArray[np.int64]


class ShardedFeatures:
    """The rows phi of all shards. A shard that is missing is an error, whatever the model does without it."""

    def __init__(self, manifest: Manifest, ranges: Ranges, ask: Callable[[Requests], Replies]) -> None:
        self.n, self.d, self.max_norm = manifest.n, manifest.d, manifest.max_norm
        self.named = manifest.named
        self._ranges, self._ask = ranges, ask

    def __repr__(self) -> str:
        return f"ShardedFeatures(n={self.n:,}, d={self.d}, shards={len(self._ranges.shards)})"

    def gather(self, ids: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The rows with these ids, shape ids.shape + (d,), a copy."""
        asked = check_ids(ids, "ids", self.n)
        rows = np.empty((asked.size, self.d), dtype=np.float32)
        for where, found in self._of_each("gather", asked.reshape(-1)):
            rows[where] = found
        return rows.reshape(*asked.shape, self.d)

    def names_of(self, ids: Ints) -> list[str]:
        """The names of the rows with these ids, (m,)."""
        self._check_named()
        names = [""] * len(ids)
        for where, found in self._of_each("names", ids):
            for i, name in zip(where.tolist(), found, strict=True):
                names[i] = name
        return names

    def find(self, name: str) -> int:
        """The smallest id whose name is `name`; `ValueError` when there is none."""
        self._check_named()
        shards = self._ranges.shards
        answers = self._ask({shard.shard: (Request("find", {"name": name}),) for shard in shards}).answers
        for shard in shards:
            (found,) = answers[shard.shard]
            if found is not None:
                return shard.start + found
        raise ValueError(f"no row is named {name!r}")

    def _of_each(self, verb: Verb, ids: Ints) -> list[tuple[Ints, Any]]:
        """Which of the ids lie in a shard, and what it says of them."""
        place, local = self._ranges.find(ids)
        present: list[int] = np.unique(place).tolist()
        where = {p: np.flatnonzero(place == p) for p in present}
        numbers = {p: self._ranges.shards[p].shard for p in where}
        replies = self._ask({numbers[p]: (Request(verb, {"ids": local[at]}),) for p, at in where.items()})
        return [(at, replies.answers[numbers[p]][0]) for p, at in where.items()]

    def _check_named(self) -> None:
        if not self.named:
            raise ValueError("name: the rows of this model have no names")
