"""`warm_up`: compile what a service will call before its first request comes."""

import numpy as np

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
    for theta in (rows[0], rows[:2]):
        dist = model(theta)
        dist.sample(rng=0)
        dist.sample(method=Exhaustive(), rng=0)
        dist.sample_without_replacement(2, rng=0)
        dist.log_prob(np.zeros(dist.batch_shape, dtype=np.int64), rng=0)
        dist.expectation(rng=0)
        dist.top_k(2)
    let_go(call_helper(get_threads() > 1))
    model.add(rows[:2])
    for theta in (rows[0], rows[:2]):
        model(theta).sample(rng=0)
