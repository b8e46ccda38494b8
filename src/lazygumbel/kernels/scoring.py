"""Compiled kernels that score rows, one by one or in ranges, and those that sum or count what was scored."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.code_dot import code_dots
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.prefetch import prefetch

__all__ = ["bin_scores", "gather_dot", "inner", "score_at", "score_codes", "score_into", "score_ranges", "sum_rows"]

_FASTMATH = {"reassoc", "contract", "nsz"}
_AHEAD = 96
"""Rows that are asked for before they are needed."""


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def gather_dot(
    rows: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int64],
    queries: npt.NDArray[np.float32],
    owner: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    d = rows.shape[1]
    out = np.empty(positions.shape[0], dtype=np.float32)
    for j in range(positions.shape[0]):
        row = rows[positions[j]]
        query = queries[owner[j]]
        total = np.float32(0.0)
        for c in range(d):
            total += row[c] * query[c]
        out[j] = total
    return out


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_ranges(
    rows: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    d = rows.shape[1]
    m = 0
    for r in range(starts.shape[0]):
        m += stops[r] - starts[r]
    positions = np.empty(m, dtype=np.int64)
    scores = np.empty(m, dtype=np.float32)
    j = 0
    for r in range(starts.shape[0]):
        for p in range(starts[r], stops[r]):
            total = np.float32(0.0)
            for c in range(d):
                total += rows[p, c] * query[c]
            positions[j] = p
            scores[j] = total
            j += 1
    return positions, scores


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def inner(row: npt.NDArray[np.float32], query: npt.NDArray[np.float32]) -> np.float32:
    """Of a row and a query as they are."""
    total = np.float32(0.0)
    for c in range(row.shape[0]):
        total += row[c] * query[c]
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_into(
    matrix: npt.NDArray[Any],
    positions: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
    offset: np.float32,
    out: npt.NDArray[np.float32],
) -> None:
    """Inner products of rows, or codes, that are far apart in memory, with a query that is laid out for it."""
    m = positions.shape[0]
    for j in range(min(m, _AHEAD)):
        prefetch(matrix, positions[j])
    for j in range(max(m - _AHEAD, 0)):
        prefetch(matrix, positions[j + _AHEAD])
        out[j] = offset + dot(matrix, positions[j], query)
    for j in range(max(m - _AHEAD, 0), m):
        out[j] = offset + dot(matrix, positions[j], query)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_codes(
    codes: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    query: npt.NDArray[np.int16],
    unit: np.float32,
    offset: np.float32,
    out: npt.NDArray[np.float32],
) -> None:
    """Scores of rows by their codes, with a query that is laid out for it; `out` has room for three more."""
    m = positions.shape[0]
    for j in range(min(m, _AHEAD)):
        prefetch(codes, positions[j])
    asking = max(m - _AHEAD, 0) // 4 * 4
    for j in range(0, asking, 4):
        for k in range(4):
            prefetch(codes, positions[j + k + _AHEAD])
        four = positions[j], positions[j + 1], positions[j + 2], positions[j + 3]
        code_dots(codes, four, query, unit, offset, out, j)
    for j in range(asking, m, 4):
        second, third, fourth = positions[min(j + 1, m - 1)], positions[min(j + 2, m - 1)], positions[min(j + 3, m - 1)]
        code_dots(codes, (positions[j], second, third, fourth), query, unit, offset, out, j)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_at(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], query: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    out = np.empty(positions.shape[0], dtype=np.float32)
    score_into(rows, positions, lay_out(query), np.float32(0.0), out)
    return out


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def sum_rows(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    d, m = rows.shape[1], positions.shape[0]
    values, squares, cross = np.zeros(d), np.zeros(d), np.zeros(d)
    for j in range(min(m, _AHEAD)):
        prefetch(rows, positions[j])
    for j in range(m):
        if j + _AHEAD < m:
            prefetch(rows, positions[j + _AHEAD])
        weight, row = weights[j], rows[positions[j]]
        for c in range(d):
            value = weight * row[c]
            values[c] += value
            squares[c] += value * value
            cross[c] += weight * value
    return values, squares, cross


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def bin_scores(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    size: int,
    low: float,
    width: float,
    bins: int,
) -> npt.NDArray[np.int32]:
    counts = np.zeros((size, bins), dtype=np.int32)
    inverse, base, most = np.float32(1.0 / width), np.float32(low), bins - 1
    for c in range(buckets.shape[0]):
        for p in range(offsets[c], offsets[c + 1]):
            k = int(np.floor((scores[p] - base) * inverse))
            counts[buckets[c], min(max(k, 0), most)] += 1
    return counts
