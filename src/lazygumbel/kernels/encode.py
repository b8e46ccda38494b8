"""Compiled kernels that code rows, once, when an index is built."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.decorators import kernel
from lazygumbel.kernels.types import BLOCK

__all__ = ["encode_nibbles", "interleave"]


@kernel
def encode_nibbles(
    rotated: npt.NDArray[np.float32], codebook: npt.NDArray[np.float32], nibbles: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    words, width = codebook.shape
    codes = np.zeros((rotated.shape[0], nibbles), dtype=np.uint8)
    products, squares = np.zeros(rotated.shape[0]), np.zeros(rotated.shape[0])
    for row in range(rotated.shape[0]):
        for j in range(nibbles):
            first = j * width
            most = min(width, rotated.shape[1] - first)
            if most <= 0:
                break
            best, chosen, along, length = -np.inf, 0, 0.0, 0.0
            for k in range(words):
                product, square = np.float32(0.0), np.float32(0.0)
                for c in range(most):
                    product += rotated[row, first + c] * codebook[k, c]
                    square += codebook[k, c] * codebook[k, c]
                if product - square / np.float32(2.0) > best:
                    best, chosen, along, length = product - square / np.float32(2.0), k, product, square
            codes[row, j] = chosen
            products[row] += along
            squares[row] += length
    return codes, products, squares


@kernel
def interleave(codes: npt.NDArray[np.uint8], slots: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
    for row in range(codes.shape[0]):
        block, lane = slots[row] // BLOCK, slots[row] % BLOCK
        byte = 2 * lane if lane < BLOCK // 2 else 2 * lane - BLOCK + 1
        for position in range(out.shape[1]):
            out[block, position, byte] = codes[row, 2 * position] | (codes[row, 2 * position + 1] << 4)
