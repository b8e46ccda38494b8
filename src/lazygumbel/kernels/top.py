"""The rows of largest inner product: those whose ceiling reaches the k-th best that was scored."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.codes import count_bits, level_of, weigh_codes
from lazygumbel.kernels.contest import enter, open_race, run_of
from lazygumbel.kernels.decorators import exact_kernel, helper, part
from lazygumbel.kernels.dot import dot
from lazygumbel.kernels.lookups import lanes_reaching
from lazygumbel.kernels.packed import read_race, read_stored
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.race import position_of, score
from lazygumbel.kernels.types import BIAS, BLOCK, FLOOR, FULL, GROUP, SHORT, TOP, UNIT, Asked, Run

__all__ = ["top_rows", "top_theta"]

_HEAVIEST = 32
"""Blocks that are looked at first, and as many more as k rows fill: they tell about how good the k-th best is."""
_BLOCKS_AHEAD = 6
"""Blocks whose second part of codes is prefetched."""
_AT_ONCE = 32
"""Rows that are looked at together, so that the processor waits for the memory of all of them at once."""


@helper
def _sift(heap: npt.NDArray[np.float64], value: float) -> None:
    """Put a value in place of the smallest of a heap."""
    k, size = 0, heap.shape[0]
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = value


@helper
def _least(run: Run, logit: float) -> int:
    """The ceiling, rounded down, that stands for a logit."""
    power = min(max(logit / run.ceilings.power - run.ceilings.shift, FLOOR), TOP)
    whole = np.floor(power)
    return int(UNIT * (whole + BIAS) + np.floor(UNIT * (np.exp2(power - whole) - 1.0)))


@helper
def _reaches(run: Run, block: int, lane: int, kth: float) -> bool:
    """Whether a row may be as good, by its bytes."""
    rows, theta = run.rows, run.theta
    position, cell = position_of(run.sketch, block, lane), run.sketch.cells[(BLOCK // GROUP) * block + lane // GROUP]
    along = np.float64(dot(rows.bytes, position, theta.laid_out)) + rows.error * theta.norm
    return bool((np.float64(theta.cells[cell]) + np.float64(rows.steps[position, 0]) * along) * theta.scale >= kth)


@helper
def _gather(run: Run, block: int, least: int, waiting: npt.NDArray[np.int64], count: int) -> int:
    """Put the rows of a block whose ceilings reach this, by all codes, behind those that wait; how many there are."""
    mask = lanes_reaching(run.race.ceilings, block, least)
    if mask != np.uint64(0) and level_of(run, block) == SHORT:
        weigh_codes(run, block, FULL)
        mask = lanes_reaching(run.race.ceilings, block, least)
    while mask != np.uint64(0):
        lane = count_bits((mask & (~mask + np.uint64(1))) - np.uint64(1))
        mask &= mask - np.uint64(1)
        waiting[count] = BLOCK * block + lane
        prefetch(run.rows.bytes, position_of(run.sketch, block, lane))
        count += 1
    return count


@part
def top_rows(run: Run, k: int, first: int, last: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], int]:
    weights, least = run.race.weights, int(UNIT * (FLOOR + BIAS))
    best, heaviest = np.full(k, -np.inf), np.zeros(_HEAVIEST + k // BLOCK)
    positions, logits = np.empty(4 * k + 1024, dtype=np.int64), np.empty(4 * k + 1024)
    waiting, waits, count, looked, enough = np.empty(_AT_ONCE + BLOCK, dtype=np.int64), 0, 0, 0, 0.0
    for block in range(first, last):
        if weights[block] > heaviest[0]:
            _sift(heaviest, weights[block])
    reaching = np.empty(last - first, dtype=np.int64)
    for heavy in (True, False):
        held = 0
        for block in range(first, last):
            if weights[block] < enough or heavy != (weights[block] >= heaviest[0]):
                continue
            if lanes_reaching(run.race.ceilings, block, least) != np.uint64(0):
                reaching[held] = block
                held += 1
        for turn in range(held):
            prefetch(run.sketch.more, reaching[min(turn + _BLOCKS_AHEAD, held - 1)])
            waits = _gather(run, reaching[turn], least, waiting, waits)
            if waits < _AT_ONCE and turn + 1 < held:
                continue
            for j in range(waits):
                block, lane = waiting[j] // BLOCK, waiting[j] % BLOCK
                if run.race.ceilings[block, lane] < least:
                    continue
                looked += 1
                if not _reaches(run, block, lane, best[0]):
                    continue
                if count == positions.shape[0]:
                    positions, logits = np.concatenate((positions, positions)), np.concatenate((logits, logits))
                positions[count] = position_of(run.sketch, block, lane)
                logits[count] = score(run, positions[count])
                if logits[count] > best[0]:
                    _sift(best, logits[count])
                    least = _least(run, best[0])
                    enough = np.exp2(best[0] / run.ceilings.power - run.ceilings.shift)
                count += 1
            waits = 0
    return positions[:count], logits[:count], looked


@exact_kernel
def top_theta(
    stored_words: npt.NDArray[np.int64],
    asked: Asked,
    vector: npt.NDArray[np.float32],
    k: int,
    race_words: npt.NDArray[np.int64],
    desk: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], int]:
    stored, race = read_stored(stored_words), read_race(race_words)
    open_race(stored, np.empty(0, dtype=np.int64), race)
    theta, ceilings, _ = enter(stored, asked, vector, np.uint64(0), race, desk)
    return top_rows(run_of(stored, theta, ceilings, race), k, np.int64(0), race.weights.shape[0])
