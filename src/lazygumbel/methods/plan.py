"""`Plan`: where `Stratified` looks for each theta of a query, and how eagerly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from lazygumbel.indexes import PartitionIndex, Survey
from lazygumbel.methods.base import NOTHING, Query
from lazygumbel.methods.calibration import Calibration, Levels
from lazygumbel.results import Label

__all__ = ["Plan"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Aspect(NamedTuple):
    """A plan for some of its thetas."""

    queries: npt.NDArray[np.float32]
    buckets: npt.NDArray[np.uint8]
    """Of the cells, for each theta."""
    banned: Ints
    """Positions that must not win, theta after theta, sorted for each."""
    banned_ends: Ints
    """Where those of each theta end, from zero."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Storage ranked for the thetas of a query, and for each theta its line in a table of levels."""

    query: Query
    index: PartitionIndex
    survey: Survey
    levels: Levels
    lines: list[int]

    @classmethod
    def for_draws(cls, query: Query, size: int = 1) -> "Plan":
        """To draw; `size` is the number of rows to draw without replacement."""
        calibration = _calibration(query)
        levels = calibration.hazard_levels
        return cls._of(query, calibration, levels if size == 1 else levels.times(size))

    @classmethod
    def for_sums(cls, query: Query, rel_err: float | None) -> "Plan":
        """To estimate sums to a relative error (None: what was calibrated for)."""
        calibration = _calibration(query)
        return cls._of(query, calibration, calibration.rate_levels(rel_err))

    @classmethod
    def _of(cls, query: Query, calibration: Calibration, levels: Levels) -> "Plan":
        index = cast("PartitionIndex", query.index)  # as `_calibration` found
        survey = index.survey(query.thetas)
        lines = calibration.place(survey, 1.0 / query.temperature, index.features.max_norm)
        return cls(query, index, survey, levels, lines)

    @property
    def rows(self) -> list[float]:
        """Rows that one look is expected to take, for each theta."""
        return [self.levels.rows[line] for line in self.lines]

    def table(self, thetas: Sequence[int]) -> Floats:
        """How eagerly to look, for some thetas, (thetas, K)."""
        if len(thetas) == 1:  # a slice is quicker than a choice
            line = self.lines[thetas[0]]
            return self.levels.table[line : line + 1]
        return self.levels.table[[self.lines[b] for b in thetas]]

    def of(self, thetas: Sequence[int]) -> "Aspect":
        """What kernels need to know of some thetas, in increasing order."""
        banned, ends = _banned(self.query)
        if len(thetas) == self.query.size:
            return Aspect(self.query.thetas, self.survey.buckets, banned, ends)
        banned = np.concatenate([np.arange(0), *(banned[ends[b] : ends[b + 1]] for b in thetas)])
        ends = np.concatenate([[0], np.cumsum(np.diff(ends)[thetas])])
        return Aspect(self.query.thetas[thetas], self.survey.buckets[thetas], banned, ends)

    def label(self, thetas: Sequence[int]) -> Label:
        """What may be said of these thetas together."""
        n, label = self.query.features.n, "exact"
        for b in thetas:
            line = self.lines[b]
            if self.levels.rows[line] < n:
                if not self.levels.met[line] or len(self.query.excluded[b]):
                    return "heuristic"
                label = "calibrated"
        return label

    def row_hazards(self, b: int) -> Floats:
        """The hazard of every row for theta b, by id, (n,); of a plan for draws."""
        levels = self.levels.table[self.lines[b]][self.survey.buckets[b]]
        hazards = np.repeat(levels, np.diff(self.index.offsets))
        return hazards[self.index.features.locate(np.arange(len(hazards)))]


def _banned(query: Query) -> tuple[Ints, Ints]:
    """Positions that must not win, sorted for each theta, and where those of each theta end, (B + 1,) from zero."""
    if all(ids is NOTHING for ids in query.excluded):
        return NOTHING, np.zeros(query.size + 1, dtype=np.int64)
    positions = [np.sort(query.features.locate(ids)) for ids in query.excluded]
    return np.concatenate(positions), np.cumsum([0, *map(len, positions)])


def _calibration(query: Query) -> Calibration:
    if not isinstance(query.index, PartitionIndex):
        raise ValueError("method: Stratified needs a PartitionIndex; use another method, or build one")
    if query.calibration is None:
        raise ValueError("method: Stratified needs a calibrated model; call model.calibrate() first")
    return query.calibration
