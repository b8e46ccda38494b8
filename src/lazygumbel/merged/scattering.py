"""Answers for some thetas of a batch, laid out for all of them: nothing was found for the others.

A set of rows that holds no row for a theta (all are excluded, say) adds nothing to a union: perturbed values of minus
infinity, sums of zero. One that holds fewer rows than were asked for is filled up with such nothings.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.results import EXACT, Draws, Estimate, Grounds, Moments, OrderedDraws, TopK

__all__ = ["scatter_draws", "scatter_estimate", "scatter_ordered", "scatter_top"]

Scalar = TypeVar("Scalar", bound=np.generic)


def scatter_draws(found: Sequence[tuple[Ints, Draws]], thetas: int, _: int) -> Draws:
    """Draws for all thetas."""
    count = len(found[0][1].ids)
    ids, values = np.full((count, thetas), -1, dtype=np.int64), np.full((count, thetas), -np.inf)
    for some, draws in found:
        ids[:, some], values[:, some] = draws.ids, draws.values
    rows, grounds, bound = _of_batch(found, thetas)
    violations = _fill([(some, draws.violations) for some, draws in found], np.zeros(thetas, dtype=np.int64))
    return Draws(ids, values, rows, grounds, bound, violations)


def scatter_ordered(found: Sequence[tuple[Ints, OrderedDraws]], thetas: int, size: int) -> OrderedDraws:
    """Ordered draws for all thetas, each filled up to this many."""

    def each(name: str, room: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        for some, draws in found:
            values = getattr(draws, name)
            room[: len(values), some] = values
        return room

    shape = (size, thetas)
    rows, grounds, bound = _of_batch(found, thetas)
    return OrderedDraws(
        each("ids", np.full(shape, -1, dtype=np.int64)),
        each("logits", np.full(shape, -np.inf)),
        each("values", np.full(shape, -np.inf)),
        _fill([(some, draws.threshold) for some, draws in found], np.full(thetas, -np.inf)),
        rows,
        grounds,
        bound,
    )


def scatter_estimate(found: Sequence[tuple[Ints, Estimate]], thetas: int, _: int) -> Estimate:
    """An estimate for all thetas, from its moments; without moments it is given back as it is, and does not merge."""
    if any(estimate.moments is None for _, estimate in found):
        return found[0][1]

    def each(name: str, empty: float) -> Floats:
        values = [(some, getattr(estimate.moments, name)) for some, estimate in found]
        return _fill(values, np.full((thetas, *values[0][1].shape[1:]), empty))

    rest = ["total", "var_total"]
    weighted = found[0][1].moments is not None and found[0][1].moments.weighted is not None
    if weighted:
        rest += ["weighted", "var_weighted", "covariance"]
    moments = Moments(each("shift", -np.inf), *(each(name, 0.0) for name in rest))
    make = Estimate.of_expectation if weighted else Estimate.of_log_partition
    return make(moments, *_of_batch(found, thetas))


def scatter_top(found: Sequence[tuple[Ints, TopK]], thetas: int, k: int) -> TopK:
    """Lists of length k for all thetas, filled up with scores of minus infinity."""
    ids, scores = np.full((thetas, k), -1, dtype=np.int64), np.full((thetas, k), -np.inf, dtype=np.float32)
    for some, top in found:
        ids[some, : top.ids.shape[-1]], scores[some, : top.ids.shape[-1]] = top.ids, top.scores
    rows = _fill([(some, top.rows) for some, top in found], np.zeros(thetas, dtype=np.int64))
    bound = _fill([(some, top.bound) for some, top in found], np.zeros(thetas))
    return TopK(ids, scores, rows, all(top.exact for _, top in found), k, bound)


def _of_batch(found: Sequence[tuple[Ints, Any]], thetas: int) -> tuple[Ints, Grounds, Any]:
    """Rows, grounds and bounds: where nothing was asked, nothing was looked at, and that is exact."""
    return (
        _fill([(some, result.rows) for some, result in found], np.zeros(thetas, dtype=np.int64)),
        _fill([(some, result.grounds) for some, result in found], np.full(thetas, EXACT)),
        _fill([(some, result.bound) for some, result in found], np.zeros(thetas)),
    )


def _fill(found: Sequence[tuple[Ints, Any]], room: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    for some, values in found:
        room[some] = values
    return room
