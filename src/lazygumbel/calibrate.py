"""`calibrate`: the cheapest rates per rank that meet a miss probability, measured on a sample of thetas.

For each theta all scores are computed once and counted into a histogram by bucket of ranks and by score. Every scale
of the ladder follows from the same histogram, because a scale only stretches the scores. Both costs are sums over
buckets, so the best hazards come bucket by bucket from one Lagrange multiplier:

    rows looked at = sum over buckets of rows (1 - exp(-hazard))
    miss           = sum over rows of p exp(-hazard / p)

The mean miss is dominated by rare thetas with a heavy row in a far cell: a plain fit does well on its own thetas only.
Three things make it hold on fresh ones: miss is smoothed over neighbouring buckets, hazards fall with rank, and two
halves of the thetas are fitted apart, at half the target, of which the larger hazard is taken. What is reported was
measured on thetas that no rate was fitted to.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_number, check_vectors
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods.calibration import ENUMERATED_FROM, Calibration, falling, neyman
from lazygumbel.progress import Progress, Silent
from lazygumbel.threads import map_threads

__all__ = ["calibrate"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LADDER = np.geomspace(1.25, 160.0, 8)
"""Scales |theta| / temperature, in units of one over the largest norm of a row: 1.25 to 160."""
_BINS = 1024
_FITTED, _FRESH = 768, 256
_GRID = np.concatenate([[0.0], np.geomspace(1e-9, ENUMERATED_FROM, 64), [np.inf]])
"""Hazards to choose from."""
_AIM = 0.5
"""Share of the miss that is aimed at."""
_SLACK = 1e-3
"""For rounding, where all thetas of the sample are alike: rows, say, which all have themselves for best row."""
_KERNEL = np.array([0.1, 0.2, 0.4, 0.2, 0.1])


class _Histograms(NamedTuple):
    """Rows by bucket and score, (T, K, bins), for unit thetas; the score of each bin; the best cosine of each theta."""

    counts: npt.NDArray[np.int32]
    scores: Floats
    alignment: Floats
    reach: Floats
    """The best score of each theta in its first cell, as a share of the largest norm."""


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
    near = len(index.bucket_edges[0]) - 1
    seen = _count(index, directions, progress or Silent())
    fitted = len(directions) * _FITTED // (_FITTED + _FRESH)
    sizes = seen.counts[:fitted].sum(axis=2).mean(axis=0)
    scales: Floats = _LADDER / index.features.max_norm
    hazards, spreads = np.empty((len(scales), len(sizes))), np.empty((len(scales), len(sizes)))
    for s, scale in enumerate(scales):
        curve, square = _costs(seen, slice(0, fitted), scale)
        hazards[s] = np.maximum(
            _fit(sizes, curve[::2].mean(axis=0), near, _AIM * miss),
            _fit(sizes, curve[1::2].mean(axis=0), near, _AIM * miss),
        )
        spreads[s] = _smooth(np.maximum(square[::2].mean(axis=0), square[1::2].mean(axis=0)), near)
    report = [
        _report(seen, slice(fitted, None), scale, hazards[s], spreads[s], sizes, near, rel_err)
        for s, scale in enumerate(scales)
    ]
    alignment = _least(seen.alignment[:fitted])
    # Rows as thetas all reach themselves, but for a few that were assigned to another cell: those must not set the bar.
    reach = float(np.quantile(seen.reach[:fitted], 0.005)) - _SLACK
    return Calibration(near, scales, hazards, spreads, sizes, alignment, reach, miss, rel_err, report)


def _directions(
    index: PartitionIndex, thetas: npt.ArrayLike | None, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Unit thetas in random order: rows, or what the user gave."""
    if thetas is None:
        ids = rng.choice(index.features.n, min(_FITTED + _FRESH, index.features.n), replace=False)
        vectors = index.features.gather(ids)
    else:
        vectors = np.atleast_2d(check_vectors(thetas, "thetas", index.features.d))
        vectors = vectors[rng.permutation(len(vectors))[: _FITTED + _FRESH]]
    norms = np.sqrt(np.einsum("td,td->t", vectors, vectors))
    vectors, norms = vectors[norms > 0], norms[norms > 0]
    if len(vectors) < 64:
        raise ValueError(f"thetas: {len(vectors)} that are not zero; at least 64 are needed to calibrate")
    return np.ascontiguousarray(vectors / norms[:, None])


def _least(facts: Floats) -> float:
    """Below this a theta is unlike any seen: the smallest of the sample, and half as far again from its median."""
    return float(facts.min() - 0.5 * (np.median(facts) - facts.min()))


def _count(index: PartitionIndex, directions: npt.NDArray[np.float32], progress: Progress) -> _Histograms:
    largest = index.features.max_norm
    width = 2 * largest / _BINS
    counts = np.zeros((len(directions), index.buckets, _BINS), dtype=np.int32)
    alignment, reach = np.empty(len(directions)), np.empty(len(directions))
    # Scores of as many thetas at once as fill 64 MiB.
    chunk = max(1, 2**24 // index.features.n)

    def count(scores: npt.NDArray[np.float32], begins: Ints, before: Ints, edges: Ints) -> npt.NDArray[np.int32]:
        return kernels.bin_scores(scores, begins, before, edges, -largest, width, _BINS)

    with progress.task("calibrating", len(directions)) as task:
        for a in range(0, len(directions), chunk):
            some = directions[a : a + chunk]
            scores = some @ index.features.stored.T
            survey = index.survey(some)
            alignment[a : a + chunk] = survey.alignment
            reach[a : a + chunk] = survey.reach / largest
            counts[a : a + chunk] = list(map_threads(count, scores, survey.begins, survey.before, survey.edges))
            task.advance(len(some))
    middles = np.linspace(-largest, largest, _BINS, endpoint=False) + width / 2
    return _Histograms(counts, middles, alignment, reach)


def _costs(seen: _Histograms, which: slice, scale: float) -> tuple[Floats, Floats]:
    """For each theta: miss of every bucket at every hazard of the grid, (T, K, grid), and spreads, (T, K)."""
    logits = scale * seen.scores
    weights = np.exp(logits - logits.max())
    counts = seen.counts[which]
    misses = np.empty((*counts.shape[:2], len(_GRID)))
    spreads = np.empty(counts.shape[:2])
    for t, count in enumerate(counts):
        used = np.flatnonzero(count.sum(axis=0))
        p = weights[used] / (count.sum(axis=0) @ weights)
        rows = count[:, used].astype(np.float64)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            unseen = np.where(p[:, None] > 0, p[:, None] * np.exp(-_GRID / p[:, None]), 0.0)
        misses[t] = rows @ unseen
        spreads[t] = np.maximum(rows @ p**2 - (rows @ p) ** 2 / np.maximum(rows.sum(axis=1), 1.0), 0.0)
    return misses, spreads


def _fit(sizes: Floats, curve: Floats, near: int, target: float) -> Floats:
    """Falling hazards of least work whose smoothed miss, (K, grid), sums to at most `target`."""
    curve = _smooth(curve, near)
    rates = -np.expm1(-_GRID)
    buckets = np.arange(len(sizes))
    low, high = -20.0, 60.0
    best = np.full(len(sizes), len(_GRID) - 1)
    for _ in range(60):
        middle = (low + high) / 2
        chosen = falling(np.argmin(sizes[:, None] * rates + np.exp(middle) * curve, axis=1), near)
        if curve[buckets, chosen].sum() > target:
            low = middle
        else:
            high, best = middle, chosen
    return _GRID[best]


def _smooth(curve: Floats, near: int) -> Floats:
    """Average over two buckets to either side, of cells and of groups apart.

    The first three stay: they hold the cell that a theta points at.
    """
    smoothed = curve.copy()
    for b in range(3, len(curve)):
        low, high = (max(b - 2, 2), min(b + 3, near)) if b < near else (max(b - 2, near), min(b + 3, len(curve)))
        smoothed[b] = np.average(curve[low:high], axis=0, weights=_KERNEL[low - b + 2 : high - b + 2])
    return smoothed


def _miss(curve: Floats, hazards: Floats) -> Floats:
    """Miss of each theta, (T,): the curve at the grid point at or below each hazard, so never too small."""
    chosen = np.searchsorted(_GRID, hazards, side="right") - 1
    return curve[:, np.arange(len(hazards)), chosen].sum(axis=1)


def _report(
    seen: _Histograms,
    which: slice,
    scale: float,
    hazards: Floats,
    spreads: Floats,
    sizes: Floats,
    near: int,
    rel_err: float,
) -> dict[str, float]:
    curve, fresh = _costs(seen, which, scale)
    missed = _miss(curve, hazards)
    rates = neyman(sizes, spreads, near, rel_err)
    variance = (fresh * (1.0 / rates - 1.0)).sum(axis=1)
    return {
        "scale": float(scale),
        "sampling_rows": float(-np.expm1(-hazards) @ sizes),
        "miss_mean": float(missed.mean()),
        "miss_95": float(np.quantile(missed, 0.95)),
        "miss_max": float(missed.max()),
        "estimation_rows": float(rates @ sizes),
        "rel_err_rms": float(np.sqrt(variance.mean())),
        "rel_err_median": float(np.sqrt(np.median(variance))),
    }
