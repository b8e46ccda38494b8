"""Moments of rows that are seen for certain, and of a batch from its thetas."""

import numpy as np
import numpy.typing as npt

from lazygumbel.methods.base import Function
from lazygumbel.results import Moments

__all__ = ["stack", "weigh"]


def weigh(ids: npt.NDArray[np.int64], logits: npt.NDArray[np.float64], f: Function | None) -> Moments:
    """Exact sums over the given rows of one theta, batch shape (); no rows, or none of weight, sum to zero."""
    shift = logits.max(initial=-np.inf)
    weights = np.exp(logits - (shift if np.isfinite(shift) else 0.0))
    total, zero = np.asarray(weights.sum()), np.zeros(())
    if f is None:
        return Moments(np.asarray(shift), total, zero)
    weighted = np.asarray(weights @ f(ids, logits))
    none = np.zeros_like(weighted)
    return Moments(np.asarray(shift), total, zero, weighted, none, none)


def stack(parts: list[Moments]) -> Moments:
    """Moments of shape () for each theta as one of shape (B,)."""

    def gather(values: list[npt.NDArray[np.float64] | None]) -> npt.NDArray[np.float64] | None:
        present = [v for v in values if v is not None]
        return np.stack(present) if present else None

    return Moments(
        np.array([p.shift for p in parts]),
        np.array([p.total for p in parts]),
        np.array([p.var_total for p in parts]),
        gather([p.weighted for p in parts]),
        gather([p.var_weighted for p in parts]),
        gather([p.covariance for p in parts]),
    )
