"""`Draws`: independent samples."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lazygumbel import forms
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.results.base import NONE, UNKNOWN, Claimed, Naming, same_batch
from lazygumbel.results.reasons import Grounds

__all__ = ["Draws"]


@dataclass(frozen=True, eq=False, repr=False)
class Draws(Claimed):
    """Independent samples: `ids` and `values` of shape sample_shape + batch, `rows` of shape batch.

    `values` are the winning perturbed logits, each Gumbel with location log Z and independent of its id. `grounds`,
    `bound` and `violations` have shape batch too: how far the draws of a theta can be trusted (see `labels` and
    `reasons`), the total variation distance that a theorem allows them (zero for exact draws, not a number without a
    theorem), and how many ceilings were found too low among the rows that were scored.
    """

    form: ClassVar = forms.Draws
    by_theta: ClassVar = ("rows", "grounds", "bound", "violations")
    counted: ClassVar = ("sample", 0)
    allows: ClassVar = "total variation"

    ids: Ints
    values: Floats
    rows: Ints
    grounds: Grounds
    bound: Floats = field(default_factory=lambda: UNKNOWN)
    violations: Ints = field(default_factory=lambda: NONE)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""
    naming: Naming | None = None

    def __post_init__(self) -> None:
        self._settle()
        if self.violations.shape != self.rows.shape:
            self.__dict__["violations"] = np.broadcast_to(self.violations, self.rows.shape)

    def shaped(self, sample: tuple[int, ...], batch: tuple[int, ...], naming: Naming | None = None) -> "Draws":
        """The same draws, (size, B), as sample shape + batch shape."""
        shape = sample + batch
        return Draws(
            self.ids.reshape(shape),
            self.values.reshape(shape),
            self.rows.reshape(batch),
            self.grounds.reshape(batch),
            self.bound.reshape(batch),
            self.violations.reshape(batch),
            self.coverage,
            naming,
        )

    def merge(self, other: "Draws") -> "Draws":
        """Draws from the softmax over the union of two disjoint sets of rows."""
        if self.ids.shape != other.ids.shape:
            raise ValueError(f"draws of shapes {self.ids.shape} and {other.ids.shape} do not merge")
        same_batch(self.rows, other.rows)
        wins = self.values >= other.values
        return Draws(
            np.where(wins, self.ids, other.ids),
            np.where(wins, self.values, other.values),
            np.asarray(self.rows + other.rows),
            np.asarray(np.maximum(self.grounds, other.grounds)),
            np.asarray(np.maximum(self.bound, other.bound)),
            np.asarray(self.violations + other.violations),
            min(self.coverage, other.coverage),
        )

    def _listed(self) -> dict[str, npt.NDArray[Any]]:
        return {"id": self.ids, "value": self.values}
