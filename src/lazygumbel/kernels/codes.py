"""Compiled kernels over codes: the ceilings of a query, and the weight of every block."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.decorators import exact_kernel, helper
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.lookups import (
    add_lookups,
    group_ceilings,
    largest_ceiling,
    segment_weight,
    sum_weights,
    weight_of,
)
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.types import (
    BIAS,
    BLOCK,
    BYTES,
    CELL,
    CHUNK,
    FLOOR,
    FULL,
    GAINS,
    GROUP,
    ROUNDED,
    SEGMENT,
    SHORT,
    TOP,
    UNIT,
    WORDS,
    Asked,
    Ceilings,
    Coded,
    Outlook,
    Race,
    Run,
    Theta,
)

__all__ = [
    "block_weight",
    "largest_weight",
    "level_of",
    "lookup_tables",
    "prepare",
    "row_weight",
    "scan",
    "weigh_codes",
    "weight_of_segment",
]

_HEADROOM = 30.0
"""A scan's shift lies so far above a lower bound of its log Z: weights range from 2^-70 to 2^156 times that."""
_FORGOTTEN = 8.0
"""Cells so far below the heaviest are left out of a forecast."""
_ENTRIES, _LARGEST = 128, 32_000
"""Table entries are below the first, since two share a byte; sums of them differ from their centre by less than the
second."""
_LN2 = np.log(2.0)
_LOW, _HIGH = UNIT * (FLOOR + BIAS), UNIT * (TOP + BIAS)


@exact_kernel
def lookup_tables(
    rotated: npt.NDArray[np.float32],
    first: npt.NDArray[np.float32],
    second: npt.NDArray[np.float32],
    parts: tuple[int, int],
    unit: float,
    seed: np.uint64,
) -> tuple[npt.NDArray[np.uint8], int, tuple[float, float], float]:
    found = np.zeros((parts[1], WORDS), dtype=np.float64)
    base, base_first, top, largest, reach = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(parts[1]):
        codebook, place = (first, j) if j < parts[0] else (second, j - parts[0])
        width = codebook.shape[1]
        for c in range(min(width, rotated.shape[0] - place * width)):
            along = np.float64(rotated[place * width + c])
            for k in range(WORDS):
                found[j, k] += along * np.float64(codebook[k, c])
        low, high = found[j, 0], found[j, 0]
        for k in range(WORDS):
            low, high = min(low, found[j, k]), max(high, found[j, k])
        for k in range(WORDS):
            found[j, k] -= low
        base, top, largest = base + low, top + high, max(largest, high - low)
        reach = max(reach, -base, top)
        if j + 1 == parts[0]:
            base_first = base
    least = max(largest / (_ENTRIES - 1), reach / _LARGEST, 1e-280)
    exponent = np.ceil(np.log2(least) + np.log2(unit))
    step = np.exp2(exponent - np.log2(unit))
    tables = np.empty((parts[1], WORDS), dtype=np.uint8)
    steps = 1.0 / step
    for j in range(parts[1]):
        for k in range(WORDS):
            tables[j, k] = np.uint8(found[j, k] * steps + uniform(seed, j * WORDS + k))
    return tables, int(exponent), (base_first / step, base / step), reach / step


@exact_kernel
def _forecast(
    coded: Coded, cells: npt.NDArray[np.float32], scale: float, spread: float
) -> tuple[npt.NDArray[np.float64], float]:
    """The logarithm of the mean weight of a row of each cell, as if logits in a cell were normal, and that of Z.

    Of n normal numbers g the mean of e^(s g) is about e^(s^2 / 2), but for large s the largest of them makes it.
    """
    out, top, total = np.empty(cells.shape[0]), -np.inf, 0.0
    for c in range(cells.shape[0]):
        deviation, edge = coded.deviations[c] * spread * scale, coded.edges[c]
        excess = deviation * deviation / 2.0 if deviation < edge else deviation * edge - coded.log_counts[c]
        out[c] = np.float64(cells[c]) * scale + excess
        top = max(top, out[c] + coded.log_counts[c])
    for c in range(cells.shape[0]):
        exponent = out[c] + coded.log_counts[c] - top
        if exponent > -_FORGOTTEN:
            total += np.exp(exponent)
    return out, top + np.log(total)


@exact_kernel
def _levels(
    coded: Coded, asked: Asked, theta: Theta, spread: float, right: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.float64], float]:
    """How the ceilings of each cell are known, by what that costs; how far gains are shifted; log2 of the one ceiling
    of a cell that has one; and of Z, as it is expected."""
    count, scale = theta.cells.shape[0], asked.scale * _LN2
    levels, rights, far = np.empty(count, dtype=np.uint8), np.zeros(count, dtype=np.uint8), np.zeros(count)
    densities, log_z = _forecast(coded, theta.cells, scale, spread)
    unit = theta.norm * scale / np.sqrt(max(coded.d - 1, 1))
    for c in range(count):
        level, shifted = BYTES, right + np.int64(coded.exponents[c])
        for one in (FULL, SHORT):
            deviation = unit * coded.widths[one - SHORT, c]
            cost = densities[c] - log_z + asked.slope * deviation + asked.curvature * deviation * deviation
            if cost < asked.limits[one] and deviation <= asked.widest:
                level = one
        if asked.far > 0.0:
            ceiling = np.float64(theta.cells[c]) * scale + asked.far * coded.deviations[c] * spread * scale
            if ceiling - log_z < asked.limits[CELL]:
                level, far[c] = CELL, ceiling / _LN2
        levels[c], rights[c] = (level if shifted >= 0 else BYTES), min(max(shifted, 0), 15)
    return levels, rights, far, log_z / _LN2


def prepare(
    coded: Coded, vector: npt.NDArray[np.float32], asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, Outlook]:
    theta, ceilings, outlook = _prepare(coded, vector, asked, power, seed)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


@exact_kernel
def _prepare(
    coded: Coded, vector: npt.NDArray[np.float32], asked: Asked, power: float, seed: np.uint64
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[float, ...]]:
    d, count = coded.d, coded.projection.shape[0]
    laid_out, projected = lay_out(vector), np.empty(count, dtype=np.float32)
    for row in range(count):
        projected[row] = dot(coded.projection, row, laid_out)
    square, around, scale = 0.0, 0.0, asked.scale / power
    for c in range(d):
        square += np.float64(vector[c]) * np.float64(vector[c])
        around += np.float64(projected[d + c]) * np.float64(projected[d + c])
    norm, spread, cells = np.sqrt(square), np.sqrt(around), projected[2 * d :]
    unit = max(UNIT * coded.gain * scale, 1e-280)
    tables, exponent, bases, reach = lookup_tables(projected[:d], coded.first, coded.second, coded.parts, unit, seed)
    step = np.exp2(exponent) / unit
    reach = min(reach, coded.code_norm * norm / step) + coded.parts[1]  # by Cauchy and Schwarz; and rounding
    reach += np.sqrt(np.float64(coded.parts[1])) * asked.rounding + 1.0
    left = int(np.floor(np.log2(32767.0 / reach)))
    theta = Theta(laid_out, cells, norm, asked.scale)
    levels, rights, far, expected = _levels(coded, asked, theta, spread, left - exponent)
    scores, best, low, lowest = np.empty(cells.shape[0], dtype=np.float32), -np.inf, -np.inf, -np.inf
    for c in range(cells.shape[0]):
        best = max(best, np.float64(cells[c]))
        low = max(low, np.float64(cells[c]) * asked.scale + coded.log_counts[c] / _LN2)
        lowest = max(lowest, np.float64(cells[c]) * scale + coded.log_counts[c] / _LN2)
    shift = lowest + _HEADROOM
    added = (coded.slack * norm * scale - shift + BIAS) * UNIT + ROUNDED
    for c in range(cells.shape[0]):
        scores[c] = np.float64(cells[c]) * scale * UNIT + added
        if levels[c] == CELL:
            far[c] = np.exp2(max(far[c] / power - shift, FLOOR))
    spreads = norm / np.sqrt(max(d - 1, 1)) * scale * UNIT
    ceilings = Ceilings(
        tables,
        scores,
        levels,
        rights,
        far,
        (
            int(np.floor(-bases[0] - np.sqrt(np.float64(coded.parts[0])) * asked.rounding)),
            int(np.floor(-bases[1] - np.sqrt(np.float64(coded.parts[1])) * asked.rounding)),
        ),
        (asked.quantiles[0] * spreads, asked.quantiles[1] * spreads),
        left,
        power,
        shift,
        coded.byte_error * norm if asked.rounding > 0.0 or asked.limits[FULL] == -np.inf else 0.0,
    )
    high = (best + norm * coded.largest_residual) * asked.scale
    # Without names: to make a named tuple Numba runs Python code, and Ctrl-C in the midst of that ends the process.
    return (
        (theta.laid_out, theta.cells, theta.norm, theta.scale),
        (
            ceilings.tables,
            ceilings.scores,
            ceilings.levels,
            ceilings.rights,
            ceilings.far,
            ceilings.centres,
            ceilings.spreads,
            ceilings.left,
            ceilings.power,
            ceilings.shift,
            ceilings.byte_error,
        ),
        (low, expected, high, best, spread),
    )


@helper
def level_of(run: Run, block: int) -> int:
    """How the ceilings of a block are known: by the finer way, where it has rows of two cells."""
    levels, cells = run.ceilings.levels, run.sketch.cells
    return int(max(levels[cells[2 * block]], levels[cells[2 * block + 1]]))


@helper
def _count(bits: np.uint64) -> int:
    """Of the bits that are set."""
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@helper
def _bits(race: Race, block: int, group: int) -> np.uint64:
    """Of the rows of a group that may be proposed."""
    return (race.alive[block] >> np.uint64(GROUP * group)) & np.uint64(0xFFFFFFFF)


@helper
def _weigh_bytes(run: Run, block: int) -> None:
    rows, theta, ceilings = run.rows, run.theta, run.ceilings
    unit = theta.scale / ceilings.power * UNIT
    for group in range(BLOCK // GROUP):
        place = (BLOCK // GROUP) * block + group
        cell, first, alive = run.sketch.cells[place], run.sketch.firsts[place], _bits(run.race, block, group)
        for lane in range(GROUP):
            ceiling = 0.0
            if (alive >> np.uint64(lane)) & np.uint64(1):
                step = np.float64(rows.steps[first + lane, 0])
                along = np.float64(dot(rows.bytes, first + lane, theta.laid_out)) + ceilings.byte_error
                ceiling = np.ceil(np.float64(ceilings.scores[cell]) + step * along * unit)
                ceiling = min(max(ceiling, _LOW), _HIGH)
            run.race.ceilings[block, GROUP * group + lane] = np.int16(ceiling)


@helper
def weigh_codes(run: Run, block: int, level: int, sums: npt.NDArray[np.int16]) -> None:
    sketch, ceilings, race = run.sketch, run.ceilings, run.race
    part = level - SHORT
    add_lookups(sketch.codes, block, ceilings.tables, 0, True, sums)
    if level == FULL:
        add_lookups(sketch.more, block, ceilings.tables, (sketch.codes.shape[1] - GAINS) // 3 * 4, False, sums)
    for group in range(BLOCK // GROUP):
        place = (BLOCK // GROUP) * block + group
        cell = sketch.cells[place]
        base = np.float64(ceilings.scores[cell]) + ceilings.spreads[part] * np.float64(sketch.widths[part, place])
        numbers = (
            np.int64(ceilings.centres[part]),
            np.int64(ceilings.left),
            np.int64(ceilings.rights[cell]),
            np.int64(min(max(base, -32768.0), 32767.0)),
        )
        if level == FULL:
            group_ceilings(sums, sketch.more, (block, group), numbers, race.alive[block], race.ceilings)
        else:
            group_ceilings(sums, sketch.codes, (block, group), numbers, race.alive[block], race.ceilings)


@helper
def block_weight(run: Run, block: int) -> float:
    """The weight of a block whose ceilings are known."""
    if level_of(run, block) == CELL:
        far, cells = run.ceilings.far, run.sketch.cells
        total = _count(_bits(run.race, block, 0)) * far[cells[2 * block]]
        return total + _count(_bits(run.race, block, 1)) * far[cells[2 * block + 1]]
    return np.float64(sum_weights(run.race.ceilings, block))


@helper
def largest_weight(run: Run, block: int) -> float:
    """The largest weight of a row of a block."""
    if level_of(run, block) == CELL:
        far, cells = run.ceilings.far, run.sketch.cells
        return float(max(far[cells[2 * block]], far[cells[2 * block + 1]]))
    return np.float64(weight_of(largest_ceiling(run.race.ceilings, block)))


@helper
def row_weight(run: Run, block: int, lane: int) -> float:
    """The weight of a row; zero for one that may not be proposed."""
    if level_of(run, block) == CELL:
        held = (run.race.alive[block] >> np.uint64(lane)) & np.uint64(1)
        return float(held * run.ceilings.far[run.sketch.cells[2 * block + lane // GROUP]])
    return np.float64(weight_of(np.int64(run.race.ceilings[block, lane])))


@helper
def weight_of_segment(run: Run, block: int, segment: int) -> float:
    """The weight of 16 rows of a block."""
    if level_of(run, block) == CELL:
        bits = (run.race.alive[block] >> np.uint64(SEGMENT * segment)) & np.uint64(0xFFFF)
        return _count(bits) * run.ceilings.far[run.sketch.cells[2 * block + SEGMENT * segment // GROUP]]
    return np.float64(segment_weight(run.race.ceilings, BLOCK // SEGMENT * block + segment))


@helper
def _far_chunk(run: Run, chunk: int) -> float:
    """The weight of a chunk whose cells all have one ceiling, were all of its rows alive; -1 for others."""
    sketch, ceilings, total = run.sketch, run.ceilings, 0.0
    for k in range(sketch.spans[chunk], sketch.spans[chunk + 1]):
        cell = sketch.span_cells[k]
        if ceilings.levels[cell] != CELL:
            return -1.0
        total += sketch.span_counts[k] * ceilings.far[cell]
    return total


@exact_kernel
def scan(run: Run, first: int, last: int) -> None:
    race, sums = run.race, np.empty(BLOCK, dtype=np.int16)
    for chunk in range(first, last):
        total = _far_chunk(run, chunk)
        if total < 0.0:
            total = 0.0
            for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
                level = level_of(run, block)
                if level == BYTES:
                    _weigh_bytes(run, block)
                elif level != CELL:
                    weigh_codes(run, block, level, sums)
                race.weights[block] = block_weight(run, block)
                total += race.weights[block]
        race.sums[chunk] = total
