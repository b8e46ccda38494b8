"""`dot`: the inner product of a row of a matrix with a query, in vector instructions whatever the type of the entries.

Compilers leave the last columns of a row to a slow loop, one by one, and with rows of a few dozen bytes or numbers that
is half of the work. Here a last vector that overlaps the one before takes them: the query is laid out for it, with
zeros for the columns that were counted already. So rows need no padding.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel._support.arrays import Vectors
from lazygumbel.kernels.decorators import maker

__all__ = ["dot", "lay_out"]

_WIDTH = 16
_SUMS = 4
"""Sums that are kept apart in long rows: one alone would wait for each addition before the next."""
_FLOAT, _BYTE, _PLACE = ir.FloatType(), ir.IntType(8), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, _WIDTH)


@maker
def lay_out(query: Vectors) -> Vectors:
    """A query as `dot` takes it: whole vectors of 16, then one for the last 16 columns with zeros for those before."""
    d = query.shape[0]
    rest = d % _WIDTH
    whole = d - rest
    out = np.zeros(whole + _WIDTH, dtype=np.float32)
    for c in range(d):
        out[c if c < whole or d < _WIDTH else c + _WIDTH - rest] = query[c]
    return out


@intrinsic
def dot(_: Any, matrix: Any, row: Any, query: Any) -> Any:
    """`dot(matrix, row, laid_out)` in float32; the rows of a matrix of uint8, int16 or float32 are contiguous."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        held = context.make_array(signature.args[2])(context, builder, values[2])
        entry, d = signature.args[0].dtype, cgutils.unpack_tuple(builder, array.shape)[1]
        stride = cgutils.unpack_tuple(builder, array.strides)[0]
        kind, size = context.get_data_type(entry), context.get_abi_sizeof(context.get_data_type(entry))
        bytes_of = _BYTE.as_pointer()
        start = builder.gep(builder.bitcast(array.data, bytes_of), [builder.mul(values[1], stride)])
        weights = builder.bitcast(held.data, bytes_of)

        def load(base: Any, offset: Any, of: Any) -> Any:
            pointer = builder.bitcast(builder.gep(base, [offset]), of.as_pointer())
            return builder.load(pointer, align=1)

        def entries(offset: Any, target: Any, source: Any) -> Any:
            """Entries from this column on, as floats."""
            found = load(start, builder.mul(offset, _PLACE(size)), source)
            if isinstance(entry, types.Float):
                return found
            return (builder.sitofp if entry.signed else builder.uitofp)(found, target)

        totals = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * _WIDTH)) for _ in range(_SUMS)]
        alone = cgutils.alloca_once_value(builder, ir.Constant(_FLOAT, 0.0))

        def add(offset: Any, at: Any, total: Any = totals[0]) -> None:
            """Add the product of the vector of entries at a column and of the query's at its place."""
            product = builder.fmul(
                entries(offset, _VECTOR, ir.VectorType(kind, _WIDTH)),
                load(weights, builder.mul(at, _PLACE(4)), _VECTOR),
                flags=["contract"],
            )
            builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)

        rest = builder.and_(d, _PLACE(_WIDTH - 1))
        whole = builder.sub(d, rest)
        strides = builder.and_(d, _PLACE(-_SUMS * _WIDTH))
        with cgutils.for_range_slice(builder, _PLACE(0), strides, _PLACE(_SUMS * _WIDTH), _PLACE) as (column, _):
            for k, total in enumerate(totals):
                place = builder.add(column, _PLACE(k * _WIDTH))
                add(place, place, total)
        with cgutils.for_range_slice(builder, strides, whole, _PLACE(_WIDTH), _PLACE) as (column, _):
            add(column, column)
        with builder.if_else(builder.icmp_signed(">", whole, _PLACE(0))) as (long, short):
            with long, builder.if_then(builder.icmp_signed("!=", rest, _PLACE(0))):
                add(builder.sub(d, _PLACE(_WIDTH)), whole)
            with short, cgutils.for_range(builder, rest) as loop:
                factor = load(weights, builder.mul(loop.index, _PLACE(4)), _FLOAT)
                product = builder.fmul(entries(loop.index, _FLOAT, kind), factor)
                builder.store(builder.fadd(builder.load(alone), product), alone)
        sum_, width = builder.load(totals[0]), _WIDTH
        for total in totals[1:]:
            sum_ = builder.fadd(sum_, builder.load(total))
        while width > 1:
            width //= 2
            halves = (
                builder.shuffle_vector(
                    sum_, sum_, ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(a, a + width)))
                )
                for a in (0, width)
            )
            sum_ = builder.fadd(*halves)
        return builder.fadd(builder.extract_element(sum_, ir.IntType(32)(0)), builder.load(alone))

    return types.float32(matrix, row, query), generate
