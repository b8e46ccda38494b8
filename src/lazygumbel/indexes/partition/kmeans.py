"""Means of cells by k-means (FAISS) on a sample, and the nearest of them for every row."""

from itertools import islice

import numpy as np

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.threads import capped_faiss, map_threads, one_blas_thread
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["assign_cells", "train_means"]

_ROWS_PER_CELL = 64
_ROUNDS = 6
_ROWS_AT_ONCE = 2**14
_ROWS_IN_CACHE = 1024


def train_means(features: Features, cells: int, rng: np.random.Generator, progress: Progress) -> Vectors:
    """At most `cells` means, trained on a random sample of the rows."""
    size = min(cells * _ROWS_PER_CELL, features.n)
    ids = np.sort(rng.choice(features.n, size, replace=False))
    with progress.task("training cells", 1) as task, capped_faiss() as faiss:
        trainer = faiss.Kmeans(
            features.d,
            min(cells, size),
            niter=_ROUNDS,
            seed=int(rng.integers(2**31)),
            min_points_per_centroid=1,
            max_points_per_centroid=size,
        )
        trainer.train(np.ascontiguousarray(features.gather(ids)))
        task.advance(1)
    return trainer.centroids


def assign_cells(features: Features, means: Vectors, progress: Progress) -> Ints:
    """The nearest mean of every row, by id."""
    cell_of = np.empty(features.n, dtype=np.int64)
    halves = np.einsum("cd,cd->c", means, means) / 2

    def assign(ids: Ints, rows: Vectors) -> int:
        step = min(_ROWS_IN_CACHE, len(rows))
        room = np.empty((step, len(means)), dtype=np.float32)  # once: page faults take as long as the product
        for a in range(0, len(rows), step):
            some = rows[a : a + step]
            scores = np.dot(some, means.T, out=room[: len(some)])
            scores -= halves
            cell_of[ids[a : a + step]] = scores.argmax(axis=1)
        return len(ids)

    with progress.task("assigning rows to cells", features.n) as task:
        blocks = features.blocks(_ROWS_AT_ONCE)
        while some := list(islice(blocks, 8)):  # a few at a time, so that a file is not read whole
            with one_blas_thread():
                for count in map_threads(assign, *zip(*some, strict=True)):
                    task.advance(count)
    return cell_of
