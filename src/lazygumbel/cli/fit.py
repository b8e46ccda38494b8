"""`lazygumbel fit`: learn a theta from rows, print the learning curve as it grows and what else it makes likely."""

import sys
from math import ceil, sqrt
from pathlib import Path
from typing import IO, Annotated, cast

import numpy as np
import typer

from lazygumbel._support.arrays import Ints
from lazygumbel._support.persist import replacing
from lazygumbel.cli.console import guarded
from lazygumbel.cli.options import Json, Model, Seed, Temperature, app, names_of, read_ids, show_columns
from lazygumbel.indexes import ExactIndex
from lazygumbel.learning import Anchored, Diverged, Fit, Interrupted, Record, check_file, fit
from lazygumbel.methods import Estimator, Exhaustive
from lazygumbel.methods.named import method_named, names_of_methods
from lazygumbel.model import LogLinear

__all__: list[str] = []

_SHOWN = 10
_METHODS = ("anchored", *names_of_methods(Estimator))


@app.command(name="fit")
@guarded
def fit_command(
    model: Model,
    rows: Annotated[Path, typer.Argument(help="A file with one id a line; or one name, unless all are numbers.")],
    out: Annotated[Path, typer.Option(help="The .npy file to write theta to.")],
    method: Annotated[str, typer.Option(help=f"{', '.join(_METHODS)}.")] = "anchored",
    learning_rate: Annotated[float, typer.Option(help="Length of a step, times the gradient.")] = 10.0,
    halve_every: Annotated[int, typer.Option(help="Halve the learning rate after so many steps.")] = 1000,
    iterations: Annotated[int, typer.Option(help="How many steps.")] = 5000,
    temperature: Temperature = 1.0,
    l2: Annotated[float, typer.Option(help="Penalty: half of this times the squared norm of theta.")] = 0.0,
    tolerance: Annotated[float | None, typer.Option(help="Stop when the log-likelihood has settled to this.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="File to keep the run in, replaced as it goes.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Find the theta under which some rows are most likely."""
    check_file(out, "out")
    loaded = LogLinear.load(model)
    ids = read_ids(rows, loaded, "rows")
    curve = _Curve(sys.stderr if as_json else sys.stdout)
    try:
        learnt = fit(
            loaded,
            ids,
            method=_method(method, loaded.features.n),
            learning_rate=learning_rate,
            halve_every=halve_every,
            iterations=iterations,
            temperature=temperature,
            l2=l2,
            tolerance=tolerance,
            checkpoint=checkpoint,
            resume=resume,
            rng=seed,
            callback=curve.add,
        )
    except Interrupted as stop:
        kept = "nothing was kept" if checkpoint is None else f"go on with --checkpoint {checkpoint} --resume"
        print(f"lazygumbel: {stop}; {kept}", file=sys.stderr)
        raise typer.Exit(130) from None
    except Diverged as error:
        raise ValueError(str(error)) from None
    with replacing(out) as stream:
        np.save(stream, learnt.theta, allow_pickle=False)
    _show(loaded, ids, learnt, temperature, out, as_json=as_json)


class _Curve:
    """A learning curve, printed line by line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._begun = False

    def add(self, record: Record) -> None:
        """Print one checkpoint."""
        if not self._begun:
            print(f"{'iteration':>9}  log-likelihood  gradient  {'rows':>15}  seconds", file=self._stream)
            self._begun = True
        print(
            f"{record.iteration:9,}  {record.log_likelihood:14.6f}  {record.gradient_norm:8.2g}  "
            f"{record.rows:15,}  {record.seconds:7.2f}",
            file=self._stream,
            flush=True,
        )


def _show(model: LogLinear, ids: Ints, learnt: Fit, temperature: float, out: Path, *, as_json: bool) -> None:
    """The most probable rows that were not learnt, exactly."""
    dist = LogLinear(ExactIndex(model.settled().features))(learnt.theta, temperature=temperature)
    places = np.empty(0, dtype=np.int64)
    if len(np.unique(ids)) < model.features.n:
        places = dist.top_k(_SHOWN, exclude=np.searchsorted(model.ids, ids)).ids
    chances = cast("list[float]", np.exp(dist.log_prob(places, method=Exhaustive()).value).tolist())
    others = model.ids[places]
    names = names_of(model, others)
    history = learnt.history
    result = {
        "out": str(out),
        "log_likelihood": learnt.log_likelihood,
        "rows": learnt.rows,
        "seconds": float(history.seconds[-1]),
        "history": {name: column.tolist() for name, column in vars(history).items()},
        "learnt": ids.tolist(),
        "ids": others.tolist(),
        "names": names,
        "probabilities": chances,
    }
    if not as_json:
        print(f"\nMost probable of the other rows, theta is in {out}:")
    columns = {"id": map(str, others), "name": names, "probability": (f"{p:.4g}" for p in chances)}
    show_columns(result, columns, as_json=as_json)


def _method(name: str, n: int) -> Anchored | Estimator:
    """The method of this name; the paper's sizes for the two that have one (Table 2)."""
    if name not in _METHODS:
        raise ValueError(f"method: {name!r} is none of {', '.join(_METHODS)}")
    if name == _METHODS[0]:
        return Anchored()
    root = sqrt(n)
    sizes = {
        "uniform-tail": {"k": min(n, ceil(10 * root)), "l": ceil(100 * root)},
        "top-k": {"k": min(n, ceil(100 * root))},
    }
    return method_named(name, **sizes.get(name, {}))
