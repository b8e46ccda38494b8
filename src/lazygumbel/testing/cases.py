"""Rows, thetas and exclusions at the edge, and their exact softmax in float64."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors

__all__ = ["TEMPERATURES", "Case", "cases"]


TEMPERATURES = (1e-3, 1.0, 1e6)
_N, _D = 200, 6


class Case(NamedTuple):
    """A softmax that every method is asked for."""

    name: str
    rows: Vectors
    theta: Vectors
    excluded: Ints

    @property
    def left(self) -> int:
        """How many rows can be drawn."""
        return len(self.rows) - len(self.excluded)

    def logits(self, temperature: float) -> Floats:
        """Of all rows; minus infinity for those that are excluded."""
        found = self.rows.astype(np.float64) @ self.theta.astype(np.float64) / temperature
        found[self.excluded] = -np.inf
        return found

    def log_z(self, temperature: float) -> float:
        """The truth."""
        return float(np.logaddexp.reduce(self.logits(temperature)))

    def probabilities(self, temperature: float) -> Floats:
        """The truth; zero for rows that are excluded."""
        return np.exp(self.logits(temperature) - self.log_z(temperature))


def cases() -> Iterator[Case]:
    """A plain one first; then what methods are most often wrong about."""
    rng = np.random.default_rng(7)
    plain = _directions(rng, _N) * rng.lognormal(sigma=0.3, size=(_N, 1)).astype(np.float32)
    theta, nothing = plain[5], np.empty(0, dtype=np.int64)
    best = np.argsort(-(plain @ theta))
    yield Case("rows of varied norm", plain, theta, nothing)
    yield Case("without the best 60", plain, theta, np.sort(best[:60]))
    yield Case("all but one excluded", plain, theta, np.delete(np.arange(_N), 17))
    yield Case("theta of zeros", plain, np.zeros(_D, np.float32), nothing)
    yield Case("equal rows", np.tile(plain[:1], (50, 1)), theta, nothing)
    yield Case("rows of zeros", np.zeros((50, _D), np.float32), theta, nothing)
    yield Case("one row", plain[:1], theta, nothing)
    yield Case("two rows", np.stack([theta, -theta]), theta, nothing)
    lonely, tower = _directions(rng, _N), np.zeros(_D, np.float32)
    lonely[:, 0], tower[0] = 0.0, 50.0
    lonely[123] = np.eye(1, _D)
    yield Case("one row far above the rest", lonely, tower, nothing)
    yield Case("one row far above the rest, excluded", lonely, tower, np.array([123]))
    yield Case("one column", rng.normal(size=(_N, 1)).astype(np.float32), np.ones(1, np.float32), nothing)


def _directions(rng: np.random.Generator, n: int) -> Vectors:
    found = rng.normal(size=(n, _D))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
