"""What each route does with a request."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import numpy as np
from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope

from lazygumbel.methods.named import METHODS
from lazygumbel.serve import wire
from lazygumbel.serve.changes import ChangeRequest, Kind, read_change, read_change_of_bytes
from lazygumbel.serve.direct import Handler, Refused, Reply, error_body, read_body
from lazygumbel.serve.failures import AGAIN, answering
from lazygumbel.serve.metrics import CONTENT_TYPE
from lazygumbel.serve.questions import Question, read_binary, read_json
from lazygumbel.serve.served import Served
from lazygumbel.serve.service import Service
from lazygumbel.serve.thetas import ids_of
from lazygumbel.serve.verbs import Verb

__all__ = ["Routes"]

_LONG = 2**16
"""Bytes from which a body is read on another thread, so that others do not wait for it."""
_MOST_FOUND = 1000
_READ_ONLY = "this service is read-only; it takes changes when it is started with --live"


class Routes:
    """The endpoints over one service. `reloads`: whether a request may ask for a reload."""

    def __init__(self, service: Service, *, reloads: bool) -> None:
        self._service = service
        self.reloads = reloads and service.can_reload

    def verb(self, verb: Verb) -> Handler:
        """What answers to a verb."""

        def read(content: _Content) -> Question:
            served, limits = self._service.served, self._service.limits
            if content.binary:
                return read_binary(verb.name, verb.takes, content.body, content.query, served, limits)
            return read_json(verb.name, verb.takes, wire.parse(content.body), served, limits)

        @answering
        async def handle(scope: Scope, receive: Receive) -> Reply:
            content = await self._content(verb.name, scope, receive)
            if len(content.body) < _LONG and not self._service.served.remote:
                question = read(content)
            else:
                question = await run_in_threadpool(read, content)
            begun = time.perf_counter()
            answer = await self._service.ask(question)
            _note(scope, thetas=question.size, together=answer.together, rows=answer.rows, label=answer.label)
            timing = f"ask;dur={(time.perf_counter() - begun) * 1e3:.3f}"
            return Reply(200, answer.body, ((b"server-timing", timing.encode()),))

        return handle

    def change(self, kind: Kind) -> Handler:
        """What makes a kind of change."""

        def read(content: _Content) -> ChangeRequest:
            served, limits = self._service.served, self._service.limits
            if content.binary and "rows" not in kind.takes:
                raise Refused(415, f"the body of {kind.name} must be application/json")
            if content.binary:
                return read_change_of_bytes(kind, content.body, content.query, served, limits)
            return read_change(kind, wire.parse(content.body), served, limits)

        @answering
        async def handle(scope: Scope, receive: Receive) -> Reply:
            if not self._service.live:
                raise Refused(403, _READ_ONLY)
            change = await run_in_threadpool(read, await self._content(kind.name, scope, receive))
            made = await self._service.change(change)
            _note(scope, changed=len(made.ids))
            return Reply(200, wire.dump(made._asdict()))

        return handle

    async def rows(self, request: Request) -> Response:
        """Rows by `ids`, `name` or `prefix`."""
        try:
            return _json(await run_in_threadpool(self._rows, request.query_params))
        except ValueError as error:
            return _error(422, str(error))

    async def info(self, _: Request) -> Response:
        """What the model holds."""
        from lazygumbel import __version__

        served, limits = self._service.served, self._service.limits
        features = served.model.features
        return _json(
            {
                "n": features.n,
                "d": features.d,
                "names": features.names is not None,
                "index": "shards" if served.index_type is None or served.remote else served.index_type.__name__,
                "methods": list(METHODS),
                "live": self._service.live,
                "version": served.version,
                "lazygumbel": __version__,
                "limits": {name: getattr(limits, name) for name in ("body", "thetas", "size", "answers", "exclude")},
            }
        )

    async def health(self, _: Request) -> Response:
        """The process lives."""
        return _json({"status": "alive"})

    async def ready(self, _: Request) -> Response:
        """Questions are answered."""
        if self._service.ready:
            return _json({"status": "ready", "version": self._service.served.version})
        return _error(503, "the engine does not run", AGAIN)

    async def metrics(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self._service.metrics.page(), headers={"content-type": CONTENT_TYPE})

    async def reload(self, _: Request) -> Response:
        """Go over to what the model's folder holds now."""
        if await self._service.reload():
            return _json({"version": self._service.served.version})
        return _error(409, "the model could not be loaded, and the old one stays; the log says why")

    async def _content(self, name: str, scope: Scope, receive: Receive) -> "_Content":
        headers: dict[bytes, bytes] = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind not in (b"application/json", b"application/octet-stream"):
            raise Refused(415, "the body must be application/json or application/octet-stream")
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        body = await read_body(headers, receive, self._service.limits.body)
        if kind == b"application/json" and query:
            raise ValueError(f"{name} takes its arguments in the body, not {next(iter(query))!r} in the query")
        return _Content(body, query, kind != b"application/json")

    def _rows(self, query: Mapping[str, str]) -> dict[str, Any]:
        with self._service.served.held() as served:
            return self._rows_of(served, query)

    def _rows_of(self, served: Served, query: Mapping[str, str]) -> dict[str, Any]:
        unknown = set(query) - {"ids", "name", "prefix", "limit", "vectors"}
        if unknown:
            raise ValueError(f"rows takes no {min(unknown)!r}; it takes ids, name, prefix, limit and vectors")
        if sum(key in query for key in ("ids", "name", "prefix")) != 1:
            raise ValueError("rows takes exactly one of ids, name and prefix")
        limit, vectors = query.get("limit", "10"), query.get("vectors", "false")
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= _MOST_FOUND) or len(limit) > 9:
            raise ValueError(f"limit must be a whole number from 1 to {_MOST_FOUND}, not {limit!r}")
        if vectors not in ("true", "false"):
            raise ValueError(f"vectors must be true or false, not {vectors!r}")
        if "prefix" in query:
            ids = served.directory.beginning_with(query["prefix"], int(limit))
        elif "name" in query:
            ids = np.array([served.directory.find(query["name"])])
        else:
            given = [int(i) if i.isascii() and i.isdigit() and len(i) < 19 else i for i in query["ids"].split(",")]
            self._service.limits.allow(len(given), "size", "the number of ids")
            ids = ids_of(given, "ids", served)
        if vectors == "true":
            self._service.limits.allow(len(ids) * served.model.features.d, "answers", "the length of the answer")
        found = {"ids": ids.tolist(), "names": served.names_of(ids), "version": served.version}
        return found | ({"vectors": served.model.features.gather(ids).tolist()} if vectors == "true" else {})


class _Content(NamedTuple):
    """What came with a request."""

    body: bytes
    query: Mapping[str, str]
    binary: bool


def _note(scope: Scope, **facts: Any) -> None:
    """For the log line of a request."""
    scope.setdefault("state", {})["facts"] = facts


def _json(value: dict[str, Any]) -> Response:
    return Response(wire.dump(value), media_type="application/json")


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(error_body(message), status, media_type="application/json", headers=headers)
