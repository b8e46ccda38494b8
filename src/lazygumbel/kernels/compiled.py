"""The kernels in Numba. Same signatures and results as `reference`.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process.
Parallelism is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["bin_scores", "gather_dot", "look", "score_ranges", "winners"]

_FASTMATH = {"reassoc", "contract", "nsz"}


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
def look(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    thresholds: npt.NDArray[np.float32],
    hazards: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    cells, last = scores.shape[0], hazards.shape[0] - 1
    # Counting sort of the cells by bucket; most cells are in the last few.
    bucket_of = np.empty(cells, dtype=np.int64)
    starts = np.zeros(hazards.shape[0] + 1, dtype=np.int64)
    for c in range(cells):
        b = last
        while b > 0 and scores[c] >= thresholds[b - 1]:
            b -= 1
        bucket_of[c] = b
        starts[b + 1] += 1
    for b in range(hazards.shape[0]):
        starts[b + 1] += starts[b]
    ordered = np.empty(cells, dtype=np.int64)
    filled = starts[:-1].copy()
    for c in range(cells):
        ordered[filled[bucket_of[c]]] = c
        filled[bucket_of[c]] += 1

    # First where to look, then the inner products, then the noise: each a tight loop over what it needs.
    room = uniforms.shape[0]
    positions = np.empty(room, dtype=np.int64)
    buckets = np.empty(room, dtype=np.int64)
    used = 0
    m = 0
    for b in range(hazards.shape[0]):
        hazard = hazards[b]
        if hazard <= 0.0:
            continue
        if hazard > 1e300:
            for k in range(starts[b], starts[b + 1]):
                for p in range(offsets[ordered[k]], offsets[ordered[k] + 1]):
                    if m >= room:
                        return -1, positions[:0], np.empty(0), np.empty(0), buckets[:0]
                    positions[m] = p
                    buckets[m] = b
                    m += 1
            continue
        if used >= exponentials.shape[0]:
            return -1, positions[:0], np.empty(0), np.empty(0), buckets[:0]
        skip = np.floor(exponentials[used] / hazard)
        used += 1
        for k in range(starts[b], starts[b + 1]):
            p, stop = offsets[ordered[k]], offsets[ordered[k] + 1]
            while skip < stop - p:
                p += int(skip)
                if m >= room or used >= exponentials.shape[0]:
                    return -1, positions[:0], np.empty(0), np.empty(0), buckets[:0]
                positions[m] = p
                buckets[m] = b
                m += 1
                p += 1
                skip = np.floor(exponentials[used] / hazard)
                used += 1
            skip -= stop - p

    logits = np.empty(m)
    for j in range(m):
        logits[j] = _dot(rows[positions[j]], query) * inverse_temperature
    shrink = -np.expm1(-hazards)
    values = np.empty(m)
    for j in range(m):
        values[j] = logits[j] - np.log(-np.log1p(-uniforms[j] * shrink[buckets[j]]))
    return m, positions[:m], logits, values, buckets[:m]


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def winners(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    thresholds: npt.NDArray[np.float32],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    size = queries.shape[0]
    positions = np.full(size, -1, dtype=np.int64)
    values = np.full(size, -np.inf)
    counts = np.zeros(size, dtype=np.int64)
    for b in range(size):
        m, seen, _, perturbed, _ = look(
            rows,
            offsets,
            scores[b],
            thresholds[b],
            hazards[b],
            queries[b],
            inverse_temperature,
            exponentials[b],
            uniforms[b],
        )
        counts[b] = m
        for j in range(m):
            if perturbed[j] > values[b]:
                values[b] = perturbed[j]
                positions[b] = seen[j]
    return positions, values, counts


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def bin_scores(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    bucket_of: npt.NDArray[np.int64],
    low: float,
    width: float,
    buckets: int,
    bins: int,
) -> npt.NDArray[np.int32]:
    counts = np.zeros((buckets, bins), dtype=np.int32)
    inverse, base, most = np.float32(1.0 / width), np.float32(low), bins - 1
    for c in range(bucket_of.shape[0]):
        b = bucket_of[c]
        for p in range(offsets[c], offsets[c + 1]):
            k = int(np.floor((scores[p] - base) * inverse))
            counts[b, min(max(k, 0), most)] += 1
    return counts
