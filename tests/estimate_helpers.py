"""An index that ranks rows as it is told."""

import numpy as np
import numpy.typing as npt

from lazygumbel import (
    Features,
    LogLinear,
    TopK,
)
from lazygumbel._support.arrays import Floats


class Given:
    """An index that ranks the rows in a given order, right or wrong: the head is the first k of it."""

    def __init__(self, logits: npt.ArrayLike, order: npt.ArrayLike | None = None, *, exact: bool = False) -> None:
        self.features = Features.of(np.asarray(logits, dtype=np.float32)[:, None])
        values = self.features.stored[:, 0]
        self.order = np.argsort(-values, kind="stable") if order is None else np.asarray(order)
        self.exact = exact

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The first k of the order, best first; queries are all ones."""
        size = len(np.asarray(queries))
        ids = self.order[:k]
        ids = ids[np.argsort(-self.features.stored[ids, 0], kind="stable")]
        scores = self.features.stored[ids, 0]
        return TopK(
            np.tile(ids, (size, 1)),
            np.tile(scores, (size, 1)),
            np.full(size, len(ids)),
            self.exact or k >= self.features.n,
            k,
        )

    @property
    def logits(self) -> Floats:
        return self.features.stored[:, 0].astype(np.float64)

    def copies(self, times: int):
        """The same theta many times: each is one replication."""
        return LogLinear(self)(np.ones((times, 1)))


def normal_logits(n: int, spread: float, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(scale=spread, size=n)
