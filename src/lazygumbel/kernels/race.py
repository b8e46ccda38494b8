"""The race with ceilings: rows propose themselves at the rate of their ceiling, and are accepted by their logit.

`refine` first scores the rows that would be proposed again and again; those race at the rate of their logit. `draw`
runs the race until enough rows were accepted: anew after each, or on without them.
"""

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.kernels.batches import Proposals
from lazygumbel.kernels.byte_dot import byte_dot
from lazygumbel.kernels.codes import block_weight, largest_weight, level_of, row_weight, weight_of_segment
from lazygumbel.kernels.decorators import helper, maker, part
from lazygumbel.kernels.dot import dot
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.types import (
    BLOCK,
    CELL,
    CHUNK,
    COUNT,
    GROUP,
    LN2,
    MASS,
    REFERENCE,
    SCORED,
    SEGMENT,
    VIOLATIONS,
    Race,
    Run,
    Sketch,
)

__all__ = [
    "add_up",
    "all_ceilings",
    "block_rate",
    "chunk_at",
    "draw",
    "heaviest_chunk",
    "make_certain",
    "position_of",
    "rate_at",
    "refine",
    "row_at",
    "score",
    "sum_chunk",
    "take_out",
    "temper",
]

_AT_ONCE = 8
"""Proposals that are made together, so that the processor waits for the memory of all of them at once."""
_PATIENCE = 256
"""Proposals after which a race without replacement looks again for heavy rows among those that are left."""
_NOTHING = 1e-290
"""A rate so low that times would overflow."""
_ROUNDING = 1e-9


@helper
def score(run: Run, position: int) -> float:
    """The logit of a row."""
    return np.float64(dot(run.rows.rows, position, run.theta.laid_out)) * run.theta.scale


@helper
def position_of(sketch: Sketch, block: int, lane: int) -> int:
    """Where the row in a lane of a block is stored."""
    return sketch.firsts[(BLOCK // GROUP) * block + lane // GROUP] + lane % GROUP


@helper
def _tempered(run: Run, weight: float) -> float:
    """A weight of the scan as a rate of the race."""
    power = run.ceilings.power
    if power == 1.0 or weight == 0.0:
        return weight
    return np.exp2(power * (np.log2(weight) + run.ceilings.shift) - run.race.state[REFERENCE])


@helper
def rate_at(run: Run, block: int, lane: int) -> float:
    """The rate of a row; zero for one that may not be proposed."""
    return _tempered(run, row_weight(run, block, lane))


@helper
def block_rate(run: Run, block: int) -> float:
    """The sum of the rates of a block."""
    if run.ceilings.power == 1.0:
        return block_weight(run, block)
    total = 0.0
    for lane in range(BLOCK):
        total += rate_at(run, block, lane)
    return total


@helper
def weight_in(run: Run, block: int) -> float:
    """The weight of a block on the line of all weights. Of cells with one ceiling that is not kept, but counted."""
    return block_weight(run, block) if level_of(run, block) == CELL else run.race.weights[block]


@helper
def take_out(race: Race, block: int, lane: int) -> None:
    """Of the rows that may be proposed, and note where, so that it can be undone without a look at all blocks."""
    race.alive[block] &= ~(np.uint64(1) << np.uint64(lane))
    count = race.changed[0] + 1
    if 0 < count < race.changed.shape[0]:
        race.changed[count] = block
        race.changed[0] = count
    else:
        race.changed[0] = -1


@helper
def _remove(race: Race, block: int, lane: int) -> None:
    """Take a row out of those that may be proposed."""
    take_out(race, block, lane)
    race.ceilings[block, lane] = 0


@part
def all_ceilings(run: Run, out: Floats) -> None:
    for block in range(run.race.weights.shape[0]):
        for lane in range(BLOCK):
            rate = rate_at(run, block, lane)
            if rate > 0.0:
                out[position_of(run.sketch, block, lane)] = np.log2(rate) + run.race.state[REFERENCE]


@helper
def make_certain(run: Run, block: int, lane: int) -> bool:
    """Score a row, which races at the rate of its logit from now on; False if there is no more room."""
    race, state = run.race, run.race.state
    k = int(state[COUNT])
    if k == race.positions.shape[0]:
        return False
    rate = rate_at(run, block, lane)
    race.positions[k] = position_of(run.sketch, block, lane)
    race.masses[k] = np.exp2(score(run, race.positions[k]) - state[REFERENCE])
    _remove(race, block, lane)
    state[COUNT] += 1
    state[MASS] += race.masses[k]
    state[SCORED] += 1
    state[VIOLATIONS] += race.masses[k] > rate
    return True


@helper
def _refine_block(run: Run, block: int, low: float, grow: bool) -> float:
    """Score the rows of a block whose ceiling exceeds `low`; with `grow`, that is the mass of such rows if it is more.

    Returns what `low` has become, or -1 if there is no more room.
    """
    if run.ceilings.power == 1.0 and largest_weight(run, block) <= low:
        return low
    for lane in range(BLOCK):
        if rate_at(run, block, lane) > low:
            if not make_certain(run, block, lane):
                return -1.0
            if grow:
                low = max(low, run.race.state[MASS])
    run.race.weights[block] = block_rate(run, block)
    return low


@helper
def sum_chunk(run: Run, chunk: int) -> None:
    total = 0.0
    for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, run.race.weights.shape[0])):
        total += weight_in(run, block)
    run.race.sums[chunk] = total


@helper
def add_up(race: Race) -> None:
    total = 0.0
    for chunk in range(race.sums.shape[0]):
        total += race.sums[chunk]
        race.ends[chunk] = total


@helper
def heaviest_chunk(race: Race) -> int:
    """The first of those that weigh most."""
    chunk = 0
    for k in range(race.sums.shape[0]):
        if race.sums[k] > race.sums[chunk]:
            chunk = k
    return chunk


@helper
def _hottest(run: Run) -> int:
    """The heaviest block of the heaviest chunk."""
    race, chunk = run.race, heaviest_chunk(run.race)
    best = chunk * CHUNK
    for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
        if weight_in(run, block) > weight_in(run, best):
            best = block
    return best


@part
def refine(run: Run, low: float, grow: bool) -> bool:
    race = run.race
    # With `grow` the hottest block first, out of turn: Z is then known much better, before others are looked at.
    start = -1 if grow else 0
    for turn in range(start, race.sums.shape[0]):
        first = _hottest(run) if turn < 0 else turn * CHUNK
        last = first + 1 if turn < 0 else min(first + CHUNK, race.weights.shape[0])
        chunk = first // CHUNK
        if low >= 0.0 and race.sums[chunk] > low:
            for block in range(first, last):
                if low >= 0.0 and weight_in(run, block) > low:
                    low = _refine_block(run, block, low, grow)
            sum_chunk(run, chunk)
    add_up(race)
    return low >= 0.0 and race.ends[-1] < np.inf


@part
def temper(run: Run, low: float) -> float:
    race, state = run.race, run.race.state
    hottest, best, most = _hottest(run), 0, 0.0
    for lane in range(BLOCK):
        weight = row_weight(run, hottest, lane)
        if weight > most:
            best, most = lane, weight
    state[SCORED] += 1
    state[REFERENCE] = max(low, score(run, position_of(run.sketch, hottest, best)))
    for block in range(race.weights.shape[0]):
        race.weights[block] = _tempered(run, race.weights[block])
    for chunk in range(race.sums.shape[0]):
        sum_chunk(run, chunk)
    return state[REFERENCE]


@helper
def _certain_at(race: Race, place: float) -> int:
    """Which of the certain rows this place falls into: one that has mass, also after rounding."""
    last = 0
    for k in range(int(race.state[COUNT])):
        if race.masses[k] > 0.0:
            last = k
            if place < race.masses[k]:
                return k
        place -= race.masses[k]
    return last


@helper
def chunk_at(race: Race, place: float) -> int:
    """The chunk that this place on the line of all weights falls into."""
    chunk, last = 0, race.ends.shape[0] - 1
    while chunk < last:
        middle = (chunk + last) // 2
        if race.ends[middle] <= place:
            chunk = middle + 1
        else:
            last = middle
    return chunk


@helper
def _block_at(run: Run, place: float) -> int:
    """The block that this place on the line of all weights falls into: one that has weight, also after rounding."""
    race = run.race
    chunk = chunk_at(race, place)
    place -= float(race.ends[chunk - 1]) if chunk > 0 else 0.0
    last = chunk * CHUNK
    for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
        weight = weight_in(run, block)
        if weight > 0.0:
            last = block
            if place < weight:
                return block
        place -= weight
    return last if place < race.sums[chunk] * _ROUNDING else -1


@helper
def _propose(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> None:
    """Which block fires, or which certain row; lane -1 if none: a chunk may weigh more than its blocks."""
    race = run.race
    place = uniform(seed, 3 * step) * (race.state[MASS] + race.ends[-1])
    if place < race.state[MASS]:
        certain = _certain_at(race, place)
        proposals.blocks[k], proposals.lanes[k], proposals.positions[k] = -1, certain, race.positions[certain]
    else:
        block = _block_at(run, place - race.state[MASS])
        proposals.blocks[k], proposals.lanes[k] = max(block, 0), (0 if block >= 0 else -1)
        prefetch(race.ceilings, proposals.blocks[k])


@helper
def row_at(run: Run, block: int, place: float) -> int:
    """The lane of the row that this place on the line of the rates of a block falls into; the last that has any
    if, by rounding, it lies beyond; -1 if none has."""
    first = 0
    if run.ceilings.power == 1.0:
        for segment in range(BLOCK // SEGMENT):
            weight = weight_of_segment(run, block, segment)
            if place < weight:
                break
            place -= weight
            first += SEGMENT
    for lane in range(first, BLOCK):
        rate = rate_at(run, block, lane)
        if place < rate:
            return lane
        place -= rate
    for lane in range(BLOCK - 1, -1, -1):
        if rate_at(run, block, lane) > 0.0:
            return lane
    return -1


@helper
def _aim(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> None:
    """Which row of the block fires; lane -1 if none: the weight of a block may exceed the sum of its ceilings."""
    block = proposals.blocks[k]
    if block >= 0 and proposals.lanes[k] >= 0:
        total = block_rate(run, block)
        place = uniform(seed, 3 * step + 1) * max(weight_in(run, block), total)
        lane = row_at(run, block, place) if place < total else -1
        proposals.lanes[k] = lane
        if lane >= 0:
            proposals.ceilings[k] = rate_at(run, block, lane)
            proposals.positions[k] = position_of(run.sketch, block, lane)
            prefetch(run.rows.bytes, proposals.positions[k])
            prefetch(run.rows.steps, proposals.positions[k])


@helper
def _accepted(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> bool:
    """Whether a proposal is accepted: by the row, unless its bytes tell that it is not."""
    rows, theta, state, position = run.rows, run.theta, run.race.state, proposals.positions[k]
    cell = run.sketch.cells[(BLOCK // GROUP) * proposals.blocks[k] + proposals.lanes[k] // GROUP]
    width = np.float64(rows.steps[position, 0])
    along = theta.step * np.float64(byte_dot(rows.bytes, position, theta.steps))
    highest = (np.float64(theta.cells[cell]) + width * (along + theta.byte_error)) * theta.scale
    level = np.log2(proposals.ceilings[k] * uniform(seed, 3 * step + 2)) + state[REFERENCE]
    state[SCORED] += 1
    if level >= highest:
        return False
    logit = score(run, position)
    state[VIOLATIONS] += logit > np.log2(proposals.ceilings[k]) + state[REFERENCE]
    return level < logit


@helper
def _fires(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> bool:
    """Whether a proposal is accepted, and its row was not taken since it was made."""
    block, lane = proposals.blocks[k], proposals.lanes[k]
    if block < 0:
        return bool(run.race.masses[lane] > 0.0)
    if lane < 0 or rate_at(run, block, lane) == 0.0:
        return False
    return _accepted(run, seed, step, proposals, k)


@helper
def _take(race: Race, proposals: Proposals, k: int) -> None:
    """Take an accepted row out of the race; `_retire` sees to the weights."""
    block, lane = proposals.blocks[k], proposals.lanes[k]
    if block < 0:
        race.masses[lane] = 0.0
    else:
        _remove(race, block, lane)


@helper
def _retire(run: Run, proposals: Proposals) -> None:
    """Weigh the rows anew that are left after some were taken."""
    race, mass = run.race, 0.0
    for k in range(_AT_ONCE):
        if proposals.blocks[k] >= 0:
            race.weights[proposals.blocks[k]] = block_rate(run, proposals.blocks[k])
            sum_chunk(run, proposals.blocks[k] // CHUNK)
    for k in range(int(race.state[COUNT])):
        mass += race.masses[k]
    race.state[MASS] = mass
    add_up(race)


@maker
def draw(run: Run, seed: np.uint64, rules: tuple[int, bool], positions: Ints, values: Floats) -> tuple[int, float]:
    race, size, drawn, step, time = run.race, positions.shape[0], 0, np.int64(0), 0.0
    numbers, (patience, distinct) = np.empty((3, _AT_ONCE), dtype=np.int64), rules
    proposals = Proposals(numbers[0], numbers[1], numbers[2], np.empty(_AT_ONCE, dtype=np.float64))
    while drawn < size and step - drawn < patience:
        if distinct and step > 0:
            _retire(run, proposals)
            if step % _PATIENCE == 0 and not refine(run, race.state[MASS], True):
                break
        rate = race.state[MASS] + race.ends[-1]
        if rate < _NOTHING:  # what is left weighs nothing beside what was taken
            break
        for k in range(_AT_ONCE):
            _propose(run, seed, step + k, proposals, k)
        for k in range(_AT_ONCE):
            _aim(run, seed, step + k, proposals, k)
        for k in range(_AT_ONCE):
            time -= np.log(uniform(~seed, step + k)) / rate  # exponential
            if drawn < size and _fires(run, seed, step + k, proposals, k):
                positions[drawn] = proposals.positions[k]
                values[drawn] = race.state[REFERENCE] * LN2 - np.log(time)
                drawn += 1
                if distinct:
                    _take(race, proposals, k)
                else:
                    time = 0.0
        step += _AT_ONCE
    return drawn, time
