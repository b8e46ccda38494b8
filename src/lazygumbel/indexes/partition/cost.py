"""How many cells, and how fine a code: what costs least, by a model of the time that a draw and a sum take."""

from math import exp, sqrt

from lazygumbel.indexes.partition.codebook import COORDINATES, relative_error
from lazygumbel.indexes.partition.sketch import nibbles_of

__all__ = ["default_cells", "default_coordinates"]

_CELL_NUMBERS = 200_000
"""Entries of the means of all cells: to score them takes a small part of a scan."""
_ROWS_PER_CELL = 256
_SCAN, _NIBBLE = 0.2, 0.008
"""Nanoseconds a row, and a nibble of it, take to scan on two threads."""
_PROPOSAL = 250.0
_ROW, _ENTRY = 20.0, 0.1
"""Nanoseconds that a row out of order takes to read, and each of its entries."""
_QUANTILE = 3.72
_SUMS, _REL_ERR = 0.5, 0.01
"""How often a sum to this relative error is asked for, compared with a draw."""


def default_cells(n: int, d: int) -> int:
    """Number of cells for n rows of length d."""
    return max(1, min(n // _ROWS_PER_CELL, _CELL_NUMBERS // d))


def default_coordinates(n: int, d: int, residual: float, scale: float) -> int:
    """Coordinates to a nibble, for residuals of this typical norm and thetas of this norm over temperature."""

    def cost(coordinates: int) -> float:
        sd = residual * scale * relative_error(coordinates) / sqrt(max(d - 1, 1))
        if sd > 8:  # bits are of no use
            return float("inf")
        proposals = min(exp(_QUANTILE * sd + sd * sd / 2), n)
        sampled = min((exp(sd * sd) - 1) / _REL_ERR**2, n)
        scan = n * (_SCAN + _NIBBLE * nibbles_of(d, coordinates))
        return scan + _PROPOSAL * proposals + _SUMS * (scan + (_ROW + _ENTRY * d) * sampled)

    return min((c for c in COORDINATES if c <= d), key=cost)
