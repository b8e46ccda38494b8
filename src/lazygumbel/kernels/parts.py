"""The races of a batch over several indexes, and over a few rows that have none, in one call."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.contest import open_race, race_thetas
from lazygumbel.kernels.decorators import exact_kernel, helper
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.types import Entry, Few, First

__all__ = ["draw_few", "race_parts"]


@exact_kernel
def draw_few(few: Few, b: int, first: First) -> None:
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
        first.ids[b, k] = few.ids[low]
        first.values[b, k] = high + np.log(total) - np.log(-np.log(uniform(few.seeds[b], 2 * k + 1)))
    first.rows[b] = count


@helper
def _merge(one: Entry, b: int, first: First) -> None:
    """What fires in this part before all that has fired in others."""
    for k in range(one.found.drawn[b]):
        if one.found.values[b, k] > first.values[b, k]:
            first.values[b, k], first.ids[b, k] = one.found.values[b, k], one.ids[one.found.positions[b, k]]
    first.rows[b] += one.found.rows[b]
    first.violations[b] += one.found.violations[b]
    first.undone[b] |= one.found.drawn[b] < one.batch.wanted[b]


@exact_kernel
def race_parts(
    entries: tuple[Entry, ...], few: Few, part: tuple[int, int], claims: npt.NDArray[np.int64], first: First
) -> None:
    for b in range(part[0], part[1]):
        first.values[b], first.rows[b], first.violations[b], first.undone[b] = -np.inf, 0, 0, False
        if few.rows.shape[0] > 0:
            draw_few(few, b, first)
    for k in range(len(entries) - 1, -1, -1):
        one = entries[k]
        if k > 0:
            open_race(one.stored, one.batch.excluded[:0], one.race)
        own = claims if k == 0 else np.zeros(3, dtype=np.int64)
        race_thetas(one.stored, one.asked, one.batch, part, one.race, own, (one.patience, False), one.found)
        for b in range(part[0], part[1]):
            _merge(one, b, first)
