"""Random numbers for kernels: by seed and number, so that they are the same whoever asks, and in whatever order."""

import numpy as np

from lazygumbel.kernels.decorators import part

__all__ = ["scramble", "uniform"]

_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@part
def scramble(seed: np.uint64, j: int) -> np.uint64:
    """The j-th number of SplitMix64."""
    z = seed + np.uint64(j + 1) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@part
def uniform(seed: np.uint64, j: int) -> float:
    """The same as a number between zero and one, neither included."""
    return (np.float64(np.int64(scramble(seed, j) >> np.uint64(12))) + 0.5) * 2.0**-52
