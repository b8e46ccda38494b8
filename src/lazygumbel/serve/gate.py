"""`Gate`: every request passes here, in and out: who may come in, what is counted and logged, what never crosses."""

import hmac
import time
from collections.abc import Iterable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lazygumbel.serve import logs
from lazygumbel.serve.direct import error_body
from lazygumbel.serve.metrics import Metrics

__all__ = ["FAILED", "LOOPBACK", "Gate"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
FAILED = "the service failed at this request; its log says why"
_OPEN = ("/", "/health", "/ready")
"""What needs no token: whether the service lives, and the page, which asks for it."""
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
]


class Gate:
    """Middleware around the whole application.

    `token`: what requests have to bear. `hosts`: the names under which the service may be called, None for any; without
    a token this keeps a page of another site, whose name was made to point here, from asking.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, token: str | None, hosts: Iterable[str] | None) -> None:
        self._app, self._metrics = app, metrics
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, started = time.perf_counter(), 500, False

        async def watch(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, watch)
            else:
                await _respond(watch, *refusal)
        except ClientDisconnect:
            status = 499  # nobody is left to be answered
        except Exception as error:
            logs.event("failed", level=40, error=error, path=_route(scope))
            if not started:
                await _respond(watch, 500, FAILED)
        finally:
            self._count(scope, status, time.perf_counter() - begun)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            return 421, "this service does not answer to that host name"
        path: str = scope["path"]
        if self._token is None or path in _OPEN or path.startswith("/page/"):
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        return 401, "a token is needed: send the header Authorization: Bearer TOKEN"

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        self._metrics.count_request(route, status, seconds)
        facts: dict[str, Any] = scope.get("state", {}).get("facts", {})
        logs.event("request", method=scope["method"], path=route, status=status, ms=round(seconds * 1e3, 3), **facts)


async def _respond(send: Send, status: int, message: str) -> None:
    body = error_body(message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _route(scope: Scope) -> str:
    """The route that was matched; what was typed instead of one is not repeated."""
    route = scope.get("route")
    return getattr(route, "path", None) or "other"


def _host(header: bytes) -> str:
    """The host of a header, without its port."""
    text = header.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
