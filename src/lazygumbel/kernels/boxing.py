"""Kernels that return named tuples, for callers in Python.

To make a named tuple Numba runs Python code, and takes for granted that it does not fail: Ctrl-C in the midst of that
ends the process. So what crosses from compiled code has no names, and gets them here.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels import codes, contest, strata
from lazygumbel.kernels.decorators import exact_kernel
from lazygumbel.kernels.types import (
    Asked,
    Ceilings,
    Coded,
    Outlook,
    Race,
    Run,
    Sample,
    Stored,
    Theta,
    Weighed,
)

__all__ = ["enter", "prepare", "sample_to", "weigh_sample"]

_prepare, _enter, _sample_to, _weigh_sample = codes.prepare, contest.enter, strata.sample_to, strata.weigh_sample


@exact_kernel
def _unnamed(theta: Theta, ceilings: Ceilings, outlook: Outlook) -> tuple[Any, Any, Any]:
    return (
        (theta.laid_out, theta.cells, theta.norm, theta.scale),
        (
            ceilings.tables,
            ceilings.scores,
            ceilings.levels,
            ceilings.rights,
            ceilings.far,
            ceilings.centres,
            ceilings.spreads,
            ceilings.left,
            ceilings.power,
            ceilings.shift,
            ceilings.byte_error,
        ),
        (outlook.low, outlook.expected, outlook.high, outlook.best, outlook.spread, outlook.far),
    )


@exact_kernel
def _prepare_unnamed(
    coded: Coded, vector: npt.NDArray[np.float32], asked: Asked, power: float, seed: np.uint64
) -> tuple[Any, Any, Any]:
    theta, ceilings, outlook = _prepare(coded, vector, asked, power, seed)
    return _unnamed(theta, ceilings, outlook)


@exact_kernel
def _enter_unnamed(
    stored: Stored,
    asked: Asked,
    vector: npt.NDArray[np.float32],
    seed: np.uint64,
    race: Race,
    claims: npt.NDArray[np.int64],
) -> tuple[Any, Any, Any]:
    theta, ceilings, outlook = _enter(stored, asked, vector, seed, race, claims)
    return _unnamed(theta, ceilings, outlook)


@exact_kernel
def _sample_to_unnamed(
    run: Run, unit: float, rules: tuple[float, float, tuple[float, float]], seeds: npt.NDArray[np.uint64]
) -> tuple[Any, ...]:
    sample = _sample_to(run, unit, rules, seeds)
    return sample.positions, sample.logits, sample.ratios, sample.widths


@exact_kernel
def _weigh_sample_unnamed(
    ratios: npt.NDArray[np.float64], widths: npt.NDArray[np.float32], unit: float
) -> tuple[float, float, float, float, float]:
    found = _weigh_sample(ratios, widths, unit)
    return found.mean, found.spread, found.variance, found.allowed, found.expected


def prepare(
    coded: Coded, vector: npt.NDArray[np.float32], asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, Outlook]:
    """See `reference`; so the others."""
    theta, ceilings, outlook = _prepare_unnamed(coded, vector, asked, power, seed)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


def enter(
    stored: Stored,
    asked: Asked,
    vector: npt.NDArray[np.float32],
    seed: np.uint64,
    race: Race,
    claims: npt.NDArray[np.int64],
) -> tuple[Theta, Ceilings, Outlook]:
    theta, ceilings, outlook = _enter_unnamed(stored, asked, vector, seed, race, claims)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


def sample_to(
    run: Run, unit: float, rules: tuple[float, float, tuple[float, float]], seeds: npt.NDArray[np.uint64]
) -> Sample:
    return Sample(*_sample_to_unnamed(run, unit, rules, seeds))


def weigh_sample(ratios: npt.NDArray[np.float64], widths: npt.NDArray[np.float32], unit: float) -> Weighed:
    return Weighed(*_weigh_sample_unnamed(ratios, widths, unit))
