"""Shared steps of the samplers: categorical draws, distinct rows outside a set, the lazy tail."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.methods.base import Query
from lazygumbel.methods.gumbel import gumbel, gumbel_above, tail_count, tail_probability
from lazygumbel.methods.head import Head
from lazygumbel.results import EXACT, Draws, Grounds, OrderedDraws

__all__ = [
    "Candidates",
    "distinct_outside",
    "lazy_tail",
    "log_sum_exp",
    "order_draws",
    "softmax_draws",
    "uniform_outside",
]


_ROWS_AT_ONCE = 2**20


def log_sum_exp(logits: Floats) -> float:
    """log sum exp over a vector; minus infinity when it is empty or all minus infinity."""
    top = logits.max(initial=-np.inf)
    if top == -np.inf:
        return -np.inf
    return float(top + np.log(np.exp(logits - top).sum()))


def softmax_draws(rng: np.random.Generator, ids: Ints, logits: Floats, size: int) -> tuple[Ints, Floats]:
    """Winners and winning values of `size` rounds of Gumbel-max over these rows.

    The winner is categorical, its perturbed value is Gumbel with location log sum exp, and the two are independent: so
    a round costs one uniform and one Gumbel instead of one Gumbel a row. With no rows, values are minus infinity.
    """
    top = logits.max(initial=-np.inf)
    if top == -np.inf:
        return np.zeros(size, dtype=np.int64), np.full(size, -np.inf)
    cumulative: Floats = np.cumsum(np.exp(logits - top))
    # side="right" never picks an entry of weight zero; nor does the guard against rounding at the very top.
    targets: Floats = rng.random(size) * cumulative[-1]
    chosen = np.searchsorted(cumulative, targets, side="right")
    last = np.searchsorted(cumulative, cumulative[-1:])
    return ids[np.minimum(chosen, last)], top + np.log(cumulative[-1]) + gumbel(rng, size)


def uniform_outside(rng: np.random.Generator, n: int, taken: Ints, size: int) -> Ints:
    """`size` uniform draws, with replacement, from the ids in [0, n) that are not in the sorted `taken`."""
    return _skip(rng.integers(n - len(taken), size=size), taken)


def distinct_outside(rng: np.random.Generator, n: int, taken: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For each j, counts[j] distinct uniform ids outside the sorted `taken`; flat ids and their j, sorted by j.

    Draws with replacement until enough distinct ids are there: by symmetry every set of that size is equally likely.
    """
    left = n - len(taken)
    keys = np.empty(0, dtype=np.int64)
    missing = counts
    while missing.any():
        round_of = np.repeat(np.arange(len(counts)), missing)
        keys = np.sort(np.concatenate([keys, round_of * left + rng.integers(left, size=len(round_of))]))
        keys = keys[np.diff(keys, prepend=-1) != 0]
        missing = counts - np.bincount(keys // left, minlength=len(counts))
    return _skip(keys % left, taken), keys // left


class Candidates(NamedTuple):
    """Rows of one theta with their logits and perturbed logits."""

    ids: Ints
    logits: Floats
    values: Floats

    @classmethod
    def none(cls) -> "Candidates":
        """No rows."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    def plus(self, more: "Candidates") -> "Candidates":
        """Both sets of rows."""
        return Candidates(
            np.concatenate([self.ids, more.ids]),
            np.concatenate([self.logits, more.logits]),
            np.concatenate([self.values, more.values]),
        )

    def largest(self, size: int) -> "Candidates":
        """The rows of largest perturbed logit, in decreasing order."""
        kept = np.arange(len(self.ids))
        if size < len(kept):
            kept = np.argpartition(-self.values, size - 1)[:size]
        kept = kept[np.argsort(-self.values[kept], kind="stable")]
        return Candidates(self.ids[kept], self.logits[kept], self.values[kept])


def order_draws(candidates: list[Candidates], size: int, rows: Ints, grounds: Grounds) -> OrderedDraws:
    """The first `size` of each theta's candidates; the next one sets the threshold."""
    ranked = [c.largest(size + 1) for c in candidates]
    return OrderedDraws(
        np.array([c.ids[:size] for c in ranked], dtype=np.int64).reshape(len(ranked), size).T,
        np.array([c.logits[:size] for c in ranked]).reshape(len(ranked), size).T,
        np.array([c.values[:size] for c in ranked]).reshape(len(ranked), size).T,
        np.array([c.values[size] if len(c.values) > size else -np.inf for c in ranked]),
        rows,
        grounds,
    )


def lazy_tail(query: Query, b: int, head: Head, cutoffs: Floats, rng: np.random.Generator) -> Draws:
    """For each cutoff one round of Gumbel-max over the tail rows whose Gumbel exceeds it, shape (len(cutoffs),).

    Where no Gumbel does, the value is minus infinity. Rounds that are expected to look at more than half of the tail
    are run over all of it instead (their Gumbels are then not conditioned, which is as right: the tail is independent
    of the head).
    """
    n, taken = query.features.n, head.taken(query.excluded[b])
    ids = np.zeros(len(cutoffs), dtype=np.int64)
    values = np.full(len(cutoffs), -np.inf)
    rows = 0
    left = n - len(taken)
    dense = (tail_probability(cutoffs) > 0.5) & (left > 0)
    if dense.any():
        ids[dense], values[dense] = _dense_tail(query, b, taken, int(dense.sum()), rng)
        rows += left
    lazy = np.flatnonzero(~dense)
    counts = tail_count(rng, left, cutoffs[lazy])
    for part in _chunks(counts):
        looked, round_of = distinct_outside(rng, n, taken, counts[part])
        if not len(looked):
            continue
        rounds = lazy[part][round_of]
        perturbed = query.logits(b, looked) + gumbel_above(rng, cutoffs[rounds])
        starts = np.flatnonzero(np.diff(rounds, prepend=-1))
        best = np.maximum.reduceat(perturbed, starts)
        winners = np.flatnonzero(perturbed == np.repeat(best, np.diff(starts, append=len(rounds))))
        ids[rounds[winners]], values[rounds[winners]] = looked[winners], perturbed[winners]
        rows += len(looked)
    return Draws(ids, values, np.asarray(rows), EXACT)


def _dense_tail(query: Query, b: int, taken: Ints, size: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    one = replace(query.at(slice(b, b + 1)), excluded=(taken,))
    ids = np.zeros(size, dtype=np.int64)
    values = np.full(size, -np.inf)
    for block in one.dense():
        block_ids, block_values = softmax_draws(rng, block.ids, block.logits[0], size)
        wins = block_values > values
        ids[wins], values[wins] = block_ids[wins], block_values[wins]
    return ids, values


def _chunks(counts: Ints) -> list[slice]:
    """Slices of the rounds so that each looks at about 2^20 rows, or is one round."""
    group = np.cumsum(counts) // _ROWS_AT_ONCE
    edges = np.flatnonzero(np.diff(group, prepend=-1))
    return [slice(int(a), int(z)) for a, z in zip(edges, [*edges[1:], len(counts)], strict=True)] if len(counts) else []


def _skip(ranks: Ints, taken: Ints) -> Ints:
    """The ids that are `ranks`-th among those not in the sorted `taken`."""
    return ranks + np.searchsorted(taken - np.arange(len(taken)), ranks, side="right")
