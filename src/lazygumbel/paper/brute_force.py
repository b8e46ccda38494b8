"""Brute force, written for speed: what the paper's method and ours are timed against.

Scores are one BLAS product in float32; weights are summed in stripes, and a draw picks a stripe and then a row of it.
That is the inverse CDF at the price of one pass of `exp`, a twentieth of the price of one Gumbel a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.gumbel import gumbel
from lazygumbel.methods import Exhaustive, Query
from lazygumbel.methods.base import Function, Seen
from lazygumbel.results import Draws, Estimate, Moments

__all__ = ["BruteForce", "BruteForceGradient"]

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]

_STRIPE = 1024
_SCORES_AT_ONCE = 2**20
"""4 MiB: the scores of a block stay in the cache from the product to the sum."""
_SAFE = 40.0
"""Logits up to this size need no shift, which saves two passes: exp and its sums are well within float32."""


class _Block(NamedTuple):
    """Consecutive stored rows, and exp(logit - high) of each for every theta, (B, m)."""

    start: int
    rows: Vectors
    high: Vectors
    weights: Vectors


@dataclass(frozen=True)
class BruteForce:
    """Exact draws and log Z, up to the rounding of float32 scores. With rows excluded, `Exhaustive` is asked."""

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Exact samples."""
        if _restricted(query):
            return Exhaustive().sample(query, size, rng)
        shift, masses = _stripe_masses(query)
        positions = np.empty((size, query.size), dtype=np.int64)
        for b, mass in enumerate(masses):
            for j in range(size):
                positions[j, b] = _row_of_stripe(query, b, _pick(mass, rng), rng)
        order = query.features.order
        log_z = shift + np.log(masses.sum(axis=1))
        return Draws(
            positions if order is None else order[positions],
            log_z + gumbel(rng, (size, query.size)),
            np.full(query.size, query.features.n),
            "exact",
        )

    def log_partition(self, query: Query, rng: np.random.Generator) -> Estimate:
        """Exact log Z."""
        if _restricted(query):
            seen = Exhaustive().moments(query, None, rng)
            return Estimate.of_log_partition(seen.moments, seen.rows, "exact")
        shift, masses = _stripe_masses(query)
        rows = np.full(query.size, query.features.n)
        return Estimate(shift + np.log(masses.sum(axis=1)), np.zeros(query.size), rows, "exact")


@dataclass(frozen=True)
class BruteForceGradient:
    """Exact E[phi] for `fit`, by two products with the rows where a function of ids would have to copy them all."""

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Exact sums; f must be the features."""
        if f is None or _restricted(query):
            return Exhaustive().moments(query, f, rng)
        first = np.zeros(1, dtype=np.int64)
        if not np.array_equal(f(first, np.zeros(1)), query.features.gather(first)):
            raise ValueError("f: BruteForceGradient knows the expectation of the features only")
        shift = np.full(query.size, -np.inf)
        total, weighted = np.zeros(query.size), np.zeros((query.size, query.features.d))
        for block in _blocks(query):
            old, shift = shift, np.maximum(shift, block.high)
            kept, taken = np.exp(old - shift), np.exp(block.high - shift)
            total = kept * total + taken * block.weights.sum(axis=1, dtype=np.float64)
            # A matrix-vector product for one theta: it reads the rows in order, which the matrix product does not.
            sums = (block.weights[0] @ block.rows)[None] if query.size == 1 else block.weights @ block.rows
            weighted = kept[:, None] * weighted + taken[:, None] * sums
        none = np.zeros_like(weighted)
        moments = Moments(shift, total, np.zeros(query.size), weighted, none, none)
        return Seen(moments, np.full(query.size, query.features.n), "exact")


def _restricted(query: Query) -> bool:
    return any(len(excluded) for excluded in query.excluded)


def _blocks(query: Query) -> Iterator[_Block]:
    stored = query.features.stored
    step = _STRIPE * max(1, _SCORES_AT_ONCE // (_STRIPE * max(1, query.size)))
    # Scaling the thetas costs nothing; scaling the scores would be another pass.
    thetas = np.ascontiguousarray(query.thetas / np.float32(query.temperature))
    largest = float(np.sqrt(np.einsum("bd,bd->b", thetas, thetas).max(initial=0.0))) * query.features.max_norm
    for start in range(0, len(stored), step):
        rows = stored[start : start + step]
        logits = (rows @ thetas[0])[None] if query.size == 1 else thetas @ rows.T
        high = np.zeros(query.size, dtype=np.float32)
        if largest > _SAFE:
            high = logits.max(axis=1)
            logits -= high[:, None]
        yield _Block(start, rows, high, np.exp(logits, out=logits))


def _stripe_masses(query: Query) -> tuple[Floats, Floats]:
    """The largest logit of each theta, (B,), and the mass of each stripe in units of its exponential, (B, stripes)."""
    stripes = -(-query.features.n // _STRIPE)
    masses, highs = np.zeros((query.size, stripes)), np.empty((query.size, stripes))
    for block in _blocks(query):
        first, m = block.start // _STRIPE, block.weights.shape[1]
        whole = m // _STRIPE
        striped = block.weights[:, : whole * _STRIPE].reshape(query.size, whole, _STRIPE)
        masses[:, first : first + whole] = striped.sum(axis=2)
        if m % _STRIPE:
            masses[:, first + whole] = block.weights[:, whole * _STRIPE :].sum(axis=1)
        highs[:, first : first + -(-m // _STRIPE)] = block.high[:, None]
    shift = highs.max(axis=1)
    return shift, masses * np.exp(highs - shift[:, None])


def _row_of_stripe(query: Query, b: int, stripe: int, rng: np.random.Generator) -> int:
    start = stripe * _STRIPE
    scores = query.features.stored[start : start + _STRIPE] @ query.thetas[b]
    logits = scores.astype(np.float64) / query.temperature
    return start + _pick(np.exp(logits - logits.max()), rng)


def _pick(weights: Floats, rng: np.random.Generator) -> int:
    """An index drawn in proportion to the weights, by the inverse CDF."""
    ends = np.cumsum(weights)
    # The target is below the last end, so that the count is a valid index, of a weight that is not zero.
    return int(np.count_nonzero(ends <= rng.random() * ends[-1]))
