"""What walks, losses and `fit` need of a model, wherever its rows are: `LogLinear` and `ShardedModel` both have it."""

from typing import Protocol, Self

import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.distribution import Exclude, Rng
from lazygumbel.methods import Estimator, OrderedSampler, Sampler
from lazygumbel.results import Draws, Estimate, OrderedDraws

__all__ = ["DistributionLike", "FeaturesLike", "Model", "check_model"]


class FeaturesLike(Protocol):
    """The rows phi, which need not be at hand."""

    @property
    def n(self) -> int:
        """Number of rows."""
        ...

    @property
    def d(self) -> int:
        """Length of a row."""
        ...

    @property
    def max_norm(self) -> float:
        """The largest norm of a row; it may be one that was removed."""
        ...

    def gather(self, ids: npt.ArrayLike, /) -> Vectors:
        """The rows with these ids, shape ids.shape + (d,), a copy."""
        ...


class DistributionLike(Protocol):
    """The distribution at some thetas; verbs as of `Distribution`."""

    def sample(
        self, size: int | tuple[int, ...], /, *, method: Sampler | None, rng: Rng, exclude: Exclude = None
    ) -> Draws:
        """Independent samples."""
        ...

    def sample_without_replacement(
        self, size: int, /, *, method: OrderedSampler | None = None, rng: Rng = None
    ) -> OrderedDraws:
        """Distinct rows in order."""
        ...

    def log_partition(self, *, method: Estimator | None, rng: Rng = None, exclude: Exclude = None) -> Estimate:
        """log Z."""
        ...

    def expectation(self, *, method: Estimator | None, rng: Rng = None, exclude: Exclude = None) -> Estimate:
        """The expectation of the features."""
        ...

    def log_prob(self, ids: npt.ArrayLike, /, *, method: Estimator | None, rng: Rng) -> Estimate:
        """log Pr(ids)."""
        ...


class Model(Protocol):
    """Rows, and the distribution over them at any theta."""

    @property
    def features(self) -> FeaturesLike:
        """The rows phi."""
        ...

    @property
    def ids(self) -> Ints:
        """Of all rows, ascending."""
        ...

    @property
    def size(self) -> int:
        """How many ids were given, from 0 on, those of removed rows among them."""
        ...

    def check_ids(self, ids: npt.ArrayLike, name: str, /) -> Ints:
        """Ids of rows, any shape, as int64."""
        ...

    def snapshot(self) -> Self:
        """The model as it is now."""
        ...

    def __call__(self, theta: Vectors, /, *, temperature: float) -> DistributionLike:
        """The distribution at thetas (B, d)."""
        ...


def check_model(model: object) -> None:
    """Refuse what is no `Model`, rows above all; callers may be untyped."""
    if not (callable(model) and hasattr(getattr(model, "features", None), "gather")):
        kind = type(model).__name__
        raise ValueError(f"model must be a LogLinear or a ShardedModel, not {kind}: give LogLinear.build(rows)")
