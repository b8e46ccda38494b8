"""Progress is an object the caller passes: what takes long names its stages, and never branches.

Whoever is called by users takes a `ShowProgress` and asks `choose` once; from there on it is a `Progress`.
"""

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

__all__ = ["Bars", "Progress", "ShowProgress", "Silent", "Task", "choose"]


class Task(Protocol):
    """One running stage."""

    def advance(self, amount: float) -> None:
        """Report that `amount` more units of the stage's total are done."""
        ...


class Progress(Protocol):
    """Anything that can show the stages of a long piece of work."""

    def task(self, label: str, total: float) -> AbstractContextManager[Task]:
        """Open a stage of `total` units; it ends when the context does."""
        ...


class _SilentTask:
    def advance(self, amount: float) -> None:
        pass


class Silent:
    """Shows nothing."""

    @contextmanager
    def task(self, label: str, total: float) -> Generator[Task]:  # noqa: ARG002  # the protocol's signature
        """A stage that nobody sees."""
        yield _SilentTask()


class _BarTask:
    def __init__(self, bars: Any, number: Any) -> None:
        self._bars, self._number = bars, number

    def advance(self, amount: float) -> None:
        self._bars.advance(self._number, amount)


class Bars:
    """A bar on standard error for each stage, gone when the stage ends."""

    @contextmanager
    def task(self, label: str, total: float) -> Generator[Task]:
        """A stage with a bar; without one where somebody else shows bars already."""
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import Progress as RichProgress

        bars = RichProgress(console=Console(stderr=True), transient=True)
        try:
            bars.start()
        except LiveError:
            yield _SilentTask()
            return
        try:
            yield _BarTask(bars, bars.add_task(label, total=total))
        finally:
            bars.stop()


ShowProgress = Progress | bool | None
"""True for bars, False for silence, a `Progress` of your own; None for bars if standard error is a terminal."""


def choose(progress: ShowProgress) -> Progress:
    """What shows progress if a user has asked for this."""
    if progress is None:
        return Bars() if sys.stderr.isatty() else Silent()
    if isinstance(progress, bool):
        return Bars() if progress else Silent()
    if not hasattr(progress, "task"):
        raise ValueError(f"progress must be True, False or an object with a method `task`, not {progress!r}")
    return progress
