"""`Stratified`: lazy Gumbels with a calibrated rate per cell. The default on a `PartitionIndex`.

Algorithm 2 looks at every tail row with the same small probability. Here each cell has a rate by its rank: a row is
looked at when its Gumbel exceeds the cutoff of its cell, cells of rate one are enumerated, and the winner is the
largest perturbed logit of the rows looked at. Inclusion is independent and its probability known, so the same kind of
look gives Z and every expectation by Horvitz-Thompson: sum of exp(logit) / rate is unbiased, with the unbiased
variance sum of exp(2 logit) (1 - rate) / rate^2.
"""

from dataclasses import dataclass

import numpy as np

from lazygumbel.checks import check_number
from lazygumbel.methods.base import Function, Query, Seen
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.plan import Looked, Plan
from lazygumbel.methods.weighing import stack
from lazygumbel.results import Draws, Label, Moments, worse_label

__all__ = ["Stratified"]

_THETAS_AT_ONCE = 256
"""Thetas that are routed together: with 8,192 cells 25 MB, and as much again for random numbers, whatever the batch."""


@dataclass(frozen=True)
class Stratified:
    """The calibrated method; needs a `PartitionIndex` and a model that was calibrated (`build` does both).

    `rel_err` is the relative error of Z that estimates aim at, by default what the model was calibrated for. Labelled
    calibrated for thetas like those it was calibrated on; others get a wider look and are labelled heuristic, and so
    are answers with rows excluded, since those were not audited.
    """

    rel_err: float | None = None

    def __post_init__(self) -> None:
        if self.rel_err is not None:
            check_number(self.rel_err, "rel_err", above=0.0, below=1.0)

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Independent samples; where they would look at more rows than one dense pass costs, that pass is made."""
        ids = np.zeros((size, query.size), dtype=np.int64)
        values = np.full((size, query.size), -np.inf)
        rows = np.zeros(query.size, dtype=np.int64)
        label: Label = "exact"
        for start in range(0, query.size, _THETAS_AT_ONCE):
            part = slice(start, start + _THETAS_AT_ONCE)
            drawn = _sample_some(query.at(part), size, rng)
            ids[:, part], values[:, part], rows[part] = drawn.ids, drawn.values, drawn.rows
            label = worse_label(label, drawn.label)
        return Draws(ids, values, rows, label)

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Horvitz-Thompson sums from one look a theta; a theta whose look would cost a dense pass gets that."""
        parts: list[Moments] = []
        rows: list[int] = []
        label: Label = "exact"
        for start in range(0, query.size, _THETAS_AT_ONCE):
            some = query.at(slice(start, start + _THETAS_AT_ONCE))
            plan = Plan.of(some, self.rel_err, estimate=True)
            for b in range(some.size):
                if plan.expected[b] > query.features.n / 2:
                    seen = Exhaustive().moments(some.at(slice(b, b + 1)), f, rng)
                    parts.append(seen.moments.at(0))
                    rows.append(query.features.n)
                else:
                    looked = plan.look(b, rng)
                    parts.append(_horvitz_thompson(looked, f))
                    rows.append(len(looked.ids))
                    label = worse_label(label, plan.label(b))
        return Seen(stack(parts), np.array(rows, dtype=np.int64), label)


def _sample_some(query: Query, size: int, rng: np.random.Generator) -> Draws:
    plan = Plan.of(query, None)
    dense = plan.expected * size > query.features.n / 2
    ids = np.zeros((size, query.size), dtype=np.int64)
    values = np.full((size, query.size), -np.inf)
    rows = np.zeros(query.size, dtype=np.int64)
    lazy = np.flatnonzero(~dense)
    restricted = any(len(query.excluded[b]) for b in lazy)
    if len(lazy) and size and not restricted:
        found = plan.winners(np.tile(lazy, size), rng)
        ids[:, lazy] = found.ids.reshape(size, -1)
        values[:, lazy] = found.values.reshape(size, -1)
        rows[lazy] = found.rows.reshape(size, -1).sum(axis=0)
    elif restricted:
        for b in lazy:
            for j in range(size):
                looked = plan.look(int(b), rng)
                rows[b] += len(looked.ids)
                if len(looked.ids):
                    best = looked.values.argmax()
                    ids[j, b], values[j, b] = looked.ids[best], looked.values[best]
    for b in range(query.size):
        lost = np.flatnonzero(np.isneginf(values[:, b]))  # a dense theta, or a look that saw no row at all
        if len(lost):
            drawn = Exhaustive().sample(query.at(slice(b, b + 1)), len(lost), rng)
            ids[lost, b], values[lost, b] = drawn.ids[:, 0], drawn.values[:, 0]
            rows[b] += query.features.n
    label: Label = "exact"
    for b in lazy:
        label = worse_label(label, plan.label(int(b)))
    return Draws(ids, values, rows, label)


def _horvitz_thompson(looked: Looked, f: Function | None) -> Moments:
    """Unbiased sums and variances from rows included independently with known rates; batch shape ()."""
    if not len(looked.ids):  # nothing was seen: the sums are zero and say nothing about their error
        zero, unknown = np.zeros(()), np.full((), np.inf)
        empty = None if f is None else np.zeros_like(f(np.zeros(1, np.int64), np.zeros(1))[0], dtype=np.float64)
        return Moments(np.full((), -np.inf), zero, unknown, empty, empty, empty)
    shift = looked.logits.max()
    weights = np.exp(looked.logits - shift) / looked.rates
    spread = weights**2 * (1.0 - looked.rates)
    total, var_total = np.asarray(weights.sum()), np.asarray(spread.sum())
    if f is None:
        return Moments(np.asarray(shift), total, var_total)
    at = f(looked.ids, looked.logits)
    return Moments(
        np.asarray(shift),
        total,
        var_total,
        np.asarray(weights @ at),
        np.asarray(spread @ at**2),
        np.asarray(spread @ at),
    )
