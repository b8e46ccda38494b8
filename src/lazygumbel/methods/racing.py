"""A race with ceilings of every theta of a batch: what `Bounded`, `Calibrated` and `Exhaustive` have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.threads import map_threads
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.indexes.partition.helping import call_helper, let_go
from lazygumbel.kernels.batches import DRAWN, FAR, LOOKED_AT, TOO_LOW, Batch, Found, Wanted
from lazygumbel.kernels.types import LN2, Asked
from lazygumbel.methods.base import NOTHING, Query
from lazygumbel.methods.dense import finish, patience_of
from lazygumbel.results import Draws, Grounds, OrderedDraws, Reason

__all__ = [
    "LEAST_DELTA",
    "Drawn",
    "RaceBatch",
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

R = TypeVar("R")

LEAST_DELTA = 1e-100
"""Well above where the law of the codes' errors, in float64, has no quantile any more."""
_RACED = {(False, False): Reason.SURE_CEILINGS, (True, False): Reason.CEILINGS, (True, True): Reason.UNLIKE}
"""By whether codes may lose something, and whether there is a calibration, of which the theta is not covered."""
_LIKE = np.int8(Reason.LIKE.code)
_THETAS_AT_ONCE = 16
"""Of a batch that one thread races, before it takes some more."""


class Rules(NamedTuple):
    """What is asked of the races of a batch."""

    delta: float
    """What codes may lose; zero for ceilings by bytes."""
    calibration: Calibration | None
    size: int
    distinct: bool


class Drawn(NamedTuple):
    """Of a batch, or of one theta without the last axis, in the order of drawing."""

    ids: Ints
    """(size, B); likewise values."""
    values: Floats
    rows: Ints
    """(B,), as all that follow."""
    grounds: Grounds
    bound: Floats
    violations: Ints


@dataclass(frozen=True, eq=False)
class RaceBatch:
    """The races of a batch over an index, or over several that share rotation and codebooks, ready to be run."""

    indexes: Sequence[PartitionIndex]
    query: Query
    """Over the first; without exclusions if there are more."""
    rules: Rules
    asked: Asked
    batch: Batch
    wanted: Wanted
    found: Found

    @classmethod
    def of(
        cls, indexes: Sequence[PartitionIndex], query: Query, rules: Rules, seeds: npt.NDArray[np.uint64], more: int = 0
    ) -> "RaceBatch":
        """With three seeds for each index and theta, (P, B, 3): draws do not depend on the number of threads. There is
        room for what is found in `more` parts that are not raced over."""
        delta, calibration, size, distinct = rules
        features, excluded, ends = query.features, NOTHING, NOTHING
        if any(map(len, query.excluded)):
            slots = [indexes[0].slots(ids) for ids in query.excluded]
            excluded, ends = np.concatenate(slots), np.cumsum([len(some) for some in slots], dtype=np.int64)
        wanted = Wanted(size + distinct, distinct, features.live, patience_of(features))
        return cls(
            indexes,
            query,
            rules,
            indexes[0].asked(query.temperature, delta=delta, size=size, calibration=calibration),
            Batch(query.thetas, seeds, excluded, ends),
            wanted,
            Found.allocate(len(indexes) + more, query.size, wanted.size),
        )

    @property
    def shares(self) -> bool:
        """Whether a helper should share the scan."""
        return self.indexes[0].shares(self.query.size)

    def run(self, first: int, last: int, mailbox: Ints) -> int:
        """The races of some thetas, on this thread and that of a helper; how many were broken off."""
        indexes = self.indexes
        taken = [index.take_workspaces(last - first) for index in indexes]
        stored, workspaces = [index.stored for index in indexes], [workspace for workspace, _ in taken]
        parts = self.asked, self.batch, (first, last)
        undone = kernels.race_thetas(stored, *parts, workspaces, mailbox, self.wanted, self.found)
        for index, one in zip(indexes, taken, strict=True):
            index.give_back(one)
        return undone

    def drawn(self) -> Drawn:
        """What was found over the first index, where no race was broken off."""
        found, (delta, calibration, *_) = self.found, self.rules
        counts, thetas = found.counts, self.query.size
        grounds, bound = _claims(thetas, _RACED[delta > 0, calibration is not None].code, delta)
        covered = 0 if calibration is None else np.count_nonzero(counts[FAR, 0])
        if covered == thetas:
            grounds, bound = _claims(thetas, Reason.LIKE.code, np.nan)
        elif covered:
            far = counts[FAR, 0].astype(np.bool_)
            grounds, bound = np.where(far, _LIKE, grounds), np.where(far, np.nan, bound)
        ids = self.indexes[0].order[found.positions[0].T]
        return Drawn(ids, found.values[0].T, counts[LOOKED_AT, 0], grounds, bound, counts[TOO_LOW, 0])

    def finished(self, b: int, p: int = 0) -> Drawn:
        """What was found for one theta, finished by a dense pass if the race was broken off."""
        index, rules, found, at = self.indexes[p], self.rules, self.found, (p, b)
        drawn, rows, violations, far = (int(count) for count in found.counts[:, p, b])
        wanted = self.query.left(b) if rules.distinct else rules.size
        wanted = min(wanted, self.wanted.size)
        reason = Reason.LIKE if far else _RACED[rules.delta > 0, rules.calibration is not None]
        bound = np.nan if far else rules.delta
        ids, values = index.order[found.positions[at][:drawn]], found.values[at][:drawn]
        if drawn < wanted:
            passed, n = float(found.passed[at]), index.features.n
            one, seed = replace(self.query.at(slice(b, b + 1)), index=index), int(self.batch.seeds[p, b, 2])
            ids, values = finish(one, ids, values, passed, wanted, seed, distinct=rules.distinct)
            rows += n
            if drawn == 0 and passed == -np.inf:  # not a row was raced for
                reason, bound, rows = Reason.DENSE_PASS, 0.0, n
        grounds = np.array(reason.code, dtype=np.int8)
        return Drawn(ids, values, np.array(rows), grounds, np.array(bound), np.array(violations))


def race(index: PartitionIndex, query: Query, rules: Rules, rng: np.random.Generator) -> Drawn:
    """Race every theta of a query. Distinct rows are one more than asked for, or of value minus infinity if there are
    no more."""
    races = RaceBatch.of((index,), query, rules, seeds_of(rng.bytes(24 * query.size), 1))
    undone, drawn = in_turns(races), races.drawn()
    if undone:
        drawn = drawn._replace(rows=drawn.rows.copy(), grounds=drawn.grounds.copy(), bound=drawn.bound.copy())
        wanted = races.wanted.size
        for b in np.flatnonzero(races.found.counts[DRAWN, 0] < wanted).tolist():
            one = races.finished(b)
            drawn.ids[: len(one.ids), b], drawn.values[: len(one.ids), b] = one.ids, one.values
            drawn.rows[b], drawn.grounds[b], drawn.bound[b] = one.rows, one.grounds, one.bound
    return drawn


def seeds_of(entropy: bytes, parts: int) -> npt.NDArray[np.uint64]:
    """Three for each part and theta, (P, B, 3); much quicker than `integers`."""
    return np.frombuffer(bytearray(entropy), dtype=np.uint64).reshape(parts, -1, 3)


def in_turns(races: RaceBatch, before: Callable[[int, int], None] | None = None) -> int:
    """Run all races, on threads if thetas are many; `before` is called with the first and the last of every turn. How
    many were broken off."""

    def turn(first: int, last: int) -> int:
        mailbox = call_helper(races.shares)
        try:
            if before is not None:
                before(first, last)
            return races.run(first, last, mailbox)
        finally:
            let_go(mailbox)

    thetas = races.query.size
    if thetas == 1:
        return turn(0, 1)
    starts = range(0, thetas, _THETAS_AT_ONCE)
    return sum(map_threads(turn, starts, (min(start + _THETAS_AT_ONCE, thetas) for start in starts)))


@lru_cache(maxsize=256)
def _claims(thetas: int, reason: int, bound: float) -> tuple[Grounds, Floats]:
    """The same grounds and bound for every theta of a batch."""
    claims = np.full(thetas, reason, dtype=np.int8), np.full(thetas, bound)
    for array in claims:
        array.flags.writeable = False  # they are handed out again
    return claims


def pack_draws(drawn: Drawn) -> Draws:
    """Draws of a batch."""
    return Draws(*drawn)


def pack_ordered(query: Query, drawn: Drawn, size: int) -> OrderedDraws:
    """Draws of a batch without replacement; one more than asked for sets the threshold, where there is one."""
    ids = drawn.ids[:size]
    logits = [query.logits(b, ids[:, b]) for b in range(query.size)]
    return OrderedDraws(
        ids,
        np.array(logits).reshape(query.size, size).T,
        drawn.values[:size],
        drawn.values[size],
        drawn.rows + size,
        drawn.grounds,
        np.minimum(size * drawn.bound, 1.0),
    )


def ceilings_of(query: Query, method: object, delta: float, calibration: Calibration | None, seed: int) -> Floats:
    """Ceilings of the logits of one theta, by id, as one draw with this seed has them; inf where rows are scored."""
    index = partition_of(query, method)
    asked = index.asked(query.temperature, delta=delta, size=1, calibration=calibration)
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
