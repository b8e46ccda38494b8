"""`Bounded`: the race with ceilings over all codes of a `PartitionIndex`. The default.

Row i fires after a time Exp(rate e^(y_i)), and the first to fire is the sample: Gumbel-max in other words. With a
ceiling U_i >= y_i rows propose at rate e^(U_i), and a proposal is accepted with probability e^(y_i - U_i): Poisson
thinning, so that the first to be accepted is an exact sample, and only proposals are scored. Algorithm 1 of the paper
is this with one ceiling for the whole tail. Here every row has its own, by a code of a few bits an entry, and what is
lost where it is too low is at most delta, whatever the rows and theta: see `indexes.partition.law`.
"""

from dataclasses import dataclass

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel._support.checks import check_number
from lazygumbel.methods.base import Function, Phi, Query, Seen
from lazygumbel.methods.racing import (
    LEAST_DELTA,
    Drawn,
    Rules,
    ceilings_of,
    for_each_theta,
    pack_draws,
    pack_ordered,
    partition_of,
    race,
)
from lazygumbel.methods.sums import sum_theta
from lazygumbel.methods.weighing import concatenate
from lazygumbel.results import Draws, OrderedDraws, grounds

__all__ = ["Bounded"]

_LEAST_ERROR = 1e-12
"""Of float64 sums; from far above it on all rows are summed."""


@dataclass(frozen=True)
class Bounded:
    """Draws whose total variation distance from the softmax is at most `delta`, in expectation over the rotation.

    `rel_err` is the relative standard error of Z that sums aim at. Needs a `PartitionIndex`.
    """

    delta: float = 1e-4
    rel_err: float = 0.01

    def __post_init__(self) -> None:
        check_number(self.delta, "delta", least=LEAST_DELTA, below=0.02)
        check_number(self.rel_err, "rel_err", least=_LEAST_ERROR, below=1.0)

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Independent samples. A theta for which the race would be slower gets a dense pass, which is exact."""
        return pack_draws(self._draw_all(query, size, rng, distinct=False))

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The first distinct rows of one race, and one more for the threshold; each draw adds at most delta."""
        return pack_ordered(query, self._draw_all(query, size, rng, distinct=True), size)

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Certain rows, and rows sampled from the others: unbiased sums, with the variance between the samples."""
        index = partition_of(query, self)
        seeds = rng.integers(2**63, size=(query.size, 3)).tolist()
        alone = not (f is None or isinstance(f, Phi))  # a function of the user's is not called from several threads
        found = for_each_theta(query, lambda b: sum_theta(index, query, b, f, self.rel_err, seeds[b]), alone=alone)
        return Seen(
            concatenate([summed.moments for summed in found]),
            np.array([summed.rows for summed in found], dtype=np.int64),
            grounds([summed.reason for summed in found]),
            np.array([summed.bound for summed in found]),
        )

    def ceilings(self, query: Query, seed: int) -> Floats:
        """Ceilings of the logits of one theta, by id, as draws with this seed have them; inf where rows are scored."""
        return ceilings_of(query, self, self.delta, None, seed)

    def _draw_all(self, query: Query, size: int, rng: np.random.Generator, *, distinct: bool) -> Drawn:
        return race(partition_of(query, self), query, Rules(self.delta, None, size, distinct), rng)
