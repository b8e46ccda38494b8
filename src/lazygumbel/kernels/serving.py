"""The helper: a thread that sleeps in compiled code until it is called to its mailbox."""

from typing import Any

import numpy as np
from numba.core import types
from numba.core.types import ExternalFunction
from numba.extending import intrinsic

from lazygumbel._support.arrays import Ints
from lazygumbel.kernels.decorators import maker
from lazygumbel.kernels.sharing import (
    BEST,
    SCAN,
    count_calls,
    join,
    leave,
    look_at_calls,
    run_on,
    scan_pieces,
    set_awake,
    work_on,
)
from lazygumbel.kernels.strata import sample_upper
from lazygumbel.kernels.top import find_upper

__all__ = ["run_helper"]

_PATIENCE = 500_000
"""Looks, a fraction of a millisecond, that a helper takes at its mailbox before it goes to sleep."""

_read: Any = ExternalFunction("read", types.int64(types.int32, types.voidptr, types.uint64))


@intrinsic
def _address(_: Any, array: Any) -> Any:
    """Of the first entry."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.bitcast(data, context.get_value_type(types.voidptr))

    return types.voidptr(array), generate


@maker
def run_helper(descriptor: int, mailbox: Ints) -> None:
    byte, seen = np.empty(1, dtype=np.int64), count_calls(mailbox)
    while True:
        # Who calls counts up first and looks then whether it is awake: either it is seen here, or the pipe wakes it.
        if count_calls(mailbox) == seen and _read(np.int32(descriptor), _address(byte), np.uint64(1)) != 1:
            return
        set_awake(mailbox, 1)
        idle = 0
        while idle < _PATIENCE:
            calls = look_at_calls(mailbox)
            idle = idle + 1 if calls == seen else 0
            seen = calls
            if join(mailbox):
                if work_on(mailbox) == SCAN:
                    scan_pieces(run_on(mailbox), mailbox, False)
                elif work_on(mailbox) == BEST:
                    find_upper(run_on(mailbox), mailbox)
                else:
                    sample_upper(run_on(mailbox), mailbox)
                leave(mailbox)
                idle = 0
        set_awake(mailbox, 0)
