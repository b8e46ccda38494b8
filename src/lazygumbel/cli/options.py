"""What commands share: the app, the options they have in common, thetas and names from the command line."""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.checks import check_ids, check_vectors
from lazygumbel.cli.console import show
from lazygumbel.cli.samplers import SAMPLERS
from lazygumbel.distribution import Distribution
from lazygumbel.live import LiveDistribution
from lazygumbel.model import LogLinear
from lazygumbel.sharded import ShardedDistribution, ShardedModel

__all__ = [
    "AnyModel",
    "Exclude",
    "Json",
    "K",
    "Method",
    "MinP",
    "Model",
    "Name",
    "Row",
    "Seed",
    "Temperature",
    "Theta",
    "TopK",
    "TopP",
    "app",
    "distribution",
    "excluded",
    "names_of",
    "read_ids",
    "read_lines",
    "read_thetas",
    "show_columns",
    "theta_of",
    "truncated",
]

app = typer.Typer(add_completion=False, help="Softmax models over millions of rows.")

AnyModel = LogLinear | ShardedModel

Model = Annotated[Path, typer.Argument(help="A folder written by `lazygumbel build`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random draws.")]
Theta = Annotated[Path | None, typer.Option(help="File with one theta or several: .npy, or text with numbers.")]
Exclude = Annotated[
    Path | None, typer.Option(help="File with rows to leave out: one id a line; or one name, unless all are numbers.")
]
Row = Annotated[int | None, typer.Option(help="Use the row with this id as theta.")]
Name = Annotated[str | None, typer.Option(help="Use the row with this name as theta.")]
Temperature = Annotated[float, typer.Option(help="Divides the inner products.")]
Method = Annotated[
    str | None, typer.Option(help=f"{', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]}; the model's default if not given.")
]
K = Annotated[int | None, typer.Option(help="Size of the head of the method.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="Draw from the so many most probable rows.")]
TopP = Annotated[float | None, typer.Option(help="Of these, from the fewest most probable whose mass is this.")]
MinP = Annotated[float | None, typer.Option(help="Of these, from those of this share of the largest probability.")]


def show_columns(result: dict[str, Any], columns: Mapping[str, Iterable[str] | None], *, as_json: bool) -> None:
    """A table of the columns that there are: rows without names have no column of names."""
    present = {title: column for title, column in columns.items() if column is not None}
    show(result, zip(*present.values(), strict=True), list(present), as_json=as_json)


def distribution(
    model: AnyModel, theta: Path | None, row: int | None, name: str | None, temperature: float
) -> Distribution | LiveDistribution | ShardedDistribution:
    """The distribution that a command asks, at the theta that it was given."""
    return model(theta_of(model, theta, row, name), temperature=temperature)


def truncated(
    dist: Distribution | LiveDistribution | ShardedDistribution,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    *,
    seed: int | None,
    exclude: Ints | None,
) -> Distribution | LiveDistribution | ShardedDistribution:
    """The distribution over what these leave of the rows that are not excluded; as it is, if none is given."""
    if top_k is top_p is min_p is None:
        return dist
    return dist.truncated(top_k=top_k, top_p=top_p, min_p=min_p, rng=seed, exclude=exclude)


def theta_of(model: AnyModel, theta: Path | None, row: int | None, name: str | None) -> Vectors:
    """One theta, (d,), or several, (B, d), from exactly one of the three ways to give it."""
    if sum(given is not None for given in (theta, row, name)) != 1:
        raise ValueError("theta: give exactly one of --theta, --row and --name")
    if row is not None:
        return model.features.gather(np.asarray(row))
    if name is not None:
        return model.features.gather(np.asarray(_find(model, name)))
    return read_thetas(Path(theta or ""), model.features.d)


def read_thetas(path: Path, d: int) -> Vectors:
    """The theta of a file, (d,), or as many as it holds, (B, d)."""
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
    if path.suffix != ".npy" and loaded.size > d and loaded.size % d == 0:
        loaded = loaded.reshape(-1, d)
    return check_vectors(loaded, "theta", d)


def read_lines(path: Path, argument: str) -> list[str]:
    """The lines of a text file that are not empty."""
    if not path.is_file():
        raise ValueError(f"{argument}: there is no file {path}")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        raise ValueError(f"{argument}: {path} is not a text file in UTF-8") from None
    return [line for line in lines if line]


def read_ids(path: Path, model: AnyModel, argument: str) -> Ints:
    """Ids from a file with one a line; or one name, unless all are numbers."""
    words = read_lines(path, argument)
    if not words:
        raise ValueError(f"{argument}: {path} holds no row; give one id or name a line")
    if all(re.fullmatch(r"[+-]?\d{1,18}", word) for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
    if model.features.names is None:
        raise ValueError(f"{argument}: {path} holds names, but the rows of this model have none; give ids")
    return np.array([_find(model, word) for word in words], dtype=np.int64)


def excluded(model: AnyModel, path: Path | None) -> Ints | None:
    """The rows to leave out."""
    return None if path is None else check_ids(read_ids(path, model, "exclude"), "exclude", model.size)


def names_of(model: AnyModel, ids: Ints) -> list[Any] | None:
    """Names of rows, in nested lists as the ids are; None without names."""
    names = model.features.names
    return None if names is None else names[ids].tolist()


def _find(model: AnyModel, name: str) -> int:
    if isinstance(model, ShardedModel):
        return model.find(name)
    if model.features.names is None:
        raise ValueError("name: the rows of this model have no names; use --row or --theta")
    return model.features.names.find(name)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"lazygumbel {version('lazygumbel')}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  # registered
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Softmax models over millions of rows."""
