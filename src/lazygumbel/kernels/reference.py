"""The kernels in NumPy: slow, obvious, and the specification of `compiled`."""

from collections.abc import Sequence
from math import ceil, log2, sqrt

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Mask, Vectors
from lazygumbel.kernels import batches
from lazygumbel.kernels.batches import Batch, Few, Fired, Found, Sample, Sampled, SampleEstimate, Wanted
from lazygumbel.kernels.reference_layout import lay_out, lay_out_steps, read_laid_out
from lazygumbel.kernels.reference_rows import (
    add_by_cell,
    add_pairs,
    encode_bytes,
    encode_rows,
    gather_dot,
    interleave,
    move_codes,
    sum_pairs,
    sum_rows,
)
from lazygumbel.kernels.types import (
    BIAS,
    BLOCK,
    BYTES,
    CELL,
    CHUNK,
    COUNT,
    DEVIATIONS,
    FIXED_POINT,
    FLOOR,
    FULL,
    GAINS,
    GROUP,
    LARGEST_BYTE,
    LEAST_DEVIATION,
    LN2,
    MASS,
    REFERENCE,
    ROUNDED,
    SCORED,
    SHORT,
    STEPS,
    TOP,
    UNIT,
    VIOLATIONS,
    WORDS,
    Asked,
    Ceilings,
    Coded,
    Outlook,
    Race,
    Run,
    Stored,
    Theta,
    Workspaces,
)

__all__ = [
    "add_by_cell",
    "add_pairs",
    "all_ceilings",
    "draw",
    "draw_few",
    "encode_bytes",
    "encode_rows",
    "enter",
    "estimate_from_sample",
    "find_first",
    "gather_dot",
    "interleave",
    "lookup_tables",
    "move_codes",
    "open_race",
    "pack_race",
    "pack_stored",
    "pack_workspaces",
    "prepare",
    "race_thetas",
    "refine",
    "run_helper",
    "sample_strata",
    "sample_theta",
    "sample_to",
    "scan",
    "score_wide",
    "set_reference",
    "settle",
    "sum_pairs",
    "sum_rows",
    "temper",
    "top_rows",
    "top_theta",
]

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]

_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HEADROOM, _FORGOTTEN, _SPAN, _LARGEST_PRODUCT, _LEAST_SHIFT, _TYPICAL = 30.0, 8.0, 126.999, 32_766, -2, 0.5
_AT_ONCE, _PATIENCE, _NOTHING, _ROUNDING, _LARGEST_DEVIATION = 8, 256, 1e-290, 1e-9, 18.0
_HEAVY, _LOOSE, _HOT, _RANGE = 8.0, 8.0, 2.0**120, 140.0
_PILOT, _LEAST, _FAR_OFF, _LEAST_MASS, _SMALL = 64, 256.0, 2.0, 2.0**-60, 0.1
_ASSURED, _ROOM, _OFTEN, _MOST = 0.6, 1.25, 128.0, 0.7


def scrambled(seed: np.uint64, numbers: Ints) -> npt.NDArray[np.uint64]:
    """Numbers of SplitMix64 by seed and number."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (numbers + 1).astype(np.uint64) * _STEP
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def uniforms(seed: np.uint64, numbers: Ints) -> Floats:
    """The same between zero and one."""
    return ((scrambled(seed, numbers) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _uniform(seed: np.uint64, number: int) -> float:
    return float(uniforms(seed, np.array([number]))[0])


def lookup_tables(
    rotated: Vectors,
    first: Vectors,
    second: Vectors,
    parts: tuple[int, int],
    units: tuple[float, float],
    seed: np.uint64,
) -> tuple[Bytes, tuple[int, int], tuple[float, float]]:
    """What the codewords of each code add to an inner product, in steps above the least of its code.

    Rounded after a number between zero and one was added, one for each code: whatever the entry, its error is uniform
    then. `units` are what a step is measured in, one over that, and what no sum exceeds in size. A step is a multiple,
    a whole number, of a power of two of these, large enough that entries fit a byte in pairs, and multiples of sums 16
    bits. Returns the tables, (codes, 64), that multiple and the power, and what sums of zero come to, by the first
    part of codes and by all.
    """
    (unit, limit), found, count = units, np.zeros((parts[1], WORDS)), parts[1]
    for start, codebook in ((0, first), (parts[0], second)):
        runs = -(-len(rotated) // codebook.shape[1])
        padded = np.zeros(runs * codebook.shape[1])
        padded[: len(rotated)] = rotated
        found[start : start + runs] = padded.reshape(runs, -1) @ codebook.T.astype(np.float64)
    lows, highs = found.min(axis=1), found.max(axis=1)
    peak = min(max(float(-np.cumsum(lows).min()), float(np.cumsum(highs).max()), 0.0), limit)
    least, log_unit = max(float((highs - lows).max()) / _SPAN, 1e-280), log2(unit)
    # A sum is off by half a step for each code, and raised by as much at most; and a multiple is rounded up.
    exponent = ceil(log2((peak + (count + 1) * least) / (_LARGEST_PRODUCT - count - 1)) + log_unit)
    multiple = max(ceil(np.exp2(log2(least) + log_unit - exponent)), 1)
    step = float(multiple * np.exp2(exponent - log_unit))
    offsets = uniforms(seed, np.arange(count))
    tables = np.floor((found - lows[:, None]) / step + offsets[:, None]).astype(np.uint8)
    centres = np.cumsum(offsets - 0.5 - lows / step)
    return tables, (multiple, exponent), (float(centres[parts[0] - 1]), float(centres[-1]))


def _forecast(coded: Coded, cells: Floats, scale: float, pooled_sd: float) -> tuple[Floats, float]:
    """The logarithm of the mean weight of a row of each cell, as if logits in a cell were normal, and that of Z."""
    deviations = coded.deviations * pooled_sd * scale
    of_most, of_largest = deviations**2 / 2, deviations * coded.edges - coded.log_counts
    densities: Floats = cells * scale + np.where(deviations < coded.edges, of_most, of_largest)
    masses: Floats = densities + coded.log_counts
    top = masses.max()
    return densities, float(top + np.log(np.exp(masses - top)[masses - top > -_FORGOTTEN].sum()))


def prepare(
    coded: Coded, vector: Vectors, asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, Outlook]:
    """A theta for scoring rows and for scanning codes, at a temperature `power` times that of the race, and what is
    known of it before any row is looked at."""
    d, scale = coded.d, asked.scale / power
    projected = coded.projection @ vector
    axes, scores = projected[d : d + coded.axes].astype(np.float64), projected[d + coded.axes :]
    cells, norm = scores.astype(np.float64), float(np.linalg.norm(vector.astype(np.float64)))
    pooled_sd = float(np.sqrt(coded.around * norm**2 + (axes**2).sum()))
    turned = float(np.linalg.norm(projected[:d].astype(np.float64)))
    units = max(UNIT * coded.gain * scale, 1e-280), coded.code_norm * turned  # by Cauchy and Schwarz
    tables, (multiple, exponent), centres = lookup_tables(
        projected[:d], coded.first, coded.second, coded.parts, units, seed
    )
    counts = np.array(coded.parts)
    margins = np.minimum(np.sqrt(counts) * asked.rounding, counts / 2)
    facts = np.array([norm * asked.scale * LN2, cells.max() / max(norm, 1e-30), pooled_sd / max(norm, 1e-30)])
    covered = asked.far > 0 and bool(((asked.known[0] <= facts) & (facts <= asked.known[1])).all())
    quantiles, nat = _quantiles(coded, asked, turned), multiple * LN2 / UNIT * power
    per_width = turned * asked.scale * LN2 / sqrt(max(d - 1, 1))
    one, other = (nat * np.sqrt(counts / 12)).tolist()
    deviations, above = (per_width, one, other), (quantiles[0] * per_width, *(nat * margins).tolist())
    asked = asked._replace(far=asked.far if covered else 0.0)
    levels, ceilings, log_z = _levels(coded, asked, cells, pooled_sd, exponent, deviations, above)
    rights = coded.exponents.astype(np.int64) - exponent
    levels[rights < _LEAST_SHIFT] = BYTES  # gains so large that 16 bits do not hold what they make
    rights = np.clip(rights, _LEAST_SHIFT, 15)
    rounded = ROUNDED * (2.0 ** -np.minimum(rights, 0) - 1)
    heaviest = coded.log_counts / LN2
    shift = float((cells * scale + heaviest).max()) + _HEADROOM
    added = (coded.slack * norm * scale - shift + BIAS) * UNIT + ROUNDED
    with np.errstate(over="ignore"):
        far = np.where(levels == CELL, np.exp2(np.maximum(ceilings / (LN2 * power) - shift, FLOOR)), 0.0)
    sd = turned / float(np.sqrt(max(d - 1, 1))) * scale * UNIT
    steps, byte_step, left_over = lay_out_steps(vector)
    byte_error = coded.byte_error * norm + LARGEST_BYTE * float(np.sqrt(d)) * left_over
    return (
        Theta(lay_out(vector), steps, scores, norm, turned, asked.scale, byte_step, byte_error),
        Ceilings(
            tables,
            (cells * scale * UNIT + added + rounded).astype(np.float32),
            levels,
            rights.astype(np.int8),
            far,
            (int(np.floor(centres[0] - margins[0])), int(np.floor(centres[1] - margins[1]))),
            (quantiles[0] * sd, quantiles[1] * sd),
            deviations,
            multiple,
            power,
            shift,
            byte_error if asked.rounding > 0 or asked.limits[FULL] == -np.inf else 0.0,
        ),
        Outlook(
            float((cells * asked.scale + heaviest).max()),
            log_z / LN2,
            float((cells.max() + norm * coded.largest_residual) * asked.scale),
            float(cells.max()),
            pooled_sd,
            covered,
        ),
    )


def _quantiles(coded: Coded, asked: Asked, turned: float) -> tuple[float, float]:
    """How far ceilings lie above estimates, by the first part of codes and by all."""
    deviations = turned * asked.scale * LN2 / sqrt(max(coded.d - 1, 1)) * np.array(coded.widest)
    steps = np.ceil(STEPS * np.log2(np.maximum(deviations, LEAST_DEVIATION))) - ceil(STEPS * log2(LEAST_DEVIATION))
    first, all_ = asked.quantiles[np.minimum(steps, DEVIATIONS - 1).astype(np.int64)].tolist()
    return first, all_


def _levels(
    coded: Coded,
    asked: Asked,
    cells: Floats,
    pooled_sd: float,
    exponent: int,
    deviations: tuple[float, float, float],
    margins: tuple[float, float, float],
) -> tuple[Bytes, Floats, float]:
    """How the ceilings of each cell are known, the coarsest way that is cheap enough; one ceiling for all of its rows;
    and log Z as it is expected. Deviations and margins are in nats, of a width of one and of a gain of one by the first
    part of codes and by all."""
    scale, gains = asked.scale * LN2, coded.units * np.exp2(exponent)
    densities, log_z = _forecast(coded, cells, scale, pooled_sd)
    levels = np.full(len(cells), BYTES, dtype=np.uint8)
    for level in (FULL, SHORT):
        part, widths = 1 + level - SHORT, coded.widths[level - SHORT]
        squares: Floats = (deviations[0] * widths) ** 2 + (deviations[part] * gains) ** 2
        cost: Floats = densities - log_z + asked.curvature * squares
        cost += asked.slope * (margins[0] * widths + _TYPICAL * margins[part] * gains)
        cost += asked.order * 0.5 * np.log(np.maximum(squares, 1e-300))
        levels[(cost < asked.limits[level]) & (squares <= asked.widest[level - SHORT] ** 2)] = level
    ceilings: Floats = (cells + asked.far * coded.deviations * pooled_sd) * scale
    if asked.far > 0:
        levels[ceilings - log_z < asked.limits[CELL]] = CELL
    return levels, ceilings, log_z


def positions_of(run: Run, block: int) -> Ints:
    """Where the rows of a block are stored, (64,)."""
    groups = BLOCK // GROUP
    firsts = run.sketch.firsts[groups * block : groups * (block + 1)]
    return (firsts[:, None] + np.arange(GROUP)).reshape(-1)


def alive_of(run: Run, block: int) -> Mask:
    """Which rows of a block may be proposed, (64,)."""
    bits = (run.race.alive[block] >> np.arange(BLOCK, dtype=np.uint64)) & np.uint64(1)
    return bits.astype(np.bool_)


def _cells_of(run: Run, block: int) -> npt.NDArray[np.int32]:
    return run.sketch.cells[2 * block : 2 * block + 2].repeat(GROUP)


def level_of(run: Run, block: int) -> int:
    """How the ceilings of a block are known: by the finer way, where it has rows of two cells."""
    return int(run.ceilings.levels[_cells_of(run, block)].max())


def _look_up(held: Bytes, tables: Bytes) -> Ints:
    """The sum of what the codes of a block look up, (64,), lines of codes and tables as they are."""
    sums = np.zeros(BLOCK, dtype=np.int64)
    for line in range(0, len(held) - GAINS, 3):
        one, two, three = held[line : line + 3]
        fourth = (one >> 6) | (two >> 6 << 2) | (three >> 6 << 4)
        for table, code in zip(tables[line // 3 * 4 :], (one, two, three, fourth), strict=False):
            sums += table[code & (WORDS - 1)]
    return np.concatenate([sums[::2], sums[1::2]])


def _code_ceilings(run: Run, block: int, level: int) -> Ints:
    """Ceilings of a block by its codes, in whole numbers, each step as 16 bits have it."""
    sketch, ceilings, part = run.sketch, run.ceilings, level - SHORT
    cells, groups = _cells_of(run, block), slice(2 * block, 2 * block + 2)
    sums = _look_up(sketch.codes[block], ceilings.tables)
    held = sketch.codes[block]
    if level == FULL:
        held = sketch.more[block]
        sums += _look_up(held, ceilings.tables[(sketch.codes.shape[1] - GAINS) // 3 * 4 :])
    gains = np.ascontiguousarray(held[-GAINS:]).view(np.int16).reshape(BLOCK).astype(np.int64)
    scaled = ((sums - ceilings.centres[part]) * ceilings.multiple).astype(np.int16).astype(np.int64)
    rights = ceilings.rights[cells].astype(np.int64)
    along = (scaled * gains + 2**14 >> 15) >> np.maximum(rights, 0)
    along = np.clip(along << np.maximum(-rights, 0), -32768, 32767)
    widths = sketch.widths[part, groups].astype(np.float64).repeat(GROUP)
    bases = ceilings.scores[cells].astype(np.float64) + ceilings.margins[part] * widths
    return along + np.trunc(np.clip(bases, -32768, 32767)).astype(np.int64)


def _byte_ceilings(run: Run, block: int) -> Floats:
    """Ceilings of a block that cannot be too low."""
    rows, theta = run.rows, run.theta
    positions = np.minimum(positions_of(run, block), len(rows.rows) - 1)
    steps = read_laid_out(theta.steps, rows.rows.shape[1], 32).astype(np.int64)
    along = theta.step * (rows.bytes[positions].astype(np.int64) @ steps)
    known = rows.steps[positions, 0].astype(np.float64) * (along + run.ceilings.byte_error)
    scores = run.ceilings.scores[_cells_of(run, block)].astype(np.float64)
    return np.ceil(scores + known * (theta.scale / run.ceilings.power * UNIT))


def ceilings_of(run: Run, block: int, level: int) -> Shorts:
    """The ceilings of a block as `Race.ceilings` has them, by its codes or bytes, (64,)."""
    found = _byte_ceilings(run, block) if level == BYTES else _code_ceilings(run, block, level)
    held = np.clip(found, UNIT * (FLOOR + BIAS), UNIT * (TOP + BIAS))
    return np.where(alive_of(run, block), held, 0).astype(np.int16)


def _weights(run: Run, block: int) -> Floats:
    """The weights of the rows of a block whose ceilings are known, (64,): zero for rows that may not be proposed."""
    if level_of(run, block) == CELL:
        return np.where(alive_of(run, block), run.ceilings.far[_cells_of(run, block)], 0.0)
    return (run.race.ceilings[block].astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _blocks_of(race: Race, chunk: int) -> range:
    return range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(race.weights)))


def _weight_in(run: Run, block: int) -> float:
    """The weight of a block on the line of all weights. Of cells with one ceiling that is not kept, but counted."""
    return float(_weights(run, block).sum() if level_of(run, block) == CELL else run.race.weights[block])


def _sum_chunk(run: Run, chunk: int) -> None:
    run.race.sums[chunk] = sum(_weight_in(run, block) for block in _blocks_of(run.race, chunk))


def scan(run: Run, first: int, last: int) -> None:
    """Find the ceilings of the blocks of some chunks, weigh the blocks, and sum the chunks; a chunk of cells that all
    have one ceiling weighs as much as if all of its rows might be proposed. Weights of blocks of such cells are not
    kept. There is one ceiling for a cell only where the scan is at the temperature of the race."""
    race, sketch = run.race, run.sketch
    for chunk in range(first, last):
        for block in _blocks_of(race, chunk):
            level = level_of(run, block)
            if level != CELL:
                race.ceilings[block] = ceilings_of(run, block, level)
                race.weights[block] = _weights(run, block).sum()
        span = slice(sketch.spans[chunk], sketch.spans[chunk + 1])
        cells, counts = sketch.span_cells[span], sketch.span_counts[span]
        if (run.ceilings.levels[cells] == CELL).all():
            race.sums[chunk] = counts @ run.ceilings.far[cells]
        else:
            _sum_chunk(run, chunk)


def _score(run: Run, position: int) -> float:
    row = run.rows.rows[position].astype(np.float64)
    return float(row @ read_laid_out(run.theta.laid_out, len(row)).astype(np.float64)) * run.theta.scale


def _tempered(run: Run, weights: Floats) -> Floats:
    """Weights of the scan as rates of the race."""
    if run.ceilings.power == 1.0:
        return weights
    with np.errstate(divide="ignore", over="ignore"):
        return np.exp2(run.ceilings.power * (np.log2(weights) + run.ceilings.shift) - run.race.state[REFERENCE])


def rates_of(run: Run, block: int) -> Floats:
    """The rates of the rows of a block, (64,)."""
    return _tempered(run, _weights(run, block))


def all_ceilings(run: Run, out: Floats) -> None:
    """log2 of the ceilings of all rows that may be proposed, by position; others are left as they are."""
    for block in range(len(run.race.weights)):
        rates = rates_of(run, block)
        lanes = np.flatnonzero(rates)
        out[positions_of(run, block)[lanes]] = np.log2(rates[lanes]) + run.race.state[REFERENCE]


def _hottest(run: Run) -> int:
    """The heaviest block of the heaviest chunk."""
    blocks = _blocks_of(run.race, int(run.race.sums.argmax()))
    return max(blocks, key=lambda block: _weight_in(run, block))


def temper(run: Run, low: float) -> float:
    """After a scan at a higher temperature: turn the weights of blocks into rates, in units of the best row of the
    heaviest block, or of 2^low if that is more. The reference: log2 of that unit."""
    race, hottest = run.race, _hottest(run)
    best = positions_of(run, hottest)[_weights(run, hottest).argmax()]
    race.state[SCORED] += 1
    race.state[REFERENCE] = max(low, _score(run, best))
    race.weights[:] = _tempered(run, race.weights)
    for chunk in range(len(race.sums)):
        _sum_chunk(run, chunk)
    return float(race.state[REFERENCE])


def _remove(race: Race, block: int, lane: int) -> None:
    race.alive[block] &= ~(np.uint64(1) << np.uint64(lane))
    race.changed[0] = -1
    race.ceilings[block, lane] = 0


def _make_certain(run: Run, block: int, lane: int, position: int, rate: float) -> bool:
    race = run.race
    k = int(race.state[COUNT])
    if k == len(race.positions):
        return False
    race.positions[k] = position
    race.masses[k] = np.exp2(_score(run, position) - race.state[REFERENCE])
    _remove(race, block, lane)
    race.state[COUNT] += 1
    race.state[MASS] += race.masses[k]
    race.state[SCORED] += 1
    race.state[VIOLATIONS] += race.masses[k] > rate
    return True


def _refine_block(run: Run, block: int, low: float, grow: bool) -> float:
    race, rates = run.race, rates_of(run, block)
    if run.ceilings.power == 1.0 and rates.max() <= low:
        return low
    for lane, position in enumerate(positions_of(run, block)):
        if rates[lane] <= low:
            continue
        if not _make_certain(run, block, lane, int(position), float(rates[lane])):
            return -1.0
        low = max(low, float(race.state[MASS])) if grow else low
    race.weights[block] = rates_of(run, block).sum()
    return low


def refine(run: Run, low: float, grow: bool) -> bool:
    """Score every row whose ceiling exceeds `low`, in units of the reference: it races at the rate of its logit from
    now on. With `grow`, what exceeds the mass of such rows, if that is more, the hottest block first. False if there
    are too many, or rates overflow."""
    race = run.race
    turns = [_blocks_of(race, chunk) for chunk in range(len(race.sums))]
    if grow:
        hottest = _hottest(run)
        turns.insert(0, range(hottest, hottest + 1))
    for blocks in turns:
        chunk = blocks[0] // CHUNK
        if 0.0 <= low < race.sums[chunk]:
            for block in blocks:
                if 0.0 <= low < _weight_in(run, block):
                    low = _refine_block(run, block, low, grow)
            _sum_chunk(run, chunk)
    race.ends[:] = np.cumsum(race.sums)
    return bool(low >= 0.0 and race.ends[-1] < np.inf)


def open_race(stored: Stored, excluded: Ints, race: Race) -> None:
    """Make room ready for a theta: all rows may be proposed but those in these slots."""
    race.alive[:] = stored.alive
    race.changed[0] = -1
    np.bitwise_and.at(race.alive, excluded // BLOCK, ~(np.uint64(1) << (excluded % BLOCK).astype(np.uint64)))
    race.state[:] = 0.0


def pack_stored(stored: Stored) -> None:
    """Write the words of what an index holds, for compiled code: see `packed`. Here nothing needs them."""


def pack_race(race: Race) -> None:
    """Likewise of the room of a race."""


def pack_workspaces(workspaces: Workspaces) -> None:
    """Likewise of the workspaces of several races."""


def run_helper(descriptor: int, mailbox: Ints) -> None:
    """Take a share of the scans that are posted to a mailbox, whenever a byte comes through a pipe: see `sharing`. Here
    scans are not shared."""


def enter(
    stored: Stored,
    asked: Asked,
    vector: Vectors,
    seed: np.uint64,
    race: Race,
    mailbox: Ints,  # noqa: ARG001  # nothing is shared here
) -> tuple[Theta, Ceilings, Outlook]:
    """Prepare and scan, after `open_race`; at a higher temperature if ceilings are out of range at this. `mailbox` is
    where a helper is met, if it is not empty."""
    theta, ceilings, outlook = prepare(stored.coded, vector, asked, 1.0, seed)
    scan(Run(stored.sketch, stored.rows, theta, ceilings, race), 0, len(race.sums))
    tempered = (outlook.high - outlook.low) / _RANGE
    if tempered > 1.0 and race.sums.max() > _HOT:
        theta, ceilings, outlook = prepare(stored.coded, vector, asked, tempered, seed)
        scan(Run(stored.sketch, stored.rows, theta, ceilings, race), 0, len(race.sums))
    return theta, ceilings, outlook


def set_reference(run: Run, outlook: Outlook) -> float:
    """Turn the weights of a scan into rates, in units of exp2(reference); returns in these what Z is expected to be."""
    run.race.state[REFERENCE] = run.ceilings.shift
    expected = outlook.expected if run.ceilings.power == 1.0 else temper(run, outlook.low)
    return float(np.exp2(min(expected - run.race.state[REFERENCE], 1000.0)))


def settle(run: Run, outlook: Outlook, size: int) -> bool:
    """Score every row that would be proposed again and again for so many draws; False if there are too many."""
    least = min(set_reference(run, outlook), float(run.race.sums.sum()) / _LOOSE)
    return refine(run, least * max(_HEAVY / max(size, 1), 1.0), True)


def race_thetas(
    stored: Sequence[Stored],
    asked: Asked,
    batch: Batch,
    thetas: tuple[int, int],
    workspaces: Sequence[Workspaces],  # noqa: ARG001
    mailbox: Ints,
    wanted: Wanted,
    found: Found,
) -> int:
    """Race some thetas of a batch, from the first of `thetas` to before the last, in every part; how many races were
    broken off. In `workspaces` compiled code keeps what it needs; here it is made anew."""
    undone = 0
    for p, held in enumerate(stored):
        for b in range(*thetas):
            at, race = (p, b), Race.allocate(held)
            first, last = (batch.ends[b - 1] if b else 0, batch.ends[b]) if len(batch.ends) else (0, 0)
            open_race(held, batch.excluded[first:last], race)
            theta, ceilings, outlook = enter(held, asked, batch.thetas[b], batch.seeds[p, b, 0], race, mailbox)
            run, drawn, time = Run(held.sketch, held.rows, theta, ceilings, race), 0, 0.0
            size = min(wanted.size, wanted.live - int(last - first)) if wanted.distinct else wanted.size
            found.values[p, b, size:] = -np.inf
            if settle(run, outlook, size):
                positions, values = found.positions[p, b, :size], found.values[p, b, :size]
                drawn, time = draw(run, batch.seeds[p, b, 1], (wanted.patience, wanted.distinct), positions, values)
            found.passed[at] = (np.log(time) if time > 0.0 else -np.inf) - race.state[REFERENCE] * LN2
            found.counts[:, p, b] = drawn, race.state[SCORED], race.state[VIOLATIONS], outlook.far
            undone += drawn < size
    return undone


def draw_few(few: Few, thetas: tuple[int, int], found: Found) -> None:
    """Draws of some thetas of a batch from a few rows, every one of which is scored: the last part of what is found,
    with places of rows as positions."""
    for b in range(*thetas):
        logits = (few.rows @ few.thetas[b]).astype(np.float64) * few.scale
        logits[few.dead] = -np.inf
        high, size = logits.max(), int(found.positions.shape[2])
        ends: Floats = np.cumsum(np.exp(logits - high))
        steps: Ints = 2 * np.arange(size)
        places: Floats = uniforms(few.seeds[b], steps) * float(ends[-1])
        found.positions[-1, b] = np.searchsorted(ends, places, side="right")
        found.values[-1, b] = high + np.log(ends[-1]) - np.log(-np.log(uniforms(few.seeds[b], steps + 1)))
        found.counts[[batches.DRAWN, batches.LOOKED_AT], -1, b] = size, len(few.rows)


def find_first(found: Found, fired: Fired) -> None:
    """Of what was drawn from several parts, what fires first."""
    fired.parts[:] = found.values.argmax(axis=0)
    fired.positions[:] = np.take_along_axis(found.positions, fired.parts[None], axis=0)[0]
    fired.values[:] = found.values.max(axis=0)
    fired.rows[:], fired.violations[:] = found.counts[[batches.LOOKED_AT, batches.TOO_LOW]].sum(axis=1)
    fired.undone[:] = (found.counts[batches.DRAWN] < found.positions.shape[2]).any(axis=0)


def _share_at(shares: Floats, place: float) -> int:
    """Which of these shares, end to end, a place falls into; the last if it lies beyond, -1 if there are none."""
    ends = np.cumsum(shares)
    if not len(ends) or ends[-1] == 0.0:
        return -1
    return int(min(np.searchsorted(ends, place, side="right"), np.flatnonzero(shares)[-1]))


def draw(run: Run, seed: np.uint64, rules: tuple[int, bool], positions: Ints, values: Floats) -> tuple[int, float]:
    """Run a race, after `refine`, until all of `positions` are filled, or until more proposals were refused than the
    first of `rules`, its patience, or if rates are next to nothing. How many were filled, and the time that has passed
    since the last of them. Time has no memory, so a race that was broken off can be finished by another that starts
    then.

    Proposals are made eight at a time, at the rates of the moment when they are begun; the time between two is
    exponential. The race starts anew after each that is accepted; or, if the second of `rules` says that rows are to be
    distinct, it goes on without them, times are since it began, and every 256 proposals heavy rows are looked for among
    those that are left. `values` are minus the logarithms of the times.
    """
    patience, distinct = rules
    race, size, drawn, step, time = run.race, len(positions), 0, 0, 0.0
    proposals: list[tuple[int, int, float]] = []
    while drawn < size:
        if step - drawn >= patience:
            return drawn, time
        if distinct and step > 0:
            for block in {block for block, _, _ in proposals if block >= 0}:
                race.weights[block] = rates_of(run, block).sum()
                _sum_chunk(run, block // CHUNK)
            race.state[MASS] = race.masses[: int(race.state[COUNT])].sum()
            race.ends[:] = np.cumsum(race.sums)
            if step % _PATIENCE == 0 and not refine(run, float(race.state[MASS]), True):
                return drawn, time
        rate = float(race.state[MASS] + race.ends[-1])
        if rate < _NOTHING:
            return drawn, time
        proposals = [_propose(run, seed, step + k) for k in range(_AT_ONCE)]
        for k, (block, lane, ceiling) in enumerate(proposals):
            time -= float(np.log(_uniform(~seed, step + k))) / rate
            if drawn < size and _fires(run, block, lane, ceiling, _uniform(seed, 3 * (step + k) + 2)):
                positions[drawn] = race.positions[lane] if block < 0 else positions_of(run, block)[lane]
                values[drawn] = race.state[REFERENCE] * LN2 - np.log(time)
                drawn += 1
                if not distinct:
                    time = 0.0
                elif block < 0:
                    race.masses[lane] = 0.0
                else:
                    _remove(race, block, lane)
        step += _AT_ONCE
    return drawn, time


def _block_at(run: Run, place: float) -> int:
    """The block that this place on the line of all weights falls into; -1 if none: a chunk may weigh more than its
    blocks, and nothing fires in the rest."""
    race = run.race
    chunk = int(min(np.searchsorted(race.ends, place, side="right"), len(race.ends) - 1))
    place -= float(race.ends[chunk - 1]) if chunk > 0 else 0.0
    shares = np.array([_weight_in(run, block) for block in _blocks_of(race, chunk)])
    beyond = place - shares.sum() >= race.sums[chunk] * _ROUNDING
    return -1 if beyond else chunk * CHUNK + max(_share_at(shares, place), 0)


def _propose(run: Run, seed: np.uint64, step: int) -> tuple[int, int, float]:
    """Block, lane and ceiling of a row that fires; block -1 and its number for a certain row; lane -1 for none."""
    race = run.race
    mass = float(race.state[MASS])
    place = _uniform(seed, 3 * step) * (mass + race.ends[-1])
    if place < mass:
        return -1, _share_at(race.masses[: int(race.state[COUNT])], place), 0.0
    block = _block_at(run, place - mass)
    if block < 0:
        return 0, -1, 0.0
    rates = rates_of(run, block)
    # The weight of a block may exceed the sum of its rates: nothing fires in the rest.
    place = _uniform(seed, 3 * step + 1) * max(_weight_in(run, block), rates.sum())
    lane = _share_at(rates, place) if place < rates.sum() else -1
    return block, lane, float(rates[lane])


def _fires(run: Run, block: int, lane: int, ceiling: float, number: float) -> bool:
    """Whether a proposal is accepted, with probability exp2(logit - ceiling), and its row is still there."""
    race = run.race
    if block < 0:
        return bool(race.masses[lane] > 0.0)
    if lane < 0 or not alive_of(run, block)[lane]:
        return False
    race.state[SCORED] += 1
    logit = _score(run, positions_of(run, block)[lane])
    race.state[VIOLATIONS] += logit > np.log2(ceiling) + race.state[REFERENCE]
    return bool(np.log2(ceiling * number) + race.state[REFERENCE] < logit)


def sample_strata(run: Run, seed: np.uint64, first: int, last: int, sample: Sample) -> None:
    """Two rows, in order, from each stratum of equal weight, end to end in storage order, as many strata as the sample
    has pairs: chosen with probability in proportion to their ceilings. Fills in rows `first` to `last`."""
    race, count = run.race, len(sample.positions)
    blocks = range(len(race.weights))
    # The weight of a block may exceed the sum of its rates: its rows are then chosen that much more often.
    found = np.stack([rates_of(run, block) for block in blocks])
    found *= (race.weights / np.maximum(found.sum(axis=1), 1e-300))[:, None]
    rows = np.concatenate([positions_of(run, block) for block in blocks])
    ends: Floats = np.cumsum(found)
    within = np.sort(uniforms(seed, np.arange(count)).reshape(-1, 2), axis=1)
    places: Floats = ((np.arange(count // 2)[:, None] + within) * (ends[-1] / (count // 2))).reshape(-1)
    chosen: Ints = np.minimum(np.searchsorted(ends, places, side="right"), np.flatnonzero(found)[-1])
    logits = np.array([_score(run, position) for position in rows[chosen]])
    ratios = np.exp2(logits - race.state[REFERENCE]) / found.reshape(-1)[chosen]
    columns = rows[chosen], logits, ratios, _deviations(run).reshape(-1).repeat(GROUP)[chosen]
    for mine, values in zip(sample, columns, strict=True):
        mine[first:last] = values[first:last]


def _deviations(run: Run) -> Floats:
    """Standard deviations of the estimates of all groups, in nats, by what these are known by, (blocks, 2): of codes,
    with the rounding of tables, or of bytes. These err in no particular direction, nearly: twice what that comes to,
    by the first row of the group."""
    levels, (unit, *roundings) = (
        np.array([level_of(run, block) for block in range(len(run.race.weights))]),
        run.ceilings.deviations,
    )
    gains = 0.5 * 2.0 ** -run.ceilings.rights[run.sketch.cells].astype(np.float64)
    found = np.empty((len(levels), BLOCK // GROUP))
    for level, rounding in zip((SHORT, FULL), roundings, strict=True):
        both = np.hypot(unit * run.sketch.widths[level - SHORT].astype(np.float64), rounding * gains)
        found[levels == level] = both.reshape(found.shape)[levels == level]
    firsts = np.minimum(run.sketch.firsts, len(run.rows.rows) - 1)  # groups of the last block may be empty
    longer = unit * run.theta.norm / max(run.theta.turned, 1e-300)
    by_bytes = (2 * run.rows.error * longer * run.rows.steps[firsts, 0].astype(np.float64)).reshape(found.shape)
    found[levels == BYTES] = by_bytes[levels == BYTES]
    return found


def score_wide(run: Run, widest: tuple[float, float], least: float) -> bool:
    """Score rows whose estimates have a larger standard deviation than is allowed by the first part of
    codes, or by all or bytes, if they may weigh `least` of all when they are three of these too low: a few of them
    could make a sum, and not be sampled. Then weights are summed up. False if there are too many."""
    race, deviations = run.race, _deviations(run)
    least = least * float(race.sums.sum())
    for block in range(len(race.weights)):
        rates, positions, all_ = rates_of(run, block), positions_of(run, block), deviations[block].repeat(GROUP)
        wide = all_ > (widest[0] if level_of(run, block) == SHORT else widest[1])
        chosen = np.flatnonzero(wide & (rates > least * np.exp(-3 * all_)))
        for lane in chosen:
            if not _make_certain(run, block, int(lane), int(positions[lane]), float(rates[lane])):
                return False
        if len(chosen):
            race.weights[block] = rates_of(run, block).sum()
            _sum_chunk(run, block // CHUNK)
    race.ends[:] = np.cumsum(race.sums)
    return True


def _score_often(run: Run, least: float) -> float:
    """Score rows that would be sampled again and again, as long as they make much of what is left to chance and that
    weighs more than this beside what does not; what is left."""
    race, rest, before = run.race, float(run.race.ends[-1]), np.inf
    room = len(race.positions) - _OFTEN
    while 0 < rest < _MOST * before and rest >= least * race.state[MASS] and race.state[COUNT] < room:
        refine(run, rest / _OFTEN, False)
        rest, before = float(race.ends[-1]), rest
    return rest


def sample_to(run: Run, rules: tuple[float, float, tuple[float, float]], seeds: npt.NDArray[np.uint64]) -> Sample:
    """As many rows as a pilot sample asks for to a relative error, within what the law of the codes does, or more if
    it asks for much more; none if these are more than `most`, or if that cannot be told. Wide rows are scored before,
    and those that would be sampled twice, for as long as these make much of what is left to chance. `rules` are the
    relative error, the most rows, and how wide rows may be.

    The pilot decides and is not used again: to keep or drop a sample by what it shows would bias the sum.
    """
    rel_err, most, widest = rules
    race, nothing = run.race, Sample.empty(0)
    if not score_wide(run, widest, _SMALL * rel_err):
        return nothing
    rest = _score_often(run, _SMALL * rel_err)
    if not 0.0 < rest < np.inf:
        return nothing
    pilot = Sample.empty(_PILOT)
    sample_strata(run, seeds[1], 0, _PILOT, pilot)
    found = estimate_from_sample(pilot.ratios, pilot.deviations)
    total = float(race.state[MASS]) + rest * found.mean
    if not _LEAST_MASS < total < np.inf:
        return nothing
    variance, by_law = found.relative_variance, found.expected
    if variance <= _FAR_OFF * by_law:
        variance = min(max(_ROOM * variance, _ASSURED * by_law), by_law)
    wanted = variance * (rest * found.mean / total / rel_err) ** 2
    if not wanted <= most:
        return nothing
    sample = Sample.empty(2 * ceil(max(wanted, _LEAST) / 2))
    sample_strata(run, seeds[2], 0, len(sample.positions), sample)
    return sample


def sample_theta(
    stored: Stored,
    asked: Asked,
    theta: tuple[Vectors, Ints],
    seeds: npt.NDArray[np.uint64],
    race: Race,
    mailbox: Ints,
    rules: tuple[float, float, tuple[float, float]],
) -> Sampled:
    """From a theta, with slots that are excluded, to a sample for its sums: see `sample_to`, whose `rules` and further
    seeds these are. Without rows also where the scan had to be made at another temperature, so that weights are too
    coarse to sample by."""
    open_race(stored, theta[1], race)
    facts, ceilings, outlook = enter(stored, asked, theta[0], seeds[0], race, mailbox)
    run = Run(stored.sketch, stored.rows, facts, ceilings, race)
    set_reference(run, outlook)
    sample = sample_to(run, rules, seeds) if ceilings.power == 1.0 else Sample.empty(0)
    return Sampled(sample, estimate_from_sample(sample.ratios, sample.deviations), facts.norm)


def estimate_from_sample(ratios: Floats, deviations: Vectors) -> SampleEstimate:
    """Of a sample of pairs.

    A row is chosen in proportion to e^(y + error), so the relative second moment is a sum over pairs of rows of
    e^(y_i + y_j) times the mean of e^(error_j - error_i), which is at most e^(sd_i^2 + sd_j^2) by Cauchy and Schwarz.
    Weights in fixed point add a little.
    """
    if not ratios.any():
        return SampleEstimate(0.0, 0.0, 0.0, 0.0, 0.0)
    mean, count = float(ratios.mean()), len(ratios)
    capped = np.minimum(deviations.astype(np.float64), _LARGEST_DEVIATION)
    second_moment = ((1 + float(np.average(np.expm1(capped**2), weights=ratios))) * (1 + FIXED_POINT)) ** 2
    between: Floats = np.square(ratios[::2] - ratios[1::2])
    pairs, fourth = float(between.sum()), float(np.square(between).sum())
    if fourth > 0:  # where few pairs make the variance it is less certain: wider, about as Student's law is
        freedom = max(3 * pairs**2 / fourth, 2.0)
        pairs *= (1 + 2 / freedom + 2 / freedom**2) ** 2
    relative_variance, allowed = float(np.var(ratios / mean)), float(np.sqrt(second_moment - 1))
    return SampleEstimate(mean, relative_variance, pairs / count**2, allowed, float(np.expm1(capped**2).mean()))


def top_rows(run: Run, k: int, mailbox: Ints) -> tuple[Ints, int]:  # noqa: ARG001  # nothing is shared here
    """Positions of some rows, all of the best k among them whose ceilings reach the k-th largest logit, by the first
    part of codes and by all; and how many ceilings did. None if they do not fit in the room of certain rows."""
    blocks = range(len(run.race.weights))
    rows = np.concatenate([positions_of(run, block) for block in blocks])
    weights = np.concatenate([_weights(run, block) for block in blocks])
    there = np.flatnonzero(weights)
    logits = np.array([_score(run, position) for position in rows[there]])
    kth = float(np.sort(logits)[max(len(logits) - k, 0)]) if len(logits) >= k else -np.inf
    enough = np.exp2(kth / run.ceilings.power - run.ceilings.shift)
    reaching = weights[there] >= enough
    for block in blocks:
        if level_of(run, block) == SHORT and _weights(run, block).max() >= enough:
            run.race.ceilings[block] = ceilings_of(run, block, FULL)
    reaching &= np.concatenate([_weights(run, block) for block in blocks])[there] >= enough
    return rows[there][reaching & (logits >= kth)], int(reaching.sum())


def top_theta(stored: Stored, asked: Asked, vector: Vectors, k: int, race: Race, mailbox: Ints) -> tuple[Ints, int]:
    """From a theta to its `top_rows`; `asked` has a scale for a theta of norm one in the coordinates of codes."""
    open_race(stored, np.empty(0, dtype=np.int64), race)
    turned = float(np.linalg.norm((stored.coded.projection[: stored.coded.d] @ vector).astype(np.float64)))
    asked = asked._replace(scale=asked.scale / max(turned, 1e-30))
    theta, ceilings, _ = enter(stored, asked, vector, np.uint64(0), race, mailbox)
    return top_rows(Run(stored.sketch, stored.rows, theta, ceilings, race), k, mailbox)
