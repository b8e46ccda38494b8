"""Sixteen codewords for a few coordinates of a random direction.

Rotated residuals have coordinates that are nearly independent and normal, whatever the data. So one codebook serves all
of them: the 16 points of k-means on normal vectors. The fewer coordinates a nibble stands for, the finer the code.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

__all__ = ["COORDINATES", "codebook", "relative_error"]

COORDINATES = 1, 2, 3, 4, 5, 6, 8, 10, 12, 16
"""How many coordinates a nibble may stand for."""
_DISTORTIONS = 0.0096, 0.1076, 0.2352, 0.3411, 0.4305, 0.5032, 0.6022, 0.677, 0.7276, 0.791
"""Mean squared error of each of these codebooks."""
_WORDS, _SAMPLE, _ROUNDS = 16, 16384, 100


def relative_error(coordinates: int) -> float:
    """sqrt(1 - alpha^2) / alpha of a long row, where alpha is the cosine of the row and its code."""
    distortion = _DISTORTIONS[COORDINATES.index(coordinates)]
    return float(np.sqrt(distortion / (1 - distortion)))


@cache
def codebook(coordinates: int) -> npt.NDArray[np.float32]:
    """The codewords, (16, coordinates); always the same ones."""
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((_SAMPLE, coordinates))
    words = sample[:_WORDS].copy()
    for _ in range(_ROUNDS):
        nearest = (sample @ words.T - 0.5 * (words**2).sum(axis=1)).argmax(axis=1)
        counts = np.bincount(nearest, minlength=_WORDS)[:, None]
        sums = np.stack([np.bincount(nearest, column, minlength=_WORDS) for column in sample.T], axis=1)
        words = np.where(counts > 0, sums / np.maximum(counts, 1), words)
    found = words.astype(np.float32)
    found.flags.writeable = False
    return found
