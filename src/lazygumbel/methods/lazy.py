"""`LazyGumbel`: Algorithm 1. Gumbels for the head set a cutoff that adapts; only tail Gumbels above it are drawn.

With M the largest perturbed logit of the head and S_min its smallest logit, a tail row can win only if its Gumbel
exceeds B = M - S_min - gap: exact whenever no tail logit exceeds S_min by more than `gap`. E[m] <= n e^gap / k tail
rows are looked at.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from lazygumbel._support.arrays import Floats, Mask
from lazygumbel._support.checks import check_count, check_number
from lazygumbel.methods.base import Accuracy, Query
from lazygumbel.methods.draw import (
    Candidates,
    distinct_outside,
    lazy_tail,
    log_sum_exp,
    order_draws,
    softmax_draws,
)
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.gumbel import gumbel, gumbel_above, tail_count, tail_probability
from lazygumbel.methods.head import Head, find_heads
from lazygumbel.results import Draws, Grounds, OrderedDraws, Reason, grounds

__all__ = ["LazyGumbel", "miss_adaptive"]


@dataclass(frozen=True)
class LazyGumbel:
    """Algorithm 1, with its extension to an approximate top k.

    `k`: size of the head, sqrt(n) by default. `gap`: how far, in logits, a tail row may exceed the smallest row of the
    head; 0 is right for an exact index. Labelled exact when the index was exact, heuristic otherwise.
    """

    k: int | None = None
    gap: float = 0.0

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count(self.k, "k")
        check_number(self.gap, "gap", least=0.0)

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Samples that share one retrieval a theta."""
        heads = find_heads(query, self.head_size(query.features.n))
        ids = np.empty((size, query.size), dtype=np.int64)
        values = np.empty((size, query.size))
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        for b, head in enumerate(heads):
            head_ids, head_values = softmax_draws(rng, head.ids, head.logits, size)
            first = Draws(head_ids, head_values, rows[b], _grounds([head])[0, ...])
            drawn = first.merge(lazy_tail(query, b, head, head_values - head.floor - self.gap, rng))
            ids[:, b], values[:, b], rows[b] = drawn.ids, drawn.values, drawn.rows
        return Draws(ids, values, rows, _grounds(heads))

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """Lazy Gumbel top-K: the (K+1)-th perturbed logit of the head sets the cutoff; about sqrt(n K) rows."""
        n = query.features.n
        k = max(self.k or 0, 2 * (size + 1), ceil(sqrt(n * (size + 1))))
        if k > n // 2:
            return Exhaustive().sample_without_replacement(query, size, rng)
        heads = find_heads(query, k)
        candidates: list[Candidates] = []
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        for b, head in enumerate(heads):
            found = Candidates(head.ids, head.logits, head.logits + gumbel(rng, len(head.ids))).largest(size + 1)
            # A head of no more rows than that holds all that are left: there is no tail.
            last = found.values[size] if len(found.values) > size else -np.inf
            tail = self._tail_above(query, b, head, last - head.floor - self.gap, rng)
            rows[b] += len(tail.ids)
            candidates.append(found.plus(tail))
        return order_draws(candidates, size, rows, _grounds(heads))

    def head_size(self, n: int) -> int:
        """Of n rows."""
        return self.k or ceil(sqrt(n))

    def accuracy(self, logits: Floats, head: Mask, floor: float) -> Accuracy:
        """Its miss probability."""
        return Accuracy(miss_adaptive(logits, head, floor, self.gap))

    def _tail_above(self, query: Query, b: int, head: Head, cutoff: float, rng: np.random.Generator) -> Candidates:
        """All tail rows whose Gumbel exceeds the cutoff."""
        n, taken = query.features.n, head.taken(query.excluded[b])
        left = n - len(taken)
        if not left:
            return Candidates.none()
        if tail_probability(cutoff) > 0.5:
            ids = np.setdiff1d(np.arange(n), taken)
            noise = gumbel(rng, len(ids))
        else:
            ids = distinct_outside(rng, n, taken, tail_count(rng, [left], cutoff))[0]
            noise = gumbel_above(rng, np.full(len(ids), cutoff))
        logits = query.logits(b, ids)
        return Candidates(ids, logits, logits + noise)


def _grounds(heads: list[Head]) -> Grounds:
    sure = [head.exact or head.floor == -np.inf for head in heads]
    return grounds(Reason.NONE_MISSED if exact else Reason.INDEX for exact in sure)


def miss_adaptive(logits: Floats, head: Mask, floor: float, gap: float = 0.0) -> float:
    """Miss probability of Algorithm 1: its cutoff is B = M - floor - gap, M the largest perturbed logit of the head.

    Only a tail row with excess e = y_i - floor - gap > 0 can be missed: when it wins with value V and yet V - y_i <=
    B, that is M >= V - e. Given V, M is Gumbel(log Z_S) conditioned below V, so that this has probability 1 - exp(-Z_S
    e^-V (e^e - 1)); averaged over V, with e^-V = Exponential / Z, it is 1 - 1 / (1 + h (e^e - 1)), h = Z_S / Z.
    """
    log_z = log_sum_exp(logits)
    log_share = log_sum_exp(logits[head]) - log_z
    tail = logits[~head]
    excess = np.maximum(tail - floor - gap, 0.0)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        # In logs: a row far above a bad head makes h vanish and e^e overflow, while their product stays finite.
        log_grown = log_share + excess + np.log(-np.expm1(-excess))
        return float((np.exp(tail - log_z) / (1.0 + np.exp(-log_grown))).sum())
