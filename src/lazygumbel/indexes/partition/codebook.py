"""Sixty-four codewords for a few coordinates of a random direction.

Rotated residuals have coordinates that are nearly independent and normal, whatever the data. So one codebook serves all
of them: the 64 points of k-means on normal vectors. The fewer coordinates a code stands for, the finer the code.
"""

from functools import cache

import numpy as np

from lazygumbel._support.arrays import Vectors
from lazygumbel.kernels.types import WORDS

__all__ = ["COORDINATES", "codebook", "distortion", "relative_error"]

COORDINATES = 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24
"""How many coordinates a code may stand for."""
_DISTORTIONS = 0.0017, 0.0305, 0.104, 0.1876, 0.2661, 0.3366, 0.4471, 0.5309, 0.5947, 0.6839, 0.7401, 0.7809
"""Mean squared error of each of these codebooks."""
_SAMPLE, _ROUNDS = 16384, 40


def distortion(coordinates: int) -> float:
    """Mean squared error of codewords for so many coordinates of unit variance."""
    return _DISTORTIONS[COORDINATES.index(coordinates)]


def relative_error(distorted: float) -> float:
    """sqrt(1 - alpha^2) / alpha of a long row, where alpha is the cosine of the row and its code."""
    return float(np.sqrt(distorted / (1 - distorted)))


@cache
def codebook(coordinates: int) -> Vectors:
    """The codewords, (64, coordinates); always the same ones."""
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((_SAMPLE, coordinates))
    words = sample[:WORDS].copy()
    for _ in range(_ROUNDS):
        nearest = (sample @ words.T - 0.5 * (words**2).sum(axis=1)).argmax(axis=1)
        counts = np.bincount(nearest, minlength=WORDS)[:, None]
        sums = np.stack([np.bincount(nearest, column, minlength=WORDS) for column in sample.T], axis=1)
        words = np.where(counts > 0, sums / np.maximum(counts, 1), words)
    found = words.astype(np.float32)
    found.flags.writeable = False
    return found
