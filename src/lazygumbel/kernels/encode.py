"""Compiled kernels that code rows, once, when an index is built."""

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.kernels.decorators import helper, kernel
from lazygumbel.kernels.nearest_word import nearest_word
from lazygumbel.kernels.types import BLOCK, GAINS, LARGEST_BYTE

__all__ = ["encode_bytes", "encode_rows", "interleave", "move_codes"]

_NUMBER = np.int32(0x7FFFFFFF)
"""All bits of a float32 but its sign: as whole numbers, these are in the order of their absolute values."""


@helper
def _encode(rest: Vectors, words: Vectors, lengths: Vectors, codes: npt.NDArray[np.uint8], first: int) -> None:
    """Codes of the codewords nearest to each run of coordinates, from the `first` on; their difference into `rest`.

    Words lie side by side, (coordinates, 64).
    """
    width, d = words.shape[0], rest.shape[0]
    for j in range(-(-d // width)):
        count = min(width, d - j * width)
        chosen = nearest_word(rest, j * width, count, words, lengths[int(count < width)])
        codes[first + j] = chosen
        for c in range(count):
            rest[j * width + c] -= words[c, chosen]


@kernel
def _side_by_side(codebook: Vectors) -> Vectors:
    words, width = codebook.shape
    out = np.empty((width, words), dtype=np.float32)
    for k in range(words):
        for c in range(width):
            out[c, k] = codebook[k, c]
    return out


@kernel
def _half_lengths(codebook: Vectors, d: int) -> Vectors:
    """Half the squared norm of whole codewords, and of those cut short for the last coordinates, (2, words)."""
    words, width = codebook.shape
    out = np.zeros((2, words), dtype=np.float32)
    for k in range(words):
        for c in range(width):
            out[0, k] += codebook[k, c] * codebook[k, c] / np.float32(2.0)
        for c in range(d % width):
            out[1, k] += codebook[k, c] * codebook[k, c] / np.float32(2.0)
    return out


@kernel
def encode_rows(
    rotated: Vectors, first: Vectors, second: Vectors, parts: tuple[int, int]
) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
    m, d = rotated.shape
    codes = np.zeros((m, parts[1]), dtype=np.uint8)
    products, squares, rest = np.zeros((m, 2)), np.zeros((m, 2)), np.empty(d, dtype=np.float32)
    lengths, words = (_half_lengths(first, d), _half_lengths(second, d)), (_side_by_side(first), _side_by_side(second))
    for row in range(m):
        for c in range(d):
            rest[c] = rotated[row, c]
        for part in range(2):
            _encode(rest, words[part], lengths[part], codes[row], parts[0] if part else 0)
            product, square = 0.0, 0.0
            for c in range(d):
                word = np.float64(rotated[row, c]) - np.float64(rest[c])
                product += word * np.float64(rotated[row, c])
                square += word * word
            products[row, part], squares[row, part] = product, square
    return codes, products, squares


@kernel
def encode_bytes(residuals: Vectors, places: Ints, codes: npt.NDArray[np.int8], steps: Vectors) -> float:
    bits, worst = residuals.view(np.int32), 0.0
    largest = np.zeros(1, dtype=np.int32)
    lengths = largest.view(np.float32)
    for row in range(residuals.shape[0]):
        place, most, square = places[row], np.int32(0), np.float32(0.0)
        for c in range(residuals.shape[1]):  # of whole numbers many are compared at once, of floats one by one
            most = max(most, bits[row, c] & _NUMBER)
        largest[0] = most
        step = max(lengths[0], np.float32(1e-30)) / np.float32(LARGEST_BYTE)
        for c in range(residuals.shape[1]):
            scaled = residuals[row, c] / step
            whole = np.rint(scaled)
            codes[place, c] = np.int8(whole)
            square += (scaled - whole) * (scaled - whole)
        steps[place], worst = step, max(worst, np.float64(square))
    return np.sqrt(worst)


@kernel
def interleave(
    codes: npt.NDArray[np.uint8], gains: npt.NDArray[np.int16], slots: Ints, order: Ints, out: npt.NDArray[np.uint8]
) -> None:
    quadruples = codes.shape[1] // 4
    for row in range(order.shape[0]):
        block, lane, held = slots[row] // BLOCK, slots[row] % BLOCK, codes[order[row]]
        byte = 2 * lane if lane < BLOCK // 2 else 2 * lane - BLOCK + 1
        for j in range(quadruples):
            for k in range(3):
                out[block, 3 * j + k, byte] = held[4 * j + k] | (((held[4 * j + 3] >> (2 * k)) & 3) << 6)
        line, first = 3 * quadruples + lane // (BLOCK // 2), 2 * (lane % (BLOCK // 2))
        out[block, line, first] = np.uint8(gains[row] & 255)
        out[block, line, first + 1] = np.uint8(gains[row] >> 8)


@kernel
def move_codes(held: npt.NDArray[np.uint8], sources: Ints, slots: Ints, out: npt.NDArray[np.uint8]) -> None:
    lines = out.shape[1] - GAINS
    for row in range(slots.shape[0]):
        block, lane, source, seat = slots[row] // BLOCK, slots[row] % BLOCK, sources[row] // BLOCK, sources[row] % BLOCK
        to = 2 * lane if lane < BLOCK // 2 else 2 * lane - BLOCK + 1
        at = 2 * seat if seat < BLOCK // 2 else 2 * seat - BLOCK + 1
        for line in range(lines):
            out[block, line, to] = held[source, line, at]
        for k in range(2):
            gain = held[source, lines + seat // (BLOCK // 2), 2 * (seat % (BLOCK // 2)) + k]
            out[block, lines + lane // (BLOCK // 2), 2 * (lane % (BLOCK // 2)) + k] = gain
