"""`ShardedFeatures`: rows and names, fetched from the shards that hold them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.sharded.places import Holding, ShardPlaces
from lazygumbel.sharded.requests import Request, Verb
from lazygumbel.sharded.view import View

__all__ = ["ShardedFeatures", "ShardedNames"]


class ShardedFeatures:
    """The rows phi of all shards. A shard that is missing is an error, whatever the model does without it."""

    def __init__(self, view: View, *, named: bool) -> None:
        self._view, self.named = view, named

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._view.known.n

    @property
    def d(self) -> int:
        """Length of a row."""
        return self._view.known.d

    @property
    def max_norm(self) -> float:
        """The largest norm that a row has, or had before it was removed."""
        return self._view.known.max_norm

    def __repr__(self) -> str:
        return f"ShardedFeatures(n={self.n:,}, d={self.d})"

    def gather(self, ids: npt.ArrayLike) -> Vectors:
        """The rows with these ids, shape ids.shape + (d,), a copy."""
        return self._view.steady(lambda places: self._gather(places, ids))

    @property
    def names(self) -> "ShardedNames | None":
        """The names of the rows; None if they have none."""
        return ShardedNames(self) if self.named else None

    def names_of(self, ids: npt.ArrayLike) -> list[str]:
        """The names of the rows with these ids, flattened."""
        self._check_named()
        return self._view.steady(lambda places: self._names_of(places, ids))

    def find(self, name: str) -> int:
        """The smallest id whose name is `name`; `ValueError` when there is none."""
        self._check_named()
        return self._view.steady(lambda places: self._find(places, name))

    def beginning_with(self, prefix: str, limit: int) -> Ints:
        """Ids of at most so many rows whose names begin so, whatever their case: equal names first, then by id."""
        self._check_named()
        return self._view.steady(lambda places: self._beginning_with(places, prefix, limit))

    def _gather(self, places: ShardPlaces, ids: npt.ArrayLike) -> Vectors:
        asked, place, own = places.locate(ids, "ids")
        rows = np.empty((asked.size, places.d), dtype=np.float32)
        for where, found in self._of_each(places, "gather", place.reshape(-1), own.reshape(-1)):
            rows[where] = found
        return rows.reshape(*asked.shape, places.d)

    def _names_of(self, places: ShardPlaces, ids: npt.ArrayLike) -> list[str]:
        asked, place, own = places.locate(ids, "ids")
        names = [""] * asked.size
        for where, found in self._of_each(places, "names", place.reshape(-1), own.reshape(-1)):
            for i, name in zip(where.tolist(), found, strict=True):
                names[i] = name
        return names

    def _find(self, places: ShardPlaces, name: str) -> int:
        own = self._of_all(places, Request("find", {"name": name}))
        ids = [int(one.ids_of(np.array(found))) for one, found in own if found is not None]
        if not ids:
            raise ValueError(f"no row is named {name!r}")
        return min(ids)

    def _beginning_with(self, places: ShardPlaces, prefix: str, limit: int) -> Ints:
        found = self._of_all(places, Request("complete", {"prefix": prefix, "most": limit}))
        pieces = [np.concatenate([one.ids_of(own[kind]) for one, own in found]) for kind in (0, 1)]
        return np.concatenate([np.sort(piece) for piece in pieces])[:limit]

    def _of_all(self, places: ShardPlaces, request: Request) -> list[tuple[Holding, Any]]:
        """What every shard that has rows answers."""
        answers = self._view.send(places, {one.number: (request,) for one in places.filled}, whole=True).answers
        return [(one, answers[one.number][0]) for one in places.filled]

    def _of_each(self, places: ShardPlaces, verb: Verb, place: Ints, own: Ints) -> list[tuple[Ints, Any]]:
        """Which of the ids lie in a shard, and what it says of them."""
        present: list[int] = np.unique(place).tolist()
        where = {places.shards[p].number: np.flatnonzero(place == p) for p in present}
        requests = {shard: (Request(verb, {"ids": own[at]}),) for shard, at in where.items()}
        answers = self._view.send(places, requests, whole=True).answers
        return [(at, answers[shard][0]) for shard, at in where.items()]

    def _check_named(self) -> None:
        if not self.named:
            raise ValueError("name: the rows of this model have no names")


class ShardedNames:
    """Names, fetched when they are looked at."""

    def __init__(self, features: ShardedFeatures) -> None:
        self._features = features

    def __repr__(self) -> str:
        return f"ShardedNames(n={self._features.n:,})"

    def __getitem__(self, ids: Ints) -> npt.NDArray[np.object_]:
        """The names of these ids, in their shape."""
        return np.array(self._features.names_of(ids), dtype=np.object_).reshape(np.shape(ids))
