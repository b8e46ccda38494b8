"""`OrderedDraws`: distinct rows in the order of drawing."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lazygumbel import forms
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.results.base import UNKNOWN, Claimed, Naming, same_batch
from lazygumbel.results.reasons import Grounds

__all__ = ["OrderedDraws"]


@dataclass(frozen=True, eq=False, repr=False)
class OrderedDraws(Claimed):
    """K distinct rows in the order of drawing without replacement (Plackett-Luce), shape (K,) + batch.

    `values` are the perturbed logits, decreasing; `threshold`, shape batch, is the largest perturbed logit that was
    left out (minus infinity when nothing was). Given the threshold, rows are included independently: `weights` are for
    averages over the softmax, `inclusion` for sums over rows. The probability of the slate itself, in this order, is
    what `Distribution.log_prob_ordered(ids)` gives.
    """

    form: ClassVar = forms.OrderedDraws
    by_theta: ClassVar = ("threshold", "rows", "grounds", "bound")
    counted: ClassVar = ("rank", 1)
    allows: ClassVar = "total variation"

    ids: Ints
    logits: Floats
    values: Floats
    threshold: Floats
    rows: Ints
    grounds: Grounds
    bound: Floats = field(default_factory=lambda: UNKNOWN)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""
    naming: Naming | None = None

    def __post_init__(self) -> None:
        self._settle()

    def shaped(self, batch: tuple[int, ...], naming: Naming | None = None) -> "OrderedDraws":
        """The same draws, (K, B), as (K,) + batch shape."""
        shape = (len(self.ids), *batch)
        return OrderedDraws(
            self.ids.reshape(shape),
            self.logits.reshape(shape),
            self.values.reshape(shape),
            self.threshold.reshape(batch),
            self.rows.reshape(batch),
            self.grounds.reshape(batch),
            self.bound.reshape(batch),
            self.coverage,
            naming,
        )

    @property
    def inclusion(self) -> Floats:
        """Probability of each drawn row to exceed the threshold, shape (K,) + batch."""
        with np.errstate(over="ignore"):
            return -np.expm1(-np.exp(self.logits - self.threshold))

    @property
    def weights(self) -> Floats:
        """Self-normalised importance weights: sum(weights * f(ids), axis=0) estimates the softmax expectation of f."""
        log_weights = self.logits - np.log(self.inclusion)
        weights = np.exp(log_weights - log_weights.max(axis=0))
        return weights / weights.sum(axis=0)

    @property
    def log_partition(self) -> Floats:
        """log of the unbiased estimate of Z, sum of exp(logit) / inclusion, shape batch."""
        log_weights = self.logits - np.log(self.inclusion)
        top = log_weights.max(axis=0)
        return np.asarray(top + np.log(np.exp(log_weights - top).sum(axis=0)))

    def merge(self, other: "OrderedDraws") -> "OrderedDraws":
        """The first K of the union of two disjoint sets of rows; both must hold the same number K."""
        same_batch(self.rows, other.rows)
        k = len(self.ids)
        if len(other.ids) != k:
            raise ValueError(f"ordered draws of {k} and {len(other.ids)} rows do not merge")
        values = np.concatenate([self.values, other.values])
        order = np.argsort(-values, axis=0, kind="stable")

        def first(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            return np.take_along_axis(np.concatenate([a, b]), order[:k], 0)

        left_out = np.take_along_axis(values, order[k : k + 1], 0)[0]
        threshold = np.asarray(np.maximum(left_out, np.maximum(self.threshold, other.threshold)))
        return OrderedDraws(
            first(self.ids, other.ids).astype(np.int64),
            first(self.logits, other.logits).astype(np.float64),
            first(self.values, other.values).astype(np.float64),
            threshold,
            np.asarray(self.rows + other.rows),
            np.asarray(np.maximum(self.grounds, other.grounds)),
            np.asarray(np.maximum(self.bound, other.bound)),
            min(self.coverage, other.coverage),
        )

    def _listed(self) -> dict[str, npt.NDArray[Any]]:
        return {"id": self.ids, "logit": self.logits, "value": self.values, "weight": self.weights}
