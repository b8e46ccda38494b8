"""Commands that ask a saved model: for one theta, or for all of a file, one after another."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import typer

from lazygumbel.cli.console import guarded, show
from lazygumbel.cli.options import (
    Exclude,
    Json,
    K,
    Method,
    MinP,
    Model,
    Name,
    Row,
    Seed,
    Temperature,
    Theta,
    TopK,
    TopP,
    app,
    distribution,
    excluded,
    truncated,
)
from lazygumbel.cli.samplers import ordered_sampler_of, sampler_of
from lazygumbel.cli.sharded import Ray, opened
from lazygumbel.methods import Estimator, Exhaustive, UniformTail
from lazygumbel.model import LogLinear
from lazygumbel.results import Result

__all__: list[str] = []

RelErr = Annotated[float | None, typer.Option(help="Relative error of Z to aim at.")]
Exact = Annotated[bool, typer.Option("--exact", help="Sum over every row.")]


@app.command(name="top-k")
@guarded
def top_k(
    model: Model,
    k: Annotated[int, typer.Argument(help="How many rows.")] = 10,
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    exclude: Exclude = None,
    as_json: Json = False,
) -> None:
    """The rows with the largest inner products."""
    loaded = LogLinear.load(model)
    dist = distribution(loaded, theta, row, name, 1.0)
    found = dist.top_k(k, exclude=excluded(loaded, exclude))
    _show_rows(found, {"score": "score"}, as_json=as_json)


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
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    method: Method = None,
    k: K = None,
    exclude: Exclude = None,
    ray: Ray = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Draw rows from the softmax, of a model or of shards."""
    with opened(model, ray) as loaded:
        dist, out = distribution(loaded, theta, row, name, temperature), excluded(loaded, exclude)
        dist = truncated(dist, top_k, top_p, min_p, seed=seed, exclude=out)
        if without_replacement:
            drawn = dist.sample_without_replacement(size, method=ordered_sampler_of(method, k), rng=seed, exclude=out)
        else:
            drawn = dist.sample(size, method=sampler_of(method, k), rng=seed, exclude=out)
        _show_rows(drawn, {}, as_json=as_json)  # names are looked up while the model is open


@app.command(name="log-partition")
@guarded
def log_partition(
    model: Model,
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    temperature: Temperature = 1.0,
    rel_err: RelErr = None,
    exact: Exact = False,
    k: Annotated[int | None, typer.Option(help="Head and tail size of the uniform-tail method.")] = None,
    exclude: Exclude = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Estimate log Z, with its standard error."""
    loaded = LogLinear.load(model)
    dist, method = distribution(loaded, theta, row, name, temperature), _estimator(exact, k)
    estimate = dist.log_partition(rel_err=rel_err, method=method, rng=seed, exclude=excluded(loaded, exclude))
    low, high = estimate.interval(0.95)
    facts = (estimate.value, estimate.stderr, low, high, estimate.rows, estimate.labels)
    cells = [
        (f"{value:.6g}", f"{stderr:.3g}", f"{a:.6g} to {b:.6g}", rows, label)
        for value, stderr, a, b, rows, label in zip(*(fact.reshape(-1).tolist() for fact in facts), strict=True)
    ]
    titles = ("log Z", "stderr", "95% interval", "rows", "label")
    if dist.batch_shape:
        cells, titles = [(b, *cell) for b, cell in enumerate(cells)], ("theta", *titles)
    show(estimate.to_dict(), cells, titles, as_json=as_json)
    if not as_json:
        print(estimate.trust())


@app.command(name="log-prob")
@guarded
def log_prob(
    model: Model,
    ids: Annotated[list[int], typer.Argument(help="Ids of rows.")],
    theta: Theta = None,
    row: Row = None,
    name: Name = None,
    temperature: Temperature = 1.0,
    rel_err: RelErr = None,
    exact: Exact = False,
    exclude: Exclude = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Log-probabilities of rows, with their standard errors."""
    loaded = LogLinear.load(model)
    dist, out = distribution(loaded, theta, row, name, temperature), excluded(loaded, exclude)
    asked = np.broadcast_to(np.array(ids).reshape(-1, *[1] * len(dist.batch_shape)), (len(ids), *dist.batch_shape))
    found = dist.log_prob(asked, rel_err=rel_err, method=_estimator(exact, None), rng=seed, exclude=out)
    _show_rows(found, {"value": "log-probability", "stderr": "stderr"}, as_json=as_json)


def _estimator(exact: bool, k: int | None) -> Estimator | None:
    if exact and k is not None:
        raise ValueError("exact sums over every row; k has no meaning with it")
    return Exhaustive() if exact else UniformTail(k=k) if k is not None else None


def _show_rows(found: Result, also: Mapping[str, str], *, as_json: bool) -> None:
    """A table of rows, theta by theta, with these columns under these titles too; below it how far to trust them."""
    if as_json:
        show(found.to_dict(), (), (), as_json=True)
        return
    titles = {"theta": "theta", "id": "id", "name": "name", **also}
    held = {titles[key]: column for key, column in found.columns().items() if key in titles}
    cells = zip(*([_cell(x, title) for x in column.tolist()] for title, column in held.items()), strict=True)
    show({}, cells, list(held), as_json=False)
    print(found.trust())


def _cell(value: object, title: str) -> str:
    return f"{value:.{3 if title == 'stderr' else 6}g}" if isinstance(value, float) else str(value)
