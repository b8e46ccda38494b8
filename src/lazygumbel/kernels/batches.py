"""Thetas that kernels are asked about, and what they find: arrays under names."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Mask, Vectors

__all__ = [
    "DRAWN",
    "FAR",
    "LOOKED_AT",
    "TOO_LOW",
    "Batch",
    "Few",
    "Fired",
    "Found",
    "Proposals",
    "Sample",
    "SampleEstimate",
    "Sampled",
    "Wanted",
]


class Batch(NamedTuple):
    """Thetas that are asked for over the rows of some parts, and what differs between them."""

    thetas: Vectors
    """(B, d)"""
    seeds: npt.NDArray[np.uint64]
    """For the rounding of tables, for the race, and for what kernels may leave undone, (P, B, 3)."""
    excluded: Ints
    """Slots, in every part, of rows that may not be drawn, those of theta b up to ends[b]."""
    ends: Ints
    """(B,), or empty if nothing is excluded."""


class Wanted(NamedTuple):
    """What is asked of the races of a batch."""

    size: int
    """Rows to draw of each theta and from every part, if there are as many; one more if they are to be distinct."""
    distinct: bool
    live: int
    """Rows that can be drawn, those excluded among them."""
    patience: int
    """Proposals that may be refused before a race is broken off."""


DRAWN, LOOKED_AT, TOO_LOW, FAR = range(4)
"""Entries of `Found.counts`: draws made, rows scored, ceilings found too low, whether cells may have one ceiling."""


class Found(NamedTuple):
    """What races of a batch found in each part; a race with too few draws was broken off."""

    positions: Ints
    """(P, B, size)"""
    values: Floats
    """Perturbed logits, (P, B, size); minus infinity where there are no more rows."""
    passed: Floats
    """Logarithm of the time since the last of them, (P, B)."""
    counts: Ints
    """See the constants, (4, P, B)."""

    @classmethod
    def allocate(cls, parts: int, thetas: int, size: int) -> "Found":
        """For so many parts, thetas and draws."""
        shape = parts, thetas, size
        positions, values = np.zeros(shape, dtype=np.int64), np.empty(shape)
        return cls(positions, values, np.empty(shape[:2]), np.zeros((4, *shape[:2]), dtype=np.int64))


class Few(NamedTuple):
    """Thetas over rows so few that every one is scored."""

    rows: Vectors
    """(m, d)"""
    dead: Mask
    """Which of them may not be drawn: not all, (m,)."""
    thetas: Vectors
    """(B, d)"""
    scale: float
    """Inner products times this are logits, natural ones."""
    seeds: npt.NDArray[np.uint64]
    """(B,)"""


class Fired(NamedTuple):
    """Of each draw what fired first, in whichever part."""

    parts: Ints
    """(B, size)"""
    positions: Ints
    """(B, size)"""
    values: Floats
    """Perturbed logits, (B, size)."""
    rows: Ints
    """Scored in all parts, (B,)."""
    violations: Ints
    """Ceilings found too low, (B,)."""
    undone: Mask
    """Whether some race was broken off, so that the first is not known, (B,)."""

    @classmethod
    def allocate(cls, thetas: int, size: int) -> "Fired":
        """For so many thetas and draws."""
        parts, positions = np.empty((2, thetas, size), dtype=np.int64)
        rows, violations = np.zeros((2, thetas), dtype=np.int64)
        return cls(parts, positions, np.empty((thetas, size)), rows, violations, np.zeros(thetas, dtype=np.bool_))


class Sample(NamedTuple):
    """Rows chosen for a sum, each array (rows,)."""

    positions: Ints
    logits: Floats
    ratios: Floats
    """exp2(logit) over the ceiling."""
    deviations: Vectors
    """Standard deviations of estimates in their groups, in nats, by what ceilings are known by."""

    @classmethod
    def empty(cls, count: int) -> "Sample":
        """Room for so many rows."""
        return cls(np.empty(count, dtype=np.int64), np.empty(count), np.empty(count), np.empty(count, dtype=np.float32))


class SampleEstimate(NamedTuple):
    """What a sample tells of a sum."""

    mean: float
    """Of the ratios."""
    relative_variance: float
    """Their relative variance."""
    variance: float
    """Of the mean, within pairs."""
    allowed: float
    """What the law of the codes allows the relative error of a sum from one row."""
    expected: float
    """What it expects of the relative variance."""


class Sampled(NamedTuple):
    """A sample for the sums of one theta; without rows if these are to be summed densely."""

    sample: Sample
    estimate: SampleEstimate
    norm: float
    """Of theta."""


class Proposals(NamedTuple):
    """Some rows that fired, each array (proposals,)."""

    blocks: Ints
    """-1 for a certain row."""
    lanes: Ints
    """In its block, or the number of a certain row; -1 where there is none."""
    positions: Ints
    ceilings: Floats
