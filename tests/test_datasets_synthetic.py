"""Made-up rows are held to their recipe."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dataset_helpers import Recorder
from lazygumbel import datasets

# Made-up rows


def in_blocks(rows: int, **arguments) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygumbel.datasets.clusters._BLOCK_ROWS", rows)
        return datasets.synthetic(**arguments).stored


class OneStream(np.random.Generator):
    """The mistake that blocks would show: every kind of draw from the same stream."""

    def spawn(self, n_children: int):
        return [self] * n_children


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), more=st.integers(0, 9), d=st.integers(1, 33), clusters=st.integers(1, 5), data=st.data())
def test_synthetic_rows_do_not_depend_on_blocks_or_on_n(n, more, d, clusters, data):
    rows = in_blocks(4096, n=n, d=d, clusters=clusters, rng=7)
    assert rows.dtype == np.float32 and rows.shape == (n, d)
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, rtol=1e-6)
    block = data.draw(st.integers(1, n + more))
    longer = in_blocks(block, n=n + more, d=d, clusters=clusters, rng=7)
    assert longer[:n].tobytes() == rows.tobytes()


def test_synthetic_from_one_stream_would_depend_on_blocks():
    one, other = (in_blocks(block, n=40, d=5, rng=OneStream(np.random.PCG64(7))) for block in (7, 4096))
    assert one.tobytes() != other.tobytes()


def test_synthetic_seeds():
    first = datasets.synthetic(50, 8, rng=3).stored
    np.testing.assert_array_equal(datasets.synthetic(50, 8, rng=np.random.default_rng(3)).stored, first)
    assert not np.isclose(datasets.synthetic(50, 8, rng=4).stored, first).all(axis=1).any()
    generator = np.random.default_rng(3)
    assert not np.isclose(*(datasets.synthetic(50, 8, rng=generator).stored for _ in range(2))).all(axis=1).any()


def effective_states(rows: np.ndarray) -> float:
    """Median over thetas among the rows of exp(entropy) at temperature 0.05."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    logits = rows[::500].astype(np.float64) @ rows.T.astype(np.float64) / 0.05
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return float(np.median(np.exp(-np.sum(shares * np.log(shares), axis=1))))


def test_synthetic_is_neither_flat_nor_peaked():
    rng = np.random.default_rng(0)
    n, d, clusters = 20_000, 64, 16  # about as many rows in a cluster as at full size
    assert 200 < effective_states(datasets.synthetic(n, d, clusters=clusters, rng=0).stored) < n / 10
    assert effective_states(rng.normal(size=(n, d))) < 2  # no neighbours: each row alone
    assert effective_states(1 + 0.1 * rng.normal(size=(n, d))) > n / 2  # one narrow cluster: nearly uniform


def test_synthetic_spectrum():
    def slope(rows: np.ndarray) -> float:
        return np.polyfit(np.log(np.arange(1, rows.shape[1] + 1)), np.log(rows.var(axis=0)), 1)[0]

    rows = datasets.synthetic(20_000, 64, clusters=5_000, rng=0).stored
    assert abs(slope(rows) + 1) < 0.1
    mixed, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))
    assert abs(slope(rows @ mixed)) < 0.5  # the same rows in other coordinates


def test_synthetic_sizes_and_closeness(monkeypatch):
    cosines = []
    for seed in range(20):
        rows = datasets.synthetic(300, clusters=1, rng=seed).stored
        cosines.append((np.square(rows.sum(axis=0)).sum() - 300) / (300 * 299))
    assert 0.5 < min(cosines) < 0.7 < 0.8 < max(cosines) < 0.95

    monkeypatch.setattr("lazygumbel.datasets.clusters._CLOSENESS", (1.0, 1.0))  # rows are their centres
    _, sizes = np.unique(datasets.synthetic(20_000, 4, clusters=30, rng=0).stored, axis=0, return_counts=True)
    sizes = np.sort(sizes)[::-1]
    law = np.arange(1, 31) ** -0.8
    assert chisquare(sizes, 20_000 * law / law.sum()).pvalue > 1e-3
    assert chisquare(sizes, np.full(30, 20_000 / 30)).pvalue < 1e-9
    law = np.arange(1, 31) ** -0.7
    assert chisquare(sizes, 20_000 * law / law.sum()).pvalue < 1e-3


def test_synthetic_memory(monkeypatch):
    monkeypatch.setattr("lazygumbel.datasets.clusters._BLOCK_ROWS", 512)
    progress = Recorder()
    tracemalloc.start()
    rows = datasets.synthetic(40_000, 64, rng=0, progress=progress).stored
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.nbytes < peak < 1.2 * rows.nbytes
    assert progress.stages == [[40_000, 40_000]]


@pytest.mark.parametrize("name", ["n", "d", "clusters"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_synthetic_refusals(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*{value}"):
        datasets.synthetic(**({"n": 10, "d": 4} | {name: value}))
