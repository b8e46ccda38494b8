"""What a `MergedDistribution` needs to know of its parts: rows with an index of their own, here or elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.distribution import Exclude, Rng
from lazygumbel.methods import Estimator, Normaliser, OrderedSampler, Sampler
from lazygumbel.results import Draws, Estimate, OrderedDraws, TopK

__all__ = ["Answers", "Each", "Part", "Places", "one_by_one"]

T = TypeVar("T")


class Answers(Protocol):
    """What a part is asked at a batch of thetas, (B, d): some verbs of `Distribution`, about its own ids."""

    def sample(self, size: int, *, method: Sampler | None, rng: Rng, exclude: Exclude) -> Draws:
        """Independent samples, (size, B)."""
        ...

    def sample_without_replacement(
        self, size: int, *, method: OrderedSampler | None, rng: Rng, exclude: Exclude
    ) -> OrderedDraws:
        """Distinct rows in order."""
        ...

    def log_partition(
        self, *, rel_err: float | None, method: Estimator | Normaliser | None, rng: Rng, exclude: Exclude
    ) -> Estimate:
        """log Z, (B,)."""
        ...

    def expectation(
        self,
        f: Callable[[Ints], npt.ArrayLike] | None,
        *,
        rel_err: float | None,
        method: Estimator | None,
        rng: Rng,
        exclude: Exclude,
    ) -> Estimate:
        """E[f], or of the features without f."""
        ...

    def mean_logit(self, *, rel_err: float | None, method: Estimator | None, rng: Rng, exclude: Exclude) -> Estimate:
        """E[logit], (B,)."""
        ...

    def logits(self, ids: Ints) -> Floats:
        """Of ids (m, B)."""
        ...

    def top_k(self, k: int, *, exclude: Exclude) -> TopK:
        """The k most probable rows."""
        ...


class Part(Protocol):
    """Rows with an index of their own: a model of them. Their own ids are places in `ids`."""

    @property
    def ids(self) -> Ints:
        """What users call each row, (n,); also of rows that are no longer drawn."""
        ...

    @property
    def count(self) -> int:
        """How many rows can be drawn."""
        ...

    def __call__(self, theta: Vectors, *, temperature: float) -> Answers:
        """The distribution over these rows at thetas (B, d)."""
        ...


class Places(Protocol):
    """Which part has a row."""

    @property
    def size(self) -> int:
        """Ids run from 0 to size - 1."""
        ...

    def find(self, ids: Ints) -> tuple[Ints, Ints]:
        """For each id its part, -1 where there is no such row (any more), and its place in that part."""
        ...


class Each(Protocol):
    """How parts are asked: one after another, or at the same time."""

    def __call__(self, function: Callable[[int], T], parts: Iterable[int], /) -> Iterator[T]:
        """What the function returns for each, in their order."""
        ...


def one_by_one(function: Callable[[int], T], parts: Iterable[int]) -> Iterator[T]:
    """One part after another."""
    return map(function, parts)
