"""What is taken when the user names none: an index for rows, and for an index the best methods that it allows."""

import numpy as np

from lazygumbel.indexes import ExactIndex, Index, PartitionIndex
from lazygumbel.methods.base import Estimator, OrderedSampler, Sampler
from lazygumbel.methods.bounded import Bounded
from lazygumbel.methods.calibrated import Calibrated
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.fixed_cutoff import FixedCutoff
from lazygumbel.methods.lazy import LazyGumbel
from lazygumbel.methods.uniform_tail import UniformTail
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = [
    "LEARNING",
    "TRAINING",
    "default_estimator",
    "default_index",
    "default_ordered_sampler",
    "default_sampler",
]

_EXACT_BELOW = 50_000
"""Below this many rows one pass over all of them is as quick as any index."""
TRAINING = Bounded(rel_err=0.05)
"""For losses: beside the noise of a minibatch 5% of Z does not show, and it takes a tenth of the rows of 1%."""
LEARNING = Bounded(rel_err=0.1)
"""For losses over rows that learn: their movement since the index was built counts for more."""
_CALIBRATED = Calibrated()
_BOUNDED, _EXHAUSTIVE, _FIXED_CUTOFF, _LAZY = Bounded(), Exhaustive(), FixedCutoff(), LazyGumbel()


def default_index(rows: Features, rng: np.random.Generator, progress: Progress) -> Index:
    """For a model."""
    if rows.n < _EXACT_BELOW:
        return ExactIndex.build(rows, progress=progress)
    return PartitionIndex.build(rows, rng=rng, progress=progress)


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
