"""A scan that two threads share, over a desk: an array of whole numbers through which they meet.

Who scans lays its run on the desk and opens it; a helper that is awake by then joins, and both claim pieces until there
are none. Whoever comes late finds the desk closed, and nothing on it is touched: one who scans closes it when no piece
is left, and leaves only when a helper who has joined is through with its last, some microseconds later. Nothing here
can fail, and the helper never asks for the interpreter's lock, which would cost both of them a tenth of a millisecond.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.core.types import ExternalFunction
from numba.extending import intrinsic

from lazygumbel.kernels.codes import scan
from lazygumbel.kernels.decorators import part
from lazygumbel.kernels.packed import read_run, write_run
from lazygumbel.kernels.types import AWAITED, DESK, Run

__all__ = ["open_desk", "scan_shared", "serve"]

_STATE, _CLAIMED, _RUN = 1, 2, 8
"""Entries of a desk, beside `AWAITED`."""
_CLOSED, _OPEN, _JOINED = range(3)
_PIECE = 8
"""Chunks that are claimed together."""
_PATIENCE = 50_000
"""Looks, about half a millisecond, that a helper who was called takes at whether the desk is open."""
_Ints = npt.NDArray[np.int64]

_read: Any = ExternalFunction("read", types.int64(types.int32, types.voidptr, types.uint64))


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
def _address(_: Any, array: Any) -> Any:
    """Of the first entry."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.bitcast(data, context.get_value_type(types.voidptr))

    return types.voidptr(array), generate


@part
def _scan_pieces(run: Run, desk: _Ints, upwards: bool) -> None:
    """One thread goes upwards, the other downwards, so that either mostly writes what it wrote for the last theta:
    memory that another processor wrote takes longer to get than a scan."""
    chunks = run.race.sums.shape[0]
    pieces, mine = -(-chunks // _PIECE), 0
    while _count_up(desk, _CLAIMED, 1) < pieces:
        first = _PIECE * (mine if upwards else pieces - 1 - mine)
        scan(run, first, min(first + _PIECE, chunks))
        mine += 1


@part
def open_desk(run: Run, desk: _Ints) -> None:
    """Lay a run on a desk: whoever comes now helps."""
    write_run(desk[_RUN:], run)
    desk[_CLAIMED] = 0
    _swap(desk, _STATE, _CLOSED, _OPEN)


@part
def scan_shared(run: Run, desk: _Ints) -> None:
    """Scan all chunks, with whoever comes to the desk; an empty one is for nobody."""
    if desk.shape[0] < DESK:
        scan(run, np.int64(0), run.race.sums.shape[0])
        return
    open_desk(run, desk)
    _scan_pieces(run, desk, True)
    if not _swap(desk, _STATE, _OPEN, _CLOSED):
        while _count_up(desk, _STATE, 0) == _JOINED:
            pass


@part
def serve(descriptor: int, desk: _Ints) -> None:
    """Help whenever a byte comes through a pipe, until it is closed."""
    byte = np.empty(1, dtype=np.int64)
    while _read(np.int32(descriptor), _address(byte), np.uint64(1)) == 1:
        for _ in range(_PATIENCE):
            if _swap(desk, _STATE, _OPEN, _JOINED):
                _scan_pieces(read_run(desk[_RUN:]), desk, False)
                _swap(desk, _STATE, _JOINED, _CLOSED)
                break
            if _count_up(desk, AWAITED, 0) == 0:
                break
