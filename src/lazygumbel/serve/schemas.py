"""The OpenAPI document: bodies, parameters and answers of each route, with examples."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from lazygumbel import forms
from lazygumbel.serve.changes import FIELDS as CHANGED
from lazygumbel.serve.changes import Kind
from lazygumbel.serve.fields import FIELDS
from lazygumbel.serve.verbs import Verb

__all__ = ["HEALTH", "INFO", "METRICS", "READY", "RELOAD", "ROWS", "change", "demand_token", "request", "responses"]

Schema = dict[str, Any]

_VERSION: Schema = {"type": "string", "description": "Which model answered; another after a reload."}


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
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
    found: dict[int | str, dict[str, Any]] = {200: _answer(forms.schema(verb.form))}
    return found | {status: _answer(_ERROR, words) for status, words in _REFUSALS.items()}


def change(kind: Kind) -> dict[str, Any]:
    """Body and answers of a kind of change."""
    content: dict[str, Any] = {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {name: CHANGED[name] for name in kind.takes},
                "required": list(kind.needs),
                "additionalProperties": False,
            },
            "example": kind.example,
        }
    }
    if "rows" in kind.takes:
        words = "Rows as little-endian float32, d numbers each; ids or names stand in the query, with commas."
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary", "description": words}}
    refused = _REFUSALS | {403: "The service is read-only.", 503: "The change could not be written."}
    found = {200: _answer(forms.schema(forms.Change)), **{s: _answer(_ERROR, words) for s, words in refused.items()}}
    return {"responses": found, "openapi_extra": {"requestBody": {"required": True, "content": content}}}


def _parameter(name: str, schema: Schema, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _plain(schema: Schema, errors: Mapping[int, str] | None = None, **extra: Any) -> dict[str, Any]:
    found = {200: _answer(schema), **{status: _answer(_ERROR, words) for status, words in (errors or {}).items()}}
    return {"responses": found, "openapi_extra": extra}


ROWS = _plain(
    forms.schema(forms.Rows),
    {422: "Not one of ids, name and prefix, or no such row."},
    parameters=[
        _parameter("ids", {"type": "string"}, "Ids, with commas between them."),
        _parameter("name", {"type": "string"}, "A name; the first row that has it."),
        _parameter("prefix", {"type": "string"}, "The beginning of names, in any case."),
        _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "Of `prefix`: how many; 10."),
        _parameter("vectors", {"type": "boolean"}, "Whether to answer the rows themselves."),
    ],
)
INFO = _plain(forms.schema(forms.Info))
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
