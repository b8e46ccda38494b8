"""Parts of a live model: draws from rows so few that every one is scored, and what fires first in any part."""

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.kernels.batches import DRAWN, LOOKED_AT, TOO_LOW, Few, Fired, Found
from lazygumbel.kernels.decorators import exact_kernel, maker
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.numbers import uniform

__all__ = ["draw_few", "find_first"]


@maker
def _draw(few: Few, b: int, places: Ints, values: Floats) -> None:
    laid_out, count, high = lay_out(few.thetas[b]), few.rows.shape[0], -np.inf
    ends = np.full(count, -np.inf)
    for row in range(count):
        if not few.dead[row]:
            ends[row] = np.float64(dot(few.rows, row, laid_out)) * few.scale
            high = max(high, ends[row])
    total = 0.0
    for row in range(count):
        total += np.exp(ends[row] - high)
        ends[row] = total
    for k in range(places.shape[0]):
        place = uniform(few.seeds[b], 2 * k) * total  # below the total, which is at least one
        low, last = 0, count - 1
        while low < last:
            middle = (low + last) // 2
            if ends[middle] <= place:
                low = middle + 1
            else:
                last = middle
        places[k] = low
        values[k] = high + np.log(total) - np.log(-np.log(uniform(few.seeds[b], 2 * k + 1)))


@exact_kernel
def draw_few(few: Few, thetas: tuple[int, int], found: Found) -> None:
    last = found.positions.shape[0] - 1
    for b in range(thetas[0], thetas[1]):
        _draw(few, b, found.positions[last, b], found.values[last, b])
        found.counts[DRAWN, last, b], found.counts[LOOKED_AT, last, b] = found.positions.shape[2], few.rows.shape[0]


@exact_kernel
def find_first(found: Found, fired: Fired) -> None:
    parts = found.positions.shape[0]
    for b in range(found.positions.shape[1]):
        for k in range(found.positions.shape[2]):
            first = 0
            for p in range(parts):
                fired.undone[b] |= found.counts[DRAWN, p, b] <= k
                if found.values[p, b, k] > found.values[first, b, k]:
                    first = p
            fired.parts[b, k], fired.positions[b, k] = first, found.positions[first, b, k]
            fired.values[b, k] = found.values[first, b, k]
        for p in range(parts):
            fired.rows[b] += found.counts[LOOKED_AT, p, b]
            fired.violations[b] += found.counts[TOO_LOW, p, b]
