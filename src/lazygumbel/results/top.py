"""`TopK` and `Mode`: the most probable rows."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lazygumbel import forms
from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.results.base import UNKNOWN, Naming, Result, same_batch
from lazygumbel.results.reasons import Grounds, Reason, grounds_by_bound

__all__ = ["Mode", "TopK"]


_NEVER: Floats = np.array(0.0)


class _Ranked(Result):
    """Rows in order; their label follows from the bound of the probability that one was missed."""

    by_theta: ClassVar = ("rows", "bound")
    counted: ClassVar = ("rank", 1)
    told: ClassVar = ("ids", "scores")
    allows: ClassVar = "probability that a row was missed"

    ids: Ints
    scores: Vectors

    @property
    def thetas_last(self) -> bool:
        """They come first."""
        return False

    @property
    def grounds(self) -> Grounds:  # pyright: ignore[reportIncompatibleVariableOverride]  # derived here, held elsewhere
        """Codes of the reasons."""
        return grounds_by_bound(self.bound, Reason.INDEX if self.coverage == 1 else Reason.SHARD_MISSING)

    def _listed(self) -> dict[str, npt.NDArray[Any]]:
        return {"id": self.ids, "score": self.scores}


@dataclass(frozen=True, eq=False, repr=False)
class TopK(_Ranked):
    """The rows with the largest inner products, best first, ties by smaller id.

    `ids` and `scores` have shape batch + (min(k, n),). Of shape batch: `rows`, how many were scored, and `bound`, the
    probability at most that a row is missed: zero if none can be, not a number where it is not known.
    """

    form: ClassVar = forms.TopK

    ids: Ints
    scores: Vectors
    rows: Ints
    exact: bool
    k: int
    """How many were asked for; fewer are held only when there are fewer rows."""
    bound: Floats = field(default_factory=lambda: UNKNOWN)
    coverage: float = 1.0
    """Share of the model's rows that were asked: less than one when shards are missing (see `lazygumbel.sharded`)."""
    naming: Naming | None = None

    def __post_init__(self) -> None:
        bound = _NEVER if self.exact else self.bound
        if self.exact or bound.shape != self.rows.shape:
            self.__dict__["bound"] = np.broadcast_to(bound, self.rows.shape)

    def merge(self, other: "TopK") -> "TopK":
        """The top k of two disjoint sets of rows."""
        same_batch(self.rows, other.rows)
        k = min(self.k, other.k)  # beyond the smaller k, rows of that side may be missing
        ids = np.concatenate([self.ids, other.ids], axis=-1)
        scores = np.concatenate([self.scores, other.scores], axis=-1)
        order = np.lexsort((ids, -scores), axis=-1)[..., :k]
        return TopK(
            np.take_along_axis(ids, order, -1),
            np.take_along_axis(scores, order, -1),
            np.asarray(self.rows + other.rows),
            self.exact and other.exact,
            k,
            np.asarray(np.maximum(self.bound, other.bound)),
            min(self.coverage, other.coverage),
        )

    @property
    def first(self) -> "Mode":
        """The best row alone, shape batch."""
        return Mode(self.ids[..., 0], self.scores[..., 0], self.rows, self.bound, self.coverage, self.naming)


@dataclass(frozen=True, eq=False, repr=False)
class Mode(_Ranked):
    """The most probable row: `ids`, `scores` (raw inner products) and the rest have shape batch.

    `bound` is the probability at most that another row is more probable: see `TopK`.
    """

    form: ClassVar = forms.Mode

    ids: Ints
    scores: Vectors
    rows: Ints
    bound: Floats
    coverage: float = 1.0
    naming: Naming | None = None

    @property
    def exact(self) -> bool:
        """Whether no row can be more probable."""
        return self.label == "exact"

    def _one_each(self) -> bool:
        return True
