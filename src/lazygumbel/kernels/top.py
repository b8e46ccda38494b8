"""The rows of largest inner product: those whose ceiling reaches the k-th best that was scored."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.codes import largest_weight, level_of, row_weight, weigh_codes
from lazygumbel.kernels.decorators import exact_kernel, helper
from lazygumbel.kernels.dot import dot
from lazygumbel.kernels.race import position_of, score
from lazygumbel.kernels.types import BLOCK, FULL, GROUP, SHORT, Run

__all__ = ["top_rows"]

_HEAVIEST = 32
"""Blocks that are looked at first, and as many more as k rows fill: they tell about how good the k-th best is."""


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
def _reaches(run: Run, block: int, lane: int, kth: float) -> bool:
    """Whether a row may be as good, by its bytes."""
    rows, theta = run.rows, run.theta
    position, cell = position_of(run.sketch, block, lane), run.sketch.cells[(BLOCK // GROUP) * block + lane // GROUP]
    along = np.float64(dot(rows.bytes, position, theta.laid_out)) + rows.error * theta.norm
    return bool((np.float64(theta.cells[cell]) + np.float64(rows.steps[position, 0]) * along) * theta.scale >= kth)


@exact_kernel
def top_rows(run: Run, k: int, first: int, last: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], int]:
    weights = run.race.weights
    best, heaviest = np.full(k, -np.inf), np.zeros(_HEAVIEST + k // BLOCK)
    positions, logits = np.empty(4 * k + 1024, dtype=np.int64), np.empty(4 * k + 1024)
    for block in range(first, last):
        if weights[block] > heaviest[0]:
            _sift(heaviest, weights[block])
    count, looked, enough = 0, 0, 0.0
    for heavy in (True, False):
        for block in range(first, last):
            if weights[block] < enough or heavy != (weights[block] >= heaviest[0]):
                continue
            if largest_weight(run, block) < enough:
                continue
            if level_of(run, block) == SHORT:
                weigh_codes(run, block, FULL)
                if largest_weight(run, block) < enough:
                    continue
            for lane in range(BLOCK):
                weight = row_weight(run, block, lane)
                if weight == 0.0 or weight < enough:
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
                    enough = np.exp2(best[0] / run.ceilings.power - run.ceilings.shift)
                count += 1
    return positions[:count], logits[:count], looked
