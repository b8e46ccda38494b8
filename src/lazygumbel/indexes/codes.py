"""`Codes`: every entry of every row in one byte, a quarter of the memory of float32.

A row far from the last one read costs what it takes to fetch it, so its code is up to four times as cheap. It tells a
score up to a known error; few rows come so close to winning a draw that they have to be read themselves.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.features import Features
from lazygumbel.persist import Reader, Writer
from lazygumbel.progress import Progress, Silent
from lazygumbel.threads import map_threads

__all__ = ["Codes"]

_ROWS_AT_ONCE = 2**14
_NAMES = "codes", "code_low", "code_step", "code_error"


class Codes(NamedTuple):
    """Rows are about low + step * bytes, column by column."""

    bytes: npt.NDArray[np.uint8]
    """(n, d), in storage order."""
    low: npt.NDArray[np.float32]
    """(d,)"""
    step: npt.NDArray[np.float32]
    """(d,)"""
    error: float
    """A score by codes is within this, times the norm of the query, of the score by rows; rounding included."""

    @classmethod
    def of(cls, features: Features, progress: Progress | None = None) -> "Codes":
        """Codes of stored rows, each column cut evenly between its smallest and largest entry."""
        stored = features.stored

        def ends(cut: slice) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
            return stored[cut].min(axis=0), stored[cut].max(axis=0)

        cuts = [slice(a, a + _ROWS_AT_ONCE) for a in range(0, features.n, _ROWS_AT_ONCE)]
        with (progress or Silent()).task("coding rows", 2 * features.n) as task:
            lows: list[npt.NDArray[np.float32]] = []
            highs: list[npt.NDArray[np.float32]] = []
            for low, high in map_threads(ends, cuts):
                lows.append(low)
                highs.append(high)
                task.advance(_ROWS_AT_ONCE)
            low = np.min(lows, axis=0)
            # In float64: the range of two float32 may overflow float32.
            step = ((np.max(highs, axis=0).astype(np.float64) - low) / 255).astype(np.float32)
            # A column that hardly varies gets one code.
            inverse = np.where(step > 1e-37, 1 / np.maximum(step, np.float32(1e-37)), 0).astype(np.float32)
            codes = np.empty(stored.shape, dtype=np.uint8)

            def encode(cut: slice) -> float:
                with np.errstate(over="ignore"):  # then the error is as large, and codes are not used
                    numbers = np.rint((stored[cut] - low) * inverse)
                    np.clip(numbers, 0, 255, out=numbers)
                    codes[cut] = numbers
                    numbers *= step
                    numbers += low
                    numbers -= stored[cut]
                    return float(np.einsum("nd,nd->n", numbers, numbers, dtype=np.float64).max())

            furthest = 0.0
            for square in map_threads(encode, cuts):
                furthest = max(furthest, square)
                task.advance(_ROWS_AT_ONCE)
        # A sum of d products in float32 is off by at most d roundings of the sum of their sizes.
        sizes = np.linalg.norm([low, 255 * step.astype(np.float64)], axis=1).sum() + features.max_norm
        rounding = (features.d + 8) * float(np.finfo(np.float32).eps) * float(sizes)
        return cls(codes, low, step, float(np.sqrt(furthest) * (1 + 1e-5) + rounding))

    def save(self, writer: Writer) -> None:
        """Write the arrays, and the error as an array of one, so that no digit is lost."""
        for name, array in zip(_NAMES, (*self[:3], np.array([self.error])), strict=True):
            writer.array(name, array)

    @classmethod
    def load(cls, reader: Reader) -> "Codes":
        """What `save` wrote; the codes stay memory-mapped."""
        codes, low, step, error = (reader.array(name) for name in _NAMES)
        return cls(codes, np.array(low), np.array(step), float(error[0]))
