"""What commands share: a progress bar on a terminal, tables or JSON, errors in one line with exit code 2."""

import functools
import json
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any, ParamSpec, TypeVar, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from lazygumbel.progress import Progress, Silent, Task

__all__ = ["guarded", "progress", "show"]

P = ParamSpec("P")
R = TypeVar("R")

_WIDE = 2**20
"""Columns of a page that is not a terminal."""


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Bad input ends a command with one clear line and exit code 2; Ctrl-C with exit code 130."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            raise  # `| head` has read enough: click ends the command quietly
        except (ValueError, ImportError, OSError) as error:
            line = " ".join(str(error).split())
            print(f"lazygumbel: {line}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("lazygumbel: interrupted; nothing was left half-written", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapper


def show(result: dict[str, Any], rows: Iterable[Sequence[object]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print `result` as JSON, or `rows` as a table."""
    if as_json:
        print(json.dumps(_finite(result), allow_nan=False), flush=True)
        return
    # Names are data: no markup, no emoji codes, and nothing is cut, on a terminal or in a pipe.
    width = None if sys.stdout.isatty() else _WIDE
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str) else f"{cell:,}" for cell in row))
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)


def _finite(value: Any) -> Any:
    """The same with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(held) for held in cast("list[Any]", value)]
    return value


@contextmanager
def progress() -> Generator[Progress]:
    """Bars on standard error when it is a terminal; otherwise silence."""
    if not sys.stderr.isatty():
        yield Silent()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        yield _RichProgress(bars)


class _RichTask:
    def __init__(self, bars: Bars, task: Any) -> None:
        self._bars, self._task = bars, task

    def advance(self, amount: float) -> None:
        self._bars.advance(self._task, amount)


class _RichProgress:
    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    @contextmanager
    def task(self, label: str, total: float) -> Generator[Task]:
        yield _RichTask(self._bars, self._bars.add_task(label, total=total))
