"""`UniformTail`: Algorithms 3 and 4. The head in full, and l uniform draws, with replacement, from the rest.

Z_hat = sum over S + (n - k) / l times the sum over the draws is unbiased, and so is its variance estimate. What no
estimate can see is a heavy tail row that was not drawn: when the index misses one, intervals are too narrow.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count, check_number
from lazygumbel.budgets import expectation_budget, partition_budget
from lazygumbel.methods.base import Function, Query, Seen
from lazygumbel.methods.draw import uniform_outside
from lazygumbel.methods.head import Head, find_heads
from lazygumbel.methods.weighing import WeightedSums, stack, weigh
from lazygumbel.results import Moments, Reason, grounds

__all__ = ["UniformTail"]


@dataclass(frozen=True)
class UniformTail:
    """Algorithms 3 and 4.

    Give `k` (head) and `l` (tail draws, at least 2), which default to each other or to 5 sqrt(n); or `rel_err` and
    `delta`, which set both by theorem. `gap` as in `FixedCutoff`. Labelled bounded when the theorem set the budget
    and the index was exact.
    """

    k: int | None = None
    l: int | None = None  # noqa: E741  # the paper's name
    rel_err: float | None = None
    delta: float | None = None
    gap: float = 0.0

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count(self.k, "k")
        if self.l is not None:
            check_count(self.l, "l", least=2)
        check_number(self.gap, "gap", least=0.0)
        if (self.rel_err is None) != (self.delta is None):
            raise ValueError("rel_err and delta go together: give both, or k and l")
        if self.rel_err is not None and (self.k is not None or self.l is not None):
            raise ValueError("rel_err and delta set k and l: give one pair or the other")
        if self.rel_err is not None and self.delta is not None:
            partition_budget(1, self.rel_err, self.delta, gap=self.gap)  # refuses what is out of range

    def budget(self, n: int, *, expectation: bool) -> tuple[int, int]:
        """k and l for n rows."""
        if self.rel_err is not None and self.delta is not None:
            budget = expectation_budget if expectation else partition_budget
            k = budget(n, self.rel_err, self.delta, gap=self.gap)
            return k, max(k, 2)
        default = max(2, ceil(5 * sqrt(n)))
        k = self.k if self.k is not None else self.l or default
        return k, self.l if self.l is not None else max(k, 2)

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Unbiased sums; the head adds no variance."""
        k, l = self.budget(query.features.n, expectation=f is not None)  # noqa: E741  # the paper's name
        heads = find_heads(query, k)
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        parts: list[Moments] = []
        for b, head in enumerate(heads):
            part = weigh(head.ids, head.logits, f)
            taken = head.taken(query.excluded[b])
            left = query.features.n - len(taken)
            if left:
                drawn = uniform_outside(rng, query.features.n, taken, l)
                part = part + _tail_moments(drawn, query.logits(b, drawn), f, left)
                rows[b] += l
            parts.append(part)
        reasons = [self._reason(query, b, head) for b, head in enumerate(heads)]
        bound = np.array([self.rel_err if reason is Reason.BUDGET else np.nan for reason in reasons], dtype=np.float64)
        return Seen(stack(parts), rows, grounds(reasons), bound)

    def _reason(self, query: Query, b: int, head: Head) -> Reason:
        if len(head.ids) == query.left(b):
            return Reason.EVERY_ROW
        if not head.exact:
            return Reason.INDEX
        return Reason.NO_BUDGET if self.rel_err is None else Reason.BUDGET


def _tail_moments(ids: Ints, logits: Floats, f: Function | None, left: int) -> Moments:
    """Sums over `left` rows from uniform draws with replacement; variances by the sample variance of the draws."""
    draws = len(ids)
    shift = logits.max()
    weights = np.exp(logits - shift) * left
    scale = draws * (draws - 1)
    centred = weights - weights.mean()
    total, var_total = weights.mean(), (centred**2).sum() / scale
    if f is None:
        return Moments(np.asarray(shift), np.asarray(total), np.asarray(var_total))
    sums = WeightedSums.of(f, ids, logits, weights)
    mean = sums.values / draws
    return Moments(
        np.asarray(shift),
        np.asarray(total),
        np.asarray(var_total),
        mean,
        np.maximum(sums.squares - draws * mean**2, 0.0) / scale,
        (sums.cross - draws * total * mean) / scale,
    )
