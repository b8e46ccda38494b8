"""The Gumbel toolbox. Everything stays accurate for cutoffs from -700 to 700 and up to 10^12 variables.

A standard Gumbel has distribution function F(x) = exp(-exp(-x)). With E a standard exponential, -log E is Gumbel;
tails are best written in terms of the *rate* r = exp(-x), because 1 - F(x) = -expm1(-r) loses no digits when r is
tiny.
"""

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints

__all__ = ["cutoff_of_rate", "gumbel", "gumbel_above", "gumbel_max", "tail_count", "tail_probability"]


def gumbel(rng: np.random.Generator, shape: int | tuple[int, ...]) -> Floats:
    """Standard Gumbels."""
    return -np.log(rng.standard_exponential(shape))


def tail_probability(cutoff: npt.ArrayLike) -> Floats:
    """Pr(G > cutoff) = 1 - exp(-exp(-cutoff)), without cancellation."""
    with np.errstate(over="ignore", under="ignore"):
        return -np.expm1(-np.exp(-np.asarray(cutoff, dtype=np.float64)))


def cutoff_of_rate(rate: npt.ArrayLike) -> Floats:
    """The cutoff that a share `rate` of Gumbels exceeds: -log(-log(1 - rate)); rate 1 gives minus infinity."""
    with np.errstate(divide="ignore"):
        return -np.log(-np.log1p(-np.asarray(rate, dtype=np.float64)))


def gumbel_above(rng: np.random.Generator, cutoff: npt.ArrayLike, shape: int | tuple[int, ...] | None = None) -> Floats:
    """Gumbels conditioned to exceed `cutoff`, which broadcasts to `shape`.

    With r = exp(-cutoff) the exponential E = exp(-G) is conditioned below r: E = -log1p(u expm1(-r)), u uniform on (0,
    1]. For large cutoffs E is simply u r, computed in logs because r underflows; for very low ones the condition is
    idle.
    """
    low = np.asarray(cutoff, dtype=np.float64)
    uniform = 1.0 - rng.random(low.shape if shape is None else shape)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        exponential = -np.log1p(uniform * np.expm1(-np.exp(-low)))
        # Beyond 30, r < 1e-13 and -log1p(u expm1(-r)) = u r to every digit.
        values = np.where(low > 30.0, low - np.log(uniform), -np.log(exponential))
    return np.maximum(values, low)


def tail_count(rng: np.random.Generator, n: npt.ArrayLike, cutoff: npt.ArrayLike) -> Ints:
    """How many of n standard Gumbels exceed `cutoff`: Binomial(n, Pr(G > cutoff))."""
    return np.asarray(rng.binomial(np.asarray(n, dtype=np.int64), tail_probability(cutoff)), dtype=np.int64)


def gumbel_max(rng: np.random.Generator, log_n: npt.ArrayLike) -> Floats:
    """The maximum of n standard Gumbels, or of Gumbels with locations y_i: pass log n, or log sum exp(y_i)."""
    location = np.asarray(log_n, dtype=np.float64)
    return location + gumbel(rng, location.shape)
