"""Progress is an object the caller passes; by default nothing is shown and callers never branch."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "Silent", "Task"]


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
    """The default: shows nothing."""

    @contextmanager
    def task(self, label: str, total: float) -> Generator[Task]:  # noqa: ARG002  # the protocol's signature
        """A stage that nobody sees."""
        yield _SilentTask()
