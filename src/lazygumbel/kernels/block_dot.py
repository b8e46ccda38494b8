"""`block_dot`: inner products of a block of rows of bytes with a query of 16-bit numbers, in whole numbers.

Every row of a block has its own place in a vector, so that nothing has to be added up across one. Processors multiply
pairs of 16-bit numbers and add the products in one instruction, which LLVM finds in the form below.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel.kernels.blocks import BLOCK

__all__ = ["block_dot", "lay_out_pairs", "whole_numbers"]

_LANES = 16
_MOST = 2.0**31 / 256
_BYTE, _SHORT, _NUMBER, _PLACE = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_BYTES, _SHORTS = (ir.VectorType(kind, 2 * _LANES) for kind in (_BYTE, _SHORT))
_SUMS, _PRODUCTS = ir.VectorType(_NUMBER, _LANES), ir.VectorType(_NUMBER, 2 * _LANES)


@njit(cache=True, nogil=True)
def whole_numbers(query: npt.NDArray[np.float32], out: npt.NDArray[np.int16]) -> float:
    """Fill in a query in whole numbers: their unit, such that no inner product with bytes overflows 32 bits."""
    d = query.shape[0]
    largest = np.float32(0.0)
    for c in range(d):
        largest = max(largest, abs(query[c]))
    unit = max(np.float64(largest) / min(16383.0, np.floor(_MOST / d)), 1e-300)
    for c in range(d):
        out[c] = np.int16(np.rint(np.float64(query[c]) / unit))
    return unit


@njit(cache=True, nogil=True)
def lay_out_pairs(query: npt.NDArray[np.float32], pairs: int) -> tuple[npt.NDArray[np.int16], float]:
    """A query as `block_dot` takes it, and its unit."""
    out = np.zeros(2 * pairs, dtype=np.int16)
    return out, whole_numbers(query, out)


@intrinsic
def block_dot(_: Any, blocks: Any, block: Any, query: Any, out: Any) -> Any:
    """`block_dot(blocks, k, laid_out, out)`: block k into out[64 k : 64 k + 64], of int32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held, factors, found = (context.make_array(signature.args[k])(context, builder, values[k]) for k in (0, 2, 3))
        pairs = cgutils.unpack_tuple(builder, held.shape)[1]
        stride = cgutils.unpack_tuple(builder, held.strides)[0]
        pointer = _BYTE.as_pointer()
        entries, weights, target = (builder.bitcast(array.data, pointer) for array in (held, factors, found))
        start = builder.gep(entries, [builder.mul(values[1], stride)])

        def at(base: Any, offset: Any, kind: Any) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), kind.as_pointer())

        def part(vector: Any, first: int) -> Any:
            places = ir.Constant(_SUMS, list(range(first, 2 * _LANES, 2)))
            return builder.shuffle_vector(vector, vector, places)

        totals = [cgutils.alloca_once_value(builder, ir.Constant(_SUMS, [0] * _LANES)) for _ in range(BLOCK // _LANES)]
        with cgutils.for_range(builder, pairs) as loop:
            both = builder.load(at(weights, builder.mul(loop.index, _PLACE(4)), _NUMBER), align=2)
            alone = builder.insert_element(ir.Constant(_SUMS, ir.Undefined), both, _NUMBER(0))
            spread = builder.shuffle_vector(alone, alone, ir.Constant(_SUMS, [0] * _LANES))
            factor = builder.sext(builder.bitcast(spread, _SHORTS), _PRODUCTS)
            columns = builder.gep(start, [builder.mul(loop.index, _PLACE(2 * BLOCK))])
            for k, total in enumerate(totals):
                row = builder.load(at(columns, _PLACE(2 * _LANES * k), _BYTES), align=1)
                products = builder.mul(builder.sext(row, _PRODUCTS), factor)
                builder.store(
                    builder.add(builder.load(total), builder.add(part(products, 0), part(products, 1))), total
                )
        place = builder.mul(values[1], _PLACE(4 * BLOCK))
        for k, total in enumerate(totals):
            builder.store(builder.load(total), at(target, builder.add(place, _PLACE(4 * _LANES * k)), _SUMS), align=4)
        return context.get_dummy_value()

    return types.void(blocks, block, query, out), generate
