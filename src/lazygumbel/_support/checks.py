"""Checks at the door: each names the argument, what it was and what it may be."""

from math import inf, isfinite
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors

__all__ = [
    "check_count",
    "check_ids",
    "check_number",
    "check_temperature",
    "check_vectors",
    "longest_vector",
    "plain_array",
]

_LARGEST_LOGIT = 1e37
"""Inner products and logits are computed in float32, which ends at 3.4e38."""

_COLDEST = 1e-300
"""Below, one over the temperature overflows."""

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


def check_temperature(value: object) -> float:
    """What divides inner products, as a `float`."""
    divisor = check_number(value, "temperature", above=0.0)
    if divisor < _COLDEST:
        raise ValueError(f"temperature must be at least {_COLDEST:g}, not {divisor:g}")
    return divisor


def check_vectors(values: npt.ArrayLike, name: str, d: int, longest: float = inf) -> Vectors:
    """Vectors of length `d`, shape (d,) or (B, d), as C-contiguous float32 of the same rank; none of a larger norm."""
    array = plain_array(values, name)
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
    if not vectors.flags.writeable:
        vectors = vectors.copy()  # or kernels would be compiled anew, for half a minute: for them it is another type
    # One product tells at once, but may itself overflow.
    square = float(np.vdot(vectors, vectors))
    if not (isfinite(square) and square <= longest * longest):
        _check_long(vectors, name, longest)
    return vectors


def _check_long(vectors: Vectors, name: str, longest: float) -> None:
    if not np.isfinite(vectors).all():
        raise ValueError(f"{name} holds NaN, infinity or a value beyond float32; all entries must be finite")
    norm = float(np.linalg.norm(vectors.astype(np.float64), axis=-1).max())
    if norm > longest:
        raise ValueError(
            f"{name} has norm {norm:.3g}: with these rows and this temperature, logits overflow from {longest:.3g} on"
        )


def longest_vector(max_norm: float, temperature: float = 1.0) -> float:
    """The largest norm of a theta whose inner products with rows of at most this norm, and logits, do not overflow."""
    return _LARGEST_LOGIT * min(temperature, 1.0) / max(max_norm, 1e-300)


def plain_array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """An array of whatever was given; one with a mask is refused, because the mask would be lost."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array; give an array without a mask, {name}.filled(...) for one")
    return np.asarray(values)


def check_ids(values: npt.ArrayLike, name: str, n: int) -> Ints:
    """Row ids in [0, n), any shape, as int64."""
    array = plain_array(values, name)
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
    value: object, name: str, *, least: float | None = None, above: float | None = None, below: float | None = None
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
