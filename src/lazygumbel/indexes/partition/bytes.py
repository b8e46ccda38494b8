"""Every residual in a byte an entry: a quarter of the memory of float32, and a hard bound on what it leaves out."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.persist import Reader, Writer
from lazygumbel.kernels.types import LARGEST_BYTE

__all__ = ["Bytes"]


class Bytes(NamedTuple):
    """Residuals from the means of cells are about steps * codes, row by row."""

    codes: npt.NDArray[np.int8]
    """(n, d), in storage order."""
    steps: npt.NDArray[np.float32]
    """(n,)"""
    error: float
    """A residual is within this many of its steps of its codes, in Euclidean distance; rounding included."""

    @classmethod
    def empty(cls, n: int, d: int) -> "Bytes":
        """Room for n rows."""
        return cls(np.empty((n, d), dtype=np.int8), np.empty(n, dtype=np.float32), 0.0)

    def fill(self, places: npt.NDArray[np.int64], residuals: npt.NDArray[np.float32]) -> float:
        """Code some rows, stored at these places; returns the error of the worst."""
        largest = np.abs(residuals).max(axis=1)
        steps = np.maximum(largest, np.float32(1e-30)) / np.float32(LARGEST_BYTE)
        scaled = residuals / steps[:, None]
        codes = np.rint(scaled)
        scaled -= codes
        self.codes[places], self.steps[places] = codes, steps
        # Entries are below 127 steps, so each is divided, and later multiplied, with an error of 127 / 2^23 of a step.
        rounding = 2e-5 * np.sqrt(residuals.shape[1])
        return float(np.sqrt(np.einsum("nd,nd->n", scaled, scaled).max(initial=0.0)) + rounding)

    def save(self, writer: Writer) -> None:
        """Write the arrays; the error as an array of one, so that no digit is lost."""
        writer.array("bytes", self.codes)
        writer.array("byte_steps", self.steps)
        writer.array("byte_error", np.array([self.error]))

    @classmethod
    def load(cls, reader: Reader) -> "Bytes":
        """What `save` wrote; arrays stay memory-mapped."""
        return cls(reader.array("bytes"), reader.array("byte_steps"), float(reader.array("byte_error")[0]))
