"""The loss over rows that learn: an index over what they were chooses some, and their vectors of now are weighed.

A row is chosen with a known probability, which depends on the index alone. Weighed by one over it, Z of the rows as
they are now is estimated without bias, however old the index is; the older, the more it varies. The target is in the
sum for certain, with weight one, and not among what is chosen (the corrected log-Q treatment).
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.methods import Query
from lazygumbel.methods.proposals import Proposed
from lazygumbel.results import HEURISTIC, Estimate
from lazygumbel.torch.checks import check_rows
from lazygumbel.torch.functions import Pairs, with_gradients

__all__ = ["Embedding", "losses_of"]

Embedding = Callable[[Tensor], Tensor]
"""From ids (m,) to vectors (m, d)."""


def losses_of(
    proposed: Sequence[Proposed], theta: Tensor, ids: Ints, rows: Embedding, query: Query
) -> tuple[Tensor, Estimate]:
    """Losses (B,) of targets with these ids, and what was found of log Z, from the rows proposed for each theta."""
    each = np.arange(len(ids))
    sizes = np.array([len(one.ids) for one in proposed], dtype=np.int64)
    owner, starts = np.repeat(each, sizes), np.cumsum(sizes) - sizes
    unique, places = _distinct(np.concatenate([ids, *(one.ids for one in proposed)]))
    vectors = check_rows(rows, torch.as_tensor(unique), theta.shape[1])
    values = np.ascontiguousarray(vectors.detach().numpy(), dtype=np.float32)
    owners = np.concatenate([each, owner])
    logits = kernels.gather_dot(values, places, query.thetas, owners).astype(np.float64) / query.temperature
    # In units of the target's weight; of all the rows that one theta proposes the heaviest is taken out of exponents.
    target = logits[: len(ids)]
    others = logits[len(ids) :] - target[owner] + np.concatenate([np.empty(0), *(one.log_weights for one in proposed)])
    shift = np.maximum(np.maximum.reduceat(others, starts), 0.0) if len(ids) else np.empty(0)
    weights, known = np.exp(others - shift[owner]), np.exp(-shift)
    total = known + np.bincount(owner, weights, len(ids))
    losses = shift + np.log(total)
    derivatives = np.concatenate([known / total - 1, weights / total[owner]]) / query.temperature
    pairs = Pairs(owners, places, derivatives.astype(np.float32))
    certain = np.array([one.certain for one in proposed], dtype=np.int64)
    chance = np.where(np.arange(len(owner)) - starts[owner] >= certain[owner], weights, 0.0)
    stderr = _deviation(chance, owner, sizes - certain) / total
    found = Estimate(losses + target, stderr, sizes + 1, np.broadcast_to(HEURISTIC, total.shape))
    return with_gradients(theta, vectors, losses, pairs), found


def _distinct(ids: Ints) -> tuple[Ints, Ints]:
    """The distinct ids, ascending, and where among them each is."""
    present = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.bool_)
    present[ids] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[ids]


def _deviation(weights: Floats, owner: Ints, counts: Ints) -> Floats:
    """Standard deviations of the sums, as if the rows had been drawn without strata: no smaller than they are."""
    sums, squares = (np.bincount(owner, values, len(counts)) for values in (weights, weights**2))
    counts = np.maximum(counts, 1)
    scatter = np.maximum(squares - sums**2 / counts, 0.0)
    return np.sqrt(scatter * counts / np.maximum(counts - 1, 1))
