"""Work that several threads share: each claims the next piece that is left, and all wait for the last to be done.

Who has more of it rings a bell, for a thread that listens.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["claim", "finish", "finished", "ring", "rung"]

_PLACE = ir.IntType(64)


def _counter(context: Any, builder: Any, signature: Any, values: Any, number: int) -> Any:
    array = context.make_array(signature.args[0])(context, builder, values[0])
    return builder.gep(array.data, [_PLACE(number)])


def _counts(number: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        counter = _counter(context, builder, signature, values, number)
        return builder.atomic_rmw("add", counter, _PLACE(1), "acq_rel")

    return generate


def _reads(number: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_counter(context, builder, signature, values, number), "acquire", align=8)

    return generate


@intrinsic
def claim(_: Any, progress: Any) -> Any:
    """`claim(progress)`: the number of a piece that no other thread has, of two int64 that begin with zeros."""
    return types.int64(progress), _counts(0)


@intrinsic
def finish(_: Any, progress: Any) -> Any:
    """`finish(progress)`: a piece that was claimed is done, and others may read what was written."""
    return types.int64(progress), _counts(1)


@intrinsic
def finished(_: Any, progress: Any) -> Any:
    """`finished(progress)`: how many pieces are done."""
    return types.int64(progress), _reads(1)


@intrinsic
def ring(_: Any, bell: Any) -> Any:
    """`ring(bell)`: once more."""
    return types.int64(bell), _counts(0)


@intrinsic
def rung(_: Any, bell: Any) -> Any:
    """`rung(bell)`: how often it has been."""
    return types.int64(bell), _reads(0)
