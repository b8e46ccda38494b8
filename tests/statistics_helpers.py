"""What the statistical tests share: p-values (the judgement is the test's), exact probabilities, rows, wrappers."""

from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import stats

from lazygumbel import Bounded, Draws, Features, Index, LogLinear, PartitionIndex, TopK

__all__ = [
    "CountingIndex",
    "PoorIndex",
    "across_model",
    "chi_square_p",
    "clustered_rows",
    "logits_of",
    "make_rows",
    "mean_p",
    "partition_model",
    "probabilities_of",
    "race",
]


def chi_square_p(ids: npt.ArrayLike, probabilities: npt.ArrayLike, *, least: float = 20.0) -> float:
    """p-value of drawn ids against exact probabilities, float64.

    States are taken in decreasing order of probability and merged so that each bin expects `least` draws: these are
    judged by chi square. The rarest states, which expect less together, are one bin more, judged by the binomial law: a
    draw of what should never occur gives 0. Raises ValueError where there is one bin only, and nothing to judge.
    """
    drawn = np.asarray(ids).reshape(-1)
    exact = np.asarray(probabilities, dtype=np.float64)
    exact = exact / exact.sum()
    order = np.argsort(-exact, kind="stable")[: np.count_nonzero(exact)]
    expected, starts, held = exact[order] * len(drawn), [0], 0.0
    for i, mean in enumerate(expected):
        if held >= least:
            starts.append(i)
            held = 0.0
        held += mean
    if len(starts) == 1:
        raise ValueError(f"{len(drawn)} draws of {len(order)} states make one bin, which fits whatever was drawn")
    counts = np.bincount(drawn, minlength=len(exact))
    if len(counts) > len(exact) or counts[exact == 0].any():
        return 0.0
    observed, means = np.add.reduceat(counts[order], starts), np.add.reduceat(expected, starts)
    found: list[float] = []
    if held < least:
        found.append(
            float(stats.binomtest(int(observed[-1]), len(drawn), min(exact[order[starts[-1] :]].sum(), 1.0)).pvalue)
        )
        observed, means = observed[:-1], means[:-1]
    if len(means) > 1 and observed.any():
        means *= observed.sum() / means.sum()
        found.append(float(stats.chi2.sf(((observed - means) ** 2 / means).sum(), len(means) - 1)))
    return min(1.0, len(found) * min(found))


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


@cache
def clustered_rows(n: int, d: int, clusters: int, seed: int) -> npt.NDArray[np.float32]:
    """Rows of length one about some directions: what a partition is for."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(clusters, d))[rng.integers(clusters, size=n)] + 0.7 * rng.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@cache
def partition_model(
    n: int,
    d: int,
    *,
    varied: bool = False,
    seed: int = 0,
    cells: int | None = None,
    coordinates: tuple[int, int] | None = None,
) -> LogLinear:
    """The model over a `PartitionIndex` of `make_rows`, built once."""
    rows = make_rows(n, d, varied=varied, seed=seed)
    return LogLinear(PartitionIndex.build(rows, cells=cells, coordinates=coordinates, rng=0))


@cache
def across_model(n: int = 3_000, d: int = 16, length: float = 9.0) -> LogLinear:
    """One row, the last, with half of all mass at theta = (1, 0, ...); n others of logit zero whose ceilings are high.

    They lie across theta and have coarse codes, so that races over them take long, and some are given up.
    """
    rows = np.zeros((n + 1, d), np.float32)
    rows[:n, 1:], rows[n, 0] = length * make_rows(n, d - 1, seed=8), np.log(n)
    return LogLinear(PartitionIndex.build(rows, cells=1, coordinates=(16, 16), rng=0))


def race(
    model: LogLinear, theta: npt.ArrayLike, draws: int, *, temperature: float = 1.0, each: int = 10, **options: object
) -> Draws:
    """Draws of one theta by `Bounded`: of many copies, a few of each, for which no dense pass is made instead."""
    copies = np.tile(np.asarray(theta, dtype=np.float32), (draws // each, 1))
    options = {"method": Bounded()} | options
    return model(copies, temperature=temperature).sample(each, **options)  # type: ignore[arg-type]


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
