"""The one JSON form of each answer: its keys, what they hold, and what null stands for.

Results take it (`to_dict`), the command line prints it, the service sends and documents it, and the client reads it
into these records. Shapes are the library's; null stands for a number that is not finite.
"""

from dataclasses import Field, dataclass, field, fields
from functools import cache
from math import inf, nan
from typing import Any, TypeVar, cast

__all__ = [
    "Audit",
    "Change",
    "Draws",
    "Estimate",
    "Info",
    "Mode",
    "OrderedDraws",
    "Rows",
    "TopK",
    "keys",
    "read",
    "schema",
]

Schema = dict[str, Any]
T = TypeVar("T")

WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": ["number", "null"]}
_TEXT: Schema = {"type": "string"}
_NAMES: Schema = {"type": ["array", "null"], "items": _TEXT}
_LABEL: Schema = {"type": "string", "enum": ["exact", "bounded", "calibrated", "heuristic"]}
_NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}


def _nested(item: Schema, *, absent: bool = False) -> Schema:
    """A value, or nested lists of it: the shape depends on that of theta. An empty list is a list of anything."""
    lists = {"type": "array", "items": item}
    return {"anyOf": [*([{"type": "null"}] if absent else []), item, lists, {"type": "array", "items": lists}]}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _said(
    schema: Schema, description: str = "", *, null: float | None = None, sent: bool = False, optional: bool = False
) -> Any:
    """A key: what it holds; the number that null stands for; whether the service adds it; whether it may be absent."""
    described = {**schema, "description": description} if description else schema
    told = {"schema": described, "null": null, "sent": sent, "optional": optional}
    return field(metadata=told, default=None) if optional else field(metadata=told)


_IDS = _nested(WHOLE)
_MAYBE_WHOLE: Schema = {"type": ["integer", "null"]}
_ROW_NAMES = _nested(_TEXT, absent=True)
_VERSION = "Which rows answered; another after a change or a reload."
_SEED = "Gives the same answer again; null where one call answered several requests."


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What every answer says of itself."""

    label: str = _said(_LABEL, "How far the answer can be trusted: the weakest of the thetas.")
    labels: list[str] | None = _said(_list(_LABEL), "Of several thetas, one each.", optional=True)
    reason: str = _said(_TEXT, "Why it has its label: of the weakest.")
    reasons: list[str] | None = _said(_list(_TEXT), "Of several thetas, one each.", optional=True)
    bound: Any = _said(_nested(NUMBER), "What a theorem allows the error; null without one.", null=nan)
    rows: Any = _said(_nested(WHOLE), "Rows scored.")
    coverage: float = _said({"type": "number"}, "Share of the rows that were asked; one but for shards.")
    version: str = _said(_TEXT, _VERSION, sent=True)


@dataclass(frozen=True, kw_only=True)
class Draws(_Answer):
    """Independent samples: ids of shape (size,) + batch shape."""

    ids: Any = _said(_IDS, "Row ids.")
    names: Any = _said(_ROW_NAMES, "Names of the rows; null where the model has none.")
    values: Any = _said(_nested(NUMBER), "Perturbed logits.")
    violations: Any = _said(_nested(WHOLE), "Ceilings found too low among the rows scored.")
    log_prob: Any = _said(_nested(NUMBER), "Where asked for.", null=-inf, sent=True, optional=True)
    log_prob_stderr: Any = _said(_nested(NUMBER), "Standard errors of `log_prob`.", null=inf, sent=True, optional=True)
    seed: int | None = _said(_MAYBE_WHOLE, _SEED, sent=True)


@dataclass(frozen=True, kw_only=True)
class OrderedDraws(_Answer):
    """Distinct rows in the order of drawing: ids of shape (size,) + batch shape."""

    ids: Any = _said(_IDS, "Row ids.")
    names: Any = _said(_ROW_NAMES, "Names of the rows; null where the model has none.")
    logits: Any = _said(_nested(NUMBER), "Logits of the rows drawn.")
    values: Any = _said(_nested(NUMBER), "Perturbed logits.")
    threshold: Any = _said(_nested(NUMBER), "The largest perturbed logit left out; null for minus infinity.", null=-inf)
    log_prob: Any = _said(_nested(NUMBER), "Where asked for.", null=-inf, sent=True, optional=True)
    log_prob_stderr: Any = _said(_nested(NUMBER), "Standard errors of `log_prob`.", null=inf, sent=True, optional=True)
    seed: int | None = _said(_MAYBE_WHOLE, _SEED, sent=True)


@dataclass(frozen=True, kw_only=True)
class Estimate(_Answer):
    """A value with its standard error; of log-probabilities also of which rows."""

    ids: Any = _said(_IDS, "Row ids.", optional=True)
    names: Any = _said(_ROW_NAMES, "Names of the rows.", optional=True)
    value: Any = _said(_nested(NUMBER), "The estimate; null for minus infinity.", null=-inf)
    stderr: Any = _said(_nested(NUMBER), "Its standard error.", null=inf)
    seed: int | None = _said(_MAYBE_WHOLE, _SEED, sent=True)


@dataclass(frozen=True, kw_only=True)
class TopK(_Answer):
    """The rows with the largest inner products, best first: ids of shape batch shape + (k,)."""

    ids: Any = _said(_IDS, "Row ids.")
    names: Any = _said(_ROW_NAMES, "Names of the rows; null where the model has none.")
    scores: Any = _said(_nested(NUMBER), "Inner products.")
    exact: bool = _said({"type": "boolean"}, "Whether it is certain that no row was missed.")


@dataclass(frozen=True, kw_only=True)
class Mode(TopK):
    """The most probable row: ids of batch shape."""


@dataclass(frozen=True)
class Audit:
    """The truth about one theta, by one pass over all rows."""

    ids: list[int] = _said(_list(WHOLE))
    names: list[str] | None = _said(_NAMES)
    log_prob: list[float] = _said(_list(NUMBER), null=-inf)
    rank: list[int | None] = _said(_list(_MAYBE_WHOLE), "From 1.")
    log_partition: float = _said({"type": "number"})
    entropy: float = _said({"type": "number"})
    curve: dict[str, list[float]] = _said(
        {
            "type": "object",
            "properties": {"rank": _list(WHOLE), "log_prob": _NUMBERS},
            "required": ["rank", "log_prob"],
            "additionalProperties": False,
        }
    )
    mass: dict[str, float] = _said(
        {"type": "object", "additionalProperties": {"type": "number"}},
        "Probability of the 1, 10, 100 and 1,000 most probable rows.",
    )
    method: str = _said(_TEXT, "The method of draws that was measured.")
    total_variation: float = _said({"type": "number"}, "Measured distance of draws from the softmax.")
    bound: float = _said(NUMBER, null=nan)
    violations: int = _said(WHOLE, "Rows whose logit exceeds its ceiling, of all rows.")
    label: str = _said(_LABEL, "How far draws can be trusted.")
    reason: str = _said(_TEXT, "Why.")
    rows: int = _said(WHOLE)
    version: str = _said(_TEXT, _VERSION, sent=True)


@dataclass(frozen=True)
class Rows:
    """Rows that were found."""

    ids: list[int] = _said(_list(WHOLE))
    names: list[str] | None = _said(_NAMES)
    version: str = _said(_TEXT, _VERSION, sent=True)
    vectors: list[list[float]] | None = _said(_list(_NUMBERS), optional=True)


@dataclass(frozen=True)
class Change:
    """Rows that came, went, or became others."""

    ids: list[int] = _said(_list(WHOLE), "Of these rows.")
    n: int = _said(WHOLE, "Rows of the model from now on.")
    version: str = _said(_TEXT, "Of the rows from now on.", sent=True)


@dataclass(frozen=True)
class Info:
    """What is served."""

    n: int = _said(WHOLE)
    d: int = _said(WHOLE)
    names: bool = _said({"type": "boolean"})
    index: str = _said(_TEXT)
    methods: list[str] = _said(_list(_TEXT))
    live: bool = _said({"type": "boolean"}, "Whether requests may change rows.")
    version: str = _said(_TEXT, _VERSION, sent=True)
    lazygumbel: str = _said(_TEXT)
    limits: dict[str, int] = _said({"type": "object", "additionalProperties": WHOLE})


@cache
def keys(form: type[Any]) -> tuple[tuple[str, bool], ...]:
    """The keys of a result in the order in which they are shown, and whether each may be absent."""
    return tuple((key.name, key.metadata["optional"]) for key in _in_order(form) if not key.metadata["sent"])


def schema(form: type[Any]) -> Schema:
    """The JSON schema of an answer of the service."""
    return {
        "type": "object",
        "properties": {key.name: key.metadata["schema"] for key in _in_order(form)},
        "required": [key.name for key in _in_order(form) if not key.metadata["optional"]],
        "additionalProperties": False,
    }


def read(form: type[T], found: dict[str, Any]) -> T:
    """The record of an answer, with numbers in the place of null."""
    nulls = {key.name: key.metadata["null"] for key in _in_order(form) if key.metadata["null"] is not None}
    return form(**{name: _filled(value, nulls[name]) if name in nulls else value for name, value in found.items()})


def _in_order(form: type[Any]) -> list["Field[Any]"]:
    """First what is special to an answer, then what every answer says."""
    common = {key.name for key in fields(_Answer)} if issubclass(form, _Answer) else set[str]()
    return sorted(fields(form), key=lambda key: key.name in common)


def _filled(value: Any, null: float) -> Any:
    if isinstance(value, list):
        return [_filled(item, null) for item in cast("list[Any]", value)]
    return null if value is None else value
