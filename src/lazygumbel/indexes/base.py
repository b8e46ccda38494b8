"""What every index is: something over `Features` that finds the rows with the largest inner products."""

from math import sqrt
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.checks import check_count, check_vectors, longest_vector
from lazygumbel._support.persist import Reader, Writer
from lazygumbel.results import TopK
from lazygumbel.rows.features import Features

__all__ = ["Index", "SavedIndex", "Search", "best", "open_search", "pack"]

_EPSILON = float(np.finfo(np.float32).eps)


@runtime_checkable
class Index(Protocol):
    """The contract, checked on values by `lazygumbel.testing.check_index`.

    `top_k` returns min(k, n) distinct ids per query, best first, ties by smaller id, with raw inner products; an
    approximate index may return other rows than the true top k, but never fewer. `exact` is True only when it cannot.
    """

    @property
    def features(self) -> Features:
        """The rows this index was built over."""
        ...

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The top k for queries of shape (d,) or (B, d)."""
        ...


class SavedIndex(Index, Protocol):
    """An index that can be written into a model folder and read back."""

    kind: ClassVar[str]

    def save(self, writer: Writer) -> None:
        """Write arrays and settings (under `writer.config["index"]`)."""
        ...

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back what `save` wrote."""
        ...


class Search(NamedTuple):
    """A checked call of `top_k`."""

    vectors: Vectors
    """The queries, (B, d)."""
    k: int
    """How many to find: what was asked for, cut to the number of rows."""
    asked: int
    single: bool
    """Whether one bare (d,) vector was given, so that results have batch shape ()."""


def open_search(queries: npt.ArrayLike, k: int, features: Features) -> Search:
    """Check what a caller gave to `top_k`."""
    vectors = check_vectors(queries, "queries", features.d, longest_vector(features.max_norm))
    asked = check_count(k, "k")
    return Search(np.atleast_2d(vectors), min(asked, features.live), asked, vectors.ndim == 1)


def best(features: Features, query: Vectors, ids: Ints, scores: Vectors, k: int) -> tuple[Ints, Vectors]:
    """The k best of the candidates, ties by smaller id.

    BLAS may give equal rows scores that differ in the last bit, depending on where they are stored. So the finalists,
    and all that come within rounding of them, are scored again the one way that depends on row and query alone.
    """
    if len(ids) > k:
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        # Twice the worst rounding of a float32 inner product of this length.
        slack = 2 * features.d * _EPSILON * sqrt(float(np.vdot(query, query))) * features.max_norm
        ids = ids[scores >= kth - slack]
    scores = features.score(ids, query)
    order = np.lexsort((ids, -scores))[:k]
    return ids[order], scores[order]


def pack(search: Search, hits: list[tuple[Ints, Vectors]], rows: Ints, *, bound: npt.ArrayLike) -> TopK:
    """One `TopK` from the hits of each query, each of length `search.k`; for `bound` see there."""
    if search.single:
        bounds = np.asarray(bound, dtype=np.float64).reshape(())
        ids, scores = np.asarray(hits[0][0], dtype=np.int64), np.asarray(hits[0][1], dtype=np.float32)
        return TopK(ids, scores, rows.reshape(()), float(bounds) == 0.0, search.asked, bounds)
    bounds = np.broadcast_to(np.asarray(bound, dtype=np.float64), len(hits))
    exact = bool((bounds == 0.0).all())
    ids = np.array([hit[0] for hit in hits], dtype=np.int64).reshape(len(hits), search.k)
    scores = np.array([hit[1] for hit in hits], dtype=np.float32).reshape(len(hits), search.k)
    return TopK(ids, scores, rows, exact, search.asked, bounds)
