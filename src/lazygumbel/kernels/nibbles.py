"""`block_weights`: ceilings of the 64 rows of a block, from four-bit codes by table lookup, as weights exp2(ceiling).

A row is coded in nibbles, each of which stands for one of 16 codewords; a query makes a table of 16 bytes for each
nibble, and a byte shuffle looks up 64 rows at once ("fast scan"). Two lookups share a byte, so entries are below 128;
sums are kept in 16 bits, those of even and odd lanes apart. What follows (gain, cell, exp2) is 16 lanes wide.

Written in LLVM's vectors, with every addition in a fixed order and no fused multiply-add: the weights are the same bits
on every processor. Byte shuffles of 64, 32 and 16 lanes are used where the processor has them; else lanes are looked
up one by one.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel.kernels.types import BLOCK, EXP2_SLOPE, FLOOR, GROUP, TOP

__all__ = ["block_weights", "exp2_block"]

_BIT, _BYTE, _SHORT, _NUMBER, _PLACE, _FLOAT = (*map(ir.IntType, (1, 8, 16, 32, 64)), ir.FloatType())
_BYTES, _SHORTS, _TABLE = ir.VectorType(_BYTE, BLOCK), ir.VectorType(_SHORT, BLOCK // 2), ir.VectorType(_BYTE, 16)
_NUMBERS, _FLOATS = ir.VectorType(_NUMBER, GROUP), ir.VectorType(_FLOAT, GROUP)
_SHUFFLES = (
    ("+avx512bw", 64, "llvm.x86.avx512.pshuf.b.512"),
    ("+avx2", 32, "llvm.x86.avx2.pshuf.b"),
    ("+ssse3", 16, "llvm.x86.ssse3.pshuf.b.128"),
    ("+neon", 16, "llvm.aarch64.neon.tbl1.v16i8"),
)


def _constant(value: float) -> Any:
    return ir.Constant(_FLOATS, [float(np.float32(value))] * GROUP)


def _lanes(builder: Any, vector: Any, start: int, count: int) -> Any:
    places = ir.Constant(ir.VectorType(_NUMBER, count), list(range(start, start + count)))
    return builder.shuffle_vector(vector, vector, places)


def _joined(builder: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        width = 2 * parts[0].type.count
        places = ir.Constant(ir.VectorType(_NUMBER, width), list(range(width)))
        parts = [builder.shuffle_vector(a, b, places) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _splat(builder: Any, value: Any) -> Any:
    alone = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, _NUMBER(0))
    return builder.shuffle_vector(alone, alone, ir.Constant(_NUMBERS, [0] * GROUP))


def _lookup(builder: Any, features: str, table: Any, index: Any) -> Any:
    """table[index] for 64 lanes of indices below 16."""
    for feature, width, name in _SHUFFLES:
        if feature in features.split(","):
            kind = ir.VectorType(_BYTE, width)
            shuffle = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, kind]), name)
            places = ir.Constant(ir.VectorType(_NUMBER, width), list(range(16)) * (width // 16))
            wide = builder.shuffle_vector(table, table, places)
            parts = [_lanes(builder, index, start, width) for start in range(0, BLOCK, width)]
            return _joined(builder, [builder.call(shuffle, [wide, part]) for part in parts])
    found = ir.Constant(_BYTES, ir.Undefined)
    for lane in map(_NUMBER, range(BLOCK)):
        entry = builder.extract_element(table, builder.zext(builder.extract_element(index, lane), _NUMBER))
        found = builder.insert_element(found, entry, lane)
    return found


def _sums(builder: Any, features: str, codes: Any, tables: Any, positions: Any) -> list[Any]:
    """Sums of looked-up entries of 64 rows, in four vectors of 16 numbers: rows 0 to 15, 16 to 31, and so on."""
    even, odd = (cgutils.alloca_once(builder, _SHORTS) for _ in range(2))
    for total in (even, odd):
        builder.store(ir.Constant(_SHORTS, [0] * (BLOCK // 2)), total)
    low, eight = ir.Constant(_BYTES, [15] * BLOCK), ir.Constant(_SHORTS, [8] * (BLOCK // 2))
    four = ir.Constant(_SHORTS, [4] * (BLOCK // 2))
    with cgutils.for_range(builder, positions) as loop:
        place = builder.mul(loop.index, _PLACE(BLOCK))
        held = builder.load(builder.bitcast(builder.gep(codes, [place]), _BYTES.as_pointer()), align=1)
        upper = builder.bitcast(builder.lshr(builder.bitcast(held, _SHORTS), four), _BYTES)
        found: list[Any] = []
        for k, nibbles in enumerate((held, upper)):
            at = builder.gep(tables, [builder.add(builder.mul(loop.index, _PLACE(32)), _PLACE(16 * k))])
            table = builder.load(builder.bitcast(at, _TABLE.as_pointer()), align=1)
            found.append(_lookup(builder, features, table, builder.and_(nibbles, low)))
        pair = builder.bitcast(builder.add(*found), _SHORTS)
        builder.store(builder.add(builder.load(even), pair), even)  # with what the odd lanes add, taken off below
        builder.store(builder.add(builder.load(odd), builder.lshr(pair, eight)), odd)
    high = builder.load(odd)
    both = builder.sub(builder.load(even), builder.shl(high, eight)), high
    return [_lanes(builder, half, start, GROUP) for half in both for start in (0, GROUP)]


def _exp2(builder: Any, exponent: Any) -> Any:
    """exp2 to 0.25%, in [exp2(FLOOR), exp2(TOP)]."""

    def call(name: str, *values: Any) -> Any:
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * len(values))
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)

    held = call("llvm.minnum.v16f32", call("llvm.maxnum.v16f32", exponent, _constant(FLOOR)), _constant(TOP))
    whole = call("llvm.floor.v16f32", held)
    rest = builder.fsub(held, whole)
    curve = builder.fadd(builder.fmul(rest, _constant(1 - EXP2_SLOPE)), _constant(EXP2_SLOPE))
    mantissa = builder.bitcast(builder.fadd(builder.fmul(rest, curve), _constant(1.0)), _NUMBERS)
    raised = builder.shl(builder.fptosi(whole, _NUMBERS), ir.Constant(_NUMBERS, [23] * GROUP))
    return builder.bitcast(builder.add(mantissa, raised), _FLOATS)


def _mask(builder: Any, alive: Any, block: Any) -> Any:
    """The bits of a block as 64 lanes."""
    return builder.bitcast(builder.load(builder.gep(alive, [block])), ir.VectorType(_BIT, BLOCK))


def _masked(builder: Any, mask: Any, k: int, weight: Any) -> Any:
    """Weights of the k-th group, zero where its bits are."""
    return builder.select(_lanes(builder, mask, GROUP * k, GROUP), weight, _constant(0.0))


def _total(builder: Any, weights: list[Any]) -> Any:
    """The sum of all lanes."""
    total = weights[0]
    for weight in weights[1:]:
        total = builder.fadd(total, weight)
    width = GROUP
    while width > 1:
        width //= 2
        total = builder.fadd(_lanes(builder, total, 0, width), _lanes(builder, total, width, width))
    return builder.extract_element(total, _NUMBER(0))


@intrinsic
def block_weights(_: Any, sketch: Any, ceilings: Any, alive: Any, block: Any, out: Any) -> Any:
    """`block_weights(sketch, ceilings, alive, block, out)`: weights into out[:64], float32; returns their sum.

    Rows whose bit in `alive` is zero weigh nothing.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        stored, asked = signature.args[0], signature.args[1]

        def field(kind: Any, value: Any, name: str) -> tuple[Any, Any]:
            place = kind.fields.index(name)
            return builder.extract_value(value, place), kind.types[place]

        def array(value: Any, kind: Any) -> Any:
            return context.make_array(kind)(context, builder, value)

        def pointer(value: Any, kind: Any, entry: Any) -> Any:
            return builder.bitcast(array(value, kind).data, entry.as_pointer())

        codes = array(*field(stored, values[0], "codes"))
        positions = cgutils.unpack_tuple(builder, codes.shape)[1]
        start = builder.gep(
            builder.bitcast(codes.data, _BYTE.as_pointer()),
            [builder.mul(values[3], builder.mul(positions, _PLACE(BLOCK)))],
        )
        held = ((stored, 0, "gains", _FLOATS), (stored, 0, "widths", _FLOAT), (stored, 0, "cells", _NUMBER))
        made = ((asked, 1, "tables", _BYTE), (asked, 1, "scores", _FLOAT))
        gains, widths, cells, tables, scores = (
            pointer(*field(kind, values[place], name), entry) for kind, place, name, entry in (*held, *made)
        )
        slope, intercept, spread = (
            builder.fptrunc(field(asked, values[1], name)[0], _FLOAT) for name in ("slope", "intercept", "spread")
        )
        target = pointer(values[4], signature.args[4], _FLOATS)
        mask = _mask(builder, pointer(values[2], signature.args[2], _PLACE), values[3])
        weights: list[Any] = []
        features = context.codegen().magic_tuple()[2]
        for k, sums in enumerate(_sums(builder, features, start, tables, positions)):
            group = builder.add(builder.mul(values[3], _PLACE(BLOCK // GROUP)), _PLACE(k))
            found = builder.uitofp(builder.zext(sums, _NUMBERS), _FLOATS)
            along = builder.fadd(builder.fmul(found, _splat(builder, slope)), _splat(builder, intercept))
            gain = builder.load(builder.gep(gains, [group]), align=4)
            cell = builder.zext(builder.load(builder.gep(cells, [group])), _PLACE)
            wide = builder.fmul(spread, builder.load(builder.gep(widths, [group])))
            base = builder.fadd(builder.load(builder.gep(scores, [cell])), wide)
            exponent = builder.fadd(builder.fmul(gain, along), _splat(builder, base))
            weight = _masked(builder, mask, k, _exp2(builder, exponent))
            builder.store(weight, builder.gep(target, [_PLACE(k)]), align=4)
            weights.append(weight)
        return _total(builder, weights)

    return types.float32(sketch, ceilings, alive, block, out), generate


@intrinsic
def exp2_block(_: Any, exponents: Any, alive: Any, block: Any, out: Any) -> Any:
    """`exp2_block(exponents, alive, block, out)`: weights exp2(exponents[:64]) into out[:64]; returns their sum."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def pointer(place: int, entry: Any) -> Any:
            array = context.make_array(signature.args[place])(context, builder, values[place])
            return builder.bitcast(array.data, entry.as_pointer())

        source, target = pointer(0, _FLOATS), pointer(3, _FLOATS)
        mask = _mask(builder, pointer(1, _PLACE), values[2])
        found: list[Any] = []
        for k in range(BLOCK // GROUP):
            weight = _masked(builder, mask, k, _exp2(builder, builder.load(builder.gep(source, [_PLACE(k)]), align=4)))
            builder.store(weight, builder.gep(target, [_PLACE(k)]), align=4)
            found.append(weight)
        return _total(builder, found)

    return types.float32(exponents, alive, block, out), generate
