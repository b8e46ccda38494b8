"""`calibrate`: the cheapest rates per rank that meet a miss probability, measured on a sample of thetas.

For each theta all scores are computed once and counted into a histogram by bucket of ranks and by score. Every scale
of the ladder follows from the same histogram, because a scale only stretches the scores. Both costs are sums over
buckets, so the best hazards come bucket by bucket from one Lagrange multiplier:

    rows looked at = sum over buckets of rows (1 - exp(-hazard))
    miss           = sum over rows of p exp(-hazard / p)

The mean miss is dominated by rare thetas with a heavy row in a far cell: a plain fit does well on its own thetas only.
Three things make it hold on others: miss is smoothed over neighbouring buckets, hazards fall with rank, and thetas that
are left out of a fit, in turn, say how much lower than the target it has to aim. What is reported was measured on
thetas that no rate was fitted to.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_number, check_vectors
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods.calibration import ENUMERATED_FROM, Calibration, Mass, falling, neyman
from lazygumbel.progress import Progress, Silent
from lazygumbel.threads import map_threads, one_blas_thread

__all__ = ["calibrate"]

Floats = npt.NDArray[np.float64]

_LADDER = np.geomspace(1.25, 160.0, 8)
"""Scales |theta| / temperature, in units of one over the largest norm of a row: 1.25 to 160."""
_BINS = 1024
_WORK, _COUNTED, _LEAST, _MOST = 4e11, 128, 1024, 3072
"""Products of numbers that may be spent, of which a row takes d to score and as much time as 128 to count; and how many
thetas that may give: what is rare needs many."""
_FRESH_SHARE = 0.25
"""Of the thetas: they are kept for the report."""
_GRID = np.concatenate([[0.0], np.geomspace(1e-9, ENUMERATED_FROM, 64), [np.inf]])
"""Hazards to choose from."""
_AIMS = 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1
"""Shares of the miss that a fit may aim at: it comes out higher for thetas that it has not seen."""
_ERROR_AIMS = 1.1, 1.07, 1.04, 1.01, 0.98, 0.95, 0.92, 0.89, 0.86, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3
"""Likewise of the relative error: more than one, because what is expected of smoothed sums is too large an error."""
_ERROR_HELD = 0.88
"""The share of the variance that thetas left out may come out at."""
_TRIED, _FEWEST = 4e7, 32
"""Rows of as many thetas, and how many thetas at least, tell how much sums from picks really spread."""
_FOLDS, _HELD = 16, 0.55
"""Parts of the thetas that are left out in turn, and the share of the miss that those may come out at."""
_SLACK = 1e-3
"""For rounding, where all thetas of the sample are alike: rows, say, which all have themselves for best row."""
_KERNEL = np.array([0.1, 0.2, 0.4, 0.2, 0.1])


def calibrate(
    index: PartitionIndex,
    *,
    miss: float = 2.5e-4,
    rel_err: float = 0.01,
    thetas: npt.ArrayLike | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit rates for thetas like the rows, or like `thetas`, of which at least 64 are needed."""
    check_number(miss, "miss", above=0.0, below=1.0)
    check_number(rel_err, "rel_err", above=0.0, below=1.0)
    generator = np.random.default_rng(rng)
    directions = _directions(index, thetas, generator)
    seen = _measure(index, directions, progress or Silent())
    scales: Floats = _LADDER / index.features.max_norm
    hazards = np.stack([_cross_fit(seen.sizes, folds, miss) for folds in seen.folds])
    mass = Mass(*map(np.stack, zip(*(_mass(seen, s, rel_err) for s in range(len(scales))), strict=True)))
    tried = min(max(_FEWEST, int(_TRIED / index.features.n)), seen.fitted)
    spread = _spread(index, directions[:tried], seen, scales, mass, rel_err)
    mass = mass.times(spread)
    rates = [neyman(seen.sizes, Mass(*each), rel_err) for each in zip(*mass, strict=True)]
    report = [_report(seen, s, float(scale), hazards[s], rates[s], spread[s]) for s, scale in enumerate(scales)]
    alignment = _least(seen.alignment[: seen.fitted])
    # Rows as thetas all reach themselves, but for a few that were assigned to another cell: those must not set the bar.
    # Codes of two rows may be off to either side.
    slack = _SLACK + 2 * index.codes.error / index.features.max_norm
    reach = float(np.quantile(seen.reach[: seen.fitted], 0.005)) - slack
    return Calibration(scales, hazards, mass, seen.sizes, alignment, reach, miss, rel_err, report)


def _directions(
    index: PartitionIndex, thetas: npt.ArrayLike | None, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Unit thetas in random order: rows, or what the user gave."""
    n, d = index.features.n, index.features.d
    most = int(np.clip(_WORK / (n * (d + _COUNTED)), _LEAST, _MOST))
    if thetas is None:
        vectors = index.features.gather(rng.choice(n, min(most, n), replace=False))
    else:
        vectors = np.atleast_2d(check_vectors(thetas, "thetas", d))
        vectors = vectors[rng.permutation(len(vectors))[:most]]
    norms = np.sqrt(np.einsum("td,td->t", vectors, vectors))
    vectors, norms = vectors[norms > 0], norms[norms > 0]
    if len(vectors) < 64:
        raise ValueError(f"thetas: {len(vectors)} that are not zero; at least 64 are needed to calibrate")
    return np.ascontiguousarray(vectors / norms[:, None])


def _least(facts: Floats) -> float:
    """Below this a theta is unlike any seen: the smallest of the sample, and half as far again from its median."""
    return float(facts.min() - 0.5 * (np.median(facts) - facts.min()))


class _Measured(NamedTuple):
    """Measured on T thetas, at S scales, by K buckets. The first `fitted` are for fits, the others for a report."""

    fitted: int
    sizes: Floats
    """Mean number of rows in each bucket, (K,)."""
    folds: Floats
    """Mean miss of every bucket at every hazard of the grid over each fold of the fitted, (S, folds, K, grid)."""
    fresh: npt.NDArray[np.float32]
    """The same for each theta to report on, (S, T - fitted, K, grid)."""
    mass: Mass
    """In each bucket, (S, T, K)."""
    alignment: Floats
    """The best cosine of each theta with a cell, (T,)."""
    reach: Floats
    """The best score of each theta in its first cell, as a share of the largest norm, (T,)."""


def _measure(index: PartitionIndex, directions: npt.NDArray[np.float32], progress: Progress) -> _Measured:
    total, buckets, largest = len(directions), index.buckets, index.features.max_norm
    width = 2 * largest / _BINS
    tables = [_Table.of(scale * 2 / _BINS) for scale in _LADDER]
    fitted = total - max(1, round(_FRESH_SHARE * total))
    folds = np.zeros((len(tables), _FOLDS, buckets, len(_GRID)))
    fresh = np.empty((len(tables), total - fitted, buckets, len(_GRID)), dtype=np.float32)
    mass = Mass(*np.empty((2, len(tables), total, buckets)))
    sizes, alignment, reach = np.zeros(buckets), np.empty(total), np.empty(total)

    def of_theta(t: int, scores: npt.NDArray[np.float32]) -> tuple[int, Floats, list[Floats]]:
        survey = index.survey(directions[t : t + 1])
        alignment[t], reach[t] = survey.alignment[0], survey.reach[0] / largest
        counts = kernels.bin_scores(scores, index.offsets, survey.buckets[0], buckets, -largest, width, _BINS)[:, ::-1]
        used = np.flatnonzero(counts.sum(axis=0))
        rows = counts[:, used[0] : used[-1] + 1].astype(np.float64)
        misses: list[Floats] = []
        for s, table in enumerate(tables):
            missed, mass.sums[s, t], mass.squares[s, t] = table.costs(rows)
            misses.append(missed)
        return t, rows.sum(axis=1), misses

    with progress.task("calibrating", total) as task:
        for some, scores in _scored(index, directions):
            with one_blas_thread():
                for t, held, misses in map_threads(of_theta, some, scores):
                    if t < fitted:
                        sizes += held / fitted
                        folds[:, t % _FOLDS] += misses
                    else:
                        fresh[:, t - fitted] = misses
            task.advance(len(some))
    folds /= np.bincount(np.arange(fitted) % _FOLDS, minlength=_FOLDS)[:, None, None]
    return _Measured(fitted, sizes, folds, fresh, mass, alignment, reach)


class _Table(NamedTuple):
    """Costs of a row by the logarithm of its probability, which falls by `step` from entry to entry."""

    step: float
    log_p: Floats
    p: Floats
    unseen: npt.NDArray[np.float32]
    """p exp(-hazard / p), (entries, grid)."""

    @classmethod
    def of(cls, step: float) -> "_Table":
        """As many entries as two histograms have bins: a row may lie the whole of one below the best."""
        log_p: Floats = -step * np.arange(2 * _BINS + int(50 / step), dtype=np.float64)
        p = np.exp(log_p)
        with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
            unseen = np.where(p[:, None] > 0, p[:, None] * np.exp(-_GRID / p[:, None]), 0.0)
        return cls(step, log_p, p, unseen.astype(np.float32))

    def costs(self, rows: Floats) -> tuple[Floats, Floats, Floats]:
        """Miss by bucket and hazard, (K, grid), and mass by bucket, (K,), of rows by bucket and bin, best bin first.

        log Z is rounded to a whole number of steps, as the scores were.
        """
        bins = rows.shape[1]
        log_z = float(np.log(rows.sum(axis=0) @ self.p[:bins]))
        best = max(0, round(log_z / self.step))
        p = self.p[best : best + bins]
        missed = rows.astype(np.float32) @ self.unseen[best : best + bins]
        return missed.astype(np.float64), rows @ p, rows @ p**2


def _mass(seen: _Measured, s: int, rel_err: float) -> Mass:
    """The mean mass of fitted thetas at a scale, (K,), in units such that rates from it meet `rel_err` on others.

    In units of `aim`, rates that are to meet an error meet `aim` times that on the thetas they were fitted to.
    """
    fitted, of_fold = Mass(*(m[s, : seen.fitted] for m in seen.mass)), np.arange(seen.fitted) % _FOLDS

    def mean(chosen: npt.NDArray[np.bool_]) -> Mass:
        return Mass(*(_smooth(m[chosen].mean(axis=0)) for m in fitted))

    aim, limit, folds = _ERROR_AIMS[-1], _ERROR_HELD * rel_err**2, [of_fold == f for f in range(_FOLDS)]
    means = [mean(~fold) for fold in folds]
    for aim in _ERROR_AIMS:
        rates = [neyman(seen.sizes, kept, aim * rel_err) for kept in means]
        left_out = (Mass(*(m[fold] for m in fitted)) for fold in folds)
        if np.mean([m.variance(seen.sizes, r).mean() for m, r in zip(left_out, rates, strict=True)]) <= limit:
            break
    sums, squares = mean(of_fold >= 0)
    return Mass(sums / aim, squares / aim**2)


def _spread(
    index: PartitionIndex, thetas: npt.NDArray[np.float32], seen: _Measured, scales: Floats, mass: Mass, rel_err: float
) -> Floats:
    """The variance of picks for fitted thetas, the first of the sample, over what `Mass.variance` expects, (S,).

    It is smaller where stretches of storage keep to cells whose rows are alike.
    """
    rates = [neyman(seen.sizes, Mass(*each), rel_err) for each in zip(*mass, strict=True)]
    buckets = index.survey(thetas).buckets

    def of_theta(t: int, scores: npt.NDArray[np.float32]) -> list[float]:
        facts = scores, index.offsets, buckets[t]
        return [kernels.pick_variance(*facts, r, float(scale)) for r, scale in zip(rates, scales, strict=True)]

    found = np.mean([v for some in _scored(index, thetas) for v in map_threads(of_theta, *some)], axis=0)
    expected = np.array(
        [Mass(*(m[s, : len(thetas)] for m in seen.mass)).variance(seen.sizes, r).mean() for s, r in enumerate(rates)]
    )
    return np.where(expected > 0, found / np.maximum(expected, 1e-300), 1.0).clip(0.5, 1.5)


def _scored(index: PartitionIndex, thetas: npt.NDArray[np.float32]) -> Iterator[tuple[range, npt.NDArray[np.float32]]]:
    """Numbers of some thetas and their scores, (thetas, n), in turn: as many as fill 256 MiB.

    The product is twice as quick as with half of them. It is the caller's only until the next one is asked for: to take
    new memory every time would be as slow as the product.
    """
    chunk = min(max(1, 2**26 // index.features.n), len(thetas))
    room = np.empty((chunk, index.features.n), dtype=np.float32)
    for a in range(0, len(thetas), chunk):
        some = thetas[a : a + chunk]
        yield range(a, a + len(some)), np.dot(some, index.features.stored.T, out=room[: len(some)])


def _cross_fit(sizes: Floats, folds: Floats, miss: float) -> Floats:
    """Hazards fitted to all folds, (folds, K, grid), aiming as high as folds that are left out of a fit allow."""
    aim, kept = _AIMS[-1], [np.delete(folds, f, axis=0).mean(axis=0) for f in range(len(folds))]
    for aim in _AIMS:
        fits = [_fit(sizes, curve, aim * miss) for curve in kept]
        if np.mean([_miss(folds[f : f + 1], fit) for f, fit in enumerate(fits)]) <= _HELD * miss:
            break
    return _fit(sizes, folds.mean(axis=0), aim * miss)


def _fit(sizes: Floats, curve: Floats, target: float) -> Floats:
    """Falling hazards of least work whose smoothed miss, (K, grid), sums to at most `target`.

    The first cell is always looked at: a survey does so anyway, and a theta far from all rows but one has that there.
    """
    curve = _smooth(curve)
    rates = -np.expm1(-_GRID)
    buckets = np.arange(len(sizes))
    low, high = -20.0, 60.0
    best = np.full(len(sizes), len(_GRID) - 1)
    for _ in range(60):
        middle = (low + high) / 2
        chosen = falling(np.argmin(sizes[:, None] * rates + np.exp(middle) * curve, axis=1))
        chosen[0] = len(_GRID) - 1
        if curve[buckets, chosen].sum() > target:
            low = middle
        else:
            high, best = middle, chosen
    return _GRID[best]


def _smooth(curve: Floats) -> Floats:
    """Average over two buckets to either side. The first three stay: they hold the cell that a theta points at."""
    smoothed = curve.copy()
    for b in range(3, len(curve)):
        low, high = max(b - 2, 2), min(b + 3, len(curve))
        smoothed[b] = np.average(curve[low:high], axis=0, weights=_KERNEL[low - b + 2 : high - b + 2])
    return smoothed


def _miss(curve: npt.NDArray[np.floating[Any]], hazards: Floats) -> Floats:
    """Miss of each theta, (T,): the curve at the grid point at or below each hazard, so never too small."""
    chosen = np.searchsorted(_GRID, hazards, side="right") - 1
    return curve[:, np.arange(len(hazards)), chosen].sum(axis=1, dtype=np.float64)


def _report(seen: _Measured, s: int, scale: float, hazards: Floats, rates: Floats, spread: float) -> dict[str, float]:
    missed = _miss(seen.fresh[s], hazards)
    fresh = Mass(*(m[s, seen.fitted :] for m in seen.mass))
    variance = spread * fresh.variance(seen.sizes, rates)
    return {
        "scale": scale,
        "sampling_rows": float(-np.expm1(-hazards) @ seen.sizes),
        "miss_mean": float(missed.mean()),
        "miss_95": float(np.quantile(missed, 0.95)),
        "miss_max": float(missed.max()),
        "estimation_rows": float(rates @ seen.sizes),
        "rel_err_rms": float(np.sqrt(variance.mean())),
        "rel_err_median": float(np.sqrt(np.median(variance))),
    }
