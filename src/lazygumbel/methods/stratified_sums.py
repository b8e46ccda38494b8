"""Sums by `Stratified`: one row from every stretch of storage, weighed by one over its rate.

A row is picked as often, on average, as the rate of its bucket says: the sums are unbiased. So they are where rows are
weighed by their codes, because some are read as well and stand for the others. The variance is known from how much
picks differ from the ones before. Rates are such that weighed rows are alike, up to chance, so it matters little which
of several cells a stretch takes its row from.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.methods.base import Function, Phi
from lazygumbel.methods.plan import Plan
from lazygumbel.methods.weighing import concatenate, stack
from lazygumbel.results import Moments
from lazygumbel.threads import share

__all__ = ["Sums", "sums"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SHARED_FROM = 60_000
"""From this many rows on, weighing them is worth sharing between threads."""
_NUMBERS_AT_ONCE = 2**17
"""Sums by theta and column that are held at once: 1 MB."""
_CODED_BELOW = 0.04
"""Rows are weighed by their codes where those are off by less: reading one in 32 then adds 5% to the variance."""


class Sums(NamedTuple):
    """What one look at each of some thetas gave, batch shape (thetas,)."""

    moments: Moments
    rows: Ints

    @property
    def errors(self) -> Floats:
        """Relative standard errors of Z; infinite where nothing was seen."""
        total, variance = self.moments.total, self.moments.var_total
        if total.min(initial=1.0) > 0:
            return np.sqrt(variance) / total
        return np.where(total > 0, np.sqrt(variance) / np.where(total > 0, total, 1.0), np.inf)


def sums(
    plan: Plan, thetas: Sequence[int], rates: Floats, f: Function | None, rng: np.random.Generator, threads: int = 1
) -> Sums:
    """One look at each of these thetas with its rates, (thetas, K); a long look at one is shared by the threads."""
    if f is not None and not isinstance(f, Phi):
        found = [_sums_of(f, plan, b, rates[j], rng.random()) for j, b in enumerate(thetas)]
        return Sums(stack([moments for moments, _ in found]), np.array([rows for _, rows in found], dtype=np.int64))
    features = f is not None
    step = max(1, _NUMBERS_AT_ONCE // (1 + features * plan.query.thetas.shape[1]))
    if len(thetas) <= step:
        return _plain_sums(plan, thetas, rates, rng, threads, features=features)
    cuts = [slice(a, a + step) for a in range(0, len(thetas), step)]
    parts = [_plain_sums(plan, thetas[c], rates[c], rng, 1, features=features) for c in cuts]
    return Sums(concatenate([part.moments for part in parts]), np.concatenate([part.rows for part in parts]))


def _plain_sums(
    plan: Plan, thetas: Sequence[int], rates: Floats, rng: np.random.Generator, threads: int, *, features: bool
) -> Sums:
    """Sums of weights and, with `features`, of weighted rows: scored and summed in one pass."""
    queries, buckets, banned, banned_ends = plan.of(thetas)
    codes, inverse_temperature = plan.index.codes, 1.0 / plan.query.temperature
    norms = plan.survey.norms if len(thetas) == plan.query.size else plan.survey.norms[thetas]
    # No logit exceeds the bound. Up to 300, weights and their squares are far from overflow without a shift.
    shifts = np.maximum(norms * (plan.index.features.max_norm * inverse_temperature) - 300.0, 0.0)
    # The error of a code lies in any direction, so a logit is off by about this.
    coded = norms * (codes.error * inverse_temperature) < (0.0 if features else _CODED_BELOW * sqrt(queries.shape[1]))
    if len(thetas) > 1 or rates[0] @ plan.levels.sizes < _SHARED_FROM:
        threads = 1
    uniforms = rng.random((len(thetas), 2 * threads))

    def part(t: int, parts: int) -> tuple[Ints, Floats, Floats, Floats, Floats]:
        return kernels.weigh(
            plan.index.features.stored,
            *codes[:3],
            coded,
            plan.index.offsets,
            buckets,
            rates,
            uniforms,
            queries,
            inverse_temperature,
            shifts,
            banned,
            banned_ends,
            features,
            t,
            parts,
        )

    if threads > 1:
        counts, *found = (np.sum(column, axis=0) for column in zip(*share(part, threads), strict=True))
    else:
        counts, *found = part(0, 1)
    total, variance, covariance = kernels.spread(counts, *found)
    weighted = (total[:, 1:], variance[:, 1:], covariance) if features else ()
    return Sums(Moments(shifts, total[:, 0], variance[:, 0], *weighted), counts.sum(axis=1))


def _sums_of(f: Function, plan: Plan, b: int, rates: Floats, uniform: float) -> tuple[Moments, int]:
    """Sums of any function of the rows for theta b, batch shape (), and how many rows they are from."""
    sure, picked, owners, factor = kernels.pick(plan.index.offsets, plan.survey.buckets[b], rates, uniform)
    positions, certain = np.concatenate([sure, picked]), len(sure)
    scores = kernels.score_at(plan.index.features.stored, positions, plan.query.thetas[b])
    logits = scores.astype(np.float64) / plan.query.temperature
    if len(plan.query.excluded[b]):
        logits[np.isin(positions, plan.query.features.locate(plan.query.excluded[b]))] = -np.inf
    shift = logits.max(initial=-np.inf)
    if not np.isfinite(shift):
        zero = np.zeros_like(f(np.zeros(1, np.int64), np.zeros(1))[0], dtype=np.float64)
        return Moments(np.zeros(()), np.zeros(()), np.zeros(()), zero, zero, zero), len(positions)
    rate = np.concatenate([np.ones(certain), factor * rates[owners]])
    weights = np.exp(logits - shift) / rate
    values = f(plan.index.order[positions], logits)
    each = np.column_stack([weights, weights[(...,) + (None,) * (values.ndim - 1)] * values])
    drawn = each[certain:]
    half, change = 0.5 * np.maximum(1.0 - rate[certain + 1 :], 0.0), np.diff(drawn, axis=0)
    total, variance, covariance = kernels.spread(
        np.array([[certain, len(picked)]]),
        each[:certain].sum(axis=0, keepdims=True),
        drawn.sum(axis=0, keepdims=True),
        (half @ change**2)[None],
        ((half * change[:, 0]) @ change[:, 1:])[None],
    )
    weighted, var_weighted, with_total = (
        column[0].reshape(values.shape[1:]) for column in (total[:, 1:], variance[:, 1:], covariance)
    )
    return Moments(np.asarray(shift), total[0, 0], variance[0, 0], weighted, var_weighted, with_total), len(positions)
