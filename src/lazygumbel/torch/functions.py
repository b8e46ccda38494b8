"""Losses of a batch whose gradients are known when the value is: functions of autograd that can be passed once."""

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints, Vectors

__all__ = ["Pairs", "with_gradient", "with_gradients"]


def with_gradient(theta: Tensor, losses: Floats, gradient: Floats) -> Tensor:
    """Losses (B,) in theta's dtype, each with its gradient by its theta, (B, d)."""
    held = (torch.as_tensor(values, dtype=theta.dtype) for values in (losses, gradient))
    return cast("Tensor", cast("Any", _OfThetas).apply(theta, *held))


class Pairs(NamedTuple):
    """Derivatives of losses by inner products of thetas and vectors: which theta, which vector, how much, (m,) each."""

    owner: Ints
    place: Ints
    values: Vectors

    def by_theta(self, scale: Vectors, vectors: Vectors) -> Vectors:
        """Of losses that are scaled, by thetas: (B, d)."""
        found = np.zeros((len(scale), vectors.shape[1]), dtype=np.float32)
        kernels.add_pairs(found, self.owner, scale[self.owner] * self.values, vectors, self.place)
        return found

    def by_vector(self, scale: Vectors, thetas: Vectors, count: int) -> Vectors:
        """The same by vectors: (count, d)."""
        found = np.zeros((count, thetas.shape[1]), dtype=np.float32)
        kernels.add_pairs(found, self.place, scale[self.owner] * self.values, thetas, self.owner)
        return found


def with_gradients(theta: Tensor, vectors: Tensor, losses: Floats, pairs: Pairs) -> Tensor:
    """Losses (B,) in theta's dtype, with gradients by theta (B, d) and by the vectors (m, d)."""
    found = torch.as_tensor(losses, dtype=theta.dtype)
    return cast("Tensor", cast("Any", _OfBoth).apply(theta, vectors, found, pairs))


class _OfThetas(Function):
    @staticmethod
    def forward(ctx: Any, theta: Tensor, losses: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(theta, gradient)
        return losses

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        theta, gradient = ctx.saved_tensors
        return grad_outputs[0][:, None] * _once(gradient, theta), None, None


class _OfBoth(Function):
    @staticmethod
    def forward(ctx: Any, theta: Tensor, vectors: Tensor, losses: Tensor, pairs: Pairs) -> Tensor:
        ctx.save_for_backward(theta, vectors)
        ctx.pairs = pairs
        return losses

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        given: tuple[Tensor, Tensor] = ctx.saved_tensors
        theta, vectors = (one.detach().float().contiguous().numpy() for one in given)
        scale, pairs = grad_outputs[0].detach().float().contiguous().numpy(), cast("Pairs", ctx.pairs)
        by_theta = pairs.by_theta(scale, vectors) if ctx.needs_input_grad[0] else None
        by_vector = pairs.by_vector(scale, theta, len(vectors)) if ctx.needs_input_grad[1] else None
        return (
            None if by_theta is None else _once(torch.as_tensor(by_theta, dtype=given[0].dtype), *given),
            None if by_vector is None else _once(torch.as_tensor(by_vector, dtype=given[1].dtype), *given),
            None,
            None,
        )


class _Once(Function):
    """A gradient as it is; differentiating it again is refused.

    `once_differentiable` would let a second pass through, one term short, wherever the incoming gradient is constant.
    """

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *_: Tensor) -> Tensor:  # noqa: ARG004  # the links to what it came from
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:  # noqa: ARG004
        raise RuntimeError(
            "LogLinearLoss can be differentiated only once; for second derivatives use the dense loss, "
            "cross_entropy(theta @ phi.T / temperature, target)"
        )


def _once(gradient: Tensor, *of: Tensor) -> Tensor:
    return cast("Tensor", cast("Any", _Once).apply(gradient, *of))
