"""`Basis`: coordinates in which all inner products are the same and codes of rows tell more.

theta . phi is (theta A) . (phi A^-1) for any invertible A. A code rotated at random spreads its error evenly: what a
logit is off by grows with |theta A| |(phi - mean) A^-1|. Where thetas are long in other directions than those in which
rows vary, as hidden states and the head of a language model are, the mean of that product is smaller for a better A
than one. With M the second moments of thetas and C the covariance of rows, trace(M A A^T) trace(C (A A^T)^-1) is least
for A A^T = M^-1/2 (M^1/2 C M^1/2)^1/2 M^-1/2, the geometric mean of M^-1 and C.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lazygumbel._support.checks import check_vectors, plain_array
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.rows.features import Features, Source

__all__ = ["Basis"]

Floats = npt.NDArray[np.float64]

_ROWS = 50_000
"""Of which the covariance is taken, evenly spread."""
_SHARE, _LEAST, _MOST = 0.2, 1e-3, 0.5
"""Of the mean of all directions that is added to each: times d over how many vectors there are, since few say little
of most directions; at least, and at most."""


@dataclass(frozen=True, eq=False)
class Basis:
    """An invertible `matrix` A, (d, d): rows become `rows` A^-1 and thetas `thetas` A, with the inner products that
    they had, up to rounding."""

    matrix: Floats

    def __post_init__(self) -> None:
        matrix = plain_array(self.matrix, "matrix")
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "fiu":
            raise ValueError(f"matrix must hold real numbers of shape (d, d), not {matrix.dtype} {matrix.shape}")
        if not (np.isfinite(matrix).all() and np.linalg.cond(matrix) < 1e6):
            raise ValueError("matrix cannot be inverted accurately; give one from Basis.between")
        object.__setattr__(self, "matrix", matrix.astype(np.float64))

    @classmethod
    def between(cls, rows: Source | Features, thetas: npt.ArrayLike) -> "Basis":
        """The basis for these rows and for thetas like these, (B, d), a few hundred or more."""
        features = Features.of(rows)
        d = features.d
        asked = np.atleast_2d(check_vectors(thetas, "thetas", d)).astype(np.float64)
        if not asked.any():
            raise ValueError("thetas must not all be zero: give some that the model will be asked for")
        some = features.gather(np.linspace(0, features.n - 1, min(_ROWS, features.n)).astype(np.int64))
        centred = some - some.mean(axis=0, dtype=np.float64)
        moments, covariance = _moments(asked), _moments(centred)
        root = _root(moments)
        inverse = np.linalg.inv(root)
        matrix = _root(inverse @ _root(root @ covariance @ root) @ inverse)
        return cls(matrix / np.exp(np.linalg.slogdet(matrix)[1] / d))

    @property
    def d(self) -> int:
        """Length of a row."""
        return len(self.matrix)

    def __repr__(self) -> str:
        return f"Basis(d={self.d})"

    def thetas(self, thetas: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Thetas, (d,) or (B, d), for a model of `rows`."""
        return check_vectors(thetas, "thetas", self.d) @ self._forward

    def rows(self, rows: Source | Features, *, progress: ShowProgress = None) -> Features:
        """Rows to build a model of, in memory, with their names."""
        features = Features.of(rows)
        if features.d != self.d:
            raise ValueError(f"rows has {features.d} columns, but the basis has d = {self.d}")
        features.check_finite()
        found, inverse = np.empty((features.n, self.d), dtype=np.float32), np.linalg.inv(self.matrix)
        with choose(progress).task("changing the basis", features.n) as task:
            for ids, some in features.blocks(_ROWS):
                found[ids] = some @ inverse
                task.advance(len(ids))
        return Features.of(found, names=features.names)

    def back(self, vectors: npt.ArrayLike) -> Floats:
        """What rows, or averages of rows such as E[phi], were before: (..., d)."""
        return np.asarray(vectors, dtype=np.float64) @ self.matrix

    @cached_property
    def _forward(self) -> npt.NDArray[np.float32]:
        return self.matrix.astype(np.float32)


def _moments(vectors: Floats) -> Floats:
    """Second moments, in units of their mean over directions, and some of that mean in every direction."""
    found, d = vectors.T @ vectors, vectors.shape[1]
    share = min(max(_SHARE * d / len(vectors), _LEAST), _MOST)
    return found / max(float(np.trace(found)) / d, 1e-30) + share * np.eye(d)


def _root(matrix: Floats) -> Floats:
    """The symmetric square root of a symmetric matrix that is positive definite."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
