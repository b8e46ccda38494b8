"""`Estimate`: a value with its standard error."""

from dataclasses import dataclass, field, replace
from math import log, prod, sqrt
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lazygumbel import forms
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.results.base import UNKNOWN, Claimed, Naming, same_batch
from lazygumbel.results.moments import Moments
from lazygumbel.results.reasons import Grounds

__all__ = ["Estimate"]


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Claimed):
    """A value with its standard error. `value` and `stderr` have shape batch (+ value shape), `rows` shape batch.

    `bound`, shape batch, is what a theorem allows the relative root mean square error of Z (of an expectation: relative
    to the largest |f|); not a number without one. Log-probabilities come with their `ids`; all three have shape sample
    shape + batch.
    """

    form: ClassVar = forms.Estimate
    by_theta: ClassVar = ("rows", "grounds", "bound")
    counted: ClassVar = ("entry", 0)
    told: ClassVar = ("ids", "value", "stderr")
    allows: ClassVar = "root mean square error by theorem"

    value: Floats
    stderr: Floats
    rows: Ints
    grounds: Grounds
    moments: Moments | None = None
    bound: Floats = field(default_factory=lambda: UNKNOWN)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""
    ids: Ints | None = None
    naming: Naming | None = None

    def __post_init__(self) -> None:
        self._settle()

    @property
    def thetas_last(self) -> bool:
        """As in the ids; they come first in averages, whose values may be vectors."""
        return self.ids is not None

    def at(self, thetas: int | slice) -> "Estimate":
        """The estimate of one theta, or of some, of a batch (B,); it does not merge."""
        return super(Estimate, replace(self, moments=None)).at(thetas)

    def of_logits(self, logits: Floats, ids: Ints, naming: Naming | None) -> "Estimate":
        """From log Z, the log-probabilities of ids with these logits, sample shape + batch shape; never above zero."""
        return Estimate(
            np.asarray(np.minimum(logits - self.value, 0.0)),
            np.broadcast_to(self.stderr, logits.shape).copy(),
            np.asarray(self.rows + prod(logits.shape[: logits.ndim - self.rows.ndim])),
            self.grounds,
            bound=self.bound,
            coverage=self.coverage,
            ids=ids,
            naming=naming,
        )

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper ends of the normal interval of this level."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
        width = NormalDist().inv_cdf(0.5 + level / 2) * self.stderr
        return np.asarray(self.value - width), np.asarray(self.value + width)

    @classmethod
    def of_log_partition(cls, moments: Moments, rows: Ints, grounds: Grounds, bound: Floats) -> "Estimate":
        """log Z: the log is taken of the unbiased estimate of Z; its standard error by the delta method."""
        if moments.weighted is not None:
            moments = Moments(moments.shift, moments.total, moments.var_total)
        shift, total, variance = moments.shift, moments.total, moments.var_total
        if total.ndim == 0 and total > 0:  # for one theta numbers are much quicker than arrays
            found = float(total)
            value, stderr = float(shift) + log(found), sqrt(float(variance)) / found
            return cls(np.array(value), np.array(stderr), rows, grounds, moments, bound)
        with np.errstate(divide="ignore", invalid="ignore"):  # nothing was seen: infinite error
            value, stderr = shift + np.log(total), np.where(total > 0, np.sqrt(variance) / total, np.inf)
        return cls(np.asarray(value), np.asarray(stderr), rows, grounds, moments, bound)

    @classmethod
    def of_expectation(cls, moments: Moments, rows: Ints, grounds: Grounds, bound: Floats) -> "Estimate":
        """The ratio estimate of E[f]; its standard error by the delta method."""
        if moments.weighted is None or moments.var_weighted is None or moments.covariance is None:
            raise ValueError("moments hold no weighted sum, so no expectation can be formed")
        extra = (...,) + (None,) * (moments.weighted.ndim - moments.total.ndim)
        total, var_total = moments.total[extra], moments.var_total[extra]
        with np.errstate(divide="ignore", invalid="ignore"):  # nothing was seen: not a number, infinite error
            value = np.asarray(moments.weighted / total)
            variance = (moments.var_weighted - 2 * value * moments.covariance + value**2 * var_total) / total**2
            stderr = np.where(total > 0, np.sqrt(np.maximum(variance, 0.0)), np.inf)
        return cls(value, np.asarray(stderr), rows, grounds, moments, bound)

    @classmethod
    def of_entropy(cls, mean_logit: "Estimate") -> "Estimate":
        """log Z - E[logit], from what `mean_logit` found, of one set of rows or merged; by the delta method."""
        moments = mean_logit.moments
        if moments is None or moments.weighted is None or moments.var_weighted is None or moments.covariance is None:
            raise ValueError("mean_logit holds no weighted sum, so no entropy can be formed")
        mean = moments.weighted / moments.total
        value = moments.shift + np.log(moments.total) - mean
        variance = (1 + mean) ** 2 * moments.var_total - 2 * (1 + mean) * moments.covariance + moments.var_weighted
        return cls(
            np.asarray(value),
            np.asarray(np.sqrt(np.maximum(variance, 0.0)) / moments.total),
            mean_logit.rows,
            mean_logit.grounds,
            bound=mean_logit.bound,
            coverage=mean_logit.coverage,
        )

    def merge(self, other: "Estimate") -> "Estimate":
        """The estimate over the union of two disjoint sets of rows."""
        if self.moments is None or other.moments is None:
            raise ValueError("this kind of estimate does not merge; merge its log_partition or expectation instead")
        same_batch(self.rows, other.rows)
        rows, grounds = np.asarray(self.rows + other.rows), np.asarray(np.maximum(self.grounds, other.grounds))
        if (self.moments.weighted is None) != (other.moments.weighted is None):
            raise ValueError("a log partition and an expectation do not merge")
        make = Estimate.of_log_partition if self.moments.weighted is None else Estimate.of_expectation
        made = make(self.moments + other.moments, rows, grounds, np.asarray(np.maximum(self.bound, other.bound)))
        return replace(made, coverage=min(self.coverage, other.coverage))

    def _listed(self) -> dict[str, npt.NDArray[Any]]:
        listed = {"value": self.value, "stderr": self.stderr}
        return listed if self.ids is None else {"id": self.ids, **listed}

    def _one_each(self) -> bool:
        return self.value.ndim == self.rows.ndim
