"""`Exhaustive`: every row, block by block. Exact, O(n d) a theta; the oracle for everything else."""

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from lazygumbel.gumbel import gumbel
from lazygumbel.methods.base import Dense, Function, Phi, Query, Seen
from lazygumbel.methods.draw import Candidates, order_draws, softmax_draws
from lazygumbel.methods.weighing import stack, weigh
from lazygumbel.results import Draws, Moments, OrderedDraws

__all__ = ["Exhaustive"]

_ROWS_IN_CACHE = 2**13
"""Rows that are scored and, while they are still in cache, summed."""


@dataclass(frozen=True)
class Exhaustive:
    """Brute force over blocks: inverse CDF inside a block, Gumbel-max across blocks."""

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Exact samples."""
        best = Draws(
            np.zeros((size, query.size), dtype=np.int64),
            np.full((size, query.size), -np.inf),
            np.zeros(query.size, dtype=np.int64),
            "exact",
        )
        for block in query.dense():
            drawn = [softmax_draws(rng, block.ids, logits, size) for logits in block.logits]
            ids = np.array([d[0] for d in drawn], dtype=np.int64).reshape(query.size, size).T
            values = np.array([d[1] for d in drawn]).reshape(query.size, size).T
            best = best.merge(Draws(ids, values, np.full(query.size, len(block.ids)), "exact"))
        return best

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The `size` largest of all perturbed logits, in order; exact Plackett-Luce."""
        candidates = [Candidates.none() for _ in range(query.size)]
        for block in query.dense():
            values = block.logits + gumbel(rng, block.logits.shape)
            for b, found in enumerate(candidates):
                more = Candidates(block.ids, block.logits[b], values[b])
                candidates[b] = found.plus(more).largest(size + 1)
        return order_draws(candidates, size, np.full(query.size, query.features.n), "exact")

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:  # noqa: ARG002  # nothing random
        """Exact sums, of variance zero."""
        rows = np.full(query.size, query.features.n)
        if isinstance(f, Phi):
            blocks = (_feature_sums(block) for block in query.dense(_ROWS_IN_CACHE))
            return Seen(reduce(add, blocks), rows, "exact")
        parts: list[Moments] | None = None
        for block in query.dense():
            more = [weigh(block.ids, logits, f) for logits in block.logits]
            parts = more if parts is None else [a + b for a, b in zip(parts, more, strict=True)]
        return Seen(stack(parts or []), rows, "exact")


def _feature_sums(block: Dense) -> Moments:
    """Sums of weights and of weighted rows for all thetas at once."""
    shift = block.logits.max(axis=1, initial=-np.inf)
    weights = np.exp(block.logits - np.where(np.isfinite(shift), shift, 0.0)[:, None])
    total, weighted = weights.sum(axis=1), weights @ block.rows.astype(np.float64)
    nothing = np.zeros_like(weighted)
    return Moments(shift, total, np.zeros_like(total), weighted, nothing, nothing)
