"""The kernels in NumPy: slow, obvious, and the specification of `compiled`."""

import numpy as np
import numpy.typing as npt

__all__ = ["gather_dot", "score_ranges"]


def gather_dot(
    rows: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int64],
    queries: npt.NDArray[np.float32],
    owner: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    """`rows[positions[j]] . queries[owner[j]]` for every j, shape (m,)."""
    return np.einsum("md,md->m", rows[positions], queries[owner])


def score_ranges(
    rows: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Positions and scores of all rows in the half-open ranges (start <= stop), range after range."""
    ranges: list[npt.NDArray[np.int64]] = [np.arange(a, b) for a, b in zip(starts, stops, strict=True)]
    positions = np.concatenate([np.arange(0), *ranges], dtype=np.int64)
    return positions, rows[positions] @ query
