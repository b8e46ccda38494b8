"""Moments of rows that are seen for certain, and of a batch from its thetas."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.methods.base import Function, Phi
from lazygumbel.results import Moments

__all__ = ["WeightedSums", "concatenate", "stack", "weigh"]

Floats = npt.NDArray[np.float64]

_ROWS_AT_ONCE = 4096
"""So many values of f fit in cache."""


class WeightedSums(NamedTuple):
    """Sums over rows of w f, of (w f)^2 and of w^2 f, each of the shape of a value of f."""

    values: Floats
    squares: npt.NDArray[np.float64]
    cross: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls,
        f: Function,
        ids: npt.NDArray[np.int64],
        logits: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float64],
    ) -> "WeightedSums":
        """Some rows at a time: f may have many values for each. The features themselves are summed where they are."""
        if isinstance(f, Phi) and f.features.stored.dtype == np.float32 and f.features.stored.flags.c_contiguous:
            return cls(*kernels.sum_rows(f.features.stored, f.features.locate(ids), weights))
        cuts = [slice(a, a + _ROWS_AT_ONCE) for a in range(0, max(len(ids), 1), _ROWS_AT_ONCE)]
        parts: list[WeightedSums] = []
        for cut in cuts:
            w, values = weights[cut], f(ids[cut], logits[cut])
            squares = w * w
            parts.append(cls(np.asarray(w @ values), np.asarray(squares @ values**2), np.asarray(squares @ values)))
        return cls(*(np.sum(column, axis=0) for column in zip(*parts, strict=True)))


def weigh(ids: npt.NDArray[np.int64], logits: npt.NDArray[np.float64], f: Function | None) -> Moments:
    """Exact sums over the given rows of one theta, batch shape (); no rows, or none of weight, sum to zero."""
    shift = logits.max(initial=-np.inf)
    weights = np.exp(logits - (shift if np.isfinite(shift) else 0.0))
    total, zero = np.asarray(weights.sum()), np.zeros(())
    if f is None:
        return Moments(np.asarray(shift), total, zero)
    weighted = WeightedSums.of(f, ids, logits, weights).values
    none = np.zeros_like(weighted)
    return Moments(np.asarray(shift), total, zero, weighted, none, none)


def stack(parts: Sequence[Moments]) -> Moments:
    """Moments of shape () for each theta as one of shape (B,)."""
    return _joined(parts, np.stack)


def concatenate(parts: Sequence[Moments]) -> Moments:
    """Moments of shapes (B1,), (B2,) and so on as one."""
    return _joined(parts, np.concatenate)


def _joined(parts: Sequence[Moments], join: Callable[[list[Floats]], Floats]) -> Moments:
    if not parts:  # of no thetas
        return Moments(*np.empty((3, 0)))

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else join(values)

    return Moments(*(column(field.name) for field in fields(Moments)))
