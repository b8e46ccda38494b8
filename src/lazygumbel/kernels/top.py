"""The rows of largest inner product: those whose ceiling reaches the k-th best that was scored.

Ceilings are by the first part of codes. A few rows of a block that reach it are looked at by their bytes, and more of
them by all of their codes first: these lie in so many lines of memory that for one row bytes are quicker.
"""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.byte_dot import byte_dot
from lazygumbel.kernels.codes import count_bits, level_of, weigh_codes
from lazygumbel.kernels.contest import enter, open_race, run_of
from lazygumbel.kernels.decorators import exact_kernel, helper, maker, part
from lazygumbel.kernels.lookups import lanes_reaching
from lazygumbel.kernels.packed import read_race, read_stored
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.race import position_of, score
from lazygumbel.kernels.sharing import ANSWER, ARGUMENT, BEST, close_mailbox, open_mailbox
from lazygumbel.kernels.types import (
    BIAS,
    BLOCK,
    FLOOR,
    FULL,
    GROUP,
    MAILBOX,
    SHORT,
    TOP,
    UNIT,
    Asked,
    Race,
    Run,
)

__all__ = ["find_upper", "top_rows", "top_theta"]

_HEAVIEST = 32
"""Blocks that are looked at first, and as many more as k rows fill: they tell about how good the k-th best is."""
_MANY = 4
"""Rows of a block, at the most, that are not looked at by all of their codes."""
_AT_ONCE = 32
"""Rows that are looked at together, so that the processor waits for the memory of all of them at once."""
_LOST = -2
"""In place of how many rows were found."""


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
    along = theta.step * np.float64(byte_dot(rows.bytes, position, theta.steps)) + theta.byte_error
    return bool((np.float64(theta.cells[cell]) + np.float64(rows.steps[position, 0]) * along) * theta.scale >= kth)


@helper
def _gather(run: Run, block: int, least: int, waiting: npt.NDArray[np.int64], count: int) -> int:
    """Put the rows of a block whose ceilings reach this behind those that wait; how many there are."""
    mask = lanes_reaching(run.race.ceilings, block, least)
    if count_bits(mask) > _MANY and level_of(run, block) == SHORT:
        weigh_codes(run, block, FULL)
        mask = lanes_reaching(run.race.ceilings, block, least)
    while mask != np.uint64(0):
        lane = count_bits((mask & (~mask + np.uint64(1))) - np.uint64(1))
        mask &= mask - np.uint64(1)
        waiting[count] = BLOCK * block + lane
        prefetch(run.rows.bytes, position_of(run.sketch, block, lane))
        count += 1
    return count


@helper
def _keep(race: Race, room: tuple[int, int], kth: float) -> int:
    """Only rows that are as good as this; where they end."""
    count = room[0]
    for j in range(room[0], room[1]):
        if race.masses[j] >= kth:
            race.positions[count], race.masses[count] = race.positions[j], race.masses[j]
            count += 1
    return count


@maker
def _find(run: Run, k: int, first: int, last: int, room: tuple[int, int]) -> tuple[int, int]:
    """Positions and logits of rows of some blocks into a part of the room of certain rows: how many, or -1 if they do
    not fit, and how many ceilings reach them."""
    race, weights, least = run.race, run.race.weights, int(UNIT * (FLOOR + BIAS))
    best, heaviest = np.full(k, -np.inf), np.zeros(_HEAVIEST + k // BLOCK)
    waiting, waits, count, looked, enough = np.empty(_AT_ONCE + BLOCK, dtype=np.int64), 0, room[0], 0, 0.0
    for block in range(first, last):
        if weights[block] > heaviest[0]:
            _sift(heaviest, weights[block])
    for heavy in (True, False):
        for block in range(first, last + 1):  # one more, for those that still wait
            if block < last:
                if weights[block] < enough or heavy != (weights[block] >= heaviest[0]):
                    continue
                waits = _gather(run, block, least, waiting, waits)
                if waits < _AT_ONCE:
                    continue
            for j in range(waits):
                at, lane = waiting[j] // BLOCK, waiting[j] % BLOCK
                if race.ceilings[at, lane] < least:
                    continue
                looked += 1
                if not _reaches(run, at, lane, best[0]):
                    continue
                if count == room[1]:
                    count = _keep(race, room, best[0])
                    if count == room[1]:
                        return -1, looked
                race.positions[count] = position_of(run.sketch, at, lane)
                race.masses[count] = score(run, race.positions[count])
                if race.masses[count] > best[0]:
                    _sift(best, race.masses[count])
                    least = _least(run, best[0])
                    enough = np.exp2(best[0] / run.ceilings.power - run.ceilings.shift)
                count += 1
            waits = 0
    return count - room[0], looked


@part
def _upper(run: Run) -> tuple[int, int]:
    """Where the second half of blocks, and of room, begins."""
    return run.race.weights.shape[0] // 2, run.race.positions.shape[0] // 2


@maker
def _try_find(run: Run, k: int, first: int, last: int, room: tuple[int, int]) -> tuple[int, int]:
    """The same, or _LOST if there is no memory: who works with another has to close the mailbox."""
    try:
        return _find(run, k, first, last, room)
    except Exception:
        return _LOST, 0


@maker
def find_upper(run: Run, mailbox: npt.NDArray[np.int64]) -> None:
    """What a helper does."""
    middle, half = _upper(run)
    found = _try_find(run, mailbox[ARGUMENT], middle, run.race.weights.shape[0], (half, run.race.positions.shape[0]))
    mailbox[ANSWER], mailbox[ANSWER + 1] = found


@maker
def top_rows(run: Run, k: int, mailbox: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    race, blocks, room = run.race, run.race.weights.shape[0], run.race.positions.shape[0]
    middle, half, above = blocks, room, 0
    if mailbox.shape[0] == MAILBOX:
        middle, half = _upper(run)
        mailbox[ARGUMENT] = k
        open_mailbox(run, mailbox, BEST)
    below, looked = _try_find(run, k, np.int64(0), middle, (np.int64(0), half))
    if middle < blocks:
        above, more = _LOST, 0
        if close_mailbox(mailbox):
            above, more = mailbox[ANSWER], mailbox[ANSWER + 1]
        if above == _LOST:
            above, more = _try_find(run, k, middle, blocks, (half, room))
        looked += more
    if below == _LOST or above == _LOST:
        raise MemoryError
    if below < 0 or above < 0:
        return np.empty(0, dtype=np.int64), looked
    found = np.empty(below + above, dtype=np.int64)
    found[:below], found[below:] = race.positions[:below], race.positions[half : half + above]
    return found, looked


@exact_kernel
def top_theta(
    stored_words: npt.NDArray[np.int64],
    asked: Asked,
    vector: npt.NDArray[np.float32],
    k: int,
    race_words: npt.NDArray[np.int64],
    mailbox: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], int]:
    stored, race = read_stored(stored_words), read_race(race_words)
    open_race(stored, np.empty(0, dtype=np.int64), race)
    theta, ceilings, _ = enter(stored, asked, vector, np.uint64(0), race, mailbox)
    return top_rows(run_of(stored, theta, ceilings, race), k, mailbox)
