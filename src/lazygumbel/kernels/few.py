"""Draws from rows so few that every one is scored."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.batches import Few
from lazygumbel.kernels.decorators import exact_kernel, part
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.numbers import uniform

__all__ = ["draw_few"]

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
def draw_few(few: Few, thetas: tuple[int, int], places: _Ints, values: _Floats) -> None:
    for b in range(thetas[0], thetas[1]):
        _draw(few, b, places[b], values[b])
