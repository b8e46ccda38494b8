"""`Calibration`: how eagerly `Stratified` looks at a cell, by the rank of the cell, and what that was measured to cost.

Cells are ranked by routing score and grouped into buckets of ranks that grow by about sqrt(2). A bucket has a
*hazard*: a row in it is looked at with rate 1 - exp(-hazard), that is, when its Gumbel exceeds -log(hazard). Hazards
depend on the scale |theta| / temperature; the calibration holds a ladder of scales.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.persist import Reader, Writer

__all__ = ["Calibration", "bucket_edges", "neyman"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WIDENING = 6
"""How many buckets a widened look is shifted: six buckets are about eight times as many cells."""


def bucket_edges(cells: int) -> Ints:
    """First ranks of the buckets, and `cells` at the end."""
    edges = [0, 1]
    while edges[-1] < cells:
        edges.append(min(cells, max(edges[-1] + 1, round(edges[-1] * 1.41))))
    return np.unique(np.minimum(edges, cells)).astype(np.int64)


def neyman(sizes: Floats, squares: Floats, rel_err: float) -> Floats:
    """Rates for the buckets that meet a relative variance of rel_err^2 with the fewest rows, non-increasing.

    The relative variance is sum over buckets of q (1 / rate - 1) with q = sum of p_i^2: the best rates are proportional
    to sqrt(q / rows), capped at one. `sizes` holds the rows and `squares` the q of each bucket.
    """
    shape = np.sqrt(squares / np.maximum(sizes, 1.0))
    shape = np.maximum.accumulate(shape[::-1])[::-1]
    shape = np.maximum(shape, shape.max() * 1e-12)
    low, high = -60.0, 120.0
    rates = np.ones_like(shape)
    for _ in range(60):
        middle = (low + high) / 2
        rates = np.minimum(1.0, shape * np.exp(middle))
        if (squares * (1.0 / rates - 1.0)).sum() > rel_err**2:
            low = middle
        else:
            high = middle
    return np.minimum(1.0, shape * np.exp(high))


@dataclass(frozen=True, eq=False)
class Calibration:
    """Hazards by scale and bucket, and the figures measured on fresh thetas."""

    edges: Ints
    """First rank of each bucket, (K + 1,)."""
    scales: Floats
    """The ladder of |theta| / temperature, increasing, (S,)."""
    hazards: Floats
    """For sampling, (S, K)."""
    squares: Floats
    """Mean over thetas of the sum of p_i^2 in each bucket, (S, K): what estimates need."""
    sizes: Floats
    """Mean number of rows in each bucket, (K,)."""
    least_alignment: float
    """A theta whose best cosine with a centroid is smaller is unlike those of the calibration."""
    miss: float
    """The mean miss probability that was aimed at."""
    rel_err: float
    """The relative error of Z that was aimed at."""
    report: list[dict[str, float]]
    """For each scale checked: miss and relative error on thetas that the rates were not fitted to."""

    def sampling_hazards(self, scale: float, alignment: float) -> tuple[Floats, bool]:
        """Hazards for one theta, (K,), and whether they are calibrated for it; if not, they are widened."""
        rungs, within = self._rungs(scale)
        hazards = self.hazards[rungs].max(axis=0)
        met = all(self.report[rung]["miss_mean"] <= self.miss for rung in rungs)
        return self._judged(hazards, within, met, alignment)

    def estimation_hazards(self, scale: float, alignment: float, rel_err: float) -> tuple[Floats, bool]:
        """Hazards that give Z to the relative error asked for, (K,), and whether they are calibrated."""
        rungs, within = self._rungs(scale)
        hazards = np.max([self._neyman_hazards(rung, rel_err) for rung in rungs], axis=0)
        met = all(self.report[rung]["rel_err_rms"] <= 1.1 * self.rel_err for rung in rungs)
        return self._judged(hazards, within, met, alignment)

    def save(self, writer: Writer) -> None:
        """Arrays, and the figures for `lazygumbel info`."""
        writer.array("bucket_edges", self.edges)
        writer.array("hazards", self.hazards)
        writer.array("squares", self.squares)
        writer.array("bucket_sizes", self.sizes)
        writer.config["calibration"] = {
            "scales": self.scales.tolist(),
            "least_alignment": self.least_alignment,
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
            np.array(reader.array("bucket_edges")),
            np.array(facts["scales"], dtype=np.float64),
            np.array(reader.array("hazards")),
            np.array(reader.array("squares")),
            np.array(reader.array("bucket_sizes")),
            float(facts["least_alignment"]),
            float(facts["miss"]),
            float(facts["rel_err"]),
            facts["report"],
        )

    def _rungs(self, scale: float) -> tuple[list[int], bool]:
        """The rungs around a scale, both of whose hazards it takes; a scale off the ladder takes the end."""
        above = int(np.searchsorted(self.scales, scale * 0.99))
        if above == len(self.scales):
            return [above - 1], False
        if above == 0 or self.scales[above] < 1.02 * scale:  # a rung of its own, or flatter than the lowest
            return [above], True
        return [above - 1, above], True

    def _judged(self, hazards: Floats, within: bool, met: bool, alignment: float) -> tuple[Floats, bool]:
        """Calibrated only on the ladder, for a theta like those seen, where fresh thetas met the target."""
        if within and alignment >= self.least_alignment:
            return hazards, met
        return hazards[np.maximum(np.arange(len(hazards)) - _WIDENING, 0)], False

    def _neyman_hazards(self, rung: int, rel_err: float) -> Floats:
        key = (rung, rel_err)
        if key not in self._cache:
            with np.errstate(divide="ignore"):
                self._cache[key] = -np.log1p(-neyman(self.sizes, self.squares[rung], rel_err))
        return self._cache[key]

    @cached_property
    def _cache(self) -> dict[tuple[int, float], Floats]:
        return {}
