"""The kernels in NumPy: slow, obvious, and the specification of `compiled`."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.types import (
    BLOCK,
    CHUNK,
    COUNT,
    EXP2_ERROR,
    EXP2_SLOPE,
    FLOOR,
    GROUP,
    MASS,
    REFERENCE,
    SCORED,
    TOP,
    VIOLATIONS,
    Asked,
    Ceilings,
    Coded,
    Run,
    Sample,
    Theta,
)

__all__ = [
    "all_ceilings",
    "draw",
    "encode_nibbles",
    "gather_dot",
    "interleave",
    "lookup_tables",
    "prepare",
    "sample_strata",
    "scan",
    "score_above",
    "settle",
    "sum_pairs",
    "sum_rows",
    "top_rows",
    "weigh_sample",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]

_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HEADROOM, _NEGLIGIBLE, _LOOSE = 30.0, 24.0, 64.0
_AT_ONCE, _PATIENCE = 8, 256


def uniforms(seed: np.uint64, numbers: Ints) -> Floats:
    """Numbers of SplitMix64 by seed and number, between zero and one."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (numbers + 1).astype(np.uint64) * _STEP
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _uniform(seed: np.uint64, number: int) -> float:
    return float(uniforms(seed, np.array([number]))[0])


def gather_dot(rows: Vectors, positions: Ints, queries: Vectors, owner: Ints) -> Vectors:
    """`rows[positions[j]] . queries[owner[j]]` for every j, shape (m,)."""
    return np.einsum("md,md->m", rows[positions], queries[owner])


def sum_rows(rows: Vectors, positions: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of weighted rows, of their squares, and of weight times weighted row, each (d,)."""
    weighted = weights[:, None] * rows[positions].astype(np.float64)
    return weighted.sum(axis=0), (weighted**2).sum(axis=0), weights @ weighted


def sum_pairs(rows: Vectors, positions: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of weighted rows, and over pairs, the first two and so on, of the squared difference between the two, and of
    that times the difference of their weights, each (d,). An even number of rows."""
    weighted = weights[:, None] * rows[positions].astype(np.float64)
    between, weight = weighted[::2] - weighted[1::2], weights[::2] - weights[1::2]
    return weighted.sum(axis=0), (between**2).sum(axis=0), weight @ between


def encode_nibbles(rotated: Vectors, codebook: Vectors, nibbles: int) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
    """The nearest codeword to each run of coordinates, (m, nibbles), and of all of them end to end, (m,): the inner
    product with the coordinates, and the squared norm. A last run may be short: so are then its codewords."""
    m, d = rotated.shape
    width = codebook.shape[1]
    codes = np.zeros((m, nibbles), dtype=np.uint8)
    products, squares = np.zeros(m), np.zeros(m)
    for j in range(-(-d // width)):
        run = rotated[:, j * width : (j + 1) * width].astype(np.float64)
        words = codebook[:, : run.shape[1]].astype(np.float64)
        lengths = (words**2).sum(axis=1)
        along = run @ words.T
        codes[:, j] = (along - lengths / 2).argmax(axis=1)
        products += along[np.arange(m), codes[:, j]]
        squares += lengths[codes[:, j]]
    return codes, products, squares


def interleave(codes: npt.NDArray[np.uint8], slots: Ints, out: npt.NDArray[np.uint8]) -> None:
    """Write the codes of rows, (m, nibbles), into their slots of `Sketch.codes`."""
    lanes = slots % BLOCK
    bytes_of = np.where(lanes < BLOCK // 2, 2 * lanes, 2 * lanes - BLOCK + 1)
    out[slots // BLOCK, :, bytes_of] = codes[:, ::2] | (codes[:, 1::2] << 4)


def lookup_tables(
    rotated: Vectors, codebook: Vectors, positions: int, most: int, seed: np.uint64
) -> tuple[npt.NDArray[np.uint8], float, float]:
    """What each codeword of each nibble adds to an inner product, in steps above the least of its nibble.

    Rounded at random, up or down, so that every entry is right on average; below `most`. Returns the tables,
    (positions, 2, 16), the step, and the sum of what was taken off.
    """
    nibbles, (words, width) = 2 * positions, codebook.shape
    padded = np.zeros(nibbles * width)
    padded[: len(rotated)] = rotated
    found = padded.reshape(nibbles, width) @ codebook.T.astype(np.float64)
    lows = found.min(axis=1)
    above = found - lows[:, None]
    step = max(float(above.max()) / (most - 1), 1e-300)
    numbers = uniforms(seed, np.arange(int(nibbles * words))).reshape(nibbles, words)
    entries = np.floor(above / step + numbers)
    return entries.astype(np.uint8).reshape(positions, 2, words), step, float(lows.sum())


def _log_mass(exponents: Floats) -> float:
    top = exponents.max()
    return float(top + np.log2(np.exp2((exponents - top)[exponents - top > -_NEGLIGIBLE]).sum()))


def prepare(
    coded: Coded, vector: Vectors, asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, float, float]:
    """A theta for scoring rows and for scanning codes, and bounds of log2 Z: one from below by Jensen's inequality in
    each cell, and one from above of every logit."""
    d, nibbles = coded.d, 2 * coded.positions
    projected = coded.projection @ vector
    cells, norm = projected[d:].astype(np.float64), float(np.linalg.norm(vector.astype(np.float64)))
    scale = asked.scale / power
    tables, step, base = lookup_tables(projected[:d], coded.codebook, coded.positions, min(128, 65535 // nibbles), seed)
    low = _log_mass(cells * asked.scale + coded.log_counts)
    shift = _log_mass(cells * scale + coded.log_counts) + _HEADROOM
    ceilings = Ceilings(
        tables,
        (cells * scale - shift + coded.slack * norm * scale + EXP2_ERROR).astype(np.float32),
        step * scale,
        (base + step * np.sqrt(nibbles) * asked.rounding) * scale,
        asked.quantile * norm / np.sqrt(max(d - 1, 1)) * scale,
        power,
        shift,
        asked.by_bytes,
    )
    theta = Theta(_lay_out(vector), projected[d:], norm, asked.scale)
    return theta, ceilings, low, float((cells.max() + norm * coded.largest_residual) * asked.scale)


def _lay_out(vector: Vectors) -> Vectors:
    whole = len(vector) - len(vector) % 16
    out = np.zeros(whole + 16, dtype=np.float32)
    out[:whole] = vector[:whole]
    rest = len(vector) - whole
    if not whole:
        out[:rest] = vector
    elif rest:
        out[whole + 16 - rest :] = vector[whole:]
    return out


def _vector(theta: Theta, d: int) -> Vectors:
    """The vector that was laid out."""
    whole, rest = d - d % 16, d % 16
    tail = theta.laid_out[:rest] if not whole else theta.laid_out[whole + 16 - rest : whole + 16]
    return np.concatenate([theta.laid_out[:whole], tail])


def _exp2(exponents: Vectors) -> Vectors:
    """Nearly exp2, in [exp2(FLOOR), exp2(TOP)]: every step in float32."""
    held = np.clip(exponents, np.float32(FLOOR), np.float32(TOP))
    whole = np.floor(held)
    rest = held - whole
    curve = rest * np.float32(1 - EXP2_SLOPE) + np.float32(EXP2_SLOPE)
    return np.ldexp(rest * curve + np.float32(1), whole.astype(np.int32)).astype(np.float32)


def positions_of(run: Run, block: int) -> Ints:
    """Where the rows of a block are stored, (64,)."""
    groups = BLOCK // GROUP
    firsts = run.sketch.firsts[groups * block : groups * (block + 1)]
    return (firsts[:, None] + np.arange(GROUP)).reshape(-1)


def weigh_block(run: Run, block: int) -> Vectors:
    """Weights of the rows of a block, (64,), zero where they are not alive."""
    sketch, ceilings, groups = run.sketch, run.ceilings, slice(4 * block, 4 * block + 4)
    cells = np.repeat(sketch.cells[groups], GROUP)
    if ceilings.by_bytes:
        positions = np.minimum(positions_of(run, block), len(run.rows.rows) - 1)
        steps = run.rows.steps[positions].astype(np.float64)
        along = run.rows.bytes[positions].astype(np.float32) @ _vector(run.theta, run.rows.rows.shape[1])
        known = steps * (along.astype(np.float64) + run.rows.error * run.theta.norm)
        exponents = (ceilings.scores[cells] + known * (run.theta.scale / ceilings.power)).astype(np.float32)
    else:
        held = sketch.codes[block]
        sums = np.zeros(BLOCK, dtype=np.int64)
        for position, table in enumerate(ceilings.tables):
            sums += table[0][held[position] & 15].astype(np.int64) + table[1][held[position] >> 4]
        found = np.concatenate([sums[::2], sums[1::2]]).astype(np.float32)
        along = found * np.float32(ceilings.slope) + np.float32(ceilings.intercept)
        base = ceilings.scores[cells] + np.float32(ceilings.spread) * np.repeat(sketch.widths[groups], GROUP)
        exponents = (sketch.gains[BLOCK * block : BLOCK * (block + 1)] * along + base).astype(np.float32)
    return np.where(_alive(run, block), _exp2(exponents), np.float32(0))


def _alive(run: Run, block: int) -> npt.NDArray[np.bool_]:
    bits = (run.race.alive[block] >> np.arange(BLOCK, dtype=np.uint64)) & np.uint64(1)
    return bits.astype(np.bool_)


def scan(run: Run, first: int, last: int) -> None:
    """Weigh all blocks of some chunks, and sum the chunks."""
    weights = run.race.weights
    for block in range(first * CHUNK, min(last * CHUNK, len(weights))):
        weights[block] = weigh_block(run, block).sum(dtype=np.float64)
    for chunk in range(first, last):
        run.race.sums[chunk] = weights[chunk * CHUNK : (chunk + 1) * CHUNK].sum()


def _score(run: Run, position: int) -> float:
    row = run.rows.rows[position].astype(np.float64)
    return float(row @ _vector(run.theta, len(row)).astype(np.float64)) * run.theta.scale


def _tempered(run: Run, weights: Floats) -> Floats:
    if run.ceilings.power == 1.0:
        return weights
    with np.errstate(divide="ignore", over="ignore"):
        return np.exp2(run.ceilings.power * (np.log2(weights) + run.ceilings.shift) - run.race.state[REFERENCE])


def _ceilings(run: Run, block: int) -> Floats:
    return _tempered(run, weigh_block(run, block).astype(np.float64))


def all_ceilings(run: Run, out: Floats) -> None:
    """log2 of the ceilings of all rows that may be proposed, by position; others are left as they are."""
    for block in range(len(run.race.weights)):
        lanes = np.flatnonzero(_alive(run, block))
        with np.errstate(divide="ignore"):
            found = np.log2(_ceilings(run, block)[lanes])
        out[positions_of(run, block)[lanes]] = found + run.race.state[REFERENCE]


def _refine(run: Run, block: int, low: float, grow: bool) -> float:
    race, found = run.race, _ceilings(run, block)
    for lane in range(BLOCK):
        if found[lane] <= low:
            continue
        k = int(race.state[COUNT])
        if k == len(race.positions):
            return -1.0
        race.positions[k] = positions_of(run, block)[lane]
        race.masses[k] = np.exp2(_score(run, race.positions[k]) - race.state[REFERENCE])
        race.alive[block] &= ~(np.uint64(1) << np.uint64(lane))
        race.state[COUNT] += 1
        race.state[MASS] += race.masses[k]
        race.state[SCORED] += 1
        race.state[VIOLATIONS] += race.masses[k] > found[lane]
        found[lane] = 0.0
        low = max(low, race.state[MASS]) if grow else low
    race.weights[block] = found.sum()
    return low


def _add_up(run: Run) -> None:
    race = run.race
    for chunk in range(len(race.sums)):
        race.sums[chunk] = race.weights[chunk * CHUNK : (chunk + 1) * CHUNK].sum()
    race.ends[:] = np.cumsum(race.sums)


def _settle(run: Run, low: float) -> bool:
    race = run.race
    _add_up(run)
    low = min(low, race.ends[-1] / _LOOSE)
    hottest = int(race.weights.argmax())
    if race.weights[hottest] > low:
        low = _refine(run, hottest, low, True)
    return low >= 0.0 and _refine_all(run, low, True)


def _refine_all(run: Run, low: float, grow: bool) -> bool:
    race = run.race
    for block in range(len(race.weights)):
        if low >= 0.0 and race.weights[block] > low:
            low = _refine(run, block, low, grow)
    _add_up(run)
    return bool(low >= 0.0 and race.ends[-1] < np.inf)


def score_above(run: Run, low: float) -> bool:
    """Score every row of a settled race whose ceiling exceeds `low`; False if there are too many."""
    return _refine_all(run, low, False)


def settle(run: Run, low: float) -> bool:
    """Score every row whose ceiling exceeds Z, as far as Z is known: at least 2^low. It is certain to be proposed, so
    it races at the rate of its logit from now on. False if there are too many.

    After a scan at a higher temperature weights become ceilings here, in units of the best row of the heaviest block.
    """
    race = run.race
    race.state[REFERENCE] = run.ceilings.shift
    if run.ceilings.power != 1.0:
        hottest = int(race.weights.argmax())
        best = positions_of(run, hottest)[weigh_block(run, hottest).argmax()]
        race.state[SCORED] += 1
        race.state[REFERENCE] = low = max(low, _score(run, best))
        race.weights[:] = _tempered(run, race.weights)
    return _settle(run, float(np.exp2(low - race.state[REFERENCE])))


def _share_at(shares: Floats, place: float) -> int:
    ends = np.cumsum(shares)
    if not len(ends) or ends[-1] == 0.0:
        return -1
    return int(min(np.searchsorted(ends, place, side="right"), np.flatnonzero(shares)[-1]))


def draw(
    run: Run, seed: np.uint64, patience: int, positions: Ints, values: Floats, distinct: bool
) -> tuple[int, float]:
    """Run a settled race until all of `positions` are filled, or until more than `patience` proposals were refused, or
    what is left weighs nothing beside what was taken. How many were filled, and the time that has passed: since the
    last of them, or without replacement in all. Time has no memory, so a race that was broken off can be finished by
    another that starts then.

    Proposals are made eight at a time, at the rates of that moment; the time between two is exponential. Independent
    samples start anew after each that is accepted. Without replacement the race goes on without the row, and every 256
    proposals heavy rows are looked for among those that are left. `values` are minus the logarithms of the times.
    """
    race, size, drawn, step, time = run.race, len(positions), 0, 0, 0.0
    proposals: list[tuple[int, int, float]] = []
    while drawn < size:
        if step - drawn >= patience:
            return drawn, time
        if distinct and step > 0:
            for block in {block for block, _, _ in proposals if block >= 0}:
                race.weights[block] = _ceilings(run, block).sum()
            race.state[MASS] = race.masses[: int(race.state[COUNT])].sum()
            _add_up(run)
            if step % _PATIENCE == 0 and not _settle(run, float(race.state[MASS])):
                return drawn, time
        rate = float(race.state[MASS] + race.ends[-1])
        if rate < 1e-290:
            return drawn, time
        proposals = [_propose(run, seed, step + k) for k in range(_AT_ONCE)]
        for k, (block, lane, ceiling) in enumerate(proposals):
            time -= np.log(_uniform(seed, 4 * (step + k) + 3)) / rate
            if drawn < size and _fires(run, block, lane, ceiling, _uniform(seed, 4 * (step + k) + 2)):
                positions[drawn] = race.positions[lane] if block < 0 else positions_of(run, block)[lane]
                values[drawn] = race.state[REFERENCE] * np.log(2.0) - np.log(time)
                drawn += 1
                if not distinct:
                    time = 0.0
                elif block < 0:
                    race.masses[lane] = 0.0
                else:
                    race.alive[block] &= ~(np.uint64(1) << np.uint64(lane))
        step += _AT_ONCE
    return drawn, time


def _propose(run: Run, seed: np.uint64, step: int) -> tuple[int, int, float]:
    """Block, lane and ceiling of a row that fires; block -1 and its number for a certain row."""
    race = run.race
    mass = float(race.state[MASS])
    place = _uniform(seed, 4 * step) * (mass + race.ends[-1])
    if place < mass:
        return -1, _share_at(race.masses[: int(race.state[COUNT])], place), 0.0
    block = _share_at(race.weights, place - mass)
    found = _ceilings(run, block)
    place = _uniform(seed, 4 * step + 1) * max(race.weights[block], found.sum())
    lane = _share_at(found, place) if place < found.sum() else -1
    return block, lane, float(found[lane])


def _fires(run: Run, block: int, lane: int, ceiling: float, number: float) -> bool:
    """Whether a proposal is accepted, with probability exp2(logit - ceiling), and its row is still there."""
    race = run.race
    if block < 0:
        return bool(race.masses[lane] > 0.0)
    if lane < 0 or not int(race.alive[block] >> np.uint64(lane)) & 1:
        return False
    race.state[SCORED] += 1
    logit = _score(run, positions_of(run, block)[lane])
    level = np.log2(ceiling) + race.state[REFERENCE]
    return bool(level + np.log2(number) < logit)


def sample_strata(run: Run, seed: np.uint64, first: int, last: int, sample: Sample) -> None:
    """Two rows, in order, from each stratum of equal weight, end to end in storage order, as many strata as the sample
    has pairs: chosen with probability in proportion to their ceilings. Fills in rows `first` to `last`."""
    count = len(sample.positions)
    blocks = range(len(run.race.weights))
    # The weight of a block may exceed the sum of its ceilings: its rows are then chosen that much more often.
    found = np.concatenate([_ceilings(run, block) for block in blocks])
    sums = np.maximum(found.reshape(-1, BLOCK).sum(axis=1), 1e-300)
    found *= np.repeat(run.race.weights / sums, BLOCK)
    rows = np.concatenate([positions_of(run, block) for block in blocks])
    ends: Floats = np.cumsum(found)
    within = np.sort(uniforms(seed, np.arange(count)).reshape(-1, 2), axis=1)
    places: Floats = ((np.arange(count // 2)[:, None] + within) * (ends[-1] / (count // 2))).reshape(-1)
    chosen: Ints = np.minimum(np.searchsorted(ends, places, side="right"), len(ends) - 1)
    logits = np.array([_score(run, position) for position in rows[chosen]])
    ratios = np.exp2(logits - run.race.state[REFERENCE]) / found[chosen]
    columns = rows[chosen], logits, ratios, run.sketch.widths[chosen // GROUP]
    for mine, values in zip(sample, columns, strict=True):
        mine[first:last] = values[first:last]


def weigh_sample(ratios: Floats, widths: Vectors, unit: float, quantile: float) -> tuple[float, float, float, float]:
    """Of a sample: the mean ratio; its relative variance, by the sample or by what the law of the sketch expects of it,
    if more; the variance of the mean, within pairs; and what the law allows the relative error of a sum from one row.

    A row is chosen in proportion to e^(y + error + q sd), so the second moment is a sum over pairs of rows of
    e^(y_i + y_j + q (sd_j - sd_i)) times the mean of e^(error_j - error_i), which is at most e^(sd_i^2 + sd_j^2) by
    Cauchy and Schwarz. The standard deviation of a logit about its estimate is unit * width.
    """
    if not ratios.any():
        return 0.0, 0.0, 0.0, 0.0
    deviations = np.minimum(unit * widths.astype(np.float64), 20.0)
    squares = deviations**2
    mean = float(ratios.mean())
    expected = float(np.average(np.expm1(squares), weights=ratios))
    up, down = (float(np.average(np.exp(squares + s * quantile * deviations), weights=ratios)) for s in (1, -1))
    pairs = float(np.square(ratios[::2] - ratios[1::2]).sum()) / len(ratios) ** 2
    return mean, max(float(np.var(ratios / mean)), expected), pairs, float(np.sqrt(max(up * down - 1, 0.0)))


def top_rows(run: Run, k: int) -> tuple[Ints, Floats]:
    """Positions and logits of some rows, all among them whose ceiling reaches the k-th largest logit."""
    blocks = range(len(run.race.weights))
    found = np.concatenate([weigh_block(run, block) for block in blocks]).astype(np.float64)
    rows = np.concatenate([positions_of(run, block) for block in blocks])[found > 0]
    logits = np.array([_score(run, position) for position in rows])
    kth = np.sort(logits)[max(len(logits) - k, 0)] if len(logits) else -np.inf
    kept = np.log2(found[found > 0]) + run.ceilings.shift >= kth / run.ceilings.power - 2 * EXP2_ERROR
    return rows[kept], logits[kept]
