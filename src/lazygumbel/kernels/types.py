"""What kernels take and return: arrays under names, and the few numbers that several of them share.

Logits, ceilings and their shifts are in powers of two throughout: log2 of a weight.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "BLOCK",
    "CHUNK",
    "COUNT",
    "EXP2_ERROR",
    "EXP2_SLOPE",
    "FLOOR",
    "GROUP",
    "MASS",
    "REFERENCE",
    "SCORED",
    "TOP",
    "VIOLATIONS",
    "Asked",
    "Ceilings",
    "Coded",
    "Proposals",
    "Race",
    "Rows",
    "Run",
    "Sample",
    "Sketch",
    "Theta",
]

BLOCK = 64
"""Rows whose codes lie side by side and are scanned together."""
GROUP = 16
"""Rows of one cell that share a width; a cell is padded to whole groups."""
CHUNK = 64
"""Blocks whose weights are also summed, so that a proposal is found in two short searches."""
FLOOR, TOP = -100.0, 126.0
"""Ceilings are kept between these: none has weight zero, so that every row can be proposed, and none overflows."""
EXP2_SLOPE = 0.66
"""exp2(x) on [0, 1] is about 1 + x (slope + x (1 - slope)), right at both ends."""
EXP2_ERROR = 0.004
"""The binary logarithm of that is off by less than this."""


class Sketch(NamedTuple):
    """Four-bit codes of rotated residuals, in blocks of 64 slots: rows in storage order, cells padded to groups."""

    codes: npt.NDArray[np.uint8]
    """Two nibbles a byte, (blocks, positions, 64); byte 2 l is of row l of a block, byte 2 l + 1 of row 32 + l."""
    gains: npt.NDArray[np.float32]
    """|residual| / (alpha |codeword|) of each slot, (64 blocks,)."""
    widths: npt.NDArray[np.float32]
    """The largest |residual| sqrt(1 - alpha^2) / alpha of each group, (4 blocks,)."""
    cells: npt.NDArray[np.int32]
    """The cell of each group, (4 blocks,)."""
    firsts: npt.NDArray[np.int64]
    """The position of the first row of each group, (4 blocks,)."""


class Rows(NamedTuple):
    """Rows in storage order, with bytes that tell a score to a known error at a quarter of the memory."""

    rows: npt.NDArray[np.float32]
    """(n, d)"""
    bytes: npt.NDArray[np.int8]
    """Residuals from the mean of the cell in whole steps, (n, d)."""
    steps: npt.NDArray[np.float32]
    """The step of each row, (n,)."""
    error: float
    """The distance of a residual from its bytes is at most so many of its steps."""


class Theta(NamedTuple):
    """A query as rows and bytes are scored with it."""

    laid_out: npt.NDArray[np.float32]
    """For `dot`."""
    cells: npt.NDArray[np.float32]
    """Inner products with the means of cells, (cells,)."""
    norm: float
    scale: float
    """Inner products times this are logits."""


class Ceilings(NamedTuple):
    """A query as codes are scanned with it: a ceiling is gain (slope sum + intercept) + scores[cell] + spread width.

    The scan may be at a higher temperature than the race, which takes its weights to the `power`; `shift` is what was
    taken off the ceilings of the scan, so that they stay in range.
    """

    tables: npt.NDArray[np.uint8]
    """What the codewords of each nibble add, (positions, 2, 16), below 128."""
    scores: npt.NDArray[np.float32]
    """Of each cell."""
    slope: float
    intercept: float
    spread: float
    power: float
    shift: float
    by_bytes: bool
    """Whether ceilings are by bytes, which cannot be too low, in place of codes."""


class Coded(NamedTuple):
    """What an index knows of its codes, for making ceilings."""

    projection: npt.NDArray[np.float32]
    """The rotation, then the means of cells, (d + cells, d)."""
    codebook: npt.NDArray[np.float32]
    """(16, coordinates)"""
    log_counts: npt.NDArray[np.float64]
    """Of the rows of each cell, (cells,)."""
    d: int
    positions: int
    """Bytes of a code."""
    largest_residual: float
    slack: float
    """What float32 may be off, in units of |theta|."""


class Asked(NamedTuple):
    """How sure ceilings are to be."""

    scale: float
    """Inner products times this are logits."""
    quantile: float
    """Standard deviations of the error of the sketch that ceilings lie above estimates."""
    rounding: float
    """Likewise for the rounding of lookup tables, in steps, for one nibble."""
    by_bytes: bool


COUNT, MASS, REFERENCE, SCORED, VIOLATIONS = range(5)
"""Entries of `Race.state`: number and mass of certain rows, what rates are in units of, rows scored, ceilings found too
low."""


class Race(NamedTuple):
    """Rates of one theta in units of exp2(reference): of rows that were scored, and of blocks of the others."""

    alive: npt.NDArray[np.uint64]
    """The rows of each block that may be proposed; kernels clear bits, (blocks,)."""
    weights: npt.NDArray[np.float64]
    """Sum of the ceilings of each block, (blocks,)."""
    sums: npt.NDArray[np.float64]
    """Of the weights of each chunk of blocks, (chunks,)."""
    ends: npt.NDArray[np.float64]
    """Their cumulative sums, (chunks,)."""
    positions: npt.NDArray[np.int64]
    """Certain rows, scored because they would be proposed again and again, (room,)."""
    masses: npt.NDArray[np.float64]
    """exp2(logit - reference) of these, (room,)."""
    state: npt.NDArray[np.float64]
    """Numbers: see the constants."""
    room: npt.NDArray[np.float32]
    """For the weights of a block, (64,); and for its ceilings: kernels use them as they like."""
    found: npt.NDArray[np.float64]


class Run(NamedTuple):
    """All that a race of one theta needs."""

    sketch: Sketch
    rows: Rows
    theta: Theta
    ceilings: Ceilings
    race: Race


class Sample(NamedTuple):
    """Rows chosen for a sum, each array (rows,)."""

    positions: npt.NDArray[np.int64]
    logits: npt.NDArray[np.float64]
    ratios: npt.NDArray[np.float64]
    """exp2(logit) over the ceiling."""
    widths: npt.NDArray[np.float32]
    """Of their groups."""

    @classmethod
    def empty(cls, count: int) -> "Sample":
        """Room for so many rows."""
        return cls(np.empty(count, dtype=np.int64), np.empty(count), np.empty(count), np.empty(count, dtype=np.float32))


class Proposals(NamedTuple):
    """Some rows that fired, each array (proposals,)."""

    blocks: npt.NDArray[np.int64]
    """-1 for a certain row."""
    lanes: npt.NDArray[np.int64]
    """In its block, or the number of a certain row; -1 where there is none."""
    positions: npt.NDArray[np.int64]
    ceilings: npt.NDArray[np.float64]
