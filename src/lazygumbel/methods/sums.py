"""Sums over all rows of one theta, from a scan and some rows: unbiased whatever the codes are worth.

Rows are sampled with probability in proportion to their estimated weight, two from each stratum of equal weight, and
weighed by one over that (Hansen-Hurwitz). Two a stratum make the estimate of the variance unbiased too. See Saerndal,
Swensson and Wretman, Model Assisted Survey Sampling, sections 2.9 and 3.7.
"""

from collections.abc import Sequence
from math import ceil, exp2, inf, isfinite, log, sqrt
from typing import NamedTuple

import numpy as np

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.threads import submit
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.cost import WIDEST, for_sums
from lazygumbel.indexes.partition.helping import call_helper, let_go
from lazygumbel.kernels.batches import Sample, Sampled
from lazygumbel.kernels.types import COUNT, LN2, MASS, REFERENCE, SCORED, Race, Run
from lazygumbel.methods.base import Function, Query
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.weighing import WeightedSums
from lazygumbel.results import Moments, Reason

__all__ = ["Summed", "sample_softmax", "sum_theta"]


_PILOT = 64
"""Rows of a first sample: see `kernels.sample_to`."""
_DENSE_SHARE = 0.25
"""A sum that would sample a larger share of the rows is made over all of them."""
_LARGEST_SHARE = 0.01
"""Of a sample that one row may weigh: more, and the codes were far off."""
_LEAST_MASS = 2.0**-60
"""In units of what all rows were expected to weigh: where the rows that hold the mass are excluded, the weights of what
is left are cut off, or vanish."""
_GRAIN = 2e-4
"""Relative variance of weights in fixed point, well below what it is on average."""
_SHARED_FROM = 2048
"""Rows of a sample from which a second thread pays."""
_ROUNDING = 1e-7
"""Relative error of a float32 inner product, in units of |theta|, the largest norm and the root of d."""


class Summed(NamedTuple):
    """Of one theta."""

    moments: Moments
    rows: int
    reason: Reason
    bound: float


def sum_theta(
    index: PartitionIndex, query: Query, b: int, f: Function | None, rel_err: float, seeds: Sequence[int]
) -> Summed:
    """Sums of exp(logit), and with f of exp(logit) f, to this relative error of Z, or by a dense pass."""
    features = query.features
    asked = index.estimate(query.temperature, for_sums(features.d, index.parts, rel_err))
    theta, rules = (query.thetas[b], index.slots(query.excluded[b])), (rel_err, _DENSE_SHARE * features.n, WIDEST)
    numbers = np.array(seeds, dtype=np.uint64)
    mailbox = call_helper(index.shares(query.size))
    try:
        race = index.take_race()
        sampled = kernels.sample_theta(index.stored, asked, theta, numbers, race, mailbox, rules)
        summed = _weigh(index, query, b, race, sampled, f) if len(sampled.sample.ratios) else None
        index.give_back_race(race)
    finally:
        let_go(mailbox)
    return summed or _summed_densely(query, b, f)


def _weigh(
    index: PartitionIndex, query: Query, b: int, race: Race, sampled: Sampled, f: Function | None
) -> Summed | None:
    """Sums over certain rows and, as a sample tells, over the others; None if it does not tell."""
    features, sample, (mean, _, variance, allowed, _) = query.features, sampled.sample, sampled.estimate
    rest = float(race.ends[-1])
    total = float(race.state[MASS]) + rest * mean
    if not (_LEAST_MASS < total < inf and isfinite(variance)):
        return None
    # Where a few rows hold the mass, pairs may not show how weights differ; unless there is one alone.
    first = exp2(min(float(sample.logits[0]) - float(race.state[REFERENCE]), 1000.0))
    if not (first >= (1 - 1e-6) * rest * float(sample.ratios[0]) and np.ptp(sample.positions) == 0):
        variance = max(variance, _GRAIN * mean * mean / len(sample.ratios))
    rounding = _ROUNDING * sqrt(features.d) * sampled.norm / query.temperature * features.max_norm
    # In units of the estimate of Z itself, so that nothing overflows.
    shift, share = float(race.state[REFERENCE]) * LN2 + log(total), rest / total
    moments = Moments(np.array([shift]), np.ones(1), np.array([share * share * variance + rounding**2]))
    if f is not None:
        weighted = _certain_moments(index, query, b, race, total, f)
        weighted += _sampled_moments(index.order[sample.positions], sample, share, f)
        moments = Moments(moments.shift, moments.total, moments.var_total, *(w[None] for w in weighted))
    # Of an expectation relative to the largest |f|, which may be as far from its mean as twice that.
    bound = share * mean * (allowed if f is None else 2 * sqrt(1 + allowed**2)) / sqrt(len(sample.ratios))
    return Summed(moments, int(race.state[SCORED]) + _PILOT + len(sample.ratios), Reason.WEIGHED, bound)


def _summed_densely(query: Query, b: int, f: Function | None) -> Summed:
    seen = Exhaustive().moments(query.at(slice(b, b + 1)), f, np.random.default_rng(0))
    return Summed(seen.moments, int(seen.rows[0]), Reason.DENSE_PASS, 0.0)


def sample_softmax(index: PartitionIndex, query: Query, size: int, seed: int) -> tuple[Ints, Floats] | None:
    """Positions of `size` rows and their weights, of sum one: averages over them estimate those over the softmax.

    None if codes cannot tell, and all rows have to be scored.
    """
    effort = for_sums(query.features.d, index.parts, 1 / sqrt(size))
    shared = index.shares(query.size)
    with index.enter(query.thetas[0], index.estimate(query.temperature, effort), seed=seed, shared=shared) as entered:
        run = entered.run
        kernels.set_reference(run, entered.outlook)
        np.cumsum(run.race.sums, out=run.race.ends)
        if not 0 < run.race.ends[-1] < np.inf or run.ceilings.power != 1.0:
            return None
        sample = _sample(run, 2 * ceil(size / 2), seed, shared=shared)
    total = float(sample.ratios.sum())
    if not 0 < total < np.inf or float(sample.ratios.max()) > _LARGEST_SHARE * total:
        return None
    return sample.positions, sample.ratios / total


def _sample(run: Run, count: int, seed: int, *, shared: bool) -> Sample:
    """Rows from strata; two threads share a large sample."""
    sample, number = Sample.empty(count), np.uint64(seed)
    middle = count // 4 * 2 if shared and count >= _SHARED_FROM else count
    other = None
    if middle < count:
        other = submit(kernels.sample_strata, run, number, middle, count, sample)
    kernels.sample_strata(run, number, 0, middle, sample)
    if other is not None:
        other.result()
    return sample


def _certain_moments(index: PartitionIndex, query: Query, b: int, race: Race, total: float, f: Function) -> Floats:
    """Sums of f over certain rows in units of the total, with no variance and no covariance: (3, values)."""
    count = int(race.state[COUNT])
    positions, masses = race.positions[:count], race.masses[:count] / total
    logits = query.features.score_at(positions, query.thetas[b]).astype(np.float64) / query.temperature
    values = WeightedSums.of(f, index.order[positions], logits, masses).values
    return np.stack([values, np.zeros_like(values), np.zeros_like(values)])


def _sampled_moments(ids: Ints, sample: Sample, share: float, f: Function) -> Floats:
    """Sums of f over the other rows, their variance, and their covariance with the sum of weights: (3, values).

    Each row of the sample stands for all; variances are between the two of each stratum.
    """
    m = len(ids)
    sums = WeightedSums.of_pairs(f, ids, sample.logits * LN2, sample.ratios * share)
    return np.stack([sums.values / m, sums.squares / m**2, sums.cross / m**2])
