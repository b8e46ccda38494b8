"""Methods by name, with the knobs that a request may turn."""

from dataclasses import fields
from typing import Any

from lazygumbel.indexes import ExactIndex, Index, PartitionIndex
from lazygumbel.methods import Bounded, Calibrated, Exhaustive, FixedCutoff, LazyGumbel, TopKOnly, UniformTail

__all__ = ["method_of"]

_KINDS: dict[str, type[Any]] = {
    "bounded": Bounded,
    "calibrated": Calibrated,
    "exhaustive": Exhaustive,
    "fixed-cutoff": FixedCutoff,
    "lazy": LazyGumbel,
    "top-k": TopKOnly,
    "uniform-tail": UniformTail,
}
_HEAD = 100
"""Rows of the head of `top-k`, which has no default of its own."""
_FAILURE = 0.05
"""How often a budget by theorem may miss its `rel_err`."""


def method_of(
    name: str | None, index_type: type[Index] | None, *, delta: float | None = None, rel_err: float | None = None
) -> Any:
    """A method with these knobs; None for the default of the index, of which shards have several.

    A method that has no such knob is refused. Without a name `delta` asks for draws that a theorem bounds by it: those
    over an `ExactIndex` are exact and meet any.
    """
    knobs = {key: value for key, value in (("delta", delta), ("rel_err", rel_err)) if value is not None}
    if name is None:
        if not knobs or index_type is ExactIndex:
            return None
        if index_type is None:
            raise ValueError(f"{next(iter(knobs))}: name a method too; shards may have different indexes")
        name = "bounded" if issubclass(index_type, PartitionIndex) else "fixed-cutoff"
    kind: Any = _KINDS[name]
    owned = {field.name for field in fields(kind)}
    for knob in knobs:
        if knob not in owned:
            raise ValueError(f"{knob}: the method {name} has none")
    if name == "top-k":
        return TopKOnly(_HEAD)
    if name == "uniform-tail" and "rel_err" in knobs:
        knobs["delta"] = _FAILURE
    return kind(**knobs)
