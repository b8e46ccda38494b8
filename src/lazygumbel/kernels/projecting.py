"""Theta along the directions in which an index knows its rows."""

from typing import Any

import numpy as np

from lazygumbel._support.arrays import Vectors
from lazygumbel.kernels.decorators import maker
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.types import Coded

__all__ = ["project"]


@maker
def project(coded: Coded, vector: Vectors, known: Vectors) -> Any:
    """Theta laid out, and its products with the rows of the projection. Those with the rotation and with the means of
    the build may be known, end to end, if its cells have them."""
    count, cells, first = coded.projection.shape[0], coded.cells_of_build, 0
    laid_out, projected = lay_out(vector), np.empty(count, dtype=np.float32)
    if known.shape[0] > 0 and cells.shape[0] > 0:
        first, count = coded.d, coded.d + coded.axes
        projected[:first] = known[:first]
        for c in range(cells.shape[0]):
            projected[count + c] = known[first + cells[c]]
    for row in range(first, count):
        projected[row] = dot(coded.projection, row, laid_out)
    return laid_out, projected
