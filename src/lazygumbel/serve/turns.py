"""`Turns`: of questions and changes, where rows are kept in one version only, as by shards."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition
from typing import Generic, TypeVar

__all__ = ["Closed", "Turns"]

T = TypeVar("T")


class Closed(Exception):
    """A model that could not be opened again."""


class Turns(Generic[T]):
    """Many may ask at once, or one may change. Who wants to change goes first, or questions would never leave room."""

    def __init__(self) -> None:
        self.now: T | None = None
        """What is asked; a change may replace it, and takes it away where it fails to."""
        self._moved = Condition()
        self._asking = 0
        self._changing = False

    @contextmanager
    def asking(self) -> Generator[T]:
        """Within, nothing changes."""
        with self._moved:
            self._moved.wait_for(lambda: not self._changing)
            self._asking += 1
        try:
            if self.now is None:
                raise Closed
            yield self.now
        finally:
            with self._moved:
                self._asking -= 1
                self._moved.notify_all()

    @contextmanager
    def changing(self) -> Generator[None]:
        """Within, nobody asks; for one thread at a time."""
        with self._moved:
            self._changing = True
            self._moved.wait_for(lambda: not self._asking)
        try:
            yield
        finally:
            with self._moved:
                self._changing = False
                self._moved.notify_all()
