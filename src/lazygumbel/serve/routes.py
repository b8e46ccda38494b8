"""What each route does with a request."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from lazygumbel.serve import logs, wire
from lazygumbel.serve.engine import Busy, TooLate
from lazygumbel.serve.fields import METHODS
from lazygumbel.serve.gate import error_body
from lazygumbel.serve.metrics import CONTENT_TYPE
from lazygumbel.serve.questions import Question, read_binary, read_json
from lazygumbel.serve.service import Service
from lazygumbel.serve.thetas import ids_of
from lazygumbel.serve.verbs import Verb

__all__ = ["Routes"]

_LONG = 2**16
"""Bytes from which a body is read on another thread, so that others do not wait for it."""
_MOST_FOUND = 1000
_AGAIN = {"retry-after": "1"}


class Routes:
    """The endpoints over one service. `reloads`: whether a request may ask for a reload."""

    def __init__(self, service: Service, *, reloads: bool) -> None:
        self._service = service
        self.reloads = reloads and service.can_reload

    def verb(self, verb: Verb) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a verb."""

        async def endpoint(request: Request) -> Response:
            try:
                question = await self._read(verb, request)
                begun = time.perf_counter()
                answer = await self._service.ask(question)
            except wire.NotJson as error:
                return _error(400, str(error))
            except (ValueError, OverflowError) as error:
                return _error(422, str(error))
            except Busy:
                return _error(429, "too many requests wait; come again in a moment", _AGAIN)
            except TooLate:
                return _error(503, "the answer took longer than this service allows", _AGAIN)
            except MemoryError as error:
                logs.event("out of memory", level=logging.ERROR, error=error)
                return _error(503, "there is not enough memory for this answer", _AGAIN)
            request.scope.setdefault("state", {})["facts"] = {
                "thetas": question.size,
                "together": answer.together,
                "rows": answer.rows,
                "label": answer.label,
            }
            timing = f"ask;dur={(time.perf_counter() - begun) * 1e3:.3f}"
            return Response(answer.body, media_type="application/json", headers={"server-timing": timing})

        return endpoint

    async def rows(self, request: Request) -> Response:
        """Rows by `ids`, `name` or `prefix`."""
        try:
            return _json(self._rows(request.query_params))
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
                "index": type(served.model.index).__name__,
                "methods": list(METHODS),
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
        return _error(503, "the engine does not run", _AGAIN)

    async def metrics(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self._service.metrics.page(), headers={"content-type": CONTENT_TYPE})

    async def reload(self, _: Request) -> Response:
        """Go over to what the model's folder holds now."""
        if await self._service.reload():
            return _json({"version": self._service.served.version})
        return _error(409, "the model could not be loaded, and the old one stays; the log says why")

    async def _read(self, verb: Verb, request: Request) -> Question:
        limits = self._service.limits
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("application/json", "application/octet-stream"):
            raise HTTPException(415, "the body must be application/json or application/octet-stream")
        query = dict(request.query_params)
        body = await _body(request, limits.body)
        if kind == "application/json" and query:
            raise ValueError(f"{verb.name} takes its arguments in the body, not {next(iter(query))!r} in the query")

        def read() -> Question:
            served = self._service.served
            if kind == "application/json":
                return read_json(verb.name, verb.takes, wire.parse(body), served, limits)
            return read_binary(verb.name, verb.takes, body, query, served, limits)

        return read() if len(body) < _LONG else await run_in_threadpool(read)

    def _rows(self, query: Mapping[str, str]) -> dict[str, Any]:
        served = self._service.served
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


async def _body(request: Request, most: int) -> bytes:
    """The body, or 413 as soon as it is known to be too long."""
    length = request.headers.get("content-length", "0")
    parts, held = list[bytes](), 0
    if not length.isdigit() or int(length[:18]) > most:
        raise HTTPException(413, f"the body is longer than the {most:,} bytes that this service takes")
    async for part in request.stream():
        held += len(part)
        if held > most:
            raise HTTPException(413, f"the body is longer than the {most:,} bytes that this service takes")
        parts.append(part)
    return b"".join(parts)


def _json(value: dict[str, Any]) -> Response:
    return Response(wire.dump(value), media_type="application/json")


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(error_body(message), status, media_type="application/json", headers=headers)
