"""The command line: `lazygumbel build | info | top-k | sample | log-partition | audit`."""

from lazygumbel.cli.commands import app, main

__all__ = ["app", "main"]
