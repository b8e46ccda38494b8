"""Compiled kernels that rank cells for queries, and say which line of a calibration a query takes."""

import numpy as np
import numpy.typing as npt
from numba import njit

from lazygumbel.kernels.block_dot import block_dot, lay_out_pairs
from lazygumbel.kernels.blocks import BLOCK
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.scoring import inner

__all__ = ["place", "survey"]

_EXACT: set[str] = set()
"""Where a sum rounded otherwise would fall on the other side of an integer."""
_RANK_BINS, _NEAREST = 2048, 6.1
_LOWEST = np.int32(-(2**31))
_QUERIES = 8
"""Queries that are multiplied with a block while it is in the cache."""


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _tops(keys: npt.NDArray[np.int32], cells: int, tops: npt.NDArray[np.int32]) -> int:
    """Fill in the largest key of every block: most blocks need not be looked at again. Returns the largest of all."""
    for c in range(cells, keys.shape[0]):
        keys[c] = _LOWEST
    top = keys[0]
    for k in range(tops.shape[0]):
        some = keys[k * BLOCK : (k + 1) * BLOCK]
        best = some[0]
        for j in range(some.shape[0]):  # with a number that is not known beforehand it becomes vector instructions
            best = max(best, some[j])
        tops[k] = best
        top = max(top, best)
    return top


@njit(cache=True, nogil=True, fastmath=_EXACT)
def survey(
    routes: npt.NDArray[np.int8],
    centroids: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    bucket_edges: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    size, cells, blocks = queries.shape[0], centroids.shape[0], routes.shape[0]
    buckets = np.empty((size, cells), dtype=np.uint8)
    alignment, reach = np.full((2, size), -np.inf, dtype=np.float32)
    norms = np.empty(size)
    together = min(size, _QUERIES)
    found, tops = np.empty((together, blocks * BLOCK), dtype=np.int32), np.empty(blocks, dtype=np.int32)
    pairs, units = np.empty((together, 2 * routes.shape[1]), dtype=np.int16), np.empty(together)
    bins = np.empty(cells, dtype=np.uint16)  # an index without a sign is quicker
    counts, bucket_of = np.empty(_RANK_BINS, dtype=np.int32), np.empty(_RANK_BINS, dtype=np.uint8)
    for start in range(0, size, _QUERIES):
        stop = min(start + _QUERIES, size)
        for b in range(start, stop):
            pairs[b - start], units[b - start] = lay_out_pairs(queries[b], routes.shape[1])
        for k in range(blocks):
            for j in range(stop - start):
                block_dot(routes, k, pairs[j], found[j])
        for b in range(start, stop):
            keys = found[b - start]
            norms[b] = np.sqrt(np.float64(inner(queries[b], queries[b])))
            least = _tops(keys, cells, tops) - int(_NEAREST * norms[b] / units[b - start])
            query, first = lay_out(queries[b]), 0
            for k in range(blocks):
                if tops[k] >= least:
                    for c in range(k * BLOCK, min((k + 1) * BLOCK, cells)):
                        if keys[c] >= least:
                            along = dot(centroids, c, query)
                            if along > alignment[b]:
                                alignment[b], first = along, c
            for c in range(scales.shape[0]):
                keys[c] = np.int32(np.float32(keys[c]) * scales[c])
            bottom, top = keys[0], keys[0]
            for c in range(cells):
                bottom, top = min(bottom, keys[c]), max(top, keys[c])
            width = np.float32(_RANK_BINS - 2) / np.float32(max(np.int64(top) - np.int64(bottom), 1))
            for c in range(cells):
                bins[c] = np.uint16(1 + np.int32((np.float32(top) - np.float32(keys[c])) * width))
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
            scaled = lay_out(code_step * queries[b])
            for p in range(offsets[first], offsets[first + 1]):
                reach[b] = max(reach[b], dot(codes, p, scaled))
            reach[b] += inner(code_low, queries[b])
    return buckets, alignment, reach, norms


@njit(cache=True, nogil=True, fastmath=_EXACT)
def place(
    norms: npt.NDArray[np.float64],
    alignment: npt.NDArray[np.float32],
    reach: npt.NDArray[np.float32],
    inverse_temperature: float,
    largest: float,
    ladder: npt.NDArray[np.float64],
    least_alignment: float,
    least_reach: float,
) -> npt.NDArray[np.int64]:
    rungs = ladder.shape[0]
    lines = np.zeros(norms.shape[0], dtype=np.int64)
    for b in range(norms.shape[0]):
        scale = norms[b] * inverse_temperature
        if not scale > 0.0:
            continue
        above = 0
        while above < rungs and ladder[above] < 0.99 * scale:
            above += 1
        if above == rungs:
            lines[b] = 3 * rungs - 2
            continue
        own = above == 0 or ladder[above] < 1.02 * scale
        lines[b] = above if own else rungs + above - 1
        if alignment[b] < least_alignment * norms[b] or reach[b] < least_reach * norms[b] * largest:
            lines[b] += 2 * rungs - 1
    return lines
