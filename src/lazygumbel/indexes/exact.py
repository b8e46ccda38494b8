"""`ExactIndex`: scores every row by blocked BLAS. The oracle, and the best choice for small n."""

from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel._support.persist import Reader, Writer
from lazygumbel.datasets import rows_of
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.results import TopK
from lazygumbel.rows.features import Features, Source

__all__ = ["ExactIndex"]

_SCORES_AT_ONCE = 2**24


class ExactIndex:
    """Brute force: exact, O(n d) a query."""

    kind: ClassVar[str] = "exact"

    def __init__(self, features: Source | Features) -> None:
        self.features = rows_of(features)

    def __repr__(self) -> str:
        return f"ExactIndex(n={self.features.n:,}, d={self.features.d})"

    @classmethod
    def build(cls, features: Source | Features, *, progress: ShowProgress = None) -> Self:
        """Nothing to build; the rows are checked."""
        shown = choose(progress)
        held = rows_of(features, shown)
        held.check_finite(shown)
        return cls(held)

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The true top k; every row is scored."""
        search = open_search(queries, k, self.features)
        size = len(search.vectors)
        nothing = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
        hits = [nothing] * size
        for ids, rows in self.features.blocks(max(search.k, _SCORES_AT_ONCE // max(size, 1))):
            scores = search.vectors @ rows.T
            for b, (found, values) in enumerate(hits):
                candidates = np.concatenate([found, ids]), np.concatenate([values, scores[b]])
                hits[b] = best(self.features, search.vectors[b], *candidates, search.k)
        return pack(search, hits, np.full(size, self.features.n, dtype=np.int64), bound=0.0)

    def without(self, ids: Ints) -> Self:
        """The same index, of which these rows were removed."""
        return type(self)(self.features.without(ids))

    def save(self, writer: Writer) -> None:
        """An exact index is its rows."""
        writer.config["index"] = {"kind": self.kind}

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:  # noqa: ARG003  # the protocol's signature
        """An exact index is its rows."""
        return cls(features)
