"""Which method answers when the user names none: the best that the index allows."""

from lazygumbel.indexes import ExactIndex, Index, PartitionIndex
from lazygumbel.methods.base import Estimator, OrderedSampler, Sampler
from lazygumbel.methods.bounded import Bounded
from lazygumbel.methods.calibrated import Calibrated
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.fixed_cutoff import FixedCutoff
from lazygumbel.methods.lazy import LazyGumbel
from lazygumbel.methods.uniform_tail import UniformTail

__all__ = ["default_estimator", "default_ordered_sampler", "default_sampler"]

_CALIBRATED = Calibrated()
_BOUNDED, _EXHAUSTIVE, _FIXED_CUTOFF, _LAZY = Bounded(), Exhaustive(), FixedCutoff(), LazyGumbel()


def default_sampler(index: Index) -> Sampler:
    """For independent draws."""
    if isinstance(index, PartitionIndex):
        return _BOUNDED if index.calibration is None else _CALIBRATED
    return _EXHAUSTIVE if isinstance(index, ExactIndex) else _FIXED_CUTOFF


def default_ordered_sampler(index: Index) -> OrderedSampler:
    """For draws without replacement."""
    if isinstance(index, PartitionIndex):
        return _BOUNDED if index.calibration is None else _CALIBRATED
    return _EXHAUSTIVE if isinstance(index, ExactIndex) else _LAZY


def default_estimator(index: Index, rel_err: float | None = None) -> Estimator:
    """For sums, to a relative error of Z."""
    if isinstance(index, PartitionIndex):
        return _BOUNDED if rel_err is None else Bounded(rel_err=rel_err)
    by_theorem = UniformTail() if rel_err is None else UniformTail(rel_err=rel_err, delta=0.05)
    return _EXHAUSTIVE if isinstance(index, ExactIndex) else by_theorem  # a bad rel_err was refused
