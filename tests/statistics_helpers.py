"""What the statistical tests share: p-values (the judgement is the test's), exact probabilities, rows, wrappers."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from lazygumbel import Features, Index, TopK

__all__ = [
    "CountingIndex",
    "PoorIndex",
    "chi_square_p",
    "logits_of",
    "make_rows",
    "mean_p",
    "probabilities_of",
]


def chi_square_p(ids: npt.ArrayLike, probabilities: npt.ArrayLike, *, least: float = 20.0) -> float:
    """p-value of drawn ids against exact probabilities, float64; bins are merged so that each expects `least` draws.

    States are taken in increasing order of probability, so that only rare ones share a bin. A draw of a state of
    probability zero gives 0.
    """
    drawn = np.asarray(ids).reshape(-1)
    exact = np.asarray(probabilities, dtype=np.float64)
    counts = np.bincount(drawn, minlength=len(exact)).astype(np.float64)
    if len(counts) > len(exact) or counts[exact == 0].any():
        return 0.0
    order = np.argsort(exact, kind="stable")
    expected = exact[order] / exact.sum() * len(drawn)
    # Greedy merging: a bin closes as soon as it expects enough; what is left over joins the last one.
    starts, held = [0], 0.0
    for i, mean in enumerate(expected):
        if held >= least:
            starts.append(i)
            held = 0.0
        held += mean
    if held < least and len(starts) > 1:
        starts.pop()
    if len(starts) == 1:
        return 1.0
    observed = np.add.reduceat(counts[order], starts)
    means = np.add.reduceat(expected, starts)
    return float(stats.chi2.sf(((observed - means) ** 2 / means).sum(), len(starts) - 1))


def mean_p(values: npt.ArrayLike, mean: float) -> float:
    """Two-sided p-value that independent values have this mean (normal approximation)."""
    array = np.asarray(values, dtype=np.float64)
    z = (array.mean() - mean) / (array.std(ddof=1) / np.sqrt(len(array)))
    return float(2 * stats.norm.sf(abs(z)))


def make_rows(n: int, d: int, *, varied: bool = False, seed: int = 0) -> npt.NDArray[np.float32]:
    """Random directions, of norm one or of lognormal norms."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if varied:
        rows *= rng.lognormal(sigma=0.3, size=(n, 1))
    return rows.astype(np.float32)


def logits_of(rows: npt.ArrayLike, theta: npt.ArrayLike, temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """Exact logits in float64, from the float32 values that the model sees."""
    exact_rows = np.asarray(rows, dtype=np.float32).astype(np.float64)
    return exact_rows @ np.asarray(theta, dtype=np.float32).astype(np.float64) / temperature


def probabilities_of(
    rows: npt.ArrayLike, theta: npt.ArrayLike, temperature: float = 1.0, exclude: npt.ArrayLike = ()
) -> npt.NDArray[np.float64]:
    """The exact softmax in float64, zero where excluded."""
    logits = logits_of(rows, theta, temperature)
    logits[np.asarray(exclude, dtype=np.int64)] = -np.inf
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


class CountingIndex:
    """Passes everything on, and counts the calls of `top_k` and the queries in them."""

    def __init__(self, index: Index) -> None:
        self.inner = index
        self.features: Features = index.features
        self.calls: int = 0
        self.queries: int = 0

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        self.calls += 1
        self.queries += len(np.atleast_2d(np.asarray(queries)))
        return self.inner.top_k(queries, k)


class PoorIndex:
    """Leaves out every other one of the true top rows (from the second on), and does not claim to be exact."""

    def __init__(self, index: Index) -> None:
        self.inner = index
        self.features: Features = index.features

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        k_held = min(k, self.features.n)
        found = self.inner.top_k(queries, min(2 * k, self.features.n))
        width = found.ids.shape[-1]
        kept = np.sort(np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])[:k_held])
        return TopK(found.ids[..., kept], found.scores[..., kept], found.rows, False, k)
