"""Commands that ask a saved model: for one theta, or for all of a file, one after another."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

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
    distribution,
    excluded,
    names_of,
    show_columns,
)
from lazygumbel.cli.samplers import ordered_sampler_of, sampler_of
from lazygumbel.cli.sharded import Ray, opened
from lazygumbel.methods import Estimator, Exhaustive, UniformTail
from lazygumbel.model import LogLinear

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
    names = names_of(loaded, found.ids)
    result = {
        "ids": found.ids.tolist(),
        "scores": found.scores.tolist(),
        "names": names,
        "rows": found.rows.tolist(),
        "exact": found.exact,
        "label": found.labels.tolist(),
    }
    columns = {"id": found.ids, "name": names, "score": [f"{x:.6g}" for x in found.scores.reshape(-1).tolist()]}
    _show_rows(result, columns, dist.batch_shape, as_json=as_json)


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
    exclude: Exclude = None,
    ray: Ray = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Draw rows from the softmax, of a model or of shards."""
    with opened(model, ray) as loaded:
        dist, out = distribution(loaded, theta, row, name, temperature), excluded(loaded, exclude)
        if without_replacement:
            drawn = dist.sample_without_replacement(size, method=ordered_sampler_of(method, k), rng=seed, exclude=out)
        else:
            drawn = dist.sample(size, method=sampler_of(method, k), rng=seed, exclude=out)
        ids = drawn.ids.T  # a list of rows for each theta
        names = names_of(loaded, ids)
    result = {
        "ids": ids.tolist(),
        "values": drawn.values.T.tolist(),
        "names": names,
        "rows": drawn.rows.tolist(),
        "label": drawn.labels.tolist(),
    }
    _show_rows(result, {"id": ids, "name": names}, dist.batch_shape, as_json=as_json)


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
    result = {
        "log_partition": estimate.value.tolist(),
        "stderr": estimate.stderr.tolist(),
        "interval": [low.tolist(), high.tolist()],
        "rows": estimate.rows.tolist(),
        "label": estimate.labels.tolist(),
    }
    facts = (estimate.value, estimate.stderr, low, high, estimate.rows, estimate.labels)
    cells = [
        (f"{value:.6g}", f"{stderr:.3g}", f"{a:.6g} to {b:.6g}", rows, label)
        for value, stderr, a, b, rows, label in zip(*(fact.reshape(-1).tolist() for fact in facts), strict=True)
    ]
    titles = ("log Z", "stderr", "95% interval", "rows", "label")
    if dist.batch_shape:
        cells, titles = [(b, *cell) for b, cell in enumerate(cells)], ("theta", *titles)
    show(result, cells, titles, as_json=as_json)


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
    names = names_of(loaded, asked.T)
    result = {
        "ids": ids,
        "names": names_of(loaded, np.array(ids)),
        "log_prob": found.value.T.tolist(),
        "stderr": found.stderr.T.tolist(),
        "rows": found.rows.tolist(),
        "label": found.labels.tolist(),
    }
    columns = {
        "id": asked.T,
        "name": names,
        "log-probability": [f"{x:.6g}" for x in found.value.T.reshape(-1).tolist()],
        "stderr": [f"{x:.3g}" for x in found.stderr.T.reshape(-1).tolist()],
    }
    _show_rows(result, columns, dist.batch_shape, as_json=as_json)


def _estimator(exact: bool, k: int | None) -> Estimator | None:
    if exact and k is not None:
        raise ValueError("exact sums over every row; k has no meaning with it")
    return Exhaustive() if exact else UniformTail(k=k) if k is not None else None


def _show_rows(
    result: dict[str, Any],
    columns: Mapping[str, npt.NDArray[Any] | list[Any] | None],
    batch: tuple[int, ...],
    *,
    as_json: bool,
) -> None:
    """A table of rows, theta by theta; below it how far they can be trusted, and how many rows were scored."""
    flat: dict[str, Iterable[str] | None] = {
        title: None if column is None else [str(x) for x in np.asarray(column, dtype=np.object_).reshape(-1).tolist()]
        for title, column in columns.items()
    }
    if batch:
        count = len(list(flat["id"] or ())) // max(batch[0], 1)
        flat = {"theta": [str(b) for b in range(batch[0]) for _ in range(count)], **flat}
    show_columns(result, flat, as_json=as_json)
    if not as_json:
        labels, counts = np.unique(np.asarray(result["label"]), return_counts=True)
        shown = labels.tolist() if not batch else [f"{c} {label}" for label, c in zip(labels, counts, strict=True)]
        print(f"{', '.join(shown)}; {int(np.sum(result['rows'])):,} rows scored")
