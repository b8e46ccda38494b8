"""`PartitionIndex`: rows stored cell by cell, four-bit codes of their rotated residuals, and bytes.

A scan of the codes gives every row a ceiling that its logit exceeds with a known, small probability (see `law`), at a
few bits an entry. What is drawn, summed or ranked then reads only the rows whose ceilings matter.
"""

from collections.abc import Callable
from itertools import islice
from math import log, sqrt
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_count, check_number
from lazygumbel.features import Features, Source
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.indexes.partition.bytes import Bytes
from lazygumbel.indexes.partition.codebook import COORDINATES, codebook
from lazygumbel.indexes.partition.cost import default_cells, default_coordinates
from lazygumbel.indexes.partition.kmeans import assign_cells, train_means
from lazygumbel.indexes.partition.law import error_quantile
from lazygumbel.indexes.partition.sketch import Coder, Layout, haar_rotation, load_sketch, save_sketch
from lazygumbel.kernels.types import BLOCK, CHUNK, Asked, Coded, Race, Rows, Run, Sketch
from lazygumbel.persist import Reader, Writer
from lazygumbel.progress import Progress, Silent
from lazygumbel.results import TopK
from lazygumbel.threads import map_threads, one_blas_thread, submit

__all__ = ["PartitionIndex", "code_rows"]

_SCALE = 20.0
"""Norm of theta over temperature that codes are made for by default, in units of one over the typical norm of a row."""
_ROWS_AT_ONCE = 2**13
_SLACK = 2e-5
"""Rounding of float32 in estimates, in units of |theta| and the largest norm."""
_ROUNDING_SHARE = 0.1
"""Share of delta that is kept for the rounding of lookup tables."""
_SHARED_FROM = 2_000_000
"""Bytes of codes from which a second thread pays."""
_LN2 = log(2.0)
_SILENT = Silent()
_NOTHING = np.empty(0, dtype=np.int64)
_MISSED = 1e-6
"""Probability that `top_k` misses a row."""
_SCANNED_SHARE = 0.05
"""Of the rows: a larger k takes longer to find by ceilings than by scoring every row."""
_HOT, _HOPELESS = 2.0**120, 4.0
"""Weights that may have been cut off, and how many times its range a scan is not even tried."""
_RANGE = 140.0
"""Powers of two that a scan can tell apart above a lower bound of log Z."""


class PartitionIndex:
    """The structure under the race with ceilings."""

    kind: ClassVar[str] = "partition"

    def __init__(
        self,
        features: Features,
        means: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        coder: Coder,
        sketch: Sketch,
        byte_codes: Bytes,
    ) -> None:
        self.features = features
        """The rows, stored cell by cell."""
        self.means = means
        """Of cells, (cells, d)."""
        self.layout = Layout.of(offsets)
        self.coder = coder
        self.sketch = sketch
        self.bytes = byte_codes
        self.alive = self.layout.alive()
        """A bit for each slot that holds a row."""
        self.width = float(np.mean(sketch.widths))
        """A typical width: see `Sketch`."""
        self.rows = Rows(features.stored, *byte_codes)
        self._coded = Coded(
            np.concatenate([coder.rotation, means]),
            coder.codebook,
            np.log2(np.diff(offsets)),
            features.d,
            sketch.codes.shape[1],
            2 * features.max_norm,
            _SLACK * features.max_norm,
        )
        for array in (self.alive, *self._coded[:3], *sketch, *coder, *byte_codes[:2], means, features.stored):
            array.flags.writeable = False  # what is built and what is loaded share one compiled version

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.means)

    @property
    def coordinates(self) -> int:
        """Rotated coordinates that a nibble of a code stands for."""
        return self.coder.codebook.shape[1]

    def __repr__(self) -> str:
        bits = 8 * self.sketch.codes.shape[1]
        return f"PartitionIndex(n={self.features.n:,}, d={self.features.d}, cells={self.cells:,}, {bits} bits a row)"

    @classmethod
    def build(
        cls,
        features: Source | Features,
        *,
        cells: int | None = None,
        coordinates: int | None = None,
        scale: float | None = None,
        rng: np.random.Generator | int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train cells on a sample, store the rows cell by cell (a float32 copy), and code them.

        `coordinates` to a nibble of a code, fewer for finer codes, are chosen by cost for thetas of norm over
        temperature `scale`: by default 20 over the typical norm of a row.
        """
        features, progress, generator = Features.of(features), progress or Silent(), np.random.default_rng(rng)
        n, d = features.n, features.d
        cells = default_cells(n, d) if cells is None else check_count(cells, "cells")
        if n >= 2**31:
            raise ValueError(f"features: a PartitionIndex holds fewer than 2^31 rows, not {n:,}; split them")
        if cells > n:
            raise ValueError(f"cells must be at most the number of rows, {n}, not {cells}")
        if coordinates is not None and coordinates not in COORDINATES:
            raise ValueError(f"coordinates must be one of {', '.join(map(str, COORDINATES))}, not {coordinates!r}")
        if scale is not None:
            check_number(scale, "scale", above=0.0)
        features.check_finite(progress)
        trained = train_means(features, cells, generator, progress)
        cell_of = assign_cells(features, trained, progress)
        means, cell_of, spread, norm = _means(features, cell_of, len(trained), progress)
        if coordinates is None:
            coordinates = default_coordinates(n, d, spread, scale or _SCALE / max(norm, 1e-30))
        coder = Coder(haar_rotation(d, generator), codebook(coordinates))
        return cls(*code_rows(features, means, cell_of, coder, progress))

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The k rows of largest inner product; by the law of the sketch each is missed with probability below 1e-6."""
        search = open_search(queries, k, self.features)
        if search.k > _SCANNED_SHARE * self.features.n:
            return ExactIndex(self.features).top_k(queries, k)
        rows = np.empty(len(search.vectors), dtype=np.int64)
        shared = self.shares(len(search.vectors))

        def find(b: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
            vector = search.vectors[b]
            norm = float(np.linalg.norm(vector.astype(np.float64)))
            # Any temperature will do; at this one a scan tells rows apart well, and all of them are in its range.
            temperature = max(norm, 1e-30) * self.width / sqrt(max(self.features.d - 1, 1))
            run, _ = self.enter(vector, temperature, delta=_MISSED, shared=shared)
            positions, _ = kernels.top_rows(run, search.k)
            rows[b] = len(positions)
            scores = self.features.score_at(positions, vector)
            return best(self.features, vector, self.order[positions], scores, search.k)

        each = range(len(search.vectors))
        hits = [find(b) for b in each] if len(each) < 2 else list(map_threads(find, each))
        return pack(search, hits, rows, exact=False)

    def save(self, writer: Writer) -> None:
        """Means, offsets, codes and bytes; the rows are saved by their owner."""
        writer.config["index"] = {"kind": self.kind, "cells": self.cells, "coordinates": self.coordinates}
        writer.array("means", self.means)
        writer.array("offsets", self.layout.offsets)
        save_sketch(writer, self.coder, self.sketch)
        self.bytes.save(writer)

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back; the arrays stay memory-mapped."""
        offsets = reader.array("offsets")
        coder, sketch = load_sketch(reader, Layout.of(offsets))
        return cls(features, reader.array("means"), offsets, coder, sketch, Bytes.load(reader))

    def alive_without(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Bits of the slots that hold other rows than these."""
        alive = self.alive.copy()
        slots = self.layout.slots(positions)
        np.bitwise_and.at(alive, slots // BLOCK, ~(np.uint64(1) << (slots % BLOCK).astype(np.uint64)))
        return alive

    def shares(self, thetas: int) -> bool:
        """Whether two threads should share a scan: for a theta alone, when it takes long enough to wake one."""
        return thetas == 1 and self.sketch.codes.size > _SHARED_FROM

    def enter(
        self,
        theta: npt.NDArray[np.float32],
        temperature: float,
        *,
        delta: float = 0.0,
        seed: int = 0,
        excluded: npt.NDArray[np.int64] = _NOTHING,
        shared: bool = False,
    ) -> tuple[Run, float]:
        """Ceilings and a scan for one theta, and a lower bound of log2 Z; `excluded` are positions.

        Each ceiling is too low with probability at most `delta`; none is with zero, when they are by bytes.
        """
        by_bytes, d = delta == 0.0, self.features.d
        asked = Asked(
            1 / (_LN2 * temperature),
            0.0 if by_bytes else error_quantile((1 - _ROUNDING_SHARE) * delta, d),
            0.0 if by_bytes else sqrt(-0.5 * log(_ROUNDING_SHARE * delta)),
            by_bytes,
        )
        race, power = self._new_race(excluded), 1.0
        while True:
            facts, ceilings, low, high = kernels.prepare(self._coded, theta, asked, power, np.uint64(seed))
            run = Run(self.sketch, self.rows, facts, ceilings, race)
            tempered = max(1.0, (high - low) / _RANGE)
            if power == 1.0 and tempered > _HOPELESS:
                power = tempered
                continue
            self._scan(run, shared)
            if power < tempered and race.sums.max() > _HOT:
                power = tempered
                continue
            return run, low

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The id of each position."""
        if self.features.order is None:
            raise ValueError("features of a PartitionIndex must be stored cell by cell; use PartitionIndex.build")
        return self.features.order

    def _new_race(self, excluded: npt.NDArray[np.int64]) -> Race:
        blocks, room = len(self.alive), self.features.n // 8 + 64
        chunks = -(-blocks // CHUNK)
        return Race(
            self.alive_without(excluded) if len(excluded) else self.alive.copy(),
            np.empty(blocks),
            np.empty(chunks),
            np.empty(chunks),
            np.empty(room, dtype=np.int64),
            np.empty(room),
            np.zeros(5),
            np.empty(BLOCK, dtype=np.float32),
            np.empty(BLOCK),
        )

    def _scan(self, run: Run, shared: bool) -> None:
        chunks = len(run.race.sums)
        middle = chunks // 2 if shared else chunks
        other = submit(kernels.scan, run, middle, chunks) if shared else None
        kernels.scan(run, 0, middle)
        if other is not None:
            other.result()


def _means(
    features: Features, cell_of: npt.NDArray[np.int64], cells: int, progress: Progress
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], float, float]:
    """Means of cells that have rows, the cell of each row among these, and typical norms of residuals and rows."""
    sums, squares = np.zeros((cells, features.d)), 0.0
    counts = np.bincount(cell_of, minlength=cells)
    with progress.task("averaging cells", features.n) as task:
        for ids, rows in features.blocks():
            here = cell_of[ids]
            order = np.argsort(here, kind="stable")
            present, starts = np.unique(here[order], return_index=True)
            sums[present] += np.add.reduceat(rows[order], starts, axis=0, dtype=np.float64)
            squares += float(np.einsum("nd,nd->", rows, rows, dtype=np.float64))
            task.advance(len(ids))
    kept = np.flatnonzero(counts)
    means = sums[kept] / counts[kept, None]
    between = float(counts[kept] @ np.einsum("cd,cd->c", means, means))
    renumbered = np.zeros(cells, dtype=np.int64)
    renumbered[kept] = np.arange(len(kept))
    spread = sqrt(max(squares - between, 0.0) / features.n)
    return means.astype(np.float32), renumbered[cell_of], spread, sqrt(squares / features.n)


def code_rows(
    features: Features,
    means: npt.NDArray[np.float32],
    cell_of: npt.NDArray[np.int64],
    coder: Coder,
    progress: Progress = _SILENT,
) -> tuple[Features, npt.NDArray[np.float32], npt.NDArray[np.int64], Coder, Sketch, Bytes]:
    """Rows cell by cell, in a cell by falling width, so that groups have rows of about the same; with their codes."""
    n, d = features.n, features.d
    codes, gains, widths = np.empty((n, coder.nibbles), np.uint8), np.empty(n, np.float32), np.empty(n, np.float32)

    def encode(ids: npt.NDArray[np.int64], rows: npt.NDArray[np.float32]) -> int:
        codes[ids], gains[ids], widths[ids] = coder.encode(rows - means[cell_of[ids]])
        return len(ids)

    _for_blocks(features, encode, "sketching rows", progress)
    order = np.lexsort((-widths, cell_of))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell_of, minlength=len(means)))]).astype(np.int64)
    layout, stored = Layout.of(offsets), features.reordered(order, progress)
    slots = layout.slots(np.arange(n))
    laid_out = np.zeros((layout.blocks, coder.nibbles // 2, BLOCK), dtype=np.uint8)
    kernels.interleave(codes[order], slots, laid_out)
    all_gains, all_widths = np.zeros((2, BLOCK * layout.blocks), dtype=np.float32)
    all_gains[slots], all_widths[slots] = gains[order], widths[order]
    sketch = Sketch(laid_out, all_gains, all_widths.reshape(-1, 16).max(axis=1), *layout.groups())
    byte_codes, errors = Bytes.empty(n, d), [0.0]
    cells_in_order = cell_of[order]

    def to_bytes(ids: npt.NDArray[np.int64], rows: npt.NDArray[np.float32]) -> int:
        places = stored.locate(ids)
        errors.append(byte_codes.fill(places, rows - means[cells_in_order[places]]))
        return len(ids)

    _for_blocks(stored, to_bytes, "coding rows", progress)
    return stored, means, offsets, coder, sketch, byte_codes._replace(error=max(errors))


def _for_blocks(
    features: Features,
    function: Callable[[npt.NDArray[np.int64], npt.NDArray[np.float32]], int],
    label: str,
    progress: Progress,
) -> None:
    """Call a function with blocks of rows and their ids, on threads; it returns how many it has done."""
    with progress.task(label, features.n) as task:
        blocks = features.blocks(_ROWS_AT_ONCE)
        while some := list(islice(blocks, 8)):
            with one_blas_thread():
                for count in map_threads(function, *zip(*some, strict=True)):
                    task.advance(count)
