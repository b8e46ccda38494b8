"""`lazygumbel walk`: the Markov chain over the rows of a model."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from lazygumbel._support.checks import check_count
from lazygumbel._support.persist import replacing
from lazygumbel.cli.console import guarded
from lazygumbel.cli.options import Json, Method, Model, Seed, Temperature, app, names_of, show_columns
from lazygumbel.cli.samplers import sampler_of
from lazygumbel.learning import check_file
from lazygumbel.model import LogLinear
from lazygumbel.walking import Walk
from lazygumbel.walking import walk as run

__all__: list[str] = []

_EXCERPT = 20
"""Steps of the first chain that are shown."""


@app.command()
@guarded
def walk(
    model: Model,
    steps: Annotated[int, typer.Argument(help="How many steps each chain makes.")],
    start: Annotated[int | None, typer.Option(help="Id of the row to start from; random rows if not given.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the row to start from.")] = None,
    chains: Annotated[int, typer.Option(help="How many chains run side by side.")] = 1,
    temperature: Temperature = 0.05,
    method: Method = None,
    no_stay: Annotated[bool, typer.Option("--no-stay", help="Never step from a row to itself.")] = False,
    top: Annotated[int, typer.Option(help="How many of the most visited rows to print.")] = 10,
    out: Annotated[Path | None, typer.Option(help="A .npy file for the ids, (steps, chains).")] = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Walk from row to row: Pr(j -> i) is proportional to exp(phi_i . phi_j / temperature)."""
    check_count(top, "top")
    sampler = sampler_of(method, None)
    if out is not None:
        _check_out(out)
    loaded = LogLinear.load(model)
    walked = run(
        loaded,
        steps,
        start=_start(loaded, start, name),
        chains=chains,
        temperature=temperature,
        method=sampler,
        stay=not no_stay,
        rng=seed,
    )
    if out is not None:
        with replacing(out) as stream:
            np.save(stream, walked.ids, allow_pickle=False)
    _show(loaded, walked, top, as_json=as_json)


def _start(model: LogLinear, start: int | None, name: str | None) -> int | None:
    if name is None:
        return start
    if start is not None:
        raise ValueError("start: give --start or --name, not both")
    if model.features.names is None:
        raise ValueError("name: the rows of this model have no names; use --start")
    return model.features.names.find(name)


def _check_out(path: Path) -> None:
    """Refuse before the walk what could not be written after it."""
    if path.suffix != ".npy":
        raise ValueError(f"out must end in .npy, not {path}")
    check_file(path, "out")


def _show(model: LogLinear, walked: Walk, top: int, *, as_json: bool) -> None:
    ids, excerpt = walked.top(top), walked.ids[:_EXCERPT, 0]
    visits: list[int] = walked.counts[ids].tolist()
    names, path = names_of(model, ids), names_of(model, excerpt)
    steps, visited, rows = walked.ids.size, int((walked.counts > 0).sum()), int(walked.rows.sum())
    result = {
        "steps": steps,
        "visited": visited,
        "rows": rows,
        "label": walked.label,
        "ids": ids.tolist(),
        "names": names,
        "visits": visits,
        "shares": [v / steps for v in visits],
        "first_chain": excerpt.tolist(),
        "first_chain_names": path,
    }
    columns = {
        "id": map(str, ids),
        "name": names,
        "visits": (f"{v:,}" for v in visits),
        "share": (f"{v / steps:.3%}" for v in visits),
    }
    show_columns(result, columns, as_json=as_json)
    if not as_json:
        print(f"{steps:,} steps, {visited:,} rows visited, {rows / steps:,.0f} rows looked at a step, {walked.label}")
        print("first chain:", ", ".join(path or map(str, excerpt)))
