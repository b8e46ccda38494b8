"""Kernels that return named tuples, for callers in Python.

To make a named tuple Numba runs Python code, and takes for granted that it does not fail: Ctrl-C in the midst of that
ends the process. So what crosses from compiled code has no names, and gets them here.
"""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels import codes, contest, strata
from lazygumbel.kernels.types import Asked, Ceilings, Coded, Outlook, Race, Run, Sample, Stored, Theta, Weighed

__all__ = ["enter", "prepare", "sample_to", "weigh_sample"]


def prepare(
    coded: Coded, vector: npt.NDArray[np.float32], asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, Outlook]:
    """See `reference`; so the others."""
    theta, ceilings, outlook = codes.prepare(coded, vector, asked, power, seed)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


def enter(
    stored: Stored,
    asked: Asked,
    vector: npt.NDArray[np.float32],
    seed: np.uint64,
    race: Race,
    claims: npt.NDArray[np.int64],
) -> tuple[Theta, Ceilings, Outlook]:
    theta, ceilings, outlook = contest.enter(stored, asked, vector, seed, race, claims)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


def sample_to(
    run: Run, unit: float, rules: tuple[float, float, tuple[float, float]], seeds: npt.NDArray[np.uint64]
) -> Sample:
    return Sample(*strata.sample_to(run, unit, rules, seeds))


def weigh_sample(ratios: npt.NDArray[np.float64], widths: npt.NDArray[np.float32], unit: float) -> Weighed:
    return Weighed(*strata.weigh_sample(ratios, widths, unit))
