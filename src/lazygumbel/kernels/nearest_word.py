"""`nearest_word`: which of 64 codewords is nearest to some coordinates, in registers.

The number of a word stands in the last bits of its distance, so that the least of these numbers tells both at once;
words that are as near as one another to five digits count as equally near.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel.kernels.types import WORDS

__all__ = ["nearest_word"]

_FLOAT, _NUMBER, _PLACE = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _NUMBERS = ir.VectorType(_FLOAT, WORDS), ir.VectorType(_NUMBER, WORDS)


def _all(builder: Any, value: Any) -> Any:
    vector = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, _NUMBER(0))
    return builder.shuffle_vector(vector, vector, ir.Constant(_NUMBERS, [0] * WORDS))


@intrinsic
def nearest_word(_: Any, coordinates: Any, first: Any, count: Any, words: Any, lengths: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`nearest_word(coordinates, first, count, words, lengths)`: so many coordinates from the first on; words side by
    side, (coordinates, 64), with half their squared lengths, (64,)."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        along, across, halves = (
            context.make_array(signature.args[k])(context, builder, values[k]).data for k in (0, 3, 4)
        )

        def load(base: Any, place: Any) -> Any:
            pointer = builder.bitcast(builder.gep(base, [place]), _FLOATS.as_pointer())
            return builder.load(pointer, align=4)

        distances = cgutils.alloca_once_value(builder, load(halves, _PLACE(0)))
        square = cgutils.alloca_once_value(builder, _FLOAT(0.0))
        with cgutils.for_range(builder, values[2]) as loop:
            one = builder.load(builder.gep(along, [builder.add(values[1], loop.index)]))
            word = load(across, builder.mul(loop.index, _PLACE(WORDS)))
            product = builder.fmul(_all(builder, one), word, flags=["contract"])
            builder.store(builder.fsub(builder.load(distances), product, flags=["contract"]), distances)
            builder.store(builder.fadd(builder.load(square), builder.fmul(one, one)), square)
        half = builder.fmul(builder.load(square), _FLOAT(0.5))
        found, none = builder.fadd(builder.load(distances), _all(builder, half)), ir.Constant(_FLOATS, [0.0] * WORDS)
        found = builder.select(builder.fcmp_ordered(">", found, none), found, none)  # by rounding, it may be below
        keys = builder.and_(builder.bitcast(found, _NUMBERS), ir.Constant(_NUMBERS, [-WORDS] * WORDS))
        keys = builder.or_(keys, ir.Constant(_NUMBERS, list(range(WORDS))))
        kind = ir.FunctionType(_NUMBER, [_NUMBERS])
        least = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.umin.v{WORDS}i32")
        return builder.zext(builder.and_(builder.call(least, [keys]), _NUMBER(WORDS - 1)), _PLACE)

    return types.int64(coordinates, types.int64, types.int64, words, lengths), generate
