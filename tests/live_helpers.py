"""Live models in small, for tests of rows that come and go."""

import numpy as np

import lazygumbel as lg
from lazygumbel.indexes import ExactIndex, PartitionIndex

D = 8
INDEXES = [ExactIndex, PartitionIndex]


def rows_of(seed, count, shift=0.0):
    return (np.random.default_rng(seed).standard_normal((count, D)) + shift).astype(np.float32)


def build(index, n=600, names=None):
    features = lg.Features.of(rows_of(0, n), names=names)
    return lg.LogLinear(index.build(features) if index is ExactIndex else index.build(features, rng=0))


def churned(index, steps=8):
    """A model after some changes, and its rows by id."""
    model, rng = build(index), np.random.default_rng(1)
    held = dict(enumerate(rows_of(0, 600)))
    for step in range(steps):
        new = rows_of(100 + step, int(rng.integers(1, 90)))
        held.update(zip(model.add(new).tolist(), new, strict=True))
        gone = rng.choice(model.ids, 25, replace=False)
        model.remove(gone)
        for i in gone.tolist():
            del held[i]
        changed, new = rng.choice(model.ids, 20, replace=False), rows_of(200 + step, 20)
        model.replace(changed, new)
        held.update(zip(changed.tolist(), new, strict=True))
    return model, held


def near(ours, value):
    """An estimate, to six standard errors."""
    return np.all(np.abs(ours.value - value) <= 6 * ours.stderr + 1e-4)


THETAS = rows_of(7, 3)
