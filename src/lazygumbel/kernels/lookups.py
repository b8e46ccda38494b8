"""Ceilings of the 64 rows of a block, from six-bit codes by table lookup, and the sum of their weights.

Each code of a row stands for one of 64 codewords; a query makes a table of 64 bytes for each, and a byte permutation
looks up 64 rows at once. Four codes lie in three bytes, the fourth in the upper two bits of each. Two lookups share a
byte, so entries are below 128; sums are kept in 16 bits, those of even and odd lanes apart. What follows stays in
16-bit fixed point, 32 lanes wide.

Written in LLVM's vectors, in whole numbers but for the last sum, whose order is fixed: the same bits on every
processor. A permutation of 64 bytes is one instruction with AVX-512 VBMI and four with NEON; with shuffles of 16 bytes
it is four of them and a choice; else lanes are looked up one by one.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel.kernels.types import BIAS, BLOCK, FLOOR, GAINS, GROUP, SEGMENT, TOP, UNIT, WORDS

__all__ = ["lanes_reaching", "largest_ceiling", "segment_weight", "sum_weights", "weigh_block", "weight_of"]

_BIT, _BYTE, _SHORT, _NUMBER, _PLACE, _FLOAT = (*map(ir.IntType, (1, 8, 16, 32, 64)), ir.FloatType())
_BYTES, _SHORTS = ir.VectorType(_BYTE, BLOCK), ir.VectorType(_SHORT, GROUP)
_PRODUCTS, _PAIRS = ir.VectorType(_NUMBER, GROUP), ir.VectorType(_NUMBER, SEGMENT)
_FLOATS = ir.VectorType(_FLOAT, SEGMENT)
_LOW, _HIGH = int(UNIT * (FLOOR + BIAS)), int(UNIT * (TOP + BIAS))
_SHUFFLES = (
    ("+avx512bw", 64, "llvm.x86.avx512.pshuf.b.512"),
    ("+avx2", 32, "llvm.x86.avx2.pshuf.b"),
    ("+ssse3", 16, "llvm.x86.ssse3.pshuf.b.128"),
)
_PRODUCT = (
    ("+avx512bw", 32, "llvm.x86.avx512.pmul.hr.sw.512"),
    ("+avx2", 16, "llvm.x86.avx2.pmul.hr.sw"),
    ("+ssse3", 8, "llvm.x86.ssse3.pmul.hr.sw.128"),
)


def _all(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


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
    alone = builder.insert_element(ir.Constant(_SHORTS, ir.Undefined), builder.trunc(value, _SHORT), _NUMBER(0))
    return builder.shuffle_vector(alone, alone, _all(_PRODUCTS, 0))


def _call(builder: Any, name: str, *values: Any) -> Any:
    kind = ir.FunctionType(_SHORTS, [_SHORTS] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{GROUP}i16"), values)


def _intrinsic(builder: Any, name: str, kind: Any, *values: Any) -> Any:
    function = ir.FunctionType(kind, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), values)


def _lookup(builder: Any, features: list[str], table: Any, index: Any) -> Any:
    """table[index % 64] for 64 lanes."""
    if "+avx512vbmi" in features:
        return _intrinsic(builder, "llvm.x86.avx512.permvar.qi.512", _BYTES, table, index)
    quarters = [_lanes(builder, table, start, 16) for start in range(0, BLOCK, 16)]
    if "+neon" in features:
        index = builder.and_(index, _all(_BYTES, WORDS - 1))
        parts = [_lanes(builder, index, start, 16) for start in range(0, BLOCK, 16)]
        name, kind = "llvm.aarch64.neon.tbl4.v16i8", ir.VectorType(_BYTE, 16)
        return _joined(builder, [_intrinsic(builder, name, kind, *quarters, part) for part in parts])
    for feature, width, name in _SHUFFLES:
        if feature in features:
            return _joined(
                builder,
                [
                    _lookup_by_quarters(builder, name, width, quarters, _lanes(builder, index, start, width))
                    for start in range(0, BLOCK, width)
                ],
            )
    found, index = ir.Constant(_BYTES, ir.Undefined), builder.and_(index, _all(_BYTES, WORDS - 1))
    for lane in map(_NUMBER, range(BLOCK)):
        entry = builder.extract_element(table, builder.zext(builder.extract_element(index, lane), _NUMBER))
        found = builder.insert_element(found, entry, lane)
    return found


def _lookup_by_quarters(builder: Any, shuffle: str, width: int, quarters: list[Any], index: Any) -> Any:
    """By shuffles of the four quarters of a table, of which the upper bits of an index choose one."""
    kind = ir.VectorType(_BYTE, width)
    places = ir.Constant(ir.VectorType(_NUMBER, width), list(range(16)) * (width // 16))
    low = builder.and_(index, _all(kind, 15))
    found = [
        _intrinsic(builder, shuffle, kind, builder.shuffle_vector(quarter, quarter, places), low)
        for quarter in quarters
    ]
    for bit in (16, 32):
        set_ = builder.icmp_unsigned("!=", builder.and_(index, _all(kind, bit)), _all(kind, 0))
        found = [builder.select(set_, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def _reduced(builder: Any, vector: Any) -> Any:
    """The sum of 16 lanes."""
    width = SEGMENT
    while width > 1:
        width //= 2
        vector = builder.fadd(_lanes(builder, vector, 0, width), _lanes(builder, vector, width, width))
    return builder.extract_element(vector, _NUMBER(0))


class _Arguments:
    """Arrays and numbers that an intrinsic was called with."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any) -> None:
        self.context, self.builder, self.kinds, self.values = context, builder, signature.args, values

    def array(self, place: int) -> Any:
        return self.context.make_array(self.kinds[place])(self.context, self.builder, self.values[place])

    def pointer(self, place: int, entry: Any, offset: Any = None) -> Any:
        """To the entry at an offset in bytes."""
        start = self.builder.bitcast(self.array(place).data, _BYTE.as_pointer())
        start = start if offset is None else self.builder.gep(start, [offset])
        return self.builder.bitcast(start, entry.as_pointer())


@intrinsic
def weigh_block(_: Any, parts: Any, full: Any, block: Any, tables: Any, numbers: Any, alive: Any, out: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`weigh_block((codes, more), full, block, tables, numbers, alive, out)`: the ceilings of a block into out[block],
    zero for rows whose bit in `alive` is zero, and the sum of their weights, float32.

    By the first part of codes, or by all if `full`. A block has three lines of 64 bytes for every four codes, and two
    lines of gains behind them. `numbers` are centre and multiple, then right and base of each group: see `Ceilings`.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held = _Arguments(context, builder, signature, values)
        kinds: Any = zip(signature.args[0], cgutils.unpack_tuple(builder, values[0]), strict=True)
        pieces = [context.make_array(kind)(context, builder, value) for kind, value in kinds]
        is_full = builder.icmp_signed("!=", values[1], values[1].type(0))
        features = context.codegen().magic_tuple()[2].split(",")
        lines = [cgutils.unpack_tuple(builder, piece.shape)[1] for piece in pieces]
        counts = [builder.udiv(builder.sub(count, _PLACE(GAINS)), _PLACE(3)) for count in lines]
        starts = [
            builder.gep(
                builder.bitcast(piece.data, _BYTE.as_pointer()),
                [builder.mul(values[2], builder.mul(count, _PLACE(BLOCK)))],
            )
            for piece, count in zip(pieces, lines, strict=True)
        ]
        even, odd = (cgutils.alloca_once_value(builder, _all(_SHORTS, 0)) for _ in range(2))
        for sum_ in (even, odd):
            builder.store(_all(_SHORTS, 0), sum_)
        table = held.pointer(3, _BYTES)
        _add_lookups(builder, features, (starts[0], counts[0]), table, (even, odd))
        counts[1] = builder.select(is_full, counts[1], _PLACE(0))
        second = builder.gep(table, [builder.shl(counts[0], _PLACE(2))])
        _add_lookups(builder, features, (starts[1], counts[1]), second, (even, odd))
        high = builder.load(odd)
        low = builder.sub(builder.load(even), builder.shl(high, _all(_SHORTS, 8)))
        behind = [builder.sub(count, _PLACE(GAINS)) for count in lines]
        gains = [
            builder.gep(start, [builder.mul(place, _PLACE(BLOCK))]) for start, place in zip(starts, behind, strict=True)
        ]
        gain = builder.bitcast(builder.select(is_full, gains[1], gains[0]), _SHORTS.as_pointer())
        centre, multiple, *bases = cgutils.unpack_tuple(builder, values[4])
        target, total = held.pointer(6, _SHORTS), None
        for group, found in enumerate((low, high)):
            scaled = builder.mul(builder.sub(found, _splat(builder, centre)), _splat(builder, multiple))
            product = _product(builder, features, scaled, builder.load(builder.gep(gain, [_PLACE(group)]), align=1))
            right, base = bases[2 * group : 2 * group + 2]
            along = _shifted(builder, product, right)
            ceiling = _call(builder, "sadd.sat", along, _splat(builder, base))
            ceiling = _call(builder, "smin", _call(builder, "smax", ceiling, _all(_SHORTS, _LOW)), _all(_SHORTS, _HIGH))
            bits = builder.trunc(builder.lshr(values[5], _PLACE(GROUP * group)), ir.IntType(GROUP))
            ceiling = builder.select(builder.bitcast(bits, ir.VectorType(_BIT, GROUP)), ceiling, _all(_SHORTS, 0))
            place = builder.add(builder.mul(values[2], _PLACE(BLOCK // GROUP)), _PLACE(group))
            builder.store(ceiling, builder.gep(target, [place]), align=2)
            total = _plus_weights(builder, builder.bitcast(ceiling, _PAIRS), total)
        return _reduced(builder, total)

    number_kind = types.UniTuple(types.int64, 6)
    return types.float32(parts, full, types.int64, tables, number_kind, types.uint64, out), generate


def _add_lookups(builder: Any, features: list[str], codes: tuple[Any, Any], tables: Any, sums: tuple[Any, Any]) -> None:
    """Add what so many quadruples of codes look up to the sums of even lanes, with what odd ones add in their upper
    halves, and of odd lanes."""
    even, odd = sums
    start = builder.bitcast(codes[0], _BYTES.as_pointer())

    def load(base: Any, place: Any, k: int) -> Any:
        return builder.load(builder.gep(base, [builder.add(place, _PLACE(k))]), align=1)

    with cgutils.for_range(builder, codes[1]) as loop:
        line, first = builder.mul(loop.index, _PLACE(3)), builder.shl(loop.index, _PLACE(2))
        four = [load(start, line, k) for k in range(3)]
        fourth = _all(_SHORTS, 0)
        for k, (held_at, kept) in enumerate(((6, 0x0303), (4, 0x0C0C), (2, 0x3030))):
            moved = builder.lshr(builder.bitcast(four[k], _SHORTS), _all(_SHORTS, held_at))
            fourth = builder.or_(fourth, builder.and_(moved, _all(_SHORTS, kept)))
        four.append(builder.bitcast(fourth, _BYTES))
        found = [_lookup(builder, features, load(tables, first, k), index) for k, index in enumerate(four)]
        for a, b in ((0, 1), (2, 3)):
            pair = builder.bitcast(builder.add(found[a], found[b]), _SHORTS)
            builder.store(builder.add(builder.load(even), pair), even)
            builder.store(builder.add(builder.load(odd), builder.lshr(pair, _all(_SHORTS, 8))), odd)


def _product(builder: Any, features: list[str], a: Any, b: Any) -> Any:
    """a b / 2^15, rounded: one instruction where there is one, which LLVM does not find by itself."""
    for feature, width, name in _PRODUCT:
        if feature in features:
            halves = [[_lanes(builder, x, start, width) for start in range(0, GROUP, width)] for x in (a, b)]
            kind = ir.VectorType(_SHORT, width)
            return _joined(builder, [_intrinsic(builder, name, kind, x, y) for x, y in zip(*halves, strict=True)])
    product = builder.mul(builder.sext(a, _PRODUCTS), builder.sext(b, _PRODUCTS))
    doubled = builder.add(builder.ashr(product, _all(_PRODUCTS, 14)), _all(_PRODUCTS, 1))
    return builder.trunc(builder.ashr(doubled, _all(_PRODUCTS, 1)), _SHORTS)


def _shifted(builder: Any, values: Any, right: Any) -> Any:
    """Shifted right; left, as far as 16 bits hold it, by one or two places if that is negative."""
    negative = builder.icmp_signed("<", right, _PLACE(0))
    found = builder.ashr(values, _splat(builder, builder.select(negative, _PLACE(0), right)))
    for least in (-1, -2):
        more = builder.icmp_signed("<=", right, _PLACE(least))
        found = builder.select(more, _call(builder, "sadd.sat", found, found), found)
    return found


def _plus_weights(builder: Any, pairs: Any, total: Any) -> Any:
    """Add the weights of 32 ceilings to 16 sums."""
    for half in (builder.shl(pairs, _all(_PAIRS, 16)), builder.and_(pairs, _all(_PAIRS, 0xFFFF0000))):
        weights = builder.bitcast(half, _FLOATS)
        total = weights if total is None else builder.fadd(total, weights)
    return total


@intrinsic
def sum_weights(_: Any, ceilings: Any, block: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`sum_weights(ceilings, block)`: the sum of the weights of a block, float32, from the bits of its ceilings."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start, total = _Arguments(context, builder, signature, values).pointer(0, _PAIRS), None
        first = builder.mul(values[1], _PLACE(BLOCK // GROUP))
        for k in range(BLOCK // GROUP):
            pairs = builder.load(builder.gep(start, [builder.add(first, _PLACE(k))]), align=2)
            total = _plus_weights(builder, pairs, total)
        return _reduced(builder, total)

    return types.float32(ceilings, types.int64), generate


@intrinsic
def largest_ceiling(_: Any, ceilings: Any, block: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`largest_ceiling(ceilings, block)`: of the rows of a block."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = _Arguments(context, builder, signature, values).pointer(0, _SHORTS)
        first = builder.mul(values[1], _PLACE(BLOCK // GROUP))
        halves = [builder.load(builder.gep(start, [builder.add(first, _PLACE(k))]), align=2) for k in range(2)]
        largest = _call(builder, "smax", *halves)
        name = f"llvm.vector.reduce.smax.v{GROUP}i16"
        return builder.sext(_intrinsic(builder, name, _SHORT, largest), _PLACE)

    return types.int64(ceilings, types.int64), generate


@intrinsic
def lanes_reaching(_: Any, ceilings: Any, block: Any, least: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`lanes_reaching(ceilings, block, least)`: a bit for each row of a block whose ceiling is at least that."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = _Arguments(context, builder, signature, values).pointer(0, _SHORTS)
        first, least_of_all = builder.mul(values[1], _PLACE(BLOCK // GROUP)), _splat(builder, values[2])
        found = None
        for k in range(BLOCK // GROUP):
            held = builder.load(builder.gep(start, [builder.add(first, _PLACE(k))]), align=2)
            bits = builder.bitcast(builder.icmp_signed(">=", held, least_of_all), ir.IntType(GROUP))
            part = builder.shl(builder.zext(bits, _PLACE), _PLACE(GROUP * k))
            found = part if found is None else builder.or_(found, part)
        return found

    return types.uint64(ceilings, types.int64, types.int64), generate


@intrinsic
def segment_weight(_: Any, ceilings: Any, segment: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`segment_weight(ceilings, segment)`: the sum of the weights of 16 rows, of which a block has four, float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = _Arguments(context, builder, signature, values).pointer(0, ir.VectorType(_SHORT, SEGMENT))
        held = builder.load(builder.gep(start, [values[1]]), align=2)
        weights = builder.bitcast(builder.shl(builder.zext(held, _PAIRS), _all(_PAIRS, 16)), _FLOATS)
        return _reduced(builder, weights)

    return types.float32(ceilings, types.int64), generate


@intrinsic
def weight_of(_: Any, ceiling: Any) -> Any:  # noqa: ARG001  # typed by hand below
    """`weight_of(ceiling)`: the weight, float32, whose upper bits are these."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        bits = builder.shl(builder.zext(builder.trunc(values[0], _SHORT), _NUMBER), _NUMBER(16))
        return builder.bitcast(bits, _FLOAT)

    return types.float32(types.int64), generate
