"""The helper: a thread that sleeps in compiled code until there is work on its desk."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.core.types import ExternalFunction
from numba.extending import intrinsic

from lazygumbel.kernels.decorators import part
from lazygumbel.kernels.sharing import SCAN, is_awaited, join, leave, run_on, scan_pieces, work_on
from lazygumbel.kernels.top import find_upper

__all__ = ["serve"]

_PATIENCE = 50_000
"""Looks, about half a millisecond, that a helper who was called takes at whether the desk is open."""

_read: Any = ExternalFunction("read", types.int64(types.int32, types.voidptr, types.uint64))


@intrinsic
def _address(_: Any, array: Any) -> Any:
    """Of the first entry."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.bitcast(data, context.get_value_type(types.voidptr))

    return types.voidptr(array), generate


@part
def serve(descriptor: int, desk: npt.NDArray[np.int64]) -> None:
    byte = np.empty(1, dtype=np.int64)
    while _read(np.int32(descriptor), _address(byte), np.uint64(1)) == 1:
        for _ in range(_PATIENCE):
            if join(desk):
                if work_on(desk) == SCAN:
                    scan_pieces(run_on(desk), desk, False)
                else:
                    find_upper(run_on(desk), desk)
                leave(desk)
            if not is_awaited(desk):
                break
