"""Bodies of requests and answers: JSON. What is in the answers is said in `lazygumbel.forms`."""

import json
from typing import Any, cast

__all__ = ["NotJson", "dump", "parse"]

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_NOT_JSON = "the body is not JSON"


class NotJson(ValueError):
    """A body that cannot be read at all."""


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; `ValueError` for anything else, NaN and infinity among it."""
    try:
        value: object = json.loads(body, parse_constant=_refuse)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise NotJson(_NOT_JSON) from None
    if not isinstance(value, dict):
        raise NotJson(f"{_NOT_JSON} object")
    return cast("dict[str, Any]", value)


def dump(value: dict[str, Any]) -> bytes:
    """JSON, in ASCII."""
    return _ENCODER.encode(value).encode("ascii")


def _refuse(constant: str) -> float:
    raise ValueError(f"the body holds {constant}; all numbers must be finite")
