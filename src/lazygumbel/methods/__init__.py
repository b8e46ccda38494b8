"""Methods: one algorithm a file, each a small object that owns its knobs."""

from lazygumbel.methods.base import Estimator, Headed, Normaliser, OrderedSampler, Query, Raced, Sampler
from lazygumbel.methods.bounded import Bounded
from lazygumbel.methods.calibrated import Calibrated
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.fixed_cutoff import FixedCutoff
from lazygumbel.methods.frozen import Frozen
from lazygumbel.methods.keyed import Keyed
from lazygumbel.methods.lazy import LazyGumbel
from lazygumbel.methods.top_k_only import TopKOnly
from lazygumbel.methods.uniform_tail import UniformTail

__all__ = [
    "Bounded",
    "Calibrated",
    "Estimator",
    "Exhaustive",
    "FixedCutoff",
    "Frozen",
    "Headed",
    "Keyed",
    "LazyGumbel",
    "Normaliser",
    "OrderedSampler",
    "Query",
    "Raced",
    "Sampler",
    "TopKOnly",
    "UniformTail",
]
