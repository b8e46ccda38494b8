"""One function a command; each loads what it needs when it is called, so that `--help` is quick."""

from pathlib import Path
from typing import Annotated, cast

import numpy as np
import typer

from lazygumbel._support.checks import check_count
from lazygumbel._support.persist import check_target, read_config
from lazygumbel.cli.console import guarded, show
from lazygumbel.cli.options import (
    Exclude,
    Json,
    K,
    Method,
    Model,
    Name,
    Row,
    Seed,
    Temperature,
    Theta,
    app,
    excluded,
    read_lines,
    read_thetas,
    theta_of,
)
from lazygumbel.cli.samplers import sampler_of
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex
from lazygumbel.model import LogLinear, describe
from lazygumbel.rows.features import Features

__all__: list[str] = []

_READABLE = ".npy, .fvecs, .bvecs, .vec, .txt, .hdf5, .h5, .safetensors or .parquet"


@app.command()
@guarded
def build(
    features: Annotated[Path, typer.Argument(help=_READABLE)],
    model: Annotated[Path, typer.Argument(help="The folder to write.")],
    index: Annotated[str | None, typer.Option(help="exact, partition, lsh or a FAISS factory string.")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells of a partition index.")] = None,
    names: Annotated[Path | None, typer.Option(help="File with the names of the rows, one a line.")] = None,
    unit_norm: Annotated[bool, typer.Option("--unit-norm", help="Scale every row to length one.")] = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Build a model over the rows of a file."""
    from lazygumbel import datasets

    if cells is not None and index not in (None, "partition"):
        raise ValueError("cells goes with a partition index only")
    check_target(model)
    rows = datasets.read(features)
    if names is not None:
        rows = Features.of(rows, names=read_lines(names, "names"))
    if unit_norm:
        rows = rows.unit_norm()
    built: Index | None = None
    if index == "exact":
        built = ExactIndex.build(rows)
    elif index == "partition" or (index is None and cells is not None):
        built = PartitionIndex.build(rows, cells=cells, rng=seed)
    elif index == "lsh":
        built = LSHIndex.build(rows, rng=seed)
    elif index is not None:
        built = FaissIndex.build(rows, index)
    LogLinear.build(rows, index=built, rng=seed).save(model)
    _show_info(model, as_json=as_json)


@app.command()
@guarded
def info(model: Model, as_json: Json = False) -> None:
    """What a saved model holds, without loading it; of one whose rows have changed, how far and at what cost."""
    _show_info(model, as_json=as_json)


@app.command()
@guarded
def audit(
    model: Model,
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    thetas: Annotated[int, typer.Option(help="Without a theta: how many random rows to use as thetas.")] = 20,
    temperature: Temperature = 1.0,
    method: Method = None,
    k: K = None,
    exclude: Exclude = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Measure how often a sampler misses the true winner: needs every row for every theta."""
    loaded = LogLinear.load(model)
    if theta is None and row is None and name is None:
        ids = np.random.default_rng(seed).choice(loaded.ids, check_count(thetas, "thetas"))
        queries = loaded.features.gather(ids)
    else:
        queries = np.atleast_2d(theta_of(loaded, theta, row, name))
    report = loaded.audit(
        queries, temperature=temperature, method=sampler_of(method, k), exclude=excluded(loaded, exclude)
    )
    if as_json:
        facts = {"method": report.method, "thetas": len(queries), "k": report.k} | report.summary()
        show(facts, [], [], as_json=True)
    else:
        print(report)


@app.command()
@guarded
def calibrate(
    model: Model,
    theta: Annotated[Path | None, typer.Option(help="File with thetas like those to come; if not given, rows.")] = None,
    temperature: Temperature = 1.0,
    tv: Annotated[float, typer.Option(help="Mean total variation distance that draws may have.")] = 2.5e-4,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Measure how draws can be made quicker for some thetas, and keep that in the model if it pays."""
    loaded = LogLinear.load(model)
    thetas = None if theta is None else read_thetas(theta, loaded.features.d)
    found = loaded.calibrate(thetas, temperature=temperature, tv=tv, rng=seed)
    if found.accepted:
        loaded.save(model)
    if as_json:
        show(found.to_dict() | {"accepted": found.accepted}, [], [], as_json=True)
    else:
        print(found)


def _show_info(path: Path, *, as_json: bool) -> None:
    facts = describe(path)
    if facts["changes"] or "built" in read_config(path):  # since cells were trained
        drift = LogLinear.load(path).drift()
        facts |= {"drift": None if drift is None else drift.facts()}
    shown = facts | {"bytes": f"{facts['bytes'] / 2**20:,.1f} MiB"}
    show(facts, ((key, _words(value)) for key, value in shown.items()), ("", ""), as_json=as_json)


def _words(value: object) -> str:
    """A fact in the words of a table."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        held = cast("dict[str, object]", value).items()
        return ", ".join(
            f"{key} {_short(fact)}" for key, fact in held if not (fact is None or isinstance(fact, list | dict))
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


def _short(fact: object) -> str:
    return f"{fact:.4g}" if isinstance(fact, float) else str(fact)
