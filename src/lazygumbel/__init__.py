"""Sublinear sampling, normalisation, expectation and learning in softmax models over millions of states.

What is public is loaded when it is first used (SPEC 1), so that to import this takes as long as to import NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lazygumbel._support.threads import get_threads, set_threads

if TYPE_CHECKING:
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
    from lazygumbel.walking import Walk, walk
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

_ROOMS = {
    "distribution": ("Distribution",),
    "guarantees.audit": ("Audit",),
    "indexes": ("ExactIndex", "FaissIndex", "Index", "LSHIndex", "PartitionIndex"),
    "indexes.partition": ("Calibration",),
    "learning": ("Fit", "fit"),
    "methods": (
        *("Bounded", "Calibrated", "Exhaustive", "FixedCutoff", "Frozen", "Keyed", "LazyGumbel", "TopKOnly"),
        "UniformTail",
    ),
    "model": ("LogLinear",),
    "results": ("Draws", "Estimate", "Mode", "OrderedDraws", "TopK"),
    "rows.features": ("Features",),
    "walking": ("Walk", "walk"),
    "warm": ("warm_up",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

if not TYPE_CHECKING:  # type checkers know every name, and refuse others

    def __getattr__(name: str) -> Any:
        if name in _ROOM_OF:
            globals()[name] = getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
            return globals()[name]
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as absent:
                if absent.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
