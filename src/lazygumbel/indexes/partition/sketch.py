"""Rotation, codebook and four-bit codes: what a scan needs to know a ceiling for every row.

The residual of a row from the mean of its cell is rotated at random; each nibble of its code names the codeword nearest
to a few of the rotated coordinates. With o the unit residual and x the codewords of a row end to end, the estimate of
its residual's score is |residual| / (alpha |x|) * (x . rotated theta), alpha the cosine of x and the rotated o.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.indexes.partition.law import LEAST_QUANTILE
from lazygumbel.kernels.types import BLOCK, GROUP, Sketch
from lazygumbel.persist import Reader, Writer

__all__ = ["Coder", "Layout", "haar_rotation", "nibbles_of"]

_LEAST_COSINE = 0.05
"""A code further off says nothing: the row gets none, and the hard bound of Cauchy and Schwarz for a width."""
_ROUNDING = 1e-5
"""Relative room for float32 in widths."""


def nibbles_of(d: int, coordinates: int) -> int:
    """Nibbles of a row, a whole number of bytes."""
    return 2 * -(-d // (2 * coordinates))


def haar_rotation(d: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """A uniformly random rotation or reflection, (d, d): QR of normal numbers, with the signs that make it so."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return (q * np.sign(np.diagonal(r))).astype(np.float32)


class Layout(NamedTuple):
    """Where rows, stored cell by cell, have their slots: cells are padded to groups, and all to blocks."""

    offsets: npt.NDArray[np.int64]
    """Cell c is stored at positions offsets[c] to offsets[c + 1], (cells + 1,)."""
    starts: npt.NDArray[np.int64]
    """And has its slots from starts[c] on, (cells + 1,)."""

    @classmethod
    def of(cls, offsets: npt.NDArray[np.int64]) -> "Layout":
        """The layout of cells that are stored at these offsets."""
        groups = -(-np.diff(offsets) // GROUP)
        return cls(offsets, GROUP * np.concatenate([[0], np.cumsum(groups)]).astype(np.int64))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(-(-self.starts[-1] // BLOCK))

    def slots(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The slots of rows at these positions."""
        cells = np.searchsorted(self.offsets, positions, side="right") - 1
        return positions + (self.starts - self.offsets)[cells]

    def groups(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The cell, and the position of the first row, of each group, (4 blocks,)."""
        count, cells = self.blocks * (BLOCK // GROUP), len(self.offsets) - 1
        first: npt.NDArray[np.int64] = GROUP * np.arange(count, dtype=np.int64)
        cell_of = np.searchsorted(self.starts, first, side="right") - 1
        cell_of = np.minimum(cell_of, cells - 1)  # the padding of the last block
        return cell_of.astype(np.int32), first - (self.starts - self.offsets)[cell_of]

    def alive(self) -> npt.NDArray[np.uint64]:
        """A bit for each slot that holds a row, (blocks,)."""
        filled = np.zeros(self.blocks * BLOCK, dtype=np.bool_)
        filled[self.slots(np.arange(int(self.offsets[-1])))] = True
        return np.packbits(filled, bitorder="little").view(np.uint64)


class Coder(NamedTuple):
    """What turns a row, or a theta, into codes."""

    rotation: npt.NDArray[np.float32]
    """(d, d)"""
    codebook: npt.NDArray[np.float32]
    """(16, coordinates)"""

    @property
    def nibbles(self) -> int:
        """Of a row."""
        return nibbles_of(len(self.rotation), self.codebook.shape[1])

    def encode(
        self, residuals: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Codes, (m, nibbles), gains and widths of some residuals, (m,)."""
        d = len(self.rotation)
        norms = np.sqrt(np.einsum("nd,nd->n", residuals, residuals, dtype=np.float64))
        scale = np.sqrt(d) / np.maximum(norms, 1e-30)
        rotated = (residuals @ self.rotation.T) * scale[:, None].astype(np.float32)
        codes, products, squares = kernels.encode_nibbles(rotated, self.codebook, self.nibbles)
        cosines = products / np.sqrt(np.maximum(squares, 1e-30) * d)
        useful = cosines > _LEAST_COSINE
        cosines = np.where(useful, np.minimum(cosines, 1.0), 1.0)
        gains = np.where(useful, norms * np.sqrt(d) / np.where(useful, products, 1.0), 0.0)
        left = np.sqrt((1 - cosines) * (1 + cosines)) / cosines + _ROUNDING * sqrt(d)
        widths: npt.NDArray[np.float64] = norms * np.where(useful, left, sqrt(max(d - 1, 1)) / LEAST_QUANTILE)
        return codes, gains.astype(np.float32), (widths * (1 + _ROUNDING)).astype(np.float32)


def save_sketch(writer: Writer, coder: Coder, sketch: Sketch) -> None:
    """Write codes and what made them; cells and positions of groups follow from the offsets of cells."""
    for name, array in (
        ("rotation", coder.rotation),
        ("codebook", coder.codebook),
        ("codes", sketch.codes),
        ("gains", sketch.gains),
        ("widths", sketch.widths),
    ):
        writer.array(name, array)


def load_sketch(reader: Reader, layout: Layout) -> tuple[Coder, Sketch]:
    """What `save_sketch` wrote; arrays stay memory-mapped."""
    coder = Coder(reader.array("rotation"), reader.array("codebook"))
    return coder, Sketch(reader.array("codes"), reader.array("gains"), reader.array("widths"), *layout.groups())
