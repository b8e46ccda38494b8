"""What `speed.py` measures with: the clock and the brute force of the evaluation, which need not be installed."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lazygumbel.rows.names import Names

sys.path.insert(0, str(Path(__file__).parent.parent / "evaluation"))
from lazygumbel_evaluation.harness.brute_force import BruteForce
from lazygumbel_evaluation.harness.clock import BY_TIME, Contender, Pace, take_turns

__all__ = ["BruteForce", "clock_together", "held_bytes"]


def clock_together(
    contenders: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]],
    pace: Pace = BY_TIME,
) -> dict[str, tuple[float, list[Any]]]:
    """For several calls with one argument each, and arguments of their own: median seconds, and an answer for each."""
    found = take_turns({name: Contender(*one) for name, one in contenders.items()}, pace)
    return {name: (clocked.median, clocked.answers) for name, clocked in found.items()}


def held_bytes(thing: Any, seen: set[int] | None = None) -> int:
    """Bytes of all arrays that an object of the library holds, the names of rows left out."""
    seen = set[int]() if seen is None else seen
    if id(thing) in seen or isinstance(thing, Names):
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        return sum(held_bytes(value, seen) for value in thing.values())
    if isinstance(thing, list | tuple):
        return sum(held_bytes(value, seen) for value in thing)
    return held_bytes(vars(thing), seen) if type(thing).__module__.startswith("lazygumbel") else 0
