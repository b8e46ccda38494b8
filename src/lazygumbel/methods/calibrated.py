"""`Calibrated`: the race with ceilings, sublinear: cells far from theta have one ceiling for all of their rows.

How high that has to be was measured by `LogLinear.calibrate` on thetas like those that are asked for, to a mean total
variation distance, not proved. A theta unlike them is raced over all codes, and is bounded.
"""

from dataclasses import dataclass

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel._support.checks import check_number
from lazygumbel.indexes.partition import Calibration
from lazygumbel.methods.base import Query
from lazygumbel.methods.racing import (
    LEAST_DELTA,
    Drawn,
    Rules,
    ceilings_of,
    pack_draws,
    pack_ordered,
    partition_of,
    race,
)
from lazygumbel.results import Draws, OrderedDraws

__all__ = ["Calibrated"]


@dataclass(frozen=True)
class Calibrated:
    """Draws whose mean total variation distance was measured to meet a target. Needs `LogLinear.calibrate` first.

    `delta` is what the codes of near cells may lose, as in `Bounded`.
    """

    delta: float = 1e-4

    def __post_init__(self) -> None:
        check_number(self.delta, "delta", least=LEAST_DELTA, below=0.02)

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Independent samples."""
        return pack_draws(self._draw_all(query, size, rng, distinct=False))

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The first distinct rows of one race, and one more for the threshold."""
        return pack_ordered(query, self._draw_all(query, size, rng, distinct=True), size)

    def ceilings(self, query: Query, seed: int) -> Floats:
        """Ceilings of the logits of one theta, by id, as draws with this seed have them; inf where rows are scored."""
        return ceilings_of(query, self, self.delta, self._calibration(query), seed)

    def _draw_all(self, query: Query, size: int, rng: np.random.Generator, *, distinct: bool) -> Drawn:
        rules = Rules(self.delta, self._calibration(query), size, distinct)
        return race(partition_of(query, self), query, rules, rng)

    def _calibration(self, query: Query) -> Calibration:
        calibration = partition_of(query, self).calibration
        if calibration is None:
            raise ValueError("method: Calibrated needs a calibration; call model.calibrate(thetas) first")
        return calibration
