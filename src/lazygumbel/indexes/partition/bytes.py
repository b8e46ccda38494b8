"""Every residual in a byte an entry: a quarter of the memory of float32, and a hard bound on what it leaves out."""

from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.persist import Reader, Writer

__all__ = ["Bytes"]


class Bytes(NamedTuple):
    """Residuals from the means of cells are about steps * codes, row by row."""

    codes: npt.NDArray[np.int8]
    """(n, d), in storage order."""
    steps: Vectors
    """(n,)"""
    error: float
    """A residual is within this many of its steps of its codes, in Euclidean distance; rounding included."""

    @classmethod
    def empty(cls, n: int, d: int) -> "Bytes":
        """Room for n rows."""
        return cls(np.empty((n, d), dtype=np.int8), np.empty(n, dtype=np.float32), 0.0)

    def fill(self, places: Ints, residuals: Vectors) -> float:
        """Code some rows, stored at these places; returns the error of the worst."""
        error = kernels.encode_bytes(residuals, places, self.codes, self.steps)
        # Entries are below 127 steps, so each is divided, and later multiplied, with an error of 127 / 2^23 of a step.
        return error + 2e-5 * sqrt(residuals.shape[1])

    def save(self, writer: Writer) -> None:
        """Write the arrays; the error as an array of one, so that no digit is lost."""
        writer.array("bytes", self.codes)
        writer.array("byte_steps", self.steps)
        writer.array("byte_error", np.array([self.error]))

    @classmethod
    def load(cls, reader: Reader) -> "Bytes":
        """What `save` wrote; arrays stay memory-mapped."""
        return cls(reader.array("bytes"), reader.array("byte_steps"), float(reader.array("byte_error")[0]))
