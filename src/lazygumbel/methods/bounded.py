"""`Bounded`: the race with ceilings over all codes of a `PartitionIndex`. The default.

Row i fires after a time Exp(rate e^(y_i)), and the first to fire is the sample: Gumbel-max in other words. With a
ceiling U_i >= y_i rows propose at rate e^(U_i), and a proposal is accepted with probability e^(y_i - U_i): Poisson
thinning, so that the first to be accepted is an exact sample, and only proposals are scored. Algorithm 1 of the paper
is this with one ceiling for the whole tail. Here every row has its own, by a code of a few bits an entry,
which is too low with probability at most delta, whatever the rows and theta: see `indexes.partition.law`.

Sums score two rows from each stratum of equal weight, chosen with probability in proportion to their ceilings, and
weigh them by one over that (Hansen-Hurwitz): unbiased whatever the codes are worth, and so are their variances.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_number
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.law import error_quantile
from lazygumbel.kernels.types import COUNT, MASS, REFERENCE, SCORED, VIOLATIONS, Race, Run, Sample
from lazygumbel.methods.base import Function, Phi, Query, Seen
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.weighing import WeightedSums, concatenate
from lazygumbel.results import Draws, Label, Moments, OrderedDraws
from lazygumbel.threads import map_threads, submit

__all__ = ["Bounded"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
R = TypeVar("R")

_LN2 = log(2.0)
_NOTHING = np.empty(0, dtype=np.int64)
_PATIENCE, _ENTRIES_A_PROPOSAL = 4096, 8192
"""Proposals that may be refused before a dense pass is made: so many, and one for as many entries of the matrix."""
_PILOT, _LEAST = 256, 256
"""Rows of a first sample, which tells how many to sample for a sum, and how many to sample at least."""
_DENSE_SHARE = 0.25
"""A sum that would sample a larger share of the rows is made over all of them."""
_SCORED_ABOVE = 2048
"""Rows whose ceiling is more than one in so many of the sum of all are scored for certain, however few are sampled."""
_MANY = 10**6
"""Of dimensions: then the error of a sketch is normal."""
_SHARED_FROM = 2048
"""Rows of a sample from which a second thread pays."""
_ROUNDING = 1e-7
"""Relative error of a float32 inner product, in units of |theta|, the largest norm and the root of d."""


class _Drawn(NamedTuple):
    """Of one theta."""

    ids: Ints
    values: Floats
    rows: int
    label: Label
    violations: int


class _Summed(NamedTuple):
    """Of one theta."""

    moments: Moments
    rows: int
    label: Label
    bound: float


@dataclass(frozen=True)
class Bounded:
    """Draws whose total variation distance from the softmax is at most `delta`, in expectation over the rotation.

    `rel_err` is the relative standard error of Z that sums aim at. Needs a `PartitionIndex`.
    """

    delta: float = 1e-4
    rel_err: float = 0.01

    def __post_init__(self) -> None:
        check_number(self.delta, "delta", above=0.0, below=0.02)
        check_number(self.rel_err, "rel_err", above=0.0, below=1.0)

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Independent samples. A theta for which the race would be slower gets a dense pass, which is exact."""
        seeds = rng.integers(2**63, size=(query.size, 3))
        drawn = _for_each(query, lambda b: self._draw(query, b, size, seeds[b].tolist(), distinct=False))
        return Draws(
            np.array([d.ids for d in drawn], dtype=np.int64).reshape(query.size, size).T,
            np.array([d.values for d in drawn]).reshape(query.size, size).T,
            np.array([d.rows for d in drawn], dtype=np.int64),
            np.array([d.label for d in drawn], dtype="U10"),
            np.array([0.0 if d.label == "exact" else self.delta for d in drawn]),
            np.array([d.violations for d in drawn], dtype=np.int64),
        )

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The first distinct rows of one race, and one more for the threshold; each draw adds at most delta."""
        seeds = rng.integers(2**63, size=(query.size, 3))

        def of_theta(b: int) -> OrderedDraws:
            drawn = self._draw(query, b, min(size + 1, query.left(b)), seeds[b].tolist(), distinct=True)
            ids, values = drawn.ids[:size], drawn.values[:size]
            return OrderedDraws(
                ids,
                query.logits(b, ids),
                values,
                np.asarray(drawn.values[size] if len(drawn.values) > size else -np.inf),
                np.asarray(drawn.rows + size),
                np.asarray(drawn.label),
            )

        found = _for_each(query, of_theta)
        columns = ("ids", "logits", "values", "threshold", "rows", "labels")
        shapes = ((query.size, size),) * 3 + ((query.size,),) * 3
        kinds = np.int64, np.float64, np.float64, np.float64, np.int64, "U10"
        arrays = (
            np.array([getattr(one, name) for one in found], dtype=kind).reshape(shape)
            for name, kind, shape in zip(columns, kinds, shapes, strict=True)
        )
        exact = np.array([one.label == "exact" for one in found], dtype=np.bool_)
        return OrderedDraws(*arrays, bound=np.where(exact, 0.0, min(size * self.delta, 1.0)))

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Certain rows, and rows sampled from the others: unbiased sums, with the variance between the samples."""
        seeds = rng.integers(2**63, size=(query.size, 3))
        alone = not (f is None or isinstance(f, Phi))  # a function of the user's is not called from several threads
        found = _for_each(query, lambda b: self._sum(query, b, f, seeds[b].tolist()), alone=alone)
        return Seen(
            concatenate([summed.moments for summed in found]),
            np.array([summed.rows for summed in found], dtype=np.int64),
            np.array([summed.label for summed in found], dtype="U10"),
            np.array([summed.bound for summed in found]),
        )

    def ceilings(self, query: Query, seed: int) -> Floats:
        """Ceilings of the logits of one theta, by id, as draws with this seed have them; inf where rows are scored."""
        index, run, _ = self._enter(query, 0, seed)
        by_position = np.full(query.features.n, np.inf)
        kernels.all_ceilings(run, by_position)
        ceilings = np.empty_like(by_position)
        ceilings[index.order] = by_position * _LN2
        return ceilings

    def _enter(self, query: Query, b: int, seed: int) -> tuple[PartitionIndex, Run, bool]:
        index = _partition(query)
        run, low = index.enter(
            query.thetas[b],
            query.temperature,
            delta=self.delta,
            seed=seed,
            excluded=query.features.locate(query.excluded[b]),
            shared=index.shares(query.size),
        )
        return index, run, kernels.settle(run, low)

    def _draw(self, query: Query, b: int, size: int, seeds: list[int], *, distinct: bool) -> _Drawn:
        index, run, settled = self._enter(query, b, seeds[0])
        positions, values = np.empty(size, dtype=np.int64), np.empty(size)
        patience = _PATIENCE + query.features.n * query.features.d // _ENTRIES_A_PROPOSAL
        if not settled:
            return _finish(query, b, _NOTHING, np.empty(0), -np.inf, size, seeds[2], distinct=distinct)
        drawn, time = kernels.draw(run, np.uint64(seeds[1]), patience, positions, values, distinct)
        ids, state = index.order[positions[:drawn]], run.race.state
        rows, violations = int(state[SCORED]), int(state[VIOLATIONS])
        if drawn < size:
            passed = (log(time) if time > 0.0 else -np.inf) - float(state[REFERENCE]) * _LN2
            rest = _finish(query, b, ids, values[:drawn], passed, size, seeds[2], distinct=distinct)
            ids, values, rows = rest.ids, rest.values, rows + rest.rows
        return _Drawn(ids, values, rows, "bounded", violations)

    def _sum(self, query: Query, b: int, f: Function | None, seeds: list[int]) -> _Summed:
        index, run, settled = self._enter(query, b, seeds[0])
        n, shared, race = query.features.n, index.shares(query.size), run.race
        unit = run.theta.norm / query.temperature / sqrt(max(query.features.d - 1, 1))
        quantile, rest, sampled, scored = error_quantile(self.delta, _MANY), float(race.ends[-1]), 0, _PILOT
        if settled and rest > 0.0:
            pilot = _sample(run, _PILOT, seeds[1], shared=False)
            mean, variance, _, _ = kernels.weigh_sample(pilot.ratios, pilot.widths, unit, quantile)
            sampled = self._sample_size(race, mean, variance)
            # A row that would be sampled in several strata is scored for certain; fewer strata do for the others.
            if sampled > 0 and kernels.score_above(run, rest / min(max(sampled, _SCORED_ABOVE), n // 16 + 1)):
                before, rest = rest, float(race.ends[-1])
                sampled = 2 * ceil(max(sampled * rest / before, _LEAST) / 2) if rest > 0.0 else 0
            else:
                sampled = 0
        if not 0 < sampled <= _DENSE_SHARE * n:
            seen = Exhaustive().moments(query.at(slice(b, b + 1)), f, np.random.default_rng(seeds[2]))
            return _Summed(seen.moments, int(seen.rows[0]), "exact", 0.0)
        sample = _sample(run, sampled, seeds[2], shared=shared)
        mean, _, variance, allowed = kernels.weigh_sample(sample.ratios, sample.widths, unit, quantile)
        total = float(race.state[MASS]) + rest * mean
        rounding = _ROUNDING * sqrt(query.features.d) * run.theta.norm / query.temperature * query.features.max_norm
        # In units of the estimate of Z itself, so that nothing overflows.
        shift, share = float(race.state[REFERENCE]) * _LN2 + log(total), rest / total
        moments = Moments(np.array([shift]), np.ones(1), np.array([share * share * variance + rounding**2]))
        if f is not None:
            weighted = _certain_moments(query, index, b, run, total, f)
            weighted += _sampled_moments(index.order[sample.positions], sample, share, f)
            moments = Moments(moments.shift, moments.total, moments.var_total, *(w[None] for w in weighted))
        # Of an expectation relative to the largest |f|, which may be as far from its mean as twice that.
        bound = share * mean * (allowed if f is None else 2 * sqrt(1 + allowed**2)) / sqrt(sampled)
        return _Summed(moments, int(race.state[SCORED]) + scored + sampled, "bounded", bound)

    def _sample_size(self, race: Race, mean: float, variance: float) -> int:
        """Rows to sample for the relative error asked for; zero if that cannot be told."""
        rest = float(race.ends[-1])
        mass = float(race.state[MASS]) + rest * mean
        if not 0 < mass < np.inf or not np.isfinite(variance):
            return 0
        wanted = variance * (rest * mean / mass / self.rel_err) ** 2
        return 2 * ceil(min(max(wanted, _LEAST), 1e15) / 2)


def _finish(
    query: Query, b: int, ids: Ints, values: Floats, passed: float, size: int, seed: int, *, distinct: bool
) -> _Drawn:
    """Finish a race by a dense pass, which is exact: what fires from now on does so after exp(passed) and more.

    To throw away what was drawn would not do: whether a race takes long depends on what was drawn.
    """
    one, rng = query.at(slice(b, b + 1)), np.random.default_rng(seed)
    if distinct:
        one = replace(one, excluded=(np.union1d(one.excluded[0], ids),))
        rest = Exhaustive().sample_without_replacement(one, size - len(ids), rng)
        more, later = rest.ids[0], -np.logaddexp(passed, -rest.values[0])
    else:
        dense = Exhaustive(by_bytes=size - len(ids) == 1).sample(one, size - len(ids), rng)
        more, later = dense.ids[:, 0], dense.values[:, 0].copy()
        later[:1] = -np.logaddexp(passed, -later[:1])
    return _Drawn(np.concatenate([ids, more]), np.concatenate([values, later]), query.features.n, "exact", 0)


def _sample(run: Run, count: int, seed: int, *, shared: bool) -> Sample:
    """Rows from strata; two threads share a large sample, each with room of its own."""
    sample, number = Sample.empty(count), np.uint64(seed)
    middle = count // 4 * 2 if shared and count >= _SHARED_FROM else count
    other = None
    if middle < count:
        apart = run.race._replace(room=np.empty_like(run.race.room), found=np.empty_like(run.race.found))
        other = submit(kernels.sample_strata, run._replace(race=apart), number, middle, count, sample)
    kernels.sample_strata(run, number, 0, middle, sample)
    if other is not None:
        other.result()
    return sample


def _partition(query: Query) -> PartitionIndex:
    if not isinstance(query.index, PartitionIndex):
        raise ValueError(
            f"method: Bounded needs a PartitionIndex, not {type(query.index).__name__}; build one with "
            "PartitionIndex.build, or choose another method"
        )
    return query.index


def _for_each(query: Query, of_theta: Callable[[int], R], *, alone: bool = False) -> list[R]:
    """A function of every theta, on threads: each has seeds of its own, so that answers do not depend on how many."""
    _partition(query)
    thetas = range(query.size)
    return [of_theta(b) for b in thetas] if alone or query.size < 2 else list(map_threads(of_theta, thetas))


def _certain_moments(query: Query, index: PartitionIndex, b: int, run: Run, total: float, f: Function) -> Floats:
    """Sums of f over certain rows in units of the total, with no variance and no covariance: (3, values)."""
    count = int(run.race.state[COUNT])
    positions, masses = run.race.positions[:count], run.race.masses[:count] / total
    logits = query.features.score_at(positions, query.thetas[b]).astype(np.float64) / query.temperature
    values = WeightedSums.of(f, index.order[positions], logits, masses).values
    return np.stack([values, np.zeros_like(values), np.zeros_like(values)])


def _sampled_moments(ids: Ints, sample: Sample, share: float, f: Function) -> Floats:
    """Sums of f over the other rows, their variance, and their covariance with the sum of weights: (3, values).

    Each row of the sample stands for all; variances are between the two of each stratum.
    """
    m = len(ids)
    sums = WeightedSums.of_pairs(f, ids, sample.logits * _LN2, sample.ratios * share)
    return np.stack([sums.values / m, sums.squares / m**2, sums.cross / m**2])
