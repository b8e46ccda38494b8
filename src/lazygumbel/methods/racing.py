"""A race with ceilings of one theta, and of a batch: what `Bounded`, `Calibrated` and `Exhaustive` have in common."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import log
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition import Calibration, Entered
from lazygumbel.kernels.types import REFERENCE, SCORED, VIOLATIONS
from lazygumbel.methods.base import Query
from lazygumbel.methods.exhaustive import finish, patience_of
from lazygumbel.methods.settling import LN2, settle
from lazygumbel.results import Draws, Label, OrderedDraws
from lazygumbel.threads import map_threads

__all__ = [
    "Drawn",
    "ceilings_of",
    "draw_batch",
    "for_each_theta",
    "pack_draws",
    "pack_ordered",
    "partition_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
R = TypeVar("R")

_NOTHING = np.empty(0, dtype=np.int64)


class Drawn(NamedTuple):
    """Of one theta, in the order of drawing."""

    ids: Ints
    values: Floats
    rows: int
    label: Label
    bound: float
    violations: int


class Promise(NamedTuple):
    """How far the draws of a race can be trusted."""

    label: Label
    bound: float


def _run_race(
    query: Query, b: int, entered: Entered, promise: Promise, size: int, seeds: Sequence[int], *, distinct: bool
) -> Drawn:
    """Draw `size` rows for one theta that was scanned; a race that takes longer than a dense pass is finished by it."""
    run = entered.run
    one = query.at(slice(b, b + 1))
    if not settle(run, entered.outlook, size):
        ids, values = finish(one, _NOTHING, np.empty(0), -np.inf, size, seeds[1], distinct=distinct)
        return Drawn(ids, values, query.features.n, "exact", 0.0, 0)
    positions, values = np.empty(size, dtype=np.int64), np.empty(size)
    draw = kernels.draw_distinct if distinct else kernels.draw
    drawn, time = draw(run, np.uint64(seeds[0]), patience_of(query), positions, values)
    state = run.race.state
    ids = entered.order[positions[:drawn]]
    rows, violations = int(state[SCORED]), int(state[VIOLATIONS])
    values = values[:drawn]
    if drawn < size:
        passed = (log(time) if time > 0.0 else -np.inf) - float(state[REFERENCE]) * LN2
        ids, values = finish(one, ids, values, passed, size, seeds[1], distinct=distinct)
        rows += query.features.n
    return Drawn(ids, values, rows, *promise, violations)


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
        np.array([d.label for d in drawn], dtype="U10"),
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
        np.array([one.label for one in drawn], dtype="U10"),
        np.array([min(size * one.bound, 1.0) for one in drawn]),
    )


def draw_batch(
    query: Query,
    method: object,
    delta: float,
    calibration: Calibration | None,
    size: int,
    rng: np.random.Generator,
    *,
    distinct: bool,
) -> list[Drawn]:
    """Race every theta of a batch; distinct rows are one more than asked for, if there are as many."""
    index, seeds = partition_of(query, method), rng.integers(2**63, size=(query.size, 3)).tolist()

    def of_theta(b: int) -> Drawn:
        wanted = min(size + 1, query.left(b)) if distinct else size
        with _enter(index, query, b, delta, calibration, wanted, seeds[b][0]) as entered:
            promise = Promise("calibrated", np.nan) if entered.far else Promise("bounded", delta)
            return _run_race(query, b, entered, promise, wanted, seeds[b][1:], distinct=distinct)

    return for_each_theta(query, of_theta)


def ceilings_of(query: Query, method: object, delta: float, calibration: Calibration | None, seed: int) -> Floats:
    """Ceilings of the logits of one theta, by id, as one draw with this seed has them; inf where rows are scored."""
    with _enter(partition_of(query, method), query, 0, delta, calibration, 1, seed) as entered:
        settle(entered.run, entered.outlook)
        by_position = np.full(len(entered.order), np.inf)
        kernels.all_ceilings(entered.run, by_position)
        ceilings = np.empty_like(by_position)
        ceilings[entered.order] = by_position * LN2
        return ceilings


def _enter(
    index: PartitionIndex,
    query: Query,
    b: int,
    delta: float,
    calibration: Calibration | None,
    size: int,
    seed: int,
) -> AbstractContextManager[Entered]:
    return index.enter(
        query.thetas[b],
        query.temperature,
        delta=delta,
        size=size,
        calibration=calibration,
        seed=seed,
        excluded=query.features.locate(query.excluded[b]),
        shared=calibration is None and index.shares(query.size),
    )


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
