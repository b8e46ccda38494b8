"""Checks at the door of what comes as tensors."""

from typing import Any, cast

import numpy.typing as npt
import torch
from torch import Tensor

from lazygumbel._support.arrays import Ints, Mask, Vectors
from lazygumbel._support.checks import check_vectors
from lazygumbel.methods import Estimator
from lazygumbel.protocols import Model

__all__ = ["check_estimator", "check_rows", "check_targets", "check_thetas", "check_weight"]

_FLOATS = torch.float32, torch.float64


def check_estimator(given: object, name: str = "method") -> None:
    """An object that estimates sums, or None."""
    if given is not None and (isinstance(given, type) or not isinstance(given, Estimator)):
        raise ValueError(f"{name}: {given!r} cannot estimate log Z and E[phi] (it is no Estimator)")


def check_thetas(theta: Tensor, model: Model) -> Vectors:
    """A batch (B, d), rounded to float32 like all thetas."""
    _check_tensor(theta, "theta")
    _check_floats(theta, "theta")
    d = model.features.d
    if theta.ndim != 2:
        raise ValueError(f"theta must have shape (B, {d}), not {tuple(theta.shape)}")
    return check_vectors(theta.detach().numpy(), "theta", d)


def check_targets(target: Tensor, size: int, model: Model, ignored: int) -> tuple[Ints, Mask]:
    """The ids of targets that are not ignored, and which those are, (size,)."""
    _check_tensor(target, "target")
    if target.shape != (size,):
        cure = "one id for each theta (probabilities of classes are not taken)"
        raise ValueError(f"target must have shape ({size},), {cure}, not {tuple(target.shape)}")
    values: npt.NDArray[Any] = target.numpy()
    kept = values != ignored
    return model.check_ids(values[kept], "target"), kept


def check_weight(weight: Tensor | None, size: int) -> Tensor | None:
    """A weight for each id, (size,), finite and not negative; or None."""
    if weight is None:
        return None
    _check_tensor(weight, "weight")
    _check_floats(weight, "weight")
    if weight.shape != (size,):
        raise ValueError(f"weight must have shape ({size},), one for each id, not {tuple(weight.shape)}")
    held = weight.detach().clone()
    if not (torch.isfinite(held).all() and (held >= 0).all()):
        raise ValueError("weight must hold finite numbers of at least 0")
    return held


def check_rows(rows: object, ids: Tensor, d: int) -> Tensor:
    """The rows with these ids as they are now, (m, d), by a function of ids."""
    if isinstance(rows, Tensor) or not callable(rows):
        cure = "give a function of ids, such as torch.nn.Embedding.from_pretrained(rows, freeze=False, sparse=True)"
        raise ValueError(f"rows must be callable, not {type(rows).__name__}: {cure}")
    found = cast("Any", rows)(ids)
    _check_tensor(found, "rows(ids)")
    vectors = cast("Tensor", found)
    _check_floats(vectors, "rows(ids)")
    if vectors.shape != (len(ids), d):
        raise ValueError(f"rows(ids) must have shape ({len(ids)}, {d}) for {len(ids)} ids, not {tuple(vectors.shape)}")
    return vectors


def _check_floats(value: Tensor, name: str) -> None:
    if value.dtype not in _FLOATS:
        raise ValueError(f"{name} has dtype {value.dtype}; it may be float32 or float64: give {name}.float()")


def _check_tensor(value: object, name: str) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, not {type(value).__name__}: give torch.as_tensor({name})")
    if value.device.type != "cpu":
        raise ValueError(f"{name} is on {value.device}, but the rows are in main memory: give {name}.cpu()")
