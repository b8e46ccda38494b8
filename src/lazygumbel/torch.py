"""The softmax over all rows as the loss of a PyTorch encoder; needs the extra `torch`.

For theta from an encoder and a target row the negative log-likelihood is log Z - theta . phi_target / temperature, and
its gradient is (E[phi] - phi_target) / temperature. One look at the rows gives log Z and E[phi], so that a training
step costs that look: the backward pass only multiplies.
"""

from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_count, check_ids, check_number, check_vectors
from lazygumbel.distribution import Rng
from lazygumbel.extras import require
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods import Bounded, Estimator, Sampler
from lazygumbel.model import LogLinear
from lazygumbel.protocols import Model
from lazygumbel.results import Estimate, Moments

require("torch", extra="torch")

import torch  # noqa: E402  # after the line that names the cure
from torch import Tensor  # noqa: E402
from torch.autograd import Function  # noqa: E402

__all__ = ["LogLinearLoss", "Negatives", "negatives"]

F = TypeVar("F")
Reduction = Literal["mean", "sum", "none"]

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_TRAINING = Bounded(rel_err=0.05)
"""For training: beside the noise of a minibatch 5% of Z does not show, and it takes a tenth of the rows of 1%."""


def _untraced(function: F) -> F:
    """Left alone by `torch.compile`, which would translate the NumPy behind a look into torch, and fail at it."""
    return cast("F", cast("Any", torch.compiler).disable(function))


class LogLinearLoss(torch.nn.Module):
    """Negative log-likelihood of target rows: `loss(theta, target)`, theta (B, d) and ids (B,), on the CPU.

    `method` estimates log Z and E[phi]; by default `Bounded(rel_err=0.05)` over a `PartitionIndex`, and the default of
    the model on any other. Value and gradient are then estimates, of a bias that is small beside rel_err. `rng` is the
    loss's own: torch.manual_seed does not reach it. Not differentiable twice.
    """

    def __init__(
        self,
        model: Model,
        *,
        temperature: float = 1.0,
        method: Estimator | None = None,
        reduction: Reduction = "mean",
        rng: Rng = None,
    ) -> None:
        super().__init__()
        if not (callable(model) and hasattr(getattr(model, "features", None), "gather")):  # callers may be untyped
            raise ValueError(f"model must be a LogLinear, not {type(model).__name__}: give LogLinear.build(rows)")
        _check_method(method)
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
        self.model = model
        self.temperature = check_number(temperature, "temperature", above=0.0)
        self.method = method
        self.reduction = reduction
        self.last: Estimate | None = None
        """The estimate behind the last call: its label, the rows looked at, standard errors."""
        self._rng = np.random.default_rng(rng)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"temperature={self.temperature:g}, method={self.method!r}, reduction={self.reduction!r}"

    @_untraced
    def forward(self, theta: Tensor, target: Tensor) -> Tensor:
        """A scalar, or (B,) without reduction, in theta's dtype. Without gradients E[phi] is not computed."""
        thetas = _thetas(theta, self.model)
        ids = _targets(target, len(thetas), self.model)
        if theta.requires_grad and torch.is_grad_enabled():
            losses = _apply(_Losses, theta, self, thetas, ids)
        else:
            losses = torch.as_tensor(self._look(thetas, ids, gradient=False)[0], dtype=theta.dtype)
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def _look(self, thetas: Vectors, ids: Ints, *, gradient: bool) -> tuple[Floats, Floats | None]:
        """Losses (B,) and, when asked for, their gradients (B, d)."""
        dist = self.model(thetas, temperature=self.temperature)
        ask = dist.expectation if gradient else dist.log_partition
        self.last = found = ask(method=self.method or _default(self.model), rng=self._rng)
        moments = cast("Moments", found.moments)  # both kinds of estimate hold them
        rows = self.model.features.gather(ids).astype(np.float64)
        logits = np.einsum("bd,bd->b", thetas, rows, dtype=np.float64) / self.temperature
        losses = moments.shift + np.log(moments.total) - logits
        return losses, (found.value - rows) / self.temperature if gradient else None


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

    The log propensity is theta . phi / temperature - log Z, with one estimate of log Z for all draws of a theta, from
    a look of its own: its error is shared by them. `sampler` defaults to that of the model, `estimator` to the default
    method of `LogLinearLoss`.
    """
    thetas = _thetas(theta, model)
    _check_method(estimator, "estimator")
    count, generator = check_count(k, "k"), np.random.default_rng(rng)
    dist = model(thetas, temperature=temperature)
    ids = dist.sample(count, method=sampler, rng=generator).ids
    log_prob = dist.log_prob(ids, method=estimator or _default(model), rng=generator)
    return Negatives(
        torch.as_tensor(np.ascontiguousarray(ids.T)),
        torch.as_tensor(np.ascontiguousarray(log_prob.value.T), dtype=theta.dtype),
    )


class _Losses(Function):
    """Losses of a batch, each with its own gradient."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, loss: LogLinearLoss, thetas: Vectors, ids: Ints) -> Tensor:
        losses, gradients = loss._look(thetas, ids, gradient=True)  # pyright: ignore[reportPrivateUsage]
        ctx.save_for_backward(theta, torch.as_tensor(gradients, dtype=theta.dtype))
        return torch.as_tensor(losses, dtype=theta.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        theta, gradients = ctx.saved_tensors
        return grad_outputs[0][:, None] * _apply(_Once, theta, gradients), None, None, None


class _Once(Function):
    """The gradients as they are; differentiating them again is refused.

    `once_differentiable` would let a second pass through, one term short, wherever the incoming gradient is constant.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, gradients: Tensor) -> Tensor:  # noqa: ARG004  # the link to theta
        return gradients.view_as(gradients)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:  # noqa: ARG004
        raise RuntimeError(
            "LogLinearLoss can be differentiated only once; for second derivatives use the dense loss, "
            "cross_entropy(theta @ phi.T / temperature, target)"
        )


def _apply(function: type[Function], *arguments: object) -> Tensor:
    return cast("Tensor", cast("Any", function).apply(*arguments))


def _default(model: Model) -> Estimator | None:
    indexed = isinstance(model, LogLinear) and isinstance(model.index, PartitionIndex)
    return _TRAINING if indexed else None


def _check_method(given: object, name: str = "method") -> None:
    if given is not None and (isinstance(given, type) or not isinstance(given, Estimator)):
        raise ValueError(f"{name}: {given!r} cannot estimate log Z and E[phi] (it is no Estimator)")


def _thetas(theta: Tensor, model: Model) -> Vectors:
    """A checked batch (B, d), rounded to float32 like all thetas."""
    _check_tensor(theta, "theta")
    if theta.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"theta has dtype {theta.dtype}; it may be float32 or float64: give theta.float()")
    d = model.features.d
    if theta.ndim != 2:
        raise ValueError(f"theta must have shape (B, {d}), not {tuple(theta.shape)}")
    return check_vectors(theta.detach().numpy(), "theta", d)


def _targets(target: Tensor, size: int, model: Model) -> Ints:
    _check_tensor(target, "target")
    if target.shape != (size,):
        raise ValueError(f"target must have shape ({size},), one id for each theta, not {tuple(target.shape)}")
    return check_ids(target.numpy(), "target", model.features.n)


def _check_tensor(value: object, name: str) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, not {type(value).__name__}: give torch.as_tensor({name})")
    if value.device.type != "cpu":
        raise ValueError(f"{name} is on {value.device}, but the rows are in main memory: give {name}.cpu()")
