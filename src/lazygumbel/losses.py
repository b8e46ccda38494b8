"""The negative log-likelihood of rows and its gradient, in NumPy: what a loss is made of in any framework."""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.distribution import Rng
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods import Estimator
from lazygumbel.methods.defaults import TRAINING
from lazygumbel.model import LogLinear
from lazygumbel.protocols import Model
from lazygumbel.results import EXACT, Estimate, Moments

__all__ = ["Losses", "default_method", "losses_at"]


class Losses(NamedTuple):
    """Of a batch of thetas, each with a target of its own."""

    values: Floats
    """(B,)"""
    gradient: Floats | None
    """By theta, (B, d); None if it was not asked for."""
    estimate: Estimate
    """Of log Z, or of E[phi] if there is a gradient."""


def losses_at(
    model: Model,
    thetas: Vectors,
    targets: Ints,
    temperature: float,
    *,
    method: Estimator | None,
    rng: Rng,
    gradient: bool,
) -> Losses:
    """log Z - theta . phi_target / temperature for thetas (B, d) and targets (B,).

    The target is in the sums for certain, all else is estimated, once for value and gradient.
    """
    dist = model(thetas, temperature=temperature)
    ask = dist.expectation if gradient else dist.log_partition
    rest = ask(method=method or default_method(model), rng=rng, exclude=list(targets[:, None]))
    rows = model.features.gather(targets).astype(np.float64)
    logits = np.einsum("bd,bd->b", thetas, rows, dtype=np.float64) / temperature
    found = rest.merge(_known(logits, rows if gradient else None))
    moments = cast("Moments", found.moments)  # all that merge hold them
    values = moments.shift + np.log(moments.total) - logits
    return Losses(values, (found.value - rows) / temperature if gradient else None, found)


def default_method(model: Model) -> Estimator | None:
    """What estimates where the user names no method; None for the default of the model."""
    indexed = isinstance(model, LogLinear) and issubclass(model.index_type, PartitionIndex)
    return TRAINING if indexed else None


def _known(logits: Floats, rows: Floats | None) -> Estimate:
    """What is known of targets: each a set of one row."""
    ones, zeros = np.ones(len(logits), dtype=np.int64), np.zeros(len(logits))
    make: Callable[..., Estimate] = Estimate.of_log_partition
    sums = Moments(logits, ones.astype(np.float64), zeros)
    if rows is not None:
        make, nothing = Estimate.of_expectation, np.zeros_like(rows)
        sums = Moments(logits, sums.total, zeros, rows, nothing, nothing)
    return make(sums, ones, np.broadcast_to(EXACT, logits.shape), zeros)
