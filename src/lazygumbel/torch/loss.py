"""`LogLinearLoss`: the negative log-likelihood of target rows among all rows."""

from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.checks import check_number
from lazygumbel.distribution import Distribution, Rng
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.losses import losses_at
from lazygumbel.methods import Bounded, Estimator
from lazygumbel.methods.defaults import LEARNING
from lazygumbel.methods.proposals import propose
from lazygumbel.model import LogLinear
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.protocols import Model, check_model
from lazygumbel.results import Estimate
from lazygumbel.torch.checks import (
    check_estimator,
    check_rows,
    check_targets,
    check_thetas,
    check_weight,
)
from lazygumbel.torch.functions import with_gradient
from lazygumbel.torch.learnt import Embedding, losses_of

__all__ = ["LogLinearLoss"]

F = TypeVar("F")
Reduction = Literal["mean", "sum", "none"]


_AT_ONCE = 65_536
"""Rows that are encoded together."""


def _untraced(function: F) -> F:
    """Left alone by `torch.compile`, which would translate the NumPy inside into torch, and fail at it."""
    return cast("F", cast("Any", torch.compiler).disable(function))


class LogLinearLoss(torch.nn.Module):
    """Negative log-likelihood of target rows: `loss(theta, target)`, theta (B, d) and ids (B,), on the CPU.

    `method` estimates log Z and E[phi]; by default `Bounded(rel_err=0.05)` over a `PartitionIndex`, and the default of
    the model on any other. The target is in the sums for certain, all else is sampled: value and gradient are then
    estimates, of a bias that is small beside rel_err. `reduction`, `weight`, `ignore_index` and `label_smoothing` are
    those of `torch.nn.CrossEntropyLoss`. `rng` is the loss's own: torch.manual_seed does not reach it. Not
    differentiable twice.
    """

    weight: Tensor | None

    def __init__(
        self,
        model: Model,
        *,
        temperature: float = 1.0,
        method: Estimator | None = None,
        reduction: Reduction = "mean",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        rng: Rng = None,
    ) -> None:
        super().__init__()
        check_model(model)
        check_estimator(method)
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
        self.model = model
        self.temperature = check_number(temperature, "temperature", above=0.0)
        self.method = method
        self.reduction = reduction
        self.register_buffer("weight", check_weight(weight, model.size), persistent=False)
        self.ignore_index = ignore_index
        self.label_smoothing = check_number(label_smoothing, "label_smoothing", least=0.0, below=1.0)
        if self.label_smoothing and not isinstance(model, LogLinear):
            raise ValueError(
                "label_smoothing needs the mean of all rows, which this model does not have at hand: give 0"
            )
        self.last: Estimate | None = None
        """The estimate behind the last call, of what was not ignored: labels, rows looked at, standard errors."""
        self._rng = np.random.default_rng(rng)
        self._mean: tuple[object, Vectors, float] | None = None

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"temperature={self.temperature:g}, method={self.method!r}, reduction={self.reduction!r}"

    @_untraced
    def forward(self, theta: Tensor, target: Tensor, rows: Embedding | None = None) -> Tensor:
        """A scalar, or (B,) without reduction, in theta's dtype. Without gradients E[phi] is not computed.

        `rows` are those that learn: a function from ids (m,) to their vectors (m, d) as they are now, through which
        gradients pass, such as a `torch.nn.Embedding`. The model is then what chooses rows, and may be out of date.
        """
        thetas = check_thetas(theta, self.model)
        ids, kept = check_targets(target, len(thetas), self.model, self.ignore_index)
        if not kept.all():
            theta, thetas = theta[torch.as_tensor(kept)], thetas[kept]
        losses = self._fixed(theta, thetas, ids) if rows is None else self._learnt(theta, thetas, ids, rows)
        losses, total = self._weighed(losses, theta, ids)
        if self.reduction == "none":
            return losses if kept.all() else losses.new_zeros(len(kept)).masked_scatter(torch.as_tensor(kept), losses)
        return losses.sum() / total if self.reduction == "mean" else losses.sum()

    def _fixed(self, theta: Tensor, thetas: Vectors, ids: Ints) -> Tensor:
        """Losses (B,) over the rows of the model."""
        wanted = theta.requires_grad and torch.is_grad_enabled()
        values, gradient, self.last = losses_at(
            self.model, thetas, ids, self.temperature, method=self.method, rng=self._rng, gradient=wanted
        )
        if gradient is not None:
            return with_gradient(theta, values, gradient)
        return torch.as_tensor(values, dtype=theta.dtype)

    def _learnt(self, theta: Tensor, thetas: Vectors, ids: Ints, rows: Embedding) -> Tensor:
        """Losses (B,) over rows as they are now, of which the model's index chooses some."""
        method = self.method or LEARNING
        if self.label_smoothing:
            raise ValueError(
                "label_smoothing moves every row at every step, sampled or not: give 0 with rows that learn"
            )
        if not isinstance(method, Bounded):
            raise ValueError(f"method: rows that learn need Bounded(rel_err=...), not {method!r}")
        model, known = self._choosing().settled(), self.model.ids
        places = np.searchsorted(known, ids)
        query = Distribution(model.index, thetas, self.temperature).query(list(places[:, None]))
        proposed = propose(query, method.rel_err, self._rng)
        named = [one._replace(ids=known[one.ids]) for one in proposed]
        losses, self.last = losses_of(named, theta, ids, rows, query)
        return losses

    @torch.no_grad()
    def refresh(self, rows: Embedding, *, progress: ShowProgress = None) -> None:
        """Put rows that learn into the model as they are now, some at a time, so that it chooses well again.

        Losses are right without it, but vary more the further rows have moved: see `last.stderr`.
        """
        model = self._choosing()
        bars, ids, d = choose(progress), model.ids, model.features.d
        found = np.empty((len(ids), d), dtype=np.float32)
        with bars.task("encoding rows", len(ids)) as task:
            for start in range(0, len(ids), _AT_ONCE):
                some = slice(start, start + _AT_ONCE)
                found[some] = check_rows(rows, torch.as_tensor(ids[some]), d).numpy()
                task.advance(len(ids[some]))
        model.replace(ids, found)
        model.compact(bars)

    def _choosing(self) -> LogLinear:
        """The model, if it can choose among rows that learn."""
        if not (isinstance(self.model, LogLinear) and issubclass(self.model.index_type, ExactIndex | PartitionIndex)):
            raise ValueError("model: rows that learn need a LogLinear over a PartitionIndex or an ExactIndex")
        return self.model

    def _weighed(self, losses: Tensor, theta: Tensor, ids: Ints) -> tuple[Tensor, Tensor | int]:
        """Losses with weights and smoothing, and what their sum is divided by for a mean."""
        smooth, weights, total = self.label_smoothing, None, len(ids)
        if self.weight is not None:
            check_weight(self.weight, self.model.size)  # rows may have come since
            weights = self.weight[torch.as_tensor(ids)].to(theta.dtype)
            total = weights.sum()
        if not smooth:
            return losses if weights is None else losses * weights, total
        # log Z - logit of every row, averaged: of the target's row that is the loss, and the rest is linear in theta.
        mean, weight = self._mean_row()
        targets = torch.as_tensor(weight * self.model.features.gather(ids) - mean, dtype=theta.dtype)
        own = 1.0 if weights is None else weights
        linear = (theta * targets).sum(dim=1) * (smooth / self.temperature)
        return ((1 - smooth) * own + smooth * weight) * losses + linear, total

    def _mean_row(self) -> tuple[Vectors, float]:
        """The mean over all rows of weight times row, (d,), and of the weight; read again when rows have changed."""
        features = cast("LogLinear", self.model).features
        if self._mean is None or self._mean[0] is not features:
            weights = np.ones(self.model.size) if self.weight is None else self.weight.numpy().astype(np.float64)
            sums = sum(weights[ids] @ rows for ids, rows in features.blocks())
            weight = float(weights[self.model.ids].mean())
            self._mean = features, np.asarray(sums / features.n, dtype=np.float32), weight
        return self._mean[1:]
