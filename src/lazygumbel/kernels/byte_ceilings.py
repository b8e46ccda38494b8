"""Compiled kernels over bytes: ceilings that cannot be too low."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from lazygumbel.kernels.byte_dot import byte_dot
from lazygumbel.kernels.decorators import helper
from lazygumbel.kernels.types import BIAS, BLOCK, FLOOR, GROUP, TOP, UNIT, Run

__all__ = ["weigh_bytes"]

_LOW, _HIGH = UNIT * (FLOOR + BIAS), UNIT * (TOP + BIAS)


@intrinsic
def _room(_: Any) -> Any:
    """Room for a number a row of a group, on the stack: a helper that ran out of memory could not come back."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return cgutils.alloca_once(builder, ir.DoubleType(), size=GROUP)

    return types.CPointer(types.float64)(), generate


@helper
def weigh_bytes(run: Run, block: int) -> None:
    """The ceilings of a block. Products row by row; all else in vector instructions."""
    rows, theta, ceilings, along = run.rows, run.theta, run.ceilings, _room()
    unit, out = theta.scale / ceilings.power * UNIT, run.race.ceilings[np.uint64(block)]
    for group in range(BLOCK // GROUP):
        place = (BLOCK // GROUP) * block + group
        cell, first = run.sketch.cells[place], run.sketch.firsts[place]
        alive = (run.race.alive[block] >> np.uint64(GROUP * group)) & np.uint64(0xFFFFFFFF)
        for lane in range(GROUP):
            along[lane] = 0.0
            if (alive >> np.uint64(lane)) & np.uint64(1):
                product = theta.step * np.float64(byte_dot(rows.bytes, first + lane, theta.steps)) + ceilings.byte_error
                along[lane] = np.float64(rows.steps[first + lane, 0]) * product
        score = np.float64(ceilings.scores[cell])
        for lane in range(GROUP):
            ceiling = min(max(np.ceil(score + along[lane] * unit), _LOW), _HIGH)
            held = (alive >> np.uint64(lane)) & np.uint64(1)
            out[np.uint64(GROUP * group + lane)] = np.int16(ceiling) if held else np.int16(0)
