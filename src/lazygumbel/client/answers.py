"""What the service answers, in records; null becomes the number that JSON does not have."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any, cast

__all__ = ["Audit", "Draws", "Estimate", "Info", "OrderedDraws", "Rows", "TopK", "filled"]

Ids = Any
"""A row id, or nested lists of them; the shape follows that of theta."""
Numbers = Any
"""A number, or nested lists of them."""


@dataclass(frozen=True)
class Draws:
    """Independent samples: ids of shape (size,) + batch shape."""

    ids: Ids
    names: Any
    values: Numbers
    label: str
    bound: Numbers
    violations: Any
    rows: Any
    version: str
    seed: int | None
    labels: list[str] | None = None
    log_prob: Numbers = None
    log_prob_stderr: Numbers = None


@dataclass(frozen=True)
class OrderedDraws:
    """Distinct rows in the order of drawing: ids of shape batch shape + (size,)."""

    ids: Ids
    names: Any
    logits: Numbers
    values: Numbers
    threshold: Numbers
    label: str
    bound: Numbers
    rows: Any
    version: str
    seed: int | None
    labels: list[str] | None = None
    log_prob: Numbers = None
    log_prob_stderr: Numbers = None


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error."""

    value: Numbers
    stderr: Numbers
    label: str
    bound: Numbers
    rows: Any
    version: str
    seed: int | None
    labels: list[str] | None = None


@dataclass(frozen=True)
class TopK:
    """The rows with the largest inner products, best first."""

    ids: Ids
    names: Any
    scores: Numbers
    exact: bool
    rows: Any
    version: str


@dataclass(frozen=True)
class Audit:
    """The truth about one theta, by one pass over all rows."""

    ids: list[int]
    names: list[str] | None
    log_prob: list[float]
    rank: list[int | None]
    log_partition: float
    entropy: float
    curve: dict[str, list[float]]
    mass: dict[str, float]
    method: str
    total_variation: float
    bound: float
    violations: int
    label: str
    rows: int
    version: str


@dataclass(frozen=True)
class Rows:
    """Rows that were found."""

    ids: list[int]
    names: list[str] | None
    version: str
    vectors: list[list[float]] | None = None


@dataclass(frozen=True)
class Info:
    """What is served."""

    n: int
    d: int
    names: bool
    index: str
    methods: list[str]
    version: str
    lazygumbel: str
    limits: dict[str, int]


_MISSING = {"bound": nan, "stderr": inf, "log_prob_stderr": inf, "value": -inf, "log_prob": -inf, "threshold": -inf}
"""What null stands for: the number that JSON does not have."""


def filled(found: dict[str, Any]) -> dict[str, Any]:
    """An answer with numbers in the place of null."""
    return {key: _filled(value, _MISSING[key]) if key in _MISSING else value for key, value in found.items()}


def _filled(value: Any, missing: float) -> Any:
    if isinstance(value, list):
        return [_filled(item, missing) for item in cast("list[Any]", value)]
    return missing if value is None else value
