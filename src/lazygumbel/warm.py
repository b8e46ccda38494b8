"""`warm_up`: compile what a service will call before its first request comes."""

import numpy as np

from lazygumbel._support.arrays import Vectors
from lazygumbel._support.threads import get_threads
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.helping import call_helper, let_go
from lazygumbel.methods import Exhaustive
from lazygumbel.model import LogLinear

__all__ = ["warm_up"]

_ROWS, _CELLS = 2_000, 20


def warm_up() -> None:
    """Load or compile every kernel; some seconds once, then a fraction of one.

    Compiled code is kept on disk, beside the package, until the package changes.
    """
    rows = np.random.default_rng(0).standard_normal((_ROWS, 8), dtype=np.float32)
    model = LogLinear(PartitionIndex.build(rows, cells=_CELLS, rng=0))
    _ask(model, rows[:2])
    let_go(call_helper(get_threads() > 1))
    model.add(rows[:2])
    model.remove([_ROWS - 1, _ROWS])
    _ask(model, rows[:2])
    model.compact()


def _ask(model: LogLinear, thetas: Vectors) -> None:
    """Every verb, of one theta and of a batch, with and without a row that is left out."""
    for theta in (thetas[0], thetas):
        dist = model(theta)
        dist.sample(method=Exhaustive(), rng=0)
        dist.log_prob(np.zeros(dist.batch_shape, dtype=np.int64), rng=0)
        for exclude in (None, [1]):
            dist.sample(rng=0, exclude=exclude)
            dist.sample_without_replacement(2, rng=0, exclude=exclude)
            dist.log_partition(rng=0, exclude=exclude)
            dist.expectation(rng=0, exclude=exclude)
            dist.top_k(2, exclude=exclude)
    model.audit(thetas[0])
