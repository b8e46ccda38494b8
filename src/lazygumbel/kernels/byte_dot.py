"""`byte_dot`: the inner product of a row of bytes with a query in whole steps of 16 bits: exact, the same everywhere.

Two products of 8 and 16 bits and their sum are one instruction a vector; to make floats of bytes takes four times as
many. The last columns are a vector that overlaps the one before, as in `dot`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel._support.arrays import Vectors
from lazygumbel.kernels.decorators import maker
from lazygumbel.kernels.types import LARGEST_BYTE, LARGEST_STEPS

__all__ = ["byte_dot", "lay_out_steps"]

_WIDTH = 32
_BYTE, _SHORT, _NUMBER, _PLACE = map(ir.IntType, (8, 16, 32, 64))
_SUMS = ir.VectorType(_NUMBER, _WIDTH // 2)
_MADD = (
    ("+avx512bw", 32, "llvm.x86.avx512.pmaddw.d.512"),
    ("+avx2", 16, "llvm.x86.avx2.pmadd.wd"),
    ("+sse2", 8, "llvm.x86.sse2.pmadd.wd"),
)


@maker
def lay_out_steps(query: Vectors) -> tuple[npt.NDArray[np.int16], float, float]:
    """A query as `byte_dot` takes it, the step, and the norm of what is left over."""
    d, largest = query.shape[0], 0.0
    for c in range(d):
        largest = max(largest, abs(np.float64(query[c])))
    steps = min(LARGEST_STEPS, (2**31 - 1) // (LARGEST_BYTE * max(d, 1)))  # so few that sums of 32 bits hold them
    step, left = max(largest / steps, 1e-280), 0.0
    rest = d % _WIDTH
    whole = d - rest
    out = np.zeros(whole + _WIDTH, dtype=np.int16)
    for c in range(d):
        near = np.rint(np.float64(query[c]) / step)
        off = np.float64(query[c]) - near * step
        left += off * off
        out[c if c < whole or d < _WIDTH else c + _WIDTH - rest] = np.int16(near)
    return out, step, np.sqrt(left)


def _part(builder: Any, vector: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_NUMBER, len(places)), places))


def _added_pairs(context: Any, builder: Any, a: Any, b: Any) -> Any:
    """Products of 32 lanes of 16 bits, each two neighbours added."""
    features = context.codegen().magic_tuple()[2].split(",")
    for feature, width, name in _MADD:
        if feature in features:
            kind = ir.VectorType(_SHORT, width)
            found = ir.VectorType(_NUMBER, width // 2)
            function = ir.FunctionType(found, [kind, kind])
            call = cgutils.get_or_insert_function(builder.module, function, name)
            parts = [
                builder.call(call, [_part(builder, x, list(range(at, at + width))) for x in (a, b)])
                for at in range(0, _WIDTH, width)
            ]
            while len(parts) > 1:
                places = ir.Constant(
                    ir.VectorType(_NUMBER, 2 * parts[0].type.count), list(range(2 * parts[0].type.count))
                )
                parts = [builder.shuffle_vector(x, y, places) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            return parts[0]
    wide = ir.VectorType(_NUMBER, _WIDTH)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    return builder.add(*(_part(builder, products, list(range(odd, _WIDTH, 2))) for odd in (0, 1)))


@intrinsic
def byte_dot(_: Any, matrix: Any, row: Any, query: Any) -> Any:
    """`byte_dot(matrix, row, laid_out)`; the rows of the matrix, of int8, are contiguous."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        held = context.make_array(signature.args[2])(context, builder, values[2])
        d = cgutils.unpack_tuple(builder, array.shape)[1]
        start, steps = builder.gep(array.data, [builder.mul(values[1], d)]), held.data
        total = cgutils.alloca_once_value(builder, ir.Constant(_SUMS, [0] * _SUMS.count))
        alone = cgutils.alloca_once_value(builder, _NUMBER(0))

        def vector(base: Any, place: Any, kind: Any) -> Any:
            pointer = builder.bitcast(builder.gep(base, [place]), ir.VectorType(kind, _WIDTH).as_pointer())
            return builder.load(pointer, align=1)

        def add(column: Any, place: Any) -> None:
            entries = builder.sext(vector(start, column, _BYTE), ir.VectorType(_SHORT, _WIDTH))
            pairs = _added_pairs(context, builder, entries, vector(steps, place, _SHORT))
            builder.store(builder.add(builder.load(total), pairs), total)

        rest = builder.and_(d, _PLACE(_WIDTH - 1))
        whole = builder.sub(d, rest)
        with cgutils.for_range_slice(builder, _PLACE(0), whole, _PLACE(_WIDTH), _PLACE) as (column, _):
            add(column, column)
        with builder.if_else(builder.icmp_signed(">", whole, _PLACE(0))) as (long, short):
            with long, builder.if_then(builder.icmp_signed("!=", rest, _PLACE(0))):
                add(builder.sub(d, _PLACE(_WIDTH)), whole)
            with short, cgutils.for_range(builder, rest) as loop:
                a, b = (builder.sext(builder.load(builder.gep(x, [loop.index])), _NUMBER) for x in (start, steps))
                builder.store(builder.add(builder.load(alone), builder.mul(a, b)), alone)
        sum_, width = builder.load(total), _SUMS.count
        while width > 1:
            width //= 2
            sum_ = builder.add(*(_part(builder, sum_, list(range(at, at + width))) for at in (0, width)))
        found = builder.add(builder.extract_element(sum_, _NUMBER(0)), builder.load(alone))
        return builder.sext(found, _PLACE)

    return types.int64(matrix, row, query), generate
