"""What users leave out: ids, sets or masks, for all thetas or for each."""

from collections.abc import Sequence, Set
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel._support.checks import check_ids

__all__ = ["Exclude", "exclusions", "whole_array"]


Exclude = npt.ArrayLike | Set[int] | Sequence[npt.ArrayLike | Set[int]] | None
"""Ids (a set will do) or a boolean mask for all thetas, or one of these for each theta."""
_SETS = set, frozenset


def exclusions(exclude: Exclude, batch_shape: tuple[int, ...], n: int) -> tuple[Ints, ...]:
    """For each theta the ids, of 0 to n - 1, that are left out: sorted and distinct."""
    size = prod(batch_shape)
    if not _is_per_theta(exclude, batch_shape):
        return (_excluded_ids(cast("npt.ArrayLike", exclude), n),) * size
    each = cast("Sequence[npt.ArrayLike]", exclude)
    if len(each) != size:
        raise ValueError(f"exclude has {len(each)} entries, but there are {size} thetas")
    return tuple(_excluded_ids(e, n) for e in each)


def whole_array(values: npt.ArrayLike, expected: str) -> npt.NDArray[Any]:
    """An array of what was given; ragged sequences are refused with what was expected."""
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{expected}, not a ragged sequence") from None


def _is_per_theta(exclude: Exclude, batch_shape: tuple[int, ...]) -> bool:
    """One set for each theta: a list of arrays, or a (B, n) mask."""
    if not batch_shape:
        return False
    if isinstance(exclude, np.ndarray):
        return cast("npt.NDArray[Any]", exclude).ndim == 2
    each = cast("list[Any]", exclude)
    return isinstance(exclude, list | tuple) and any(isinstance(e, _SETS) or np.ndim(e) > 0 for e in each)


def _excluded_ids(values: npt.ArrayLike, n: int) -> Ints:
    held: npt.ArrayLike = sorted(cast("Set[int]", values)) if isinstance(values, _SETS) else values
    array = whole_array(held, f"exclude must be 1-D ids or a mask of shape ({n},)")
    if array.ndim != 1:
        raise ValueError(f"exclude must be 1-D ids or a mask of shape ({n},), not of shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != n:
            raise ValueError(f"exclude is a mask of length {len(array)}, but there are {n} rows")
        return np.flatnonzero(array)
    return np.unique(check_ids(array, "exclude", n))
