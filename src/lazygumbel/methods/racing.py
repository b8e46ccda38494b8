"""A race with ceilings of every theta of a batch: what `Bounded`, `Calibrated` and `Exhaustive` have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.threads import map_threads
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.indexes.partition.helping import helped
from lazygumbel.kernels.batches import Batch, Found
from lazygumbel.kernels.types import Asked
from lazygumbel.methods.base import Query
from lazygumbel.methods.dense import finish, patience_of
from lazygumbel.results import Draws, OrderedDraws, Reason, grounds

__all__ = [
    "LEAST_DELTA",
    "LN2",
    "Drawn",
    "Heat",
    "Rules",
    "ceilings_of",
    "for_each_theta",
    "in_turns",
    "pack_draws",
    "pack_ordered",
    "partition_of",
    "race",
    "seeds_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
R = TypeVar("R")

LN2 = log(2.0)
LEAST_DELTA = 1e-100
"""Well above where the law of the codes' errors, in float64, has no quantile any more."""
_NOTHING = np.empty(0, dtype=np.int64)
_RACED = {
    (False, False): Reason.SURE_CEILINGS,
    (True, False): Reason.CEILINGS,
    (True, True): Reason.UNLIKE,
}
"""By whether codes may lose something, and whether there is a calibration, of which the theta is not covered."""
_THETAS_AT_ONCE = 16
"""Of a batch that one thread races, before it takes some more."""


class Drawn(NamedTuple):
    """Of one theta, in the order of drawing."""

    ids: Ints
    values: Floats
    rows: int
    reason: Reason
    bound: float
    violations: int


class Rules(NamedTuple):
    """What is asked of the races of a batch."""

    delta: float
    """What codes may lose; zero for ceilings by bytes."""
    calibration: Calibration | None
    size: int
    distinct: bool


@dataclass(frozen=True, eq=False)
class Heat:
    """The races of a batch over an index, or over several that share rotation and codebooks, ready to be run."""

    indexes: Sequence[PartitionIndex]
    query: Query
    """Over the first; without exclusions if there are more."""
    rules: Rules
    asked: Asked
    batch: Batch
    found: Found
    seeds: npt.NDArray[np.uint64]
    """Of what kernels may leave undone, (P, B)."""

    @classmethod
    def of(
        cls,
        indexes: Sequence[PartitionIndex],
        query: Query,
        rules: Rules,
        seeds: npt.NDArray[np.uint64],
        more: int = 0,
    ) -> "Heat":
        """With three seeds for each index and theta, (P, B, 3): draws do not depend on the number of threads. There is
        room for what is found in `more` parts that are not raced over."""
        delta, calibration, size, distinct = rules
        asked = indexes[0].asked(query.temperature, delta=delta, size=size, calibration=calibration)
        found = Found.room(len(indexes) + more, query.size, size + distinct)
        return cls(indexes, query, rules, asked, _batch(indexes, query, rules, seeds), found, seeds[:, :, 2])

    @property
    def shares(self) -> bool:
        """Whether a helper should share the scan."""
        return self.rules.calibration is None and self.indexes[0].shares(self.query.size)

    def run(self, first: int, last: int, desk: Ints) -> None:
        """The races of some thetas, on this thread and that of a helper."""
        taken = [index.take_rooms(last - first) for index in self.indexes]
        kernels.race_thetas(
            [index.stored for index in self.indexes],
            self.asked,
            self.batch,
            (first, last),
            [rooms for rooms, _ in taken],
            desk,
            (np.array([patience_of(index.features) for index in self.indexes]), self.rules.distinct),
            self.found,
        )
        for index, one in zip(self.indexes, taken, strict=True):
            index.give_back(one)

    def drawn(self, b: int, p: int = 0) -> Drawn:
        """What was found for one theta; the rest by a dense pass, which is exact if it is all."""
        index, rules, found, at = self.indexes[p], self.rules, self.found, (p, b)
        drawn, wanted, rows = int(found.drawn[at]), int(self.batch.wanted[b]), int(found.rows[at])
        ids, values = index.order[found.positions[at][:drawn]], found.values[at][:drawn]
        reason = Reason.LIKE if found.far[at] else _RACED[rules.delta > 0, rules.calibration is not None]
        bound = np.nan if found.far[at] else rules.delta
        if drawn < wanted:
            passed, n = float(found.passed[at]), index.features.n
            one = replace(self.query.at(slice(b, b + 1)), index=index)
            ids, values = finish(one, ids, values, passed, wanted, int(self.seeds[at]), distinct=rules.distinct)
            rows += n
            if drawn == 0 and passed == -np.inf:  # not a row was raced for
                reason, bound, rows = Reason.DENSE_PASS, 0.0, n
        return Drawn(ids, values, rows, reason, bound, int(found.violations[at]))


def race(index: PartitionIndex, query: Query, rules: Rules, rng: np.random.Generator) -> list[Drawn]:
    """Race every theta of a query. Distinct rows are one more than asked for, if there are as many."""
    heat = Heat.of((index,), query, rules, seeds_of(rng.bytes(24 * query.size))[None])
    in_turns(heat)
    return [heat.drawn(b) for b in range(query.size)]


def seeds_of(entropy: bytes) -> npt.NDArray[np.uint64]:
    """Three for each theta, (thetas, 3); much quicker than `integers`."""
    return np.frombuffer(entropy, dtype="<u8").astype(np.uint64).reshape(-1, 3)


def in_turns(heat: Heat, before: Callable[[int, int], None] | None = None) -> None:
    """Run all races, on threads if thetas are many; `before` is called with the first and the last of every turn."""

    def turn(first: int, last: int) -> None:
        with helped(heat.shares) as desk:
            if before is not None:
                before(first, last)
            heat.run(first, last, desk)

    thetas = heat.query.size
    if thetas == 1:
        turn(0, 1)
        return
    starts = range(0, thetas, _THETAS_AT_ONCE)
    list(map_threads(turn, starts, (min(start + _THETAS_AT_ONCE, thetas) for start in starts)))


def _batch(indexes: Sequence[PartitionIndex], query: Query, rules: Rules, seeds: npt.NDArray[np.uint64]) -> Batch:
    """What kernels are asked."""
    size = query.size
    wanted, excluded, ends = np.full(size, rules.size + rules.distinct), _NOTHING, np.zeros(size, dtype=np.int64)
    if any(map(len, query.excluded)):
        slots = [indexes[0].slots(ids) for ids in query.excluded]
        excluded, ends = np.concatenate(slots), np.cumsum([len(some) for some in slots], dtype=np.int64)
    if rules.distinct:
        wanted = np.minimum(wanted, [query.left(b) for b in range(size)])
    scales: list[float] = (query.norms / query.temperature).tolist()
    quantiles = np.array([[index.quantiles(rules.delta, scale) for scale in scales] for index in indexes])
    shape = len(indexes), size, 2
    return Batch(query.thetas, quantiles.reshape(shape), np.ascontiguousarray(seeds[:, :, :2]), excluded, ends, wanted)


def pack_draws(drawn: Sequence[Drawn], size: int) -> Draws:
    """Draws of a batch."""
    if len(drawn) == 1:  # the common case, without the cost of stacking
        one = drawn[0]
        columns = one.ids[:, None], one.values[:, None]
    else:
        columns = (
            np.array([d.ids for d in drawn], dtype=np.int64).reshape(len(drawn), size).T,
            np.array([d.values for d in drawn]).reshape(len(drawn), size).T,
        )
    return Draws(
        *columns,
        np.array([d.rows for d in drawn], dtype=np.int64),
        grounds([d.reason for d in drawn]),
        np.array([d.bound for d in drawn]),
        np.array([d.violations for d in drawn], dtype=np.int64),
    )


def pack_ordered(query: Query, drawn: Sequence[Drawn], size: int) -> OrderedDraws:
    """Draws of a batch without replacement; one more than asked for sets the threshold, where there is one."""
    found = list(zip(range(query.size), drawn, strict=True))
    shape = query.size, size
    return OrderedDraws(
        np.array([one.ids[:size] for one in drawn], dtype=np.int64).reshape(shape).T,
        np.array([query.logits(b, one.ids[:size]) for b, one in found]).reshape(shape).T,
        np.array([one.values[:size] for one in drawn]).reshape(shape).T,
        np.array([one.values[size] if len(one.values) > size else -np.inf for one in drawn]),
        np.array([one.rows + size for one in drawn], dtype=np.int64),
        grounds([one.reason for one in drawn]),
        np.array([min(size * one.bound, 1.0) for one in drawn]),
    )


def ceilings_of(query: Query, method: object, delta: float, calibration: Calibration | None, seed: int) -> Floats:
    """Ceilings of the logits of one theta, by id, as one draw with this seed has them; inf where rows are scored."""
    index = partition_of(query, method)
    quantiles = index.quantiles(delta, float(query.norms[0]) / query.temperature)
    asked = index.asked(query.temperature, delta=delta, size=1, calibration=calibration)
    asked = asked._replace(quantiles=quantiles, slope=asked.slope * quantiles[0])
    with index.enter(query.thetas[0], asked, seed=seed, excluded=index.slots(query.excluded[0])) as entered:
        kernels.settle(entered.run, entered.outlook, 1)
        by_position = np.full(len(entered.order), np.inf)
        kernels.all_ceilings(entered.run, by_position)
        ceilings = np.empty_like(by_position)
        ceilings[entered.order] = by_position * LN2
        return ceilings


def partition_of(query: Query, method: object) -> PartitionIndex:
    """The index of a query, if it is one that can be raced over."""
    if not isinstance(query.index, PartitionIndex):
        raise ValueError(
            f"method: {type(method).__name__} needs a PartitionIndex, not {type(query.index).__name__}; build one with "
            "PartitionIndex.build, or choose another method"
        )
    return query.index


def for_each_theta(query: Query, of_theta: Callable[[int], R], *, alone: bool = False) -> list[R]:
    """A function of every theta, on threads: each has seeds of its own, so that answers do not depend on how many."""
    thetas = range(query.size)
    return [of_theta(b) for b in thetas] if alone or query.size < 2 else list(map_threads(of_theta, thetas))
