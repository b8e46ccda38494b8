"""Log-probabilities of ordered draws without replacement (Plackett-Luce).

The k-th row of a slate is drawn from those that are left: with weight w_k over the mass of the rows from k on. That
mass is summed from behind, what the slate leaves over first: it is never less than w_k, as it may be when an estimate
of Z less the weights of the rows before is taken for it.
"""

from dataclasses import replace

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.methods.base import Estimator, Query
from lazygumbel.results import EXACT, Estimate

__all__ = ["chained", "check_slates", "slate_log_prob"]


def slate_log_prob(query: Query, ids: Ints, method: Estimator, rng: np.random.Generator) -> Estimate:
    """log Pr of each row given those before it, (K, B); what the slates leave over is estimated."""
    check_slates(ids)
    logits = np.empty(ids.shape)
    for b in range(query.size):
        logits[:, b] = query.logits(b, ids[:, b])
        logits[~query.can_draw(b, ids[:, b]), b] = -np.inf
    return chained(ids, logits, _rest(query, ids, method, rng))


def check_slates(ids: Ints) -> None:
    """Refuse slates, (K, B), that hold a row twice."""
    for b, slate in enumerate(ids.T):
        if len(np.unique(slate)) < len(slate):
            raise ValueError(f"ids holds a row twice in the slate of theta {b}; rows are drawn without replacement")


def chained(ids: Ints, logits: Floats, rest: Estimate) -> Estimate:
    """log Pr of each row of slates given those before it, from their logits, (K, B), and the log mass of no slate."""
    value, stderr, left = np.empty(logits.shape), np.empty(logits.shape), rest.value
    for k in range(len(logits) - 1, -1, -1):
        left = np.logaddexp(left, logits[k])
        value[k] = np.minimum(logits[k] - left, 0.0)
        stderr[k] = np.where(np.isneginf(rest.value), 0.0, rest.stderr * np.exp(rest.value - left))
    return Estimate(value, stderr, np.asarray(rest.rows + len(logits)), rest.grounds, bound=rest.bound, ids=ids)


def _rest(query: Query, ids: Ints, method: Estimator, rng: np.random.Generator) -> Estimate:
    """log of the mass of all rows that are in no slate, (B,); minus infinity, exactly, where none are left."""
    excluded = tuple(np.union1d(out, ids[:, b]) for b, out in enumerate(query.excluded))
    rest = replace(query, excluded=excluded)
    some = np.array([rest.left(b) > 0 for b in range(query.size)], dtype=np.bool_)
    # A query leaves at least one row: where a slate holds them all, its own are summed, and what that gives is dropped.
    asked = replace(query, excluded=tuple(out if left else out[:-1] for out, left in zip(excluded, some, strict=True)))
    found = Estimate.of_log_partition(*method.moments(asked, None, rng))
    return Estimate(
        np.where(some, found.value, -np.inf),
        np.where(some, found.stderr, 0.0),
        found.rows,
        np.where(some, found.grounds, EXACT),
        bound=np.where(some, found.bound, 0.0),
    )
