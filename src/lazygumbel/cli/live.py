"""`lazygumbel add | remove | replace | compact`: each change is on disk when the command ends."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from lazygumbel.cli.console import guarded, show
from lazygumbel.cli.options import Json, Model, app
from lazygumbel.model import LogLinear

__all__: list[str] = []

RowsFile = Annotated[Path, typer.Argument(help="Rows, in any format that `build` reads.")]
Ids = Annotated[list[int], typer.Argument(help="Ids of rows.")]


@app.command()
@guarded
def add(model: Model, rows: RowsFile, as_json: Json = False) -> None:
    """Add the rows of a file, with their names if those of the model have some."""
    from lazygumbel import datasets

    new = datasets.read(rows)
    with LogLinear.load(model, mode="r+") as opened:
        names = None if opened.features.names is None else new.names
        ids = opened.add(new.gather(np.arange(new.n)), names)
        _show(opened, "added", {"first_id": int(ids[0]), "last_id": int(ids[-1])}, len(ids), as_json=as_json)


@app.command()
@guarded
def remove(model: Model, ids: Ids, as_json: Json = False) -> None:
    """Remove rows; their ids are not given again."""
    with LogLinear.load(model, mode="r+") as opened:
        opened.remove(ids)
        _show(opened, "removed", {}, len(ids), as_json=as_json)


@app.command()
@guarded
def replace(
    model: Model,
    rows: RowsFile,
    ids: Annotated[list[int], typer.Argument(help="Ids of the rows to replace, one for each row of the file.")],
    as_json: Json = False,
) -> None:
    """Put the rows of a file under ids that there are; names stay."""
    from lazygumbel import datasets

    new = datasets.read(rows)
    with LogLinear.load(model, mode="r+") as opened:
        opened.replace(ids, new.gather(np.arange(new.n)))
        _show(opened, "replaced", {}, len(ids), as_json=as_json)


@app.command()
@guarded
def compact(
    model: Model,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Train cells on the rows that there are.")] = False,
    as_json: Json = False,
) -> None:
    """Put all rows under one index and drop what was removed; ids stay."""
    with LogLinear.load(model, mode="r+") as opened:
        opened.compact(rebuild=rebuild)
        _show(opened, "compacted", {}, opened.features.n, as_json=as_json)


def _show(
    model: LogLinear,
    done: Literal["added", "removed", "replaced", "compacted"],
    more: dict[str, Any],
    count: int,
    *,
    as_json: bool,
) -> None:
    facts = {done: count} | more | {"n": model.features.n, "ids": model.size}
    show(facts, ((key, f"{value:,}") for key, value in facts.items()), ("", ""), as_json=as_json)
