"""A batch over several parts, of which the first to fire is drawn: indexes, and a few rows that have none."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.batches import Few, First, Found
from lazygumbel.kernels.decorators import exact_kernel, part
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.numbers import uniform

__all__ = ["draw_few", "keep_first"]

_Ints = npt.NDArray[np.int64]


@part
def _draw(few: Few, b: int, first: First) -> None:
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
    for k in range(first.ids.shape[1]):
        place = uniform(few.seeds[b], 2 * k) * total  # below the total, which is at least one
        low, last = 0, count - 1
        while low < last:
            middle = (low + last) // 2
            if ends[middle] <= place:
                low = middle + 1
            else:
                last = middle
        value = high + np.log(total) - np.log(-np.log(uniform(few.seeds[b], 2 * k + 1)))
        if value > first.values[b, k]:
            first.values[b, k], first.ids[b, k] = value, few.ids[low]
    first.rows[b] += count


@exact_kernel
def draw_few(few: Few, thetas: tuple[int, int], first: First) -> None:
    for b in range(thetas[0], thetas[1]):
        _draw(few, b, first)


@exact_kernel
def keep_first(found: Found, wanted: _Ints, thetas: tuple[int, int], ids: _Ints, first: First) -> None:
    for b in range(thetas[0], thetas[1]):
        for k in range(found.drawn[b]):
            if found.values[b, k] > first.values[b, k]:
                first.values[b, k], first.ids[b, k] = found.values[b, k], ids[found.positions[b, k]]
        first.rows[b] += found.rows[b]
        first.violations[b] += found.violations[b]
        first.undone[b] |= found.drawn[b] < wanted[b]
