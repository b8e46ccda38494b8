"""Top-k, top-p and min-p over the rows of a snapshot: the best rows of its parts merged, and the mass of all of them.

What is left of each theta is a list of ids with their logits, so that it makes no difference any more where rows lie.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lazygumbel.distribution import CLOSE, Distribution
from lazygumbel.merged import MergedDistribution
from lazygumbel.methods import Estimator, Exhaustive, Query
from lazygumbel.methods.base import Function, Seen
from lazygumbel.methods.truncation import Truncation
from lazygumbel.results import TopK
from lazygumbel.rows.exclusions import Exclude
from lazygumbel.rows.features import Features

__all__ = ["Over", "truncate"]

Over = Callable[[npt.ArrayLike, float], MergedDistribution]
"""The distribution over the rows of a snapshot at thetas and a temperature."""


@dataclass(frozen=True, eq=False)
class _Union:
    """All parts as one `Index`."""

    features: Features
    over: Over

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The top k of all rows."""
        return self.over(queries, 1.0).top_k(k)


@dataclass(frozen=True, eq=False)
class _SumOfParts:
    """Sums over all parts, each by its own default method or by the one given; an `Estimator` of Z alone."""

    over: Over
    rel_err: float | None = None
    method: Estimator | None = None

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Sums of exp(logit)."""
        if f is not None:
            raise ValueError("f: only Z is summed over parts; expectations are over what a truncation left")
        at = self.over(query.thetas, query.temperature)
        out = list(query.excluded) if any(map(len, query.excluded)) else None
        found = at.log_partition(rel_err=self.rel_err, method=self.method, rng=rng, exclude=out)
        if found.moments is None:
            raise ValueError(f"method: {self.method!r} gives no sums that could be merged")
        return Seen(found.moments, found.rows, found.grounds, found.bound)


def truncate(
    rules: Truncation,
    features: Features,
    over: Over,
    theta: npt.ArrayLike,
    temperature: float,
    *,
    rel_err: float | None,
    rng: np.random.Generator,
    exclude: Exclude,
) -> Distribution:
    """The distribution over what rules leave of the rows that are not excluded; the ids of these must have a row."""
    errors = (None, CLOSE) if rel_err is None else (rel_err,)
    estimators = [_SumOfParts(over, error) for error in errors]
    if rel_err is None:
        estimators.append(_SumOfParts(over, method=Exhaustive()))
    whole = Distribution(_Union(features, over), theta, temperature)
    query = whole.query(exclude)
    return whole.cut(query, rules.find(query, estimators, rng))
