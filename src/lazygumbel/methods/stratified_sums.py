"""Sums by `Stratified`: rows picked from every stretch of each bucket, weighed by one over their rate.

A row is picked as often, on average, as the rate of its bucket says: the sums are unbiased. So they are where rows are
weighed by their codes, because some are read as well and stand for the others. Picks spread no more than a simple
random sample of the bucket would, for every cell gives its share: the variance is that of the picks around the
bucket's mean, which errs on the safe side.
"""

from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.methods.base import Function, Phi
from lazygumbel.methods.plan import Plan
from lazygumbel.results import Moments
from lazygumbel.threads import share

__all__ = ["Sums", "sums"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SHARED_FROM = 6_000
"""From this many rows on, weighing them is worth sharing between threads."""
_CODED_BELOW = 0.04
"""Rows are weighed by their codes where those are off by less: reading one in 32 then adds 5% to the variance."""


class Sums(NamedTuple):
    """What one look at a theta gave, batch shape ()."""

    moments: Moments
    rows: int


def sums(plan: Plan, b: int, rates: Floats, f: Function | None, rng: np.random.Generator, threads: int = 1) -> Sums:
    """One look at theta b with these rates; on so many threads where it is long enough."""
    uniforms = rng.random(len(rates) + 1)
    if f is None or isinstance(f, Phi):
        parts = threads if rates @ plan.levels.sizes >= _SHARED_FROM else 1
        return _plain_sums(plan, b, rates, uniforms, parts, features=f is not None)
    begins, before, edges = plan.survey[:3]
    positions, ends = kernels.pick(begins[b], before[b], edges[b], rates, uniforms, 0, 1)
    return _sums_of(f, plan, b, rates, positions, ends)


def _plain_sums(plan: Plan, b: int, rates: Floats, uniforms: Floats, parts: int, *, features: bool) -> Sums:
    """Sums of weights and, with `features`, of weighted rows: scored and summed in one pass."""
    stored, codes = plan.index.features.stored, plan.index.codes
    theta, temperature = plan.query.thetas[b], plan.query.temperature
    begins, before, edges = (column[b] for column in plan.survey[:3])
    # No logit exceeds the bound. Up to 300, weights and their squares are far from overflow without a shift.
    norm = sqrt(float(theta @ theta))
    bound = norm * plan.index.features.max_norm / temperature
    shift = max(0.0, bound - 300.0)
    # The error of a code lies in any direction, so a logit is off by about this.
    coded = not features and codes.error * norm / temperature < _CODED_BELOW * sqrt(len(theta))
    banned, banned_ends = plan.banned
    banned = banned[banned_ends[b] : banned_ends[b + 1]]

    def part(t: int, parts: int) -> tuple[Ints, Floats, Floats, Floats]:
        positions, ends = kernels.pick(begins, before, edges, rates, uniforms, t, parts)
        found = kernels.weigh(
            stored,
            codes.bytes,
            codes.low,
            codes.step,
            coded,
            int(uniforms[-1] * 32),
            positions,
            ends,
            rates,
            theta,
            1 / temperature,
            shift,
            banned,
            features,
        )
        return np.diff(ends), *found

    found = share(part, parts)
    picks = sum((one[0] for one in found), np.zeros(len(rates), dtype=np.int64))
    plain, squares, cross = (np.sum(column, axis=0) for column in list(zip(*found, strict=True))[1:])
    m = int(picks.sum())
    total = plain.sum(axis=0)
    if total[0] <= 0:
        return Sums(_nothing(total[1:] if features else None), m)
    spread = _Spread(1.0 - rates, picks.astype(np.float64))
    variance = np.maximum(spread.of(squares, plain, plain), 0.0)  # equal weights have none, up to rounding
    moments = Moments(np.asarray(shift), total[0, ...], variance[0, ...])
    if features:
        covariance = spread.of(cross, plain[:, :1], plain[:, 1:])
        moments = replace(moments, weighted=total[1:], var_weighted=variance[1:], covariance=covariance)
    return Sums(moments, m)


def _sums_of(f: Function, plan: Plan, b: int, rates: Floats, positions: Ints, ends: Ints) -> Sums:
    """Sums of any function of the rows."""
    scores = kernels.score_at(plan.index.features.stored, positions, plan.query.thetas[b])
    logits = scores.astype(np.float64) / plan.query.temperature
    if len(plan.query.excluded[b]):
        logits[np.isin(positions, plan.query.features.locate(plan.query.excluded[b]))] = -np.inf
    shift = logits.max(initial=-np.inf)
    if not np.isfinite(shift):
        empty = np.zeros_like(f(np.zeros(1, np.int64), np.zeros(1))[0], dtype=np.float64)
        return Sums(_nothing(empty), len(positions))
    buckets = np.flatnonzero(np.diff(ends))
    starts, picks = ends[buckets], np.diff(ends)[buckets]
    weights = np.exp(logits - shift) * np.repeat(1.0 / rates[buckets], picks)
    values = f(plan.index.order[positions], logits)
    along = weights[(...,) + (None,) * (values.ndim - 1)]
    spread = _Spread(1.0 - rates[buckets], picks.astype(np.float64))
    plain, weighted = np.add.reduceat(weights, starts), np.add.reduceat(along * values, starts)
    moments = Moments(
        np.asarray(shift),
        np.asarray(plain.sum()),
        np.maximum(spread.of(np.add.reduceat(weights * weights, starts), plain, plain), 0.0),
        np.asarray(weighted.sum(axis=0)),
        np.maximum(spread.of(np.add.reduceat((along * values) ** 2, starts), weighted, weighted), 0.0),
        spread.of(
            np.add.reduceat(along * along * values, starts),
            plain[(...,) + (None,) * (weighted.ndim - 1)],
            weighted,
        ),
    )
    return Sums(moments, len(positions))


def _nothing(zero: Floats | None) -> Moments:
    """Nothing was seen: the sums are zero and say nothing about their error."""
    return Moments(np.full((), -np.inf), np.zeros(()), np.full((), np.inf), zero, zero, zero)


class _Spread(NamedTuple):
    """Variance of a sum from sums over the picks of each bucket; a bucket of one pick spreads around zero."""

    unseen: Floats
    """One minus the rate of each bucket, (K,)."""
    picks: Floats

    def of(self, products: Floats, a: Floats, b: Floats) -> Floats:
        """Covariance of the sums of a and b, from sums of a b, a and b in each bucket, (K, ...)."""
        lone = self.picks <= 1
        centre = np.where(lone, 0.0, 1.0 / np.maximum(self.picks, 1.0))
        factor = self.unseen * np.where(lone, 1.0, self.picks / np.maximum(self.picks - 1.0, 1.0))
        extra = (...,) + (None,) * (products.ndim - 1)
        return np.asarray((factor[extra] * (products - centre[extra] * a * b)).sum(axis=0))
