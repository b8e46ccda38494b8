"""`Anchored`: E[phi] from a sample at an earlier theta, where E[phi] is known well. What `fit` uses by default."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Vectors
from lazygumbel._support.checks import check_count, check_number
from lazygumbel._support.threads import map_threads
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods import Exhaustive, Query
from lazygumbel.methods.sums import sample_softmax
from lazygumbel.protocols import Model
from lazygumbel.rows.features import Features

__all__ = ["Anchor", "Anchored", "softmax"]


_BLOCK_BYTES = 2**20
"""Rows that a dense pass reads from memory once, and again from cache; BLAS starts no threads for so few."""
_BLOCKS_AT_ONCE = 8
_ROWS_AN_ENTRY = 256
"""Of an anchor by a scan: m rows leave an error that costs d / (2 m) of the log-likelihood, here 0.002."""
_SAMPLED_SHARE = 0.1
"""Of the rows: a larger sample takes as long as a dense pass."""


@dataclass(frozen=True)
class Anchored:
    """E[phi] from a sample of the softmax at an earlier theta, the anchor, where E[phi] is known well.

    Between there and here each of `size` draws changes its weight by the ratio of the two softmaxes, and E[phi] of the
    anchor moves by as much as the sample's does: E_a + E'[phi | here] - E'[phi | anchor]. No logit has moved by more
    than `reach`, or a new anchor is dropped here; so no probability has grown by more than a factor of exp(2 reach)
    since. Over a `PartitionIndex` an anchor is a scan and 256 rows for each entry of theta, whose error costs about
    0.002 of the log-likelihood; over other indexes, over shards, and where codes cannot tell, a dense pass.
    """

    size: int = 2000
    reach: float = 2.0

    def __post_init__(self) -> None:
        check_count(self.size, "size")
        check_number(self.reach, "reach", least=0.0)


@dataclass(frozen=True, eq=False)
class Anchor:
    """A theta, E[phi] there, and the distinct rows of a sample with their shares."""

    theta: Floats
    iteration: int
    mean: Floats
    rows: Floats
    shares: Floats

    rows_read: int

    @classmethod
    def drop(cls, query: Query, theta: Floats, size: int, iteration: int, seed: Sequence[int]) -> "Anchor":
        """Draws by systematic sampling: rows are stored by cell, so these spread over cells."""
        features, rng = query.features, np.random.default_rng([*seed, iteration])
        index, sampled = query.index, None
        if isinstance(index, PartitionIndex):
            wanted = max(_ROWS_AN_ENTRY * features.d, size)
            if wanted < _SAMPLED_SHARE * features.n:
                sampled = sample_softmax(index, query, wanted, int(rng.integers(2**63)))
        if sampled is None:
            weights, mean = softmax(features, theta, query.temperature)
            held, read = None, features.n
        else:
            held, weights = sampled
            mean, read = kernels.sum_rows(features.stored, held, weights)[0], len(held)
        cumulative = np.cumsum(weights, dtype=np.float64)
        targets: Floats = (np.arange(size) + rng.random()) * (cumulative[-1] / size)
        drawn = np.minimum(cumulative.searchsorted(targets, side="right"), len(weights) - 1)
        positions, counts = np.unique(drawn if held is None else held[drawn], return_counts=True)
        return cls(theta, iteration, mean, features.stored[positions].astype(np.float64), counts / size, read)

    @classmethod
    def afar(cls, model: Model, theta: Floats, temperature: float, size: int, seed: Sequence[int]) -> "Anchor":
        """Of a model whose rows are elsewhere: a dense pass there, and a sample without replacement, by its weights."""
        iteration, dist = seed[-1], model(theta.astype(np.float32), temperature=temperature)
        exact = dist.expectation(method=Exhaustive())
        n = model.features.n
        drawn = dist.sample_without_replacement(min(size, n), rng=np.random.default_rng(seed))
        rows = model.features.gather(drawn.ids).astype(np.float64)
        return cls(theta, iteration, exact.value, rows, drawn.weights, n + int(drawn.rows))

    def mean_at(self, theta: Floats, temperature: float) -> Floats:
        """E[phi] at another theta."""
        gains = self.rows @ ((theta - self.theta) / temperature)
        weights = self.shares * np.exp(gains - gains.max())
        return self.mean + (weights / weights.sum() - self.shares) @ self.rows


def softmax(features: Features, theta: Floats, temperature: float) -> tuple[Vectors, Floats]:
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
