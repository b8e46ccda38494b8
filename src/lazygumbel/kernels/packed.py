"""Named tuples kept in memory as compiled code has them, so that a kernel is handed one array in place of fifty.

To take a named tuple of arrays apart costs Numba a third of a microsecond an array, at every call, and a second of
compilation for every kernel. What was written here is borrowed when it is read: whoever holds the words also holds the
arrays.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from lazygumbel.kernels.batches import Sample
from lazygumbel.kernels.decorators import exact_kernel
from lazygumbel.kernels.types import PACKED, Ceilings, Coded, Race, Rows, Run, Sketch, Stored, Theta, Workspaces

__all__ = [
    "pack_race",
    "pack_stored",
    "pack_workspaces",
    "read_race",
    "read_run",
    "read_sample",
    "read_stored",
    "read_workspaces",
    "write_run",
    "write_sample",
]


def _array(kind: Any, dimensions: int, *, kept: bool = True) -> Any:
    return types.Array(kind, dimensions, "C", readonly=kept)


def _tuple(cls: Any, *kinds: Any) -> Any:
    return types.NamedTuple(kinds, cls)


_Byte, _Float, _Double, _Whole = types.uint8, types.float32, types.float64, types.int64
_PAIR, _NUMBERS = types.UniTuple(_Double, 2), types.UniTuple(_Whole, 2)
_WORDS = _array(_Whole, 1, kept=False)
_SKETCH = _tuple(
    Sketch,
    *(_array(_Byte, 3),) * 2,
    _array(_Float, 2),
    _array(types.int32, 1),
    *(_array(_Whole, 1),) * 2,
    _array(_Float, 2),
    *(_array(_Whole, 1),) * 3,
)
_ROWS = _tuple(Rows, _array(_Float, 2), _array(types.int8, 2), _array(_Float, 2), _Double)
_CODED = _tuple(
    Coded,
    *(_array(_Float, 2),) * 3,
    *(_array(_Double, 1),) * 3,
    _array(_Double, 2),
    _array(_Byte, 1),
    _array(_Double, 1),
    _array(_Whole, 1),
    *(_Whole,) * 2,
    _Double,
    _NUMBERS,
    *(_Double,) * 4,
    _PAIR,
    _Double,
)
_STORED = _tuple(Stored, _CODED, _SKETCH, _ROWS, _array(types.uint64, 1), _WORDS)
_RACE = _tuple(
    Race,
    _array(types.uint64, 1, kept=False),
    *(_array(_Double, 1, kept=False),) * 3,
    _array(_Whole, 1, kept=False),
    *(_array(_Double, 1, kept=False),) * 2,
    _array(types.int16, 2, kept=False),
    _array(_Whole, 1, kept=False),
    _WORDS,
)
_THETA = _tuple(Theta, *(_array(kind, 1, kept=False) for kind in (_Float, types.int16, _Float)), *(_Double,) * 5)
_CEILINGS = _tuple(
    Ceilings,
    _array(_Byte, 2, kept=False),
    _array(_Float, 1, kept=False),
    _array(_Byte, 1, kept=False),
    _array(types.int8, 1, kept=False),
    _array(_Double, 1, kept=False),
    _NUMBERS,
    _PAIR,
    types.UniTuple(_Double, 3),
    _Whole,
    *(_Double,) * 3,
)
_RUN = _tuple(Run, _SKETCH, _ROWS, _THETA, _CEILINGS, _RACE)
_SAMPLE = _tuple(Sample, *(_array(kind, 1, kept=False) for kind in (_Whole, _Double, _Double, _Float)))
_WORKSPACES = _tuple(
    Workspaces,
    *(_array(_Whole, 2, kept=False),) * 2,
    _array(_Double, 2, kept=False),
    *(_array(kind, 2, kept=False) for kind in (_Float, types.int16, _Float)),
    _array(_Byte, 3, kept=False),
    _array(_Float, 2, kept=False),
    _array(_Byte, 2, kept=False),
    _array(types.int8, 2, kept=False),
    _array(_Double, 2, kept=False),
    _WORDS,
)


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A value whose arrays are not counted."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo, array.parent = (ir.Constant(old.type, None) for old in (array.meminfo, array.parent))
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for place, inner in enumerate(kind):
            part = _borrowed(context, builder, inner, builder.extract_value(value, place))
            value = builder.insert_value(value, part, place)
    return value


def _pointer(context: Any, builder: Any, words: Any, kind: Any) -> Any:
    if context.get_abi_sizeof(context.get_value_type(kind)) > 8 * PACKED:
        raise ValueError(f"{kind} does not fit in {PACKED} words")
    data = context.make_array(_WORDS)(context, builder, words).data
    return builder.bitcast(data, context.get_value_type(kind).as_pointer())


def _reader(kind: Any) -> Any:
    @intrinsic
    def read(_: Any, words: Any) -> Any:  # noqa: ARG001  # typed by hand below
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
            found = builder.load(_pointer(context, builder, values[0], kind), align=8)
            return _borrowed(context, builder, kind, found)

        return kind(_WORDS), generate

    return read


def _writer(kind: Any) -> Any:
    @intrinsic
    def write(_: Any, words: Any, value: Any) -> Any:  # noqa: ARG001  # typed by hand below
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
            builder.store(values[1], _pointer(context, builder, values[0], kind), align=8)
            return context.get_dummy_value()

        return types.void(_WORDS, kind), generate

    return write


read_stored, read_race, read_run, read_workspaces, read_sample = map(
    _reader, (_STORED, _RACE, _RUN, _WORKSPACES, _SAMPLE)
)
write_run, write_sample, _write_stored, _write_race, _write_workspaces = map(
    _writer, (_RUN, _SAMPLE, _STORED, _RACE, _WORKSPACES)
)


@exact_kernel
def pack_stored(stored: Stored) -> None:
    _write_stored(stored.words, stored)


@exact_kernel
def pack_race(race: Race) -> None:
    _write_race(race.words, race)


@exact_kernel
def pack_workspaces(workspaces: Workspaces) -> None:
    _write_workspaces(workspaces.words, workspaces)
