"""Any sequence of changes, saves, loads and crashes against a plain dictionary."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.stats import chisquare

import lazygumbel as lg
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.live import rows as live_rows

D = 5
SEEDS = st.integers(0, 2**20)


@pytest.fixture(autouse=True)
def small_tails(monkeypatch):
    monkeypatch.setattr(live_rows, "_TAIL", 16)


def rows_of(seed, count):
    return np.random.default_rng(seed).standard_normal((count, D)).astype(np.float32)


class Changing(RuleBasedStateMachine):
    @initialize(partition=st.booleans(), seed=SEEDS)
    def build(self, partition, seed):
        self.folder = Path(tempfile.mkdtemp())
        self.held = dict(enumerate(rows_of(seed, 60)))
        self.size = 60
        features = lg.Features.of(rows_of(seed, 60))
        index = PartitionIndex.build(features, rng=0) if partition else ExactIndex.build(features)
        lg.LogLinear(index).save(self.folder / "0")
        self.number = 0
        self.model = lg.LogLinear.load(self.folder / "0", mode="r+")

    @rule(seed=SEEDS, count=st.integers(0, 40))
    def add(self, seed, count):
        new = rows_of(seed, count)
        assert self.model.add(new).tolist() == list(range(self.size, self.size + count))
        self.held.update(zip(range(self.size, self.size + count), new, strict=True))
        self.size += count

    @precondition(lambda self: len(self.held) > 2)
    @rule(seed=SEEDS, share=st.floats(0, 0.9))
    def remove(self, seed, share):
        gone = self._some(seed, share)
        self.model.remove(gone)
        for i in gone.tolist():
            del self.held[i]

    @rule(seed=SEEDS, share=st.floats(0, 1))
    def replace(self, seed, share):
        ids = self._some(seed, share)
        new = rows_of(seed, len(ids))
        self.model.replace(ids, new)
        self.held.update(zip(ids.tolist(), new, strict=True))

    @rule(rebuild=st.booleans())
    def compact(self, rebuild):
        self.model.compact(rebuild=rebuild)

    @rule()
    def save_and_load(self):
        self._move(lambda to: self.model.save(to))

    @rule(torn=st.binary(max_size=40))
    def crash(self, torn):
        """The folder as it is, a lock and the beginning of a record included."""

        def copy(to):
            shutil.copytree(self.folder / str(self.number), to)
            for log in to.glob("changes-*.log"):
                log.write_bytes(log.read_bytes() + torn)

        self._move(copy)

    @invariant()
    def answers_are_those_of_the_dictionary(self):
        if not hasattr(self, "model"):
            return
        ids = np.array(sorted(self.held))
        rows = np.stack([self.held[i] for i in ids.tolist()])
        assert np.array_equal(self.model.ids, ids) and self.model.size == self.size
        assert np.array_equal(self.model.features.gather(ids), rows)
        theta = rows_of(self.size, 1)[0]
        logits = rows.astype(np.float64) @ theta
        dist = self.model(theta)
        log_z = np.logaddexp.reduce(logits)
        assert abs(dist.log_partition(method=lg.Exhaustive()).value - log_z) < 1e-4
        found = dist.log_partition(rng=0)
        assert abs(found.value - log_z) < 7 * found.stderr + 1e-4
        k = min(5, len(ids))
        top = dist.top_k(k)
        assert np.allclose(np.sort(logits)[::-1][:k], top.scores, atol=1e-4) and len(set(top.ids.tolist())) == k
        assert np.allclose(logits[np.searchsorted(ids, top.ids)], top.scores, atol=1e-4) and np.isin(top.ids, ids).all()
        counts = np.bincount(np.searchsorted(ids, dist.sample(400, rng=self.size).ids), minlength=len(ids))
        order, expected = np.argsort(logits), 400 * np.exp(logits - log_z)
        bins = np.unique((np.cumsum(expected[order]) / 20).astype(int), return_inverse=True)[1]
        ours, theirs = np.bincount(bins, counts[order]), np.bincount(bins, expected[order])
        assert len(theirs) == 1 or chisquare(ours, theirs * ours.sum() / theirs.sum()).pvalue > 1e-6

    def teardown(self):
        if hasattr(self, "model"):
            self.model.close()
            shutil.rmtree(self.folder)

    def _some(self, seed, share):
        ids = np.array(sorted(self.held))
        return np.random.default_rng(seed).choice(ids, int(share * len(ids)), replace=False)

    def _move(self, write):
        write(self.folder / str(self.number + 1))
        self.model.close()
        self.number += 1
        self.model = lg.LogLinear.load(self.folder / str(self.number), mode="r+")


Changing.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None, derandomize=True)
TestChanging = pytest.mark.usefixtures("small_tails")(Changing.TestCase)
