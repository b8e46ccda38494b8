"""Rows, scored, summed and encoded, in NumPy: a part of `reference`."""

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.kernels.types import BLOCK, GAINS, GROUP, LARGEST_BYTE, WORDS

__all__ = [
    "add_by_cell",
    "add_pairs",
    "encode_bytes",
    "encode_rows",
    "gather_dot",
    "interleave",
    "move_codes",
    "sum_pairs",
    "sum_rows",
]

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.int16]


def gather_dot(rows: Vectors, positions: Ints, queries: Vectors, owner: Ints) -> Vectors:
    """`rows[positions[j]] . queries[owner[j]]` for every j, shape (m,)."""
    return np.einsum("md,md->m", rows[positions], queries[owner])


def sum_rows(rows: Vectors, positions: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of weighted rows, of their squares, and of weight times weighted row, each (d,)."""
    weighted = weights[:, None] * rows[positions].astype(np.float64)
    return weighted.sum(axis=0), (weighted**2).sum(axis=0), weights @ weighted


def add_by_cell(rows: Vectors, cells: Ints, sums: Floats, squares: Floats) -> None:
    """Add rows to the sum of their cell, (cells, d), and their squared norms, (cells,)."""
    np.add.at(sums, cells, rows.astype(np.float64))
    np.add.at(squares, cells, np.square(rows.astype(np.float64)).sum(axis=1))


def add_pairs(sums: Vectors, places: Ints, weights: Vectors, rows: Vectors, owner: Ints) -> None:
    """Add `weights[j] * rows[owner[j]]` to `sums[places[j]]` for every j."""
    np.add.at(sums, places, weights[:, None] * rows[owner])


def sum_pairs(rows: Vectors, positions: Ints, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of weighted rows, and over pairs, the first two and so on, of the squared difference between the two, and of
    that times the difference of their weights, each (d,). An even number of rows."""
    weighted = weights[:, None] * rows[positions].astype(np.float64)
    between, weight = weighted[::2] - weighted[1::2], weights[::2] - weights[1::2]
    return weighted.sum(axis=0), (between**2).sum(axis=0), weight @ between


def _nearest(rest: Vectors, codebook: Vectors) -> tuple[Bytes, Vectors]:
    """The codeword nearest to each run of coordinates, (m, runs), and these words end to end, (m, d): the first of
    those whose distances agree but for the last bits.

    A last run may be short: so are then its codewords.
    """
    d, width, numbers = rest.shape[1], codebook.shape[1], np.arange(WORDS, dtype=np.int32)
    codes: list[npt.NDArray[np.intp]] = []
    words: list[Vectors] = []
    for start in range(0, d, width):
        run, half = rest[:, start : start + width], np.float32(0.5)
        short = codebook[:, : run.shape[1]]
        distances = (short**2).sum(axis=1) * half - run @ short.T + (run**2).sum(axis=1)[:, None] * half
        keys = np.maximum(distances, np.float32(0)).view(np.int32) & -WORDS | numbers
        codes.append(keys.argmin(axis=1))
        words.append(short[codes[-1]])
    return np.stack(codes, axis=1).astype(np.uint8), np.concatenate(words, axis=1)


def encode_rows(
    rotated: Vectors, first: Vectors, second: Vectors, parts: tuple[int, int]
) -> tuple[Bytes, Floats, Floats]:
    """Codes of rows, (m, parts[1]): of the nearest codewords, and from parts[0] on of those nearest to what these leave
    over. And of the codewords by the first part and by all, (m, 2): inner products with the rows, and squared norms."""
    one, words = _nearest(rotated, first)
    other, more = _nearest(rotated - words, second)
    codes = np.zeros((len(rotated), parts[1]), dtype=np.uint8)
    codes[:, : one.shape[1]] = one
    codes[:, parts[0] : parts[0] + other.shape[1]] = other
    both = np.stack([words, words + more], axis=1).astype(np.float64)
    return codes, np.einsum("mpd,md->mp", both, rotated.astype(np.float64)), (both**2).sum(axis=2)


def encode_bytes(residuals: Vectors, places: Ints, codes: npt.NDArray[np.int8], steps: Vectors) -> float:
    """Residuals in steps of a hundred and twenty-seventh of their largest entry, rounded, into `codes` and `steps` at
    these places; how far they are from them at most, in steps."""
    step = np.maximum(np.abs(residuals).max(axis=1), np.float32(1e-30)) / np.float32(LARGEST_BYTE)
    scaled = residuals / step[:, None]
    codes[places], steps[places] = np.rint(scaled), step
    return float(np.linalg.norm((scaled - np.rint(scaled)).astype(np.float64), axis=1).max(initial=0.0))


def interleave(codes: Bytes, gains: Shorts, slots: Ints, order: Ints, out: Bytes) -> None:
    """Write codes and gains of rows into their slots of one part of `Sketch`. Codes are by id, (n, codes), the others
    by position, `order` the id of each."""
    blocks, lanes = slots // BLOCK, slots % BLOCK
    bytes_of = np.where(lanes < GROUP, 2 * lanes, 2 * (lanes - GROUP) + 1)
    held = codes[order].reshape(len(order), codes.shape[1] // 4, 4)
    for k in range(3):
        two_bits = (held[:, :, 3] >> (2 * k)) & 3
        out[blocks, k:-GAINS:3, bytes_of] = held[:, :, k] | (two_bits << 6)
    lines = np.ascontiguousarray(out[:, -GAINS:]).view(np.int16).reshape(-1, BLOCK)
    lines[blocks, lanes] = gains
    out[:, -GAINS:] = lines.view(np.uint8).reshape(-1, GAINS, BLOCK)


def move_codes(held: Bytes, sources: Ints, slots: Ints, out: Bytes) -> None:
    """Copy what `interleave` wrote for rows in the slots `sources` of one part into other slots of another."""
    seats, lanes = sources % BLOCK, slots % BLOCK
    at, to = (np.where(these < GROUP, 2 * these, 2 * (these - GROUP) + 1) for these in (seats, lanes))
    out[slots // BLOCK, :-GAINS, to] = held[sources // BLOCK, :-GAINS, at]
    lines, others = (np.ascontiguousarray(part[:, -GAINS:]).view(np.int16).reshape(-1, BLOCK) for part in (held, out))
    others[slots // BLOCK, lanes] = lines[sources // BLOCK, seats]
    out[:, -GAINS:] = others.view(np.uint8).reshape(-1, GAINS, BLOCK)
