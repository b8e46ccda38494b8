"""The kernels in Numba. Same signatures and results as `reference`.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process.
Parallelism is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.whole_dot import lay_out_whole, whole_dot

__all__ = [
    "bin_scores",
    "gather_dot",
    "look",
    "pick",
    "route",
    "score_at",
    "score_ranges",
    "spread",
    "sum_rows",
    "survey",
    "weigh",
    "winners",
]

_FASTMATH = {"reassoc", "contract", "nsz"}
_EXACT: set[str] = set()
"""Where a sum rounded otherwise would fall on the other side of an integer."""
_RANK_BINS, _KEYS, _NOTHING = 2048, 2.0**24, 1e-18
_WEIGHED_AT_ONCE, _SUMMED_AT_ONCE = 1024, 64
_AHEAD = 24
"""Rows that are asked for before they are needed."""
_NEAREST = 6.1
_CHECKED, _SPARE, _WIDE = 32, 4, 0.3
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_CODES_HELP = 2.0
"""Where codes may be off by more than this many nats, too many rows would have to be read as well."""


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def gather_dot(
    rows: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int64],
    queries: npt.NDArray[np.float32],
    owner: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
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


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_ranges(
    rows: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    d = rows.shape[1]
    m = 0
    for r in range(starts.shape[0]):
        m += stops[r] - starts[r]
    positions = np.empty(m, dtype=np.int64)
    scores = np.empty(m, dtype=np.float32)
    j = 0
    for r in range(starts.shape[0]):
        for p in range(starts[r], stops[r]):
            total = np.float32(0.0)
            for c in range(d):
                total += rows[p, c] * query[c]
            positions[j] = p
            scores[j] = total
            j += 1
    return positions, scores


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _dot(row: npt.NDArray[np.float32], query: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for c in range(row.shape[0]):
        total += row[c] * query[c]
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _scores(
    matrix: npt.NDArray[Any],
    positions: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
    offset: np.float32,
    out: npt.NDArray[np.float32],
) -> None:
    """Inner products of rows, or codes, that are far apart in memory, with a query that is laid out for it."""
    m = positions.shape[0]
    for j in range(min(m, _AHEAD)):
        prefetch(matrix, positions[j])
    for j in range(max(m - _AHEAD, 0)):
        prefetch(matrix, positions[j + _AHEAD])
        out[j] = offset + dot(matrix, positions[j], query)
    for j in range(max(m - _AHEAD, 0), m):
        out[j] = offset + dot(matrix, positions[j], query)


@njit(cache=True, nogil=True, fastmath=_EXACT)
def route(
    routes: npt.NDArray[np.int8],
    step: float,
    centroids: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    size, cells = queries.shape[0], routes.shape[0]
    out = np.empty((size, cells), dtype=np.float32)
    found = np.empty(cells, dtype=np.int32)
    for b in range(size):
        short, unit = lay_out_whole(queries[b])
        for c in range(cells):
            found[c] = whole_dot(routes, c, short)
        norm = np.sqrt(np.float64(_dot(queries[b], queries[b])))
        least = _ends(found)[1] - int(_NEAREST * norm / unit)
        query, factor = lay_out(queries[b]), np.float32(step * unit)
        for c in range(cells):
            out[b, c] = np.float32(found[c]) * factor
        for c in range(cells):
            if found[c] >= least:
                out[b, c] = dot(centroids, c, query)
    return out


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _ends(keys: npt.NDArray[np.int32]) -> tuple[int, int]:
    """The smallest and the largest."""
    low, top = keys[0], keys[0]
    for c in range(keys.shape[0]):
        low, top = min(low, keys[c]), max(top, keys[c])
    return low, top


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _held(banned: npt.NDArray[np.int64], low: int, high: int, position: int) -> bool:
    """Whether the sorted banned[low:high] holds a position."""
    while low < high:
        middle = (low + high) // 2
        if banned[middle] < position:
            low = middle + 1
        elif banned[middle] > position:
            high = middle
        else:
            return True
    return False


@njit(cache=True, nogil=True, fastmath=_EXACT)
def survey(
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    cosines: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    largest: float,
    offsets: npt.NDArray[np.int64],
    bucket_edges: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    size, cells = cosines.shape
    buckets = np.empty((size, cells), dtype=np.uint8)
    alignment, reach = np.empty(size, dtype=np.float32), np.full(size, -np.inf, dtype=np.float32)
    keys, bins = np.empty((2, cells), dtype=np.int32)
    counts, bucket_of = np.empty(_RANK_BINS, dtype=np.int32), np.empty(_RANK_BINS, dtype=np.uint8)
    for b in range(size):
        # Keys are whole numbers because the largest of those is found several at once.
        norm = np.sqrt(np.float64(_dot(queries[b], queries[b])))
        unit = np.float32(_KEYS / norm if norm > _NOTHING else 0.0)
        for c in range(cells):
            keys[c] = np.int32(cosines[b, c] * unit)
        first, top = -1, _ends(keys)[1]
        for c in range(cells):
            if keys[c] == top and (first < 0 or cosines[b, c] > cosines[b, first]):
                first = c
        unit = np.float32(unit / largest if largest > _NOTHING else 0.0)
        for c in range(cells):
            keys[c] = np.int32((cosines[b, c] * scales[c]) * unit)
        bottom, top = _ends(keys)
        step = np.float32(_RANK_BINS - 2) / np.float32(max(top - bottom, 1))
        for c in range(cells):
            bins[c] = 1 + np.int32(np.float32(np.int32(top) - keys[c]) * step)
        bins[first] = 0
        counts[:] = 0
        for c in range(cells):
            counts[bins[c]] += 1
        k, passed = 0, 0
        for j in range(_RANK_BINS):
            while k < bucket_edges.shape[0] - 2 and passed >= bucket_edges[k + 1]:
                k += 1
            bucket_of[j] = k
            passed += counts[j]
        for c in range(cells):
            buckets[b, c] = bucket_of[bins[c]]
        alignment[b], scaled = cosines[b, first], lay_out(code_step * queries[b])
        for p in range(offsets[first], offsets[first + 1]):
            reach[b] = max(reach[b], dot(codes, p, scaled))
        reach[b] += _dot(code_low, queries[b])
    return buckets, alignment, reach


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _certain(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    low: int,
    high: int,
    levels: npt.NDArray[np.float64],
    least: float,
    chosen: npt.NDArray[np.int32],
) -> tuple[int, int]:
    """Fill in the cells, of those from `low` to `high`, whose level is at least so high: how many, and their rows."""
    sure = np.zeros(256, dtype=np.bool_)
    for k in range(levels.shape[0]):
        sure[k] = levels[k] >= least
    m, held = 0, 0
    for c in range(low, high):
        if sure[buckets[c]]:
            chosen[m] = c
            m += 1
            held += offsets[c + 1] - offsets[c]
    return m, held


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _arrivals(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    hazards: npt.NDArray[np.float64],
    exponentials: npt.NDArray[np.float64],
    used: int,
    positions: npt.NDArray[np.int64],
    noise: npt.NDArray[np.float64],
) -> int:
    """Rows that a Poisson process of the hazards hits, with the time of the first hit: how many, or -1."""
    m, room = 0, exponentials.shape[0]
    if used >= room:
        return -1
    left = exponentials[used]
    for c in range(buckets.shape[0]):
        hazard = hazards[buckets[c]]
        if hazard <= 0.0 or hazard > 1e300:
            continue
        row, stop = offsets[c], offsets[c + 1]
        while left < (stop - row) * hazard:
            used += 1
            if used >= room:
                return -1
            skip = min(int(left / hazard), stop - row - 1)
            positions[m] = row + skip
            noise[m] = max(left - skip * hazard, 1e-300)
            m += 1
            row += skip + 1
            left = exponentials[used]
        left -= (stop - row) * hazard
    return m


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _uniform(seed: np.uint64, j: int) -> float:
    """The j-th number of SplitMix64 as one between zero and one."""
    z = seed + np.uint64(j + 1) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    return (np.float64(np.int64(z >> np.uint64(11))) + 0.5) * 2.0**-53


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
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    size, draws, room = exponentials.shape
    winning = np.full((size, draws), -1, dtype=np.int64)
    values = np.full((size, draws), -np.inf)
    counts, failed = np.zeros((size, draws), dtype=np.int64), 0
    positions, noise = np.empty(room, dtype=np.int64), np.empty(room)
    found, bits = np.empty(room, dtype=np.float32), noise.view(np.int64)
    chosen = np.empty(buckets.shape[1], dtype=np.int32)
    for b in range(size):
        query, low, high = lay_out(queries[b]), banned_ends[b], banned_ends[b + 1]
        slack = code_error * np.sqrt(np.float64(_dot(queries[b], queries[b]))) * inverse_temperature
        coded = slack < _CODES_HELP
        scaled, offset = lay_out(code_step * queries[b]), _dot(code_low, queries[b])
        if not coded:
            slack = 0.0
        cells, room = _certain(offsets, buckets[b], 0, buckets.shape[1], hazards[b], 1e300, chosen)
        head, logits, sums = np.empty(room, dtype=np.int64), np.empty(room), np.empty(room)
        held, shift = 0, -np.inf
        for k in range(cells):
            for p in range(offsets[chosen[k]], offsets[chosen[k] + 1]):
                if high > low and _held(banned, low, high, p):
                    continue
                score = offset + dot(codes, p, scaled) if coded else dot(rows, p, query)
                head[held], logits[held] = p, score * inverse_temperature
                shift = max(shift, logits[held])
                held += 1
        total = 0.0
        for j in range(held):
            total += np.exp(logits[j] - shift)
            sums[j] = total
        for s in range(draws):
            if held > 0:
                seed, time, attempt = np.uint64(uniforms[b, s] * 2.0**53), exponentials[b, s, 0], 0
                while True:
                    place = np.searchsorted(sums[:held], _uniform(seed, attempt) * total)
                    drawn = min(place, held - 1)
                    kept = dot(rows, head[drawn], query) * inverse_temperature - logits[drawn] - slack
                    if not _uniform(seed, attempt + 1) > np.exp(kept):
                        break
                    time -= np.log(_uniform(seed, attempt + 2))
                    attempt += 3
                winning[b, s] = head[drawn]
                values[b, s] = shift + slack + np.log(total) - np.log(time)
            m = _arrivals(offsets, buckets[b], hazards[b], exponentials[b, s], 1, positions, noise)
            if coded:
                _scores(codes, positions[: max(m, 0)], scaled, offset, found)
            else:
                _scores(rows, positions[: max(m, 0)], query, np.float32(0.0), found)
            counts[b, s] = m + held if m >= 0 and s == 0 else m
            for j in range(m):
                p = positions[j]
                if high > low and _held(banned, low, high, p):
                    continue
                # The exponent of a float bounds its log. Few rows come close enough to need the log, and the row.
                most = found[j] * inverse_temperature + slack - ((bits[j] >> 52) - 1023) * 0.6931471805599453
                if most > values[b, s]:
                    value = dot(rows, p, query) * inverse_temperature - np.log(noise[j])
                    if value > values[b, s]:
                        values[b, s] = value
                        winning[b, s] = p
            if m < 0 or winning[b, s] < 0:
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
    exponentials: npt.NDArray[np.float64],
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    room = exponentials.shape[0]
    positions, noise = np.empty(room, dtype=np.int64), np.empty(room)
    nothing = (-1, positions[:0], noise[:0], noise[:0])
    chosen = np.empty(buckets.shape[0], dtype=np.int32)
    cells, held = _certain(offsets, buckets, 0, buckets.shape[0], hazards, 1e300, chosen)
    if held > room:
        return nothing
    m = 0
    for k in range(cells):
        for p in range(offsets[chosen[k]], offsets[chosen[k] + 1]):
            positions[m] = p
            m += 1
    noise[:held] = exponentials[:held]
    more = _arrivals(offsets, buckets, hazards, exponentials, held, positions[held:], noise[held:])
    if more < 0:
        return nothing
    m = held + more
    found = np.empty(m, dtype=np.float32)
    _scores(rows, positions[:m], lay_out(query), np.float32(0.0), found)
    logits, values = np.empty(m), np.empty(m)
    for j in range(m):
        logits[j] = found[j] * inverse_temperature
        values[j] = logits[j] - np.log(noise[j])
    return m, positions[:m], logits, values


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _places(seed: np.uint64, count: int) -> npt.NDArray[np.float64]:
    """One random place in each of the first stretches of length one, by the numbers of SplitMix64; some to spare."""
    out = np.empty(count + _SPARE)
    for j in range(out.shape[0]):
        out[j] = j + _uniform(seed, j)
    return out


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _pick(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    low: int,
    high: int,
    rates: npt.NDArray[np.float64],
    uniform: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    """Positions and buckets of rows picked from cells `low` to `high`, of rates between zero and one, and a factor."""
    width, inverses = np.zeros(256), np.zeros(256)
    for k in range(rates.shape[0]):
        if 0.0 < rates[k] < 1.0:
            width[k] = rates[k]
    total = 0.0
    for c in range(low, high):
        total += (offsets[c + 1] - offsets[c]) * width[buckets[c]]
    picks = np.ceil(total)
    factor = picks / total if total > 0.0 else 1.0
    for k in range(rates.shape[0]):
        if width[k] > 0.0:
            width[k] *= factor
            inverses[k] = 1.0 / width[k]
    places = _places(np.uint64(uniform * 2.0**53), int(picks) + 1)
    positions = np.empty(places.shape[0], dtype=np.int64)
    owners = np.empty(places.shape[0], dtype=np.uint8)
    m, begin = 0, 0.0
    for c in range(low, high):
        bucket, first, last = buckets[c], offsets[c], offsets[c + 1] - 1
        end = begin + (last + 1 - first) * width[bucket]
        stretch = min(int(end), int(picks))
        if width[bucket] > _WIDE:
            shift = places[int(begin)] - int(begin)
            for j in range(int(begin) + 1, stretch + 1):
                places[j] = j + shift
        stop = min(stretch + (places[stretch] < end), int(picks))
        # Most cells have none or few: two are written in any case, so that there is nothing to guess wrong.
        for j in range(2):
            positions[m + j] = min(first + int((places[m + j] - begin) * inverses[bucket]), last)
            owners[m + j] = bucket
        for j in range(m + 2, stop):
            positions[j] = min(first + int((places[j] - begin) * inverses[bucket]), last)
            owners[j] = bucket
        m, begin = stop, end
    return positions[:m], owners[:m], factor


@njit(cache=True, nogil=True, fastmath=_EXACT)
def pick(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniform: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    chosen = np.empty(buckets.shape[0], dtype=np.int32)
    cells, held = _certain(offsets, buckets, 0, buckets.shape[0], rates, 1.0, chosen)
    sure = np.empty(held, dtype=np.int64)
    m = 0
    for k in range(cells):
        for p in range(offsets[chosen[k]], offsets[chosen[k] + 1]):
            sure[m] = p
            m += 1
    return sure, *_pick(offsets, buckets, 0, buckets.shape[0], rates, uniform)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_at(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], query: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    out = np.empty(positions.shape[0], dtype=np.float32)
    _scores(rows, positions, lay_out(query), np.float32(0.0), out)
    return out


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def sum_rows(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _exp_all(
    found: npt.NDArray[np.float32],
    m: int,
    scale: float,
    shift: float,
    out: npt.NDArray[np.float64],
    work: npt.NDArray[np.float64],
) -> None:
    """exp(found * scale - shift), in loops without a call, so that the compiler does several at once; to 1e-9."""
    out_bits, work_bits = out.view(np.int64), work.view(np.int64)
    for j in range(m):
        x = min(max(found[j] * scale - shift, -700.0), 700.0)
        turned = x * 1.4426950408889634 + 6755399441055744.0  # the last bits of the sum are the nearest whole number
        work[j] = turned
        r = x - (turned - 6755399441055744.0) * 0.6931471805599453
        tail = r * (1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320))))
        out[j] = 1.0 + r * (1.0 + r * (0.5 + r * (1 / 6 + r * (1 / 24 + tail))))
    for j in range(m):
        out_bits[j] += work_bits[j] << 52


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _leave_out(
    banned: npt.NDArray[np.int64], low: int, high: int, some: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> None:
    """No weight for rows that are banned."""
    if high > low:
        for j in range(some.shape[0]):
            if _held(banned, low, high, some[j]):
                weights[j] = 0.0


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
        count, held = _certain(offsets, buckets[q], first, last, rates[q], 1.0, chosen)
        for k in range(count):
            for start in range(offsets[chosen[k]], offsets[chosen[k] + 1], block):
                m = int(min(block, offsets[chosen[k] + 1] - start))
                for j in range(m):
                    some[j] = start + j
                _scores(rows, some[:m], query, np.float32(0.0), found)
                _exp_all(found, m, inverse_temperature, shift, weights, work)
                _leave_out(banned, low, high, some[:m], weights)
                for j in range(m):
                    sure[q, 0] += weights[j]
                for j in range(m if features else 0):
                    for c in range(d):
                        sure[q, 1 + c] += weights[j] * rows[start + j, c]
        picked, owners, factor = _pick(offsets, buckets[q], first, last, rates[q], uniforms[q, part])
        for k in range(rates.shape[1]):
            rate = max(factor * rates[q, k], 1e-300)
            inverses[k], left[k] = 1.0 / rate, max(1.0 - rate, 0.0)
        counts[q, 0], counts[q, 1] = held, picked.shape[0]
        scaled, offset = lay_out(code_step * queries[q]), _dot(code_low, queries[q])
        unread = int(uniforms[q, parts + part] * _CHECKED)
        total, square, last_weight, last_row = 0.0, 0.0, 0.0, -1
        for start in range(0, picked.shape[0], block):
            taken = picked[start : start + block]
            m = taken.shape[0]
            if coded[q]:
                read = 0
                for j in range(unread, m, _CHECKED):
                    checked[read] = taken[j]
                    prefetch(rows, taken[j])
                    read += 1
                _scores(codes, taken, scaled, offset, found)
                _exp_all(found, m, inverse_temperature, shift, weights, work)
                _scores(rows, checked[:read], query, np.float32(0.0), found)
                _exp_all(found, read, inverse_temperature, shift, true, work)
                for r in range(read):
                    j = unread + r * _CHECKED
                    weights[j] += _CHECKED * (true[r] - weights[j])
                unread = (unread - m) % _CHECKED
            else:
                _scores(rows, taken, query, np.float32(0.0), found)
                _exp_all(found, m, inverse_temperature, shift, weights, work)
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


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def bin_scores(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    size: int,
    low: float,
    width: float,
    bins: int,
) -> npt.NDArray[np.int32]:
    counts = np.zeros((size, bins), dtype=np.int32)
    inverse, base, most = np.float32(1.0 / width), np.float32(low), bins - 1
    for c in range(buckets.shape[0]):
        for p in range(offsets[c], offsets[c + 1]):
            k = int(np.floor((scores[p] - base) * inverse))
            counts[buckets[c], min(max(k, 0), most)] += 1
    return counts
