"""What kernels take and return: arrays under names, and the few numbers that several of them share.

Logits, ceilings and their shifts are in powers of two throughout: log2 of a weight. A ceiling is a whole number of
units, 128 to a power of two, that is the bit pattern of a 16-bit float ("bfloat16"): 2^x is read off without computing
it, a little too high between whole powers, as a ceiling may be.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Vectors

__all__ = [
    "AWAKE",
    "BIAS",
    "BLOCK",
    "BYTES",
    "CALLS",
    "CELL",
    "CHUNK",
    "COUNT",
    "DEVIATIONS",
    "FIXED_POINT",
    "FLOOR",
    "FULL",
    "GAINS",
    "GROUP",
    "LEAST_DEVIATION",
    "LN2",
    "MAILBOX",
    "MASS",
    "PACKED",
    "REFERENCE",
    "ROUNDED",
    "SCORED",
    "SEGMENT",
    "SHORT",
    "STEPS",
    "TOP",
    "UNIT",
    "VIOLATIONS",
    "WORDS",
    "Asked",
    "Ceilings",
    "Coded",
    "Outlook",
    "Race",
    "Rows",
    "Run",
    "Sketch",
    "Stored",
    "Theta",
    "Workspaces",
]

BLOCK = 64
"""Rows whose codes lie side by side and are scanned together."""
GROUP = 32
"""Rows of one cell that share a width; a cell is padded to whole groups."""
WORDS, GAINS = 64, 2
"""Codewords that a code may stand for; lines of gains behind the codes of a block."""
SEGMENT = 16
"""Rows of a block whose weights are summed to find one of them."""
CHUNK = 16
"""Blocks whose weights are also summed, so that a proposal is found in two short searches."""
UNIT, BIAS = 128, 127
"""Units of a ceiling to a power of two, and the power that the ceiling zero stands for, with its sign turned."""
FLOOR, TOP = -100.0, 126.0
"""Ceilings are kept between these: none has weight zero, so that every row can be proposed, and none overflows."""
FIXED_POINT = 0.0013
"""Relative variance that weights in fixed point add to a sum at most: 1 + f stands for 2^f, 6% too high in between."""
ROUNDED = 3.0
"""Units that a ceiling may lose to rounding: of gains, of their product with a sum, and of what is added to it."""

CALLS, AWAKE, MAILBOX = 0, 7, 1536
"""Entries of a mailbox: how often a helper was called to it, and whether it is awake; and how many there are: see
`sharing`."""
PACKED = 512
"""Words that a packed tuple fits in: see `packed`."""

LN2 = float(np.log(2.0))
"""Logits are handled as powers of two."""

LEAST_DEVIATION, STEPS, DEVIATIONS = 0.03, 4, 46
"""Standard deviations, in nats, on whose grid `Asked` has quantiles: from about the first up, so many steps to an
octave and so many entries in all, the last of them for whatever is beyond."""

LARGEST_BYTE, LARGEST_STEPS = 127, 32767
"""Of a residual in whole steps, and of a theta."""

CELL, SHORT, FULL, BYTES = range(4)
"""How the ceilings of the rows of a cell are known: one for all of them, by the first part of their codes, by all of
their codes, or by their bytes."""


_CHANGED = 4096
"""Rows taken out of a race that are put back one by one; with more, all are."""


class Sketch(NamedTuple):
    """Six-bit codes of rotated residuals, in blocks of 64 slots: rows in storage order, cells padded to groups.

    Codes lie in two parts, the second for what the first leaves over, each with gains of its own: a scan that needs
    only the first does not touch the memory of the second. A block has three lines of 64 bytes for every four codes,
    byte 2 l of row l and byte 2 l + 1 of row 32 + l, and two lines with the gains |residual| / (alpha |codeword|) of
    its rows by the codes so far, 16 bits each, in units of their cell.
    """

    codes: npt.NDArray[np.uint8]
    """(blocks, 3/4 codes + 2, 64)"""
    more: npt.NDArray[np.uint8]
    """(blocks, 3/4 more codes + 2, 64)"""
    widths: Vectors
    """The largest |residual| sqrt(1 - alpha^2) / alpha of each group by the first part of codes and by all, (2, 2
    blocks)."""
    cells: npt.NDArray[np.int32]
    """The cell of each group, (2 blocks,)."""
    firsts: Ints
    """The position of the first row of each group, (2 blocks,)."""
    starts: Ints
    """The first group of each cell, and behind the last, (cells + 1,)."""
    largest: Vectors
    """The largest widths of each cell, (2, cells)."""
    spans: Ints
    """The cells that chunk k has rows of are spans[k] to spans[k + 1] of the next two, (chunks + 1,)."""
    span_cells: Ints
    span_counts: Ints


class Rows(NamedTuple):
    """Rows in storage order, with bytes that tell a score to a known error at a quarter of the memory."""

    rows: Vectors
    """(n, d)"""
    bytes: npt.NDArray[np.int8]
    """Residuals from the mean of the cell in whole steps, (n, d)."""
    steps: Vectors
    """The step of each row, (n, 1)."""
    error: float
    """The distance of a residual from its bytes is at most so many of its steps."""


class Theta(NamedTuple):
    """A query as rows and bytes are scored with it."""

    laid_out: Vectors
    """For `dot`."""
    steps: npt.NDArray[np.int16]
    """For `byte_dot`: theta in whole steps."""
    cells: Vectors
    """Inner products with the means of cells, (cells,)."""
    norm: float
    turned: float
    """Its norm in the coordinates of codes."""
    scale: float
    """Inner products times this are logits."""
    step: float
    """Of `steps`."""
    byte_error: float
    """Inner products with the bytes of a row, times `step`, are off by at most so much, in steps of the row."""


class Ceilings(NamedTuple):
    """A query as codes are scanned with it.

    With t = sum of looked-up entries - centre, a ceiling is gain t multiple / 2^15 / 2^right + score + margin width, in
    units: whole numbers but for the last two. The scan may be at a higher temperature than the race, which takes its
    weights to the `power`; `shift` is what was taken off the ceilings of the scan, so that they stay in range.
    """

    tables: npt.NDArray[np.uint8]
    """What the codewords of each code add, (codes, 64), below 128."""
    scores: Vectors
    """Of each cell, in units."""
    levels: npt.NDArray[np.uint8]
    """How ceilings are known, of each cell."""
    rights: npt.NDArray[np.int8]
    """Of each cell, -2 to 15."""
    far: Floats
    """The weight of the one ceiling of the rows of each cell of level `CELL`."""
    centres: tuple[int, int]
    """For the first part of codes, and for all; likewise the margins."""
    margins: tuple[float, float]
    deviations: tuple[float, float, float]
    """Of estimates, in nats: of a width of one; and by the rounding of tables, for gains as large as 16 bits hold that
    are not shifted, by the first part of codes and by all."""
    multiple: int
    power: float
    shift: float
    byte_error: float
    """What is added to inner products with bytes, in steps, for a ceiling; nothing for an estimate."""


class Coded(NamedTuple):
    """What an index knows of its codes, for making ceilings."""

    projection: Vectors
    """What thetas are turned by for codes, the axes along which residuals vary most, and the means of cells, end to
    end: (d + axes + cells, d)."""
    first: Vectors
    """Codewords of the first part of codes, (64, coordinates); and of the second."""
    second: Vectors
    log_counts: Floats
    """Of the rows of each cell, natural logarithms, (cells,)."""
    edges: Floats
    """Their root, times that of two: as many normal numbers go about so far, (cells,)."""
    deviations: Floats
    """Root mean square of the residuals of each cell, (cells,)."""
    widths: Floats
    """Mean width of each cell by the first part and by all of its codes, (2, cells)."""
    exponents: npt.NDArray[np.uint8]
    """The unit of the gains of a cell is the unit of all over 2 to this, (cells,)."""
    units: Floats
    """One over that, (cells,)."""
    cells_of_build: Ints
    """Cells of another index, of the same rotation, that have the means of these, (cells,); empty if there is none."""
    d: int
    axes: int
    around: float
    """The pooled covariance of residuals, of trace one, is about A'A + around: A are the axes."""
    parts: tuple[int, int]
    """Number of codes of the first part, and of all, each a multiple of four."""
    gain: float
    """The unit of all gains."""
    code_norm: float
    """The largest norm of the codewords of a row, end to end."""
    byte_error: float
    """Of a residual, at most, in its steps."""
    largest_residual: float
    widest: tuple[float, float]
    """The largest widths by the first part of codes and by all: see `Sketch`."""
    slack: float
    """What float32 may be off, in units of |theta|."""


class Asked(NamedTuple):
    """How sure ceilings are to be, and what they may cost."""

    scale: float
    """Inner products times this are logits."""
    quantiles: Floats
    """Standard deviations of the error of the sketch that ceilings lie above estimates, by what that deviation is at
    most, in nats: see `DEVIATIONS`."""
    rounding: float
    """Likewise for the rounding of lookup tables, in steps, for one code."""
    far: float
    """Standard deviations of the rows of a cell that its one ceiling lies above its mean; zero for none."""
    order: float
    """What a row costs beside its scan goes with its mass and sd^order exp(slope sd + curvature sd^2), sd that of the
    sketch."""
    slope: float
    """In units of the quantile by the first part of codes."""
    curvature: float
    widest: tuple[float, float]
    """Cells where that is larger are not looked at by the first part of codes, or by all."""
    limits: tuple[float, float, float]
    """Below these the logarithm of that, in units of Z, is cheap enough for one ceiling a cell, for the first part of
    codes, and for all; beyond the last ceilings are by bytes. Infinite limits choose one of them for all."""
    known: Floats
    """Ranges of |theta| scale, best score and `pooled_sd` over |theta|, for which `far` was measured, (2, 3)."""


class Stored(NamedTuple):
    """All that an index holds, and that does not depend on theta."""

    coded: Coded
    sketch: Sketch
    rows: Rows
    alive: npt.NDArray[np.uint64]
    """A bit for each slot that holds a row, (blocks,)."""
    words: Ints
    """All of this once more, as compiled code has it: see `packed`."""


class Outlook(NamedTuple):
    """What is known of a theta before any row is looked at."""

    low: float
    """A lower bound of log2 Z, by Jensen's inequality in the heaviest cell."""
    expected: float
    """log2 Z as it would be if logits were normal in each cell."""
    high: float
    """An upper bound of every logit."""
    best: float
    """The largest inner product with the mean of a cell."""
    pooled_sd: float
    """The root of theta' W theta, W the pooled covariance of residuals, of trace one."""
    far: bool
    """Whether cells may have one ceiling: theta is like those that was measured for."""


COUNT, MASS, REFERENCE, SCORED, VIOLATIONS = range(5)
"""Entries of `Race.state`: number and mass of certain rows, what rates are in units of, rows scored, ceilings found too
low."""


class Race(NamedTuple):
    """Rates of one theta in units of exp2(reference): of rows that were scored, and of blocks of the others."""

    alive: npt.NDArray[np.uint64]
    """The rows of each block that may be proposed; kernels clear bits, (blocks,)."""
    weights: Floats
    """Sum of the ceilings of each block, (blocks,)."""
    sums: Floats
    """Of the weights of each chunk of blocks, (chunks,)."""
    ends: Floats
    """Their cumulative sums, (chunks,)."""
    positions: Ints
    """Certain rows, scored because they would be proposed again and again, (room,)."""
    masses: Floats
    """exp2(logit - reference) of these, (room,)."""
    state: Floats
    """Numbers: see the constants."""
    ceilings: npt.NDArray[np.int16]
    """Of each row that may be proposed, zero for others, (blocks, 64); not of cells with one ceiling."""
    changed: Ints
    """The blocks of which rows were taken out of `alive`, behind their number; -1 for all of them, (room,)."""
    words: Ints
    """All of this once more, as compiled code has it: see `packed`."""

    @classmethod
    def allocate(cls, stored: Stored) -> "Race":
        """For the races of an index, one after the other; not packed yet."""
        blocks, certain = len(stored.alive), len(stored.rows.rows) // 8 + 256
        chunks = -(-blocks // CHUNK)
        return cls(
            np.empty_like(stored.alive),
            np.empty(blocks),
            np.empty(chunks),
            np.empty(chunks),
            np.empty(certain, dtype=np.int64),
            np.empty(certain),
            np.empty(5),
            np.empty((blocks, BLOCK), dtype=np.int16),
            np.full(_CHANGED, -1, dtype=np.int64),
            np.zeros(PACKED, dtype=np.int64),
        )


class Workspaces(NamedTuple):
    """Room for the races of some thetas whose scans are made together, block by block."""

    races: Ints
    """Packed races, (thetas, words)."""
    runs: Ints
    """Room for packed runs, (thetas, words)."""
    facts: Floats
    """Outlooks, (thetas, 6)."""
    laid_out: Vectors
    """These and the others: arrays of `Theta` and of `Ceilings`, of each theta."""
    steps: npt.NDArray[np.int16]
    cells: Vectors
    tables: npt.NDArray[np.uint8]
    scores: Vectors
    levels: npt.NDArray[np.uint8]
    rights: npt.NDArray[np.int8]
    far: Floats
    words: Ints
    """Room for all of this, packed."""

    @classmethod
    def of(cls, races: Sequence["Race"], cells: int, codes: int, d: int) -> "Workspaces":
        """For an index with so many cells, codes a row and entries."""
        count = len(races)
        return cls(
            np.stack([race.words for race in races]),
            np.zeros((count, PACKED), dtype=np.int64),
            np.empty((count, 6)),
            np.empty((count, d // 16 * 16 + 16), dtype=np.float32),
            np.empty((count, d // 32 * 32 + 32), dtype=np.int16),
            np.empty((count, cells), dtype=np.float32),
            np.empty((count, codes, WORDS), dtype=np.uint8),
            np.empty((count, cells), dtype=np.float32),
            np.empty((count, cells), dtype=np.uint8),
            np.empty((count, cells), dtype=np.int8),
            np.empty((count, cells)),
            np.zeros(PACKED, dtype=np.int64),
        )


class Run(NamedTuple):
    """All that a race of one theta needs."""

    sketch: Sketch
    rows: Rows
    theta: Theta
    ceilings: Ceilings
    race: Race
