"""Few rows under two indexes, and thetas of every batch shape."""

from collections.abc import Sequence

import numpy as np

from lazygumbel import ExactIndex, Features, LogLinear
from lazygumbel.merged.parts import Part
from statistics_helpers import make_rows, partition_model

N, D = 300, 5
ROWS = make_rows(N, D, varied=True, seed=1)
THETAS = 3 * make_rows(4, D, seed=2)
SHAPES = {(): THETAS[0], (1,): THETAS[:1], (4,): THETAS, (0,): THETAS[:0]}


def exact_model() -> LogLinear:
    return LogLinear(ExactIndex.build(Features.of(ROWS)))


def raced_model() -> LogLinear:
    return partition_model(N, D, varied=True, seed=1, cells=20)


class Directory:
    """`Places` of parts whose rows all can be drawn: two tables."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.size = max(int(part.ids.max()) + 1 for part in parts)
        self._part, self._place = np.full((2, self.size), -1, dtype=np.int64)
        for p, part in enumerate(parts):
            self._part[part.ids], self._place[part.ids] = p, np.arange(len(part.ids))

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._part[ids], self._place[ids]
