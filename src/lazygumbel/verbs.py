"""`Verbs`: the verbs of a distribution, wherever its rows are, and what follows from some of them alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count
from lazygumbel.methods import Estimator, Normaliser, Sampler
from lazygumbel.results import Draws, Estimate, Mode, Naming, TopK
from lazygumbel.rows.exclusions import Exclude

__all__ = ["Rng", "SumOptions", "Verbs", "sample_shape"]

Rng = np.random.Generator | np.random.SeedSequence | int | None


class SumOptions(NamedTuple):
    """How the sums behind an estimate are to be made: what all verbs that rest on them take by name."""

    rel_err: float | None
    method: Estimator | Normaliser | None
    rng: Rng
    exclude: Exclude


def sample_shape(size: int | tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The shape of independent draws of one theta, and how many there are."""
    shape = size if isinstance(size, tuple) else (size,)
    return shape, prod(check_count(s, "size", least=0) for s in shape)


class Verbs(ABC):
    """What users call, said once; a distribution says how it is done."""

    _naming: Naming | None

    def sample(
        self,
        size: int | tuple[int, ...] = 1,
        *,
        method: Sampler | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Draws:
        """Independent samples: `ids` of shape (size,) + batch shape."""
        return self._sample(size, method, rng, exclude)

    def log_partition(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | Normaliser | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Z, shape batch shape. `rel_err` asks the default method for this relative error of Z."""
        return self._log_partition(SumOptions(rel_err, method, rng, exclude))

    def expectation(
        self,
        f: Callable[[Ints], npt.ArrayLike] | None = None,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """E[f(i)], shape batch shape + value shape; without f, the expectation of the features phi.

        `f` takes ids of shape (m,) and returns (m,) or (m, p).
        """
        return self._expectation(f, SumOptions(rel_err, method, rng, exclude))

    def mean_logit(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """E[theta . phi / temperature], shape batch shape; merges, and `bound` is that of an entropy made from it."""
        return self._mean_logit(SumOptions(rel_err, method, rng, exclude))

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
        return self._log_prob(ids, SumOptions(rel_err, method, rng, exclude))

    def log_prob_ordered(
        self,
        ids: npt.ArrayLike,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Pr of each row of a slate given those before it, drawn without replacement; ids (K,) + batch shape.

        Their sum over the first axis is the log-probability of the slate in this order (Plackett-Luce).
        """
        return self._log_prob_ordered(ids, SumOptions(rel_err, method, rng, exclude))

    def entropy(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """-E[log Pr(i)] in nats, shape batch shape."""
        return Estimate.of_entropy(self._mean_logit(SumOptions(rel_err, method, rng, exclude)))

    @abstractmethod
    def logits(self, ids: npt.ArrayLike, *, exclude: Exclude = None) -> Floats:
        """theta . phi / temperature of ids of shape sample shape + batch shape; minus infinity for excluded rows."""

    @abstractmethod
    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows (as far as indexes find them), with raw inner products."""

    def mode(self, *, exclude: Exclude = None) -> Mode:
        """The most probable row (as far as indexes find it), shape batch shape."""
        return self.top_k(1, exclude=exclude).first

    @abstractmethod
    def _sample(self, size: int | tuple[int, ...], method: Sampler | None, rng: Rng, exclude: Exclude) -> Draws: ...

    @abstractmethod
    def _log_partition(self, options: SumOptions) -> Estimate: ...

    @abstractmethod
    def _expectation(self, f: Callable[[Ints], npt.ArrayLike] | None, options: SumOptions) -> Estimate: ...

    @abstractmethod
    def _mean_logit(self, options: SumOptions) -> Estimate: ...

    @abstractmethod
    def _log_prob_ordered(self, ids: npt.ArrayLike, options: SumOptions) -> Estimate: ...

    def _log_prob(self, ids: npt.ArrayLike, options: SumOptions) -> Estimate:
        logits, log_z = self.logits(ids, exclude=options.exclude), self._log_partition(options)
        return log_z.of_logits(logits, np.asarray(ids, dtype=np.int64), self._naming)
