"""Rotation, codebooks and six-bit codes: what a scan needs to know a ceiling for every row.

The residual of a row from the mean of its cell is taken to other coordinates (see `basis`) and rotated at random; each
of its codes names the codeword nearest to a few of the rotated coordinates, and in a second part to what is left of
them. With o the unit residual there and x the sum of the codewords of a row, end to end, the estimate of its residual's
score is |residual| / (alpha |x|) * (x . turned theta), alpha the cosine of x and the rotated o.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel._support.persist import Reader, Writer
from lazygumbel.indexes.partition.codebook import codebook, distortion
from lazygumbel.indexes.partition.law import LEAST_QUANTILE
from lazygumbel.kernels.types import BLOCK, CHUNK, GAINS, GROUP, Sketch

__all__ = ["Coder", "Coding", "Encoded", "Layout", "codes_of", "haar_rotation"]

_LEAST_COSINE = 0.05
"""A code further off says nothing: the row gets none, and the hard bound of Cauchy and Schwarz for a width."""
_LARGEST_EXPONENT = 100
_ROUNDING = 1e-5
"""Relative room for float32 in widths."""


def codes_of(d: int, coordinates: int) -> int:
    """Number of codes of a row: a multiple of four, which lie in three bytes."""
    return 4 * -(-d // (4 * coordinates))


def haar_rotation(d: int, rng: np.random.Generator) -> Floats:
    """A uniformly random rotation or reflection, (d, d): QR of normal numbers, with the signs that make it so."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return q * np.sign(np.diagonal(r))


class Layout(NamedTuple):
    """Where rows, stored cell by cell, have their slots: cells are padded to groups, and all to blocks."""

    offsets: Ints
    """Cell c is stored at positions offsets[c] to offsets[c + 1], (cells + 1,)."""
    starts: Ints
    """And has its slots from starts[c] on, (cells + 1,)."""

    @classmethod
    def of(cls, offsets: Ints) -> "Layout":
        """The layout of cells that are stored at these offsets."""
        groups = -(-np.diff(offsets) // GROUP)
        return cls(offsets, GROUP * np.concatenate([[0], np.cumsum(groups)]).astype(np.int64))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(-(-self.starts[-1] // BLOCK))

    def slots(self, positions: Ints) -> Ints:
        """The slots of rows at these positions."""
        cells = np.searchsorted(self.offsets, positions, side="right") - 1
        return positions + (self.starts - self.offsets)[cells]

    def groups(self) -> tuple[npt.NDArray[np.int32], Ints]:
        """The cell, and the position of the first row, of each group, (2 blocks,)."""
        count, cells = self.blocks * (BLOCK // GROUP), len(self.offsets) - 1
        first: Ints = GROUP * np.arange(count, dtype=np.int64)
        cell_of = np.searchsorted(self.starts, first, side="right") - 1
        cell_of = np.minimum(cell_of, cells - 1)  # the padding of the last block
        return cell_of.astype(np.int32), first - (self.starts - self.offsets)[cell_of]

    def sketch(self, codes: npt.NDArray[np.uint8], more: npt.NDArray[np.uint8], widths: Vectors) -> Sketch:
        """Codes and widths with what follows from the layout."""
        starts = self.starts // GROUP
        largest = np.maximum.reduceat(widths, starts[:-1], axis=1)
        return Sketch(codes, more, widths, *self.groups(), starts, largest, *self.spans())

    def spans(self) -> tuple[Ints, Ints, Ints]:
        """For each chunk the cells it has rows of, and how many: see `Sketch`."""
        slots = self.slots(np.arange(int(self.offsets[-1])))
        cells = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        chunks = -(-self.blocks // CHUNK)
        keys, counts = np.unique(slots // (BLOCK * CHUNK) * len(self.offsets) + cells, return_counts=True)
        starts = np.searchsorted(keys // len(self.offsets), np.arange(chunks + 1))
        return starts.astype(np.int64), keys % len(self.offsets), counts.astype(np.int64)

    def alive(self) -> npt.NDArray[np.uint64]:
        """A bit for each slot that holds a row, (blocks,)."""
        filled = np.zeros(self.blocks * BLOCK, dtype=np.bool_)
        filled[self.slots(np.arange(int(self.offsets[-1])))] = True
        return np.packbits(filled, bitorder="little").view(np.uint64)


class Coder(NamedTuple):
    """What turns a row, or a theta, into codes."""

    turn_rows: Vectors
    """What residuals are multiplied by: a rotation of other coordinates, (d, d)."""
    turn_thetas: Vectors
    """And thetas, so that inner products stay what they were, (d, d)."""
    first: Vectors
    """Codewords of the first part of codes, (64, coordinates)."""
    second: Vectors
    """Of the second, for what the first leaves over."""

    @classmethod
    def of(cls, basis: Floats, coordinates: tuple[int, int], rng: np.random.Generator) -> "Coder":
        """Codes in this basis, for so many coordinates each in the first part, and in the second."""
        scale = np.float32(sqrt(distortion(coordinates[0])))  # of what is left over
        rotation = haar_rotation(len(basis), rng)
        rows, thetas = ((rotation @ matrix).astype(np.float32) for matrix in (np.linalg.inv(basis), basis))
        return cls(rows, thetas, codebook(coordinates[0]), codebook(coordinates[1]) * scale)

    @property
    def parts(self) -> tuple[int, int]:
        """Number of codes of the first part, and of all, each a multiple of four."""
        first, second = (codes_of(len(self.turn_rows), words.shape[1]) for words in (self.first, self.second))
        return first, first + second

    def encode(self, residuals: Vectors) -> tuple["Encoded", float]:
        """Some residuals, and the largest norm of their codewords."""
        d = len(self.turn_rows)
        turned = residuals @ self.turn_rows.T
        norms = np.sqrt(np.einsum("nd,nd->n", turned, turned, dtype=np.float64))[:, None]
        rotated = turned * (np.sqrt(d) / np.maximum(norms, 1e-30)).astype(np.float32)
        codes, products, squares = kernels.encode_rows(rotated, self.first, self.second, self.parts)
        # Of the rotated row as it is, in float32: a fine code has a cosine of nearly one, and 1 - cosine^2 cancels.
        lengths = np.sqrt(np.einsum("nd,nd->n", rotated, rotated, dtype=np.float64))[:, None]
        cosines = products / np.maximum(np.sqrt(squares) * lengths, 1e-30)
        useful = cosines > _LEAST_COSINE
        cosines = np.where(useful, np.minimum(cosines, 1.0), 1.0)
        gains = np.where(useful, norms * lengths / np.where(useful, products, 1.0), 0.0)
        left = np.sqrt((1 - cosines) * (1 + cosines)) / cosines + _ROUNDING * sqrt(d)
        widths: Floats = norms * np.where(useful, left, sqrt(max(d - 1, 1)) / LEAST_QUANTILE)
        encoded = Encoded(codes, gains, (widths * (1 + _ROUNDING)).astype(np.float32))
        return encoded, float(np.sqrt(squares.max(initial=0.0)))


class Encoded(NamedTuple):
    """Rows by id: codes, (n, codes), and gains and widths by the first part of them and by all, (n, 2)."""

    codes: npt.NDArray[np.uint8]
    gains: Floats
    widths: Vectors

    @classmethod
    def empty(cls, n: int, codes: int) -> "Encoded":
        """Room for n rows."""
        return cls(np.empty((n, codes), dtype=np.uint8), np.empty((n, 2)), np.empty((n, 2), dtype=np.float32))


class Coding(NamedTuple):
    """Codes laid out for a scan, with the units of their gains: see `kernels.types`."""

    sketch: Sketch
    exponents: npt.NDArray[np.uint8]
    """(cells,)"""
    gain: float
    code_norm: float

    @classmethod
    def of(cls, layout: Layout, order: Ints, encoded: Encoded, parts: tuple[int, int], code_norm: float) -> "Coding":
        """Lay out what was encoded by id; `order` has the id of each position."""
        slots, blocks = layout.slots(np.arange(len(order))), layout.blocks
        ordered = encoded.gains[order]
        unit = max(float(ordered.max(initial=0.0)) * (1 + 2.0**-14), 1e-30)
        largest = np.maximum.reduceat(ordered.max(axis=1), layout.offsets[:-1])
        with np.errstate(divide="ignore"):
            exponents = np.clip(np.floor(np.log2(unit / largest)), 0, _LARGEST_EXPONENT).astype(np.uint8)
        units = np.ldexp(unit, -exponents.astype(np.int64)).repeat(np.diff(layout.offsets))
        gains = np.rint(ordered / units[:, None] * 2.0**15).clip(0, 32767).astype(np.int16)
        held: list[npt.NDArray[np.uint8]] = []
        for k, (first, last) in enumerate(((0, parts[0]), parts)):
            held.append(np.zeros((blocks, 3 * (last - first) // 4 + GAINS, BLOCK), dtype=np.uint8))
            kernels.interleave(encoded.codes[:, first:last], gains[:, k], slots, order, held[k])
        widths = np.zeros((2, BLOCK * blocks), dtype=np.float32)
        widths[:, slots] = encoded.widths[order].T
        return cls(
            layout.sketch(held[0], held[1], widths.reshape(2, -1, GROUP).max(axis=2)),
            exponents,
            unit,
            code_norm * (1 + _ROUNDING),
        )

    def save(self, writer: Writer) -> None:
        """Write codes and units; cells and positions of groups follow from the offsets of cells."""
        for name in ("codes", "more", "widths"):
            writer.array(name, getattr(self.sketch, name))
        writer.array("exponents", self.exponents)
        writer.array("code_units", np.array([self.gain, self.code_norm]))

    @classmethod
    def load(cls, reader: Reader, layout: Layout) -> "Coding":
        """What `save` wrote; arrays stay memory-mapped."""
        codes, more, widths = (reader.array(name) for name in ("codes", "more", "widths"))
        sketch = layout.sketch(codes, more, widths)
        gain, code_norm = (float(number) for number in reader.array("code_units"))
        return cls(sketch, reader.array("exponents"), gain, code_norm)
