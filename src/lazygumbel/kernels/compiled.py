"""The kernels in Numba. Same signatures and results as `reference`.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process.
Parallelism is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["gather_dot", "score_ranges"]

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
