"""Compiled kernels that pick rows for sums, and say how much such sums spread."""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.cells import certain_cells, lay_end_to_end, list_rows
from lazygumbel.kernels.numbers import exp_all, fill_uniforms

__all__ = ["certain_buckets", "pick", "pick_others", "pick_variance"]

_FASTMATH = {"reassoc", "contract", "nsz"}
_EXACT: set[str] = set()
"""Where a sum rounded otherwise would fall on the other side of an integer."""
_ROUNDING = 1e-9
_WRITTEN = 4
"""Most cells have none or few picks: four are written in any case, so that there is nothing to guess wrong."""


@njit(cache=True, nogil=True, fastmath=_EXACT)
def certain_buckets(rates: npt.NDArray[np.float64]) -> int:
    """How many buckets, the first ones, have rate one."""
    certain = 0
    for k in range(rates.shape[0]):
        certain += rates[k] >= 1.0
    return certain


@njit(cache=True, nogil=True, fastmath=_EXACT)
def pick_others(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniform: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    """Positions and buckets of rows picked from cells of rates between zero and one, and a factor."""
    widths, inverses, ends = np.zeros(256), np.zeros(256), np.empty(buckets.shape[0] + 1)
    for k in range(rates.shape[0]):
        if 0.0 < rates[k] < 1.0:
            widths[k], inverses[k] = rates[k], 1.0 / rates[k]
    total = lay_end_to_end(offsets, buckets, widths, ends)
    picks = int(np.ceil(total - _ROUNDING))
    factor = picks / total if picks > 0 else 1.0
    length = 1.0 / factor
    places = np.empty(picks + 1)
    fill_uniforms(np.uint64(uniform * 2.0**53), 0, places)
    for j in range(picks):
        places[j] = (places[j] + j) * length
    places[picks] = np.inf
    # The first pick after each cell. Places without a sign are quicker.
    stops = np.empty(buckets.shape[0], dtype=np.uint32)
    most = np.uint32(picks)
    for c in range(stops.shape[0]):
        stretch = min(np.uint32(ends[c + 1] * factor), most)
        stops[c] = stretch + np.uint32(places[stretch] < ends[c + 1])
    cells, m = np.empty(picks + _WRITTEN, dtype=np.uint32), np.uint32(0)
    for c in range(stops.shape[0]):
        for j in range(_WRITTEN):
            cells[m + np.uint32(j)] = c
        for j in range(m + np.uint32(_WRITTEN), stops[c]):
            cells[j] = c
        m = stops[c]
    positions, owners = np.empty(np.int64(m), dtype=np.int64), np.empty(np.int64(m), dtype=np.uint8)
    for j in range(positions.shape[0]):
        c = cells[j]
        bucket, last = buckets[c], offsets[c + np.uint32(1)] - 1
        positions[j] = min(offsets[c] + int((places[j] - ends[c]) * inverses[bucket]), last)
        owners[j] = bucket
    return positions, owners, factor


@njit(cache=True, nogil=True, fastmath=_EXACT)
def pick(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniform: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    chosen = np.empty(buckets.shape[0] + 1, dtype=np.int32)
    count, held = certain_cells(offsets, buckets, certain_buckets(rates), chosen)
    sure = np.empty(held, dtype=np.int64)
    list_rows(offsets, chosen[:count], sure)
    return sure, *pick_others(offsets, buckets, rates, uniform)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def pick_variance(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    scale: float,
) -> float:
    top, length, most = np.float32(-np.inf), 0.0, 0
    for p in range(scores.shape[0]):
        top = max(top, scores[p])
    for c in range(buckets.shape[0]):
        held = offsets[c + 1] - offsets[c]
        most = max(most, held)
        if rates[buckets[c]] < 1.0:
            length += held * rates[buckets[c]]
    factor = max(np.ceil(length - _ROUNDING), 1.0) / max(length, 1e-300)
    weights, work = np.empty((2, most))
    # Of a stretch: what is left of it, and what a pick counts.
    z, variance, room, mean, square = 0.0, 0.0, 1.0, 0.0, 0.0
    for c in range(buckets.shape[0]):
        some, rate = scores[offsets[c] : offsets[c + 1]], rates[buckets[c]]
        exp_all(some, some.shape[0], scale, np.float64(top) * scale, weights, work)
        total, squares = 0.0, 0.0
        for j in range(some.shape[0]):
            total += weights[j]
            squares += weights[j] * weights[j]
        z += total
        if not 0.0 < rate < 1.0:
            continue
        width, inverse = rate * factor, 1.0 / (rate * factor)
        if some.shape[0] * width < room:  # the stretch does not end in this cell
            mean += total
            square += squares * inverse
            room -= some.shape[0] * width
            continue
        for j in range(some.shape[0]):
            counted, left = weights[j] * inverse, width
            while left >= room:
                mean += room * counted
                square += room * counted * counted
                variance += max(square - mean * mean, 0.0)
                left -= room
                room, mean, square = 1.0, 0.0, 0.0
            mean += left * counted
            square += left * counted * counted
            room -= left
    return (variance + max(square - mean * mean, 0.0)) / (z * z)
