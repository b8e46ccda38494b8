"""Log lines in JSON on standard error: what was asked for and how it went, never a vector, a name or a token."""

import asyncio
import json
import logging
import sys
import time
import traceback
from functools import lru_cache
from typing import Any

__all__ = ["event", "set_up"]

_LOGGER = logging.getLogger("lazygumbel.serve")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            facts["trace"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(facts)


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


class _Gathering(logging.Handler):
    """Writes the lines of one turn of the event loop at once: at each write another thread takes over."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread: there is no turn to wait for
            self._write()
            return
        if len(self._lines) == 1:
            loop.call_soon(self._write)

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            sys.stderr.write("\n".join([*lines, ""]))
            sys.stderr.flush()


def set_up() -> None:
    """Send the lines of the service, and of its server, to standard error."""
    handler = _Gathering()
    handler.setFormatter(_Lines())
    logging.captureWarnings(True)
    for name in ("lazygumbel.serve", "uvicorn.error", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    _LOGGER.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def event(name: str, *, level: int = logging.INFO, error: BaseException | None = None, **facts: Any) -> None:
    """One line."""
    if _LOGGER.isEnabledFor(level):
        # Not by `log`, which looks for the line of code that called it.
        cause = None if error is None else (type(error), error, error.__traceback__)
        _LOGGER.handle(_LOGGER.makeRecord(_LOGGER.name, level, "", 0, name, (), cause, extra={"facts": facts}))
