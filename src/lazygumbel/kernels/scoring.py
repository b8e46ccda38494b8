"""Compiled kernels that score or add up rows scattered in memory."""

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.kernels.decorators import kernel
from lazygumbel.kernels.prefetch import prefetch

__all__ = ["add_by_cell", "add_pairs", "gather_dot", "sum_pairs", "sum_rows"]

_AHEAD = 96
"""Rows that are prefetched before they are needed."""


@kernel
def gather_dot(rows: Vectors, positions: Ints, queries: Vectors, owner: Ints) -> Vectors:
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


@kernel
def sum_rows(rows: Vectors, positions: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
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


@kernel
def sum_pairs(rows: Vectors, positions: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
    d, m = rows.shape[1], positions.shape[0]
    values, squares, cross = np.zeros(d), np.zeros(d), np.zeros(d)
    for j in range(0, m - 1, 2):
        for k in range(j + _AHEAD, min(j + _AHEAD + 2, m)):
            prefetch(rows, positions[k])
        first, second, left, right = rows[positions[j]], rows[positions[j + 1]], weights[j], weights[j + 1]
        for c in range(d):
            one, other = left * first[c], right * second[c]
            values[c] += one + other
            squares[c] += (one - other) * (one - other)
            cross[c] += (left - right) * (one - other)
    return values, squares, cross


@kernel
def add_by_cell(rows: Vectors, cells: Ints, sums: Floats, squares: Floats) -> None:
    for j in range(rows.shape[0]):
        row, total, square = rows[j], sums[cells[j]], 0.0
        for c in range(rows.shape[1]):
            value = np.float64(row[c])
            total[c] += value
            square += value * value
        squares[cells[j]] += square


@kernel
def add_pairs(sums: Vectors, places: Ints, weights: Vectors, rows: Vectors, owner: Ints) -> None:
    for j in range(places.shape[0]):
        if j + _AHEAD < places.shape[0]:
            prefetch(sums, places[j + _AHEAD])
        total, row, weight = sums[places[j]], rows[owner[j]], weights[j]
        for c in range(rows.shape[1]):
            total[c] += weight * row[c]
