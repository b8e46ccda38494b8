"""Log lines in JSON on standard error: what was asked for and how it went, never a vector, a name or a token."""

import json
import logging
import sys
import time
import traceback
from typing import Any

__all__ = ["event", "set_up"]

_LOGGER = logging.getLogger("lazygumbel.serve")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            facts["trace"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(facts)


def set_up() -> None:
    """Send the lines of the service, and of its server, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
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
        _LOGGER.log(level, name, extra={"facts": facts}, exc_info=error)
