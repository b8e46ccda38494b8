"""Methods by the names that the command line and the service have for them."""

from dataclasses import fields
from typing import Any

from lazygumbel.methods.bounded import Bounded
from lazygumbel.methods.calibrated import Calibrated
from lazygumbel.methods.exhaustive import Exhaustive
from lazygumbel.methods.fixed_cutoff import FixedCutoff
from lazygumbel.methods.lazy import LazyGumbel
from lazygumbel.methods.top_k_only import TopKOnly
from lazygumbel.methods.uniform_tail import UniformTail

__all__ = ["METHODS", "method_named", "names_of_methods"]

METHODS: dict[str, type[Any]] = {
    "bounded": Bounded,
    "calibrated": Calibrated,
    "exhaustive": Exhaustive,
    "fixed-cutoff": FixedCutoff,
    "lazy": LazyGumbel,
    "top-k": TopKOnly,
    "uniform-tail": UniformTail,
}
_HEAD = 100
"""Rows of the head of `TopKOnly`, which has no default of its own."""


def names_of_methods(capability: type) -> list[str]:
    """Of those that can do this."""
    return [name for name, kind in METHODS.items() if issubclass(kind, capability)]


def method_named(name: str, **knobs: float) -> Any:
    """A method with these knobs; one that has no such knob is refused."""
    kind = METHODS[name]
    owned = {field.name for field in fields(kind)}
    for knob in knobs:
        if knob not in owned:
            raise ValueError(f"{knob}: the method {name} has none")
    return kind(**({"k": _HEAD} if kind is TopKOnly else {}) | knobs)
