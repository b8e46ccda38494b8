"""How far a sketch may be off: the exact law of its error, for every row and every theta.

Let o be the unit residual of a row from the mean of its cell, P a random rotation, x any function of P o, and alpha the
cosine of x and P o. Rotations that fix o leave the law of P as it is; so, given P o, the part of P^T x orthogonal to o
points in a uniformly random direction. The estimate of o . theta by x is therefore off by

    sqrt(1 - alpha^2) / alpha  |theta without its part along o|  X,

where X is one coordinate of a uniformly random point of the unit sphere in d - 1 dimensions: (X + 1) / 2 has the law
Beta((d - 2) / 2, (d - 2) / 2), whatever the row, and whatever theta as long as it was chosen without knowledge of P.
The proof is in docs/theorem.md.
"""

from functools import lru_cache
from math import asin, expm1, inf, lgamma, log, pi, sqrt

import numpy as np

__all__ = ["LEAST_QUANTILE", "error_quantile", "error_tail"]

LEAST_QUANTILE = 2.0
"""Ceilings are never set lower than so many standard deviations above an estimate."""
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)


def error_tail(quantile: float, d: int, deviation: float = inf) -> float:
    """Pr(sqrt(d - 1) X > quantile) for quantile >= 0; or, with the standard deviation s of an error in nats, the mean
    of 1 - e^(-s (sqrt(d - 1) X - quantile)) where that is positive: the share of its mass that a row loses."""
    x = quantile / sqrt(max(d - 1, 1))
    if x >= 1 or d == 1:
        return 0.0
    if d == 2:  # the sphere is two points
        return 0.5 * (1.0 if deviation == inf else -expm1(-deviation * (1 - quantile)))
    # With x = sin(a) the density is proportional to cos(a)^(d - 3), which falls off within a few 1 / sqrt(d).
    low, high = asin(x), min(pi / 2, asin(x) + 40 / sqrt(d))
    angles = low + (high - low) / 2 * (_NODES + 1)
    log_total = 0.5 * log(pi) + lgamma((d - 2) / 2) - lgamma((d - 1) / 2)
    with np.errstate(divide="ignore"):
        density = np.exp((d - 3) * np.log(np.cos(angles)) - log_total)
    if deviation < inf:
        density *= -np.expm1(-deviation * np.maximum(sqrt(d - 1) * np.sin(angles) - quantile, 0.0))
    return float((high - low) / 2 * (_NODE_WEIGHTS @ density))


@lru_cache(maxsize=1024)
def error_quantile(delta: float, d: int, deviation: float = inf) -> float:
    """The smallest quantile, at least `LEAST_QUANTILE`, at which `error_tail` is at most delta."""
    low, high = 0.0, sqrt(max(d - 1, 1))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if error_tail(middle, d, deviation) > delta else (low, middle)
    return max(high * (1 + 1e-9), LEAST_QUANTILE)
