"""The race with ceilings: rows propose themselves at the rate of their ceiling, and are accepted by their logit.

`settle` first scores the rows that would be proposed again and again; those race at the rate of their logit. `draw`
runs the race until enough rows were accepted: for independent samples anew after each, without replacement just on.
"""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.codes import weigh_block
from lazygumbel.kernels.decorators import exact_kernel
from lazygumbel.kernels.dot import dot
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.types import (
    BLOCK,
    CHUNK,
    COUNT,
    GROUP,
    MASS,
    REFERENCE,
    SCORED,
    VIOLATIONS,
    Proposals,
    Race,
    Run,
    Sketch,
)

__all__ = ["all_ceilings", "block_ceilings", "chunk_at", "draw", "position_of", "score", "score_above", "settle"]

_AT_ONCE = 8
"""Proposals that are made together, so that the processor waits for the memory of all of them at once."""
_PATIENCE = 256
"""Proposals after which a race without replacement looks again for heavy rows among those that are left."""
_NOTHING = 1e-290
"""A rate so low that times would overflow."""
_LOOSE = 64.0
"""How far the sum of all ceilings may be taken to lie above Z."""
_LN2 = np.log(2.0)


@exact_kernel
def score(run: Run, position: int) -> float:
    """The logit of a row."""
    return np.float64(dot(run.rows.rows, position, run.theta.laid_out)) * run.theta.scale


@exact_kernel
def position_of(sketch: Sketch, block: int, lane: int) -> int:
    """Where the row in a lane of a block is stored."""
    return sketch.firsts[(BLOCK // GROUP) * block + lane // GROUP] + lane % GROUP


@exact_kernel
def _tempered(run: Run, weight: float) -> float:
    """A weight of the scan as a rate of the race."""
    power = run.ceilings.power
    if power == 1.0 or weight == 0.0:
        return weight
    return np.exp2(power * (np.log2(weight) + run.ceilings.shift) - run.race.state[REFERENCE])


@exact_kernel
def block_ceilings(run: Run, block: int, out: npt.NDArray[np.float64]) -> float:
    """Rates of the rows of a block that may be proposed into out[:64]; returns their sum."""
    weights, total = run.race.room, 0.0
    weigh_block(run, block, weights)
    for lane in range(BLOCK):
        out[lane] = weights[lane]
    if run.ceilings.power != 1.0:
        for lane in range(BLOCK):
            out[lane] = _tempered(run, out[lane])
    for lane in range(BLOCK):
        total += out[lane]
    return total


@exact_kernel
def _is_alive(race: Race, block: int, lane: int) -> bool:
    return (race.alive[block] >> np.uint64(lane)) & np.uint64(1) != np.uint64(0)


@exact_kernel
def all_ceilings(run: Run, out: npt.NDArray[np.float64]) -> None:
    found = run.race.found
    for block in range(run.race.weights.shape[0]):
        block_ceilings(run, block, found)
        for lane in range(BLOCK):
            if _is_alive(run.race, block, lane):
                out[position_of(run.sketch, block, lane)] = np.log2(found[lane]) + run.race.state[REFERENCE]


@exact_kernel
def _refine(run: Run, block: int, low: float, grow: bool) -> float:
    """Score the rows of a block whose ceiling exceeds `low`; with `grow`, that is the mass of such rows if it is more.

    Returns what `low` has become, or -1 if there is no more room.
    """
    race, found, state = run.race, run.race.found, run.race.state
    block_ceilings(run, block, found)
    rest = 0.0
    for lane in range(BLOCK):
        if found[lane] <= low:
            rest += found[lane]
            continue
        k = int(state[COUNT])
        if k == race.positions.shape[0]:
            return -1.0
        race.positions[k] = position_of(run.sketch, block, lane)
        race.masses[k] = np.exp2(score(run, race.positions[k]) - state[REFERENCE])
        race.alive[block] &= ~(np.uint64(1) << np.uint64(lane))
        state[COUNT] += 1
        state[MASS] += race.masses[k]
        state[SCORED] += 1
        state[VIOLATIONS] += race.masses[k] > found[lane]
        if grow:
            low = max(low, state[MASS])
    race.weights[block] = rest
    return low


@exact_kernel
def _sum_chunk(race: Race, chunk: int) -> None:
    total = 0.0
    for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
        total += race.weights[block]
    race.sums[chunk] = total


@exact_kernel
def _add_up(race: Race) -> None:
    total = 0.0
    for chunk in range(race.sums.shape[0]):
        total += race.sums[chunk]
        race.ends[chunk] = total


@exact_kernel
def _hottest(race: Race) -> int:
    best = 0
    for block in range(race.weights.shape[0]):
        if race.weights[block] > race.weights[best]:
            best = block
    return best


@exact_kernel
def _refine_all(run: Run, low: float, grow: bool) -> bool:
    """Score every row whose ceiling exceeds `low`; False if there is no room for as many."""
    race = run.race
    for chunk in range(race.sums.shape[0]):
        if low >= 0.0 and race.sums[chunk] > low:
            for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
                if low >= 0.0 and race.weights[block] > low:
                    low = _refine(run, block, low, grow)
            _sum_chunk(race, chunk)
    _add_up(race)
    return low >= 0.0 and race.ends[-1] < np.inf


@exact_kernel
def _settle(run: Run, low: float) -> bool:
    """Score every row whose ceiling exceeds Z, as far as Z is known."""
    race = run.race
    _add_up(race)
    low = min(low, race.ends[-1] / _LOOSE)  # rows that hold the mass may be excluded
    hottest = _hottest(race)
    if race.weights[hottest] > low:
        low = _refine(run, hottest, low, True)  # Z is then known much better, before others are looked at
        _sum_chunk(race, hottest // CHUNK)
    return low >= 0.0 and _refine_all(run, low, True)


@exact_kernel
def score_above(run: Run, low: float) -> bool:
    return _refine_all(run, low, False)


@exact_kernel
def settle(run: Run, low: float) -> bool:
    weights, state = run.race.weights, run.race.state
    state[REFERENCE] = run.ceilings.shift
    if run.ceilings.power != 1.0:
        hottest, best, found = _hottest(run.race), 0, run.race.room
        weigh_block(run, hottest, found)
        for lane in range(BLOCK):
            if found[lane] > found[best]:
                best = lane
        state[SCORED] += 1
        state[REFERENCE] = low = max(low, score(run, position_of(run.sketch, hottest, best)))
        for block in range(weights.shape[0]):
            weights[block] = _tempered(run, weights[block])
        for chunk in range(run.race.sums.shape[0]):
            _sum_chunk(run.race, chunk)
    return _settle(run, np.exp2(low - state[REFERENCE]))


@exact_kernel
def _share_at(shares: npt.NDArray[np.float64], first: int, last: int, place: float) -> int:
    """Which of the shares this place falls into: one that is not zero, also after rounding; -1 if all are."""
    for k in range(first, last):
        if place < shares[k]:
            return k
        place -= shares[k]
    for k in range(last - 1, first - 1, -1):
        if shares[k] > 0.0:
            return k
    return -1


@exact_kernel
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


@exact_kernel
def _block_at(race: Race, place: float) -> int:
    """The block that this place on the line of all weights falls into."""
    chunk = chunk_at(race, place)
    start = race.ends[chunk - 1] if chunk > 0 else 0.0
    first = chunk * CHUNK
    return _share_at(race.weights, first, min(first + CHUNK, race.weights.shape[0]), place - start)


@exact_kernel
def _propose(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> None:
    """Which block fires, or which certain row."""
    race = run.race
    place = uniform(seed, 4 * step) * (race.state[MASS] + race.ends[-1])
    if place < race.state[MASS]:
        certain = _share_at(race.masses, 0, int(race.state[COUNT]), place)
        proposals.blocks[k], proposals.lanes[k], proposals.positions[k] = -1, certain, race.positions[certain]
    else:
        proposals.blocks[k] = _block_at(race, place - race.state[MASS])
        prefetch(run.sketch.codes, proposals.blocks[k])


@exact_kernel
def _aim(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> None:
    """Which row of the block fires; lane -1 if none: the weight of a block may exceed the sum of its ceilings."""
    block, found = proposals.blocks[k], run.race.found
    if block >= 0:
        total = block_ceilings(run, block, found)
        place = uniform(seed, 4 * step + 1) * max(run.race.weights[block], total)
        lane = _share_at(found, 0, BLOCK, place) if place < total else -1
        proposals.lanes[k] = lane
        if lane >= 0:
            proposals.positions[k], proposals.ceilings[k] = position_of(run.sketch, block, lane), found[lane]
            prefetch(run.rows.bytes, proposals.positions[k])


@exact_kernel
def _accepted(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> bool:
    """Whether a proposal is accepted: by the bytes of the row where they tell, else by the row."""
    rows, theta, state, position = run.rows, run.theta, run.race.state, proposals.positions[k]
    cell = run.sketch.cells[(BLOCK // GROUP) * proposals.blocks[k] + proposals.lanes[k] // GROUP]
    width = np.float64(rows.steps[position])
    by_bytes = np.float64(theta.cells[cell]) + width * np.float64(dot(rows.bytes, position, theta.laid_out))
    slack = width * rows.error * theta.norm
    ceiling = np.log2(proposals.ceilings[k]) + state[REFERENCE]
    level = ceiling + np.log2(uniform(seed, 4 * step + 2))
    state[SCORED] += 1
    if level < (by_bytes - slack) * theta.scale:
        state[VIOLATIONS] += ceiling < (by_bytes - slack) * theta.scale
        return True
    if level >= (by_bytes + slack) * theta.scale:
        return False
    logit = score(run, position)
    state[VIOLATIONS] += logit > ceiling
    return level < logit


@exact_kernel
def _fires(run: Run, seed: np.uint64, step: int, proposals: Proposals, k: int) -> bool:
    """Whether a proposal is accepted, and its row was not taken since it was made."""
    block, lane = proposals.blocks[k], proposals.lanes[k]
    if block < 0:
        return bool(run.race.masses[lane] > 0.0)
    if lane < 0 or not _is_alive(run.race, block, lane):
        return False
    return _accepted(run, seed, step, proposals, k)


@exact_kernel
def _take(race: Race, proposals: Proposals, k: int) -> None:
    """Take an accepted row out of the race; `_retire` sees to the weights."""
    block, lane = proposals.blocks[k], proposals.lanes[k]
    if block < 0:
        race.masses[lane] = 0.0
    else:
        race.alive[block] &= ~(np.uint64(1) << np.uint64(lane))


@exact_kernel
def _retire(run: Run, proposals: Proposals) -> None:
    """Weigh the rows anew that are left after some were taken."""
    race, found, mass = run.race, run.race.found, 0.0
    for k in range(_AT_ONCE):
        if proposals.blocks[k] >= 0:
            race.weights[proposals.blocks[k]] = block_ceilings(run, proposals.blocks[k], found)
            _sum_chunk(race, proposals.blocks[k] // CHUNK)
    for k in range(int(race.state[COUNT])):
        mass += race.masses[k]
    race.state[MASS] = mass
    _add_up(race)


@exact_kernel
def draw(
    run: Run,
    seed: np.uint64,
    patience: int,
    positions: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    distinct: bool,
) -> tuple[int, float]:
    race, size, drawn, step, time = run.race, positions.shape[0], 0, 0, 0.0
    numbers = np.empty((3, _AT_ONCE), dtype=np.int64)
    proposals = Proposals(numbers[0], numbers[1], numbers[2], np.empty(_AT_ONCE, dtype=np.float64))
    while drawn < size:
        if step - drawn >= patience:
            return drawn, time
        if distinct and step > 0:
            _retire(run, proposals)
            if step % _PATIENCE == 0 and not _settle(run, race.state[MASS]):
                return drawn, time
        rate = race.state[MASS] + race.ends[-1]
        if rate < _NOTHING:  # what is left weighs nothing beside what was taken
            return drawn, time
        for k in range(_AT_ONCE):
            _propose(run, seed, step + k, proposals, k)
        for k in range(_AT_ONCE):
            _aim(run, seed, step + k, proposals, k)
        for k in range(_AT_ONCE):
            time -= np.log(uniform(seed, 4 * (step + k) + 3)) / rate
            if drawn < size and _fires(run, seed, step + k, proposals, k):
                positions[drawn] = proposals.positions[k]
                values[drawn] = race.state[REFERENCE] * _LN2 - np.log(time)
                drawn += 1
                if distinct:
                    _take(race, proposals, k)
                else:
                    time = 0.0
        step += _AT_ONCE
    return drawn, time
