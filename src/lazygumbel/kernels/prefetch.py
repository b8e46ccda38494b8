"""`prefetch`: ask for a row of a matrix before it is needed.

Rows far apart are slow because the processor waits for one after the other; asked for ahead, they come together. Numba
has no such instruction, LLVM has one for every processor.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["prefetch"]

_LINE = 64
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


@intrinsic
def prefetch(_: Any, matrix: Any, row: Any) -> Any:
    """`prefetch(matrix, row)`: the whole row, of a matrix whose rows are stored one after the other."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        stride = cgutils.unpack_tuple(builder, array.strides)[0]
        pointer, number, place = ir.IntType(8).as_pointer(), ir.IntType(32), stride.type
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch")
        start = builder.gep(builder.bitcast(array.data, pointer), [builder.mul(values[1], stride)])

        def ask(offset: Any) -> None:
            builder.call(fetch, [builder.gep(start, [offset]), number(_READ), number(_SECOND_LEVEL), number(_DATA)])

        with cgutils.for_range_slice(builder, place(0), stride, place(_LINE), place) as (offset, _):
            ask(offset)
        ask(builder.sub(stride, place(1)))  # a row need not begin where a line does
        return context.get_dummy_value()

    return types.void(matrix, row), generate
