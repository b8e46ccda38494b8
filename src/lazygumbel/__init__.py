"""Sublinear sampling, normalisation, expectation and learning in softmax models over millions of states."""

from lazygumbel._support.threads import get_threads, set_threads
from lazygumbel.distribution import Distribution
from lazygumbel.guarantees.audit import Audit
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.learning import Fit, fit
from lazygumbel.methods import (
    Bounded,
    Calibrated,
    Exhaustive,
    FixedCutoff,
    Frozen,
    Keyed,
    LazyGumbel,
    TopKOnly,
    UniformTail,
)
from lazygumbel.model import LogLinear
from lazygumbel.results import Draws, Estimate, Mode, OrderedDraws, TopK
from lazygumbel.rows.features import Features
from lazygumbel.walk import Walk, walk
from lazygumbel.warm import warm_up

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Bounded",
    "Calibrated",
    "Calibration",
    "Distribution",
    "Draws",
    "Estimate",
    "ExactIndex",
    "Exhaustive",
    "FaissIndex",
    "Features",
    "Fit",
    "FixedCutoff",
    "Frozen",
    "Index",
    "Keyed",
    "LSHIndex",
    "LazyGumbel",
    "LogLinear",
    "Mode",
    "OrderedDraws",
    "PartitionIndex",
    "TopK",
    "TopKOnly",
    "UniformTail",
    "Walk",
    "__version__",
    "fit",
    "get_threads",
    "set_threads",
    "walk",
    "warm_up",
]
