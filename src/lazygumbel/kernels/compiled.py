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

__all__ = [
    "bin_scores",
    "gather_dot",
    "look",
    "pick",
    "rank_cells",
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
_RANK_BINS = 2048
_WEIGHED_AT_ONCE, _SUMMED_AT_ONCE = 1024, 64
_AHEAD = 24
"""Rows that are asked for before they are needed."""
_ROUTE_STEP = np.float32(1 / 32767)
_CHECKED = 32
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


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _grown(values: npt.NDArray[np.int64], used: int, room: int) -> npt.NDArray[np.int64]:
    if used + room <= values.shape[0]:
        return values
    out = np.empty(2 * values.shape[0] + room, dtype=np.int64)
    out[:used] = values[:used]
    return out


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def survey(
    rows: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    groups: npt.NDArray[np.int16],
    cells: npt.NDArray[np.int16],
    scales: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    group_ends: npt.NDArray[np.int64],
    fewest: int,
    most: int,
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
    size, held, all_cells = queries.shape[0], groups.shape[0], cells.shape[0]
    fine, closed = cell_edges.shape[0] - 1, group_edges.shape[0] - 1
    begins, before = np.empty(2 * size * held, dtype=np.int64), np.empty(2 * size * held, dtype=np.int64)
    edges = np.empty((size, fine + closed + 1), dtype=np.int64)
    alignment, reach = np.empty(size, dtype=np.float32), np.full(size, -np.inf, dtype=np.float32)
    near = np.empty(held, dtype=np.float32)
    chosen = np.empty(all_cells, dtype=np.int64)
    scores = np.empty(all_cells, dtype=np.float32)
    ranked, ordered = np.empty(held, dtype=np.int32), np.empty(all_cells, dtype=np.int32)
    used = 0
    for b in range(size):
        query = lay_out(queries[b])
        margin = np.float32(gap) * np.sqrt(_dot(queries[b], queries[b]))
        first, best = 0, np.float32(-np.inf)
        low = np.float32(np.inf)
        for g in range(held):
            near[g] = dot(groups, g, query) * _ROUTE_STEP
            low = min(low, near[g])
            if near[g] > best:
                first, best = g, near[g]
        _rank(near, first, best, low, ranked)
        m, first, best = 0, 0, np.float32(-np.inf)
        top, low = np.float32(-np.inf), np.float32(np.inf)
        k = 0
        while k < held and (k < fewest or (k < most and near[ranked[k]] >= best - margin)):
            for c in range(group_ends[ranked[k]], group_ends[ranked[k] + 1]):
                cosine = dot(cells, c, query) * _ROUTE_STEP
                if cosine > best:
                    first, best = m, cosine
                chosen[m] = c
                scores[m] = cosine * scales[c]
                top, low = max(top, scores[m]), min(low, scores[m])
                m += 1
            k += 1
        alignment[b] = best
        _rank(scores[:m], first, top, low, ordered)
        begins, before = _grown(begins, used, m + held - k + 1), _grown(before, used, m + held - k + 1)
        start, passed = used, 0
        for j in range(m):
            c = chosen[ordered[j]]
            begins[used], before[used] = offsets[c], passed
            passed += offsets[c + 1] - offsets[c]
            used += 1
        for j in range(k, held):
            g = ranked[j]
            begins[used], before[used] = offsets[group_ends[g]], passed
            passed += offsets[group_ends[g + 1]] - offsets[group_ends[g]]
            used += 1
        begins[used], before[used] = 0, passed
        used += 1
        for p in range(begins[start], begins[start] + before[start + 1]):
            reach[b] = max(reach[b], dot(rows, p, query))
        for j in range(fine):
            edges[b, j] = start + min(cell_edges[j], m)
        for j in range(closed + 1):
            edges[b, fine + j] = start + m + max(group_edges[j] - k, 0)
    return begins[:used], before[:used], edges, alignment, reach


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
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    size, draws, room = exponentials.shape
    winning = np.full((size, draws), -1, dtype=np.int64)
    values = np.full((size, draws), -np.inf)
    counts, failed = np.zeros((size, draws), dtype=np.int64), 0
    positions, noise = np.empty(room, dtype=np.int64), np.empty(room)
    found, bits = np.empty(room, dtype=np.float32), noise.view(np.int64)
    for b in range(size):
        query, low, high = lay_out(queries[b]), banned_ends[b], banned_ends[b + 1]
        slack = code_error * np.sqrt(np.float64(_dot(queries[b], queries[b]))) * inverse_temperature
        coded = slack < _CODES_HELP
        scaled, offset = lay_out(code_step * queries[b]), _dot(code_low, queries[b])
        if not coded:
            slack = 0.0
        edge = edges[b]
        held = 0
        for j in range(hazards.shape[1]):
            if hazards[b, j] > 1e300:
                held += before[edge[j + 1]] - before[edge[j]]
        head = np.empty(held, dtype=np.int64)
        sums = np.empty(held)
        held, shift = 0, -np.inf
        for j in range(hazards.shape[1]):
            if hazards[b, j] > 1e300:
                for k in range(edge[j], edge[j + 1]):
                    for p in range(begins[k], begins[k] + before[k + 1] - before[k]):
                        if high > low and _held(banned, low, high, p):
                            continue
                        head[held] = p
                        sums[held] = dot(rows, p, query) * inverse_temperature
                        shift = max(shift, sums[held])
                        held += 1
        total = 0.0
        for j in range(held):
            total += np.exp(sums[j] - shift)
            sums[j] = total
        for s in range(draws):
            if held > 0:
                chosen = np.searchsorted(sums[:held], uniforms[b, s : s + 1] * total)[0]
                winning[b, s] = head[min(chosen, held - 1)]
                values[b, s] = shift + np.log(total) - np.log(exponentials[b, s, 0])
            m = _arrivals(begins, before, edge, hazards[b], exponentials[b, s], 1, positions, noise)
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
    _scores(rows, positions[:m], lay_out(query), np.float32(0.0), found)
    logits, values = np.empty(m), np.empty(m)
    for j in range(m):
        logits[j] = found[j] * inverse_temperature
        values[j] = logits[j] - np.log(noise[j])
    return m, positions[:m], logits, values


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _most_picks(before: npt.NDArray[np.int64], low: int, high: int, rate: float, parts: int) -> int:
    return int(np.ceil((before[high] - before[low]) * rate)) // parts + 1


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _place(j: int, seed: np.uint64, stride: float) -> int:
    """A row of stretch j, by the j-th number of SplitMix64."""
    z = seed + np.uint64(j + 1) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    return int((j + np.float64(z >> np.uint64(11)) * 2.0**-53) * stride)


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _pick(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    low: int,
    high: int,
    rate: float,
    uniform: float,
    part: int,
    parts: int,
    positions: npt.NDArray[np.int64],
) -> int:
    """Fill in the picks of one bucket, segments `low` to `high`: how many."""
    if rate <= 0.0:
        return 0
    base, stride, seed = before[low], 1.0 / rate, np.uint64(uniform * 2.0**53)
    picks = int(np.ceil((before[high] - base) * rate))
    j, last = picks * part // parts, picks * (part + 1) // parts
    k, m = low, 0
    while k < high and j < last:
        end, shift = before[k + 1] - base, begins[k] - before[k] + base
        place = _place(j, seed, stride)
        while place < end and j < last:
            positions[m] = shift + place
            m += 1
            j += 1
            place = _place(j, seed, stride)
        k += 1
    return m


@njit(cache=True, nogil=True, fastmath=_EXACT)
def pick(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    buckets = rates.shape[0]
    room = 0
    for b in range(buckets):
        room += _most_picks(before, edges[b], edges[b + 1], rates[b], 1)
    positions, ends = np.empty(room, dtype=np.int64), np.zeros(buckets + 1, dtype=np.int64)
    m = 0
    for b in range(buckets):
        m += _pick(begins, before, edges[b], edges[b + 1], rates[b], uniforms[b], 0, 1, positions[m:])
        ends[b + 1] = m
    return positions[:m], ends


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
def weigh(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    coded: npt.NDArray[np.bool_],
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
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
]:
    size, buckets = rates.shape
    d = rows.shape[1]
    wide = d if features else 0
    picks = np.zeros((size, buckets), dtype=np.int64)
    plain, squares = np.zeros((size, buckets, 1 + wide)), np.zeros((size, buckets, 1 + wide))
    cross = np.zeros((size, buckets, wide))
    room = 0
    for q in range(size):
        for b in range(buckets):
            room = max(room, _most_picks(before, edges[q, b], edges[q, b + 1], rates[q, b], parts))
    positions = np.empty(room, dtype=np.int64)
    # Few at a time with features, so that rows are still in cache when their scores are known and they are summed.
    block = _SUMMED_AT_ONCE if features else _WEIGHED_AT_ONCE
    found, checked = np.empty(block, dtype=np.float32), np.empty(block // _CHECKED + 1, dtype=np.int64)
    weights, work, true = np.empty(block), np.empty(block), np.empty(block // _CHECKED + 1)
    for q in range(size):
        query, shift, low, high = lay_out(queries[q]), shifts[q], banned_ends[q], banned_ends[q + 1]
        scaled, offset = lay_out(code_step * queries[q]), _dot(code_low, queries[q])
        unread = int(uniforms[q, buckets] * _CHECKED)
        for b in range(buckets):
            inverse = 1.0 / max(rates[q, b], 1e-300)
            rough = coded[q] and rates[q, b] < 1.0
            segments = edges[q, b], edges[q, b + 1]
            picks[q, b] = _pick(begins, before, *segments, rates[q, b], uniforms[q, b], part, parts, positions)
            total, square, vector, vector_square, vector_cross = (
                0.0,
                0.0,
                plain[q, b, 1:],
                squares[q, b, 1:],
                cross[q, b],
            )
            for start in range(0, picks[q, b], block):
                some = positions[start : min(start + block, picks[q, b])]
                m = some.shape[0]
                if rough:
                    read = 0
                    for j in range(unread, m, _CHECKED):
                        checked[read] = some[j]
                        prefetch(rows, some[j])
                        read += 1
                    _scores(codes, some, scaled, offset, found)
                    _exp_all(found, m, inverse_temperature, shift, weights, work)
                    _scores(rows, checked[:read], query, np.float32(0.0), found)
                    _exp_all(found, read, inverse_temperature, shift, true, work)
                    for r in range(read):
                        j = unread + r * _CHECKED
                        weights[j] += _CHECKED * (true[r] - weights[j])
                else:
                    _scores(rows, some, query, np.float32(0.0), found)
                    _exp_all(found, m, inverse_temperature, shift, weights, work)
                unread = (unread - m) % _CHECKED
                if high > low:
                    for j in range(m):
                        if _held(banned, low, high, some[j]):
                            weights[j] = 0.0
                for j in range(m):
                    weight = weights[j] * inverse
                    total += weight
                    square += weight * weight
                for j in range(m if features else 0):
                    weight, p = weights[j] * inverse, some[j]
                    for c in range(d):
                        value = weight * rows[p, c]
                        vector[c] += value
                        vector_square[c] += value * value
                        vector_cross[c] += weight * value
            plain[q, b, 0], squares[q, b, 0] = total, square
    return picks, plain, squares, cross


@njit(cache=True, nogil=True, fastmath=_EXACT)
def spread(
    rates: npt.NDArray[np.float64],
    picks: npt.NDArray[np.int64],
    plain: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
    cross: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    size, buckets, width = plain.shape
    total, variance, covariance = np.zeros((size, width)), np.zeros((size, width)), np.zeros((size, width - 1))
    for q in range(size):
        for b in range(buckets):
            m = picks[q, b]
            centre = 1.0 / m if m > 1 else 0.0
            factor = (1.0 - rates[q, b]) * (m / (m - 1.0) if m > 1 else 1.0)
            for c in range(width):
                total[q, c] += plain[q, b, c]
                variance[q, c] += factor * (squares[q, b, c] - centre * plain[q, b, c] * plain[q, b, c])
            for c in range(width - 1):
                covariance[q, c] += factor * (cross[q, b, c] - centre * plain[q, b, 0] * plain[q, b, 1 + c])
        for c in range(width):
            variance[q, c] = max(variance[q, c], 0.0)  # equal weights have none, up to rounding
    return total, variance, covariance


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
