"""Statistics that the tests share: each helper returns a p-value, and leaves the judgement to the test."""

import numpy as np
import numpy.typing as npt
from scipy import stats

__all__ = ["chi_square_p"]


def chi_square_p(ids: npt.ArrayLike, probabilities: npt.ArrayLike, *, least: float = 20.0) -> float:
    """p-value of drawn ids against exact probabilities, float64; bins are merged so that each expects `least` draws.

    States are taken in increasing order of probability, so that only rare ones share a bin. A draw of a state of
    probability zero gives 0.
    """
    drawn = np.asarray(ids).reshape(-1)
    exact = np.asarray(probabilities, dtype=np.float64)
    counts = np.bincount(drawn, minlength=len(exact)).astype(np.float64)
    if len(counts) > len(exact) or counts[exact == 0].any():
        return 0.0
    order = np.argsort(exact, kind="stable")
    expected = exact[order] / exact.sum() * len(drawn)
    # Greedy merging: a bin closes as soon as it expects enough; what is left over joins the last one.
    starts, held = [0], 0.0
    for i, mean in enumerate(expected):
        if held >= least:
            starts.append(i)
            held = 0.0
        held += mean
    if held < least and len(starts) > 1:
        starts.pop()
    observed = np.add.reduceat(counts[order], starts)
    means = np.add.reduceat(expected, starts)
    if len(starts) == 1:
        return 1.0
    return float(stats.chi2.sf(((observed - means) ** 2 / means).sum(), len(starts) - 1))
