"""Tables of what the codewords of each code add to an inner product, in whole steps that two of them share a byte with.

Rounded after a random number was added, one for each table: the errors of a row are independent and uniform then.
"""

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Vectors
from lazygumbel.kernels.decorators import helper, maker
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.types import WORDS

__all__ = ["lookup_tables"]

_SPAN, _LARGEST = 126.999, 32_766
"""Steps from the least to the largest entry of a table, so that entries stay below 128 and two share a byte; and the
largest product of a sum of them, from its centre, and the multiple."""


@helper
def _products(rotated: Vectors, across: Floats, place: int, found: Floats, ends: Floats) -> tuple[float, float]:
    """Inner products of the words of one code, side by side, less the least of them; the least and the largest.

    `ends` is room for twice eight numbers, so that these are found in vector instructions.
    """
    width = across.shape[0]
    for k in range(WORDS):
        found[k] = 0.0
    for c in range(min(width, rotated.shape[0] - place * width)):
        along = np.float64(rotated[np.uint64(place * width + c)])
        for k in range(WORDS):
            found[k] += along * across[np.uint64(c), k]
    for k in range(8):
        ends[k], ends[8 + k] = found[k], found[k]
    for j in range(1, WORDS // 8):
        for k in range(8):
            value = found[8 * j + k]
            ends[k] = value if value < ends[k] else ends[k]
            ends[8 + k] = value if value > ends[8 + k] else ends[8 + k]
    low, high = ends[0], ends[8]
    for k in range(1, 8):
        low, high = min(low, ends[k]), max(high, ends[8 + k])
    for k in range(WORDS):
        found[k] -= low
    return low, high


@maker
def _across(codebook: Vectors) -> Floats:
    """With words side by side, (coordinates, 64)."""
    out = np.empty((codebook.shape[1], codebook.shape[0]), dtype=np.float64)
    for k in range(codebook.shape[0]):
        for c in range(codebook.shape[1]):
            out[c, k] = codebook[k, c]
    return out


@maker
def lookup_tables(
    rotated: Vectors,
    first: Vectors,
    second: Vectors,
    parts: tuple[int, int],
    units: tuple[float, float],
    seed: np.uint64,
) -> tuple[npt.NDArray[np.uint8], tuple[int, int], tuple[float, float]]:
    found, ends, (unit, limit) = np.empty((parts[1], WORDS), dtype=np.float64), np.empty(16), units
    one, other, count = _across(first), _across(second), parts[1]
    base, base_first, top, widest, peak = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(count):
        if j < parts[0]:
            low, high = _products(rotated, one, j, found[j], ends)
        else:
            low, high = _products(rotated, other, j - parts[0], found[j], ends)
        base, top, widest = base + low, top + high, max(widest, high - low)
        peak = max(peak, -base, top)
        if j + 1 == parts[0]:
            base_first = base
    least, log_unit = max(widest / _SPAN, 1e-280), np.log2(unit)
    room = (min(peak, limit) + (count + 1) * least) / (_LARGEST - count - 1)
    exponent = np.ceil(np.log2(room) + log_unit)
    multiple = max(np.ceil(np.exp2(np.log2(least) + log_unit - exponent)), 1.0)
    step = multiple * np.exp2(exponent - log_unit)
    tables, steps, centre, centre_first = np.empty((count, WORDS), dtype=np.uint8), 1.0 / step, 0.0, 0.0
    for j in range(count):
        offset = uniform(seed, j)
        for k in range(WORDS):
            tables[j, k] = np.uint8(np.int32(found[j, k] * steps + offset))
        centre += offset - 0.5
        if j + 1 == parts[0]:
            centre_first = centre
    return tables, (int(multiple), int(exponent)), (centre_first - base_first / step, centre - base / step)
