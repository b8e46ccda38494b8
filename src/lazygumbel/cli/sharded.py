"""`lazygumbel split`, and how other commands open what it wrote."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lazygumbel.cli.console import guarded, show
from lazygumbel.cli.options import Json, Seed, app
from lazygumbel.model import LogLinear
from lazygumbel.sharded import ShardedModel
from lazygumbel.sharded.manifest import MANIFEST, Manifest, folder_of

__all__ = ["Ray", "opened"]

Ray = Annotated[
    str | None, typer.Option("--ray", help="Ask shards on the Ray cluster at this address (auto: the one here).")
]


@app.command()
@guarded
def split(
    source: Annotated[list[Path], typer.Argument(help="A model's folder, or one or more files of rows.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    shards: Annotated[int, typer.Option(help="How many shards.")] = 8,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Share out the rows of a model, or of files, over shards; the same command goes on after an interruption."""
    rows = source[0] if len(source) == 1 else source
    ShardedModel.build(rows, out, shards=shards, rng=seed)
    made = Manifest.read(out)
    facts = [{"shard": folder_of(s.shard), "rows": s.rows, "first id": s.start} for s in made.shards]
    result = {"path": str(out), "n": made.n, "d": made.d, "names": made.named, "shards": facts}
    show(result, (tuple(fact.values()) for fact in facts), ("shard", "rows", "first id"), as_json=as_json)


@contextmanager
def opened(path: Path, ray: str | None) -> Generator[LogLinear | ShardedModel]:
    """The model in a folder, whole or in shards, which are asked on Ray or by threads of this process."""
    if ray is None and not (path / MANIFEST).is_file():
        yield LogLinear.load(path)
        return
    engine = "threads" if ray is None else "ray"
    with ShardedModel.connect(path, engine=engine, address=ray) as model:
        yield model
