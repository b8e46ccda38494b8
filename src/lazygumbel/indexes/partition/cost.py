"""What a draw and a sum cost: how many cells, how fine a code, and how closely each cell is looked at.

Times are in nanoseconds on one thread; only their ratios count.
"""

from functools import lru_cache
from math import inf, log
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.indexes.partition.codebook import COORDINATES, distortion, relative_error
from lazygumbel.indexes.partition.sketch import codes_of

__all__ = [
    "BY_BYTES",
    "FOR_TOP",
    "WIDEST",
    "Effort",
    "Forecast",
    "default_cells",
    "default_coordinates",
    "for_draws",
    "for_sums",
]


_CELL_NUMBERS = 64_000
"""Entries of the means of all cells: to score them takes a small part of a scan."""
_ROWS_PER_CELL = 512
_CODE, _SCANNED = 0.0145, 0.18
"""To look up a code of a row, and what a row takes beside."""
_CACHE, _CODE_IN_MEMORY = 2.0**24, 0.035
"""Bytes of codes that caches may hold, and what a code takes where there are more and two threads wait for memory."""
_SHARED = 0.6
"""Of the time of a scan that two threads take: for one theta these share it, but not what follows."""
_BYTE = 0.09
"""To score an entry of a row by its byte."""
_PROPOSAL = 600.0
"""To find a row that fires, and accept it or not; and what a search for the best rows looks at for each of these."""
_ROW, _ENTRY = 100.0, 0.1
"""To sample a row for a sum, and to read each of its entries."""
_QUANTILE = 3.5
WIDEST = 1.3, 0.7
"""Standard deviation of estimates by which rows are sampled for sums, in nats, of cells that matter little, by the
first part of codes, and of others: with more, a few rows make the error."""
_SUMS, _REL_ERR = 0.7, 0.01
"""How often a sum to this relative error is asked for, compared with a draw."""


class Effort(NamedTuple):
    """How closely cells are looked at: see `kernels.types.Asked`."""

    order: float
    slope: float
    curvature: float
    widest: tuple[float, float]
    limits: tuple[float, float, float]


BY_BYTES = Effort(0.0, 0.0, 0.0, (inf, inf), (-inf, -inf, -inf))
"""Every cell by bytes: ceilings that cannot be too low."""
FOR_TOP = Effort(0.0, 0.0, 0.0, (inf, inf), (-inf, inf, inf))
"""Every cell by the first part of codes; blocks of rows that may be among the best are looked at again, by all."""


def default_cells(n: int, d: int) -> int:
    """Number of cells for n rows of length d."""
    return max(1, min(n // _ROWS_PER_CELL, _CELL_NUMBERS // d))


class Forecast(NamedTuple):
    """What some thetas would find, as if logits were normal in each cell."""

    counts: Floats
    """Rows of each cell, (cells,)."""
    densities: Floats
    """Logarithm of the mean weight of a row of each cell, in units of Z, (thetas, cells)."""
    units: Floats
    """Standard deviation of estimates of each cell, in nats, of a code with an error as large as itself, (cells,)."""

    @classmethod
    def of(cls, counts: Floats, scores: Floats, residuals: Floats, pooled_sds: Floats, unit: float) -> "Forecast":
        """By logits of means, (thetas, cells), typical norms of residuals, (cells,), and deviations of logits for
        residuals of norm one, (thetas,)."""
        deviations, edges = pooled_sds[:, None] * residuals, np.sqrt(2 * np.log(counts))
        excess = np.where(deviations < edges, deviations**2 / 2, deviations * edges - np.log(counts))
        masses = scores + excess + np.log(counts)
        return cls(counts, scores + excess - np.logaddexp.reduce(masses, axis=1, keepdims=True), unit * residuals)


def default_coordinates(d: int, forecast: Forecast) -> tuple[int, int]:
    """Coordinates to a code of the first part, and of the second: what makes draws and sums quickest."""
    counts, shares = forecast.counts, np.exp(forecast.densities) * forecast.counts
    n = float(counts.sum())

    def scan(codes: int) -> float:
        return _SHARED * (_SCANNED + (_CODE if 0.75 * n * codes < _CACHE else _CODE_IN_MEMORY) * codes)

    def cost(first: int, second: int) -> float:
        codes = codes_of(d, first), codes_of(d, first) + codes_of(d, second)
        errors = relative_error(distortion(first)), relative_error(distortion(first) * distortion(second))
        draws: list[Floats] = []
        sums: list[Floats] = []
        for k, (one, error) in enumerate(zip(codes, errors, strict=True)):
            deviation: Floats = np.minimum(forecast.units * error, 8.0)
            proposals = np.minimum(shares * np.exp(_QUANTILE * deviation + deviation**2 / 2), counts)
            draws.append(counts * scan(one) + _PROPOSAL * proposals)
            rows = np.minimum(shares * np.expm1(deviation**2) / _REL_ERR**2, counts)
            sums.append(counts * scan(one) + (_ROW + _ENTRY * d) * np.where(deviation <= WIDEST[k], rows, counts))
        drawn, summed = (np.minimum(one, other).sum(axis=1).mean() for one, other in (draws, sums))
        return float(drawn + _SUMS * summed)

    widths = [c for c in COORDINATES if c <= d]
    return min(((first, second) for first in widths for second in widths), key=lambda pair: cost(*pair))


def _saved(d: int, parts: tuple[int, int]) -> tuple[float, float]:
    """What a row is scanned quicker by the first part of its code than by all, and by all than by bytes."""
    return _CODE * (parts[1] - parts[0] + 4), max(_BYTE * d - _CODE * parts[1], _CODE)


@lru_cache(maxsize=64)
def for_draws(d: int, parts: tuple[int, int], size: int) -> Effort:
    """Where proposals cost less than a closer look; by one ceiling a cell where they cost less than any scan. The slope
    is in units of the quantile of ceilings."""
    short, full = _saved(d, parts)
    least, each = _SCANNED + _CODE * parts[0], _PROPOSAL * max(size, 1)
    return Effort(0.0, 1.0, 0.5, (inf, inf), (log(least / each), log(short / each), log(full / each)))


def for_sums(d: int, parts: tuple[int, int], rel_err: float) -> Effort:
    """Where more rows to sample cost less than a closer look: exp(sd^2) - 1 times as many as mass has it."""
    row = (_ROW + _ENTRY * d) / rel_err**2
    short, full = _saved(d, parts)
    return Effort(2.0, 0.0, 0.5, WIDEST, (-inf, log(short / row), log(full / row)))
