"""`Exhaustive`: every row, block by block. Exact, O(n d) a theta; the oracle for everything else."""

from dataclasses import dataclass

import numpy as np

from lazygumbel.gumbel import gumbel
from lazygumbel.methods.base import Function, Query, Seen
from lazygumbel.methods.draw import Candidates, order_draws, softmax_draws
from lazygumbel.methods.weighing import stack, weigh
from lazygumbel.results import Draws, Moments, OrderedDraws

__all__ = ["Exhaustive"]


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
        parts: list[Moments] | None = None
        for block in query.dense():
            more = [weigh(block.ids, logits, f) for logits in block.logits]
            parts = more if parts is None else [a + b for a, b in zip(parts, more, strict=True)]
        return Seen(stack(parts or []), np.full(query.size, query.features.n), "exact")
