"""Unit centroids by spherical k-means (FAISS), in two levels when there are many cells: building stays quick."""

import numpy as np
import numpy.typing as npt

from lazygumbel.features import Features
from lazygumbel.progress import Progress

__all__ = ["spherical_kmeans"]

_ROWS_PER_CELL = 64
_ROUNDS = 10
_ONE_LEVEL = 256
"""Up to this many cells, one k-means; beyond, one k-means inside each of about sqrt(cells) coarse clusters."""


def spherical_kmeans(
    features: Features, cells: int, rng: np.random.Generator, progress: Progress
) -> npt.NDArray[np.float32]:
    """About `cells` unit vectors, at most that many, shape (cells, d), trained on a random sample of the rows."""
    sample = _sample_directions(features, cells * _ROWS_PER_CELL, rng)
    with progress.task("training cells", cells) as task:
        if cells <= _ONE_LEVEL:
            centroids = _train(sample, cells, rng)
            task.advance(cells)
            return centroids
        coarse = _train(sample, round(cells**0.5), rng)
        cluster = np.concatenate(
            [(sample[a : a + 4096] @ coarse.T).argmax(axis=1) for a in range(0, len(sample), 4096)]
        )
        parts: list[npt.NDArray[np.float32]] = []
        for c, share in enumerate(_shares(np.bincount(cluster, minlength=len(coarse)), cells)):
            if share:
                parts.append(_train(sample[cluster == c], share, rng))
                task.advance(share)
        return np.concatenate(parts)


def _sample_directions(features: Features, size: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    if size < features.n:
        ids = rng.choice(features.n, size, replace=False)
        ids.sort()
    else:
        ids = np.arange(features.n)
    rows = features.gather(ids)
    if size >= features.n:
        rows = rows.copy()
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    rows /= np.where(norms > 0, norms, 1.0)[:, None]
    return rows


def _shares(counts: npt.NDArray[np.int64], cells: int) -> list[int]:
    """How many of `cells` each cluster gets: in proportion to its rows, none more than it has rows."""
    exact = counts * (cells / counts.sum())
    shares = np.minimum(np.floor(exact).astype(np.int64), counts)
    shares[(shares == 0) & (counts > 0)] = 1
    for c in np.argsort(np.floor(exact) - exact):  # largest remainders first
        if shares.sum() >= cells:
            break
        if shares[c] < counts[c]:
            shares[c] += 1
    return shares.tolist()


def _train(rows: npt.NDArray[np.float32], k: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    import faiss

    k = min(k, len(rows))
    trainer = faiss.Kmeans(
        rows.shape[1],
        k,
        niter=_ROUNDS,
        spherical=True,
        seed=int(rng.integers(2**31)),
        min_points_per_centroid=1,
        max_points_per_centroid=max(len(rows), 1),
    )
    trainer.train(np.ascontiguousarray(rows))
    return trainer.centroids
