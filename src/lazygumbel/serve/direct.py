"""Requests that come in numbers go past the framework, which takes longer to find their route than a draw takes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lazygumbel.serve import wire

__all__ = ["Direct", "Handler", "Refused", "Reply", "as_endpoint", "error_body", "read_body"]

_JSON = (b"content-type", b"application/json")


class Reply(NamedTuple):
    """What is answered; the body is JSON."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler = Callable[[Scope, Receive], Awaitable[Reply]]


class Refused(Exception):
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Matched(NamedTuple):
    """As the framework notes the route that it found."""

    path: str


class Direct:
    """Middleware that hands POSTs to these paths to their handlers, and everything else on."""

    def __init__(self, app: ASGIApp, *, handlers: Mapping[str, Handler]) -> None:
        self._app, self._handlers = app, handlers
        self._matched = {path: _Matched(path) for path in handlers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._matched[scope["path"]]
        status, body, headers = await handler(scope, receive)
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
        await send({"type": "http.response.body", "body": body})


def as_endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """The same for the framework: for an application that is mounted in another, and for the document."""

    async def endpoint(request: Request) -> Response:
        status, body, headers = await handler(request.scope, request.receive)
        named = {name.decode(): value.decode() for name, value in headers}
        return Response(body, status, media_type="application/json", headers=named)

    return endpoint


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
    """The body, refused as soon as it is known to be too long."""
    too_long = f"the body is longer than the {most:,} bytes that this service takes"
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:18]) > most:
        raise Refused(413, too_long)
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > most:
            raise Refused(413, too_long)
        if not message.get("more_body", False):
            return body


def error_body(message: str) -> bytes:
    """The form of every error."""
    return wire.dump({"error": message})
