"""The rows of largest inner product: those whose ceiling reaches the k-th best that was scored.

Ceilings are by the first part of codes. A few rows of a block that reach it are looked at by their bytes, and more of
them by all of their codes first: these lie in so many lines of memory that for one row bytes are quicker.
"""

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.kernels.byte_dot import byte_dot
from lazygumbel.kernels.codes import count_bits, level_of, weigh_codes
from lazygumbel.kernels.contest import enter_projected, open_race, run_of
from lazygumbel.kernels.decorators import exact_kernel, helper, maker, part
from lazygumbel.kernels.lookups import lanes_reaching
from lazygumbel.kernels.packed import read_race, read_stored
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.projecting import project
from lazygumbel.kernels.race import position_of, score
from lazygumbel.kernels.sharing import ANSWER, ARGUMENT, BEST, close_mailbox, open_mailbox
from lazygumbel.kernels.types import BIAS, BLOCK, FLOOR, FULL, GROUP, MAILBOX, SHORT, TOP, UNIT, Asked, Race, Run

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
def _sift(heap: Floats, value: float) -> None:
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
def _weight(run: Run, logit: float) -> float:
    """That of a row in the units of a scan."""
    return np.exp2(logit / run.ceilings.power - run.ceilings.shift)


@helper
def _reaches(run: Run, block: int, lane: int, kth: float) -> bool:
    """Whether a row may be as good, by its bytes."""
    rows, theta = run.rows, run.theta
    position, cell = position_of(run.sketch, block, lane), run.sketch.cells[(BLOCK // GROUP) * block + lane // GROUP]
    along = theta.step * np.float64(byte_dot(rows.bytes, position, theta.steps)) + theta.byte_error
    return bool((np.float64(theta.cells[cell]) + np.float64(rows.steps[position, 0]) * along) * theta.scale >= kth)


@helper
def _gather(run: Run, block: int, least: int, waiting: Ints, count: int) -> int:
    """Put the rows of a block whose ceilings reach this behind those that wait; how many there are."""
    mask = lanes_reaching(run.race.ceilings, block, least)
    if count_bits(mask) > _MANY and level_of(run, block) == SHORT:
        weigh_codes(run, block, FULL)
        mask = lanes_reaching(run.race.ceilings, block, least)
    while mask != np.uint64(0):
        lane = count_bits((mask & (~mask + np.uint64(1))) - np.uint64(1))
        mask &= mask - np.uint64(1)
        waiting[count], position = BLOCK * block + lane, position_of(run.sketch, block, lane)
        prefetch(run.rows.bytes, position)
        prefetch(run.rows.steps, position)
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
def _heaviest(run: Run, k: int) -> float:
    """Blocks that weigh as much are looked at first."""
    weights, heaviest = run.race.weights, np.zeros(_HEAVIEST + k // BLOCK)
    for block in range(weights.shape[0]):
        if weights[block] > heaviest[0]:
            _sift(heaviest, weights[block])
    return heaviest[0]


@maker
def _find(
    run: Run, best: Floats, blocks: tuple[int, int], which: tuple[bool, float], room: tuple[int, int]
) -> tuple[int, int]:
    """Positions and logits of rows of the heavy blocks, or of the others, into a part of the room of certain rows:
    where they end, or -1 if they do not fit, and how many ceilings reach them. `which` are whether heavy ones, and from
    which weight on a block is one; `best` is the heap of the best so far."""
    race, weights, (first, last), (heavy, heaviest) = run.race, run.race.weights, blocks, which
    waiting, waits, count, looked = np.empty(_AT_ONCE + BLOCK, dtype=np.int64), 0, room[0], 0
    least, enough = int(UNIT * (FLOOR + BIAS)), 0.0
    if best[0] > -np.inf:
        least, enough = _least(run, best[0]), _weight(run, best[0])
    for block in range(first, last + 1):  # one more, for those that still wait
        if block < last:
            if weights[block] < enough or heavy != (weights[block] >= heaviest):
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
                least, enough = _least(run, best[0]), _weight(run, best[0])
            count += 1
        waits = 0
    return count, looked


@part
def _upper(run: Run) -> tuple[int, int]:
    """Where the second half of blocks, and of room, begins."""
    return run.race.weights.shape[0] // 2, run.race.positions.shape[0] // 2


@maker
def _try_upper(run: Run, k: int, kth: float, heaviest: float) -> tuple[int, int]:
    """How many rows of the second half are found, or _LOST if there is no memory: who works with another has to close
    the mailbox."""
    middle, half = _upper(run)
    try:
        best = np.full(k, kth)
        found, looked = _find(
            run, best, (middle, run.race.weights.shape[0]), (False, heaviest), (half, run.race.positions.shape[0])
        )
        return (found - half if found >= 0 else -1), looked
    except Exception:
        return _LOST, 0


@maker
def find_upper(run: Run, mailbox: Ints) -> None:
    """What a helper does."""
    numbers = mailbox.view(np.float64)
    found = _try_upper(run, mailbox[ARGUMENT], numbers[ARGUMENT + 1], numbers[ARGUMENT + 2])
    mailbox[ANSWER], mailbox[ANSWER + 1] = found


@maker
def _try_lower(run: Run, best: Floats, last: int, heaviest: float, room: tuple[int, int]) -> tuple[int, int]:
    """Likewise where those of the blocks before the last end, behind those that are there already."""
    try:
        return _find(run, best, (np.int64(0), last), (False, heaviest), room)
    except Exception:
        return _LOST, 0


@maker
def top_rows(run: Run, k: int, mailbox: Ints) -> tuple[Ints, int]:
    race, shared = run.race, mailbox.shape[0] == MAILBOX
    blocks, room = run.race.weights.shape[0], run.race.positions.shape[0]
    middle, half = _upper(run) if shared else (blocks, room)
    # The heaviest blocks first, which tell about how good the k-th best is: both threads need to know.
    best, heaviest = np.full(k, -np.inf), _heaviest(run, k)
    lower, looked = _find(run, best, (np.int64(0), blocks), (True, heaviest), (np.int64(0), half))
    if lower < 0:
        return np.empty(0, dtype=np.int64), looked
    kth = best[0]
    if shared:
        numbers = mailbox.view(np.float64)
        mailbox[ARGUMENT], numbers[ARGUMENT + 1], numbers[ARGUMENT + 2] = k, kth, heaviest
        open_mailbox(run, mailbox, BEST)
    lower, more = _try_lower(run, best, middle, heaviest, (lower, half))
    looked += more
    upper, more = 0, 0
    if shared:
        upper = _LOST
        if close_mailbox(mailbox):
            upper, more = mailbox[ANSWER], mailbox[ANSWER + 1]
        if upper == _LOST:
            upper, more = _try_upper(run, k, kth, heaviest)
    looked += more
    if lower == _LOST or upper == _LOST:
        raise MemoryError
    if lower < 0 or upper < 0:
        return np.empty(0, dtype=np.int64), looked
    found = np.empty(lower + upper, dtype=np.int64)
    found[:lower], found[lower:] = race.positions[:lower], race.positions[half : half + upper]
    return found, looked


@maker
def _over_norm(asked: Asked, turned: Vectors) -> Asked:
    """The same for a theta of any length: how far rows are told apart goes with it."""
    square = 0.0
    for c in range(turned.shape[0]):
        square += np.float64(turned[c]) * np.float64(turned[c])
    scale = asked.scale / max(np.sqrt(square), 1e-30)
    known = asked.order, asked.slope, asked.curvature, asked.widest, asked.limits, asked.known
    return Asked(scale, asked.quantiles, asked.rounding, asked.far, *known)


@exact_kernel
def top_theta(
    stored_words: Ints, asked: Asked, vector: Vectors, k: int, race_words: Ints, mailbox: Ints
) -> tuple[Ints, int]:
    stored, race = read_stored(stored_words), read_race(race_words)
    open_race(stored, np.empty(0, dtype=np.int64), race)
    found = project(stored.coded, vector, np.empty(0, dtype=np.float32))
    scaled = _over_norm(asked, found[1][: stored.coded.d])
    theta, ceilings, _ = enter_projected(stored, scaled, vector, np.uint64(0), race, mailbox, found)
    return top_rows(run_of(stored, theta, ceilings, race), k, mailbox)
