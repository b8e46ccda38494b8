"""What kernels are asked: how sure the ceilings of a theta are to be, and what they may cost."""

from functools import lru_cache
from math import inf, log, sqrt

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.indexes.partition.calibration import Calibration
from lazygumbel.indexes.partition.cost import BY_BYTES, FOR_TOP, Effort, for_draws
from lazygumbel.indexes.partition.law import error_quantile, quantile_table
from lazygumbel.kernels.types import DEVIATIONS, LN2, Asked

__all__ = ["MISSED", "ask_best", "ask_draws", "ask_estimate"]

MISSED = 1e-4
"""Probability that one of the best rows is missed."""
_ROUNDING_SHARE = 0.1
"""Share of a probability that is kept for the rounding of lookup tables."""
_EVERYTHING, _NO_QUANTILES = np.array([[-inf] * 3, [inf] * 3]), np.zeros(DEVIATIONS)


def ask_draws(
    shape: tuple[int, tuple[int, int]], temperature: float, delta: float, size: int, calibration: Calibration | None
) -> Asked:
    """For `size` draws of a theta from rows of some length, with some codes in each part.

    What rows lose to ceilings that are too low is at most `delta` of Z, on average over rotations; nothing with zero,
    when ceilings are by bytes. With a calibration, far cells of thetas that it covers have one ceiling each and are out
    of that account.
    """
    (d, parts), scale = shape, 1 / (LN2 * temperature)
    if delta == 0.0:
        return Asked(scale, _NO_QUANTILES, 0.0, 0.0, *BY_BYTES, _EVERYTHING)
    quantiles, effort = quantile_table((1 - _ROUNDING_SHARE) * delta, d), for_draws(d, parts, size)
    far, known = 0.0, _EVERYTHING
    if calibration is not None:
        far, known = calibration.far, calibration.known
    return Asked(scale, quantiles, _rounding(delta), far, *effort, known)


def ask_estimate(temperature: float, effort: Effort) -> Asked:
    """For estimates in place of ceilings: weights that rows may be sampled by."""
    return Asked(1 / (LN2 * temperature), _NO_QUANTILES, 0.0, 0.0, *effort, _EVERYTHING)


def ask_best(d: int, width: float) -> Asked:
    """For the best rows, of which a typical one has this width; of a vector of norm one in the coordinates of codes."""
    # Any temperature will do; at this one a scan tells rows apart well, and all of them are in its range.
    scale = sqrt(max(d - 1, 1)) / (LN2 * width)
    return Asked(scale, _for_best(d), _rounding(MISSED / 2), 0.0, *FOR_TOP, _EVERYTHING)


@lru_cache(maxsize=64)
def _for_best(d: int) -> Floats:
    missed = MISSED / 2  # by the first part of codes, and by all
    return np.full(DEVIATIONS, error_quantile((1 - _ROUNDING_SHARE) * missed, d))


def _rounding(probability: float) -> float:
    """How far the sum of so many uniform roundings of one step each goes, over their root: the moments of each are
    below those of a normal number of variance 1/12."""
    return sqrt(-log(_ROUNDING_SHARE * probability) / 6)
