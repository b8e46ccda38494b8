"""`Moments`: what estimates are made of."""

from dataclasses import dataclass

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.results.base import same_batch

__all__ = ["Moments"]


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
        same_batch(self.shift, other.shift)
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


def _plus(a: Floats | None, b: Floats | None) -> Floats | None:
    if a is None or b is None:
        return None
    if a.shape != b.shape:
        raise ValueError(f"expectations of shapes {a.shape} and {b.shape} do not merge")
    return a + b


def _times(a: Floats | None, factor: Floats) -> Floats | None:
    return None if a is None else a * factor[(...,) + (None,) * (a.ndim - factor.ndim)]
