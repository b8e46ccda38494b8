"""How queries are laid out for `dot` and `byte_dot`, in NumPy: a part of `reference`."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Vectors
from lazygumbel.kernels.types import LARGEST_BYTE, LARGEST_STEPS

__all__ = ["lay_out", "lay_out_steps", "read_laid_out"]

N = TypeVar("N", np.float32, np.int16)


def lay_out(vector: npt.NDArray[N], width: int = 16) -> npt.NDArray[N]:
    """Whole vectors of so many, then one for the last columns with zeros for those before."""
    whole = len(vector) - len(vector) % width
    out = np.zeros(whole + width, dtype=vector.dtype)
    out[:whole] = vector[:whole]
    rest = len(vector) - whole
    if not whole:
        out[:rest] = vector
    elif rest:
        out[whole + width - rest :] = vector[whole:]
    return out


def read_laid_out(held: npt.NDArray[N], d: int, width: int = 16) -> npt.NDArray[N]:
    """The vector that was laid out."""
    whole, rest = d - d % width, d % width
    tail = held[:rest] if not whole else held[whole + width - rest : whole + width]
    return np.concatenate([held[:whole], tail])


def lay_out_steps(vector: Vectors) -> tuple[npt.NDArray[np.int16], float, float]:
    """In whole steps of 16 bits, the step, and the norm of what is left over."""
    exact = vector.astype(np.float64)
    most = min(LARGEST_STEPS, (2**31 - 1) // (LARGEST_BYTE * max(len(vector), 1)))
    step = max(float(np.abs(exact).max(initial=0.0)) / most, 1e-280)
    steps = np.rint(exact / step)
    return lay_out(steps.astype(np.int16), 32), step, float(np.linalg.norm(exact - steps * step))
