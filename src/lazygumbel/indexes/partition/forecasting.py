"""What thetas would find in an index, before it is built: by this its coordinates are chosen, and codes are sized."""

from math import sqrt
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Vectors
from lazygumbel.indexes.partition.basis import choose_basis
from lazygumbel.indexes.partition.build import Assigned
from lazygumbel.indexes.partition.cost import Forecast

__all__ = ["StandIns"]


_SCALE = 20.0
"""Norm of theta over temperature that codes are sized for by default, times the typical norm of a row."""
_ROWS, _THETAS, _FORECAST = 16_384, 4096, 64
"""Rows that tell how residuals lie, thetas that tell in which coordinates to code them, and of these how many tell how
finely."""


class StandIns(NamedTuple):
    """Some residuals, (m, d), and thetas like those to come, (B, d)."""

    residuals: Floats
    thetas: Floats

    @classmethod
    def of(cls, assigned: Assigned, squares: Floats, like: Vectors | None, rng: np.random.Generator) -> "StandIns":
        """By rows that are chosen at random; without thetas, by rows at a usual norm. `squares` are mean squared norms
        of the rows of each cell."""
        features, means, cell_of = assigned
        ids = np.sort(rng.choice(features.n, min(_ROWS, features.n), replace=False))
        rows = features.gather(ids).astype(np.float64)
        if like is None:
            thetas = rows[rng.permutation(len(rows))[:_THETAS]]
            counts = np.bincount(cell_of)
            typical = sqrt(float(counts @ squares) / features.n)
            thetas *= _SCALE / np.maximum(np.linalg.norm(thetas, axis=1) * typical, 1e-30)[:, None]
        else:
            thetas = like[rng.permutation(len(like))[:_THETAS]].astype(np.float64)
        return cls(rows - means[cell_of[ids]], thetas)

    def basis(self) -> Floats:
        """Coordinates for these."""
        return choose_basis(self.residuals, self.thetas)

    def forecast(self, assigned: Assigned, squares: Floats, basis: Floats) -> Forecast:
        """What the thetas would find, coded in these coordinates."""
        means, counts = assigned.means, np.bincount(assigned.cell_of).astype(np.float64)
        residuals, thetas, d = self.residuals, self.thetas[:_FORECAST], len(basis)
        size = max(float(np.einsum("nd,nd->", residuals, residuals)), 1e-30)
        pooled_sds = np.sqrt(((residuals @ thetas.T) ** 2).sum(axis=0) / size)
        norms = np.sqrt(np.maximum(squares - np.einsum("cd,cd->c", means, means, dtype=np.float64), 1e-30))
        residual_norm = sqrt(float(np.square(residuals @ np.linalg.inv(basis)).sum()) / size)
        per_width = float(np.median(np.linalg.norm(thetas @ basis, axis=1))) * residual_norm / sqrt(max(d - 1, 1))
        return Forecast.of(counts, thetas @ means.T.astype(np.float64), norms, pooled_sds, per_width)
