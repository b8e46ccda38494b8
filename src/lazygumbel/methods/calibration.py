"""`Calibration`: how eagerly `Stratified` looks at a cell, by the rank of the cell, and what that was measured to cost.

A survey of the index ranks cells for a theta; buckets of ranks grow by about sqrt(2). A bucket has a *hazard*: a row
in it is looked at with rate 1 - exp(-hazard), that is, when its Gumbel exceeds -log(hazard). Hazards depend on the
scale |theta| / temperature; the calibration holds a ladder of scales.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.indexes import Survey
from lazygumbel.persist import Reader, Writer

__all__ = ["ENUMERATED_FROM", "Calibration", "Levels", "Mass", "enumerated", "falling", "neyman"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Number = TypeVar("Number", np.float64, np.int64)

_WIDENING = 6
"""From how many buckets before its own a widened look takes the largest: six are about eight times as many cells."""
_LEAST_ROWS = 256.0
ENUMERATED_FROM = 0.7
"""From this hazard on, a rate of one half, it is quicker to look at every row."""
_WEIGHED_FROM = 0.35
"""From this rate on, it is quicker to weigh every row: neighbours in storage take 0.6 of the time of picks."""


def enumerated(rates: Floats) -> Floats:
    """Rates with one in place of those at which it is quicker to weigh every row."""
    return np.where(rates > _WEIGHED_FROM, 1.0, rates)


def falling(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The least values, at least as large, that do not increase from bucket to bucket."""
    return np.maximum.accumulate(values[::-1])[::-1]


class Mass(NamedTuple):
    """What rows of each bucket hold, of one theta or on average: sums of their probabilities, and of the squares."""

    sums: Floats
    """(..., K)"""
    squares: Floats
    """(..., K)"""

    def times(self, factor: Floats) -> "Mass":
        """What has this many times the variance, factors of shape (...)."""
        return Mass(self.sums * np.sqrt(factor)[..., None], self.squares * factor[..., None])

    def variance(self, sizes: Floats, rates: Floats) -> Floats:
        """Relative variance of Z, (...), from picks with these rates out of so many rows of each bucket, both (K,).

        Each pick stands for as much, so what picks have in common does not count.
        """
        left = 1.0 - rates
        common = (self.sums @ left) ** 2 / max(float(sizes @ (rates * left)), 1e-300)
        return np.maximum(self.squares @ (left / rates) - common, 0.0)


def neyman(sizes: Floats, mass: Mass, rel_err: float) -> Floats:
    """Rates for the buckets that meet a relative variance of rel_err^2 with the fewest rows, falling.

    The best rates are proportional to the root mean square of the probabilities in a bucket, and one where that is
    quicker. A look at few rows would know little of its own error: at least 256 are looked at.
    """
    least = min(_LEAST_ROWS, float(sizes.sum()))
    shape = falling(np.sqrt(mass.squares / np.maximum(sizes, 1.0)))
    shape = np.maximum(shape, shape.max() * 1e-12)
    low, high = -60.0, 120.0
    for _ in range(60):
        middle = (low + high) / 2
        rates = enumerated(shape * np.exp(middle))
        if mass.variance(sizes, rates) > rel_err**2 or rates @ sizes < least:
            low = middle
        else:
            high = middle
    return enumerated(shape * np.exp(high))


@dataclass(frozen=True, eq=False)
class Levels:
    """How eagerly to look, by line of a table and by bucket. Facts of single lines are lists: quick for one theta."""

    table: Floats
    """(lines, K)"""
    met: list[bool]
    """Whether fresh thetas met the target with it."""
    rows: list[float]
    """Rows that a look is expected to take."""
    hits: list[float]
    """Of hazards: how many random numbers the rows that are not certain are expected to take."""
    sizes: Floats
    """Mean number of rows in each bucket, (K,)."""

    @classmethod
    def of_hazards(cls, table: Floats, met: list[bool], sizes: Floats) -> "Levels":
        """Levels of a table of hazards."""
        finite = np.where(np.isinf(table), 0.0, table)
        return cls(table, met, (-np.expm1(-table) @ sizes).tolist(), (finite @ sizes).tolist(), sizes)

    @classmethod
    def of_rates(cls, table: Floats, met: list[bool], sizes: Floats) -> "Levels":
        """Levels of a table of rates."""
        return cls(table, met, (table @ sizes).tolist(), [0.0] * len(table), sizes)

    def times(self, factor: int) -> "Levels":
        """Hazards this many times as large; from 0.7 on, a rate of one half, every row is looked at."""
        table = self.table * factor
        return Levels.of_hazards(np.where(table > ENUMERATED_FROM, np.inf, table), self.met, self.sizes)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Hazards by scale and bucket, and the figures measured on fresh thetas."""

    scales: Floats
    """The ladder of |theta| / temperature, increasing, (S,)."""
    hazards: Floats
    """For sampling, (S, K)."""
    mass: Mass
    """What each bucket holds on average over thetas, (S, K): what estimates need."""
    sizes: Floats
    """Mean number of rows in each bucket, (K,)."""
    least_alignment: float
    """A theta whose best cosine with a centroid is smaller is unlike those of the calibration."""
    least_reach: float
    """Likewise if the best row of its first cell scores a smaller share of |theta| times the largest norm."""
    miss: float
    """The mean miss probability that was aimed at."""
    rel_err: float
    """The relative error of Z that was aimed at."""
    report: list[dict[str, float]]
    """For each scale checked: miss and relative error on thetas that the rates were not fitted to."""

    @property
    def buckets(self) -> int:
        """Number of buckets, K."""
        return len(self.sizes)

    def place(self, survey: Survey, inverse_temperature: float, largest: float) -> list[int]:
        """The line of each theta of a survey in the tables of `hazard_levels` and `rate_levels`.

        A scale between two rungs takes the larger of both; one off the ladder, or a theta that is unlike those of the
        calibration, takes a widened line. A list: for one theta quicker than an array. `largest` is that norm of a row.
        """
        likeness = self.least_alignment, self.least_reach
        _, alignment, reach, norms = survey
        return kernels.place(norms, alignment, reach, inverse_temperature, largest, self.scales, *likeness).tolist()

    @cached_property
    def hazard_levels(self) -> Levels:
        """Hazards for sampling by line."""
        met = [facts["miss_mean"] <= self.miss for facts in self.report]
        table, held = self._lines(self.hazards, met)
        return Levels.of_hazards(table, held, self.sizes)

    def rate_levels(self, rel_err: float | None = None) -> Levels:
        """Rates that give Z to a relative error (None: what was calibrated for), by line."""
        rel_err = self.rel_err if rel_err is None else rel_err
        if rel_err not in self._rates:
            rates = np.stack([neyman(self.sizes, Mass(*each), rel_err) for each in zip(*self.mass, strict=True)])
            met = [facts["rel_err_rms"] <= 1.1 * self.rel_err for facts in self.report]
            table, held = self._lines(rates, met)
            self._rates[rel_err] = Levels.of_rates(table, held, self.sizes)
        return self._rates[rel_err]

    def save(self, writer: Writer) -> None:
        """Arrays, and the figures for `lazygumbel info`."""
        writer.array("hazards", self.hazards)
        writer.array("bucket_mass", np.stack(self.mass))
        writer.array("bucket_sizes", self.sizes)
        writer.config["calibration"] = {
            "scales": self.scales.tolist(),
            "least_alignment": self.least_alignment,
            "least_reach": self.least_reach,
            "miss": self.miss,
            "rel_err": self.rel_err,
            "report": self.report,
        }

    @classmethod
    def load(cls, reader: Reader) -> "Calibration | None":
        """What `save` wrote, or None when the model was saved without."""
        facts: dict[str, Any] | None = reader.config.get("calibration")
        if facts is None:
            return None
        return cls(
            np.array(facts["scales"], dtype=np.float64),
            np.array(reader.array("hazards")),
            Mass(*np.array(reader.array("bucket_mass"))),
            np.array(reader.array("bucket_sizes")),
            float(facts["least_alignment"]),
            float(facts["least_reach"]),
            float(facts["miss"]),
            float(facts["rel_err"]),
            facts["report"],
        )

    @cached_property
    def _rates(self) -> dict[float, Levels]:
        return {}

    def _lines(self, table: Floats, met: list[bool]) -> tuple[Floats, list[bool]]:
        """Lines of single rungs, of the gaps between two, then all again, widened."""
        lines: Floats = np.concatenate([table, np.maximum(table[:-1], table[1:])])
        held = [*met, *(a and b for a, b in pairwise(met))]
        widened, buckets = lines, np.arange(self.buckets)
        for shift in range(1, _WIDENING + 1):
            widened = np.maximum(widened, lines[:, np.maximum(buckets - shift, 0)])
        return np.concatenate([lines, widened]), held + [False] * len(held)
