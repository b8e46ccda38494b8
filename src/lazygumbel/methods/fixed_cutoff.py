"""`FixedCutoff`: Algorithm 2. A constant Gumbel cutoff that l of n Gumbels exceed on average.

Exact with probability at least 1 - exp(-(k l / n) e^-gap), see `budgets.sampling_budget`; its true miss probability
for a given theta has a closed form, `miss_fixed`.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Mask
from lazygumbel._support.checks import check_count, check_number
from lazygumbel.budgets import sampling_budget
from lazygumbel.methods.base import Accuracy, Query
from lazygumbel.methods.draw import lazy_tail, log_sum_exp, softmax_draws
from lazygumbel.methods.gumbel import cutoff_of_rate
from lazygumbel.methods.head import Head, find_heads
from lazygumbel.results import EXACT, Draws, Reason, grounds

__all__ = ["FixedCutoff", "miss_fixed", "paper_bound"]


@dataclass(frozen=True)
class FixedCutoff:
    """Algorithm 2.

    Give the head size `k` and the mean number of tail rows `l` (each defaults to the other, or to 3 sqrt(n)), or the
    failure probability `delta`, which sets k = l = sqrt(n ln(1/delta)) e^(gap/2). `gap` bounds how far, in logits, a
    tail row may exceed the smallest row of the head. Labelled bounded when `delta` is given and the index was
    exact: then the theorem applies.
    """

    k: int | None = None
    l: int | None = None  # noqa: E741  # the paper's name
    delta: float | None = None
    gap: float = 0.0

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count(self.k, "k")
        if self.l is not None:
            check_count(self.l, "l", least=0)
        check_number(self.gap, "gap", least=0.0)
        if self.delta is not None:
            check_number(self.delta, "delta", above=0.0, below=1.0)
            if self.k is not None or self.l is not None:
                raise ValueError("delta sets k and l: give delta, or k and l, not both")

    def budget(self, n: int) -> tuple[int, int]:
        """k and l for n rows."""
        if self.delta is not None:
            k = sampling_budget(n, self.delta, gap=self.gap)
            return k, k
        default = ceil(3 * sqrt(n))
        k = self.k if self.k is not None else self.l or default
        return k, self.l if self.l is not None else k

    def cutoff(self, n: int) -> float:
        """The Gumbel cutoff B for n rows; minus infinity when every row is looked at."""
        return float(cutoff_of_rate(min(self.budget(n)[1] / n, 1.0)))

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Samples that share one retrieval a theta."""
        heads = find_heads(query, self.budget(query.features.n)[0])
        ids = np.empty((size, query.size), dtype=np.int64)
        values = np.empty((size, query.size))
        rows = np.array([head.rows for head in heads], dtype=np.int64)
        cutoffs = np.full(size, self.cutoff(query.features.n))
        for b, head in enumerate(heads):
            head_ids, head_values = softmax_draws(rng, head.ids, head.logits, size)
            tail = lazy_tail(query, b, head, cutoffs, rng)
            drawn = Draws(head_ids, head_values, rows[b], EXACT).merge(tail)
            ids[:, b], values[:, b], rows[b] = drawn.ids, drawn.values, drawn.rows
        reasons = [self._reason(query, b, head) for b, head in enumerate(heads)]
        bound = np.array([self.delta if reason is Reason.BUDGET else np.nan for reason in reasons], dtype=np.float64)
        return Draws(ids, values, rows, grounds(reasons), bound)

    def head_size(self, n: int) -> int:
        """Of n rows."""
        return self.budget(n)[0]

    def accuracy(self, logits: Floats, head: Mask, floor: float) -> Accuracy:  # noqa: ARG002  # the cutoff is fixed
        """Its miss probability, and the bound that the paper computes."""
        cutoff = self.cutoff(len(logits))
        return Accuracy(miss_fixed(logits, head, cutoff), paper_bound(logits, head, cutoff))

    def _reason(self, query: Query, b: int, head: Head) -> Reason:
        if self.cutoff(query.features.n) == -np.inf or len(head.ids) == query.left(b):
            return Reason.EVERY_ROW
        if not head.exact:
            return Reason.INDEX
        return Reason.NO_BUDGET if self.delta is None else Reason.BUDGET


def miss_fixed(logits: Floats, looked_at: Mask, cutoff: npt.ArrayLike) -> float:
    """Miss probability of a fixed Gumbel cutoff B, a scalar or one a row: rows not in `looked_at` are seen if G_i > B.

    Row i wins with p_i; it was not seen if V - y_i <= B, of probability exp(-exp(log Z - y_i - B)).
    """
    log_z = log_sum_exp(logits)
    with np.errstate(over="ignore", under="ignore"):
        unseen = np.exp(-np.exp(log_z - logits - np.asarray(cutoff, dtype=np.float64)))
        return float((np.exp(logits - log_z) * unseen)[~looked_at].sum())


def paper_bound(logits: Floats, head: Mask, cutoff: float) -> float:
    """The paper's own bound on the failure of Algorithm 2 (section 4.2.1), optimised over its threshold x.

    Right if some head row exceeds x and no unseen row does. The first has probability 1 - exp(-Z_S e^-x); tail row i
    breaks the second if x - y_i < G_i <= B, of probability F(B) - F(x - y_i), independently. One minus the product is
    the bound; never below `miss_fixed`.
    """
    head_mass, tail = log_sum_exp(logits[head]), logits[~head]
    cutoff = min(cutoff, 700.0)  # e^-700 is as good as zero, and finite
    with np.errstate(over="ignore"):
        rate = np.exp(-cutoff)

    def bound(x: float) -> float:
        over = tail[tail > x - cutoff] - x + cutoff
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            # Without cancellation, so that it stays above a miss of 1e-40: F(B) - F(B - over) = F(B) (1 - e^...).
            broken = -np.exp(-rate) * np.expm1(-rate * np.expm1(over))
            empty = np.exp(head_mass - x)  # no head row exceeds x with probability exp(-empty)
            log_head = np.log1p(-np.exp(-empty)) if empty > 0.7 else np.log(-np.expm1(-empty))
            return max(0.0, float(-np.expm1(log_head + np.log1p(-broken).sum())))

    best, step = head_mass, 1.0
    for _ in range(6):  # the bound is smooth in x but not always convex: a grid, refined about its best point
        grid: list[float] = (best + step * np.arange(-8, 9)).tolist()
        best = min(grid, key=bound)
        step /= 8
    return bound(best)
