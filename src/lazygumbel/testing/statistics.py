"""How far draws are from a law, in units in which right ones are at most about five."""

from math import exp, inf
from statistics import NormalDist

import numpy as np

from lazygumbel._support.arrays import Floats, Ints

__all__ = ["LIMIT", "of_ids", "of_means", "of_values"]


LIMIT = 5.5
"""Standard deviations: right draws exceed it once in some ten millions of tests."""
_EXPECTED = 20.0
"""Draws that a bin expects at least."""


def of_ids(ids: Ints, probabilities: Floats) -> float:
    """Standard deviations of chi square, by the approximation of Wilson and Hilferty; infinite for what cannot be.

    Rows are taken by falling probability, so many together that each bin expects twenty draws or more. The rarest rows,
    which expect less together, are also judged alone, or a heavy bin would hide draws of what should never occur.
    """
    if (probabilities[ids] == 0.0).any():
        return inf
    order = np.argsort(-probabilities, kind="stable")[: np.count_nonzero(probabilities)]
    means, starts, held = probabilities[order] * len(ids), [0], 0.0
    for i, mean in enumerate(means.tolist()):
        if held >= _EXPECTED:
            starts.append(i)
            held = 0.0
        held += mean
    counts, rare = np.bincount(ids, minlength=len(probabilities))[order], -inf
    if held < _EXPECTED and len(starts) > 1:
        rare = _too_many(int(counts[starts[-1] :].sum()), held)
        starts.pop()
    expected, observed = np.add.reduceat(means, starts), np.add.reduceat(counts, starts)
    degrees = len(expected) - 1
    if not degrees:
        return max(rare, 0.0)
    statistic = float((np.square(observed - expected) / expected).sum())
    ninth = 2 / (9 * degrees)
    return max(rare, float((np.cbrt(statistic / degrees) - (1 - ninth)) / np.sqrt(ninth)))


def _too_many(count: int, mean: float) -> float:
    """Standard deviations of so many events where some are expected, as rare as by the law of Poisson."""
    chance, fewer = exp(-mean), 0.0
    for k in range(count):
        fewer, chance = fewer + chance, chance * mean / (k + 1)
    return -NormalDist().inv_cdf(1 - fewer) if 0.0 < fewer < 1.0 else inf if count else -inf


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
