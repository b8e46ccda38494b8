"""Compiled kernels over codes: the ceilings of a query, and the weight of every block."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Vectors
from lazygumbel.kernels.byte_ceilings import weigh_bytes
from lazygumbel.kernels.byte_dot import lay_out_steps
from lazygumbel.kernels.decorators import helper, maker, part
from lazygumbel.kernels.lookups import largest_ceiling, segment_weight, sum_weights, weigh_block, weight_of
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.projecting import project
from lazygumbel.kernels.tables import lookup_tables
from lazygumbel.kernels.types import (
    BIAS,
    BLOCK,
    BYTES,
    CELL,
    CHUNK,
    DEVIATIONS,
    FLOOR,
    FULL,
    GROUP,
    LARGEST_BYTE,
    LEAST_DEVIATION,
    LN2,
    ROUNDED,
    SEGMENT,
    SHORT,
    STEPS,
    UNIT,
    Asked,
    Ceilings,
    Coded,
    Race,
    Run,
)

__all__ = [
    "block_weight",
    "count_bits",
    "largest_weight",
    "level_of",
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
_TYPICAL = 0.5
"""Of the largest gain of a cell, which the shift of its products tells."""
_LEAST_SHIFT = -2
"""Products of sums and gains are shifted right, or left by two places at most; cells that need more are by bytes."""


@maker
def _forecast(coded: Coded, cells: Vectors, scale: float, pooled_sd: float) -> tuple[Floats, float]:
    """The logarithm of the mean weight of a row of each cell, as if logits in a cell were normal, and that of Z.

    Of n normal numbers g the mean of e^(s g) is about e^(s^2 / 2), but for large s the largest of them makes it.
    """
    out, top, total = np.empty(cells.shape[0]), -np.inf, 0.0
    for c in range(cells.shape[0]):
        deviation, edge = coded.deviations[c] * pooled_sd * scale, coded.edges[c]
        excess = deviation * deviation / 2.0 if deviation < edge else deviation * edge - coded.log_counts[c]
        out[c] = np.float64(cells[c]) * scale + excess
        top = max(top, out[c] + coded.log_counts[c])
    for c in range(cells.shape[0]):
        exponent = out[c] + coded.log_counts[c] - top
        if exponent > -_FORGOTTEN:
            total += np.exp(exponent)
    return out, top + np.log(total)


@helper
def _quantile(coded: Coded, asked: Asked, per_width: float, part: int) -> float:
    """How far ceilings lie above estimates by a part of the codes, of which a width is so many nats."""
    first = int(np.ceil(STEPS * np.log2(LEAST_DEVIATION)))
    steps = np.ceil(STEPS * np.log2(min(max(per_width * coded.widest[part], LEAST_DEVIATION), 1e100)))
    return float(asked.quantiles[min(int(steps) - first, DEVIATIONS - 1)])


@maker
def _levels(
    coded: Coded,
    asked: Asked,
    cells: Vectors,
    pooled_sd: float,
    exponent: int,
    deviations: tuple[float, float, float],
    margins: tuple[float, float, float],
    sigmas: float,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int8], Floats, float]:
    """How the ceilings of each cell are known, by what that costs; how far gains are shifted; log2 of the one ceiling
    of a cell that has one; and of Z, as it is expected. Deviations and margins are in nats, of a width of one and of a
    gain of one by the first part of codes and by all; `sigmas` is how far that one ceiling lies above the mean."""
    count, scale, unit = cells.shape[0], asked.scale * LN2, np.exp2(np.float64(exponent))
    levels, rights, far = np.full(count, BYTES, dtype=np.uint8), np.zeros(count, dtype=np.int8), np.zeros(count)
    densities, log_z = _forecast(coded, cells, scale, pooled_sd)
    costs, squares = np.empty(count), np.empty(count)
    for one in (FULL, SHORT):
        part = one - SHORT
        limit, widest = asked.limits[one], asked.widest[part] ** 2
        for c in range(count):
            width, gain = coded.widths[part, c], unit * coded.units[c]
            squares[c] = (deviations[0] * width) ** 2 + (deviations[1 + part] * gain) ** 2
            costs[c] = densities[c] - log_z + asked.curvature * squares[c]
            costs[c] += asked.slope * (margins[0] * width + _TYPICAL * margins[1 + part] * gain)
        if asked.order > 0.0:
            for c in range(count):
                costs[c] += asked.order * 0.5 * np.log(max(squares[c], 1e-300))
        for c in range(count):
            levels[c] = one if (costs[c] < limit) & (squares[c] <= widest) else levels[c]
    for c in range(count):
        if sigmas > 0.0:
            ceiling = np.float64(cells[c]) * scale + sigmas * coded.deviations[c] * pooled_sd * scale
            if ceiling - log_z < asked.limits[CELL]:
                levels[c], far[c] = CELL, ceiling / LN2
        shifted = np.int64(coded.exponents[c]) - exponent
        levels[c] = levels[c] if shifted >= _LEAST_SHIFT else BYTES
        rights[c] = min(max(shifted, _LEAST_SHIFT), 15)
    return levels, rights, far, log_z / LN2


@helper
def _covers(known: Floats, norm: float, scale: float, best: float, pooled_sd: float) -> bool:
    """Whether a theta is within these ranges."""
    facts = scale, best / max(norm, 1e-30), pooled_sd / max(norm, 1e-30)
    inside = True
    for k in range(3):
        inside = inside and known[0, k] <= facts[k] <= known[1, k]
    return inside


@maker
def prepare(coded: Coded, vector: Vectors, asked: Asked, power: float, seed: np.uint64) -> tuple[Any, Any, Any]:
    """Theta, ceilings and outlook, without names: see `boxing`."""
    return prepare_projected(coded, vector, asked, power, seed, project(coded, vector, np.empty(0, dtype=np.float32)))


@maker
def prepare_projected(
    coded: Coded, vector: Vectors, asked: Asked, power: float, seed: np.uint64, found: Any
) -> tuple[Any, Any, Any]:
    """The same, of what `project` has found."""
    d, (laid_out, projected) = coded.d, found
    square, turned, scale, first_cell = 0.0, 0.0, asked.scale / power, d + coded.axes
    for c in range(d):
        square += np.float64(vector[c]) * np.float64(vector[c])
        turned += np.float64(projected[c]) * np.float64(projected[c])
    around = coded.around * square
    for c in range(d, first_cell):
        around += np.float64(projected[c]) * np.float64(projected[c])
    norm, turned, pooled_sd, cells = np.sqrt(square), np.sqrt(turned), np.sqrt(around), projected[first_cell:]
    units = max(UNIT * coded.gain * scale, 1e-280), coded.code_norm * turned  # by Cauchy and Schwarz
    tables, (multiple, exponent), centres = lookup_tables(
        projected[:d], coded.first, coded.second, coded.parts, units, seed
    )
    first, all_ = np.float64(coded.parts[0]), np.float64(coded.parts[1])
    margins = min(np.sqrt(first) * asked.rounding, first / 2), min(np.sqrt(all_) * asked.rounding, all_ / 2)
    steps, byte_step, left_over = lay_out_steps(vector)
    byte_error = coded.byte_error * norm + LARGEST_BYTE * np.sqrt(np.float64(d)) * left_over
    theta, best = (laid_out, steps, cells, norm, turned, asked.scale, byte_step, byte_error), -np.inf
    for c in range(cells.shape[0]):
        best = max(best, np.float64(cells[c]))
    covered = asked.far > 0.0 and _covers(asked.known, norm, norm * asked.scale * LN2, best, pooled_sd)
    nat = np.float64(multiple) * LN2 / UNIT * power  # a step, of a gain of one that is not shifted
    per_width = turned / np.sqrt(max(d - 1, 1)) * asked.scale * LN2
    quantiles = _quantile(coded, asked, per_width, 0), _quantile(coded, asked, per_width, 1)
    deviations = per_width, nat * np.sqrt(first / 12), nat * np.sqrt(all_ / 12)
    above = quantiles[0] * per_width, nat * margins[0], nat * margins[1]
    sigmas = asked.far if covered else 0.0
    levels, rights, far, expected = _levels(coded, asked, cells, pooled_sd, exponent, deviations, above, sigmas)
    scores, low, lowest = np.empty(cells.shape[0], dtype=np.float32), -np.inf, -np.inf
    for c in range(cells.shape[0]):
        low = max(low, np.float64(cells[c]) * asked.scale + coded.log_counts[c] / LN2)
        lowest = max(lowest, np.float64(cells[c]) * scale + coded.log_counts[c] / LN2)
    shift = lowest + _HEADROOM
    added = (coded.slack * norm * scale - shift + BIAS) * UNIT + ROUNDED
    for c in range(cells.shape[0]):
        rounded = ROUNDED * np.float64((1 << -min(rights[c], 0)) - 1)  # what was rounded is shifted left
        scores[c] = np.float64(cells[c]) * scale * UNIT + added + rounded
        if levels[c] == CELL:
            far[c] = np.exp2(max(far[c] / power - shift, FLOOR))
    per_width *= UNIT / (LN2 * power)
    ceilings = (
        tables,
        scores,
        levels,
        rights,
        far,
        (int(np.floor(centres[0] - margins[0])), int(np.floor(centres[1] - margins[1]))),
        (quantiles[0] * per_width, quantiles[1] * per_width),
        deviations,
        multiple,
        power,
        shift,
        byte_error if asked.rounding > 0.0 or asked.limits[FULL] == -np.inf else 0.0,
    )
    high = (best + norm * coded.largest_residual) * asked.scale
    return theta, ceilings, (low, expected, high, best, pooled_sd, covered)


@helper
def level_of(run: Run, block: int) -> int:
    """How the ceilings of a block are known: by the finer way, where it has rows of two cells."""
    levels, cells, first = run.ceilings.levels, run.sketch.cells, np.uint64(2 * block)
    return int(max(levels[np.uint64(cells[first])], levels[np.uint64(cells[first + np.uint64(1)])]))


@helper
def count_bits(bits: np.uint64) -> int:
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
def _base(ceilings: Ceilings, cell: np.uint64, part: int, width: float) -> np.int64:
    return np.int64(min(max(np.float64(ceilings.scores[cell]) + ceilings.margins[part] * width, -32768.0), 32767.0))


@helper
def weigh_codes(run: Run, block: int, level: int) -> float:
    """Ceilings of a block by the first part of codes or by all; the sum of their weights."""
    # Unsigned numbers, because others might be counted from the end: a dozen instructions each.
    sketch, ceilings, part, place = run.sketch, run.ceilings, level - SHORT, np.uint64(block)
    first, second = np.uint64(2) * place, np.uint64(2) * place + np.uint64(1)
    one, other, row = np.uint64(sketch.cells[first]), np.uint64(sketch.cells[second]), np.uint64(part)
    numbers = (
        np.int64(ceilings.centres[part]),
        np.int64(ceilings.multiple),
        np.int64(ceilings.rights[one]),
        _base(ceilings, one, part, np.float64(sketch.widths[row, first])),
        np.int64(ceilings.rights[other]),
        _base(ceilings, other, part, np.float64(sketch.widths[row, second])),
    )
    codes, alive, out = (sketch.codes, sketch.more), run.race.alive[place], run.race.ceilings
    return np.float64(weigh_block(codes, level == FULL, block, ceilings.tables, numbers, alive, out))


@helper
def block_weight(run: Run, block: int) -> float:
    """The weight of a block whose ceilings are known."""
    if level_of(run, block) == CELL:
        far, cells = run.ceilings.far, run.sketch.cells
        total = count_bits(_bits(run.race, block, 0)) * far[cells[2 * block]]
        return total + count_bits(_bits(run.race, block, 1)) * far[cells[2 * block + 1]]
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
        return count_bits(bits) * run.ceilings.far[run.sketch.cells[2 * block + SEGMENT * segment // GROUP]]
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


@helper
def _next_chunk(run: Run, chunk: int, last: int) -> int:
    """The next chunk from this on whose blocks have to be looked at; those before are weighed."""
    while chunk < last:
        total = _far_chunk(run, chunk)
        if total < 0.0:
            break
        run.race.sums[chunk] = total
        chunk += 1
    return chunk


@part
def scan(run: Run, first: int, last: int) -> None:
    race, blocks = run.race, run.race.weights.shape[0]
    chunk = _next_chunk(run, first, last)
    while chunk < last:
        following, total = _next_chunk(run, chunk + 1, last), 0.0
        for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, blocks)):
            if following > chunk + 1:  # what lies side by side the processor asks for ahead by itself
                prefetch(run.sketch.codes, min(block + (following - chunk) * CHUNK, blocks - 1))
            level = level_of(run, block)
            if SHORT <= level <= FULL:
                weight = weigh_codes(run, block, level)
            else:
                if level == BYTES:
                    weigh_bytes(run, block)
                weight = block_weight(run, block)
            race.weights[np.uint64(block)] = weight
            total += weight
        race.sums[chunk] = total
        chunk = following
