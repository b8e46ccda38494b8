"""What comes back: immutable records that report their work (`rows`) and merge.

Merging two answers over disjoint sets of rows gives the answer over their union: the larger perturbed value wins a
draw, partition functions add, expectations average by weight, top-k lists interleave. So blocks, threads and shards
are one `functools.reduce`. Merging is associative, up to rounding in the estimates.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import isnan, log, sqrt
from statistics import NormalDist
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

__all__ = [
    "EXACT",
    "HEURISTIC",
    "Draws",
    "Estimate",
    "Label",
    "Labels",
    "Mode",
    "Moments",
    "OrderedDraws",
    "TopK",
    "weakest",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Label = Literal["exact", "bounded", "calibrated", "heuristic"]
"""exact: no approximation but rounding. bounded: a theorem bounds the error of this answer. calibrated: the mean error
over thetas like those of a calibration was measured to meet a target. heuristic: none of these."""
Labels = npt.NDArray[np.str_]
"""One a theta."""

_UNKNOWN: Floats = np.array(np.nan)
_NEVER: Floats = np.array(0.0)
_NONE: Ints = np.array(0)
_LABELS: tuple[Label, ...] = ("exact", "bounded", "calibrated", "heuristic")


EXACT: Labels = np.array("exact", dtype="U10")
HEURISTIC: Labels = np.array("heuristic", dtype="U10")


def weakest(labels: Iterable[str]) -> Label:
    """The weakest of some claims."""
    return _LABELS[max((_LABELS.index(cast("Label", label)) for label in labels), default=0)]


def _weaker(a: Labels, b: Labels) -> Labels:
    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    return np.array([weakest(pair) for pair in pairs], dtype="U10").reshape(a.shape)


@dataclass(frozen=True, eq=False)
class TopK:
    """The rows with the largest inner products, best first, ties by smaller id.

    `ids` and `scores` have shape batch + (min(k, n),). Of shape batch: `rows`, how many were scored, and `bound`, the
    probability at most that a row is missed: zero if none can be, not a number where it is not known.
    """

    ids: Ints
    scores: npt.NDArray[np.float32]
    rows: Ints
    exact: bool
    k: int
    """How many were asked for; fewer are held only when there are fewer rows."""
    bound: Floats = field(default_factory=lambda: _UNKNOWN)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""

    def __post_init__(self) -> None:
        bound = _NEVER if self.exact else self.bound
        if self.exact or bound.shape != self.rows.shape:
            object.__setattr__(self, "bound", np.broadcast_to(bound, self.rows.shape))

    @property
    def labels(self) -> Labels:
        """Of each theta."""
        return _labels_of(self.bound)

    @property
    def label(self) -> Label:
        """The weakest of the labels."""
        return weakest(self.labels.reshape(-1).tolist())

    def merge(self, other: "TopK") -> "TopK":
        """The top k of two disjoint sets of rows."""
        _same_batch(self.rows, other.rows)
        k = min(self.k, other.k)  # beyond the smaller k, rows of that side may be missing
        ids = np.concatenate([self.ids, other.ids], axis=-1)
        scores = np.concatenate([self.scores, other.scores], axis=-1)
        order = np.lexsort((ids, -scores), axis=-1)[..., :k]
        return TopK(
            np.take_along_axis(ids, order, -1),
            np.take_along_axis(scores, order, -1),
            np.asarray(self.rows + other.rows),
            self.exact and other.exact,
            k,
            np.asarray(np.maximum(self.bound, other.bound)),
            min(self.coverage, other.coverage),
        )


@dataclass(frozen=True, eq=False)
class Mode:
    """The most probable row: `ids`, `scores` (raw inner products) and the rest have shape batch.

    `bound` is the probability at most that another row is more probable: see `TopK`.
    """

    ids: Ints
    scores: npt.NDArray[np.float32]
    rows: Ints
    bound: Floats

    @property
    def labels(self) -> Labels:
        """Of each theta."""
        return _labels_of(self.bound)

    @property
    def label(self) -> Label:
        """The weakest of the labels."""
        return weakest(self.labels.reshape(-1).tolist())

    @property
    def exact(self) -> bool:
        """Whether no row can be more probable."""
        return self.label == "exact"


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent samples: `ids` and `values` of shape sample_shape + batch, `rows` of shape batch.

    `values` are the winning perturbed logits, each Gumbel with location log Z and independent of its id. `labels`,
    `bound` and `violations` have shape batch too: how far the draws of a theta can be trusted, the total variation
    distance that a theorem allows them (zero for exact draws, not a number without a theorem), and how many ceilings
    were found too low among the rows that were scored.
    """

    ids: Ints
    values: Floats
    rows: Ints
    labels: Labels
    bound: Floats = field(default_factory=lambda: _UNKNOWN)
    violations: Ints = field(default_factory=lambda: _NONE)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""

    def __post_init__(self) -> None:
        _settle_labels(self)
        if self.violations.shape != self.rows.shape:
            object.__setattr__(self, "violations", np.broadcast_to(self.violations, self.rows.shape))

    @property
    def label(self) -> Label:
        """The weakest of the labels."""
        return weakest(self.labels.reshape(-1).tolist())

    @property
    def exact(self) -> bool:
        """Whether the ids follow the softmax exactly."""
        return self.label == "exact"

    def merge(self, other: "Draws") -> "Draws":
        """Draws from the softmax over the union of two disjoint sets of rows."""
        if self.ids.shape != other.ids.shape:
            raise ValueError(f"draws of shapes {self.ids.shape} and {other.ids.shape} do not merge")
        _same_batch(self.rows, other.rows)
        wins = self.values >= other.values
        return Draws(
            np.where(wins, self.ids, other.ids),
            np.where(wins, self.values, other.values),
            np.asarray(self.rows + other.rows),
            _weaker(self.labels, other.labels),
            np.asarray(np.maximum(self.bound, other.bound)),
            np.asarray(self.violations + other.violations),
            min(self.coverage, other.coverage),
        )


@dataclass(frozen=True, eq=False)
class OrderedDraws:
    """K distinct rows in the order of drawing without replacement (Plackett-Luce), shape (K,) + batch.

    `values` are the perturbed logits, decreasing; `threshold`, shape batch, is the largest perturbed logit that was
    left out (minus infinity when nothing was). Given the threshold, rows are included independently: `weights` are for
    averages over the softmax, `inclusion` for sums over rows. The probability of the slate itself, in this order, is
    what `Distribution.log_prob_ordered(ids)` gives.
    """

    ids: Ints
    logits: Floats
    values: Floats
    threshold: Floats
    rows: Ints
    labels: Labels
    bound: Floats = field(default_factory=lambda: _UNKNOWN)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""

    def __post_init__(self) -> None:
        _settle_labels(self)

    @property
    def label(self) -> Label:
        """The weakest of the labels."""
        return weakest(self.labels.reshape(-1).tolist())

    @property
    def exact(self) -> bool:
        """Whether the draws follow Plackett-Luce exactly."""
        return self.label == "exact"

    @property
    def inclusion(self) -> Floats:
        """Probability of each drawn row to exceed the threshold, shape (K,) + batch."""
        with np.errstate(over="ignore"):
            return -np.expm1(-np.exp(self.logits - self.threshold))

    @property
    def weights(self) -> Floats:
        """Self-normalised importance weights: sum(weights * f(ids), axis=0) estimates the softmax expectation of f."""
        log_weights = self.logits - np.log(self.inclusion)
        weights = np.exp(log_weights - log_weights.max(axis=0))
        return weights / weights.sum(axis=0)

    @property
    def log_partition(self) -> Floats:
        """log of the unbiased estimate of Z, sum of exp(logit) / inclusion, shape batch."""
        log_weights = self.logits - np.log(self.inclusion)
        top = log_weights.max(axis=0)
        return np.asarray(top + np.log(np.exp(log_weights - top).sum(axis=0)))

    def merge(self, other: "OrderedDraws") -> "OrderedDraws":
        """The first K of the union of two disjoint sets of rows; both must hold the same number K."""
        _same_batch(self.rows, other.rows)
        k = len(self.ids)
        if len(other.ids) != k:
            raise ValueError(f"ordered draws of {k} and {len(other.ids)} rows do not merge")
        values = np.concatenate([self.values, other.values])
        order = np.argsort(-values, axis=0, kind="stable")

        def first(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            return np.take_along_axis(np.concatenate([a, b]), order[:k], 0)

        left_out = np.take_along_axis(values, order[k : k + 1], 0)[0]
        threshold = np.asarray(np.maximum(left_out, np.maximum(self.threshold, other.threshold)))
        return OrderedDraws(
            first(self.ids, other.ids).astype(np.int64),
            first(self.logits, other.logits).astype(np.float64),
            first(self.values, other.values).astype(np.float64),
            threshold,
            np.asarray(self.rows + other.rows),
            _weaker(self.labels, other.labels),
            np.asarray(np.maximum(self.bound, other.bound)),
            min(self.coverage, other.coverage),
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows from which estimates derive, additive over disjoint sets of rows, in units of exp(shift).

    `total` estimates sum exp(logit) and `weighted` sum exp(logit) f, with the variances and covariance of the two.
    Shapes: batch for `shift`, `total`, `var_total`; batch + value shape for the others.
    """

    shift: Floats
    total: Floats
    var_total: Floats
    weighted: Floats | None = None
    var_weighted: Floats | None = None
    covariance: Floats | None = None

    def at(self, b: int) -> "Moments":
        """The sums of one theta of a batch (B,), batch shape ()."""
        optional = (self.weighted, self.var_weighted, self.covariance)
        return Moments(
            self.shift[b, ...],
            self.total[b, ...],
            self.var_total[b, ...],
            *(None if values is None else values[b, ...] for values in optional),
        )

    def __add__(self, other: "Moments") -> "Moments":
        _same_batch(self.shift, other.shift)
        shift = np.maximum(self.shift, other.shift)
        a, b = self._at(shift), other._at(shift)
        return Moments(
            shift,
            a.total + b.total,
            a.var_total + b.var_total,
            _plus(a.weighted, b.weighted),
            _plus(a.var_weighted, b.var_weighted),
            _plus(a.covariance, b.covariance),
        )

    def _at(self, shift: Floats) -> "Moments":
        with np.errstate(invalid="ignore"):  # both minus infinity: nothing was seen, the factor is one
            factor = np.where(self.shift == shift, 1.0, np.exp(self.shift - shift))
        return Moments(
            shift,
            self.total * factor,
            self.var_total * factor**2,
            _times(self.weighted, factor),
            _times(self.var_weighted, factor**2),
            _times(self.covariance, factor**2),
        )


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value with its standard error. `value` and `stderr` have shape batch (+ value shape), `rows` shape batch.

    `bound`, shape batch, is what a theorem allows the relative root mean square error of Z (of an expectation: relative
    to the largest |f|); not a number without one.
    """

    value: Floats
    stderr: Floats
    rows: Ints
    labels: Labels
    moments: Moments | None = None
    bound: Floats = field(default_factory=lambda: _UNKNOWN)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""

    def __post_init__(self) -> None:
        _settle_labels(self)

    @property
    def label(self) -> Label:
        """The weakest of the labels."""
        return weakest(self.labels.reshape(-1).tolist())

    @property
    def exact(self) -> bool:
        """Whether the value is exact, up to rounding."""
        return self.label == "exact"

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper ends of the normal interval of this level."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
        width = NormalDist().inv_cdf(0.5 + level / 2) * self.stderr
        return np.asarray(self.value - width), np.asarray(self.value + width)

    @classmethod
    def of_log_partition(cls, moments: Moments, rows: Ints, labels: Labels, bound: Floats) -> "Estimate":
        """log Z: the log is taken of the unbiased estimate of Z; its standard error by the delta method."""
        if moments.weighted is not None:
            moments = Moments(moments.shift, moments.total, moments.var_total)
        shift, total, variance = moments.shift, moments.total, moments.var_total
        if total.ndim == 0 and total > 0:  # for one theta numbers are much quicker than arrays
            found = float(total)
            value, stderr = float(shift) + log(found), sqrt(float(variance)) / found
            return cls(np.array(value), np.array(stderr), rows, labels, moments, bound)
        with np.errstate(divide="ignore", invalid="ignore"):  # nothing was seen: infinite error
            value, stderr = shift + np.log(total), np.where(total > 0, np.sqrt(variance) / total, np.inf)
        return cls(np.asarray(value), np.asarray(stderr), rows, labels, moments, bound)

    @classmethod
    def of_expectation(cls, moments: Moments, rows: Ints, labels: Labels, bound: Floats) -> "Estimate":
        """The ratio estimate of E[f]; its standard error by the delta method."""
        if moments.weighted is None or moments.var_weighted is None or moments.covariance is None:
            raise ValueError("moments hold no weighted sum, so no expectation can be formed")
        extra = (...,) + (None,) * (moments.weighted.ndim - moments.total.ndim)
        total, var_total = moments.total[extra], moments.var_total[extra]
        with np.errstate(divide="ignore", invalid="ignore"):  # nothing was seen: not a number, infinite error
            value = np.asarray(moments.weighted / total)
            variance = (moments.var_weighted - 2 * value * moments.covariance + value**2 * var_total) / total**2
            stderr = np.where(total > 0, np.sqrt(np.maximum(variance, 0.0)), np.inf)
        return cls(value, np.asarray(stderr), rows, labels, moments, bound)

    def merge(self, other: "Estimate") -> "Estimate":
        """The estimate over the union of two disjoint sets of rows."""
        if self.moments is None or other.moments is None:
            raise ValueError("this kind of estimate does not merge; merge its log_partition or expectation instead")
        _same_batch(self.rows, other.rows)
        rows, labels = np.asarray(self.rows + other.rows), _weaker(self.labels, other.labels)
        if (self.moments.weighted is None) != (other.moments.weighted is None):
            raise ValueError("a log partition and an expectation do not merge")
        make = Estimate.of_log_partition if self.moments.weighted is None else Estimate.of_expectation
        made = make(self.moments + other.moments, rows, labels, np.asarray(np.maximum(self.bound, other.bound)))
        return replace(made, coverage=min(self.coverage, other.coverage))


def _settle_labels(result: "Draws | OrderedDraws | Estimate") -> None:
    """Give every theta a label and, where none is given, a bound: of zero if it is exact."""
    shape = result.rows.shape
    if result.labels.shape != shape:
        object.__setattr__(result, "labels", np.broadcast_to(result.labels, shape))
    if result.bound.shape == shape and result.bound.size == 1 and not isnan(result.bound.item()):
        return  # one theta, where a check of arrays would take longer than some draws
    if result.bound.shape != shape or np.isnan(result.bound).any():
        bound = np.broadcast_to(result.bound, shape)
        object.__setattr__(result, "bound", np.where(result.labels == "exact", 0.0, bound))


def _labels_of(bound: Floats) -> Labels:
    """What a bound of the probability of an error comes to."""
    return np.where(bound == 0.0, "exact", np.where(np.isnan(bound), "heuristic", "bounded")).astype("U10")


def _same_batch(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> None:
    if a.shape != b.shape:
        raise ValueError(f"results of batch shapes {a.shape} and {b.shape} do not merge")


def _plus(a: Floats | None, b: Floats | None) -> Floats | None:
    if a is None or b is None:
        return None
    if a.shape != b.shape:
        raise ValueError(f"expectations of shapes {a.shape} and {b.shape} do not merge")
    return a + b


def _times(a: Floats | None, factor: Floats) -> Floats | None:
    return None if a is None else a * factor[(...,) + (None,) * (a.ndim - factor.ndim)]
