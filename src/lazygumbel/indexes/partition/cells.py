"""What is known of each cell: its rows, their mean, and how they lie around it."""

from typing import NamedTuple

import numpy as np

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel._support.persist import Reader, Writer
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["AXES", "Cells", "mean_rows"]

_SAMPLE = 50_000
"""Rows whose residuals tell the covariance of all."""
_LEAST_VARIANCE = 1e-30
AXES = 16
"""Directions in which residuals may vary more than in the others."""


class Cells(NamedTuple):
    """Rows are stored cell by cell."""

    means: Vectors
    """(cells, d)"""
    offsets: Ints
    """Cell c is stored at positions offsets[c] to offsets[c + 1], (cells + 1,)."""
    variances: Floats
    """Mean squared norm of the residuals of each, (cells,)."""
    axes: Vectors
    """A'A + around is about the covariance of the residuals of all cells, of trace one, (axes, d)."""
    around: Floats
    """(1,)"""

    @classmethod
    def of(
        cls, features: Features, means: Vectors, cell_of: Ints, squares: Floats, rng: np.random.Generator
    ) -> "Cells":
        """Cells with these means, the cell of each row, and the squared norms of their residuals, by id."""
        counts = np.bincount(cell_of, minlength=len(means))
        variances = np.bincount(cell_of, squares, len(means)) / counts
        sample = np.sort(rng.choice(features.n, min(_SAMPLE, features.n), replace=False))
        residuals = features.gather(sample) - means[cell_of[sample]]
        covariance = residuals.T @ residuals
        trace = float(np.trace(covariance))
        d = features.d
        share = covariance.astype(np.float64) / trace if trace > _LEAST_VARIANCE else np.eye(d) / d
        values, vectors = np.linalg.eigh(share)
        kept = min(AXES, d)
        around = max(float(values[: d - kept].mean()) if d > kept else 0.0, 1e-4 / d)
        axes = (vectors[:, d - kept :] * np.sqrt(np.maximum(values[d - kept :] - around, 0.0))).T
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        variances = np.maximum(variances, _LEAST_VARIANCE)
        return cls(means, offsets, variances, np.ascontiguousarray(axes, dtype=np.float32), np.array([around]))

    def save(self, writer: Writer) -> None:
        """Write the arrays."""
        for name, array in zip(_FILES, self, strict=True):
            writer.array(name, array)

    @classmethod
    def load(cls, reader: Reader) -> "Cells":
        """What `save` wrote; arrays stay memory-mapped."""
        return cls(*(reader.array(name) for name in _FILES))


_FILES = "means", "offsets", "cell_variances", "residual_axes", "residual_around"


def mean_rows(features: Features, cell_of: Ints, cells: int, progress: Progress) -> tuple[Vectors, Ints, Floats]:
    """Means of cells that have rows, the cell of each row among these, and the mean squared norm of their rows."""
    sums, squares = np.zeros((cells, features.d)), np.zeros(cells)
    counts = np.bincount(cell_of, minlength=cells)
    with progress.task("averaging cells", features.n) as task:
        for ids, rows in features.blocks():
            kernels.add_by_cell(rows, cell_of[ids], sums, squares)
            task.advance(len(ids))
    kept = np.flatnonzero(counts)
    means = (sums[kept] / counts[kept, None]).astype(np.float32)
    renumbered = np.zeros(cells, dtype=np.int64)
    renumbered[kept] = np.arange(len(kept))
    return means, renumbered[cell_of], squares[kept] / counts[kept]
