"""Theta, in every form that it may arrive in: numbers, base64 or raw float32, an id, a name, a sum of names."""

import base64
import binascii
from typing import Any, NamedTuple, cast

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel._support.checks import check_count, check_vectors
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.served import Served

__all__ = ["BASE64", "SCHEMA", "Thetas", "floats_of", "from_bytes", "from_json", "ids_of", "numbers_of"]

_FORMS = (
    "theta must be a list of numbers, a list of such lists, the id of a row, a name or a sum of names such as "
    "'a + b - c', a list of these, or {'float32': base64 of little-endian float32}"
)
_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}
BASE64: dict[str, Any] = {
    "type": "object",
    "properties": {
        "float32": {"type": "string", "contentEncoding": "base64"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 2},
    },
    "required": ["float32"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "description": "A vector, or several: numbers, the id of a row, a name or a sum of names (`king - man + woman`; "
    "`#620` is the row with id 620), a list of names, or little-endian float32 in base64.",
    "oneOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "minLength": 1},
        _NUMBERS,
        {"type": "array", "items": _NUMBERS, "minItems": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        BASE64,
    ],
}


class Thetas(NamedTuple):
    """Checked thetas."""

    vectors: Vectors
    """(B, d)."""
    single: bool
    """Whether one bare theta was given, so that the answer has batch shape ()."""


def from_json(value: Any, served: Served, limits: Limits) -> Thetas:
    """Thetas from what stood under `theta` in a request."""
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        limits.allow(len(items) if isinstance(items[0], str | list) else 1, "thetas", "the number of thetas")
        if all(isinstance(item, str) for item in items):
            return Thetas(np.array([_row(item, served) for item in items]), single=False)
        return _of_numbers(items, served, limits)
    if isinstance(value, dict):
        body, shape = floats_of(cast("dict[str, Any]", value), "theta", _FORMS)
        return from_bytes(body, served, limits, shape)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return Thetas(_row(value, served)[None], single=True)
    raise ValueError(f"{_FORMS}, not {_short(value)}")


def from_bytes(body: bytes, served: Served, limits: Limits, shape: list[int] | None = None) -> Thetas:
    """Thetas from little-endian float32: one of 4 d bytes, or several, one after the other."""
    d = served.model.features.d
    if not body or len(body) % (4 * d):
        raise ValueError(f"theta has {len(body)} bytes; one theta is {4 * d} bytes: d = {d} numbers of float32")
    given = np.frombuffer(body, dtype="<f4")
    count = len(given) // d
    if shape is None:
        shape = [d] if count == 1 else [count, d]
    elif shape not in ([d], [count, d]) or (shape == [d] and count > 1):
        raise ValueError(f"shape is {shape}, but theta holds {count} vectors of d = {d} numbers")
    limits.allow(count, "thetas", "the number of thetas")
    return Thetas(check_vectors(given.reshape(count, d), "theta", d), single=len(shape) == 1)


def ids_of(values: Any, name: str, served: Served) -> Ints:
    """Row ids from a list of ids and names, (m,)."""
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list of row ids or names, not {_short(values)}")
    given = cast("list[Any]", values)
    for value in given:
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise ValueError(f"{name} must hold row ids or names, not {_short(value)}")
    found = [value if isinstance(value, int) else served.directory.find(value) for value in given]
    return served.directory.check(found, name)


def _row(value: str | int, served: Served) -> Vectors:
    if isinstance(value, str):
        vector = served.directory.vector(value)
        return check_vectors(vector, "theta", len(vector))
    return served.model.features.gather(served.directory.check(value, "theta"))


def numbers_of(items: list[Any], forms: str) -> Floats:
    """Numbers, or lists of numbers; `forms` says what it might have been."""
    try:
        # Floats at once: whole numbers beyond 64 bits would become objects.
        array = np.array(items, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{forms}, not {_short(items)}") from None
    if _has_others(items):
        raise ValueError(f"{forms}, not {_short(items)}")
    return array


def _of_numbers(items: list[Any], served: Served, limits: Limits) -> Thetas:
    vectors = check_vectors(numbers_of(items, _FORMS), "theta", served.model.features.d)
    limits.allow(1 if vectors.ndim == 1 else len(vectors), "thetas", "the number of thetas")
    return Thetas(np.atleast_2d(vectors), single=vectors.ndim == 1)


def _has_others(items: list[Any]) -> bool:
    """Whether something is no number that NumPy would take for one: true, "1.5"."""
    kinds: set[object] = {type(item) for item in items}
    if kinds == {list}:
        kinds = {type(number) for item in items for number in cast("list[Any]", item)}
    return not kinds <= {int, float}


def floats_of(value: dict[str, Any], name: str, forms: str) -> tuple[bytes, list[int] | None]:
    """The bytes of float32 in base64, and their shape if it was said."""
    if not {"float32"} <= set(value) <= {"float32", "shape"} or not isinstance(value["float32"], str):
        raise ValueError(f"{forms}, not {_short(value)}")
    try:
        body = base64.b64decode(value["float32"], validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}: float32 is not valid base64") from None
    if "shape" not in value:
        return body, None
    shape: Any = value["shape"]
    if not isinstance(shape, list):
        raise ValueError(f"shape must be a list of one or two whole numbers, not {_short(shape)}")
    return body, [check_count(length, "shape") for length in cast("list[Any]", shape)]


def _short(value: Any) -> str:
    """A value in an error, cut short: what was sent may be long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
