"""`PartitionIndex`: k-means cells over the directions of the rows. The default for large n.

Rows are stored cell by cell, in random order inside a cell, so that a cell is one contiguous scan and any prefix of it
is a uniform sample. Cells are ranked for a query by *routing score*: the query's inner product with the cell's unit
centroid, times the largest norm in the cell. Cells lie in groups with centroids of their own: a `survey` ranks single
cells in the groups nearest to a query in direction, and takes the others group by group.

Rows are assigned in a last pass by the very centroids that route queries, by direction alone. So the cell that a query
points at most directly, which is always ranked first, holds the rows of that direction, whatever their norms: all of
them where there is one group, nearly all where there are many.
"""

from collections.abc import Sequence
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
from lazygumbel.persist import Reader, Writer
from lazygumbel.progress import Progress, Silent
from lazygumbel.results import TopK
from lazygumbel.threads import map_threads, one_blas_thread

__all__ = ["PartitionIndex", "Survey", "default_cells"]

_PROBED_SHARE = 0.046
"""Share of the cells that `top_k` scans by default; popular cells are larger, so it scores just under 5% of rows."""

_CELLS_FACTOR = 397
_LEAST_OPENED = 48
"""Groups that a survey opens at least."""
_LEFT = 1e-3
"""Share of rows that may be nearer to their cell than the gap allows."""
_ASKED = 10_000
_ASSIGNED = 16
"""Groups whose cells a row is compared with: of 10,000 photo descriptors 99.95%, of as many sentence embeddings 99.8%
get the cell that is nearest of all."""
_ASSIGNED_TO_ANY = 4e11
"""Up to so many products of numbers, some seconds, rows are compared with all cells: that is exact."""
_ROWS_AT_ONCE = 2**14


def default_cells(n: int, d: int) -> int:
    """Number of cells for n rows of length d: finer cells save rows, but each costs a row of length d to route by."""
    return max(1, min(n // 8, round(_CELLS_FACTOR * n**0.4 / d**0.5)))


class Survey(NamedTuple):
    """Storage in order of rank for a batch of queries: segments, which are cells of opened groups, then other groups.

    Those of query b are edges[b, 0] up to edges[b, -1]; one entry more tells how many rows they hold.
    """

    begins: npt.NDArray[np.int64]
    """Where each segment starts in storage."""
    before: npt.NDArray[np.int64]
    """How many rows are in the segments of the same query before each."""
    edges: npt.NDArray[np.int64]
    """First segment of each bucket, (B, K + 1)."""
    alignment: npt.NDArray[np.float32]
    """Inner product of each query with the unit centroid nearest in direction, (B,)."""
    reach: npt.NDArray[np.float32]
    """The largest inner product of each query with a row of that cell, (B,)."""

    def at(self, queries: Sequence[int]) -> "Survey":
        """For some of the queries."""
        begins, before, edges, alignment, reach = self
        return Survey(begins, before, edges[queries], alignment[queries], reach[queries])


class Opening(NamedTuple):
    """Which groups a survey opens: those near enough that they may hold the nearest cell, of rows as queries."""

    fewest: int
    most: int
    gap: float
    """By how much a query of length one may be nearer to a cell than to its group."""
    usual: int
    """How many cells this is for half of the rows."""

    @classmethod
    def measured(
        cls, features: Features, centroids: Centroids, offsets: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> "Opening":
        """By a sample of the rows: nearly all are to find their own cells."""
        cells, groups, ends = centroids
        positions = rng.integers(features.n, size=min(_ASKED, features.n))
        rows = features.stored[positions]
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        rows = rows / np.where(norms > 0, norms, 1.0)[:, None]
        cell = np.searchsorted(offsets, positions, side="right") - 1
        group = np.searchsorted(ends, cell, side="right") - 1
        best = np.einsum("nd,nd->n", rows, cells[cell])
        near = rows @ groups.T
        gap = float(np.quantile(best - near[np.arange(len(rows)), group], 1 - _LEFT))
        fewest = min(_LEAST_OPENED, len(groups))
        opened = np.maximum((near >= (best - gap)[:, None]).sum(axis=1), fewest)
        most, usual = int(np.quantile(opened, 1 - _LEFT)), float(np.median(opened)) / len(groups) * len(cells)
        return cls(fewest, most, gap, round(usual))


class PartitionIndex:
    """Approximate top k by scanning the best-ranked cells; the structure under the `Stratified` method."""

    kind: ClassVar[str] = "partition"

    def __init__(
        self,
        features: Features,
        centroids: Centroids,
        scales: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        codes: Codes,
        *,
        probe: int,
        opening: "Opening",
    ) -> None:
        self.features = features
        """The rows, stored cell by cell."""
        self.centroids, self.groups, self.group_ends = centroids
        """Unit routing vectors of cells, (cells, d), and of groups of neighbouring cells, (groups, d)."""
        self.scales = scales
        """The largest row norm in each cell, (cells,)."""
        self.offsets = offsets
        """Cell c is stored at positions offsets[c] to offsets[c + 1], (cells + 1,)."""
        self.codes = codes
        """The rows in a byte an entry, in the same order."""
        self.probe = probe
        """How many cells `top_k` scans."""
        self.opening = opening
        """Which groups a survey opens, to rank their cells one by one."""
        self._cell_routes, self._group_routes = _routes(self.centroids), _routes(self.groups)
        self.bucket_edges = _bucket_edges(self.cells, len(self.groups), opening)
        """Ranks at which buckets begin: of cells in opened groups, and of groups, of which those that stay closed."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.centroids)

    @property
    def buckets(self) -> int:
        """Number of buckets of a survey."""
        return sum(len(edges) - 1 for edges in self.bucket_edges)

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
        if cells > features.n:
            raise ValueError(f"cells must be at most the number of rows, {features.n}, not {cells}")
        if probe is not None:
            check_count(probe, "probe")
        features.check_finite(progress)
        centroids = spherical_kmeans(features, cells, generator, progress)
        cell_of, norms = _assign(features, centroids, progress)
        counts = np.bincount(cell_of, minlength=len(centroids.cells))
        centroids, kept = centroids.regrouped(counts, generator)
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
        opening = Opening.measured(rows, centroids, offsets, generator)
        return cls(rows, centroids, scales, offsets, Codes.of(rows, progress), probe=probe, opening=opening)

    def with_probe(self, probe: int) -> Self:
        """The same index, scanning another number of cells."""
        centroids = Centroids(self.centroids, self.groups, self.group_ends)
        probe = min(check_count(probe, "probe"), self.cells)
        held = self.features, centroids, self.scales, self.offsets, self.codes
        return type(self)(*held, probe=probe, opening=self.opening)

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The id of each position."""
        if self.features.order is None:
            raise ValueError("features of a PartitionIndex must be stored cell by cell; use PartitionIndex.build")
        return self.features.order

    def survey(self, queries: npt.NDArray[np.float32]) -> Survey:
        """Rank storage for queries (B, d)."""
        cells, groups = self.bucket_edges
        found = kernels.survey(
            self.features.stored,
            queries,
            self._group_routes,
            self._cell_routes,
            self.scales,
            self.offsets,
            self.group_ends,
            self.opening.fewest,
            self.opening.most,
            self.opening.gap,
            cells,
            groups,
        )
        return Survey(*found)

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
        writer.array("opening", np.array(self.opening, dtype=np.float64))
        writer.array("centroids", self.centroids)
        writer.array("scales", self.scales)
        writer.array("offsets", self.offsets)
        writer.array("groups", self.groups)
        writer.array("group_ends", self.group_ends)
        self.codes.save(writer)

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back; the arrays stay memory-mapped."""
        fewest, most, gap, usual = reader.array("opening")
        return cls(
            features,
            Centroids(reader.array("centroids"), reader.array("groups"), reader.array("group_ends")),
            reader.array("scales"),
            reader.array("offsets"),
            Codes.load(reader),
            probe=reader.config["index"]["probe"],
            opening=Opening(int(fewest), int(most), float(gap), int(usual)),
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


def _routes(directions: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """Unit vectors in half the memory, in units of 1/32767."""
    return np.rint(directions * 32767).astype(np.int16)


def _bucket_edges(cells: int, groups: int, opening: Opening) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Buckets of ranks that grow by about sqrt(2): of cells in opened groups, and of closed groups.

    The last bucket of cells begins where most queries have some left: a bucket that is nearly always empty would be
    free to look at, and its hazard a poor bound for those before it.
    """
    edges = [0, 1]
    while edges[-1] * 1.41 < 0.6 * opening.usual:
        edges.append(max(edges[-1] + 1, round(edges[-1] * 1.41)))
    edges = [edge for edge in edges if edge < cells] + [cells]
    ends = [opening.fewest]
    while ends[-1] < groups:
        ends.append(min(groups, round(ends[-1] * 1.41)))
    return np.array(edges, dtype=np.int64), np.array(ends, dtype=np.int64)


def _assign(
    features: Features, centroids: Centroids, progress: Progress
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Cell and norm of every row, by id: the nearest cell, of all or of the nearest groups."""
    few = len(centroids.groups) <= 8 * _ASSIGNED or features.n * centroids.cells.size <= _ASSIGNED_TO_ANY
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
    return np.concatenate([(rows[a : a + 1024] @ cells).argmax(axis=1) for a in range(0, len(rows), 1024)])


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
