"""Rows chosen for a theta with known probabilities: sums of whatever has become of them since the index was built.

The rows and the strata are those of `sums`. What is kept is how often each row is chosen on average, which depends on
the index alone: weighed by one over that, sums over the rows as they are now are unbiased too (Hansen-Hurwitz).
"""

from collections.abc import Sequence
from math import ceil, expm1, log
from typing import NamedTuple

import numpy as np

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.cost import WIDEST, for_sums
from lazygumbel.kernels.batches import Sample
from lazygumbel.kernels.types import COUNT, LN2, REFERENCE, Run
from lazygumbel.methods.base import Query
from lazygumbel.methods.racing import for_each_theta

__all__ = ["Proposed", "propose"]


_DENSE_SHARE = 0.25
"""Of the rows: a theta that asks for more, to be estimated well enough, gets a dense pass."""
_LEAST, _FROM_DENSE = 64, 256
"""Rows chosen by chance, at least, and after a dense pass."""
_SMALL = 0.1
"""Share of the error asked for that a row may weigh and be left to chance."""


class Proposed(NamedTuple):
    """Of one theta: `sum(exp(logits + log_weights))` estimates Z without bias, whatever the logits of these rows are.

    Weights are one over how often a row is chosen on average.
    """

    ids: Ints
    log_weights: Floats
    certain: int
    """So many, the first, are chosen for certain; the others by chance, and some of them more than once."""


def propose(query: Query, rel_err: float, rng: np.random.Generator) -> list[Proposed]:
    """Rows for each theta, enough for this relative error of Z as long as rows are as the index knows them."""
    seeds = rng.integers(2**63, size=(query.size, 2)).tolist()
    index = query.index
    if not isinstance(index, PartitionIndex):
        return for_each_theta(query, lambda b: _propose_densely(query, b, seeds[b]))
    return for_each_theta(query, lambda b: _propose(index, query, b, rel_err, seeds[b]))


def _propose(index: PartitionIndex, query: Query, b: int, rel_err: float, seeds: Sequence[int]) -> Proposed:
    asked = index.estimate(query.temperature, for_sums(query.features.d, index.parts, rel_err))
    excluded, shared = index.slots(query.excluded[b]), index.shares(query.size)
    with index.enter(query.thetas[b], asked, seed=seeds[0], excluded=excluded, shared=shared) as entered:
        run, race = entered.run, entered.run.race
        kernels.set_reference(run, entered.outlook)
        sample = _sample(index, run, query, rel_err, seeds) if run.ceilings.power == 1.0 else None
        if sample is None:
            return _propose_densely(query, b, seeds)
        certain, size = int(race.state[COUNT]), len(sample.positions)
        ids = entered.order[np.concatenate([race.positions[:certain], sample.positions])]
        weights = np.zeros(len(ids))
        with np.errstate(divide="ignore"):  # a row so unlikely that its weight is lost to rounding
            weights[certain:] = np.log(sample.ratios) + log(float(race.ends[-1]) / size)
        weights[certain:] -= LN2 * (sample.logits - race.state[REFERENCE])
        return Proposed(ids, weights, certain)


def _sample(index: PartitionIndex, run: Run, query: Query, rel_err: float, seeds: Sequence[int]) -> Sample | None:
    """Rows by chance, once those whose codes tell too little are certain; None if a dense pass is better.

    Sums are unbiased only if the number of rows does not depend on which they are: it is by the width of a typical
    code, not by those that were met.
    """
    if not kernels.score_wide(run, WIDEST, _SMALL * rel_err) or not 0 < run.race.ends[-1] < np.inf:
        return None
    wanted = max(expm1(min(run.ceilings.deviations[0] * index.typical_width, WIDEST[0]) ** 2) / rel_err**2, _LEAST)
    if wanted > max(_DENSE_SHARE * query.features.n, _LEAST):
        return None
    sample = Sample.empty(2 * ceil(wanted / 2))
    kernels.sample_strata(run, np.uint64(seeds[1]), 0, len(sample.positions), sample)
    return sample if 0 < sample.ratios.sum() < np.inf else None


def _propose_densely(query: Query, b: int, seeds: Sequence[int]) -> Proposed:
    """From the softmax itself, one row from each of as many strata of equal mass as rows are chosen."""
    blocks = list(query.at(slice(b, b + 1)).dense())
    ids, logits = np.concatenate([one.ids for one in blocks]), np.concatenate([one.logits[0] for one in blocks])
    masses = np.exp(logits - logits.max())
    ends = np.cumsum(masses)
    uniforms: Floats = np.random.default_rng(seeds).random(_FROM_DENSE)
    at = np.searchsorted(ends, (np.arange(_FROM_DENSE) + uniforms) * (float(ends[-1]) / _FROM_DENSE), side="right")
    chosen = np.minimum(at, np.flatnonzero(masses)[-1])
    return Proposed(ids[chosen], log(float(ends[-1]) / _FROM_DENSE) - np.log(masses[chosen]), 0)
