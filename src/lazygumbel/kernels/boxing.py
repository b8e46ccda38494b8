"""Kernels whose named tuples cross to Python and back.

Those that are handed on as they are, what an index holds and the room of a race, are packed: see `packed`. To make a
named tuple Numba runs Python code, and takes for granted that it does not fail: Ctrl-C in the midst of that ends the
process. So what comes back from compiled code has no names, and gets them here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.kernels import codes, contest, strata, top
from lazygumbel.kernels.batches import Batch, Found, Sample, Sampled, SampleEstimate, Wanted
from lazygumbel.kernels.decorators import door, exact_kernel
from lazygumbel.kernels.packed import pack_race, pack_stored, pack_workspaces, read_race, read_stored
from lazygumbel.kernels.types import Asked, Ceilings, Coded, Outlook, Race, Run, Stored, Theta, Workspaces

__all__ = [
    "enter",
    "estimate_from_sample",
    "open_race",
    "pack_race",
    "pack_stored",
    "pack_workspaces",
    "prepare",
    "race_thetas",
    "sample_theta",
    "sample_to",
    "top_theta",
]

_Seeds = npt.NDArray[np.uint64]
_NOBODY: Ints = np.empty(0, dtype=np.int64)
_Rules = tuple[float, float, tuple[float, float]]
_prepare, _sample_to, _estimate_from_sample = map(door, (codes.prepare, strata.sample_to, strata.estimate_from_sample))
_inner_open, _inner_enter = contest.open_race, contest.enter


@exact_kernel
def _open_race(stored: Ints, excluded: Ints, race: Ints) -> None:
    _inner_open(read_stored(stored), excluded, read_race(race))


@exact_kernel
def _enter(stored: Ints, asked: Asked, vector: Vectors, seed: np.uint64, race: Ints, mailbox: Ints) -> Any:
    return _inner_enter(read_stored(stored), asked, vector, seed, read_race(race), mailbox)


def prepare(
    coded: Coded, vector: Vectors, asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, Outlook]:
    """See `reference`; so the others."""
    theta, ceilings, outlook = _prepare(coded, vector, asked, power, seed)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


def open_race(stored: Stored, excluded: Ints, race: Race) -> None:
    _open_race(stored.words, excluded, race.words)


def enter(
    stored: Stored, asked: Asked, vector: Vectors, seed: np.uint64, race: Race, mailbox: Ints
) -> tuple[Theta, Ceilings, Outlook]:
    theta, ceilings, outlook = _enter(stored.words, asked, vector, seed, race.words, mailbox)
    return Theta(*theta), Ceilings(*ceilings), Outlook(*outlook)


def race_thetas(
    stored: Sequence[Stored],
    asked: Asked,
    batch: Batch,
    thetas: tuple[int, int],
    workspaces: Sequence[Workspaces],
    mailbox: Ints,
    wanted: Wanted,
    found: Found,
) -> int:
    return contest.race_thetas(_words(stored), asked, batch, thetas, _words(workspaces), mailbox, wanted, found)


def _words(packed: Sequence[Stored] | Sequence[Workspaces]) -> Ints:
    return packed[0].words[None] if len(packed) == 1 else np.array([one.words for one in packed])


def sample_theta(
    stored: Stored, asked: Asked, theta: tuple[Vectors, Ints], seeds: _Seeds, race: Race, mailbox: Ints, rules: _Rules
) -> Sampled:
    sample, estimate, norm = strata.sample_theta(stored.words, asked, theta, seeds, race.words, mailbox, rules)
    return Sampled(Sample(*sample), SampleEstimate(*estimate), norm)


def top_theta(stored: Stored, asked: Asked, vector: Vectors, k: int, race: Race, mailbox: Ints) -> tuple[Ints, int]:
    return top.top_theta(stored.words, asked, vector, k, race.words, mailbox)


def sample_to(run: Run, rules: _Rules, seeds: _Seeds) -> Sample:
    return Sample(*_sample_to(run, rules, seeds, _NOBODY))


def estimate_from_sample(ratios: Floats, deviations: Vectors) -> SampleEstimate:
    return SampleEstimate(*_estimate_from_sample(ratios, deviations))
