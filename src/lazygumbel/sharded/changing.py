"""Rows added to shards, removed from them, replaced: what is wrong is found before any shard is asked to change."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel.live.rows import check_names, check_rows
from lazygumbel.sharded.coordinator import Coordinator
from lazygumbel.sharded.places import ShardPlaces
from lazygumbel.sharded.requests import Request, ShardError

__all__ = ["add", "remove", "replace"]


def add(shards: Coordinator, rows: npt.ArrayLike, names: Iterable[str] | None) -> Ints:
    """Rows to the shard that has the fewest; returns their ids."""
    with shards.changing:
        places = shards.now()
        new = check_rows(rows, places.d)
        if not len(new):
            return np.empty(0, dtype=np.int64)
        able = [one for one in places.shards if one.number not in places.lost]
        if not able:
            raise ShardError(places.lost)
        emptiest = min(able, key=lambda one: one.count)
        given = {"rows": new, "names": check_names(names, len(new), named=shards.named), "index": places.index_type}
        places = shards.change({emptiest.number: Request("add", given)})
        (held,) = (one for one in places.shards if one.number == emptiest.number)
        return held.ids_of(np.arange(held.standing.given - len(new), held.standing.given))


def remove(shards: Coordinator, ids: npt.ArrayLike) -> None:
    """Remove rows."""
    with shards.changing:
        places = shards.now()
        for_each = _by_shard(places, ids)
        if sum(len(own) for _, own in for_each.values()) == places.n:
            raise ValueError(f"ids are all {places.n} rows of the model; at least one must be left")
        shards.change({places.shards[p].number: Request("remove", {"ids": own}) for p, (_, own) in for_each.items()})


def replace(shards: Coordinator, ids: npt.ArrayLike, rows: npt.ArrayLike) -> None:
    """Other rows under the same ids."""
    with shards.changing:
        places = shards.now()
        new, for_each = check_rows(rows, places.d), _by_shard(places, ids)
        if len(new) != np.size(np.asarray(ids)):
            raise ValueError(f"rows has {len(new)} rows, but ids has {np.size(np.asarray(ids))}")
        shards.change(
            {
                places.shards[p].number: Request("replace", {"ids": own, "rows": new[where]})
                for p, (where, own) in for_each.items()
            }
        )


def _by_shard(places: ShardPlaces, ids: npt.ArrayLike) -> dict[int, tuple[Ints, Ints]]:
    """For every place that holds some of the ids, which of them, and its own ids of these. None may be lost."""
    asked, place, own = places.locate(ids, "ids")
    if asked.ndim != 1:
        raise ValueError(f"ids must have shape (m,), not {asked.shape}")
    values, counts = np.unique(asked, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"ids holds {values[counts > 1][0]} more than once")
    found: dict[int, tuple[Ints, Ints]] = {}
    present: list[int] = np.unique(place).tolist()
    for p in present:
        where = np.flatnonzero(place == p)
        found[p] = where, own[where]
    lost = {places.shards[p].number for p in found} & set(places.lost)
    if lost:
        raise ShardError({shard: places.lost[shard] for shard in lost})
    return found
