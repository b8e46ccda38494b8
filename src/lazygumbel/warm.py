"""`warm_up`: compile what a service will call before its first request comes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lazygumbel.features import Features
from lazygumbel.indexes import PartitionIndex
from lazygumbel.model import LogLinear

__all__ = ["warm_up"]

_ROWS, _CELLS, _THETAS = 2_000, 300, 64


def warm_up() -> None:
    """Load or compile every kernel, for models in memory and for loaded ones; a minute once, then about a second.

    Compiled code is kept on disk, beside the package, until the package changes.
    """
    rows = np.random.default_rng(0).standard_normal((_ROWS, 8), dtype=np.float32)
    built = LogLinear(PartitionIndex.build(Features.of(rows), cells=_CELLS, rng=0))
    built.calibrate(thetas=rows[:_THETAS], rng=0)
    with TemporaryDirectory() as folder:
        built.save(Path(folder) / "model")
        for model in (built, LogLinear.load(Path(folder) / "model")):
            for theta in (rows[0], rows[:2]):
                dist = model(theta)
                dist.sample(rng=0)
                dist.sample_without_replacement(2, rng=0)
                dist.log_prob(np.zeros(dist.batch_shape, dtype=np.int64), rng=0)
                dist.expectation(rng=0)
                dist.entropy(rng=0)
                dist.top_k(2)
