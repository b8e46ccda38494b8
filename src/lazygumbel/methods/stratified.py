"""`Stratified`: lazy Gumbels with a calibrated rate per cell. The default on a `PartitionIndex`.

Algorithm 2 looks at every tail row with the same small probability. Here each cell has a rate by its rank: a row is
looked at when its Gumbel exceeds the cutoff of its cell, cells of rate one are enumerated, and the winner is the
largest perturbed logit of the rows looked at. Sums come from rows picked with rates of their own, weighed by one over
the rate of each: unbiased for Z and every numerator, with a variance from the picks themselves.
"""

from dataclasses import dataclass
from math import ceil
from typing import cast

import numpy as np

from lazygumbel.checks import check_number
from lazygumbel.methods.base import Function, Phi, Query, Seen
from lazygumbel.methods.calibration import Calibration, enumerated
from lazygumbel.methods.draw import Candidates, order_draws
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.plan import Plan
from lazygumbel.methods.stratified_draws import candidates, winners
from lazygumbel.methods.stratified_sums import sums
from lazygumbel.methods.weighing import concatenate, stack
from lazygumbel.results import Draws, Label, Moments, OrderedDraws, worse_label
from lazygumbel.threads import map_threads, one_blas_thread

__all__ = ["Stratified"]

_THETAS_AT_ONCE = 512
"""Thetas that are ranked together: with 10,000 cells 5 MB, whatever the batch."""
_THETAS_A_THREAD = 96
"""Thetas of a batch that one thread ranks and draws for at most, so that what it ranked stays in its cache."""
_SHARED_FROM = 8
"""From this many thetas on, a batch is worth sharing between threads."""
_HIT, _CELL = 2.5, 0.1
"""What a row out of order, and passing a cell by, cost a draw, in rows of a dense pass."""
_DENSE_SHARE = 0.5
"""A look that is expected to take a larger share of the rows becomes a dense pass."""
_AGAIN = 2.0
"""A look whose estimated error exceeds the target by this factor is repeated with higher rates."""
_LOOKS = 3


@dataclass(frozen=True)
class Stratified:
    """The calibrated method; needs a `PartitionIndex` and a model that was calibrated (`build` does both).

    `rel_err` is the relative error of Z that estimates aim at, by default what the model was calibrated for. Labelled
    calibrated for thetas like those it was calibrated on; others get a wider look and are labelled heuristic, and so
    are answers with rows excluded, since those were not audited.
    """

    rel_err: float | None = None

    def __post_init__(self) -> None:
        if self.rel_err is not None:
            check_number(self.rel_err, "rel_err", above=0.0, below=1.0)

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Independent samples; where they would cost more than one dense pass, that pass is made.

        A batch is cut into parts for the threads, each with random numbers of its own: how it is cut does not depend
        on the number of threads, so that a seed gives the same draws anywhere.
        """
        if query.size < _SHARED_FROM:
            return _sample(query, size, rng)
        cuts = _cuts(query.size)
        queries, streams = (query.at(cut) for cut in cuts), rng.spawn(len(cuts))
        with one_blas_thread():
            parts = list(map_threads(_sample, queries, [size] * len(cuts), streams))
        label = parts[0].label
        for part in parts:
            label = worse_label(label, part.label)
        ids, values = (np.concatenate([getattr(p, name) for p in parts], axis=1) for name in ("ids", "values"))
        return Draws(ids, values, np.concatenate([p.rows for p in parts]), label)

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The first rows of one look, with hazards raised in proportion.

        Of K rows the share that a look misses is on average at most the miss of a single draw: the K-th largest
        perturbed logit is log Z - log Gamma(K), where Gamma(K) is a sum of K exponentials, and by convexity
        E (Gamma(K) - K x)+ <= K E (Gamma(1) - x)+.
        """
        found: list[Candidates] = []
        rows = np.zeros(query.size, dtype=np.int64)
        label: Label = "exact"
        for start in range(0, query.size, _THETAS_AT_ONCE):
            some = query.at(slice(start, start + _THETAS_AT_ONCE))
            plan = Plan.for_draws(some, size + 1)  # one more gives the threshold
            for b in range(some.size):
                seen, rows[start + b] = Candidates.none(), 0
                if plan.rows[b] <= _DENSE_SHARE * query.features.n:
                    seen, rows[start + b] = candidates(plan, b, rng)
                if len(seen.ids) > size:
                    label = worse_label(label, plan.label([b]))
                else:
                    seen = _all_candidates(some.at(slice(b, b + 1)), size, rng)
                    rows[start + b] += query.features.n
                found.append(seen.largest(size + 1))
        return order_draws(found, size, rows, label)

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Horvitz-Thompson sums from one look a theta, repeated where its own estimate of the error is too large.

        A repeated look replaces the one before, so each is unbiased by itself; what bias there is comes from the
        decision to repeat. A theta whose look would cost a dense pass gets that. A batch is shared by the threads like
        one of draws, unless f is not ours to call from several.
        """
        if query.size < _SHARED_FROM or not (f is None or isinstance(f, Phi)):
            if query.size <= _THETAS_AT_ONCE:
                return self._looks(query, f, rng)
            cuts = [slice(a, a + _THETAS_AT_ONCE) for a in range(0, query.size, _THETAS_AT_ONCE)]
            parts = [self._looks(query.at(cut), f, rng) for cut in cuts]
        else:
            cuts = _cuts(query.size)
            streams = rng.spawn(len(cuts))
            queries = (query.at(cut) for cut in cuts)
            with one_blas_thread():
                parts = list(map_threads(self._looks, queries, [f] * len(cuts), streams))
        label: Label = "exact"
        for part in parts:
            label = worse_label(label, part.label)
        return Seen(concatenate([part.moments for part in parts]), np.concatenate([part.rows for part in parts]), label)

    def _looks(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """For thetas that are routed together."""
        plan = Plan.for_sums(query, self.rel_err)
        target = _AGAIN * (self.rel_err or cast("Calibration", query.calibration).rel_err)  # as the plan found
        most = _DENSE_SHARE * query.features.n
        left = [b for b, expected in enumerate(plan.rows) if expected <= most]
        rates, rows, found = plan.table(left), np.zeros(query.size, dtype=np.int64), dict[int, Moments]()
        for _ in range(_LOOKS):
            if not left:
                break
            seen = sums(plan, left, rates, f, rng)
            if len(left) == query.size and max(seen.errors.tolist()) <= target:
                return Seen(seen.moments, seen.rows, plan.label(left))
            rows[left] += seen.rows
            good = seen.errors <= target
            found |= {left[j]: seen.moments.at(j) for j in np.flatnonzero(good).tolist()}
            # A look that was too short is repeated with rates that its own error asks for.
            factors = np.minimum((_AGAIN * seen.errors / target) ** 2, 16.0)
            rates = enumerated(rates * factors[:, None])
            again = np.flatnonzero(~good & (rates @ plan.levels.sizes <= most))
            left, rates = [left[j] for j in again], rates[again]
        label = plan.label(list(found)) if found else "exact"
        for b in range(query.size):
            if b not in found:
                found[b] = Exhaustive().moments(query.at(slice(b, b + 1)), f, rng).moments.at(0)
                rows[b] += query.features.n
        return Seen(stack([found[b] for b in range(query.size)]), rows, label)


def _cuts(size: int) -> list[slice]:
    """An even number of parts of a batch, of nearly the same size."""
    step = ceil(size / (2 * ceil(size / (2 * _THETAS_A_THREAD))))
    return [slice(a, a + step) for a in range(0, size, step)]


def _all_candidates(query: Query, size: int, rng: np.random.Generator) -> Candidates:
    drawn = Exhaustive().sample_without_replacement(query, min(size + 1, query.left(0)), rng)
    return Candidates(drawn.ids[0], drawn.logits[0], drawn.values[0])


def _sample(query: Query, size: int, rng: np.random.Generator) -> Draws:
    """For thetas that are routed together."""
    plan = Plan.for_draws(query)
    rows, hits, walk = plan.levels.rows, plan.levels.hits, _CELL * plan.index.cells
    lazy = [
        b for b, line in enumerate(plan.lines) if rows[line] + size * (_HIT * hits[line] + walk) <= query.features.n
    ]
    won = winners(plan, lazy, size, rng)
    if len(lazy) == query.size and not won.failed:
        counts = won.rows[:, 0] if size == 1 else won.rows.sum(axis=1)
        return Draws(won.ids.T, won.values.T, counts, plan.label(lazy))
    ids = np.zeros((size, query.size), dtype=np.int64)
    values = np.full((size, query.size), -np.inf)
    looked = np.zeros(query.size, dtype=np.int64)
    ids[:, lazy], values[:, lazy], looked[lazy] = won.ids.T, won.values.T, won.rows.sum(axis=1)
    for b in np.flatnonzero(np.isneginf(values).any(axis=0)):  # a dense theta, or a look that nothing could win
        lost = np.flatnonzero(np.isneginf(values[:, b]))
        drawn = Exhaustive().sample(query.at(slice(b, b + 1)), len(lost), rng)
        ids[lost, b], values[lost, b] = drawn.ids[:, 0], drawn.values[:, 0]
        looked[b] += query.features.n
    return Draws(ids, values, looked, plan.label(lazy) if lazy else "exact")
