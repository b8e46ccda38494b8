"""Compiled kernels that draw: the winner of a look, and all rows of one."""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.cells import certain_cells, is_banned, lay_end_to_end, list_rows
from lazygumbel.kernels.code_dot import lay_out_whole
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.numbers import exp_all, fill_exponentials, uniform
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.scoring import inner, score_codes, score_into

__all__ = ["look", "winners"]

_FASTMATH = {"reassoc", "contract", "nsz"}
_EXACT: set[str] = set()
_STRIDE = np.uint64(4)
"""Cells that are passed at once on the way to the next hit."""
_CODES_HELP = 2.0
"""Where codes may be off by more than this many nats, too many rows would have to be read as well."""
_ROUNDED = 0.5 * 255
"""A query in whole numbers is off by half a unit in each column, which counts as often as the code there says."""


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _spread(
    hazards: npt.NDArray[np.float64], widths: npt.NDArray[np.float64], inverses: npt.NDArray[np.float64]
) -> int:
    """Fill in finite hazards and one over each: how many buckets, the first ones, have an infinite hazard."""
    certain = 0
    for k in range(hazards.shape[0]):
        finite = hazards[k] < 1e300
        widths[k] = hazards[k] if finite else 0.0
        inverses[k] = 1.0 / hazards[k] if finite and hazards[k] > 0.0 else 0.0
        certain += not finite
    return certain


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _no_ends(cells: int) -> npt.NDArray[np.float64]:
    """Room for ends, with infinite ones after the last."""
    ends = np.empty(cells + 1 + int(_STRIDE))
    ends[cells + 1 :] = np.inf
    return ends


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _points(total: float, seed: np.uint64) -> npt.NDArray[np.float64]:
    """Points of a Poisson process of rate one, up to the first that is not below `total`, and maybe more."""
    room = int(total + 2.0 * np.sqrt(total)) + 8
    while True:
        points, work = np.empty(room), np.empty(room, dtype=np.int64)
        fill_exponentials(seed, 0, points, work)
        place = 0.0
        for j in range(room):
            place += points[j]
            points[j] = place
        if place >= total:
            return points
        room *= 2


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _hits(
    matrix: npt.NDArray[np.generic],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.float64],
    widths: npt.NDArray[np.float64],
    inverses: npt.NDArray[np.float64],
    total: float,
    seed: np.uint64,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Rows that a Poisson process on cells laid end to end hits, and where in each the first hit is.

    After the last end, which is `total`, there are infinite ones. The rows of `matrix` are asked for on the way.
    """
    points = _points(total, seed)
    positions, noise = np.empty(points.shape[0], dtype=np.int64), np.empty(points.shape[0])
    m, row, cell = 0, -1, np.uint64(0)  # an index without a sign is quicker
    for j in range(points.shape[0]):
        if points[j] >= total:
            break
        while ends[cell + _STRIDE] <= points[j]:
            cell += _STRIDE
        step = np.uint64(0)
        for k in range(_STRIDE):  # counted, not searched, so that there is nothing to guess wrong
            step += np.uint64(ends[cell + np.uint64(1 + k)] <= points[j])
        cell += step
        inside, bucket, first = points[j] - ends[cell], buckets[cell], offsets[cell]
        at = min(first + int(inside * inverses[bucket]), offsets[cell + np.uint64(1)] - 1)
        prefetch(matrix, at)
        positions[m] = at
        noise[m] = max(inside - (at - first) * widths[bucket], 1e-300)
        m += at != row  # of several hits in a row the first counts
        row = at
    return positions[:m], noise[:m]


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _leave_out(banned: npt.NDArray[np.int64], low: int, high: int, positions: npt.NDArray[np.int64]) -> int:
    """Move positions that are not banned to the front: how many they are."""
    if high == low:
        return positions.shape[0]
    kept = 0
    for j in range(positions.shape[0]):
        positions[kept] = positions[j]
        kept += not is_banned(banned, low, high, positions[j])
    return kept


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def winners(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    code_error: float,
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    size, draws, _ = seeds.shape
    cells = buckets.shape[1]
    winning = np.full((size, draws), -1, dtype=np.int64)
    values = np.full((size, draws), -np.inf)
    counts, failed = np.zeros((size, draws), dtype=np.int64), 0
    chosen, ends, widths, inverses = np.empty(cells + 1, dtype=np.int32), _no_ends(cells), np.zeros(256), np.zeros(256)
    for b in range(size):
        query, low, high = lay_out(queries[b]), banned_ends[b], banned_ends[b + 1]
        (scaled, unit), offset = lay_out_whole(code_step * queries[b]), inner(code_low, queries[b])
        norm = np.sqrt(np.float64(inner(queries[b], queries[b])))
        slack = (code_error * norm + _ROUNDED * unit * rows.shape[1]) * inverse_temperature
        coded = slack < _CODES_HELP
        if not coded:
            slack = 0.0
        certain = _spread(hazards[b], widths, inverses)
        count, room = certain_cells(offsets, buckets[b], certain, chosen)
        head, scores = np.empty(room, dtype=np.int64), np.empty(room + 3, dtype=np.float32)
        list_rows(offsets, chosen[:count], head)
        held = _leave_out(banned, low, high, head)
        if coded:
            score_codes(codes, head[:held], scaled, unit, offset, scores)
        else:
            score_into(rows, head[:held], query, np.float32(0.0), scores)
        shift, total, sums, work = np.float32(-np.inf), 0.0, np.empty(held), np.empty(held)
        for j in range(held):
            shift = max(shift, scores[j])
        exp_all(scores, held, inverse_temperature, np.float64(shift) * inverse_temperature, sums, work)
        for j in range(held):
            total += sums[j]
            sums[j] = total
        length = lay_end_to_end(offsets, buckets[b], widths, ends)
        for s in range(draws):
            if held > 0:
                seed, time, attempt = np.uint64(seeds[b, s, 0] * 2.0**53), 0.0, 0
                while True:
                    time -= np.log(uniform(seed, attempt))
                    drawn = min(np.searchsorted(sums[:held], uniform(seed, attempt + 1) * total), held - 1)
                    kept = (dot(rows, head[drawn], query) - scores[drawn]) * inverse_temperature - slack
                    if not uniform(seed, attempt + 2) > np.exp(kept):
                        break
                    attempt += 3
                winning[b, s] = head[drawn]
                values[b, s] = shift * inverse_temperature + slack + np.log(total) - np.log(time)
            seed = np.uint64(seeds[b, s, 1] * 2.0**53)
            if coded:
                positions, noise = _hits(codes, offsets, buckets[b], ends, widths, inverses, length, seed)
                found = np.empty(positions.shape[0] + 3, dtype=np.float32)
                score_codes(codes, positions, scaled, unit, offset, found)
            else:
                positions, noise = _hits(rows, offsets, buckets[b], ends, widths, inverses, length, seed)
                found = np.empty(positions.shape[0], dtype=np.float32)
                score_into(rows, positions, query, np.float32(0.0), found)
            m, bits = positions.shape[0], noise.view(np.int64)
            counts[b, s] = m + held if s == 0 else m
            for j in range(m):
                # The exponent of a float bounds its log. Few rows come close enough to need the log, and the row.
                most = found[j] * inverse_temperature + slack - ((bits[j] >> 52) - 1023) * 0.6931471805599453
                if most > values[b, s] and not (high > low and is_banned(banned, low, high, positions[j])):
                    value = dot(rows, positions[j], query) * inverse_temperature - np.log(noise[j])
                    if value > values[b, s]:
                        values[b, s] = value
                        winning[b, s] = positions[j]
            if winning[b, s] < 0:
                failed += 1
    return winning, values, counts, failed


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def look(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    hazards: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    seeds: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    cells = buckets.shape[0]
    chosen, ends, widths, inverses = np.empty(cells + 1, dtype=np.int32), _no_ends(cells), np.zeros(256), np.zeros(256)
    certain = _spread(hazards, widths, inverses)
    count, held = certain_cells(offsets, buckets, certain, chosen)
    length = lay_end_to_end(offsets, buckets, widths, ends)
    hit, more = _hits(rows, offsets, buckets, ends, widths, inverses, length, np.uint64(seeds[1] * 2.0**53))
    m = held + hit.shape[0]
    positions, work, noise = np.empty(m, dtype=np.int64), np.empty(held, dtype=np.int64), np.empty(m)
    fill_exponentials(np.uint64(seeds[0] * 2.0**53), 0, noise[:held], work)
    positions[held:], noise[held:] = hit, more
    list_rows(offsets, chosen[:count], positions)
    found = np.empty(m, dtype=np.float32)
    score_into(rows, positions, lay_out(query), np.float32(0.0), found)
    logits, values = np.empty(m), np.empty(m)
    for j in range(m):
        logits[j] = found[j] * inverse_temperature
        values[j] = logits[j] - np.log(noise[j])
    return positions, logits, values
