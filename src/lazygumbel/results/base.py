"""What all results have in common: labels with reasons, names, and the forms in which people take them away."""

from dataclasses import fields, replace
from math import isnan, prod
from typing import Any, ClassVar, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from lazygumbel import forms
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.notebook import html_table
from lazygumbel.results.frames import make_frame
from lazygumbel.results.reasons import (
    LABEL_OF,
    LAST_EXACT,
    REASONS,
    WORDS_OF,
    Grounds,
    Label,
    Labels,
    Reason,
    grounds_of,
)

__all__ = ["NONE", "UNKNOWN", "Claimed", "Naming", "Result", "numbers", "same_batch"]


UNKNOWN: Floats = np.array(np.nan)
NONE: Ints = np.array(0)
_LINES, _SAID = 20, ("label", "reason", "bound")
"""Of a table in a notebook: how many lines, and the columns that its title stands for."""
_SHOWN = 6
"""Entries of an array that a `repr` shows."""


class Naming(Protocol):
    """What knows the names of rows: `Names` is one."""

    def __getitem__(self, ids: Ints, /) -> npt.NDArray[np.object_]:
        """The names of these ids, in their shape."""
        ...


class Result:
    """A record of arrays, and how far they can be trusted. Fields in `by_theta` have batch shape.

    Nothing is worked out before it is asked for: a draw takes microseconds.
    """

    form: ClassVar[type[Any]]
    """Its JSON form."""
    by_theta: ClassVar[tuple[str, ...]]
    """Fields of batch shape."""
    counted: ClassVar[tuple[str, int]]
    """What numbers the lines that a table has of one theta, and the first number."""
    told: ClassVar[tuple[str, ...]] = ("ids",)
    """What a `repr` shows."""
    allows: ClassVar[str]
    """What a bound speaks of."""

    rows: Ints
    grounds: Grounds
    bound: Floats
    coverage: float
    naming: Naming | None

    @property
    def thetas_last(self) -> bool:
        """Whether arrays that are not of batch shape have shape something + batch shape, or batch + something."""
        return True

    @property
    def labels(self) -> Labels:
        """Of each theta."""
        return np.asarray(LABEL_OF[self.grounds])

    @property
    def reasons(self) -> Labels:
        """Why each theta has its label, in the words of `Reason`."""
        return np.asarray(WORDS_OF[self.grounds])

    @property
    def reason(self) -> Reason:
        """Why the answer has its label: the reason of the weakest."""
        return REASONS[int(self.grounds.max(initial=0))]

    @property
    def label(self) -> Label:
        """The weakest of the labels."""
        return self.reason.label

    @property
    def names(self) -> npt.NDArray[np.object_] | None:
        """Names of the ids, in their shape; None where rows have none."""
        ids: Ints | None = getattr(self, "ids", None)
        return None if self.naming is None or ids is None else np.asarray(self.naming[ids], dtype=np.object_)

    def at(self, thetas: int | slice) -> Self:
        """The answer of one theta, or of some, of a batch (B,)."""
        changed: dict[str, Any] = {}
        for field in fields(cast("Any", self)):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                last = self.thetas_last and field.name not in self.by_theta
                changed[field.name] = value[..., thetas] if last else value[thetas, ...]
        return replace(cast("Any", self), **changed)

    def to_dict(self) -> dict[str, Any]:
        """The answer in plain numbers, strings and nested lists: JSON, with None for numbers that are not finite.

        This is what `--json` prints and the service sends; `lazygumbel.forms` says what each key holds.
        """
        found: dict[str, Any] = {}
        for key, optional in forms.keys(self.form):
            if key in ("labels", "reasons") and not self.grounds.ndim:
                continue
            value = getattr(self, key)
            if value is not None or not optional:
                found[key] = _plain(value)
        return found

    def to_frame(self, library: str | None = None) -> Any:
        """A table with a line for each row that was found: of pandas, or of polars where only that is installed."""
        return make_frame(self.columns(), library)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """What `to_frame` shows: arrays of one length, theta after theta."""
        listed, names, batch = self._listed(), self.names, self.rows.shape
        if names is not None:
            listed = {"id": listed["id"], "name": names, **listed}
        count = next(iter(listed.values())).size // max(prod(batch), 1)
        counted, first = self.counted
        found: dict[str, npt.NDArray[Any]] = {"theta": np.arange(prod(batch)).reshape(*batch, 1)} if batch else {}
        if not self._one_each():
            found[counted] = np.arange(first, first + count)
        for column, values in listed.items():
            leading = np.moveaxis(values, -1, 0) if batch and self.thetas_last else values
            found[column] = leading.reshape(*batch, count)
        found |= {"label": self.labels[..., None], "reason": self.reasons[..., None], "bound": self.bound[..., None]}
        return {key: np.broadcast_to(values, (*batch, count)).reshape(-1) for key, values in found.items()}

    def __repr__(self) -> str:
        told = {name: getattr(self, name) for name in self.told}
        shown = ", ".join(f"{name}={_shortened(held)}" for name, held in told.items() if held is not None)
        if self.coverage < 1:
            shown += f", {self.coverage:.1%} of the rows"
        return f"{type(self).__name__}({shown}; {self.trust()})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first lines of `to_frame`."""
        columns = {key: held[:_LINES].tolist() for key, held in self.columns().items() if key not in _SAID}
        return html_table(f"{type(self).__name__}: {self.trust()}", zip(*columns.values(), strict=True), list(columns))

    def trust(self) -> str:
        """How far the answer can be trusted and why, and how many rows were scored, in one line."""
        labels, counts = np.unique(self.labels, return_counts=True)
        many = [f"{count:,} {label}" for label, count in zip(labels.tolist(), counts.tolist(), strict=True)]
        bound = float(np.max(self.bound, initial=0.0))
        allowed = "" if isnan(bound) or bound == 0.0 else f", {self.allows} at most {bound:.2g}"
        said = ", ".join(many) if self.rows.ndim else self.label
        return f"{said}{allowed}: {self.reason}; {int(self.rows.sum()):,} rows scored"

    def _listed(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table; with ids, they come first."""
        raise NotImplementedError

    def _one_each(self) -> bool:
        """Whether a theta has one line of a table for certain."""
        return False


class Claimed(Result):
    """A result that holds the grounds of its labels."""

    @property
    def exact(self) -> bool:
        """Whether there is no error but rounding."""
        return self.label == "exact"

    def _settle(self) -> None:
        """Give every theta a ground and a bound, where one was given for all; what is exact has a bound of zero."""
        held, shape = self.__dict__, self.rows.shape
        found, bound = self.grounds, self.bound
        if found.dtype.kind == "U":  # labels, from a method that gives no reasons
            found = held["grounds"] = grounds_of(cast("Labels", found))
        if found.shape != shape:
            found = held["grounds"] = np.broadcast_to(found, shape)
        if bound.shape == shape and bound.size == 1:  # one theta, where a check of arrays would take longer
            if isnan(bound.item()) and found.item() <= LAST_EXACT:
                held["bound"] = np.zeros(shape)
        elif bound.shape != shape or np.isnan(bound).any():
            held["bound"] = np.where(found <= LAST_EXACT, 0.0, np.broadcast_to(bound, shape))


def numbers(values: npt.NDArray[np.floating[Any]]) -> Any:
    """Nested lists, or a number for shape (); None where a number is not finite."""
    if np.isfinite(values).all():
        return values.tolist()
    return np.where(np.isfinite(values), values.astype(object), cast("Any", None)).tolist()


def same_batch(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> None:
    """Refuse results of different batches."""
    if a.shape != b.shape:
        raise ValueError(f"results of batch shapes {a.shape} and {b.shape} do not merge")


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return str(value) if isinstance(value, Reason) else value
    held = cast("npt.NDArray[Any]", value)
    return numbers(held) if held.dtype.kind == "f" else held.tolist()


def _shortened(values: npt.NDArray[Any]) -> str:
    """The first few entries, and the shape if there are more."""
    if not values.size:
        return f"nothing of shape {values.shape}"
    shown = ", ".join(f"{x:.6g}" if isinstance(x, float) else repr(x) for x in values.reshape(-1)[:_SHOWN].tolist())
    if not values.ndim:
        return shown
    more = ", ..." if values.size > _SHOWN else ""
    return f"[{shown}{more}]" + ("" if values.ndim == 1 and not more else f" of shape {values.shape}")
