"""`Verbs`: what follows from the verbs of a distribution alone, wherever its rows are."""

from abc import ABC, abstractmethod
from math import prod

import numpy as np
import numpy.typing as npt

from lazygumbel._support.checks import check_count
from lazygumbel.methods import Estimator, Normaliser
from lazygumbel.results import Estimate, Mode, Naming, TopK
from lazygumbel.rows.exclusions import Exclude

__all__ = ["Rng", "Verbs", "sample_shape"]

Rng = np.random.Generator | np.random.SeedSequence | int | None


def sample_shape(size: int | tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The shape of independent draws of one theta, and how many there are."""
    shape = size if isinstance(size, tuple) else (size,)
    return shape, prod(check_count(s, "size", least=0) for s in shape)


class Verbs(ABC):
    """The verbs that others are made of, and those others."""

    _naming: Naming | None

    @abstractmethod
    def log_partition(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | Normaliser | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Z, shape batch shape."""

    @abstractmethod
    def mean_logit(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """E[theta . phi / temperature], shape batch shape; merges."""

    @abstractmethod
    def logits(self, ids: npt.ArrayLike, *, exclude: Exclude = None) -> npt.NDArray[np.float64]:
        """theta . phi / temperature of ids of shape sample shape + batch shape; minus infinity for excluded rows."""

    @abstractmethod
    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows."""

    def log_prob(
        self,
        ids: npt.ArrayLike,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Pr(ids), for ids of shape sample shape + batch shape; excluded rows have minus infinity."""
        if not (method is None or issubclass(type(method), Estimator)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"method: {method!r} cannot do this (it is no Estimator)")
        logits = self.logits(ids, exclude=exclude)
        log_z = self.log_partition(rel_err=rel_err, method=method, rng=rng, exclude=exclude)
        return log_z.of_logits(logits, np.asarray(ids, dtype=np.int64), self._naming)

    def entropy(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """-E[log Pr(i)] in nats, shape batch shape."""
        return Estimate.of_entropy(self.mean_logit(rel_err=rel_err, method=method, rng=rng, exclude=exclude))

    def mode(self, *, exclude: Exclude = None) -> Mode:
        """The most probable row (as far as indexes find it), shape batch shape."""
        return self.top_k(1, exclude=exclude).first
