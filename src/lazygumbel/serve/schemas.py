"""The OpenAPI document: bodies, parameters and answers of each route, with examples."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from lazygumbel.serve.fields import FIELDS
from lazygumbel.serve.verbs import Verb

__all__ = ["HEALTH", "INFO", "METRICS", "READY", "RELOAD", "ROWS", "demand_token", "request", "responses"]

Schema = dict[str, Any]

_LABELS = ["exact", "bounded", "calibrated", "heuristic"]


def _any_depth(item: Schema, description: str) -> Schema:
    """A value, or nested lists of it: the shape depends on that of theta."""
    lists: Schema = item
    kinds = [item]
    for _ in range(2):
        lists = {"type": "array", "items": lists}
        kinds.append(lists)
    # An empty list is a list of anything.
    return {"anyOf": kinds, "description": description}


def _object(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


_WHOLE: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": ["number", "null"]}
_IDS = _any_depth(_WHOLE, "Row ids.")
_NAMES: Schema = {
    "anyOf": [{"type": "null"}, *_any_depth({"type": "string"}, "")["anyOf"]],
    "description": "Names of the rows; null where the model has none.",
}
_VERSION: Schema = {"type": "string", "description": "Which model answered; another after a reload."}
_SEED: Schema = {
    "type": ["integer", "null"],
    "description": "Gives the same answer again; null where one call answered several requests.",
}
_LABEL: dict[str, Schema] = {
    "label": {"type": "string", "enum": _LABELS, "description": "How far the answer can be trusted: the weakest."},
    "labels": {"type": "array", "items": {"type": "string", "enum": _LABELS}, "description": "One a theta."},
    "bound": _any_depth(_NUMBER, "What a theorem allows the error; null without one."),
    "rows": _any_depth(_WHOLE, "Rows scored."),
}
_LOG_PROB: dict[str, Schema] = {
    "log_prob": _any_depth(_NUMBER, "Where asked for."),
    "log_prob_stderr": _any_depth(_NUMBER, "Standard errors of `log_prob`."),
}
_SEEDED: dict[str, Schema] = {"version": _VERSION, "seed": _SEED}
_FLAT: Schema = {"type": "array", "items": {"type": "number"}}
_OPTIONAL = ("labels", "log_prob", "log_prob_stderr")

_ESTIMATE = _object(
    {
        "value": _any_depth(_NUMBER, "The estimate; null for minus infinity."),
        "stderr": _any_depth(_NUMBER, "Its standard error."),
        **_LABEL,
        **_SEEDED,
    },
    _OPTIONAL,
)
_DRAWS: dict[str, Schema] = {
    "ids": _IDS,
    "names": _NAMES,
    "values": _any_depth(_NUMBER, "Perturbed logits."),
    **_LOG_PROB,
    **_LABEL,
    **_SEEDED,
}
_ANSWERS: dict[str, Schema] = {
    "sample": _object(
        {**_DRAWS, "violations": _any_depth(_WHOLE, "Ceilings found too low among the rows scored.")}, _OPTIONAL
    ),
    "sample-without-replacement": _object(
        {
            **_DRAWS,
            "logits": _any_depth(_NUMBER, "Logits of the rows drawn."),
            "threshold": _any_depth(_NUMBER, "The largest perturbed logit left out; null for minus infinity."),
        },
        _OPTIONAL,
    ),
    "top-k": _object(
        {
            "ids": _IDS,
            "names": _NAMES,
            "scores": _any_depth(_NUMBER, "Inner products."),
            "exact": {"type": "boolean", "description": "Whether it is certain that no row was missed."},
            "rows": _LABEL["rows"],
            "version": _VERSION,
        }
    ),
    "audit": _object(
        {
            "ids": {"type": "array", "items": _WHOLE},
            "names": {"type": ["array", "null"], "items": {"type": "string"}},
            "log_prob": {"type": "array", "items": _NUMBER},
            "rank": {"type": "array", "items": {"type": ["integer", "null"]}, "description": "From 1."},
            "log_partition": {"type": "number"},
            "entropy": {"type": "number"},
            "curve": _object({"rank": {"type": "array", "items": _WHOLE}, "log_prob": _FLAT}),
            "mass": {
                "type": "object",
                "additionalProperties": {"type": "number"},
                "description": "Probability of the 1, 10, 100 and 1,000 most probable rows.",
            },
            "method": {"type": "string", "description": "The method of draws that was measured."},
            "total_variation": {"type": "number", "description": "Measured distance of draws from the softmax."},
            "bound": _NUMBER,
            "violations": {"type": "integer", "description": "Rows whose logit exceeds its ceiling, of all rows."},
            "label": _LABEL["label"],
            "rows": _WHOLE,
            "version": _VERSION,
        }
    ),
}
_ERROR = _object({"error": {"type": "string", "description": "What was wrong, and what it may be."}})
_REFUSALS = {
    400: "The body is not a JSON object.",
    413: "The body is too long.",
    415: "The body is neither JSON nor float32.",
    422: "An argument is out of range.",
    429: "Too many requests wait; come again after Retry-After seconds.",
    503: "The answer took too long.",
}


def _answer(schema: Schema, description: str = "The answer.") -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def request(verb: Verb) -> dict[str, Any]:
    """Body and query of a verb."""
    properties = {name: FIELDS[name].schema for name in verb.takes}
    needed = ["theta", *(["ids"] if verb.name == "log-prob" else [])]
    body = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": body, "example": verb.example},
                "application/octet-stream": {
                    "schema": {
                        "type": "string",
                        "format": "binary",
                        "description": "Thetas as little-endian float32, d numbers each; all other arguments stand in "
                        "the query, lists of ids with commas.",
                    }
                },
            },
        },
    }


def responses(verb: Verb) -> dict[int | str, dict[str, Any]]:
    """Answers and errors of a verb."""
    found: dict[int | str, dict[str, Any]] = {200: _answer(_ANSWERS.get(verb.name, _ESTIMATE))}
    return found | {status: _answer(_ERROR, words) for status, words in _REFUSALS.items()}


def _parameter(name: str, schema: Schema, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _plain(schema: Schema, errors: Mapping[int, str] | None = None, **extra: Any) -> dict[str, Any]:
    found = {200: _answer(schema), **{status: _answer(_ERROR, words) for status, words in (errors or {}).items()}}
    return {"responses": found, "openapi_extra": extra}


ROWS = _plain(
    _object(
        {
            "ids": {"type": "array", "items": _WHOLE},
            "names": {"type": ["array", "null"], "items": {"type": "string"}},
            "version": _VERSION,
            "vectors": {"type": "array", "items": _FLAT},
        },
        ("vectors",),
    ),
    {422: "Not one of ids, name and prefix, or no such row."},
    parameters=[
        _parameter("ids", {"type": "string"}, "Ids, with commas between them."),
        _parameter("name", {"type": "string"}, "A name; the first row that has it."),
        _parameter("prefix", {"type": "string"}, "The beginning of names, in any case."),
        _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "Of `prefix`: how many; 10."),
        _parameter("vectors", {"type": "boolean"}, "Whether to answer the rows themselves."),
    ],
)
INFO = _plain(
    _object(
        {
            "n": _WHOLE,
            "d": _WHOLE,
            "names": {"type": "boolean"},
            "index": {"type": "string"},
            "methods": {"type": "array", "items": {"type": "string"}},
            "version": _VERSION,
            "lazygumbel": {"type": "string"},
            "limits": {"type": "object", "additionalProperties": _WHOLE},
        }
    )
)
HEALTH = _plain(_object({"status": {"type": "string"}}))
READY = _plain(_object({"status": {"type": "string"}, "version": _VERSION}), {503: "Not now."})
RELOAD = _plain(_object({"version": _VERSION}), {409: "The folder holds no model that can be loaded."})
METRICS: dict[str, Any] = {
    "responses": {200: {"description": "Counters.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
}


def demand_token(app: FastAPI) -> None:
    """Say in the document that a token is needed."""
    document = app.openapi()
    document.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        if path in ("/health", "/ready"):
            continue
        for operation in operations.values():
            operation["security"] = [{"token": []}]
            operation["responses"]["401"] = _answer(_ERROR, "No token, or another.")
