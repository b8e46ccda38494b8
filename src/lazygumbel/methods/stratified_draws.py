"""Draws by `Stratified`: the winners of looks, and the first K of one look."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.methods.draw import Candidates
from lazygumbel.methods.plan import Plan

__all__ = ["Winners", "candidates", "winners"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NUMBERS_AT_ONCE = 2**18
"""Random numbers that are drawn at once: 2 MB."""
_SPARE = 64
"""Random numbers beyond ten standard deviations, for small numbers."""


class Winners(NamedTuple):
    """The winners of looks, all (B, size); a look that nothing could win has value minus infinity."""

    ids: Ints
    values: Floats
    rows: Ints
    """Rows looked at; what all draws of a theta share counts for the first of them."""
    failed: int
    """How many looks nothing could win."""


class _Part(NamedTuple):
    """Some draws of some thetas: their random numbers, (thetas, draws, room) and (thetas, draws)."""

    thetas: Sequence[int]
    exponentials: Floats
    uniforms: Floats

    @classmethod
    def draw(cls, thetas: Sequence[int], size: int, room: int, rng: np.random.Generator) -> "_Part":
        """Fresh random numbers."""
        shape = (len(thetas), size)
        return cls(thetas, rng.standard_exponential((*shape, room)), rng.random(shape))


def winners(plan: Plan, thetas: Sequence[int], size: int, rng: np.random.Generator) -> Winners:
    """`size` draws for each of these thetas."""
    hits = max((plan.levels.hits[plan.lines[b]] for b in thetas), default=0.0)
    room = max(1, int(hits + 10 * sqrt(hits)) + _SPARE)
    draws = max(1, min(size, _NUMBERS_AT_ONCE // room))
    step = max(1, _NUMBERS_AT_ONCE // (room * draws))
    if len(thetas) <= step and size == draws:
        return _part(plan, thetas, size, room, rng)
    shape = (len(thetas), size)
    found = np.zeros(shape, np.int64), np.full(shape, -np.inf), np.zeros(shape, np.int64)
    failed = 0
    for a in range(0, len(thetas), step):
        for s in range(0, size, draws):
            some = slice(a, a + step), slice(s, s + draws)
            *part, more = _part(plan, thetas[some[0]], min(draws, size - s), room, rng)
            for held, column in zip(found, part, strict=True):
                held[some] = column
            failed += more
    return Winners(*found, failed)


def _part(plan: Plan, thetas: Sequence[int], size: int, room: int, rng: np.random.Generator) -> Winners:
    part = _Part.draw(thetas, size, room, rng)
    won = _carry_out(plan, part)
    return _finish(plan, part, won, rng) if won.failed else won


def candidates(plan: Plan, b: int, rng: np.random.Generator) -> tuple[Candidates, int]:
    """Every row that one look at theta b saw, perturbed, excluded rows left out; and how many were looked at."""
    exponentials = np.empty(0)
    hits = plan.rows[b] + plan.levels.hits[plan.lines[b]]
    while True:
        # More of the same stream: what was read is read again, so that a long look is continued, not drawn anew.
        exponentials = np.concatenate([exponentials, rng.standard_exponential(int(1.2 * hits) + 300)])
        count, positions, logits, values = kernels.look(
            plan.index.features.stored,
            plan.index.offsets,
            plan.survey.buckets[b],
            plan.levels.table[plan.lines[b]],
            plan.query.thetas[b],
            1.0 / plan.query.temperature,
            exponentials,
        )
        if count >= 0:
            break
    ids = plan.index.order[positions]
    if len(plan.query.excluded[b]):
        kept = np.isin(ids, plan.query.excluded[b], invert=True)
        ids, logits, values = ids[kept], logits[kept], values[kept]
    return Candidates(ids, logits, values), count


def _carry_out(plan: Plan, part: _Part) -> Winners:
    queries, buckets, banned, ends = plan.of(part.thetas)
    positions, values, rows, failed = kernels.winners(
        plan.index.features.stored,
        *plan.index.codes,
        plan.index.offsets,
        buckets,
        plan.levels.table[[plan.lines[b] for b in part.thetas]],
        queries,
        1.0 / plan.query.temperature,
        banned,
        ends,
        part.exponentials,
        part.uniforms,
    )
    return Winners(plan.index.order[positions], values, rows, failed)


def _finish(plan: Plan, part: _Part, won: Winners, rng: np.random.Generator) -> Winners:
    """Continue the looks whose random numbers ran out, each with more of its own stream."""
    for j, s in zip(*np.nonzero(won.rows < 0), strict=True):
        stream = part.exponentials[j, s]
        while won.rows[j, s] < 0:
            stream = np.concatenate([stream, rng.standard_exponential(len(stream))])
            alone = _Part(part.thetas[j : j + 1], stream[None, None], part.uniforms[j : j + 1, s : s + 1])
            for column, again in zip(won[:3], _carry_out(plan, alone)[:3], strict=True):
                column[j, s] = again[0, 0]
    return won._replace(failed=int(np.isneginf(won.values).sum()))
