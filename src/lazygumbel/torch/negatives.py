"""Rows drawn from the softmax for sampled losses of one's own."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lazygumbel._support.checks import check_count
from lazygumbel.distribution import Rng
from lazygumbel.losses import default_method
from lazygumbel.methods import Estimator, Sampler
from lazygumbel.protocols import Model, check_model
from lazygumbel.torch.checks import check_estimator, check_thetas

__all__ = ["Negatives", "negatives"]


class Negatives(NamedTuple):
    """Rows drawn with replacement; neither tensor carries gradients."""

    ids: Tensor
    """(B, k), int64."""
    log_propensity: Tensor
    """(B, k), in theta's dtype: log of the probability that one draw gives this row."""


def negatives(
    model: Model,
    theta: Tensor,
    k: int,
    *,
    temperature: float = 1.0,
    sampler: Sampler | None = None,
    estimator: Estimator | None = None,
    rng: Rng = None,
) -> Negatives:
    """k independent draws from the softmax at each theta (B, d), for a sampled loss of your own.

    The log propensity is theta . phi / temperature - log Z, with one estimate of log Z for all draws of a theta,
    independent of them: its error is shared by them. `sampler` defaults to that of the model, `estimator` to that of
    `LogLinearLoss`.
    """
    check_model(model)
    thetas = check_thetas(theta, model)
    check_estimator(estimator, "estimator")
    count, generator = check_count(k, "k"), np.random.default_rng(rng)
    dist = model(thetas, temperature=temperature)
    ids = dist.sample(count, method=sampler, rng=generator).ids
    log_prob = dist.log_prob(ids, method=estimator or default_method(model), rng=generator)
    return Negatives(
        torch.as_tensor(np.ascontiguousarray(ids.T)),
        torch.as_tensor(np.ascontiguousarray(log_prob.value.T), dtype=theta.dtype),
    )
