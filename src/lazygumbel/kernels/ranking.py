"""Compiled kernels that rank cells for a query."""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.block_dot import block_dot, lay_out_pairs
from lazygumbel.kernels.blocks import BLOCK
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.scoring import inner

__all__ = ["route", "survey", "survey_one"]

_EXACT: set[str] = set()
"""Where a sum rounded otherwise would fall on the other side of an integer."""
_RANK_BINS, _KEYS, _NOTHING = 2048, 2.0**24, 1e-18
_NEAREST = 6.1


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _tops(keys: npt.NDArray[np.int32], tops: npt.NDArray[np.int32]) -> int:
    """Fill in the largest of every 64 keys: most of them need not be looked at again. Returns the largest of all."""
    top = keys[0]
    for k in range(tops.shape[0]):
        best = keys[k * BLOCK]
        for c in range(k * BLOCK, min((k + 1) * BLOCK, keys.shape[0])):
            best = max(best, keys[c])
        tops[k] = best
        top = max(top, best)
    return top


@njit(cache=True, nogil=True, fastmath=_EXACT)
def route(
    routes: npt.NDArray[np.int8],
    step: float,
    centroids: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    size, cells = queries.shape[0], centroids.shape[0]
    out = np.empty((size, cells), dtype=np.float32)
    found, tops = np.empty(routes.shape[0] * BLOCK, dtype=np.int32), np.empty(routes.shape[0], dtype=np.int32)
    for b in range(size):
        short, unit = lay_out_pairs(queries[b], routes.shape[1])
        for k in range(routes.shape[0]):
            block_dot(routes, k, short, found)
        norm = np.sqrt(np.float64(inner(queries[b], queries[b])))
        least = _tops(found[:cells], tops) - int(_NEAREST * norm / unit)
        query, factor = lay_out(queries[b]), np.float32(step * unit)
        for c in range(cells):
            out[b, c] = np.float32(found[c]) * factor
        for k in range(tops.shape[0]):
            if tops[k] >= least:
                for c in range(k * BLOCK, min((k + 1) * BLOCK, cells)):
                    if found[c] >= least:
                        out[b, c] = dot(centroids, c, query)
    return out


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
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    size, cells = cosines.shape
    buckets = np.empty((size, cells), dtype=np.uint8)
    alignment, reach = np.empty(size, dtype=np.float32), np.full(size, -np.inf, dtype=np.float32)
    norms = np.empty(size)
    keys, tops = np.empty(cells, dtype=np.int32), np.empty(-(-cells // BLOCK), dtype=np.int32)
    bins = np.empty(cells, dtype=np.uint16)  # an index without a sign is quicker
    counts, bucket_of = np.empty(_RANK_BINS, dtype=np.int32), np.empty(_RANK_BINS, dtype=np.uint8)
    for b in range(size):
        # Keys are whole numbers because the largest of those is found several at once.
        norms[b] = np.sqrt(np.float64(inner(queries[b], queries[b])))
        unit = np.float32(_KEYS / norms[b] if norms[b] > _NOTHING else 0.0)
        for c in range(cells):
            keys[c] = np.int32(cosines[b, c] * unit)
        first, top = -1, _tops(keys, tops)
        for k in range(tops.shape[0]):
            if tops[k] == top:
                for c in range(k * BLOCK, min((k + 1) * BLOCK, cells)):
                    if keys[c] == top and (first < 0 or cosines[b, c] > cosines[b, first]):
                        first = c
        unit = np.float32(unit / largest if largest > _NOTHING else 0.0)
        for c in range(cells):
            keys[c] = np.int32((cosines[b, c] * scales[c]) * unit)
        bottom, top = keys[0], keys[0]
        for c in range(cells):
            bottom, top = min(bottom, keys[c]), max(top, keys[c])
        step = np.float32(_RANK_BINS - 2) / np.float32(max(top - bottom, 1))
        for c in range(cells):
            bins[c] = np.uint16(1 + np.int32(np.float32(np.int32(top) - keys[c]) * step))
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
        reach[b] += inner(code_low, queries[b])
    return buckets, alignment, reach, norms


@njit(cache=True, nogil=True, fastmath=_EXACT)
def survey_one(
    routes: npt.NDArray[np.int8],
    step: float,
    centroids: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    largest: float,
    offsets: npt.NDArray[np.int64],
    bucket_edges: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    cosines = route(routes, step, centroids, queries)
    return survey(codes, code_low, code_step, queries, cosines, scales, largest, offsets, bucket_edges)
