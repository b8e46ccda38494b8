"""What commands share: the app, the options they have in common, thetas and names from the command line."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from lazygumbel.checks import check_vectors
from lazygumbel.cli.console import show
from lazygumbel.distribution import Distribution
from lazygumbel.model import LogLinear
from lazygumbel.sharded import ShardedDistribution, ShardedModel

__all__ = [
    "AnyModel",
    "Json",
    "K",
    "Method",
    "Model",
    "Name",
    "Row",
    "Seed",
    "Temperature",
    "Theta",
    "app",
    "distribution",
    "names_of",
    "read_theta",
    "show_columns",
    "theta_of",
]

app = typer.Typer(add_completion=False, help="Softmax models over millions of rows.")

AnyModel = LogLinear | ShardedModel

Model = Annotated[Path, typer.Argument(help="A folder written by `lazygumbel build`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random draws.")]
Theta = Annotated[Path | None, typer.Option(help="File with theta: .npy, or text with numbers.")]
Row = Annotated[int | None, typer.Option(help="Use the row with this id as theta.")]
Name = Annotated[str | None, typer.Option(help="Use the row with this name as theta.")]
Temperature = Annotated[float, typer.Option(help="Divides the inner products.")]
Method = Annotated[
    str | None,
    typer.Option(help="bounded, exhaustive, lazy, fixed-cutoff or top-k; the model's default if not given."),
]
K = Annotated[int | None, typer.Option(help="Size of the head of the method.")]


def show_columns(result: dict[str, Any], columns: Mapping[str, Iterable[str] | None], *, as_json: bool) -> None:
    """A table of the columns that there are: rows without names have no column of names."""
    present = {title: column for title, column in columns.items() if column is not None}
    show(result, zip(*present.values(), strict=True), list(present), as_json=as_json)


def distribution(
    model: AnyModel, theta: Path | None, row: int | None, name: str | None, temperature: float
) -> Distribution | ShardedDistribution:
    return model(theta_of(model, theta, row, name), temperature=temperature)


def theta_of(model: AnyModel, theta: Path | None, row: int | None, name: str | None) -> npt.NDArray[np.float32]:
    """One theta, (d,), from exactly one of the three ways to give it."""
    if sum(given is not None for given in (theta, row, name)) != 1:
        raise ValueError("theta: give exactly one of --theta, --row and --name")
    if row is not None:
        return model.features.gather(np.asarray(row))
    if name is not None:
        return model.features.gather(np.asarray(_find(model, name)))
    return read_theta(Path(theta or ""), model.features.d)


def read_theta(path: Path, d: int) -> npt.NDArray[np.float32]:
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


def names_of(model: AnyModel, ids: npt.NDArray[np.int64]) -> list[str] | None:
    if isinstance(model, ShardedModel):
        return model.names(ids) if model.features.named else None
    names = model.features.names
    return None if names is None else [names[int(i)] for i in ids]


def _find(model: AnyModel, name: str) -> int:
    if isinstance(model, ShardedModel):
        return model.find(name)
    if model.features.names is None:
        raise ValueError("name: the rows of this model have no names; use --row or --theta")
    return model.features.names.find(name)
