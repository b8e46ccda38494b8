"""`OverKept`: exact draws and sums over the rows that a truncation left. The one method of a truncated distribution."""

from dataclasses import dataclass, replace
from math import nan, sqrt

import numpy as np

from lazygumbel.methods.base import Function, Kept, Query, Seen
from lazygumbel.methods.draw import Candidates, order_draws, softmax_draws
from lazygumbel.methods.gumbel import gumbel
from lazygumbel.methods.head import find_heads
from lazygumbel.methods.weighing import stack, weigh
from lazygumbel.results import EXACT, Draws, OrderedDraws, Reason, grounds_by_bound

__all__ = ["OverKept"]


@dataclass(frozen=True)
class OverKept:
    """The softmax over `Query.kept`. Nothing is scored again; what may be wrong is which rows these are."""

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Samples of the truncated softmax."""
        heads = find_heads(query, 1)
        drawn = [softmax_draws(rng, head.ids, head.logits, size) for head in heads]
        bound = np.array([head.bound for head in heads])
        return Draws(
            np.array([d[0] for d in drawn], dtype=np.int64).reshape(query.size, size).T,
            np.array([d[1] for d in drawn]).reshape(query.size, size).T,
            np.array([head.rows for head in heads], dtype=np.int64),
            grounds_by_bound(bound, Reason.CUT),
            bound,
        )

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """Distinct rows in order. Each of them may be one that was missed with the probability allowed to one draw."""
        heads = find_heads(query, 1)
        candidates = [Candidates(h.ids, h.logits, h.logits + gumbel(rng, h.logits.shape)) for h in heads]
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        bound = np.array([min(1.0, size * k.bound) if k.counted else _sure(k) for k in _kept(query)])
        return replace(
            order_draws(candidates, size, rows, EXACT), grounds=grounds_by_bound(bound, Reason.CUT), bound=bound
        )

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:  # noqa: ARG002  # nothing random
        """Sums of variance zero. Of the best so many rows some mass at most is missed; else no error is bounded."""
        heads = find_heads(query, 1)
        bound = np.array([2 * sqrt(k.bound) if k.counted else _sure(k) for k in _kept(query)])
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        moments = stack([weigh(head.ids, head.logits, f) for head in heads])
        return Seen(moments, rows, grounds_by_bound(bound, Reason.CUT), bound)


def _kept(query: Query) -> tuple[Kept, ...]:
    return query.kept or ()


def _sure(kept: Kept) -> float:
    return 0.0 if kept.bound == 0.0 else nan
