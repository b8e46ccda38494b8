"""Commands of other packages, found by their entry points: `lazygumbel.commands`, a name and a function of options.

`paper` is one of them; without its package it says how to install that.
"""

from importlib.metadata import entry_points

import typer

from lazygumbel.cli.console import guarded

__all__ = ["add_commands"]

_GROUP = "lazygumbel.commands"
_ANY_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_commands(app: typer.Typer) -> None:
    """Add what is installed to the app."""
    found = {point.name: point for point in entry_points(group=_GROUP)}
    for name, point in found.items():
        app.command(name)(guarded(point.load()))
    if "paper" not in found:
        app.command("paper", context_settings=_ANY_OPTIONS)(guarded(_missing))


def _missing() -> None:
    """Run the experiments of the paper, and write a report that compares. Needs the package lazygumbel-evaluation."""
    raise ImportError(
        "paper needs the package lazygumbel-evaluation, which is not installed. Install it with: pip install "
        "'lazygumbel[evaluation]', or in a checkout: pip install ./evaluation"
    )
