"""Work that two threads share over a desk: an array of whole numbers through which they meet.

Who has work lays its run on the desk and opens it; a helper that is awake by then joins. Of a scan both claim pieces
until there are none. Whoever comes late finds the desk closed, and nothing on it is touched: one who is through with
its own share closes it, and goes on only when a helper who has joined is through, too. Nothing here can fail, and the
helper never asks for the interpreter's lock, which would cost both of them a tenth of a millisecond.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

from lazygumbel.kernels.batches import Sample
from lazygumbel.kernels.codes import scan
from lazygumbel.kernels.decorators import maker, part
from lazygumbel.kernels.packed import read_run, read_sample, write_run, write_sample
from lazygumbel.kernels.types import AWAKE, CALLS, DESK, PACKED, Run

__all__ = [
    "ASKED",
    "BEST",
    "FOUND",
    "SAMPLE",
    "SCAN",
    "close_desk",
    "count_calls",
    "join",
    "lay_sample",
    "leave",
    "look_at_calls",
    "open_desk",
    "run_on",
    "sample_on",
    "scan_pieces",
    "scan_shared",
    "tell_awake",
    "work_on",
]

_STATE, _CLAIMED, _WORK, _RUN = 1, 2, 3, 8
"""Entries of a desk, beside `CALLS` and `AWAKE`; those between the last two are arguments and answers of the work."""
_CLOSED, _OPEN, _JOINED = range(3)
SCAN, BEST, SAMPLE = range(3)
"""Kinds of work."""
ASKED, FOUND = 4, 5
"""Entries for a number that work is about, and for the first of two that it finds."""
_PIECE = 8
"""Chunks that are claimed together."""
_Ints = npt.NDArray[np.int64]


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
def scan_pieces(run: Run, desk: _Ints, upwards: bool) -> None:
    """One thread goes upwards, the other downwards, so that either mostly writes what it wrote for the last theta:
    memory that another processor wrote takes longer to get than a scan."""
    chunks = run.race.sums.shape[0]
    pieces, mine = -(-chunks // _PIECE), 0
    while _count_up(desk, _CLAIMED, 1) < pieces:
        first = _PIECE * (mine if upwards else pieces - 1 - mine)
        scan(run, first, min(first + _PIECE, chunks))
        mine += 1


@part
def open_desk(run: Run, desk: _Ints, work: int) -> None:
    """Lay a run on a desk: whoever comes now helps with this work."""
    write_run(desk[_RUN:], run)
    desk[_CLAIMED], desk[_WORK] = 0, work
    _swap(desk, _STATE, _CLOSED, _OPEN)


@part
def close_desk(desk: _Ints) -> bool:
    """Let nobody join any more, and wait for a helper who has; whether there was one."""
    if _swap(desk, _STATE, _OPEN, _CLOSED):
        return False
    while _look(desk, _STATE) == _JOINED:
        pass
    return True


@part
def join(desk: _Ints) -> bool:
    """Whether there is something to do, which is then for the helper."""
    return _look(desk, _STATE) == _OPEN and _swap(desk, _STATE, _OPEN, _JOINED)


@part
def leave(desk: _Ints) -> None:
    """The helper has done its work."""
    _swap(desk, _STATE, _JOINED, _CLOSED)


@part
def count_calls(desk: _Ints) -> int:
    """How often a helper was called to this desk."""
    return _count_up(desk, CALLS, 0)


@part
def look_at_calls(desk: _Ints) -> int:
    """The same, perhaps of a moment ago."""
    return _look(desk, CALLS)


@part
def tell_awake(desk: _Ints, awake: int) -> None:
    """Whether a helper need not be woken."""
    _swap(desk, AWAKE, 1 - awake, awake)


@maker
def run_on(desk: _Ints) -> Run:
    """What lies on a desk that was joined."""
    return read_run(desk[_RUN:])


@part
def lay_sample(sample: Sample, seed: np.uint64, desk: _Ints) -> None:
    """Lay what is to be sampled on a desk, before it is opened."""
    write_sample(desk[_RUN + PACKED :], sample)
    desk[ASKED] = np.int64(seed)


@maker
def sample_on(desk: _Ints) -> Sample:
    """What is to be sampled."""
    return read_sample(desk[_RUN + PACKED :])


@part
def work_on(desk: _Ints) -> int:
    """Its kind."""
    return desk[_WORK]


@part
def scan_shared(run: Run, desk: _Ints) -> None:
    """Scan all chunks, with whoever comes to the desk; an empty one is for nobody."""
    if desk.shape[0] < DESK:
        scan(run, np.int64(0), run.race.sums.shape[0])
        return
    open_desk(run, desk, SCAN)
    scan_pieces(run, desk, True)
    close_desk(desk)
