"""Draws by `Stratified`: the winners of looks, and the first K of one look."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.methods.draw import Candidates
from lazygumbel.methods.plan import Plan

__all__ = ["Winners", "candidates", "winners"]


class Winners(NamedTuple):
    """The winners of looks, all (B, size); a look that nothing could win has value minus infinity."""

    ids: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    """Rows looked at; what all draws of a theta share counts for the first of them."""
    failed: int
    """How many looks nothing could win."""


def winners(plan: Plan, thetas: Sequence[int], size: int, rng: np.random.Generator) -> Winners:
    """`size` draws for each of these thetas."""
    queries, buckets, banned, ends = plan.of(thetas)
    positions, values, rows, failed = kernels.winners(
        plan.index.features.stored,
        *plan.index.codes,
        plan.index.offsets,
        buckets,
        plan.table(thetas),
        queries,
        1.0 / plan.query.temperature,
        banned,
        ends,
        rng.random((len(thetas), size, 2)),
    )
    return Winners(plan.index.order[positions], values, rows, failed)


def candidates(plan: Plan, b: int, rng: np.random.Generator) -> tuple[Candidates, int]:
    """Every row that one look at theta b saw, perturbed, excluded rows left out; and how many were looked at."""
    positions, logits, values = kernels.look(
        plan.index.features.stored,
        plan.index.offsets,
        plan.survey.buckets[b],
        plan.levels.table[plan.lines[b]],
        plan.query.thetas[b],
        1.0 / plan.query.temperature,
        rng.random(2),
    )
    ids = plan.index.order[positions]
    if len(plan.query.excluded[b]):
        kept = np.isin(ids, plan.query.excluded[b], invert=True)
        ids, logits, values = ids[kept], logits[kept], values[kept]
    return Candidates(ids, logits, values), len(positions)
