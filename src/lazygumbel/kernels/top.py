"""The rows of largest inner product: those whose ceiling reaches the k-th best that was scored."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.codes import weigh_block
from lazygumbel.kernels.decorators import exact_kernel
from lazygumbel.kernels.race import position_of, score
from lazygumbel.kernels.types import BLOCK, EXP2_ERROR, SCORED, Run

__all__ = ["top_rows"]

_KEYS = 8192
_KEY_BITS = np.uint64(50)
"""Blocks are sorted by the exponent and the first two bits of their weight."""


@exact_kernel
def _sift(heap: npt.NDArray[np.float64], size: int, value: float) -> None:
    """Put a value in place of the smallest of a heap."""
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = value


@exact_kernel
def _by_weight(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Blocks from the heaviest down, as far as keys tell them apart."""
    keys = weights.view(np.uint64)
    counts = np.zeros(_KEYS + 1, dtype=np.int64)
    for block in range(weights.shape[0]):
        counts[_KEYS - 1 - np.int64(keys[block] >> _KEY_BITS) + 1] += 1
    for key in range(_KEYS):
        counts[key + 1] += counts[key]
    order = np.empty(weights.shape[0], dtype=np.int64)
    for block in range(weights.shape[0]):
        key = _KEYS - 1 - np.int64(keys[block] >> _KEY_BITS)
        order[counts[key]] = block
        counts[key] += 1
    return order


@exact_kernel
def top_rows(run: Run, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    weights, shift, found = run.race.weights, run.ceilings.shift, run.race.room
    best = np.full(k, -np.inf)
    positions, logits = np.empty(4 * k + 1024, dtype=np.int64), np.empty(4 * k + 1024)
    count, smallest = 0, 0.0
    for block in _by_weight(weights):
        if weights[block] * 1.25 < smallest:  # all that follow are within a key of this one, or lighter
            break
        if weights[block] < smallest:
            continue
        weigh_block(run, block, found)
        for lane in range(BLOCK):
            if found[lane] < smallest or found[lane] == 0.0:
                continue
            if count == positions.shape[0]:
                positions, logits = np.concatenate((positions, positions)), np.concatenate((logits, logits))
            positions[count] = position_of(run.sketch, block, lane)
            logits[count] = score(run, positions[count])
            if logits[count] > best[0]:
                _sift(best, k, logits[count])
                smallest = np.exp2(best[0] / run.ceilings.power - shift - EXP2_ERROR)
            count += 1
    run.race.state[SCORED] += count
    return positions[:count], logits[:count]
