"""The paper's own method: top rows from a FAISS inverted file, and lazy Gumbels with a fixed cutoff (Algorithm 2)."""

from math import ceil, sqrt
from time import perf_counter
from typing import Any

from lazygumbel.indexes import FaissIndex
from lazygumbel.methods import FixedCutoff
from lazygumbel.rows.features import Features

__all__ = ["PAPER_BOUND", "build_index", "by_theorem", "root"]

PAPER_BOUND = 2.5e-4
"""The bound on the total variation that the paper reports for ImageNet."""

_ITERATIONS, _POINTS = 5, 39
"""Of k-means, and points for each centroid. FAISS's own 25 and 256 build longer and find hardly more."""


def build_index(features: Features, density: float = 4.0) -> tuple[FaissIndex, float]:
    """An inverted file of `density` sqrt(n) lists, of which 1/32 are probed, and the seconds it took to build."""
    import faiss

    start = perf_counter()
    lists = max(1, round(density * sqrt(features.n)))
    index = faiss.index_factory(features.d, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    inverted: Any = faiss.try_extract_index_ivf(index)
    inverted.cp.niter, inverted.cp.max_points_per_centroid = _ITERATIONS, _POINTS
    inverted.cp.min_points_per_centroid = 1  # few rows are no reason to warn
    rows = features.stored if features.order is None else features.stored[features.positions]
    index.train(rows)
    index.add(rows)
    inverted.nprobe = max(1, lists // 32)
    return FaissIndex(features, index), perf_counter() - start


def root(n: int) -> FixedCutoff:
    """Algorithm 2 with k = l = sqrt(n)."""
    return FixedCutoff(k=ceil(sqrt(n)))


def by_theorem() -> FixedCutoff:
    """Algorithm 2 with the k = l that Theorem 3.3 asks for."""
    return FixedCutoff(delta=PAPER_BOUND)
