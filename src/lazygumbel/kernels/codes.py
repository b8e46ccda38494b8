"""Compiled kernels over codes: the ceilings of a query, and the weight of every block."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.decorators import exact_kernel
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.nibbles import block_weights, exp2_block
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.types import BLOCK, CHUNK, EXP2_ERROR, GROUP, Asked, Ceilings, Coded, Run, Theta

__all__ = ["lookup_tables", "prepare", "scan", "weigh_block"]

_HEADROOM = 30.0
"""A scan's shift lies so far above a lower bound of its log Z: weights range from 2^-70 to 2^156 times that."""
_NEGLIGIBLE = 24.0


@exact_kernel
def lookup_tables(
    rotated: npt.NDArray[np.float32], codebook: npt.NDArray[np.float32], positions: int, most: int, seed: np.uint64
) -> tuple[npt.NDArray[np.uint8], float, float]:
    nibbles, (words, width) = 2 * positions, codebook.shape
    found = np.empty((nibbles, words), dtype=np.float64)
    base, largest = 0.0, 0.0
    for j in range(nibbles):
        first, low, high = j * width, np.inf, -np.inf
        for k in range(words):
            total = 0.0
            for c in range(min(width, rotated.shape[0] - first)):
                total += np.float64(rotated[first + c]) * np.float64(codebook[k, c])
            found[j, k] = total
            low, high = min(low, total), max(high, total)
        for k in range(words):
            found[j, k] -= low
        base += low
        largest = max(largest, high - low)
    step = max(largest / (most - 1), 1e-300)
    tables = np.empty((positions, 2, words), dtype=np.uint8)
    for j in range(nibbles):
        for k in range(words):
            tables[j // 2, j % 2, k] = np.uint8(found[j, k] / step + uniform(seed, j * words + k))
    return tables, step, base


@exact_kernel
def _log_mass(cells: npt.NDArray[np.float32], log_counts: npt.NDArray[np.float64], scale: float) -> float:
    """A lower bound of log2 Z, by Jensen's inequality in each cell; what is negligible is left out."""
    top, total = -np.inf, 0.0
    for c in range(cells.shape[0]):
        top = max(top, np.float64(cells[c]) * scale + log_counts[c])
    for c in range(cells.shape[0]):
        exponent = np.float64(cells[c]) * scale + log_counts[c] - top
        if exponent > -_NEGLIGIBLE:
            total += np.exp2(exponent)
    return top + np.log2(total)


@exact_kernel
def prepare(
    coded: Coded, vector: npt.NDArray[np.float32], asked: Asked, power: float, seed: np.uint64
) -> tuple[Theta, Ceilings, float, float]:
    d, nibbles, count = coded.d, 2 * coded.positions, coded.projection.shape[0]
    laid_out, projected = lay_out(vector), np.empty(count, dtype=np.float32)
    for row in range(count):
        projected[row] = dot(coded.projection, row, laid_out)
    square, best, scale = 0.0, -np.inf, asked.scale / power
    for c in range(d):
        square += np.float64(vector[c]) * np.float64(vector[c])
    norm, cells = np.sqrt(square), projected[d:]
    tables, step, base = lookup_tables(projected[:d], coded.codebook, coded.positions, min(128, 65535 // nibbles), seed)
    low = _log_mass(cells, coded.log_counts, asked.scale)
    shift = (low if power == 1.0 else _log_mass(cells, coded.log_counts, scale)) + _HEADROOM
    scores = np.empty(count - d, dtype=np.float32)
    for c in range(count - d):
        best = max(best, np.float64(cells[c]))
        scores[c] = np.float64(cells[c]) * scale - shift + coded.slack * norm * scale + EXP2_ERROR
    held = Ceilings(
        tables,
        scores,
        step * scale,
        (base + step * np.sqrt(nibbles) * asked.rounding) * scale,
        asked.quantile * norm / np.sqrt(max(d - 1, 1)) * scale,
        power,
        shift,
        asked.by_bytes,
    )
    return Theta(laid_out, cells, norm, asked.scale), held, low, (best + norm * coded.largest_residual) * asked.scale


@exact_kernel
def weigh_block(run: Run, block: int, out: npt.NDArray[np.float32]) -> float:
    """Weights of the rows of a block into out[:64]; returns their sum."""
    if not run.ceilings.by_bytes:
        return block_weights(run.sketch, run.ceilings, run.race.alive, block, out)
    rows, theta, ceilings = run.rows, run.theta, run.ceilings
    scale = theta.scale / ceilings.power
    for group in range(BLOCK // GROUP):
        place = (BLOCK // GROUP) * block + group
        cell, first = run.sketch.cells[place], run.sketch.firsts[place]
        last = min(first + GROUP, rows.rows.shape[0])  # padding repeats a row, and weighs nothing
        for lane in range(GROUP):
            position = min(first + lane, last - 1)
            step = np.float64(rows.steps[position])
            along = step * (np.float64(dot(rows.bytes, position, theta.laid_out)) + rows.error * theta.norm)
            out[GROUP * group + lane] = np.float64(ceilings.scores[cell]) + along * scale
    return exp2_block(out, run.race.alive, block, out)


@exact_kernel
def scan(run: Run, first: int, last: int) -> None:
    race, room = run.race, np.empty(BLOCK, dtype=np.float32)
    for chunk in range(first, last):
        total = 0.0
        for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
            # Not through `weigh_block`: to hand a whole run to a function costs more than a block of codes.
            if run.ceilings.by_bytes:
                race.weights[block] = weigh_block(run, block, room)
            else:
                race.weights[block] = block_weights(run.sketch, run.ceilings, race.alive, block, room)
            total += race.weights[block]
        race.sums[chunk] = total
