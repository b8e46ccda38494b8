"""Numbers that two threads count together."""

from typing import Any

from numba.core import types
from numba.extending import intrinsic

__all__ = ["count_up"]


@intrinsic
def count_up(_: Any, counters: Any, place: Any, by: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`count_up(counters, place, by)`: add to counters[place] in one step, whoever else does; what was there before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        pointer = builder.gep(array.data, [values[1]])
        return builder.atomic_rmw("add", pointer, values[2], "seq_cst")

    return types.int64(counters, types.int64, types.int64), generate
