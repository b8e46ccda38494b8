"""`create_app`: the routes, over one `Service`."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from lazygumbel.serve import schemas
from lazygumbel.serve.bundle import read_bundle
from lazygumbel.serve.changes import KINDS
from lazygumbel.serve.direct import Direct, Handler, as_endpoint, error_body
from lazygumbel.serve.gate import FAILED, LOOPBACK, Gate
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.routes import Routes
from lazygumbel.serve.served import Folder, Model, opened
from lazygumbel.serve.service import Service
from lazygumbel.serve.verbs import VERBS

__all__ = ["create_app"]

_DESCRIPTION = "Draws, log Z, expectations and top k of a softmax over the rows of one model."


def create_app(
    model: Model | Folder | Path,
    *,
    live: bool = False,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Iterable[str] | None = LOOPBACK,
    page: bool = True,
) -> FastAPI:
    """An ASGI application that serves a model, or the model in a folder, whole or in shards, which it can then reload.

    `live`: whether requests may change rows; in a folder each change is on disk before it is answered, of a model that
    is given it is where that model was loaded with `mode="r+"`. Changes from elsewhere are not seen. `token`: what
    every request but those for the page and for health must bear. `hosts`: the host names that requests may name, those
    of loopback by default; None for any. `page`: whether the page is at `/`. The application needs its lifespan events,
    and one process: several workers are several queues.
    """
    from lazygumbel import __version__

    if token is not None and not (token.isascii() and token.isprintable() and len(token) >= 8 and " " not in token):
        raise ValueError("token must be at least 8 printable ASCII characters without blanks")
    folder = Folder(model, live) if isinstance(model, Path) else model if isinstance(model, Folder) else None
    found = folder.open() if folder is not None else opened(cast("Model", model), "1", live=live)
    service = Service(found, limits=limits or Limits(), folder=folder)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        service.start()
        yield
        await service.stop()

    app = _Application(
        title="lazygumbel",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # it would load its scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    routes = Routes(service, reloads=token is not None)
    handlers = _handlers(routes)
    app.front = Gate(Direct(app.behind, handlers=handlers), metrics=service.metrics, token=token, hosts=hosts)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failure)
    _add_routes(app, routes, handlers)
    if page:
        _add_page(app)
    if token is not None:
        schemas.demand_token(app)
    return app


class _Application(FastAPI):
    """Whose gate stands before all that the framework does with a request."""

    front: ASGIApp

    async def behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is not answered at the front."""
        await super().__call__(scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.front(scope, receive, send)


def _handlers(routes: Routes) -> dict[str, Handler]:
    """What answers to verbs and makes changes, by path."""
    verbs = {f"/v1/{verb.name}": routes.verb(verb) for verb in VERBS.values()}
    return verbs | {f"/v1/{kind.name}": routes.change(kind) for kind in KINDS.values()}


def _add_routes(app: FastAPI, routes: Routes, handlers: Mapping[str, Handler]) -> None:
    for verb in VERBS.values():
        app.add_api_route(
            f"/v1/{verb.name}",
            as_endpoint(handlers[f"/v1/{verb.name}"]),
            methods=["POST"],
            summary=verb.summary,
            operation_id=verb.name.replace("-", "_"),
            responses=schemas.responses(verb),
            openapi_extra=schemas.request(verb),
        )
    for kind in KINDS.values():
        app.add_api_route(
            f"/v1/{kind.name}",
            as_endpoint(handlers[f"/v1/{kind.name}"]),
            methods=["POST"],
            summary=kind.summary,
            operation_id=kind.name,
            **schemas.change(kind),
        )
    for path, endpoint, summary, extra in (
        ("/v1/rows", routes.rows, "Rows by ids, by name or by the beginning of a name.", schemas.ROWS),
        ("/v1/info", routes.info, "What the model holds and what a request may ask.", schemas.INFO),
        ("/health", routes.health, "Whether the process lives.", schemas.HEALTH),
        ("/ready", routes.ready, "Whether questions are answered.", schemas.READY),
        ("/metrics", routes.metrics, "What the service counts, for Prometheus.", schemas.METRICS),
    ):
        app.add_api_route(path, endpoint, methods=["GET"], summary=summary, **extra)
    if routes.reloads:
        summary = "Load the model's folder again."
        app.add_api_route("/v1/reload", routes.reload, methods=["POST"], summary=summary, **schemas.RELOAD)


def _add_page(app: FastAPI) -> None:
    bundle = read_bundle()

    async def serve_file(request: Request) -> Response:
        found = bundle.get(request.path_params.get("file", "index.html"))
        if found is None:
            raise HTTPException(404)
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304)
        headers = {"etag": found.tag, "cache-control": "no-cache"}
        return Response(found.body, media_type=found.media_type, headers=headers)

    for path in ("/", "/page/{file}"):
        app.add_api_route(path, serve_file, methods=["GET"], include_in_schema=False)


async def _failure(_: Request, __: Exception) -> Response:
    """What the gate would answer; it logs the error, which is raised again."""
    return Response(error_body(FAILED), 500, media_type="application/json")


async def _http_error(_: Request, error: Any) -> Response:
    """Errors of the router, 404 and 405 among them, in the form of all others."""
    words = {404: "there is no such route", 405: "this route takes another method"}
    return Response(
        error_body(words.get(error.status_code, str(error.detail))),
        error.status_code,
        media_type="application/json",
        headers=error.headers,
    )
