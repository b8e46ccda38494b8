"""What looks at cells have in common: which cells are certain, the others laid end to end, rows that are left out."""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["certain_cells", "is_banned", "lay_end_to_end", "list_rows"]

_EXACT: set[str] = set()
_BLOCK = 64


@njit(cache=True, nogil=True, fastmath=_EXACT)
def certain_cells(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    certain: int,
    chosen: npt.NDArray[np.int32],
) -> tuple[int, int]:
    """Fill in the cells in the first `certain` buckets: how many, and their rows; `chosen` has room for one more."""
    m, held, cells = 0, 0, buckets.shape[0]
    for k in range(-(-cells // _BLOCK)):
        some = buckets[k * _BLOCK : min((k + 1) * _BLOCK, cells)]
        least = np.uint8(255)
        for j in range(some.shape[0]):
            least = min(least, some[j])
        if least < certain:
            for j in range(some.shape[0]):  # each is written, and kept by counting it: there is nothing to guess wrong
                chosen[m] = k * _BLOCK + j
                m += some[j] < certain
    for j in range(m):
        held += int(offsets[chosen[j] + 1] - offsets[chosen[j]])
    return m, held


@njit(cache=True, nogil=True, fastmath=_EXACT)
def list_rows(offsets: npt.NDArray[np.int64], cells: npt.NDArray[np.int32], positions: npt.NDArray[np.int64]) -> None:
    """Fill in the positions of the rows of cells."""
    start = 0
    for k in range(cells.shape[0]):
        first, held = offsets[cells[k]], offsets[cells[k] + 1] - offsets[cells[k]]
        for j in range(held):
            positions[start + j] = first + j
        start += held


@njit(cache=True, nogil=True, fastmath=_EXACT)
def lay_end_to_end(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    widths: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
) -> float:
    """Fill in where cells end if each row is as wide as its bucket says, from zero: the last end.

    Sizes first, in vector instructions; then four cells at a time, so that few additions wait for the one before.
    """
    cells = buckets.shape[0]
    for c in range(cells):
        ends[c + 1] = np.float64(offsets[c + 1] - offsets[c])
    ends[0], total, whole = 0.0, 0.0, cells - cells % 4
    for c in range(0, whole, 4):
        first, third = ends[c + 1] * widths[buckets[c]], ends[c + 3] * widths[buckets[c + 2]]
        second = first + ends[c + 2] * widths[buckets[c + 1]]
        fourth = third + ends[c + 4] * widths[buckets[c + 3]]
        ends[c + 1], ends[c + 2], ends[c + 3] = total + first, total + second, total + (second + third)
        total += second + fourth
        ends[c + 4] = total
    for c in range(whole, cells):
        total += ends[c + 1] * widths[buckets[c]]
        ends[c + 1] = total
    return total


@njit(cache=True, nogil=True, fastmath=_EXACT)
def is_banned(banned: npt.NDArray[np.int64], low: int, high: int, position: int) -> bool:
    """Whether the sorted banned[low:high] holds a position."""
    while low < high:
        middle = (low + high) // 2
        if banned[middle] < position:
            low = middle + 1
        elif banned[middle] > position:
            high = middle
        else:
            return True
    return False
