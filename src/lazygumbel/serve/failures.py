"""What goes wrong with a request, as a status and a reason; what is not here is a fault of the service, and is 500."""

import logging
from functools import wraps

from starlette.types import Receive, Scope

from lazygumbel.serve import logs, wire
from lazygumbel.serve.direct import Handler, Refused, Reply, error_body
from lazygumbel.serve.engine import Busy, TooLate
from lazygumbel.serve.turns import Closed
from lazygumbel.sharded import ShardError

__all__ = ["AGAIN", "answering"]

AGAIN = {"retry-after": "1"}
_AGAIN = ((b"retry-after", b"1"),)


def answering(handle: Handler) -> Handler:
    """The same, with an answer to every failure that is known."""

    @wraps(handle)
    async def answer(scope: Scope, receive: Receive) -> Reply:
        try:
            return await handle(scope, receive)
        except wire.NotJson as error:
            return Reply(400, error_body(str(error)))
        except Refused as refused:
            return Reply(refused.status, error_body(str(refused)))
        except (ValueError, OverflowError) as error:
            return Reply(422, error_body(str(error)))
        except Busy:
            return Reply(429, error_body("too many requests wait; come again in a moment"), _AGAIN)
        except (TooLate, Closed, MemoryError, OSError) as error:
            return Reply(503, error_body(_reason(error)), _AGAIN)

    return answer


def _reason(error: Exception) -> str:
    """Without what an error of the system would say of paths; that is logged."""
    if isinstance(error, TooLate):
        return "the answer took longer than this service allows"
    if isinstance(error, Closed):
        return "the model could not be opened again after a reload; the log says why"
    logs.event("out of memory" if isinstance(error, MemoryError) else "failed", level=logging.ERROR, error=error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this answer"
    if isinstance(error, ShardError):
        return "some shards do not answer; the log says which, and whether a change is made yet"
    return "the change could not be written, and was not made; the log says why"
