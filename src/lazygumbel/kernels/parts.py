"""Parts of a live model: draws from rows so few that every one is scored, and what fires first in any part."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.batches import Few, Fired, Found
from lazygumbel.kernels.decorators import exact_kernel, part
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.numbers import uniform

__all__ = ["draw_few", "find_first"]

_Ints, _Floats = npt.NDArray[np.int64], npt.NDArray[np.float64]


@part
def _draw(few: Few, b: int, places: _Ints, values: _Floats) -> None:
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
    last = found.drawn.shape[0] - 1
    for b in range(thetas[0], thetas[1]):
        _draw(few, b, found.positions[last, b], found.values[last, b])
        found.drawn[last, b], found.rows[last, b] = found.positions.shape[2], few.rows.shape[0]


@exact_kernel
def find_first(found: Found, fired: Fired) -> None:
    for b in range(found.drawn.shape[1]):
        for k in range(found.positions.shape[2]):
            first = 0
            for p in range(found.drawn.shape[0]):
                fired.undone[b] |= found.drawn[p, b] <= k
                if found.values[p, b, k] > found.values[first, b, k]:
                    first = p
            fired.parts[b, k], fired.positions[b, k] = first, found.positions[first, b, k]
            fired.values[b, k] = found.values[first, b, k]
        for p in range(found.drawn.shape[0]):
            fired.rows[b] += found.rows[p, b]
            fired.violations[b] += found.violations[p, b]
