"""How far a sketch may be off: the exact law of its error, for every row and every theta.

Let o be the unit residual of a row from the mean of its cell, P a random rotation, x any function of P o, and alpha the
cosine of x and P o. Rotations that fix o leave the law of P as it is; so, given P o, the part of P^T x orthogonal to o
points in a uniformly random direction. The estimate of o . theta by x is therefore off by

    sqrt(1 - alpha^2) / alpha  |theta without its part along o|  X,

where X is one coordinate of a uniformly random point of the unit sphere in d - 1 dimensions: (X + 1) / 2 has the law
Beta((d - 2) / 2, (d - 2) / 2), whatever the row, and whatever theta as long as it was chosen without knowledge of P.
The proof is in docs/theorem.md.
"""

from functools import cache, lru_cache
from math import ceil, inf, lgamma, log, log2, pi, sqrt
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.kernels.types import DEVIATIONS, LEAST_DEVIATION, STEPS

__all__ = ["LEAST_QUANTILE", "error_quantile", "error_tail", "quantile_table"]


LEAST_QUANTILE = 2.0
"""Ceilings are never set lower than so many standard deviations above an estimate."""


@cache
def _gauss_legendre() -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(200)


def error_tail(quantile: Any, d: int, deviation: Any = inf) -> Any:
    """Pr(sqrt(d - 1) X > quantile) for quantile >= 0; or, with the standard deviation s of an error in nats, the mean
    of 1 - e^(-s (sqrt(d - 1) X - quantile)) where that is positive: the share of its mass that a row loses. Of numbers,
    or of arrays of one shape."""
    root = sqrt(max(d - 1, 1))
    quantile, deviation = np.asarray(quantile, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    if d == 1:
        return np.zeros_like(quantile)[()]
    if d == 2:  # the sphere is two points
        return np.where(quantile < 1, -0.5 * np.expm1(-_lost(deviation, 1 - quantile)), 0.0)[()]
    # With x = sin(a) the density is proportional to cos(a)^(d - 3), which falls off within a few 1 / sqrt(d).
    low = np.arcsin(np.minimum(quantile / root, 1.0))
    half = (np.minimum(pi / 2, low + 40 / sqrt(d)) - low) / 2
    nodes, weights = _gauss_legendre()
    angles = low[..., None] + half[..., None] * (nodes + 1)
    log_total = 0.5 * log(pi) + lgamma((d - 2) / 2) - lgamma((d - 1) / 2)
    with np.errstate(divide="ignore"):
        density = np.exp((d - 3) * np.log(np.cos(angles)) - log_total)
    excess = np.maximum(root * np.sin(angles) - quantile[..., None], 0.0)
    return (half * ((density * -np.expm1(-_lost(deviation[..., None], excess))) @ weights))[()]


def _lost(deviation: Floats, excess: Floats) -> Floats:
    """Nats that a row loses by so many standard deviations: all it has where these are infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(deviation < inf, deviation * excess, inf)


@lru_cache(maxsize=64)
def quantile_table(delta: float, d: int) -> Floats:
    """Quantiles for each standard deviation of the grid of `kernels.types`, and at the end for any."""
    first = ceil(STEPS * log2(LEAST_DEVIATION))
    found = _quantiles(delta, d, np.append(2.0 ** (np.arange(first, first + DEVIATIONS - 1) / STEPS), inf))
    found.flags.writeable = False
    return found


@lru_cache(maxsize=64)
def error_quantile(delta: float, d: int, deviation: float = inf) -> float:
    """The smallest quantile, at least `LEAST_QUANTILE`, at which `error_tail` is at most delta."""
    return float(_quantiles(delta, d, np.asarray(deviation)))


def _quantiles(delta: float, d: int, deviations: Floats) -> Floats:
    low, high = np.zeros_like(deviations), np.full_like(deviations, sqrt(max(d - 1, 1)))
    for _ in range(60):
        middle = (low + high) / 2
        too_low = error_tail(middle, d, deviations) > delta
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return np.maximum(high * (1 + 1e-9), LEAST_QUANTILE)
