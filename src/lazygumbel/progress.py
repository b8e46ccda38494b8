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
    """Bars on standard error, one for each stage, also of those within others; they go when the last stage ends."""

    def __init__(self) -> None:
        self._shown: Any = None

    @contextmanager
    def task(self, label: str, total: float) -> Generator[Task]:
        """A stage with a bar; without one where somebody else shows bars already."""
        from rich.errors import LiveError

        outermost = self._shown is None
        bars = _rich_bars() if outermost else self._shown
        try:
            bars.start()
        except LiveError:
            yield _SilentTask()
            return
        self._shown = bars
        try:
            yield _BarTask(bars, bars.add_task(label, total=total))
        finally:
            if outermost:
                self._shown = None
                bars.stop()


def _rich_bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return RichProgress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)


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
