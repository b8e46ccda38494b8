"""What tests of datasets share."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np

from lazygumbel.rows.features import Features

ROWS = np.array([[0.5, -1.25, 3.0], [1e-3, 2.0, -7.5], [4.0, 0.0, 1 / 3], [9.0, 8.0, 7.0]], dtype=np.float32)
WORDS = ["the", "naïve", ". . .", "x1"]


def all_rows(features: Features) -> np.ndarray:
    return np.concatenate([block.rows for block in features.blocks(rows=3)])


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class Recorder:
    """A progress that adds up what it is told."""

    def __init__(self) -> None:
        self.stages: list[list[float]] = []

    @contextmanager
    def task(self, label: str, total: float):
        assert label
        self.stages.append([total, 0])
        yield self

    def advance(self, amount: float) -> None:
        self.stages[-1][1] += amount
