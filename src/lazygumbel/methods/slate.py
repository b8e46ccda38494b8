"""Log-probabilities of ordered draws without replacement (Plackett-Luce).

The k-th row of a slate is drawn from those that are left: with weight w_k over the mass of the rows from k on. That
mass is summed from behind, what the slate leaves over first: it is never less than w_k, as it may be when an estimate
of Z less the weights of the rows before is taken for it.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lazygumbel.methods.base import Estimator, Query
from lazygumbel.results import Estimate

__all__ = ["slate_log_prob"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def slate_log_prob(query: Query, ids: Ints, method: Estimator, rng: np.random.Generator) -> Estimate:
    """log Pr of each row given those before it, (K, B); what the slates leave over is estimated."""
    logits = np.empty(ids.shape)
    for b in range(query.size):
        if len(np.unique(ids[:, b])) < len(ids):
            raise ValueError(f"ids holds a row twice in the slate of theta {b}; rows are drawn without replacement")
        logits[:, b] = query.logits(b, ids[:, b])
        logits[np.isin(ids[:, b], query.excluded[b]), b] = -np.inf
    value, stderr = np.empty(ids.shape), np.empty(ids.shape)
    rest = _rest(query, ids, method, rng)
    left = rest.value
    for k in range(len(ids) - 1, -1, -1):
        left = np.logaddexp(left, logits[k])
        value[k] = np.minimum(logits[k] - left, 0.0)
        stderr[k] = np.where(np.isneginf(rest.value), 0.0, rest.stderr * np.exp(rest.value - left))
    return Estimate(value, stderr, np.asarray(rest.rows + len(ids)), rest.labels, bound=rest.bound)


def _rest(query: Query, ids: Ints, method: Estimator, rng: np.random.Generator) -> Estimate:
    """log of the mass of all rows that are in no slate, (B,); minus infinity, exactly, where none are left."""
    excluded = tuple(np.union1d(out, ids[:, b]) for b, out in enumerate(query.excluded))
    some = np.array([len(out) < query.features.n for out in excluded], dtype=np.bool_)
    # A query leaves at least one row: where a slate holds them all, its own are summed, and what that gives is dropped.
    asked = replace(query, excluded=tuple(out if left else out[:-1] for out, left in zip(excluded, some, strict=True)))
    found = Estimate.of_log_partition(*method.moments(asked, None, rng))
    return Estimate(
        np.where(some, found.value, -np.inf),
        np.where(some, found.stderr, 0.0),
        found.rows,
        np.where(some, found.labels, "exact"),
        bound=np.where(some, found.bound, 0.0),
    )
