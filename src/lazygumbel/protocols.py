"""What walks and losses need of a model, wherever its rows are: `LogLinear` and `sharded.ShardedModel` both have it."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from lazygumbel.distribution import Exclude, Rng
from lazygumbel.methods import Estimator, Sampler
from lazygumbel.results import Draws, Estimate

__all__ = ["Asked", "Model", "Rows"]


class Rows(Protocol):
    """The rows phi, which need not be at hand."""

    @property
    def n(self) -> int:
        """Number of rows."""
        ...

    @property
    def d(self) -> int:
        """Length of a row."""
        ...

    def gather(self, ids: npt.ArrayLike, /) -> npt.NDArray[np.float32]:
        """The rows with these ids, shape ids.shape + (d,), a copy."""
        ...


class Asked(Protocol):
    """The distribution at some thetas; verbs as of `Distribution`."""

    def sample(
        self, size: int | tuple[int, ...], /, *, method: Sampler | None, rng: Rng, exclude: Exclude = None
    ) -> Draws:
        """Independent samples."""
        ...

    def log_partition(self, *, method: Estimator | None, rng: Rng) -> Estimate:
        """log Z."""
        ...

    def expectation(self, *, method: Estimator | None, rng: Rng) -> Estimate:
        """The expectation of the features."""
        ...

    def log_prob(self, ids: npt.ArrayLike, /, *, method: Estimator | None, rng: Rng) -> Estimate:
        """log Pr(ids)."""
        ...


class Model(Protocol):
    """Rows, and the distribution over them at any theta."""

    @property
    def features(self) -> Rows:
        """The rows phi."""
        ...

    def __call__(self, theta: npt.NDArray[np.float32], /, *, temperature: float) -> Asked:
        """The distribution at thetas (B, d)."""
        ...
