"""Sums by `Stratified`: one row from every stretch of storage, weighed by one over its rate.

A row is picked as often, on average, as the rate of its bucket says: the sums are unbiased. So they are where rows are
weighed by their codes, because some are read as well and stand for the others. The variance is known from how much
picks differ from the ones before. Rates are such that weighed rows are alike, up to chance, so it matters little which
of several cells a stretch takes its row from.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.methods.base import Function, Phi
from lazygumbel.methods.plan import Plan
from lazygumbel.methods.weighing import concatenate, stack
from lazygumbel.results import Moments
from lazygumbel.threads import alone, together

__all__ = ["Sums", "sums"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SHARED_FROM = 8_000
"""From this many rows on, weighing them is worth sharing between threads."""
_PARTS = 4
"""So many parts are the picks of one theta cut into then, whatever the number of threads: the same sums anywhere."""
_NUMBERS_AT_ONCE = 2**17
"""Sums by theta and column that are held at once: some MB."""


class Sums(NamedTuple):
    """What one look at each of some thetas gave, batch shape (thetas,)."""

    moments: Moments
    errors: Floats
    """Relative standard errors of Z; infinite where nothing was seen."""
    rows: Ints


def sums(plan: Plan, thetas: Sequence[int], rates: Floats, f: Function | None, rng: np.random.Generator) -> Sums:
    """One look at each of these thetas with its rates, (thetas, K)."""
    if f is not None and not isinstance(f, Phi):
        found = [_sums_of(f, plan, b, rates[j], rng.random()) for j, b in enumerate(thetas)]
        moments, errors, rows = zip(*found, strict=True)
        return Sums(stack(moments), np.array(errors), np.array(rows, dtype=np.int64))
    features = f is not None
    step = max(1, _NUMBERS_AT_ONCE // (1 + features * plan.query.thetas.shape[1]))
    if len(thetas) <= step:
        return _plain_sums(plan, thetas, rates, rng, features=features)
    cuts = [slice(a, a + step) for a in range(0, len(thetas), step)]
    moments, errors, rows = zip(
        *(_plain_sums(plan, thetas[c], rates[c], rng, features=features) for c in cuts), strict=True
    )
    return Sums(concatenate(moments), np.concatenate(errors), np.concatenate(rows))


def _plain_sums(plan: Plan, thetas: Sequence[int], rates: Floats, rng: np.random.Generator, *, features: bool) -> Sums:
    """Sums of weights and, with `features`, of weighted rows: scored and summed in one pass."""
    queries, buckets, banned, banned_ends = plan.of(thetas)
    size, shared = len(thetas), len(thetas) == 1 and plan.rows[thetas[0]] >= _SHARED_FROM
    units = 1 + _PARTS if shared else 2
    progress, counts = np.zeros(2, dtype=np.int64), np.empty((size, units), dtype=np.int64)
    shifts = np.empty(size)
    found = np.zeros((size, units, 3, 1 + features * queries.shape[1]))
    look = partial(
        kernels.weigh,
        plan.index.features.stored,
        *plan.index.codes,
        plan.index.offsets,
        buckets,
        rates,
        rng.random((size, units, 2)),
        queries,
        1.0 / plan.query.temperature,
        plan.index.features.max_norm,
        banned,
        banned_ends,
        progress,
        shifts,
        counts,
        found,
    )
    (together if shared else alone)(look)
    rows, errors, total, variance, covariance = kernels.spread(counts, found)
    weighted = (total[:, 1:], variance[:, 1:], covariance[:, 1:]) if features else ()
    return Sums(Moments(shifts, total[:, 0], variance[:, 0], *weighted), errors, rows)


def _sums_of(f: Function, plan: Plan, b: int, rates: Floats, uniform: float) -> tuple[Moments, float, int]:
    """Sums of any function of the rows for theta b, batch shape (), the error of Z, and how many rows they are from."""
    sure, picked, owners, factor = kernels.pick(plan.index.offsets, plan.survey.buckets[b], rates, uniform)
    positions, certain = np.concatenate([sure, picked]), len(sure)
    scores = kernels.score_at(plan.index.features.stored, positions, plan.query.thetas[b])
    logits = scores.astype(np.float64) / plan.query.temperature
    if len(plan.query.excluded[b]):
        logits[np.isin(positions, plan.query.features.locate(plan.query.excluded[b]))] = -np.inf
    shift = logits.max(initial=-np.inf)
    if not np.isfinite(shift):
        zero = np.zeros_like(f(np.zeros(1, np.int64), np.zeros(1))[0], dtype=np.float64)
        return Moments(np.zeros(()), np.zeros(()), np.zeros(()), zero, zero, zero), np.inf, len(positions)
    rate = np.concatenate([np.ones(certain), factor * rates[owners]])
    weights = np.exp(logits - shift) / rate
    values = f(plan.index.order[positions], logits)
    each = np.column_stack([weights, weights[(...,) + (None,) * (values.ndim - 1)] * values])
    drawn = each[certain:]
    half, change = 0.5 * np.maximum(1.0 - rate[certain + 1 :], 0.0), np.diff(drawn, axis=0)
    nothing = np.zeros(each.shape[1])
    _, errors, total, variance, covariance = kernels.spread(
        np.array([[certain, len(picked)]]),
        np.array(
            [
                [
                    [each[:certain].sum(axis=0), nothing, nothing],
                    [drawn.sum(axis=0), half @ change**2, (half * change[:, 0]) @ change],
                ]
            ]
        ),
    )
    weighted, var_weighted, with_total = (
        column[0, 1:].reshape(values.shape[1:]) for column in (total, variance, covariance)
    )
    moments = Moments(np.asarray(shift), total[0, 0], variance[0, 0], weighted, var_weighted, with_total)
    return moments, float(errors[0]), len(positions)
