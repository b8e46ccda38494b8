"""A dense pass: every row is scored, by one BLAS product in float32. Exact, O(n d) a theta.

Weights are summed in stripes, and a draw picks a stripe and then a row of it: the inverse CDF at the price of one pass
of `exp`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.methods.base import Function, Phi, Query
from lazygumbel.methods.draw import Candidates, order_draws
from lazygumbel.methods.gumbel import gumbel
from lazygumbel.methods.weighing import stack, weigh
from lazygumbel.results import EXACT, Draws, Moments, OrderedDraws
from lazygumbel.rows.features import Features

__all__ = ["draw_densely", "finish", "order_densely", "patience_of", "sum_densely"]


_STRIPE = 1024
_SCORES_AT_ONCE = 2**20
"""4 MiB: the scores of a block stay in the cache from the product to the sum."""
_SAFE = 40.0
"""Logits up to this size need no shift, which saves two passes: exp and its sums are well within float32."""
_PATIENCE, _ENTRIES_A_PROPOSAL = 4096, 2048


class _WeighedBlock(NamedTuple):
    """Consecutive stored rows, and exp(logit - high) of each for every theta, (B, m); excluded rows weigh nothing."""

    start: int
    rows: Vectors
    high: Vectors
    weights: Vectors


def draw_densely(query: Query, size: int, rng: np.random.Generator) -> Draws:
    """Independent samples."""
    shift, masses = _stripe_masses(query)
    positions = np.empty((size, query.size), dtype=np.int64)
    for b, mass in enumerate(masses):
        stripes = _draw_indices(mass, size, rng)
        for stripe in np.unique(stripes):
            chosen = np.flatnonzero(stripes == stripe)
            weights = _stripe_weights(query, b, int(stripe))
            positions[chosen, b] = stripe * _STRIPE + _draw_indices(weights, len(chosen), rng)
    order = query.features.order
    with np.errstate(divide="ignore"):
        log_z = shift + np.log(masses.sum(axis=1))
    return Draws(
        positions if order is None else order[positions],
        log_z + gumbel(rng, (size, query.size)),
        np.full(query.size, query.features.n),
        EXACT,
    )


def order_densely(query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
    """The `size` largest of all perturbed logits, in order: Plackett-Luce."""
    candidates = [Candidates.none() for _ in range(query.size)]
    for block in query.dense():
        values = block.logits + gumbel(rng, block.logits.shape)
        for b, found in enumerate(candidates):
            more = Candidates(block.ids, block.logits[b], values[b])
            candidates[b] = found.plus(more).largest(size + 1)
    return order_draws(candidates, size, np.full(query.size, query.features.n), EXACT)


def sum_densely(query: Query, f: Function | None) -> Moments:
    """Sums of variance zero."""
    if f is None:
        shift, masses = _stripe_masses(query)
        total = masses.sum(axis=1)
        return Moments(shift, total, np.zeros_like(total))
    if isinstance(f, Phi):
        return _feature_sums(query)
    parts: list[Moments] | None = None
    for block in query.dense():
        more = [weigh(block.ids, logits, f) for logits in block.logits]
        parts = more if parts is None else [a + b for a, b in zip(parts, more, strict=True)]
    return stack(parts or [])


def patience_of(features: Features) -> int:
    """Proposals that may be refused before a dense pass is quicker."""
    return _PATIENCE + features.n * features.d // _ENTRIES_A_PROPOSAL


def finish(
    query: Query, ids: Ints, values: Floats, passed: float, size: int, seed: int, *, distinct: bool
) -> tuple[Ints, Floats]:
    """Finish a race of one theta by a dense pass: what fires from now on does so after exp(passed) and more.

    To throw away what was drawn would not do: whether a race takes long depends on what was drawn.
    """
    rng = np.random.default_rng(seed)
    if distinct:
        left = replace(query, excluded=(np.union1d(query.excluded[0], ids),))
        rest = order_densely(left, size - len(ids), rng)
        more, later = rest.ids[:, 0], -np.logaddexp(passed, -rest.values[:, 0])
    else:
        dense = draw_densely(query, size - len(ids), rng)
        more, later = dense.ids[:, 0], dense.values[:, 0].copy()
        later[:1] = -np.logaddexp(passed, -later[:1])
    return np.concatenate([ids, more]), np.concatenate([values, later])


def _blocks(query: Query) -> Iterator[_WeighedBlock]:
    stored = query.features.stored
    step = _STRIPE * max(1, _SCORES_AT_ONCE // (_STRIPE * max(1, query.size)))
    # Scaling the thetas costs nothing; scaling the scores would be another pass.
    thetas = np.ascontiguousarray(query.thetas.astype(np.float64) / query.temperature)
    scaled = thetas.astype(np.float32)
    safe = float(np.linalg.norm(thetas, axis=1).max(initial=0.0)) * query.features.max_norm <= _SAFE
    excluded = [query.features.locate(ids) for ids in query.excluded]
    for start in range(0, len(stored), step):
        rows = stored[start : start + step].astype(np.float32, copy=False)
        logits = (rows @ scaled[0])[None] if query.size == 1 else scaled @ rows.T
        for b, positions in enumerate(excluded):
            if len(positions):
                logits[b, positions[(positions >= start) & (positions < start + len(rows))] - start] = -np.inf
        if query.features.dead is not None:
            logits[:, query.features.dead[start : start + len(rows)]] = -np.inf
        high = np.zeros(query.size, dtype=np.float32)
        if not safe:
            high = logits.max(axis=1)
            high[np.isneginf(high)] = 0.0
            logits -= high[:, None]
        yield _WeighedBlock(start, rows, high, np.exp(logits, out=logits))


def _stripe_masses(query: Query) -> tuple[Floats, Floats]:
    """A shift for each theta, (B,), and the mass of each stripe in units of its exponential, (B, stripes)."""
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
    shift = np.where(masses > 0, highs, -np.inf).max(axis=1, initial=-np.inf)
    return shift, masses * np.exp(np.where(masses > 0, highs, -np.inf) - shift[:, None])


def _stripe_weights(query: Query, b: int, stripe: int) -> Floats:
    """Weights of the rows of a stripe, up to a factor."""
    positions = np.arange(stripe * _STRIPE, min((stripe + 1) * _STRIPE, query.features.n))
    logits = (query.features.stored[positions] @ query.thetas[b]).astype(np.float64) / query.temperature
    logits[np.isin(positions, query.features.locate(query.excluded[b]))] = -np.inf
    if query.features.dead is not None:
        logits[query.features.dead[positions]] = -np.inf
    return np.exp(logits - logits.max())


def _draw_indices(weights: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Indices drawn in proportion to the weights, by the inverse CDF."""
    ends: Floats = np.cumsum(weights)
    targets: Floats = rng.random(size) * ends[-1]
    # side="right" never picks an entry of weight zero; nor does the guard against rounding at the very top.
    return np.minimum(np.searchsorted(ends, targets, side="right"), np.searchsorted(ends, ends[-1:]))


def _feature_sums(query: Query) -> Moments:
    """Sums of weights and of weighted rows for all thetas at once."""
    shift = np.full(query.size, -np.inf)
    total, weighted = np.zeros(query.size), np.zeros((query.size, query.features.d))
    for block in _blocks(query):
        old, shift = shift, np.maximum(shift, block.high)
        kept, taken = np.exp(old - shift), np.exp(block.high - shift)
        total = kept * total + taken * block.weights.sum(axis=1, dtype=np.float64)
        # A matrix-vector product for one theta: it reads the rows in order, which the matrix product does not.
        sums = (block.weights[0] @ block.rows)[None] if query.size == 1 else block.weights @ block.rows
        weighted = kept[:, None] * weighted + taken[:, None] * sums
    nothing = np.zeros_like(weighted)
    return Moments(shift, total, np.zeros(query.size), weighted, nothing, nothing)
