"""Compilation that takes long is told where standard error is a terminal."""

import sys
from importlib import import_module
from threading import Timer
from typing import Any

__all__ = ["LINE", "tell"]

LINE = "lazygumbel: compiling for this machine, once; some seconds (lazygumbel.warm_up() does it beforehand)\n"
_events: Any = import_module("numba.core.event")
_PATIENCE = 1.0
"""Seconds after which somebody who waits wonders why."""


class _Teller(_events.Listener):
    """Of kernels of this package that are not in the cache. Numba compiles one at a time, and its parts within."""

    def __init__(self) -> None:
        self._timer, self._within = Timer(_PATIENCE, _say), 0

    def on_start(self, event: Any) -> None:
        if _is_ours(event):
            self._within += 1
            if self._within == 1 and not self._timer.finished.is_set():  # once told, or never
                self._timer = Timer(_PATIENCE, _say)
                self._timer.daemon = True
                self._timer.start()

    def on_end(self, event: Any) -> None:
        if _is_ours(event):
            self._within -= 1
            if not self._within and not self._timer.finished.is_set():
                self._timer.cancel()
                self._timer = Timer(_PATIENCE, _say)  # this one was quick; another may not be


def _is_ours(event: Any) -> bool:
    return event.data["dispatcher"].py_func.__module__.startswith("lazygumbel.")


def _say() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(LINE)
        sys.stderr.flush()


def tell() -> None:
    """From now on."""
    _events.register("numba:compile", _Teller())
