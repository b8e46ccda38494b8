"""Many changes: what draws, drift and readers make of them, and what compacting leaves alone."""

import threading

import numpy as np
import pytest
from scipy.stats import chisquare

import lazygumbel as lg
from lazygumbel._support.persist import read_config
from lazygumbel.indexes import PartitionIndex
from lazygumbel.live import rows as live_rows
from lazygumbel.progress import Silent
from live_helpers import INDEXES, THETAS, D, build, churned, near, rows_of


@pytest.fixture(autouse=True, scope="module")
def small_tails():
    """So that a few hundred rows are sealed and merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_rows, "_TAIL", 64)
        yield


def test_replacing_every_row_by_others_keeps_draws_bounded_and_says_so():
    rng = np.random.default_rng(3)
    centres = 3 * rng.standard_normal((30, 16))
    phi = (centres[rng.integers(30, size=3000)] + 0.3 * rng.standard_normal((3000, 16))).astype(np.float32)
    model = lg.LogLinear(PartitionIndex.build(phi, rng=0))
    others = (2.5 * rng.standard_normal((3000, 16)) + 4).astype(np.float32)
    thetas = rng.standard_normal((6, 16)).astype(np.float32)
    for start in range(0, 3000, 500):
        chosen = np.arange(start, start + 500)
        model.replace(chosen, others[chosen])
        audit = model.audit(thetas, temperature=2.0)
        assert set(audit.labels) <= {"bounded", "exact"} and audit.miss.mean() <= 1e-3
        assert (audit.bound <= 1e-4).all()
    assert np.array_equal(model.features.gather(np.arange(3000)), others)
    logits = others.astype(np.float64) @ thetas[0] / 2.0
    chances = np.exp(logits - np.logaddexp.reduce(logits))
    common = np.argsort(-chances)[:30]
    theirs = np.append(chances[common], 1 - chances[common].sum())
    counts = np.bincount(model(thetas[0], temperature=2.0).sample(20_000, rng=0).ids, minlength=3000)
    ours = np.append(counts[common], 20_000 - counts[common].sum())
    assert chisquare(ours, 20_000 * theirs / theirs.sum()).pvalue > 1e-3  # by what is drawn, not by the audit's word
    drift = model.drift()
    assert drift.residuals > 1.5 and "rebuild" in drift.advice and drift.removed == drift.added == 3000
    model.compact(rebuild=True)
    assert model.drift().advice == "nothing to gain"


def test_compacting_a_model_leaves_its_snapshots_alone():
    """A part that holds all rows becomes the build of one, and stays what it was of the other."""
    model, new, more = build(PartitionIndex), rows_of(8, 300, shift=1.0), rows_of(9, 200, shift=-1.0)
    model.add(new)
    model.remove(np.arange(600))
    (part,) = model.parts
    other, cells = model.snapshot(), part.cells
    assert cells is not None and part.count == len(part.ids) == 300
    model.compact()
    assert part.cells is cells and model.parts[0].cells is None and other.drift().removed == 600
    other.add(more)
    rows = np.concatenate([new, more])
    for theta in (THETAS[0], -THETAS[0]):
        assert near(other(theta).log_partition(rng=0), np.logaddexp.reduce(rows.astype(np.float64) @ theta))
        audit = other.audit(theta)
        assert (audit.miss < 1e-3).all() and set(audit.labels) <= {"bounded", "exact"}
    means = other._live.base.index.partition.means
    for part in other.parts:
        assert np.array_equal(part.index.partition.means, means[part.cells])


def test_drift_is_measured_against_the_build_until_cells_are_trained_anew(tmp_path):
    """Compacting puts all rows into the cells of the build, which may be far from them: that must not be forgotten."""
    rng = np.random.default_rng(3)
    centres = 3 * rng.standard_normal((30, 8))
    phi = (centres[rng.integers(30, size=3000)] + 0.3 * rng.standard_normal((3000, 8))).astype(np.float32)
    model = lg.LogLinear(PartitionIndex.build(phi, rng=0))
    model.add(phi[:500] + np.float32(0.01))
    assert 0.8 < model.drift().residuals < 1.2  # a control: rows like those of the build
    model.remove(np.arange(3000, 3500))
    model.replace(np.arange(1500), rows_of(5, 1500) * 3 + 4)
    before = model.drift()
    assert before.residuals > 1.8 and "rebuild=True" in before.advice
    model.save(tmp_path / "saved")
    model.compact()
    model.save(tmp_path / "compacted")
    for found in (model, *(lg.LogLinear.load(tmp_path / name) for name in ("saved", "compacted"))):
        drift = found.drift()
        assert drift.added == drift.removed == 0 and drift.parts == 1
        assert drift.residuals == pytest.approx(before.residuals, rel=0.1)
        assert drift.largest_cell == pytest.approx(before.largest_cell, rel=0.1) and "rebuild=True" in drift.advice
    with lg.LogLinear.load(tmp_path / "saved", mode="r+") as opened:
        opened.compact()
    assert "rebuild=True" in lg.LogLinear.load(tmp_path / "saved").drift().advice
    model.compact(rebuild=True)
    assert model.drift().residuals == 1 and model.drift().advice == "nothing to gain"
    model.save(tmp_path / "anew")
    assert "built" not in read_config(tmp_path / "anew")


class Held(Silent):
    """Stops what it watches when a task begins, until it is let go."""

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def task(self, label, total):
        self.begun.set()
        assert self.go.wait(60)
        return super().task(label, total)


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("index", INDEXES)
def test_readers_do_not_wait_for_compact(index, rebuild):
    model, held = churned(index, steps=2)
    watch = Held()
    writer = threading.Thread(target=model.compact, args=(watch,), kwargs={"rebuild": rebuild})
    writer.start()
    try:
        assert watch.begun.wait(60)
        before = model(THETAS[0])
        assert np.isin(before.sample(50, rng=0).ids, model.ids).all() and model.drift().parts > 1
    finally:
        watch.go.set()
        writer.join()
    assert model.drift().parts == 1 and np.array_equal(model.ids, np.array(sorted(held)))


def test_readers_see_whole_versions_while_a_writer_changes_and_compacts():
    """Version v has v in the first entry of every row: a mean between two whole numbers would be a torn read."""
    count = 400
    start = rows_of(0, count)
    start[:, 0] = 0.0
    model = lg.LogLinear(PartitionIndex.build(start, rng=0))
    done, wrong, seen = threading.Event(), [], []

    def read():
        while not done.is_set():
            removed = floor[0]
            dist = model(np.zeros(D), temperature=1.0)
            mean = float(dist.expectation(method=lg.Exhaustive()).value[0])
            ids = dist.sample(20, rng=0).ids
            again = float(dist.expectation(method=lg.Exhaustive()).value[0])
            seen.append(mean)
            if abs(mean - round(mean)) > 1e-4 or again != mean or (removed and (ids < removed).any()):
                wrong.append((mean, again, removed))

    floor = [0]
    reader = threading.Thread(target=read)
    reader.start()
    for version in range(1, 25):
        new = rows_of(version, count)
        new[:, 0] = version
        model.replace(np.sort(model.ids), new)
        if version % 8 == 0:
            model.compact()
    few = model.ids[:5]
    model.remove(few)
    floor[0] = 5  # no draw after this may have them
    for _ in range(20):
        model(np.zeros(D)).sample(5)
    done.set()
    reader.join()
    assert not wrong and len(set(map(round, seen))) > 1
