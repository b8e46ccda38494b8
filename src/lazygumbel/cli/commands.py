"""One function a command; each loads what it needs when it is called, so that `--help` is quick."""

from pathlib import Path
from typing import Annotated, cast

import numpy as np
import typer

from lazygumbel.checks import check_count
from lazygumbel.cli.console import guarded, progress, show
from lazygumbel.cli.options import (
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
    distribution,
    names_of,
    show_columns,
    theta_of,
)
from lazygumbel.cli.sharded import Ray, opened
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex
from lazygumbel.methods import Bounded, Exhaustive, FixedCutoff, LazyGumbel, TopKOnly, UniformTail
from lazygumbel.model import LogLinear, describe
from lazygumbel.persist import check_target

__all__: list[str] = []


@app.command()
@guarded
def build(
    features: Annotated[Path, typer.Argument(help=".npy, .fvecs, .bvecs, .vec, .hdf5, .safetensors or .parquet")],
    model: Annotated[Path, typer.Argument(help="The folder to write.")],
    index: Annotated[str | None, typer.Option(help="exact, partition, lsh or a FAISS factory string.")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells of a partition index.")] = None,
    unit_norm: Annotated[bool, typer.Option("--unit-norm", help="Scale every row to length one.")] = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Build a model over the rows of a file."""
    from lazygumbel import datasets

    if cells is not None and index not in (None, "partition"):
        raise ValueError("cells goes with a partition index only")
    check_target(model)
    with progress() as bars:
        rows = datasets.read(features, progress=bars)
        if unit_norm:
            rows = rows.unit_norm()
        built: Index | None = None
        if index == "exact":
            built = ExactIndex.build(rows, progress=bars)
        elif index == "partition" or (index is None and cells is not None):
            built = PartitionIndex.build(rows, cells=cells, rng=seed, progress=bars)
        elif index == "lsh":
            built = LSHIndex.build(rows, rng=seed, progress=bars)
        elif index is not None:
            built = FaissIndex.build(rows, index, progress=bars)
        LogLinear.build(rows, index=built, rng=seed, progress=bars).save(model)
    _show_info(model, as_json=as_json)


@app.command()
@guarded
def info(model: Model, as_json: Json = False) -> None:
    """What a saved model holds, without loading it."""
    _show_info(model, as_json=as_json)


@app.command(name="top-k")
@guarded
def top_k(
    model: Model,
    k: Annotated[int, typer.Argument(help="How many rows.")] = 10,
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    as_json: Json = False,
) -> None:
    """The rows with the largest inner products."""
    loaded = LogLinear.load(model)
    found = loaded.index.top_k(theta_of(loaded, theta, row, name), k)
    names = names_of(loaded, found.ids)
    scores: list[float] = found.scores.tolist()
    result = {
        "ids": found.ids.tolist(),
        "scores": scores,
        "names": names,
        "rows": int(found.rows),
        "exact": found.exact,
    }
    columns = {"id": map(str, found.ids), "name": names, "score": (f"{x:.6g}" for x in scores)}
    show_columns(result, columns, as_json=as_json)


@app.command()
@guarded
def sample(
    model: Model,
    size: Annotated[int, typer.Argument(help="How many samples.")] = 10,
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    temperature: Temperature = 1.0,
    without_replacement: Annotated[
        bool, typer.Option("--without-replacement", help="Distinct rows, in order.")
    ] = False,
    method: Method = None,
    k: K = None,
    ray: Ray = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Draw rows from the softmax, of a model or of shards."""
    with opened(model, ray) as loaded:
        dist = distribution(loaded, theta, row, name, temperature)
        if without_replacement:
            drawn = dist.sample_without_replacement(size, method=_ordered_sampler(method, k), rng=seed)
        else:
            drawn = dist.sample(size, method=_sampler(method, k), rng=seed)
        names = names_of(loaded, drawn.ids)
    result = {
        "ids": drawn.ids.tolist(),
        "values": drawn.values.tolist(),
        "names": names,
        "rows": int(drawn.rows),
        "label": drawn.label,
    }
    show_columns(result, {"id": map(str, drawn.ids), "name": names}, as_json=as_json)


@app.command(name="log-partition")
@guarded
def log_partition(
    model: Model,
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    temperature: Temperature = 1.0,
    rel_err: Annotated[float | None, typer.Option(help="Relative error of Z to aim at.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Sum over every row.")] = False,
    k: Annotated[int | None, typer.Option(help="Head and tail size of the uniform-tail method.")] = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Estimate log Z, with its standard error."""
    loaded = LogLinear.load(model)
    if exact and k is not None:
        raise ValueError("exact sums over every row; k has no meaning with it")
    method = Exhaustive() if exact else UniformTail(k=k) if k is not None else None
    estimate = distribution(loaded, theta, row, name, temperature).log_partition(
        rel_err=rel_err, method=method, rng=seed
    )
    low, high = estimate.interval(0.95)
    result = {
        "log_partition": float(estimate.value),
        "stderr": float(estimate.stderr),
        "interval": [float(low), float(high)],
        "rows": int(estimate.rows),
        "label": estimate.label,
    }
    cells = (
        f"{float(estimate.value):.6g}",
        f"{float(estimate.stderr):.3g}",
        f"{low:.6g} to {high:.6g}",
        int(estimate.rows),
        estimate.label,
    )
    show(result, [cells], ("log Z", "stderr", "95% interval", "rows", "label"), as_json=as_json)


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
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Measure how often a sampler misses the true winner: needs every row for every theta."""
    loaded = LogLinear.load(model)
    if theta is None and row is None and name is None:
        ids = np.random.default_rng(seed).integers(loaded.features.n, size=check_count(thetas, "thetas"))
        queries = loaded.features.gather(ids)
    else:
        queries = np.atleast_2d(theta_of(loaded, theta, row, name))
    report = loaded.audit(queries, temperature=temperature, method=_sampler(method, k))
    if as_json:
        facts = {"method": report.method, "thetas": len(queries), "k": report.k} | report.summary()
        show(facts, [], [], as_json=True)
    else:
        print(report)


def _show_info(path: Path, *, as_json: bool) -> None:
    facts = describe(path)
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


def _sampler(method: str | None, k: int | None) -> Exhaustive | LazyGumbel | FixedCutoff | Bounded | TopKOnly | None:
    if method in ("exhaustive", "bounded") and k is not None:
        raise ValueError(f"k: the {method} method has no head of a given size")
    match method:
        case None:
            return None if k is None else FixedCutoff(k=k)
        case "exhaustive":
            return Exhaustive()
        case "bounded":
            return Bounded()
        case "lazy":
            return LazyGumbel(k=k)
        case "fixed-cutoff":
            return FixedCutoff(k=k)
        case "top-k":
            return TopKOnly(k=100 if k is None else k)
        case _:
            known = "exhaustive, bounded, lazy, fixed-cutoff, top-k"
            raise ValueError(f"method: {method!r} is none of {known}")


def _ordered_sampler(method: str | None, k: int | None) -> Exhaustive | LazyGumbel | Bounded | None:
    chosen = _sampler("lazy" if method is None and k is not None else method, k)
    if isinstance(chosen, FixedCutoff | TopKOnly):
        raise ValueError(f"method: {method!r} cannot draw without replacement; exhaustive, bounded and lazy can")
    return chosen
