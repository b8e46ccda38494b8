"""Few rows under two indexes, and thetas of every batch shape."""

from lazygumbel import (
    ExactIndex,
    Features,
    LogLinear,
)
from statistics_helpers import make_rows, partition_model

N, D = 300, 5
ROWS = make_rows(N, D, varied=True, seed=1)
THETAS = 3 * make_rows(4, D, seed=2)
SHAPES = {(): THETAS[0], (1,): THETAS[:1], (4,): THETAS, (0,): THETAS[:0]}


def exact_model() -> LogLinear:
    return LogLinear(ExactIndex.build(Features.of(ROWS)))


def raced_model() -> LogLinear:
    return partition_model(N, D, varied=True, seed=1, cells=20)
