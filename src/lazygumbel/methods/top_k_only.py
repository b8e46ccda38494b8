"""`TopKOnly`: the softmax over the top k alone. What most people do instead, and the baseline to beat.

Biased: log Z is too small by the mass of the tail, and nothing outside the top k is ever drawn.
"""

from dataclasses import dataclass

import numpy as np

from lazygumbel._support.arrays import Floats, Mask
from lazygumbel._support.checks import check_count
from lazygumbel.methods.base import Accuracy, Function, Query, Seen
from lazygumbel.methods.draw import log_sum_exp, softmax_draws
from lazygumbel.methods.head import Head, find_heads
from lazygumbel.methods.weighing import stack, weigh
from lazygumbel.results import Draws, Grounds, Reason, grounds

__all__ = ["TopKOnly"]


@dataclass(frozen=True)
class TopKOnly:
    """Ignore the tail. Always labelled heuristic, unless k covers every row."""

    k: int

    def __post_init__(self) -> None:
        check_count(self.k, "k")

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Samples of the truncated softmax."""
        heads = find_heads(query, self.k)
        drawn = [softmax_draws(rng, head.ids, head.logits, size) for head in heads]
        return Draws(
            np.array([d[0] for d in drawn], dtype=np.int64).reshape(query.size, size).T,
            np.array([d[1] for d in drawn]).reshape(query.size, size).T,
            np.array([head.rows for head in heads], dtype=np.int64),
            _grounds(query, heads),
        )

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:  # noqa: ARG002  # nothing random
        """Sums over the head; the variance of zero says nothing about the bias."""
        heads = find_heads(query, self.k)
        parts = [weigh(head.ids, head.logits, f) for head in heads]
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        return Seen(stack(parts), rows, _grounds(query, heads), np.full(query.size, np.nan))

    def head_size(self, n: int) -> int:  # noqa: ARG002  # the protocol's signature
        """Of any number of rows."""
        return self.k

    def accuracy(self, logits: Floats, head: Mask, floor: float) -> Accuracy:  # noqa: ARG002  # the tail is never looked at
        """It misses all that is outside the head."""
        return Accuracy(max(0.0, 1.0 - float(np.exp(log_sum_exp(logits[head]) - log_sum_exp(logits)))))


def _grounds(query: Query, heads: list[Head]) -> Grounds:
    whole = [len(head.ids) == query.left(b) for b, head in enumerate(heads)]
    return grounds(Reason.EVERY_ROW if every else Reason.NO_TAIL for every in whole)
