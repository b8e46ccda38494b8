"""The command line.

`lazygumbel build | info | calibrate | top-k | sample | log-partition | log-prob | audit | fit | walk | split | paper |
serve`, and `add | remove | replace | compact` for rows that change.
"""

import sys
from typing import Any

import typer

from lazygumbel.cli import commands as _commands
from lazygumbel.cli import fit as _fit
from lazygumbel.cli import live as _live
from lazygumbel.cli import queries as _queries
from lazygumbel.cli import serve as _serve
from lazygumbel.cli import sharded as _sharded
from lazygumbel.cli import walk as _walk
from lazygumbel.cli.options import app
from lazygumbel.cli.others import add_commands

__all__ = ["app", "main"]

_REGISTERED = (_commands, _queries, _fit, _live, _serve, _sharded, _walk)
"""Modules that add commands to the app when they are imported."""
add_commands(app)

_UNPARSED: Any = typer.BadParameter.__mro__[2]
"""What typer raises for every kind of unusable command line; it has no public name of its own."""


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
