"""Checks at the door: each names the argument, what it was and what it may be."""

from math import isfinite
from typing import Any, cast

import numpy as np
import numpy.typing as npt

__all__ = ["check_count", "check_ids", "check_number", "check_vectors"]

_WHOLE = int, np.integer  # not a union, which would be made anew at every check
_NUMBERS = *_WHOLE, float, np.floating


def check_count(value: object, name: str, *, least: int = 1) -> int:
    """A whole number of at least `least`, as an `int`."""
    if isinstance(value, bool) or not isinstance(value, _WHOLE):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    count = int(cast("int", value))
    if count < least:
        raise ValueError(f"{name} must be at least {least}, not {count}")
    return count


def check_vectors(values: npt.ArrayLike, name: str, d: int) -> npt.NDArray[np.float32]:
    """Vectors of length `d`, shape (d,) or (B, d), as C-contiguous float32 of the same rank."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold real numbers, not dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape ({d},) or (B, {d}), not {array.shape}")
    if array.shape[-1] != d:
        raise ValueError(f"{name} has {array.shape[-1]} columns, but the features have d = {d}")
    if array.dtype == np.float32:
        vectors = np.ascontiguousarray(array)
    else:
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(array, dtype=np.float32)
    # One product tells at once, but may itself overflow.
    if not isfinite(np.vdot(vectors, vectors)) and not np.isfinite(vectors).all():
        raise ValueError(f"{name} holds NaN, infinity or a value beyond float32; all entries must be finite")
    return vectors


def check_ids(values: npt.ArrayLike, name: str, n: int) -> npt.NDArray[np.int64]:
    """Row ids in [0, n), any shape, as int64."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold whole numbers (row ids), not dtype {array.dtype}")
    ids = array.astype(np.int64)
    if ids.min() < 0 or ids.max() >= n:
        wrong = ids[(ids < 0) | (ids >= n)].flat[0]
        raise ValueError(f"{name} holds {wrong}, but row ids run from 0 to {n - 1}")
    return ids


def check_number(
    value: object,
    name: str,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """A finite real number within the limits given, as a `float`."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise ValueError(f"{name} must be a number, not {value!r}")
    number = float(cast("float", value))
    if not isfinite(number):
        raise ValueError(f"{name} must be finite, not {number}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least:g}, not {number:g}")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, not {number:g}")
    if below is not None and number >= below:
        raise ValueError(f"{name} must be less than {below:g}, not {number:g}")
    return number
