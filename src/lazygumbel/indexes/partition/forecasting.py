"""What thetas would find in an index, before it is built: by this codes are sized."""

from math import sqrt

import numpy as np
import numpy.typing as npt

from lazygumbel.indexes.partition.build import Assigned
from lazygumbel.indexes.partition.cost import Forecast

__all__ = ["forecast"]

_SCALE = 20.0
"""Norm of theta over temperature that codes are sized for by default, times the typical norm of a row."""
_STAND_INS, _THETAS = 1024, 64
"""Rows that tell how residuals lie, and thetas by which codes are sized."""


def forecast(
    assigned: Assigned,
    squares: npt.NDArray[np.float64],
    like: npt.NDArray[np.float32] | None,
    rng: np.random.Generator,
) -> Forecast:
    """What thetas like these would find: some rows tell how residuals lie, and stand in for thetas without any."""
    features, means, cell_of = assigned
    counts = np.bincount(cell_of).astype(np.float64)
    ids = np.sort(rng.choice(features.n, min(_STAND_INS, features.n), replace=False))
    rows = features.gather(ids).astype(np.float64)
    if like is None:
        thetas = rows[rng.permutation(len(rows))[:_THETAS]]
        typical = sqrt(float(counts @ squares) / features.n)
        thetas *= _SCALE / np.maximum(np.linalg.norm(thetas, axis=1) * typical, 1e-30)[:, None]
    else:
        thetas = like[rng.permutation(len(like))[:_THETAS]].astype(np.float64)
    residuals = rows - means[cell_of[ids]]
    size = max(float(np.einsum("nd,nd->", residuals, residuals)), 1e-30)
    spreads = np.sqrt(((residuals @ thetas.T) ** 2).sum(axis=0) / size)
    norms = np.sqrt(np.maximum(squares - np.einsum("cd,cd->c", means, means, dtype=np.float64), 1e-30))
    unit = float(np.median(np.linalg.norm(thetas, axis=1))) / sqrt(max(features.d - 1, 1))
    return Forecast.of(counts, thetas @ means.T.astype(np.float64), norms, spreads, unit)
