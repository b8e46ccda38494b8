"""Moments of rows that are seen for certain, and of a batch from its thetas."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.methods.base import Function, Phi, Query, Seen
from lazygumbel.results import EXACT, Moments

__all__ = ["WeightedSums", "concatenate", "exact_seen", "stack", "weigh"]


_ROWS_AT_ONCE = 4096
"""So many values of f fit in cache."""


class WeightedSums(NamedTuple):
    """Sums over rows of w f, of (w f)^2 and of w^2 f, each of the shape of a value of f."""

    values: Floats
    squares: Floats
    cross: Floats

    @classmethod
    def of(cls, f: Function, ids: Ints, logits: Floats, weights: Floats) -> "WeightedSums":
        """Some rows at a time: f may have many values for each. The features themselves are summed where they are."""
        return cls._of(f, ids, logits, weights, kernels.sum_rows)

    @classmethod
    def of_pairs(cls, f: Function, ids: Ints, logits: Floats, weights: Floats) -> "WeightedSums":
        """The same with squares and products of the differences within pairs, the first two rows and so on."""
        return cls._of(f, ids, logits, weights, kernels.sum_pairs)

    @classmethod
    def _of(cls, f: Function, ids: Ints, logits: Floats, weights: Floats, add_up: Callable[..., Any]) -> "WeightedSums":
        if isinstance(f, Phi) and f.features.at_hand:
            return cls(*add_up(f.features.stored, f.features.locate(ids), weights))
        cuts = [slice(a, a + _ROWS_AT_ONCE) for a in range(0, max(len(ids), 1), _ROWS_AT_ONCE)]
        parts: list[WeightedSums] = []
        for cut in cuts:
            w, values = weights[cut], f(ids[cut], logits[cut])
            products = (w * values.T).T
            if add_up is kernels.sum_pairs:
                w, products_between = w[::2] - w[1::2], products[::2] - products[1::2]
            else:
                products_between = products
            parts.append(
                cls(
                    products.sum(axis=0),
                    np.asarray(np.square(products_between).sum(axis=0)),
                    np.asarray(w @ products_between),
                )
            )
        return cls(*(np.sum(column, axis=0) for column in zip(*parts, strict=True)))


def weigh(ids: Ints, logits: Floats, f: Function | None) -> Moments:
    """Exact sums over the given rows of one theta, batch shape (); no rows, or none of weight, sum to zero."""
    shift = logits.max(initial=-np.inf)
    weights = np.exp(logits - (shift if np.isfinite(shift) else 0.0))
    total, zero = np.asarray(weights.sum()), np.zeros(())
    if f is None:
        return Moments(np.asarray(shift), total, zero)
    weighted = WeightedSums.of(f, ids, logits, weights).values
    none = np.zeros_like(weighted)
    return Moments(np.asarray(shift), total, zero, weighted, none, none)


def exact_seen(moments: Moments, query: Query) -> Seen:
    """Sums over all rows."""
    size = query.size
    return Seen(moments, np.full(size, query.features.n), np.full(size, EXACT), np.zeros(size))


def stack(parts: Sequence[Moments]) -> Moments:
    """Moments of shape () for each theta as one of shape (B,)."""
    return _joined(parts, np.stack)


def concatenate(parts: Sequence[Moments]) -> Moments:
    """Moments of shapes (B1,), (B2,) and so on as one."""
    return parts[0] if len(parts) == 1 else _joined(parts, np.concatenate)


def _joined(parts: Sequence[Moments], join: Callable[[list[Floats]], Floats]) -> Moments:
    if not parts:  # of no thetas
        return Moments(*np.empty((3, 0)))

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else join(values)

    return Moments(*(column(field.name) for field in fields(Moments)))
