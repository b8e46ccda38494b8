"""One function a command; each loads what it needs when it is called, so that `--help` is quick."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
import typer

from lazygumbel.checks import check_count, check_vectors
from lazygumbel.cli.console import guarded, progress, show
from lazygumbel.distribution import Distribution
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex
from lazygumbel.methods import Exhaustive, FixedCutoff, LazyGumbel, TopKOnly, UniformTail
from lazygumbel.model import LogLinear, describe
from lazygumbel.persist import check_target

__all__ = ["app", "main"]

_UNPARSED: Any = typer.BadParameter.__mro__[2]
"""What typer raises for every kind of unusable command line; it has no public name of its own."""

app = typer.Typer(add_completion=False, help="Softmax models over millions of rows.")

Model = Annotated[Path, typer.Argument(help="A folder written by `lazygumbel build`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random draws.")]
Theta = Annotated[Path | None, typer.Option(help="File with theta: .npy, or text with numbers.")]
Row = Annotated[int | None, typer.Option(help="Use the row with this id as theta.")]
Name = Annotated[str | None, typer.Option(help="Use the row with this name as theta.")]
Temperature = Annotated[float, typer.Option(help="Divides the inner products.")]
Method = Annotated[
    str | None, typer.Option(help="exhaustive, lazy, fixed-cutoff or top-k; the model's default if not given.")
]
K = Annotated[int | None, typer.Option(help="Size of the head of the method.")]


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
    found = loaded.index.top_k(_theta(loaded, theta, row, name), k)
    names = _names(loaded, found.ids)
    scores: list[float] = found.scores.tolist()
    result = {
        "ids": found.ids.tolist(),
        "scores": scores,
        "names": names,
        "rows": int(found.rows),
        "exact": found.exact,
    }
    columns = {"id": map(str, found.ids), "name": names, "score": (f"{x:.6g}" for x in scores)}
    _show_columns(result, columns, as_json=as_json)


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
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Draw rows from the softmax."""
    loaded = LogLinear.load(model)
    dist = _distribution(loaded, theta, row, name, temperature)
    if without_replacement:
        drawn = dist.sample_without_replacement(size, method=_ordered_sampler(method, k), rng=seed)
    else:
        drawn = dist.sample(size, method=_sampler(method, k), rng=seed)
    names = _names(loaded, drawn.ids)
    result = {
        "ids": drawn.ids.tolist(),
        "values": drawn.values.tolist(),
        "names": names,
        "rows": int(drawn.rows),
        "label": drawn.label,
    }
    _show_columns(result, {"id": map(str, drawn.ids), "name": names}, as_json=as_json)


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
    estimate = _distribution(loaded, theta, row, name, temperature).log_partition(
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
        queries = np.atleast_2d(_theta(loaded, theta, row, name))
    report = loaded.audit(queries, temperature=temperature, method=_sampler(method, k))
    if as_json:
        facts = {"method": report.method, "thetas": len(queries), "k": report.k} | report.summary()
        show(facts, [], [], as_json=True)
    else:
        print(report)


def main() -> None:
    """Entry point of the `lazygumbel` command; words that do not parse end in one line and exit code 2, too."""
    try:
        code: object = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except _UNPARSED as error:
        print(f"lazygumbel: {' '.join(error.format_message().split())} (see lazygumbel --help)", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


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
        return ", ".join(f"{key} {fact}" for key, fact in held if not isinstance(fact, list | dict))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _show_columns(result: dict[str, Any], columns: Mapping[str, Iterable[str] | None], *, as_json: bool) -> None:
    """A table of the columns that there are: rows without names have no column of names."""
    present = {title: column for title, column in columns.items() if column is not None}
    show(result, zip(*present.values(), strict=True), list(present), as_json=as_json)


def _distribution(
    model: LogLinear, theta: Path | None, row: int | None, name: str | None, temperature: float
) -> Distribution:
    return model(_theta(model, theta, row, name), temperature=temperature)


def _theta(model: LogLinear, theta: Path | None, row: int | None, name: str | None) -> npt.NDArray[np.float32]:
    """One theta, (d,), from exactly one of the three ways to give it."""
    if sum(given is not None for given in (theta, row, name)) != 1:
        raise ValueError("theta: give exactly one of --theta, --row and --name")
    if row is not None:
        return model.features.gather(np.asarray(row))
    if name is not None:
        if model.features.names is None:
            raise ValueError("name: the rows of this model have no names; use --row or --theta")
        return model.features.gather(np.asarray(model.features.names.find(name)))
    return _read_theta(Path(theta or ""), model.features.d)


def _read_theta(path: Path, d: int) -> npt.NDArray[np.float32]:
    if not path.is_file():
        raise ValueError(f"theta: there is no file {path}")
    try:
        loaded: npt.NDArray[Any] = (
            np.lib.format.open_memmap(path, mode="r")
            if path.suffix == ".npy"
            else np.array(path.read_text().split(), dtype=np.float64)
        )
    except (ValueError, EOFError, TokenError) as error:
        raise ValueError(f"theta: {path} cannot be read as numbers ({error})") from None
    return check_vectors(loaded.reshape(-1), "theta", d)


def _sampler(method: str | None, k: int | None) -> Exhaustive | LazyGumbel | FixedCutoff | TopKOnly | None:
    if method is None:
        return None if k is None else FixedCutoff(k=k)
    if method == "exhaustive":
        if k is not None:
            raise ValueError("k: the exhaustive method looks at every row and has no head")
        return Exhaustive()
    if method == "lazy":
        return LazyGumbel(k=k)
    if method == "fixed-cutoff":
        return FixedCutoff(k=k)
    if method == "top-k":
        return TopKOnly(k=100 if k is None else k)
    raise ValueError(f"method: {method!r} is none of exhaustive, lazy, fixed-cutoff, top-k")


def _ordered_sampler(method: str | None, k: int | None) -> Exhaustive | LazyGumbel | None:
    chosen = _sampler("lazy" if method is None and k is not None else method, k)
    if isinstance(chosen, FixedCutoff | TopKOnly):
        raise ValueError(f"method: {method!r} cannot draw without replacement; exhaustive and lazy can")
    return chosen


def _names(model: LogLinear, ids: npt.NDArray[np.int64]) -> list[str] | None:
    names = model.features.names
    return None if names is None else [names[int(i)] for i in ids]
