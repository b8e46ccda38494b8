"""Work that two threads share through a mailbox: an array of whole numbers through which they meet.

Who has work posts its run and opens the mailbox; a helper that is awake by then joins. Of a scan both claim pieces
until there are none. Whoever comes late finds the mailbox closed, and nothing in it is touched: one who is through with
its own share closes it, and goes on only when a helper who has joined is through, too. Nothing here can fail, and the
helper never asks for the interpreter's lock, which would cost both of them a tenth of a millisecond.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from lazygumbel._support.arrays import Ints
from lazygumbel.kernels.batches import Sample
from lazygumbel.kernels.codes import scan
from lazygumbel.kernels.decorators import maker, part
from lazygumbel.kernels.packed import read_run, read_sample, write_run, write_sample
from lazygumbel.kernels.types import AWAKE, CALLS, MAILBOX, PACKED, Run

__all__ = [
    "ANSWER",
    "ARGUMENT",
    "BEST",
    "SAMPLE",
    "SCAN",
    "close_mailbox",
    "count_calls",
    "join",
    "leave",
    "look_at_calls",
    "open_mailbox",
    "post_sample",
    "run_on",
    "sample_on",
    "scan_pieces",
    "scan_shared",
    "set_awake",
    "work_on",
]

_STATE, _CLAIMED, _WORK, _RUN = 1, 2, 3, 8
"""Entries of a mailbox, beside `CALLS` and `AWAKE`; those between the last two are what work is given and finds."""
_CLOSED, _OPEN, _JOINED = range(3)
SCAN, BEST, SAMPLE = range(3)
"""Kinds of work."""
ARGUMENT, ANSWER = 4, 5
"""The first of three entries for what work is about, and of two for what it finds, in place of these."""
_PIECE = 8
"""Chunks that are claimed together."""


@intrinsic
def _count_up(_: Any, counters: Any, place: Any, by: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """Add to counters[place] in one step, whoever else does; what was there before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [values[1]]), values[2], "seq_cst")

    return types.int64(counters, types.int64, types.int64), generate


@intrinsic
def _swap(_: Any, counters: Any, place: Any, old: Any, new: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """Put a number in place of another in one step; whether that was there."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        pointer = builder.gep(array.data, [values[1]])
        return builder.extract_value(builder.cmpxchg(pointer, *values[2:], "seq_cst", "seq_cst"), 1)

    return types.boolean(counters, *(types.int64,) * 3), generate


@intrinsic
def _look(_: Any, counters: Any, place: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """counters[place], whoever else writes it; not written itself, which would take it from the cache of others."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.load_atomic(builder.gep(array.data, [values[1]]), "acquire", 8)

    return types.int64(counters, types.int64), generate


@part
def scan_pieces(run: Run, mailbox: Ints, upwards: bool) -> None:
    """One thread goes upwards, the other downwards, so that either mostly writes what it wrote for the last theta:
    memory that another processor wrote takes longer to get than a scan."""
    chunks = run.race.sums.shape[0]
    pieces, mine = -(-chunks // _PIECE), 0
    while _count_up(mailbox, _CLAIMED, 1) < pieces:
        first = _PIECE * (mine if upwards else pieces - 1 - mine)
        scan(run, first, min(first + _PIECE, chunks))
        mine += 1


@part
def open_mailbox(run: Run, mailbox: Ints, work: int) -> None:
    """Post a run to a mailbox: whoever comes now helps with this work."""
    write_run(mailbox[_RUN:], run)
    mailbox[_CLAIMED], mailbox[_WORK] = 0, work
    _swap(mailbox, _STATE, _CLOSED, _OPEN)


@part
def close_mailbox(mailbox: Ints) -> bool:
    """Let nobody join any more, and wait for a helper who has; whether there was one."""
    if _swap(mailbox, _STATE, _OPEN, _CLOSED):
        return False
    while _look(mailbox, _STATE) == _JOINED:
        pass
    return True


@part
def join(mailbox: Ints) -> bool:
    """Whether there is something to do, which is then for the helper."""
    return _look(mailbox, _STATE) == _OPEN and _swap(mailbox, _STATE, _OPEN, _JOINED)


@part
def leave(mailbox: Ints) -> None:
    """The helper has done its work."""
    _swap(mailbox, _STATE, _JOINED, _CLOSED)


@part
def count_calls(mailbox: Ints) -> int:
    """How often a helper was called to this mailbox."""
    return _count_up(mailbox, CALLS, 0)


@part
def look_at_calls(mailbox: Ints) -> int:
    """The same, perhaps of a moment ago."""
    return _look(mailbox, CALLS)


@part
def set_awake(mailbox: Ints, awake: int) -> None:
    """Whether a helper need not be woken."""
    _swap(mailbox, AWAKE, 1 - awake, awake)


@maker
def run_on(mailbox: Ints) -> Run:
    """The run in a mailbox that was joined."""
    return read_run(mailbox[_RUN:])


@part
def post_sample(sample: Sample, seed: np.uint64, mailbox: Ints) -> None:
    """Post what is to be sampled to a mailbox, before it is opened."""
    write_sample(mailbox[_RUN + PACKED :], sample)
    mailbox[ARGUMENT] = np.int64(seed)


@maker
def sample_on(mailbox: Ints) -> Sample:
    """What is to be sampled."""
    return read_sample(mailbox[_RUN + PACKED :])


@part
def work_on(mailbox: Ints) -> int:
    """Its kind."""
    return mailbox[_WORK]


@part
def scan_shared(run: Run, mailbox: Ints) -> None:
    """Scan all chunks, with whoever joins at the mailbox; an empty one is for nobody."""
    if mailbox.shape[0] < MAILBOX:
        scan(run, np.int64(0), run.race.sums.shape[0])
        return
    open_mailbox(run, mailbox, SCAN)
    scan_pieces(run, mailbox, True)
    close_mailbox(mailbox)
