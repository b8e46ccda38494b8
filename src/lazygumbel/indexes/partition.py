"""`PartitionIndex`: k-means cells over the directions of the rows. The default for large n.

Rows are stored cell by cell, in random order inside a cell, so that a cell is one contiguous scan and any prefix of it
is a uniform sample. Cells are ranked for a query by *routing score*: the query's inner product with the cell's unit
centroid, times the largest norm in the cell.

Rows are assigned in a last pass by the very centroids that route queries, by direction alone. So the cell that a query
points at most directly holds every row of that direction; it is always ranked first, whatever the norms of the rows.
"""

from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_count
from lazygumbel.features import Features
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.indexes.kmeans import spherical_kmeans
from lazygumbel.persist import Reader, Writer
from lazygumbel.progress import Progress, Silent
from lazygumbel.results import TopK

__all__ = ["PartitionIndex", "Route", "default_cells"]

_PROBED_SHARE = 0.046
"""Share of the cells that `top_k` scans by default; popular cells are larger, so it scores just under 5% of rows."""


def default_cells(n: int) -> int:
    """Number of cells for n rows: n^0.4 growth balances routing against scanning; the factor was measured."""
    return max(1, min(n // 8, round(32 * n**0.4)))


class Route(NamedTuple):
    """Cells ranked for a batch of queries."""

    scores: npt.NDArray[np.float32]
    """Routing score of every cell, (B, cells): larger is ranked earlier."""
    alignment: npt.NDArray[np.float32]
    """Inner product of each query with the unit centroid nearest in direction, (B,)."""


class PartitionIndex:
    """Approximate top k by scanning the best-ranked cells; the structure under the `Stratified` method."""

    kind: ClassVar[str] = "partition"

    def __init__(
        self,
        features: Features,
        centroids: npt.NDArray[np.float32],
        scales: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        *,
        probe: int,
    ) -> None:
        self.features = features
        """The rows, stored cell by cell."""
        self.centroids = centroids
        """Unit routing vectors, (cells, d)."""
        self.scales = scales
        """The largest row norm in each cell, (cells,)."""
        self.offsets = offsets
        """Cell c is stored at positions offsets[c] to offsets[c + 1], (cells + 1,)."""
        self.probe = probe
        """How many cells `top_k` scans."""
        self._equal_norms = bool(scales.max() - scales.min() <= 1e-3 * scales.max())

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.centroids)

    @classmethod
    def build(
        cls,
        features: Features,
        *,
        cells: int | None = None,
        probe: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train centroids on a sample, assign every row, store the rows cell by cell (a float32 copy)."""
        progress, generator = progress or Silent(), np.random.default_rng(rng)
        cells = default_cells(features.n) if cells is None else check_count(cells, "cells")
        if cells > features.n:
            raise ValueError(f"cells must be at most the number of rows, {features.n}, not {cells}")
        if probe is not None:
            check_count(probe, "probe")
        features.check_finite(progress)
        centroids = spherical_kmeans(features, cells, generator, progress)
        cell_of, norms = _assign(features, centroids, progress)
        counts = np.bincount(cell_of, minlength=len(centroids))
        # A centroid that no row chose can be dropped without changing any assignment.
        kept = np.flatnonzero(counts)
        renumber = np.zeros(len(centroids), dtype=np.int64)
        renumber[kept] = np.arange(len(kept))
        cell_of = renumber[cell_of]
        shuffled = generator.permutation(features.n)
        order = shuffled[np.argsort(cell_of[shuffled], kind="stable")]
        offsets = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum(counts[kept], out=offsets[1:])
        scales = np.maximum.reduceat(norms[order], offsets[:-1])
        probe = max(1, round(_PROBED_SHARE * len(kept))) if probe is None else min(probe, len(kept))
        return cls(
            features.reordered(order, progress),
            np.ascontiguousarray(centroids[kept]),
            scales,
            offsets,
            probe=probe,
        )

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The id of each position."""
        if self.features.order is None:
            raise ValueError("features of a PartitionIndex must be stored cell by cell; use PartitionIndex.build")
        return self.features.order

    def route(self, queries: npt.NDArray[np.float32]) -> "Route":
        """Rank the cells for queries (B, d)."""
        # For one query a matrix-vector product reads the centroids once, in order; a matrix product does worse.
        cosines = (self.centroids @ queries[0])[None] if len(queries) == 1 else queries @ self.centroids.T
        alignment = cosines.max(axis=1)
        if self._equal_norms:
            return Route(cosines, alignment)
        scores = cosines * self.scales
        np.put_along_axis(scores, cosines.argmax(axis=1)[:, None], np.inf, axis=1)
        return Route(scores, alignment)

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The best k rows of the `probe` first cells, and of as many more as it takes to hold k rows."""
        search = open_search(queries, k, self.features)
        hits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]] = []
        rows = np.empty(len(search.vectors), dtype=np.int64)
        exact = True
        for b, scores in enumerate(self.route(search.vectors).scores):
            chosen = self._first_cells(scores, search.k)
            positions, values = kernels.score_ranges(
                self.features.stored, self.offsets[chosen], self.offsets[chosen + 1], search.vectors[b]
            )
            ids = self.order[positions]
            hits.append(best(self.features, search.vectors[b], ids, values, search.k))
            rows[b] = len(ids)
            exact = exact and len(chosen) == self.cells
        return pack(search, hits, rows, exact=exact)

    def save(self, writer: Writer) -> None:
        """Centroids, scales and offsets; the rows are saved by their owner."""
        writer.config["index"] = {"kind": self.kind, "cells": self.cells, "probe": self.probe}
        writer.array("centroids", self.centroids)
        writer.array("scales", self.scales)
        writer.array("offsets", self.offsets)

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back; the arrays stay memory-mapped."""
        return cls(
            features,
            reader.array("centroids"),
            reader.array("scales"),
            reader.array("offsets"),
            probe=reader.config["index"]["probe"],
        )

    def _first_cells(self, scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
        if self.probe < self.cells:
            chosen = np.argpartition(-scores, self.probe - 1)[: self.probe]
            if (self.offsets[chosen + 1] - self.offsets[chosen]).sum() >= k:
                return chosen
        ranked = np.argsort(-scores, kind="stable")
        held = np.cumsum(self.offsets[ranked + 1] - self.offsets[ranked])
        return ranked[: max(self.probe, int(np.searchsorted(held, k)) + 1)]


def _assign(
    features: Features, centroids: npt.NDArray[np.float32], progress: Progress
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Cell and norm of every row, by id."""
    cell_of = np.empty(features.n, dtype=np.int64)
    norms = np.empty(features.n, dtype=np.float32)
    with progress.task("assigning rows to cells", features.n) as task:
        # 1,024 rows at a time: their scores against thousands of centroids stay in cache for the argmax.
        for ids, rows in features.blocks(1024):
            cell_of[ids] = (rows @ centroids.T).argmax(axis=1)
            norms[ids] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
            task.advance(len(ids))
    return cell_of, norms
