"""How far draws are from a law, in units in which right ones are at most about five."""

import numpy as np

from lazygumbel._support.arrays import Floats, Ints

__all__ = ["LIMIT", "of_ids", "of_means", "of_values"]


LIMIT = 5.5
"""Standard deviations: right draws exceed it once in some ten millions of tests."""
_EXPECTED = 20.0
"""Draws that a bin expects at least."""


def of_ids(ids: Ints, probabilities: Floats) -> float:
    """Standard deviations of chi square, by the approximation of Wilson and Hilferty; infinite for what cannot be.

    Rows are taken by falling probability, so many together that each bin expects twenty draws or more.
    """
    if (probabilities[ids] == 0.0).any():
        return np.inf
    order = np.argsort(-probabilities, kind="stable")[: np.count_nonzero(probabilities)]
    means, starts, held = probabilities[order] * len(ids), [0], 0.0
    for i, mean in enumerate(means.tolist()):
        if held >= _EXPECTED:
            starts.append(i)
            held = 0.0
        held += mean
    starts = starts[:-1] if held < _EXPECTED and len(starts) > 1 else starts
    expected = np.add.reduceat(means, starts)
    observed = np.add.reduceat(np.bincount(ids, minlength=len(probabilities))[order], starts)
    degrees = len(expected) - 1
    if not degrees:
        return 0.0
    statistic = float((np.square(observed - expected) / expected).sum())
    ninth = 2 / (9 * degrees)
    return float((np.cbrt(statistic / degrees) - (1 - ninth)) / np.sqrt(ninth))


def of_values(values: Floats, log_z: float) -> float:
    """Of values against Gumbel(log Z): the statistic of Kolmogorov and Smirnov, so that `LIMIT` is as rare."""
    law = np.sort(np.exp(-np.exp(np.clip(log_z - values.reshape(-1), -700, 700))))
    ranks = np.arange(len(law) + 1) / len(law)
    distance = max(float((law - ranks[:-1]).max()), float((ranks[1:] - law).max()))
    return 2.0 * distance * float(np.sqrt(len(law)))  # P(sqrt(n) distance > x) = 2 exp(-2 x^2), about that of 2 x


def of_means(errors: Floats, floor: float) -> float:
    """Of the mean of independent errors that should be zero, up to `floor`."""
    stderr = float(errors.std(ddof=1)) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0
    return float(abs(errors.mean()) / (stderr + floor))
