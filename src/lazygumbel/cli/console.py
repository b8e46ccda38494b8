"""What commands share: tables or JSON, errors in one line with exit code 2."""

import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, ParamSpec, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["guarded", "show"]

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
