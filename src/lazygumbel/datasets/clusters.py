"""`synthetic`: made-up rows with the shape of the paper's ImageNet features.

The coordinates are those of a PCA: the variance of coordinate j falls as 1/j, the slow power law of image features.
Cluster sizes fall as a power of their rank. A row is its cluster's centre plus noise, both normal with that spectrum,
scaled to length one. How much of its variance is the centre's differs between clusters: it is about the cosine between
two rows of the same one.
"""

import numpy as np

from lazygumbel._support.checks import check_count
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.rows.features import Features

__all__ = ["synthetic"]

_SIZE_DECAY = 0.8
_CLOSENESS = (0.6, 0.9)
"""The least and the most of the variance that is the centre's; uniform over clusters."""

_BLOCK_ROWS = 4096


def synthetic(
    n: int = 1_281_167,
    d: int = 256,
    *,
    clusters: int = 1000,
    rng: np.random.Generator | int | None = None,
    progress: ShowProgress = None,
) -> Features:
    """Clustered rows of length one, (n, d).

    Row i depends on the seed, `d` and `clusters` alone: fewer rows are the first of more.
    """
    n, d, clusters = check_count(n, "n"), check_count(d, "d"), check_count(clusters, "clusters")
    generator = np.random.default_rng(rng)
    # A stream for each kind of draw, each read row by row: so a row does not depend on the size of the blocks.
    picks, noise = generator.spawn(2)
    spectrum = np.arange(1, d + 1) ** -0.5
    spectrum = (spectrum / np.linalg.norm(spectrum)).astype(np.float32)
    closeness = generator.uniform(*_CLOSENESS, size=(clusters, 1)).astype(np.float32)
    centres = generator.standard_normal((clusters, d), dtype=np.float32) * spectrum * np.sqrt(closeness)
    deviation = np.sqrt(1 - closeness)
    edges = np.cumsum(np.arange(1, clusters + 1) ** -_SIZE_DECAY)
    edges /= edges[-1]

    rows = np.empty((n, d), dtype=np.float32)
    with choose(progress).task("making rows", n) as task:
        for start in range(0, n, _BLOCK_ROWS):
            block = rows[start : start + _BLOCK_ROWS]
            cluster = edges.searchsorted(picks.random(len(block)))
            noise.standard_normal(dtype=np.float32, out=block)
            block *= spectrum * deviation[cluster]
            block += centres[cluster]
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            task.advance(len(block))
    return Features.of(rows)
