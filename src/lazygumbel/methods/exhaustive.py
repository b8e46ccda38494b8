"""`Exhaustive`: every row. Exact, O(n d) a theta; the oracle for everything else, and the project's one brute force.

By a dense pass; over a `PartitionIndex` the draws of a few thetas are raced by bytes instead: a quarter of the memory,
ceilings that cannot be too low, and few rows that have to be read. As exact.
"""

from dataclasses import dataclass

import numpy as np

from lazygumbel._support.arrays import Floats, Mask
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods.base import Accuracy, Function, Query, Seen
from lazygumbel.methods.dense import draw_densely, order_densely, sum_densely
from lazygumbel.methods.racing import Rules, pack_draws, race
from lazygumbel.methods.weighing import exact_seen
from lazygumbel.results import Draws, OrderedDraws

__all__ = ["Exhaustive"]

_BATCH = 4
"""From this many thetas on, one matrix product for all is quicker than bytes for each."""


@dataclass(frozen=True)
class Exhaustive:
    """Brute force. `by_bytes=False` never takes the bytes of a `PartitionIndex`."""

    by_bytes: bool = True

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Exact samples."""
        index = query.index
        if self.by_bytes and isinstance(index, PartitionIndex) and 0 < query.size < _BATCH:
            drawn = race(index, query, Rules(0.0, None, size, False), rng)
            return pack_draws(drawn._replace(rows=query.features.n + drawn.rows))
        return draw_densely(query, size, rng)

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The `size` largest of all perturbed logits, in order; exact Plackett-Luce."""
        return order_densely(query, size, rng)

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:  # noqa: ARG002  # nothing random
        """Exact sums, of variance zero."""
        return exact_seen(sum_densely(query, f), query)

    def head_size(self, n: int) -> int:
        """Every row."""
        return n

    def accuracy(self, logits: Floats, head: Mask, floor: float) -> Accuracy:  # noqa: ARG002  # nothing can be missed
        """It misses nothing."""
        return Accuracy(0.0)

    def ceilings(self, query: Query, seed: int) -> Floats:  # noqa: ARG002  # nothing random
        """None: every row is scored."""
        return np.full(query.features.n, np.inf)
