"""Methods by name, with the knobs that a request may turn."""

from typing import Any

from lazygumbel.indexes import ExactIndex, Index, PartitionIndex
from lazygumbel.methods.named import method_named

__all__ = ["method_of"]

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
    if name == "uniform-tail" and "rel_err" in knobs:
        knobs.setdefault("delta", _FAILURE)
    return method_named(name, **knobs)
