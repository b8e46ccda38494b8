"""`Frozen`: Mussmann & Ermon (2016). t Gumbel coordinates appended to every row, once, and searched with an index.

A query [theta / temperature, e_j] turns the top row into a sample. The noise is shared by all queries: there are at
most t different samples of one theta, answers are correlated, and the estimate of Z carries one frozen error. Kept for
comparison.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count
from lazygumbel.indexes import ExactIndex, Index
from lazygumbel.methods.base import Query
from lazygumbel.methods.gumbel import gumbel
from lazygumbel.results import Draws, Estimate, Reason, grounds
from lazygumbel.rows.features import Features

__all__ = ["Frozen"]

_SHARED = grounds([Reason.SHARED_NOISE])


@dataclass(frozen=True)
class Frozen:
    """The frozen-noise method with `t` noise coordinates drawn from `seed`.

    `build` makes the index over the lengthened rows (exact by default; `PartitionIndex.build` for one); it is built on
    first use and kept as long as the rows live. Always heuristic.
    """

    t: int
    seed: int = 0
    build: Callable[[Features], Index] = ExactIndex.build
    _built: "WeakKeyDictionary[Features, Index]" = field(
        default_factory=WeakKeyDictionary["Features", "Index"], repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_count(self.t, "t")

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Each sample picks one noise coordinate at random."""
        ids, values, rows = self._winners(query)
        picked = rng.integers(self.t, size=(size, query.size))
        thetas = np.arange(query.size)
        return Draws(ids[thetas, picked], values[thetas, picked], rows, _SHARED[0, ...])

    def log_partition(self, query: Query, rng: np.random.Generator) -> Estimate:  # noqa: ARG002  # the noise is frozen
        """log of (t - 1) / sum_j exp(-M_j), with M_j the maximum under noise j: exp(-M_j) is exponential of mean 1/Z.

        Unbiased for Z over the choice of the frozen noise; with t = 1, 1 stands for t - 1. Relative error 1/sqrt(t -
        2).
        """
        _, values, rows = self._winners(query)
        low = values.min(axis=1)
        total = np.exp(low[:, None] - values).sum(axis=1)
        value = low + np.log(max(self.t - 1, 1)) - np.log(total)
        stderr = np.full(query.size, 1 / np.sqrt(self.t - 2) if self.t > 2 else np.inf)
        return Estimate(value, stderr, rows, _SHARED[0, ...])

    def _winners(self, query: Query) -> tuple[Ints, Floats, Ints]:
        """Ids and perturbed logits of the winner under each noise coordinate, (B, t), and the rows scored."""
        index = self._index(query.features)
        ids = np.empty((query.size, self.t), dtype=np.int64)
        values = np.empty((query.size, self.t))
        rows = np.empty(query.size, dtype=np.int64)
        for b, excluded in enumerate(query.excluded):
            scaled = query.thetas[b] / np.float32(query.temperature)
            lengthened = np.hstack([np.tile(scaled, (self.t, 1)), np.eye(self.t, dtype=np.float32)])
            found = index.top_k(lengthened, len(excluded) + 1)
            allowed = np.isin(found.ids, excluded, invert=True)
            first = allowed.argmax(axis=1)[:, None]
            ids[b] = np.take_along_axis(found.ids, first, 1)[:, 0]
            values[b] = np.take_along_axis(found.scores, first, 1)[:, 0]
            rows[b] = found.rows.sum()
        return ids, values, rows

    def _index(self, features: Features) -> Index:
        if features not in self._built:
            rng = np.random.default_rng(self.seed)
            longer = np.empty((features.n, features.d + self.t), dtype=np.float32)
            for ids, rows in features.blocks():
                longer[ids, : features.d] = rows
            longer[:, features.d :] = gumbel(rng, (features.n, self.t))
            self._built[features] = self.build(Features.of(longer))
        return self._built[features]
