"""The helper: a thread that sleeps in compiled code until it is called to its desk."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.core.types import ExternalFunction
from numba.extending import intrinsic

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
    tell_awake,
    work_on,
)
from lazygumbel.kernels.strata import sample_upper
from lazygumbel.kernels.top import find_upper

__all__ = ["serve"]

_PATIENCE = 500_000
"""Looks, a fraction of a millisecond, that a helper takes at its desk before it goes to sleep."""

_read: Any = ExternalFunction("read", types.int64(types.int32, types.voidptr, types.uint64))


@intrinsic
def _address(_: Any, array: Any) -> Any:
    """Of the first entry."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.bitcast(data, context.get_value_type(types.voidptr))

    return types.voidptr(array), generate


@maker
def serve(descriptor: int, desk: npt.NDArray[np.int64]) -> None:
    byte, seen = np.empty(1, dtype=np.int64), count_calls(desk)
    while True:
        # Who calls counts up first and looks then whether it is awake: either it is seen here, or the bell is rung.
        if count_calls(desk) == seen and _read(np.int32(descriptor), _address(byte), np.uint64(1)) != 1:
            return
        tell_awake(desk, 1)
        idle = 0
        while idle < _PATIENCE:
            calls = look_at_calls(desk)
            idle = idle + 1 if calls == seen else 0
            seen = calls
            if join(desk):
                if work_on(desk) == SCAN:
                    scan_pieces(run_on(desk), desk, False)
                elif work_on(desk) == BEST:
                    find_upper(run_on(desk), desk)
                else:
                    sample_upper(run_on(desk), desk)
                leave(desk)
                idle = 0
        tell_awake(desk, 0)
