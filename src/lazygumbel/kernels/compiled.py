"""The kernels in Numba. Same signatures and results as `reference`.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process.
Parallelism is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.prefetch import prefetch

__all__ = [
    "bin_scores",
    "gather_dot",
    "look",
    "pick",
    "rank_cells",
    "score_at",
    "score_ranges",
    "sum_rows",
    "survey",
    "weigh",
    "winners",
]

_FASTMATH = {"reassoc", "contract", "nsz"}
_EXACT: set[str] = set()
"""Where a sum rounded otherwise would fall on the other side of an integer."""
_RANK_BINS = 2048
_WEIGHED_AT_ONCE, _SUMMED_AT_ONCE = 1024, 64
_AHEAD = 24
"""Rows that are asked for before they are needed."""
_ROUTE_STEP = np.float32(1 / 32767)
_CHECKED = 32
_GOLDEN = 0.6180339887498949
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
    rows: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """Inner products of rows that are far apart in memory: four at a time, so that waits for memory overlap."""
    d, m = rows.shape[1], positions.shape[0]
    for j in range(min(m, _AHEAD)):
        prefetch(rows, positions[j])
    for j in range(0, m - 3, 4):
        for i in range(j + _AHEAD, min(j + _AHEAD + 4, m)):
            prefetch(rows, positions[i])
        p, q, r, s = positions[j], positions[j + 1], positions[j + 2], positions[j + 3]
        a, b, c, e = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for k in range(d):
            x = query[k]
            a += rows[p, k] * x
            b += rows[q, k] * x
            c += rows[r, k] * x
            e += rows[s, k] * x
        out[j], out[j + 1], out[j + 2], out[j + 3] = a, b, c, e
    for j in range(m - m % 4, m):
        out[j] = _dot(rows[positions[j]], query)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _code_scores(
    codes: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    scaled: npt.NDArray[np.float32],
    offset: np.float32,
    out: npt.NDArray[np.float32],
) -> None:
    """Likewise of what codes stand for; rows are asked for well ahead."""
    d, m = codes.shape[1], positions.shape[0]
    for j in range(min(m, _AHEAD)):
        prefetch(codes, positions[j])
    for j in range(0, m - 3, 4):
        for i in range(j + _AHEAD, min(j + _AHEAD + 4, m)):
            prefetch(codes, positions[i])
        p, q, r, s = positions[j], positions[j + 1], positions[j + 2], positions[j + 3]
        a, b, c, e = offset, offset, offset, offset
        for k in range(d):
            x = scaled[k]
            a += np.float32(codes[p, k]) * x
            b += np.float32(codes[q, k]) * x
            c += np.float32(codes[r, k]) * x
            e += np.float32(codes[s, k]) * x
        out[j], out[j + 1], out[j + 2], out[j + 3] = a, b, c, e
    for j in range(m - m % 4, m):
        p, a = positions[j], offset
        for k in range(d):
            a += np.float32(codes[p, k]) * scaled[k]
        out[j] = a


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _rank(
    scores: npt.NDArray[np.float32], first: int, top: np.float32, low: np.float32, ordered: npt.NDArray[np.int32]
) -> None:
    cells = scores.shape[0]
    step = np.float32(_RANK_BINS - 2) / (top - low) if top > low else np.float32(0.0)
    bins = np.empty(cells, dtype=np.int32)
    starts = np.zeros(_RANK_BINS + 1, dtype=np.int32)
    for c in range(cells):
        bins[c] = 1 + np.int32((top - scores[c]) * step)
    bins[first] = 0
    for c in range(cells):
        starts[bins[c] + 1] += 1
    for k in range(_RANK_BINS):
        starts[k + 1] += starts[k]
    for c in range(cells):
        ordered[starts[bins[c]]] = c
        starts[bins[c]] += 1


@njit(cache=True, nogil=True, fastmath=_EXACT)
def rank_cells(scores: npt.NDArray[np.float32], first: int) -> npt.NDArray[np.int32]:
    ordered = np.empty(scores.shape[0], dtype=np.int32)
    _rank(scores, first, scores.max(), scores.min(), ordered)
    return ordered


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


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _route(routes: npt.NDArray[np.int16], row: int, query: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for c in range(routes.shape[1]):
        total += np.float32(routes[row, c]) * query[c]
    return total * _ROUTE_STEP


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def survey(
    rows: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    groups: npt.NDArray[np.int16],
    cells: npt.NDArray[np.int16],
    scales: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    group_ends: npt.NDArray[np.int64],
    opened: int,
    gap: float,
    cell_edges: npt.NDArray[np.int64],
    group_edges: npt.NDArray[np.int64],
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
]:
    size, d, held, all_cells = queries.shape[0], queries.shape[1], groups.shape[0], cells.shape[0]
    fine, closed = cell_edges.shape[0] - 1, group_edges.shape[0] - 1
    found_begins = np.empty((size, all_cells), dtype=np.int64)
    found_before = np.empty((size, all_cells + 1), dtype=np.int64)
    segments = np.empty(size, dtype=np.int64)
    edges = np.empty((size, fine + closed + 1), dtype=np.int64)
    alignment, reach = np.empty(size, dtype=np.float32), np.full(size, -np.inf, dtype=np.float32)
    padded = np.zeros(groups.shape[1], dtype=np.float32)
    near = np.empty(held, dtype=np.float32)
    chosen = np.empty(all_cells, dtype=np.int64)
    scores = np.empty(all_cells, dtype=np.float32)
    ranked, ordered = np.empty(held, dtype=np.int32), np.empty(all_cells, dtype=np.int32)
    for b in range(size):
        padded[:d] = queries[b]
        margin = np.float32(gap) * np.sqrt(_dot(queries[b], queries[b]))
        first, best = 0, np.float32(-np.inf)
        low = np.float32(np.inf)
        for g in range(held):
            near[g] = _route(groups, g, padded)
            low = min(low, near[g])
            if near[g] > best:
                first, best = g, near[g]
        _rank(near, first, best, low, ranked)
        m, first, best = 0, 0, np.float32(-np.inf)
        top, low = np.float32(-np.inf), np.float32(np.inf)
        k = 0
        while k < held and (k < opened or near[ranked[k]] >= best - margin):
            for c in range(group_ends[ranked[k]], group_ends[ranked[k] + 1]):
                cosine = _route(cells, c, padded)
                if cosine > best:
                    first, best = m, cosine
                chosen[m] = c
                scores[m] = cosine * scales[c]
                top, low = max(top, scores[m]), min(low, scores[m])
                m += 1
            k += 1
        alignment[b] = best
        _rank(scores[:m], first, top, low, ordered)
        passed = 0
        for j in range(m):
            c = chosen[ordered[j]]
            found_begins[b, j], found_before[b, j] = offsets[c], passed
            passed += offsets[c + 1] - offsets[c]
        for j in range(held - k):
            start, stop = offsets[group_ends[ranked[k + j]]], offsets[group_ends[ranked[k + j] + 1]]
            found_begins[b, m + j], found_before[b, m + j] = start, passed
            passed += stop - start
        segments[b] = m + held - k
        found_before[b, segments[b]] = passed
        for p in range(offsets[chosen[ordered[0]]], offsets[chosen[ordered[0]] + 1]):
            reach[b] = max(reach[b], _dot(rows[p], queries[b]))
        for j in range(fine):
            edges[b, j] = min(cell_edges[j], m)
        for j in range(closed + 1):
            edges[b, fine + j] = m + max(group_edges[j] - k, 0)
    most = segments.max() if size else 0
    begins, before = np.zeros((size, most), dtype=np.int64), np.zeros((size, most + 1), dtype=np.int64)
    for b in range(size):
        begins[b, : segments[b]] = found_begins[b, : segments[b]]
        before[b, : segments[b] + 1] = found_before[b, : segments[b] + 1]
    return begins, before, edges, alignment, reach


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _arrivals(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    hazards: npt.NDArray[np.float64],
    exponentials: npt.NDArray[np.float64],
    used: int,
    positions: npt.NDArray[np.int64],
    noise: npt.NDArray[np.float64],
) -> int:
    """Rows that a Poisson process of the hazards hits, with the time of the first hit: how many, or -1."""
    m, room = 0, exponentials.shape[0]
    for b in range(hazards.shape[0]):
        hazard = hazards[b]
        if hazard <= 0.0 or hazard > 1e300:
            continue
        k, last = edges[b], before[edges[b + 1]]
        row = before[k]
        while True:
            if used >= room or m >= room:
                return -1
            skip = np.floor(exponentials[used] / hazard)
            if skip >= last - row:
                used += 1
                break
            row += int(skip)
            while before[k + 1] <= row:
                k += 1
            positions[m] = begins[k] + row - before[k]
            noise[m] = max(exponentials[used] - skip * hazard, 1e-300)
            used += 1
            m += 1
            row += 1
    return m


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def winners(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    code_error: float,
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    size, draws, room = exponentials.shape
    winning = np.full((size, draws), -1, dtype=np.int64)
    values = np.full((size, draws), -np.inf)
    heads, counts = np.zeros(size, dtype=np.int64), np.zeros((size, draws), dtype=np.int64)
    positions, noise = np.empty(room, dtype=np.int64), np.empty(room)
    found, bits = np.empty(room, dtype=np.float32), noise.view(np.int64)
    for b in range(size):
        query, low, high = queries[b], banned_ends[b], banned_ends[b + 1]
        slack = code_error * np.sqrt(np.float64(_dot(query, query))) * inverse_temperature
        coded = slack < _CODES_HELP
        scaled, offset = code_step * query, _dot(code_low, query)
        if not coded:
            slack = 0.0
        begin, pre, edge = begins[b], before[b], edges[b]
        held = 0
        for j in range(hazards.shape[1]):
            if hazards[b, j] > 1e300:
                held += pre[edge[j + 1]] - pre[edge[j]]
        head = np.empty(held, dtype=np.int64)
        sums = np.empty(held)
        held, shift = 0, -np.inf
        for j in range(hazards.shape[1]):
            if hazards[b, j] > 1e300:
                for k in range(edge[j], edge[j + 1]):
                    for p in range(begin[k], begin[k] + pre[k + 1] - pre[k]):
                        if high > low and _held(banned, low, high, p):
                            continue
                        head[held] = p
                        sums[held] = _dot(rows[p], query) * inverse_temperature
                        shift = max(shift, sums[held])
                        held += 1
        heads[b] = held
        total = 0.0
        for j in range(held):
            total += np.exp(sums[j] - shift)
            sums[j] = total
        for s in range(draws):
            if held > 0:
                chosen = np.searchsorted(sums[:held], uniforms[b, s : s + 1] * total)[0]
                winning[b, s] = head[min(chosen, held - 1)]
                values[b, s] = shift + np.log(total) - np.log(exponentials[b, s, 0])
            m = _arrivals(begin, pre, edge, hazards[b], exponentials[b, s], 1, positions, noise)
            if coded:
                _code_scores(codes, positions[: max(m, 0)], scaled, offset, found)
            else:
                _scores(rows, positions[: max(m, 0)], query, found)
            counts[b, s] = m
            for j in range(m):
                p = positions[j]
                if high > low and _held(banned, low, high, p):
                    continue
                # The exponent of a float bounds its log. Few rows come close enough to need the log, and the row.
                most = found[j] * inverse_temperature + slack - ((bits[j] >> 52) - 1023) * 0.6931471805599453
                if most > values[b, s]:
                    value = _dot(rows[p], query) * inverse_temperature - np.log(noise[j])
                    if value > values[b, s]:
                        values[b, s] = value
                        winning[b, s] = p
    return winning, values, heads, counts


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def look(
    rows: npt.NDArray[np.float32],
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    hazards: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    exponentials: npt.NDArray[np.float64],
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    room = exponentials.shape[0]
    positions, noise = np.empty(room, dtype=np.int64), np.empty(room)
    nothing = (-1, positions[:0], noise[:0], noise[:0])
    held = 0
    for b in range(hazards.shape[0]):
        if hazards[b] > 1e300:
            for k in range(edges[b], edges[b + 1]):
                for p in range(begins[k], begins[k] + before[k + 1] - before[k]):
                    if held >= room:
                        return nothing
                    positions[held] = p
                    noise[held] = exponentials[held]
                    held += 1
    more = _arrivals(begins, before, edges, hazards, exponentials, held, positions[held:], noise[held:])
    if more < 0:
        return nothing
    m = held + more
    found = np.empty(m, dtype=np.float32)
    _scores(rows, positions[:m], query, found)
    logits, values = np.empty(m), np.empty(m)
    for j in range(m):
        logits[j] = found[j] * inverse_temperature
        values[j] = logits[j] - np.log(noise[j])
    return m, positions[:m], logits, values


@njit(cache=True, nogil=True, fastmath=_EXACT)
def pick(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    part: int,
    parts: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    ends = np.zeros(rates.shape[0] + 1, dtype=np.int64)
    room = 0
    for b in range(rates.shape[0]):
        stretches = int(np.ceil((before[edges[b + 1]] - before[edges[b]]) * rates[b]))
        room += stretches * (part + 1) // parts - stretches * part // parts
    positions = np.empty(room, dtype=np.int64)
    m = 0
    for b in range(rates.shape[0]):
        if rates[b] > 0.0:
            base = before[edges[b]]
            inside, stride = before[edges[b + 1]] - base, 1.0 / rates[b]
            stretches = int(np.ceil(inside * rates[b]))
            low, high = stretches * part // parts, stretches * (part + 1) // parts
            k = edges[b]
            if low > 0:  # the last segment that begins at or before the first stretch
                k += np.searchsorted(before[edges[b] : edges[b + 1] + 1], base + int(low * stride), side="right") - 1
            for j in range(low, high):
                turn = uniforms[b] + j * _GOLDEN
                place = np.floor((j + (turn - np.floor(turn))) * stride)
                if place < inside:
                    row = base + int(place)
                    while before[k + 1] <= row:
                        k += 1
                    positions[m] = begins[k] + row - before[k]
                    m += 1
        ends[b + 1] = m
    return positions[:m], ends


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def score_at(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], query: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    out = np.empty(positions.shape[0], dtype=np.float32)
    _scores(rows, positions, query, out)
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
def weigh(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    coded: bool,
    phase: int,
    positions: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    shift: float,
    banned: npt.NDArray[np.int64],
    features: bool,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    buckets, d = rates.shape[0], rows.shape[1]
    wide = d if features else 0
    plain, squares, cross = np.zeros((buckets, 1 + wide)), np.zeros((buckets, 1 + wide)), np.zeros((buckets, wide))
    # Few at a time with features, so that rows are still in cache when their scores are known and they are summed.
    block = _SUMMED_AT_ONCE if features else _WEIGHED_AT_ONCE
    found, one = np.empty(block, dtype=np.float32), np.empty(1, dtype=np.float32)
    weights, work = np.empty(block), np.empty(block)
    true = np.empty(1)
    scaled, offset = code_step * query, _dot(code_low, query)
    for b in range(buckets):
        inverse = 1.0 / max(rates[b], 1e-300)
        rough = coded and rates[b] < 1.0
        total, square, vector, vector_square, vector_cross = 0.0, 0.0, plain[b, 1:], squares[b, 1:], cross[b]
        for start in range(ends[b], ends[b + 1], block):
            some = positions[start : min(start + block, ends[b + 1])]
            m = some.shape[0]
            if rough:
                for j in range((phase - start) % _CHECKED, m, _CHECKED):
                    prefetch(rows, some[j])
                _code_scores(codes, some, scaled, offset, found)
            else:
                _scores(rows, some, query, found)
            _exp_all(found, m, inverse_temperature, shift, weights, work)
            if rough:
                for j in range((phase - start) % _CHECKED, m, _CHECKED):
                    one[0] = _dot(rows[some[j]], query)
                    _exp_all(one, 1, inverse_temperature, shift, true, work)
                    weights[j] += _CHECKED * (true[0] - weights[j])
            if banned.shape[0] > 0:
                for j in range(m):
                    if _held(banned, 0, banned.shape[0], some[j]):
                        weights[j] = 0.0
            for j in range(m):
                weight = weights[j] * inverse
                total += weight
                square += weight * weight
            for j in range(m if features else 0):
                weight, row = weights[j] * inverse, rows[some[j]]
                for c in range(d):
                    value = weight * row[c]
                    vector[c] += value
                    vector_square[c] += value * value
                    vector_cross[c] += weight * value
        plain[b, 0], squares[b, 0] = total, square
    return plain, squares, cross


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def bin_scores(
    scores: npt.NDArray[np.float32],
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    low: float,
    width: float,
    bins: int,
) -> npt.NDArray[np.int32]:
    counts = np.zeros((edges.shape[0] - 1, bins), dtype=np.int32)
    inverse, base, most = np.float32(1.0 / width), np.float32(low), bins - 1
    for b in range(edges.shape[0] - 1):
        for s in range(edges[b], edges[b + 1]):
            for p in range(begins[s], begins[s] + before[s + 1] - before[s]):
                k = int(np.floor((scores[p] - base) * inverse))
                counts[b, min(max(k, 0), most)] += 1
    return counts
