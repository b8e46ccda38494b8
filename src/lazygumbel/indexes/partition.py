"""`PartitionIndex`: k-means cells over the directions of the rows. The default for large n.

Rows are stored cell by cell, in random order inside a cell, so that a cell is one contiguous scan and any prefix of it
is a uniform sample. Cells are ranked for a query by *routing score*: the query's inner product with the cell's unit
centroid, times the largest norm in the cell. A `survey` ranks all of them: ranking groups of far cells as one is
quicker, but then takes twice the rows for the same accuracy.

Rows are assigned in a last pass by the very centroids that route queries, by direction alone. So the cell that a query
points at most directly, which is always ranked first, holds the rows of that direction, whatever their norms: all of
them where rows were compared with all cells, nearly all elsewhere.
"""

from itertools import islice
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_count
from lazygumbel.features import Features
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.indexes.codes import Codes
from lazygumbel.indexes.kmeans import Centroids, spherical_kmeans
from lazygumbel.kernels.blocks import lay_out_blocks
from lazygumbel.persist import Reader, Writer
from lazygumbel.progress import Progress, Silent
from lazygumbel.results import TopK
from lazygumbel.threads import map_threads, one_blas_thread

__all__ = ["PartitionIndex", "Survey", "default_cells"]

_PROBED_SHARE = 0.046
"""Share of the cells that `top_k` scans by default; popular cells are larger, so it scores just under 5% of rows."""

_ASSIGNED = 16
"""Groups whose cells a row is compared with: of 10,000 photo descriptors 99.95%, of as many sentence embeddings 99.8%
get the cell that is nearest of all."""
_FEW_GROUPS = 128
_ASSIGNED_TO_ANY = 6e11
"""Up to so many products of numbers, some seconds, rows are compared with all cells: that is exact."""
_ROWS_AT_ONCE = 2**14
_ALIKE = 1 - 1e-5
"""Where the largest norms of all cells differ by less, as with rows of length one, they do not change a rank."""


def default_cells(n: int, d: int) -> int:
    """Number of cells for n rows of length d: finer cells save rows, but all are ranked for every theta."""
    return max(1, min(n // 8, round(38 * n**0.5 / d**0.2)))


class Survey(NamedTuple):
    """Cells ranked for a batch of queries."""

    buckets: npt.NDArray[np.uint8]
    """The bucket of ranks that each cell is in, (B, cells)."""
    alignment: npt.NDArray[np.float32]
    """Inner product of each query with the unit centroid nearest in direction, (B,)."""
    reach: npt.NDArray[np.float32]
    """The largest inner product of each query with a row of that cell, by its code, (B,)."""
    norms: npt.NDArray[np.float64]
    """|query|, (B,)."""


class PartitionIndex:
    """Approximate top k by scanning the best-ranked cells; the structure under the `Stratified` method."""

    kind: ClassVar[str] = "partition"

    def __init__(
        self,
        features: Features,
        centroids: npt.NDArray[np.float32],
        scales: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        codes: Codes,
        *,
        probe: int,
    ) -> None:
        self.features = features
        """The rows, stored cell by cell."""
        self.centroids = centroids
        """Unit routing vectors of cells, (cells, d)."""
        self.scales = scales
        """The largest row norm in each cell, (cells,)."""
        self.offsets = offsets
        """Cell c is stored at positions offsets[c] to offsets[c + 1], (cells + 1,)."""
        self.codes = codes
        """The rows in a byte an entry, in the same order."""
        self.probe = probe
        """How many cells `top_k` scans."""
        self.bucket_edges = _bucket_edges(self.cells)
        """Ranks at which buckets begin, and the number of cells, (K + 1,)."""
        self._routes = _routes(centroids)
        # In units of the largest, so that products with whole numbers stay in range; none where all are alike.
        self._shares = scales / max(float(scales.max(initial=0.0)), 1e-30)
        if self._shares.min(initial=1.0) > _ALIKE:
            self._shares = self._shares[:0]

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.centroids)

    @property
    def buckets(self) -> int:
        """Number of buckets of a survey."""
        return len(self.bucket_edges) - 1

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
        cells = default_cells(features.n, features.d) if cells is None else check_count(cells, "cells")
        if features.n >= 2**31:
            raise ValueError(f"features: a PartitionIndex holds fewer than 2^31 rows, not {features.n:,}; split them")
        if cells > features.n:
            raise ValueError(f"cells must be at most the number of rows, {features.n}, not {cells}")
        if probe is not None:
            check_count(probe, "probe")
        features.check_finite(progress)
        centroids = spherical_kmeans(features, cells, generator, progress)
        cell_of, norms = _assign(features, centroids, progress)
        counts = np.bincount(cell_of, minlength=len(centroids.cells))
        kept = np.flatnonzero(counts)  # to drop a cell without rows changes no assignment
        renumber = np.zeros(len(counts), dtype=np.int64)
        renumber[kept] = np.arange(len(kept))
        cell_of = renumber[cell_of]
        shuffled = generator.permutation(features.n)
        order = shuffled[np.argsort(cell_of[shuffled], kind="stable")]
        offsets = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum(counts[kept], out=offsets[1:])
        scales = np.maximum.reduceat(norms[order], offsets[:-1])
        probe = max(1, round(_PROBED_SHARE * len(kept))) if probe is None else min(probe, len(kept))
        rows = features.reordered(order, progress)
        return cls(rows, centroids.cells[kept], scales, offsets, Codes.of(rows, progress), probe=probe)

    def with_probe(self, probe: int) -> Self:
        """The same index, scanning another number of cells."""
        probe = min(check_count(probe, "probe"), self.cells)
        return type(self)(self.features, self.centroids, self.scales, self.offsets, self.codes, probe=probe)

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The id of each position."""
        if self.features.order is None:
            raise ValueError("features of a PartitionIndex must be stored cell by cell; use PartitionIndex.build")
        return self.features.order

    def survey(self, queries: npt.NDArray[np.float32]) -> Survey:
        """Rank cells for queries (B, d)."""
        return Survey(
            *kernels.survey(
                self._routes,
                self.centroids,
                *self.codes[:3],
                queries,
                self._shares,
                self.offsets,
                self.bucket_edges,
            )
        )

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The best k rows of the `probe` first cells, and of as many more as it takes to hold k rows."""
        search = open_search(queries, k, self.features)
        hits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]] = []
        rows = np.empty(len(search.vectors), dtype=np.int64)
        exact = True
        for b, scores in enumerate(self._routing_scores(search.vectors)):
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
        writer.config["index"] = {
            "kind": self.kind,
            "cells": self.cells,
            "probe": self.probe,
        }
        writer.array("centroids", self.centroids)
        writer.array("scales", self.scales)
        writer.array("offsets", self.offsets)
        self.codes.save(writer)

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back; the arrays stay memory-mapped."""
        return cls(
            features,
            reader.array("centroids"),
            reader.array("scales"),
            reader.array("offsets"),
            Codes.load(reader),
            probe=reader.config["index"]["probe"],
        )

    def _routing_scores(self, queries: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Of every cell, (B, cells); infinite for the cell nearest in direction, which comes first."""
        cosines = (self.centroids @ queries[0])[None] if len(queries) == 1 else queries @ self.centroids.T
        scores = cosines * self.scales
        scores[np.arange(len(queries)), cosines.argmax(axis=1)] = np.inf
        return scores

    def _first_cells(self, scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
        if self.probe < self.cells:
            chosen = np.argpartition(-scores, self.probe - 1)[: self.probe]
            if (self.offsets[chosen + 1] - self.offsets[chosen]).sum() >= k:
                return chosen
        ranked = np.argsort(-scores, kind="stable")
        held = np.cumsum(self.offsets[ranked + 1] - self.offsets[ranked])
        return ranked[: max(self.probe, int(np.searchsorted(held, k)) + 1)]


def _routes(centroids: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Unit vectors in a byte an entry, laid out for kernels."""
    step = max(float(np.abs(centroids).max(initial=0.0)) / 127, 1e-30)
    return lay_out_blocks(np.rint(centroids / step).astype(np.int8))


def _bucket_edges(cells: int) -> npt.NDArray[np.int64]:
    """Buckets of ranks that grow by about sqrt(2)."""
    edges = [0, 1]
    while edges[-1] * 1.41 < cells:
        edges.append(max(edges[-1] + 1, round(edges[-1] * 1.41)))
    return np.array([edge for edge in edges if edge < cells] + [cells], dtype=np.int64)


def _assign(
    features: Features, centroids: Centroids, progress: Progress
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Cell and norm of every row, by id: the nearest cell, of all or of the nearest groups."""
    few = len(centroids.groups) <= _FEW_GROUPS or features.n * centroids.cells.size <= _ASSIGNED_TO_ANY
    nearest = _nearest_of_all if few else _nearest_of_some
    cell_of = np.empty(features.n, dtype=np.int64)
    norms = np.empty(features.n, dtype=np.float32)

    def assign(ids: npt.NDArray[np.int64], rows: npt.NDArray[np.float32]) -> int:
        norms[ids] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        cell_of[ids] = nearest(rows, centroids)
        return len(ids)

    with progress.task("assigning rows to cells", features.n) as task:
        blocks = features.blocks(_ROWS_AT_ONCE)
        while some := list(islice(blocks, 8)):  # a few at a time, so that a file is not read whole
            with one_blas_thread():
                for count in map_threads(assign, *zip(*some, strict=True)):
                    task.advance(count)
    return cell_of, norms


def _nearest_of_all(rows: npt.NDArray[np.float32], centroids: Centroids) -> npt.NDArray[np.int64]:
    cells = centroids.cells.T
    step = min(1024, len(rows))
    room = np.empty((step, cells.shape[1]), dtype=np.float32)  # once: new memory takes as long as the product
    cuts = (rows[a : a + step] for a in range(0, len(rows), step))
    return np.concatenate([np.dot(cut, cells, out=room[: len(cut)]).argmax(axis=1) for cut in cuts])


def _nearest_of_some(rows: npt.NDArray[np.float32], centroids: Centroids) -> npt.NDArray[np.int64]:
    """The nearest cell of the nearest groups."""
    cells, groups, ends = centroids
    near = rows @ groups.T
    cut = np.partition(near, len(groups) - _ASSIGNED, axis=1)[:, len(groups) - _ASSIGNED]
    best = np.full(len(rows), -np.inf, dtype=np.float32)
    chosen = np.zeros(len(rows), dtype=np.int64)
    for g in range(len(groups)):
        asking = np.flatnonzero(near[:, g] >= cut)
        scores = rows[asking] @ cells[ends[g] : ends[g + 1]].T
        found = scores.argmax(axis=1)
        score = scores[np.arange(len(asking)), found]
        better = score > best[asking]
        best[asking[better]] = score[better]
        chosen[asking[better]] = ends[g] + found[better]
    return chosen
