"""The head S of a query: the top k rows of the index that are not excluded."""

from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.methods.base import Query

__all__ = ["Head", "find_heads"]


class Head(NamedTuple):
    """The head of one theta."""

    ids: Ints
    logits: Floats
    floor: float
    """The smallest logit retrieved: an upper bound on the logits of the tail when the retrieval was exact."""
    rows: int
    bound: float
    """The probability at most that a row of the true head is missed: zero if none can be, not a number if unknown."""

    @property
    def exact(self) -> bool:
        """Whether these are the top rows for certain."""
        return self.bound == 0.0

    def taken(self, excluded: Ints) -> Ints:
        """Sorted ids that the tail must avoid: the head and what is excluded."""
        return np.union1d(self.ids, excluded)


def find_heads(query: Query, k: int) -> list[Head]:
    """For each theta at least k rows, or all that are left: the theorems count on k.

    With exclusions the index is asked for more, twice as many each time, until k remain after filtering. What a
    truncation left is at hand, all of it.
    """
    if query.kept is not None:
        return [_kept_head(query, b) for b in range(query.size)]
    k = min(k, query.features.n)
    spare = min(max((len(e) for e in query.excluded), default=0), k)
    asked = min(k + spare, query.features.n)
    rows = np.zeros(query.size, dtype=np.int64)
    while True:
        found = query.index.top_k(query.thetas, asked)
        rows += found.rows
        heads: list[Head] = []
        for b, excluded in enumerate(query.excluded):
            logits = found.scores[b].astype(np.float64) / query.temperature
            kept = slice(None) if not len(excluded) else np.isin(found.ids[b], excluded, invert=True)
            floor = float(logits[-1]) if asked < query.features.n else -np.inf
            heads.append(Head(found.ids[b][kept], logits[kept], floor, int(rows[b]), float(found.bound[b])))
        starved = any(len(h.ids) < min(k, query.left(b)) for b, h in enumerate(heads))
        if asked == query.features.n or not starved:
            return heads
        asked = min(2 * asked, query.features.n)


def _kept_head(query: Query, b: int) -> Head:
    ids, logits, rows, bound, _ = (query.kept or ())[b]
    if len(query.excluded[b]):
        left = np.isin(ids, query.excluded[b], invert=True)
        ids, logits = ids[left], logits[left]
    return Head(ids, logits, -np.inf, rows, bound)
