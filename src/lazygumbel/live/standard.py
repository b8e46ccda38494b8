"""`Standard`: how rows lay in their cells when these were trained, and how those lie that came since."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Vectors
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.kmeans import assign_cells
from lazygumbel.live.segment import Segment
from lazygumbel.progress import Silent
from lazygumbel.rows.features import Features

__all__ = ["Standard"]


class Standard(NamedTuple):
    """What drift is measured against. It is kept when rows are compacted into the same cells."""

    variance: float
    """Mean squared norm of the residuals when cells were trained."""
    largest: float
    """Share of the rows in the largest cell, then."""
    came: float = 0.0
    """Rows that came since, of those that there are."""
    spread: float = 0.0
    """Mean squared norm of their residuals."""

    @classmethod
    def of(cls, base: Segment) -> "Standard | None":
        """Of a build; None without cells."""
        if not isinstance(base.index, PartitionIndex):
            return None
        cells = base.index.partition
        counts = np.diff(cells.offsets)
        return cls(float(cells.variances @ counts / counts.sum()), float(counts.max() / counts.sum()))

    def among(self, base: Segment, parts: Sequence[Segment]) -> tuple["Standard", float]:
        """The same, with the rows that came beside those of the base; and the share of all in the largest cell."""
        assert isinstance(base.index, PartitionIndex)
        left = sum(part.count for part in parts if part.ids is base.ids) / len(base.ids)
        came, total = left * self.came, left * self.came * self.spread
        counts = left * np.diff(base.index.partition.offsets)
        for part in parts:
            if part.ids is not base.ids:
                share, spread = _residuals(part, base.index.partition.means)
                came, total = came + part.count, total + part.count * spread
                counts += part.count * share
        return self._replace(came=came, spread=total / came if came else 0.0), float(counts.max() / counts.sum())


def _residuals(part: Segment, means: Vectors) -> tuple[Floats, float]:
    """Of the rows of a part: the share in each cell, and the mean squared norm of what is beside the means."""
    if isinstance(part.index, PartitionIndex) and part.cells is not None:
        counts = np.diff(part.index.partition.offsets)
        share = np.bincount(part.cells, counts / counts.sum(), len(means)).astype(np.float64)
        return share, float(part.index.partition.variances @ counts / counts.sum())
    rows = part.index.features.gather(part.kept)
    cell_of = assign_cells(Features(rows), means, Silent())
    squares = np.square(rows - means[cell_of], dtype=np.float64).sum(axis=1)
    return np.bincount(cell_of, minlength=len(means)) / len(rows), float(squares.mean())
