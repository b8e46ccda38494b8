"""Compiled kernels that estimate sums over all rows from rows picked."""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.cells import certain_cells, is_banned, lay_end_to_end, list_rows
from lazygumbel.kernels.dot import lay_out
from lazygumbel.kernels.numbers import exp_all, fill_uniforms
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.scoring import inner, score_into

__all__ = ["pick", "spread", "weigh"]

_FASTMATH = {"reassoc", "contract", "nsz"}
_EXACT: set[str] = set()
"""Where a sum rounded otherwise would fall on the other side of an integer."""
_WEIGHED_AT_ONCE, _SUMMED_AT_ONCE = 1024, 64
_CHECKED, _WIDE, _ROUNDING = 32, 0.3, 1e-9
_HEAVY = 3e-4
"""A row that by its code holds more of a sum is read: one in 32 would not do for it."""
_WRITTEN = 4
"""Most cells have none or few picks: four are written in any case, so that there is nothing to guess wrong."""


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _certain(rates: npt.NDArray[np.float64]) -> int:
    """How many buckets, the first ones, have rate one."""
    certain = 0
    for k in range(rates.shape[0]):
        certain += rates[k] >= 1.0
    return certain


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _pick(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniform: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    """Positions and buckets of rows picked from cells of rates between zero and one, and a factor."""
    widths, inverses, ends = np.zeros(256), np.zeros(256), np.empty(buckets.shape[0] + 1)
    for k in range(rates.shape[0]):
        if 0.0 < rates[k] < 1.0:
            widths[k] = rates[k]
    total = lay_end_to_end(offsets, buckets, widths, ends)
    picks = int(np.ceil(total - _ROUNDING))
    factor = picks / total if picks > 0 else 1.0
    for k in range(rates.shape[0]):
        if widths[k] > 0.0:
            widths[k] *= factor
            inverses[k] = 1.0 / widths[k]
    for j in range(ends.shape[0]):
        ends[j] *= factor
    places = np.empty(picks + 1)
    fill_uniforms(np.uint64(uniform * 2.0**53), 0, places)
    for j in range(picks):
        places[j] += j
    places[picks] = np.inf
    # Places without a sign are quicker.
    cells, m = np.empty(picks + _WRITTEN, dtype=np.uint32), np.uint64(0)
    for c in range(buckets.shape[0]):
        stretch = np.uint64(min(int(ends[c + 1]), picks))
        if widths[buckets[c]] > _WIDE:
            first = int(ends[c])
            shift = places[first] - first
            for j in range(first + 1, min(np.int64(stretch) + 1, picks)):
                places[j] = j + shift
        for j in range(_WRITTEN):
            cells[m + np.uint64(j)] = c
        stop = stretch + np.uint64(places[stretch] < ends[c + 1])
        for j in range(np.int64(m) + _WRITTEN, np.int64(stop)):
            cells[j] = c
        m = stop
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
    chosen = np.empty(buckets.shape[0], dtype=np.int32)
    count, held = certain_cells(offsets, buckets, _certain(rates), chosen)
    sure = np.empty(held, dtype=np.int64)
    list_rows(offsets, chosen[:count], sure)
    return sure, *_pick(offsets, buckets, rates, uniform)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _leave_out(
    banned: npt.NDArray[np.int64], low: int, high: int, some: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> None:
    """No weight for rows that are banned."""
    if high > low:
        for j in range(some.shape[0]):
            if is_banned(banned, low, high, some[j]):
                weights[j] = 0.0


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _weigh_by_codes(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    query: npt.NDArray[np.float32],
    scaled: npt.NDArray[np.float32],
    offset: np.float32,
    offsets: npt.NDArray[np.int64],
    cells: npt.NDArray[np.int32],
    held: int,
    inverse_temperature: float,
    shift: float,
    unread: int,
    banned: npt.NDArray[np.int64],
    low: int,
    high: int,
) -> tuple[float, float]:
    """Sum of the weights of all rows of some cells, and its variance: heavy rows are read, and one in 32 of the others.

    `scaled` and `offset` give a score by codes.
    """
    positions, listed = np.empty((2, held), dtype=np.int64)
    found, weights, work = np.empty(held, dtype=np.float32), np.empty(held), np.empty(held)
    list_rows(offsets, cells, positions)
    score_into(codes, positions, scaled, offset, found)
    exp_all(found, held, inverse_temperature, shift, weights, work)
    _leave_out(banned, low, high, positions, weights)
    total, square = 0.0, 0.0
    for j in range(held):
        total += weights[j]
    heavy, m, light = _HEAVY * total, 0, 0
    for j in range(held):
        if weights[j] > heavy:
            listed[m] = j
            m += 1
        else:
            listed[m] = j
            m += light % _CHECKED == unread
            light += 1
    read, true = np.empty(m, dtype=np.int64), np.empty(m)
    for r in range(m):
        read[r] = positions[listed[r]]
    score_into(rows, read, query, np.float32(0.0), found)
    exp_all(found, m, inverse_temperature, shift, true, work)
    _leave_out(banned, low, high, read, true)
    for r in range(m):
        change = true[r] - weights[listed[r]]
        if weights[listed[r]] > heavy:
            total += change
        else:
            total += _CHECKED * change
            square += _CHECKED * (_CHECKED - 1) * change * change
    return total, square


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def weigh(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    coded: npt.NDArray[np.bool_],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    shifts: npt.NDArray[np.float64],
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    features: bool,
    part: int,
    parts: int,
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
]:
    size, d = queries.shape
    wide, cells = d if features else 0, buckets.shape[1]
    first, last = cells * part // parts, cells * (part + 1) // parts
    starts = offsets[first : last + 1]
    counts = np.zeros((size, 2), dtype=np.int64)
    sure, plain, squares = np.zeros((3, size, 1 + wide))
    cross = np.zeros((size, wide))
    # Few at a time with features, so that rows are still in cache when their scores are known and they are summed.
    block = _SUMMED_AT_ONCE if features else _WEIGHED_AT_ONCE
    found, checked = np.empty(block, dtype=np.float32), np.empty(block // _CHECKED + 1, dtype=np.int64)
    weights, work, true = np.empty(block), np.empty(block), np.empty(block // _CHECKED + 1)
    chosen, some = np.empty(cells, dtype=np.int32), np.empty(block, dtype=np.int64)
    inverses, left = np.zeros(256), np.zeros(256)
    for q in range(size):
        query, shift, low, high = lay_out(queries[q]), shifts[q], banned_ends[q], banned_ends[q + 1]
        count, held = certain_cells(starts, buckets[q, first:last], _certain(rates[q]), chosen)
        picked, owners, factor = _pick(starts, buckets[q, first:last], rates[q], uniforms[q, part])
        scaled, offset = lay_out(code_step * queries[q]), inner(code_low, queries[q])
        unread = int(uniforms[q, parts + part] * _CHECKED)
        total, square, last_weight, last_row = 0.0, 0.0, 0.0, -1
        by_codes = coded[q] and not features and picked.shape[0] > 1
        if by_codes:
            sure[q, 0], square = _weigh_by_codes(
                rows,
                codes,
                query,
                scaled,
                offset,
                starts,
                chosen[:count],
                held,
                inverse_temperature,
                shift,
                unread,
                banned,
                low,
                high,
            )
        for k in range(0 if by_codes else count):
            for start in range(starts[chosen[k]], starts[chosen[k] + 1], block):
                m = int(min(block, starts[chosen[k] + 1] - start))
                for j in range(m):
                    some[j] = start + j
                score_into(rows, some[:m], query, np.float32(0.0), found)
                exp_all(found, m, inverse_temperature, shift, weights, work)
                _leave_out(banned, low, high, some[:m], weights)
                for j in range(m):
                    sure[q, 0] += weights[j]
                for j in range(m if features else 0):
                    for c in range(d):
                        sure[q, 1 + c] += weights[j] * rows[start + j, c]
        for k in range(rates.shape[1]):
            rate = max(factor * rates[q, k], 1e-300)
            inverses[k], left[k] = 1.0 / rate, max(1.0 - rate, 0.0)
        counts[q, 0], counts[q, 1] = held, picked.shape[0]
        for start in range(0, picked.shape[0], block):
            taken = picked[start : start + block]
            m = taken.shape[0]
            if coded[q]:
                read = 0
                for j in range(unread, m, _CHECKED):
                    checked[read] = taken[j]
                    prefetch(rows, taken[j])
                    read += 1
                score_into(codes, taken, scaled, offset, found)
                exp_all(found, m, inverse_temperature, shift, weights, work)
                score_into(rows, checked[:read], query, np.float32(0.0), found)
                exp_all(found, read, inverse_temperature, shift, true, work)
                for r in range(read):
                    j = unread + r * _CHECKED
                    weights[j] += _CHECKED * (true[r] - weights[j])
                unread = (unread - m) % _CHECKED
            else:
                score_into(rows, taken, query, np.float32(0.0), found)
                exp_all(found, m, inverse_temperature, shift, weights, work)
            _leave_out(banned, low, high, taken, weights)
            for j in range(m):
                weights[j] *= inverses[owners[start + j]]
                total += weights[j]
            if start > 0:
                square += 0.5 * left[owners[start]] * (weights[0] - last_weight) ** 2
            for j in range(1, m):
                square += 0.5 * left[owners[start + j]] * (weights[j] - weights[j - 1]) ** 2
            for j in range(m if features else 0):
                weight, p = weights[j], taken[j]
                before, last_row = (weights[j - 1], taken[j - 1]) if j > 0 else (last_weight, last_row)
                half = 0.5 * left[owners[start + j]]
                if start + j == 0:
                    before, last_row = weight, p
                for c in range(d):
                    value = weight * rows[p, c]
                    change = value - before * rows[last_row, c]
                    plain[q, 1 + c] += value
                    squares[q, 1 + c] += half * change * change
                    cross[q, c] += half * (weight - before) * change
            last_weight, last_row = weights[m - 1], taken[m - 1]
        plain[q, 0], squares[q, 0] = total, square
    return counts, sure, plain, squares, cross


@njit(cache=True, nogil=True, fastmath=_EXACT)
def spread(
    counts: npt.NDArray[np.int64],
    sure: npt.NDArray[np.float64],
    plain: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
    cross: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    size, width = plain.shape
    total, variance, covariance = np.zeros((size, width)), np.zeros((size, width)), np.zeros((size, width - 1))
    for q in range(size):
        m = counts[q, 1]
        for c in range(width):
            total[q, c] = sure[q, c] + plain[q, c]
            variance[q, c] = squares[q, c] * m / (m - 1.0) if m > 1 else plain[q, c] * plain[q, c]
        for c in range(width - 1):
            covariance[q, c] = cross[q, c] * m / (m - 1.0) if m > 1 else plain[q, 0] * plain[q, 1 + c]
    return total, variance, covariance
