"""`lazygumbel serve`: a model behind HTTP, and a page to explore it."""

from pathlib import Path
from typing import Annotated

import typer

from lazygumbel.cli.console import guarded
from lazygumbel.cli.options import Model, app
from lazygumbel.cli.sharded import Ray

__all__: list[str] = []


@app.command()
@guarded
def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Where to listen; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any that is free.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token that requests must bear.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without a token.")] = False,
    live: Annotated[bool, typer.Option("--live/--read-only", help="Take changes of rows, each durable.")] = False,
    ray: Ray = None,
    max_batch: Annotated[int, typer.Option(help="Thetas that are asked at once.")] = 256,
    max_queue: Annotated[int, typer.Option(help="Requests that may wait.")] = 1024,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 8 * 2**20,
    max_size: Annotated[int, typer.Option(help="Draws of a theta, and rows of a top k.")] = 10_000,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may wait for its answer.")] = 30.0,
) -> None:
    """Serve a model, whole or in shards, over HTTP, with a page to explore it."""
    from lazygumbel.serve import Folder, Limits
    from lazygumbel.serve.run import read_token, run

    run(
        Folder(model, live, ray),
        host=host,
        port=port,
        token=None if token_file is None else read_token(token_file),
        insecure=insecure,
        limits=Limits(batch=max_batch, queue=max_queue, body=max_body, size=max_size, seconds=timeout),
        announce=lambda address: print(f"lazygumbel serves {address} (Ctrl-C ends it)", flush=True),
    )
