"""Sublinear sampling, normalisation, expectation and learning in softmax models over millions of states."""

from lazygumbel.features import Features
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex
from lazygumbel.model import LogLinear
from lazygumbel.results import Draws, Estimate, OrderedDraws, TopK

__version__ = "0.1.0"

__all__ = [
    "Draws",
    "Estimate",
    "ExactIndex",
    "FaissIndex",
    "Features",
    "Index",
    "LSHIndex",
    "LogLinear",
    "OrderedDraws",
    "PartitionIndex",
    "TopK",
    "__version__",
]
