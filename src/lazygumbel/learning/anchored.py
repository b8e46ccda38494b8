"""`Anchored`: E[phi] from a sample at an earlier theta, where all rows were scored. What `fit` uses by default."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_count, check_number
from lazygumbel.features import Features
from lazygumbel.threads import map_threads

__all__ = ["Anchor", "Anchored", "softmax"]

Floats = npt.NDArray[np.float64]

_BLOCK_BYTES = 2**20
"""Rows that a dense pass reads from memory once, and again from cache; BLAS starts no threads for so few."""
_BLOCKS_AT_ONCE = 8


@dataclass(frozen=True)
class Anchored:
    """E[phi] from a sample of the softmax at an earlier theta, the anchor, where E[phi] is known exactly.

    Between there and here each of `size` draws changes its weight by the ratio of the two softmaxes, and the exact
    E[phi] of the anchor moves by as much as the sample's does: E_a + E'[phi | here] - E'[phi | anchor]. No logit has
    moved by more than `reach`, or a dense pass drops a new anchor here; so no probability has grown by more than a
    factor of exp(2 reach) since all rows were scored. Steps longer than the reach are exact ones, and where learning
    slows down, one dense pass serves hundreds of steps.
    """

    size: int = 2000
    reach: float = 2.0

    def __post_init__(self) -> None:
        check_count(self.size, "size")
        check_number(self.reach, "reach", least=0.0)


@dataclass(frozen=True, eq=False)
class Anchor:
    """A theta at which all rows were scored, E[phi] there, and the distinct rows of a sample with their shares."""

    theta: Floats
    iteration: int
    mean: Floats
    rows: Floats
    shares: Floats

    @classmethod
    def drop(
        cls, features: Features, theta: Floats, temperature: float, size: int, iteration: int, seed: Sequence[int]
    ) -> "Anchor":
        """One dense pass, and draws by systematic sampling: rows are stored by cell, so these spread over cells."""
        weights, mean = softmax(features, theta, temperature)
        cumulative = np.cumsum(weights, dtype=np.float64)
        offset = np.random.default_rng([*seed, iteration]).random()
        targets: Floats = (np.arange(size) + offset) * (cumulative[-1] / size)
        drawn = cumulative.searchsorted(targets, side="right")
        positions, counts = np.unique(np.minimum(drawn, len(weights) - 1), return_counts=True)
        return cls(theta, iteration, mean, features.stored[positions].astype(np.float64), counts / size)

    def mean_at(self, theta: Floats, temperature: float) -> Floats:
        """E[phi] at another theta."""
        gains = self.rows @ ((theta - self.theta) / temperature)
        weights = self.shares * np.exp(gains - gains.max())
        return self.mean + (weights / weights.sum() - self.shares) @ self.rows


def softmax(features: Features, theta: Floats, temperature: float) -> tuple[npt.NDArray[np.float32], Floats]:
    """Weights proportional to the probabilities, (n,) in storage order, and E[phi]; memory is read once."""
    vector = theta.astype(np.float32)
    step = max(1, _BLOCK_BYTES // (4 * features.d))
    starts = range(0, features.n, step)
    weights = np.empty(features.n, dtype=np.float32)
    tops, sums = np.empty(len(starts)), np.empty((len(starts), features.d))

    def weigh(first: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for b, start in enumerate(starts[first : first + _BLOCKS_AT_ONCE], first):
                rows = np.ascontiguousarray(features.stored[start : start + step], dtype=np.float32)
                part = weights[start : start + step]
                np.dot(rows, vector, out=part)
                tops[b] = part.max()
                part -= np.float32(tops[b])
                part /= temperature
                np.exp(part, out=part)
                sums[b] = np.dot(part, rows)

    for _ in map_threads(weigh, range(0, len(starts), _BLOCKS_AT_ONCE)):
        pass
    scales = np.exp((tops - tops.max()) / temperature)
    weights *= np.repeat(scales.astype(np.float32), step)[: features.n]
    return weights, scales @ sums / weights.sum(dtype=np.float64)
