"""`code_dots`: inner products of four rows of codes with a query of 16-bit numbers, in whole numbers.

Like `block_dot`, but of rows as they are stored, one after the other. What takes time is to add up across vectors, so
four rows do that together.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel.kernels.block_dot import whole_numbers

__all__ = ["code_dots", "lay_out_whole"]

_ROWS, _WIDTH = 4, 32
_BYTE, _SHORT, _NUMBER, _PLACE, _FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_BYTES, _SHORTS, _PRODUCTS = (ir.VectorType(kind, _WIDTH) for kind in (_BYTE, _SHORT, _NUMBER))
_SUMS, _FOUR, _FLOATS = ir.VectorType(_NUMBER, 16), ir.VectorType(_NUMBER, 4), ir.VectorType(_FLOAT, 4)


@njit(cache=True, nogil=True)
def lay_out_whole(query: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int16], np.float32]:
    """A query as `code_dots` takes it, and its unit.

    Whole vectors of 32, then one for the last 32 columns with zeros for those before.
    """
    d = query.shape[0]
    rest = d % _WIDTH
    whole = d - rest
    numbers = np.empty(d, dtype=np.int16)
    unit = whole_numbers(query, numbers)
    out = np.zeros(whole + _WIDTH, dtype=np.int16)
    out[:whole] = numbers[:whole]
    if d < _WIDTH:
        out[:d] = numbers
    elif rest > 0:
        out[whole + _WIDTH - rest :] = numbers[whole:]
    return out, np.float32(unit)


def _picked(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_NUMBER, len(places)), places))


def _halved(builder: Any, a: Any, b: Any, run: int) -> Any:
    """The sums of neighbouring runs of two vectors of 16, those of the first before those of the second."""
    low = [start + k for start in range(0, 32, 2 * run) for k in range(run)]
    return builder.add(_picked(builder, a, b, low), _picked(builder, a, b, [place + run for place in low]))


@intrinsic
def code_dots(_: Any, codes: Any, rows: Any, query: Any, unit: Any, offset: Any, out: Any, place: Any) -> Any:
    """`code_dots(codes, (a, b, c, d), laid_out, unit, offset, out, j)`: those of four rows into out[j : j + 4].

    Each is offset + unit * the whole number; unit, offset and out are float32.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held, factors, found = (context.make_array(signature.args[k])(context, builder, values[k]) for k in (0, 2, 5))
        d, stride = cgutils.unpack_tuple(builder, held.shape)[1], cgutils.unpack_tuple(builder, held.strides)[0]
        pointer = _BYTE.as_pointer()
        entries, weights, target = (builder.bitcast(array.data, pointer) for array in (held, factors, found))
        starts = [
            builder.gep(entries, [builder.mul(row, stride)]) for row in cgutils.unpack_tuple(builder, values[1], _ROWS)
        ]

        def load(base: Any, offset: Any, kind: Any, align: int) -> Any:
            return builder.load(builder.bitcast(builder.gep(base, [offset]), kind.as_pointer()), align=align)

        totals = [cgutils.alloca_once_value(builder, ir.Constant(_SUMS, [0] * 16)) for _ in starts]
        alone = [cgutils.alloca_once_value(builder, ir.Constant(_NUMBER, 0)) for _ in starts]

        def add(column: Any, at: Any) -> None:
            """Add the products of the vectors of entries at a column and of the query's at its place."""
            factor = builder.sext(load(weights, builder.mul(at, _PLACE(2)), _SHORTS, 2), _PRODUCTS)
            for start, total in zip(starts, totals, strict=True):
                products = builder.mul(builder.zext(load(start, column, _BYTES, 1), _PRODUCTS), factor)
                even, odd = (_picked(builder, products, products, list(range(k, _WIDTH, 2))) for k in (0, 1))
                builder.store(builder.add(builder.load(total), builder.add(even, odd)), total)

        rest = builder.and_(d, _PLACE(_WIDTH - 1))
        whole = builder.sub(d, rest)
        with cgutils.for_range_slice(builder, _PLACE(0), whole, _PLACE(_WIDTH), _PLACE) as (column, _):
            add(column, column)
        with builder.if_else(builder.icmp_signed(">", whole, _PLACE(0))) as (long, short):
            with long, builder.if_then(builder.icmp_signed("!=", rest, _PLACE(0))):
                add(builder.sub(d, _PLACE(_WIDTH)), whole)
            with short, cgutils.for_range(builder, rest) as loop:
                factor = builder.sext(load(weights, builder.mul(loop.index, _PLACE(2)), _SHORT, 2), _NUMBER)
                for start, total in zip(starts, alone, strict=True):
                    product = builder.mul(builder.zext(load(start, loop.index, _BYTE, 1), _NUMBER), factor)
                    builder.store(builder.add(builder.load(total), product), total)
        a, b, c, e = (builder.load(total) for total in totals)
        four = _halved(builder, _halved(builder, a, b, 8), _halved(builder, c, e, 8), 4)  # four numbers of each row
        two = builder.add(
            *(_picked(builder, four, four, [4 * k + j + i for k in range(4) for j in (0, 1)]) for i in (0, 2))
        )
        sums = builder.add(*(_picked(builder, two, two, [2 * k + i for k in range(4)]) for i in (0, 1)))
        more = ir.Constant(_FOUR, ir.Undefined)
        for k, total in enumerate(alone):
            more = builder.insert_element(more, builder.load(total), _NUMBER(k))

        def splat(value: Any) -> Any:
            single = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, _NUMBER(0))
            return builder.shuffle_vector(single, single, ir.Constant(_FOUR, [0] * 4))

        scores = builder.fadd(
            builder.fmul(builder.sitofp(builder.add(sums, more), _FLOATS), splat(values[3])), splat(values[4])
        )
        where = builder.gep(target, [builder.mul(values[6], _PLACE(4))])
        builder.store(scores, builder.bitcast(where, _FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(codes, rows, query, unit, offset, out, place), generate
