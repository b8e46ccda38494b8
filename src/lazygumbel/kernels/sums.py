"""Compiled kernels that estimate sums over all rows from rows picked."""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.cells import certain_cells, is_banned, list_rows
from lazygumbel.kernels.claim import claim, finish, finished, ring, rung
from lazygumbel.kernels.code_dot import lay_out_whole
from lazygumbel.kernels.dot import lay_out
from lazygumbel.kernels.numbers import exp_all
from lazygumbel.kernels.picks import certain_buckets, pick_others
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.scoring import inner, score_codes, score_into

__all__ = ["spread", "weigh"]

_FASTMATH = {"reassoc", "contract", "nsz"}
_EXACT: set[str] = set()
_WEIGHED_AT_ONCE, _SUMMED_AT_ONCE = 1024, 64
_CHECKED = 64
_HEAVY = 1e-3
"""A row that by its code holds more of a sum is read: one in 64 would not do for it."""
_CODED_BELOW = 0.04
"""Rows are weighed by their codes where those are off by less: reading one in 64 then adds 10% to the variance."""
_NO_SHIFT = 300.0
"""Logits up to this need no shift: weights and their squares are far from overflow."""
_PATIENCE = 2**22
"""How often a thread that helps listens for the next bell: half a millisecond."""


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _leave_out(banned: npt.NDArray[np.int64], some: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]) -> None:
    """No weight for rows that are banned."""
    if banned.shape[0] > 0:
        for j in range(some.shape[0]):
            if is_banned(banned, 0, banned.shape[0], some[j]):
                weights[j] = 0.0


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _sum_by_codes(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    query: npt.NDArray[np.float32],
    scaled: npt.NDArray[np.int16],
    unit: np.float32,
    offset: np.float32,
    positions: npt.NDArray[np.int64],
    inverse_temperature: float,
    shift: float,
    unread: int,
    banned: npt.NDArray[np.int64],
) -> tuple[float, float]:
    """Sum of the weights of rows, and its variance: heavy rows are read, and one in 64 of the others.

    `scaled`, `unit` and `offset` give a score by codes.
    """
    held = positions.shape[0]
    found, listed = np.empty(held + 3, dtype=np.float32), np.empty(held + 1, dtype=np.int64)
    weights, work = np.empty(held), np.empty(held)
    score_codes(codes, positions, scaled, unit, offset, found)
    exp_all(found, held, inverse_temperature, shift, weights, work)
    _leave_out(banned, positions, weights)
    total, square = 0.0, 0.0
    for j in range(held):
        total += weights[j]
    heavy, m = _HEAVY * total, 0
    for start in range(0, held, _CHECKED):
        stop, most = min(start + _CHECKED, held), 0.0
        for j in range(start, stop):
            most = max(most, weights[j])
        if most > heavy:
            for j in range(start, stop):
                listed[m] = j
                m += weights[j] > heavy
        if start + unread < held and weights[start + unread] <= heavy:
            listed[m] = start + unread
            m += 1
    read, true = np.empty(m, dtype=np.int64), np.empty(m)
    for r in range(m):
        read[r] = positions[listed[r]]
    score_into(rows, read, query, np.float32(0.0), found)
    exp_all(found, m, inverse_temperature, shift, true, work)
    _leave_out(banned, read, true)
    for r in range(m):
        change = true[r] - weights[listed[r]]
        if weights[listed[r]] > heavy:
            total += change
        else:
            total += _CHECKED * change
            square += _CHECKED * (_CHECKED - 1) * change * change
    return total, square


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _sum_by_rows(
    rows: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int64],
    inverse_temperature: float,
    shift: float,
    banned: npt.NDArray[np.int64],
    sums: npt.NDArray[np.float64],
) -> None:
    """Add up the weights of rows and, in as many columns as there are, the weighted rows."""
    found = np.empty(_SUMMED_AT_ONCE, dtype=np.float32)
    weights, work = np.empty((2, _SUMMED_AT_ONCE))
    for start in range(0, positions.shape[0], _SUMMED_AT_ONCE):
        some = positions[start : start + _SUMMED_AT_ONCE]
        score_into(rows, some, query, np.float32(0.0), found)
        exp_all(found, some.shape[0], inverse_temperature, shift, weights, work)
        _leave_out(banned, some, weights)
        for j in range(some.shape[0]):
            sums[0] += weights[j]
            for c in range(sums.shape[0] - 1):
                sums[1 + c] += weights[j] * rows[some[j], c]


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _sum_picks(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    query: npt.NDArray[np.float32],
    scaled: npt.NDArray[np.int16],
    unit: np.float32,
    offset: np.float32,
    coded: bool,
    picked: npt.NDArray[np.int64],
    owners: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    factor: float,
    inverse_temperature: float,
    shift: float,
    unread: int,
    banned: npt.NDArray[np.int64],
    sums: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
    cross: npt.NDArray[np.float64],
) -> None:
    """Add up weights over rates, and products of differences of neighbours, and likewise of weighted rows."""
    wide = sums.shape[0] - 1
    # Few at a time with features, so that rows are still in cache when their scores are known and they are summed.
    block = _SUMMED_AT_ONCE if wide > 0 else _WEIGHED_AT_ONCE
    found, checked = np.empty(block + 3, dtype=np.float32), np.empty(block // _CHECKED + 1, dtype=np.int64)
    weights, work, true = np.empty(block), np.empty(block), np.empty(block // _CHECKED + 1)
    inverses, left = np.zeros(256), np.zeros(256)
    for k in range(rates.shape[0]):
        rate = max(factor * rates[k], 1e-300)
        inverses[k], left[k] = 1.0 / rate, 0.5 * max(1.0 - rate, 0.0)
    total, square, last_weight, last_row = 0.0, 0.0, 0.0, -1
    for start in range(0, picked.shape[0], block):
        taken, of = picked[start : start + block], owners[start : start + block]
        m = taken.shape[0]
        if coded:
            read = 0
            for j in range(unread, m, _CHECKED):
                checked[read] = taken[j]
                prefetch(rows, taken[j])
                read += 1
            score_codes(codes, taken, scaled, unit, offset, found)
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
        _leave_out(banned, taken, weights)
        for j in range(m):
            weights[j] *= inverses[of[j]]
            total += weights[j]
        if start > 0:
            square += left[of[0]] * (weights[0] - last_weight) ** 2
        for j in range(1, m):
            square += left[of[j]] * (weights[j] - weights[j - 1]) ** 2
        for j in range(m if wide > 0 else 0):
            weight, p = weights[j], taken[j]
            before, last_row = (weights[j - 1], taken[j - 1]) if j > 0 else (last_weight, last_row)
            if start + j == 0:
                before, last_row = weight, p
            for c in range(wide):
                value = weight * rows[p, c]
                change = value - before * rows[last_row, c]
                sums[1 + c] += value
                squares[1 + c] += left[of[j]] * change * change
                cross[1 + c] += left[of[j]] * (weight - before) * change
        last_weight, last_row = weights[m - 1], taken[m - 1]
    sums[0], squares[0] = total, square


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def weigh(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    code_error: float,
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    largest: float,
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    progress: npt.NDArray[np.int64],
    shifts: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    found: npt.NDArray[np.float64],
    bell: npt.NDArray[np.int64],
    rings: int,
) -> None:
    if rings < 0:
        ring(bell)
    size, d = queries.shape
    units, cells, features = counts.shape[1], buckets.shape[1], found.shape[3] > 1
    chosen = np.empty(cells + 1, dtype=np.int32)
    while True:
        piece = claim(progress)
        if piece >= size * units:
            break
        q, u = piece // units, piece % units
        query, out = lay_out(queries[q]), banned[banned_ends[q] : banned_ends[q + 1]]
        (scaled, unit), offset = lay_out_whole(code_step * queries[q]), inner(code_low, queries[q])
        scale = np.sqrt(np.float64(inner(queries[q], queries[q]))) * inverse_temperature
        shift = max(scale * largest - _NO_SHIFT, 0.0)
        # The error of a code lies in any direction, so a logit is off by about this.
        coded = not features and scale * code_error < _CODED_BELOW * np.sqrt(d)
        unread = int(uniforms[q, u, 1] * _CHECKED)
        sums, squares, cross = found[q, u]
        if u > 0:
            first, last = cells * (u - 1) // (units - 1), cells * u // (units - 1)
            starts, ranked = offsets[first : last + 1], buckets[q, first:last]
            picked, owners, factor = pick_others(starts, ranked, rates[q], uniforms[q, u, 0])
            counts[q, u] = picked.shape[0]
            _sum_picks(
                rows,
                codes,
                query,
                scaled,
                unit,
                offset,
                coded,
                picked,
                owners,
                rates[q],
                factor,
                inverse_temperature,
                shift,
                unread,
                out,
                sums,
                squares,
                cross,
            )
        else:
            certain = certain_buckets(rates[q])
            count, held = certain_cells(offsets, buckets[q], certain, chosen)
            positions = np.empty(held, dtype=np.int64)
            list_rows(offsets, chosen[:count], positions)
            counts[q, 0], shifts[q] = held, shift
            if coded and certain < rates.shape[1]:
                sums[0], squares[0] = _sum_by_codes(
                    rows,
                    codes,
                    query,
                    scaled,
                    unit,
                    offset,
                    positions,
                    inverse_temperature,
                    shift,
                    unread,
                    out,
                )
            else:
                _sum_by_rows(rows, query, positions, inverse_temperature, shift, out, sums)
        finish(progress)
    while finished(progress) < size * units:  # others are about to finish
        pass
    left = _PATIENCE if rings >= 0 else 0
    while left > 0 and rung(bell) <= rings:
        left -= 1


@njit(cache=True, fastmath=_EXACT)  # not worth a release of the lock, which another thread may then hold
def spread(
    counts: npt.NDArray[np.int64], found: npt.NDArray[np.float64]
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
]:
    size, units, _, width = found.shape
    seen, errors = np.zeros(size, dtype=np.int64), np.full(size, np.inf)
    total, variance, covariance = np.zeros((3, size, width))
    for q in range(size):
        for u in range(units):
            m, (sums, squares, cross) = counts[q, u], found[q, u]
            seen[q] += m
            factor = m / (m - 1.0) if m > 1 and u > 0 else 1.0
            alone = u > 0 and m == 1
            for c in range(width):
                total[q, c] += sums[c]
                variance[q, c] += sums[c] * sums[c] if alone else factor * squares[c]
                covariance[q, c] += sums[0] * sums[c] if alone else factor * cross[c]
        if total[q, 0] > 0.0:
            errors[q] = np.sqrt(variance[q, 0]) / total[q, 0]
    return seen, errors, total, variance, covariance
