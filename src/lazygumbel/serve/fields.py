"""The arguments of requests: for each its JSON schema, and the check that turns it into a value of the library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from lazygumbel._support.checks import check_count, check_number
from lazygumbel.methods.named import METHODS
from lazygumbel.serve.thetas import SCHEMA as THETA

__all__ = ["FIELDS", "IDS", "Field", "split_list"]

_LARGEST_SEED = 2**53 - 1
"""Beyond it JavaScript has no whole numbers of its own."""
_COLDEST, _SMALLEST = 1e-30, 1e-9
"""Below these, logits overflow, and errors are lost in the rounding of float32."""


@dataclass(frozen=True)
class Field:
    """One argument: `read` checks a JSON value, `parse` makes a JSON value of the text in a query."""

    schema: dict[str, Any]
    read: Callable[[Any], Any]
    parse: Callable[[str], Any] | None = None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _whole(text: str) -> int:
    # As JSON has them: neither "1_000" nor the digits of other scripts.
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _least(number: float, name: str, least: float) -> float:
    return check_number(number, name, least=least)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def split_list(text: str) -> list[int | str]:
    """Ids and names with commas between them."""
    return [int(part) if part.isascii() and part.isdigit() else part for part in text.split(",") if part]


def _method(value: Any) -> str:
    if not isinstance(value, str) or value not in METHODS:
        raise ValueError(f"method: {value!r} is none of {', '.join(METHODS)}")
    return value


def _seed(value: Any) -> int:
    seed = check_count(value, "seed", least=0)
    if seed > _LARGEST_SEED:
        raise ValueError(f"seed must be at most {_LARGEST_SEED}, not {seed}")
    return seed


def _flag(name: str) -> Callable[[Any], bool]:
    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")
        return value

    return read


def _any_list(name: str) -> Callable[[Any], list[Any]]:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list, not {value!r}")
        return cast("list[Any]", value)

    return read


IDS: dict[str, Any] = {
    "type": "array",
    "items": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}]},
}
_NESTED_IDS: dict[str, Any] = {"oneOf": [IDS, {"type": "array", "items": IDS, "minItems": 1}]}
_COUNT = {"type": "integer", "minimum": 1}

FIELDS: dict[str, Field] = {
    "theta": Field(THETA, lambda value: value),
    "temperature": Field(
        {"type": "number", "minimum": _COLDEST, "default": 1.0, "description": "Divides the inner products."},
        lambda value: _least(check_number(value, "temperature", above=0.0), "temperature", _COLDEST),
        _number,
    ),
    "size": Field(
        {**_COUNT, "default": 1, "description": "Draws of each theta."},
        lambda value: check_count(value, "size"),
        _whole,
    ),
    "k": Field(
        {**_COUNT, "default": 10, "description": "How many rows."}, lambda value: check_count(value, "k"), _whole
    ),
    "exclude": Field(
        {**_NESTED_IDS, "description": "Ids or names of rows to leave out, or one such list for each theta."},
        _any_list("exclude"),
        split_list,
    ),
    "ids": Field({**_NESTED_IDS, "description": "Ids or names of rows; or, for several thetas, lists of ids that end "
                  "in one for each theta."}, _any_list("ids"), split_list),
    "seed": Field(
        {"type": "integer", "minimum": 0, "maximum": _LARGEST_SEED, "description": "The same seed, the same answer; "
         "without one a request may be answered in one call with others."},
        _seed,
        _whole,
    ),
    "method": Field({"type": "string", "enum": list(METHODS), "description": "By default the model's."}, _method, str),
    "delta": Field(
        {"type": "number", "minimum": _SMALLEST, "exclusiveMaximum": 1, "description": "Total variation distance "
         "that draws may have from the softmax."},
        lambda value: _least(check_number(value, "delta", above=0.0, below=1.0), "delta", _SMALLEST),
        _number,
    ),
    "rel_err": Field(
        {"type": "number", "minimum": _SMALLEST, "exclusiveMaximum": 1, "description": "Relative standard error of Z "
         "to aim at."},
        lambda value: _least(check_number(value, "rel_err", above=0.0, below=1.0), "rel_err", _SMALLEST),
        _number,
    ),
    "log_prob": Field(
        {"type": "boolean", "default": False, "description": "Whether to answer the log probability of each draw, "
         "with its standard error."},
        _flag("log_prob"),
        _truth,
    ),
    "of": Field(
        {
            "type": "object",
            "properties": {"ids": IDS, "values": {"type": "array", "items": {"type": "number"}}},
            "required": ["ids", "values"],
            "additionalProperties": False,
            "description": "A function of rows: `values[j]` at row `ids[j]` and zero elsewhere. Without it the "
            "expectation is of the features phi.",
        },
        lambda value: value,
    ),
}  # fmt: skip
