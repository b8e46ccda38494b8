"""Unit centroids by spherical k-means (FAISS), in two levels when there are many cells: building stays quick."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.features import Features
from lazygumbel.progress import Progress

__all__ = ["Centroids", "spherical_kmeans"]

_ROWS_PER_CELL, _ROWS_PER_GROUP = 48, 512
"""That are trained on; groups only sort the sample, so a part of it will do."""
_ROUNDS = 8
_ONE_LEVEL = 256
"""Up to this many cells, one k-means; beyond, one k-means inside each of about 2 sqrt(cells) groups."""


class Centroids(NamedTuple):
    """Unit vectors of cells, in groups: the cells of group g are those from group_ends[g] to group_ends[g + 1]."""

    cells: npt.NDArray[np.float32]
    """(cells, d)"""
    groups: npt.NDArray[np.float32]
    """(groups, d)"""
    group_ends: npt.NDArray[np.int64]
    """(groups + 1,), from zero."""


def spherical_kmeans(features: Features, cells: int, rng: np.random.Generator, progress: Progress) -> Centroids:
    """About `cells` unit vectors, at most that many, trained on a random sample of the rows."""
    sample = _sample_directions(features, cells * _ROWS_PER_CELL, rng)
    with progress.task("training cells", cells) as task:
        if cells <= _ONE_LEVEL:
            trained = _train(sample, cells, rng)
            task.advance(cells)
            return Centroids(trained, np.zeros((1, features.d), dtype=np.float32), np.array([0, len(trained)]))
        wanted = 2 * round(cells**0.5)
        some = rng.choice(len(sample), min(len(sample), wanted * _ROWS_PER_GROUP), replace=False)
        groups = _train(sample[some], wanted, rng)
        group_of = _nearest(sample, groups)
        parts: list[npt.NDArray[np.float32]] = []
        for g, share in enumerate(_shares(np.bincount(group_of, minlength=len(groups)), cells)):
            parts.append(_train(sample[group_of == g], share, rng) if share else groups[:0])
            task.advance(share)
        held = np.array([len(part) for part in parts])
        return Centroids(np.concatenate(parts), groups[held > 0], np.cumsum([0, *held[held > 0]]))


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


def _nearest(rows: npt.NDArray[np.float32], centres: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    return np.concatenate([(rows[a : a + 4096] @ centres.T).argmax(axis=1) for a in range(0, len(rows), 4096)])


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
