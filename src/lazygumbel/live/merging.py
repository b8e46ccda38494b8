"""Codes of several parts in one layout.

Segments share rotation, codebooks and means of cells with the build, and the unit of its gains up to powers of two. So
what is coded keeps its codes, and is only moved; encoded are rows that have no codes, and those few of cells for which
the unit of their gains has become too small, or whose mean was shortened.
"""

from math import ldexp, log2, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints, Mask, Vectors
from lazygumbel._support.threads import one_blas_thread
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.bytes import Bytes
from lazygumbel.indexes.partition.cells import Cells
from lazygumbel.indexes.partition.sketch import Coding, Layout
from lazygumbel.kernels.types import BLOCK, GAINS, GROUP, Sketch
from lazygumbel.live.sources import Source, Sources, in_pieces, largest_square, pieces
from lazygumbel.progress import Progress

__all__ = ["merge_codes"]


_LOOKED_AT = 2**12
"""Rows whose norms mostly tell that no mean is longer than the longest row."""
_LARGEST_EXPONENT = 100
_ROOM = 1 + 2.0**-14
"""By which units of gains are above the largest of them."""
_ROUNDING = 1e-5


class _Origins(NamedTuple):
    """What is known of all rows of some sources."""

    cell_of: Ints
    """Their cells in the build."""
    widths: Vectors
    """Of their codes, (2, n): at most; zero where there are none."""
    squares: Floats
    """Of the norms of their residuals: of coded rows those that are typical of their cells."""

    @classmethod
    def of(cls, sources: Sources, built: PartitionIndex) -> "_Origins":
        cell_of, widths = np.empty(sources.n, dtype=np.int64), np.zeros((2, sources.n), dtype=np.float32)
        squares = np.zeros(sources.n)
        for source in sources.each:
            index, mine = source.coded, source.entries
            if index is None:
                cell_of[mine] = _nearest(source, built.partition.means)
                continue
            local = _cells_of(index, source)
            cell_of[mine] = local if source.part.cells is None else source.part.cells[local]
            widths[:, mine] = index.coding.sketch.widths[:, index.layout.slots(source.positions) // GROUP]
            squares[mine] = index.partition.variances[local]
        return cls(cell_of, widths, squares)


class _EncodedEntries(NamedTuple):
    """Rows that were encoded."""

    entries: Ints
    """Which."""
    codes: npt.NDArray[np.uint8]
    gains: Floats
    """(m, 2)"""
    byte_codes: Bytes
    code_norm: float


class _Merge:
    """Rows of several parts in the cells of one."""

    def __init__(self, sources: Sources, built: PartitionIndex, progress: Progress) -> None:
        self.sources, self.built, self.progress = sources, built, progress
        origins = _Origins.of(sources, built)
        self.widths, self.squares = origins.widths, origins.squares
        held = np.bincount(origins.cell_of, minlength=built.cells) > 0
        self.cells, self.numbers = np.flatnonzero(held), (np.cumsum(held) - 1)[origins.cell_of]
        """Cells of the build that have rows, and which of these each row is in."""
        self.means, changed = _shortened(built.partition.means[self.cells], sources)
        self.fresh = changed[self.numbers]
        """Rows that are encoded."""
        for source in sources.each:
            self.fresh[source.entries] |= source.coded is None
        self.encoded = [self._encode(np.flatnonzero(self.fresh))]
        self.gain, self.exponents = self._units()

    def _encode(self, entries: Ints) -> _EncodedEntries:
        coder, d = self.built.coder, self.sources.d
        codes, gains = np.empty((len(entries), coder.parts[1]), dtype=np.uint8), np.empty((len(entries), 2))
        byte_codes, errors, code_norms, start = Bytes.empty(len(entries), d), [0.0], [0.0], 0
        with self.progress.task("encoding rows", len(entries)) as task:
            for source, some in self.sources.split(entries):

                def encode(piece: slice, source: Source = source, some: Ints = some, start: int = start) -> int:
                    mine, to = some[piece], np.arange(start + int(piece.start), start + int(piece.stop))
                    residuals = source.rows(mine) - self.means[self.numbers[mine + source.start]]
                    found, longest = coder.encode(residuals)
                    codes[to], gains[to] = found.codes, found.gains
                    self.widths[:, mine + source.start] = found.widths.T
                    self.squares[mine + source.start] = np.einsum("nd,nd->n", residuals, residuals)
                    errors.append(byte_codes.fill(to, residuals))
                    code_norms.append(longest)
                    return len(mine)

                with one_blas_thread():
                    for count in in_pieces(encode, len(some)):
                        task.advance(count)
                start += len(some)
        return _EncodedEntries(entries, codes, gains, byte_codes._replace(error=max(errors)), max(code_norms))

    def _units(self) -> tuple[float, npt.NDArray[np.uint8]]:
        """Of gains: that of the build times a power of two, and by how many each cell is below it."""
        unit, (first,) = self.built.coding.gain, self.encoded
        largest = np.zeros(len(self.cells))
        np.maximum.at(largest, self.numbers[first.entries], first.gains.max(axis=1, initial=0.0))
        with np.errstate(divide="ignore"):
            below = np.floor(np.log2(unit / (largest * _ROOM)))
        coded: list[tuple[Source, Ints, Ints]] = []
        for source in self.sources.each:
            if source.coded is not None:
                coding, local = source.coded.coding, _cells_of(source.coded, source)
                mine = coding.exponents.astype(np.int64) - round(log2(coding.gain / unit))
                numbers = np.zeros(len(mine), dtype=np.int64)  # of its cells, of which some may have no rows any more
                numbers[local] = self.numbers[source.entries]
                held = np.flatnonzero(np.bincount(local, minlength=len(mine)))
                np.minimum.at(below, numbers[held], mine[held])
                coded.append((source, local, mine))
        raised = max(0, -int(below.min()))
        limits = np.minimum(below, _LARGEST_EXPONENT - raised).astype(np.int64)
        for source, local, mine in coded:
            self.fresh[source.entries] |= mine[local] != limits[self.numbers[source.entries]]
        self.fresh[first.entries] = False
        self.encoded.append(self._encode(np.flatnonzero(self.fresh)))
        self.fresh[first.entries] = True
        return ldexp(unit, raised), (limits + raised).astype(np.uint8)

    def index(self, rng: np.random.Generator) -> PartitionIndex:
        """All rows under one index."""
        numbers, n = self.numbers, self.sources.n
        order = np.lexsort((-self.widths[1], numbers))
        positions = np.empty_like(order)
        positions[order] = np.arange(n)
        features = self.sources.stored(positions, self.progress)
        by_rank = np.empty(n, dtype=np.int64)
        by_rank[self.sources.ranks] = np.arange(n)
        cells = Cells.of(features, self.means, numbers[by_rank], self.squares[by_rank], rng)
        layout = Layout.of(cells.offsets)
        slots = layout.slots(positions)
        coding, byte_codes = self._coding(layout, slots), self._bytes(positions)
        return PartitionIndex(features, cells, self.built.coder, coding, byte_codes)

    def _coding(self, layout: Layout, slots: Ints) -> Coding:
        """Codes moved, or written, into the slots of their rows."""
        parts, code_norms = self.built.coder.parts, [self.built.coding.code_norm]
        spans = (0, parts[0]), parts
        held = [np.zeros((layout.blocks, 3 * (b - a) // 4 + GAINS, BLOCK), dtype=np.uint8) for a, b in spans]
        for source in self.sources.each:
            if source.coded is None:
                continue
            kept = np.flatnonzero(~self.fresh[source.entries])
            sketch = source.coded.coding.sketch
            before, after = source.coded.layout.slots(source.positions[kept]), slots[kept + source.start]

            def move(piece: slice, before: Ints = before, after: Ints = after, sketch: Sketch = sketch) -> None:
                for codes, out in zip((sketch.codes, sketch.more), held, strict=True):
                    kernels.move_codes(codes, before[piece], after[piece], out)

            list(in_pieces(move, len(kept)))
            code_norms.append(source.coded.coding.code_norm)
        for some in self.encoded:
            units = np.ldexp(self.gain, -self.exponents[self.numbers[some.entries]].astype(np.int64))
            gains = np.rint(some.gains / units[:, None] * 2.0**15).clip(0, 32767).astype(np.int16)
            every = np.arange(len(some.entries))
            for k, (a, b) in enumerate(spans):
                kernels.interleave(some.codes[:, a:b], gains[:, k], slots[some.entries], every, held[k])
            code_norms.append(some.code_norm * (1 + _ROUNDING))
        widths = np.zeros((2, BLOCK * layout.blocks), dtype=np.float32)
        widths[:, slots] = self.widths
        sketch = layout.sketch(held[0], held[1], widths.reshape(2, -1, GROUP).max(axis=2))
        return Coding(sketch, self.exponents, self.gain, max(code_norms))

    def _bytes(self, positions: Ints) -> Bytes:
        found, errors = Bytes.empty(self.sources.n, self.sources.d), [some.byte_codes.error for some in self.encoded]
        for source in self.sources.each:
            if source.coded is not None:
                held, to = source.coded.bytes, positions[source.entries]

                def copy(piece: slice, held: Bytes = held, to: Ints = to, source: Source = source) -> None:
                    found.codes[to[piece]] = held.codes[source.positions[piece]]
                    found.steps[to[piece]] = held.steps[source.positions[piece]]

                list(in_pieces(copy, len(to)))
                errors.append(held.error)
        for some in self.encoded:
            found.codes[positions[some.entries]] = some.byte_codes.codes
            found.steps[positions[some.entries]] = some.byte_codes.steps
        return found._replace(error=max(errors))


def merge_codes(
    sources: Sources, built: PartitionIndex, rng: np.random.Generator, progress: Progress
) -> tuple[PartitionIndex, Ints]:
    """An index over all rows, whose ids are ranks, and which cells of the build its cells are."""
    merge = _Merge(sources, built, progress)
    return merge.index(rng), merge.cells


def _cells_of(index: PartitionIndex, source: Source) -> Ints:
    """The cell of each row, in its own index."""
    return np.searchsorted(index.partition.offsets, source.positions, side="right") - 1


def _nearest(source: Source, means: Vectors) -> Ints:
    """The cell of each row: that of the nearest mean."""
    halves = np.einsum("cd,cd->c", means, means) / 2

    def assign(some: slice) -> Ints:
        with np.errstate(
            invalid="ignore"
        ):  # rows and means are finite; BLAS has been seen to raise the flag all the same
            return (source.rows(some) @ means.T - halves).argmax(axis=1)

    return np.concatenate(list(in_pieces(assign, len(source.positions))))


def _shortened(means: Vectors, sources: Sources) -> tuple[Vectors, Mask]:
    """Means that are no longer than the longest row, and which were changed for that.

    One that is longer, because rows were removed, is nearer to all of them when it is as long as the longest.
    """
    lengths = np.sqrt(np.einsum("cd,cd->c", means, means, dtype=np.float64))
    for look in (_LOOKED_AT, sources.n):
        longest = sqrt(max(largest_square(one.rows(some)) for one in sources.each for some in _up_to(one, look)))
        if lengths.max() <= longest:
            return means, np.zeros(len(means), dtype=np.bool_)
    shortened = means * np.minimum(1.0, longest / np.maximum(lengths, 1e-30))[:, None]
    return shortened.astype(np.float32), lengths > longest


def _up_to(source: Source, count: int) -> list[slice]:
    return pieces(min(len(source.positions), count))
