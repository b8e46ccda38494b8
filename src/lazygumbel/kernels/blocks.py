"""Rows of bytes side by side, 64 at a time: how `block_dot` takes them."""

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "lay_out_blocks"]

BLOCK = 64
"""Rows of a block."""


def lay_out_blocks(rows: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Rows (n, d) as `block_dot` takes them, (blocks, pairs of columns, 2 * 64); with zeros where there is no row."""
    n, d = rows.shape
    blocks, pairs = -(-n // BLOCK), -(-d // 2)
    padded = np.zeros((blocks * BLOCK, 2 * pairs), dtype=np.int8)
    padded[:n, :d] = rows
    laid_out = padded.reshape(blocks, BLOCK, pairs, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(laid_out).reshape(blocks, pairs, 2 * BLOCK)
