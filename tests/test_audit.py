"""Audits against brute force, and against draws."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lazygumbel as lg
from lazygumbel import (
    Bounded,
    Exhaustive,
    FaissIndex,
    Features,
    FixedCutoff,
    Frozen,
    LazyGumbel,
    LogLinear,
    TopKOnly,
    UniformTail,
)
from lazygumbel._support.arrays import Floats, Mask
from lazygumbel.guarantees.audit import race_distance
from lazygumbel.methods import Query
from lazygumbel.methods.base import Accuracy
from lazygumbel.methods.draw import log_sum_exp
from lazygumbel.methods.fixed_cutoff import miss_fixed, paper_bound
from lazygumbel.methods.lazy import miss_adaptive
from statistics_helpers import PoorIndex, logits_of, make_rows, partition_model, race


@pytest.mark.parametrize("method", [FixedCutoff(20, 10), LazyGumbel(20), TopKOnly(20)])
def test_samplers_lose_no_more_than_the_audit_says(method) -> None:
    """The row that the index hides is drawn too rarely, but not more so than its miss."""
    model, theta = hidden_row_model()
    logits = logits_of(model.features.gather(np.arange(400)), theta, 0.1)
    p = np.exp(logits - log_sum_exp(logits))
    audit = model.audit(theta, temperature=0.1, method=method)
    drawn = model(theta, temperature=0.1).sample(20_000, method=method, rng=4).ids
    frequency = np.bincount(drawn, minlength=400) / 20_000
    outside = logits > np.sort(logits)[-5]
    noise = 4 * math.sqrt(0.25 / 20_000)
    assert frequency[outside].sum() >= p[outside].sum() - audit.miss[0] - noise
    assert 0.5 * np.maximum(p - frequency, 0).sum() <= audit.miss[0] + 0.05
    assert audit.miss[0] > 0.02


def hidden_row_model() -> tuple[LogLinear, npt.NDArray[np.float32]]:
    """A model whose index leaves out every other one of the best rows, at a theta for which that matters most."""
    model = LogLinear(PoorIndex(LogLinear.build(make_rows(400, 6, seed=5)).index))
    thetas = make_rows(200, 6, seed=6)
    audit = model.audit(thetas, temperature=0.1, method=LazyGumbel(20))
    return model, thetas[int(audit.miss.argmax())]


# The report


def brute_force(rows: npt.ArrayLike, theta: npt.ArrayLike, found: npt.NDArray[np.int64], temperature: float):
    logits = logits_of(rows, theta, temperature)
    head = np.isin(np.arange(len(logits)), found)
    gap = logits[~head].max() - logits[head].min()
    recall = np.isin(np.argsort(-logits)[: len(found)], found).mean()
    mass = np.exp(log_sum_exp(logits[head]) - log_sum_exp(logits))
    return logits, head, gap, recall, mass


@pytest.mark.parametrize("method", [FixedCutoff(30, 50), LazyGumbel(30, gap=0.2), TopKOnly(30)])
def test_an_audit_equals_brute_force(method) -> None:
    rows, thetas = make_rows(1000, 6, varied=True, seed=8), make_rows(12, 6, seed=9)
    model = LogLinear(FaissIndex.build(Features.of(rows), "IVF60,Flat", parameters="nprobe=3"))
    audit = model.audit(thetas, temperature=0.2, method=method)
    assert audit.k == 30 and audit.temperature == 0.2 and audit.method == repr(method)
    seen_gaps = []
    for b, theta in enumerate(thetas):
        found = model.index.top_k(theta, 30)
        logits, head, gap, recall, mass = brute_force(rows, theta, found.ids, 0.2)
        seen_gaps.append(gap)
        np.testing.assert_allclose([audit.gap[b], audit.recall[b], audit.head_mass[b]], [gap, recall, mass], atol=1e-5)
        if isinstance(method, FixedCutoff):
            expected = miss_fixed(logits, head, -np.log(-np.log1p(-50 / 1000)))
            np.testing.assert_allclose(audit.bound[b], paper_bound(logits, head, method.cutoff(1000)), rtol=1e-3)
            assert audit.bound[b] >= audit.miss[b]
        else:
            adaptive = miss_adaptive(logits, head, logits[head].min(), 0.2)
            expected = adaptive if isinstance(method, LazyGumbel) else 1 - mass
            assert np.isnan(audit.bound[b])
        np.testing.assert_allclose(audit.miss[b], expected, rtol=1e-3, atol=1e-7)
    assert max(seen_gaps) > 0.2 and audit.recall.min() < 1  # the index was poor enough to be worth auditing


def test_an_exact_index_has_no_gap_full_recall_and_no_adaptive_miss() -> None:
    model = LogLinear.build(make_rows(500, 5, seed=10))
    audit = model.audit(make_rows(6, 5, seed=11), temperature=0.05, method=LazyGumbel())
    assert audit.k == math.ceil(math.sqrt(500))
    assert (audit.gap <= 1e-6).all() and (audit.recall == 1).all() and (audit.miss <= 1e-7).all()
    everything = model.audit(make_rows(6, 5, seed=11), method=Exhaustive())
    assert not everything.miss.any() and (everything.head_mass == pytest.approx(1.0)) and everything.k == 500


def test_rows_that_tie_do_not_cost_recall() -> None:
    rows = np.repeat(make_rows(20, 4, seed=12), 10, axis=0)
    audit = LogLinear.build(rows).audit(make_rows(10, 4, seed=13), method=TopKOnly(15))
    assert (audit.recall == 1).all()


def test_the_default_is_the_default_sampler_and_a_bare_theta_is_one() -> None:
    rows = make_rows(300, 4, seed=14)
    exact, raced = LogLinear.build(rows), partition_model(300, 4, seed=14)
    poor = LogLinear(PoorIndex(exact.index))
    for model, method, k in ((exact, Exhaustive(), 300), (raced, Bounded(), 0), (poor, FixedCutoff(), 52)):
        audit = model.audit(np.ones(4))
        assert audit.method == repr(method) and audit.k == k and audit.ceilings == (k == 0)
        for column in (
            audit.miss,
            audit.bound,
            audit.gap,
            audit.recall,
            audit.head_mass,
            audit.labels,
            audit.violations,
        ):
            assert column.shape == (1,)
        assert audit.labels[0] == model(np.ones(4)).sample(rng=0).label


@pytest.mark.parametrize(
    "method",
    [
        FixedCutoff(),
        FixedCutoff(delta=1e-12),
        FixedCutoff(10, 0),
        FixedCutoff(300, 5),
        LazyGumbel(),
        LazyGumbel(300),
        TopKOnly(7),
        TopKOnly(300),
        Exhaustive(),
        Bounded(),
        Bounded(delta=1e-3),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_the_report_is_a_table(method, size: int) -> None:
    races = isinstance(method, Bounded)
    model = partition_model(300, 4, seed=15) if races else LogLinear.build(make_rows(300, 4, seed=15))
    audit = model.audit(make_rows(max(size, 1), 4, seed=16)[:size], temperature=0.05, method=method)
    text = str(audit)
    lines = text.splitlines()
    head = "" if races else f", head k = {audit.k}"
    assert lines[0] == f"{method!r} at temperature 0.05{head}, {size} thetas"
    assert lines[1].split() == ["mean", "95%", "max"]
    assert len({len(line) for line in lines[1:-1]}) == 1
    if size:
        names = [line[:24].strip() for line in lines[2:-1]]
        assert names[0] == ("total variation" if races else "miss probability")
        assert ("mass of the head" in names) == ("recall of the top k" in names) == (not races)
        assert ("the paper's bound" in names) == isinstance(method, FixedCutoff)
        assert ("bound of the theorem" in names) == ("ceilings too low" in names) == races
        assert ("gap c (logits)" in names) == (0 < audit.k < 300)
        shown = lines[2].split()[-3:]
        expected = [audit.miss.mean(), np.quantile(audit.miss, 0.95), audit.miss.max()]
        np.testing.assert_allclose([float(v) for v in shown], expected, rtol=0.01, atol=1e-300)
        counts = dict(zip(*np.unique(audit.labels, return_counts=True), strict=True))
        assert lines[-1] == "labels: " + ", ".join(f"{counts[label]} {label}" for label in sorted(counts))
    assert "nan" not in text and "inf" not in text
    assert all(word != "-0" for line in lines[2:] for word in line.split())


# Races


def law_of_race(logits: Floats, ceilings: Floats) -> Floats:
    """Of a race with ceilings, by its definition: rows propose at the rate of the ceiling, and are accepted or not."""
    rates = np.exp(ceilings - ceilings.max()) * np.minimum(1.0, np.exp(logits - ceilings))
    return rates / rates.sum()


@pytest.mark.parametrize("seed", range(5))
def test_the_distance_of_a_race(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(scale=2.0, size=50)
    ceilings = logits + np.random.default_rng(100 + seed).normal(0.5, 1.0, 50)
    p = np.exp(logits - log_sum_exp(logits))
    expected = 0.5 * np.abs(p - law_of_race(logits, ceilings)).sum()
    assert expected > 0.01 and race_distance(logits, ceilings) == pytest.approx(expected)
    assert race_distance(logits, np.full(50, np.inf)) == race_distance(logits, logits) == 0.0
    assert race_distance(logits + 3000, ceilings + 3000) == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [0.02, 0.05, 1.0])
def test_the_audit_of_a_race_is_the_distance_by_its_own_ceilings(unit_model: LogLinear, temperature: float) -> None:
    rows, thetas = make_rows(2_000, 16, seed=1), make_rows(6, 16, seed=20)
    model, method = unit_model, Bounded(delta=0.01)
    audit = model.audit(thetas, temperature=temperature, method=method)
    assert (audit.labels == "bounded").all() and (audit.bound == 0.01).all() and audit.ceilings
    for b, theta in enumerate(thetas):
        logits = logits_of(rows, theta, temperature)
        ceilings = method.ceilings(Query.of(model.index, theta, temperature), b)
        assert audit.miss[b] == pytest.approx(race_distance(logits, ceilings), abs=1e-6)
        assert audit.violations[b] == (logits > ceilings).sum()


@pytest.mark.usefixtures("codes_alone")
def test_races_are_as_far_off_as_the_audit_says(set_quantile: Callable[[float], None]) -> None:
    """With ceilings that are much too low, so that it can be measured."""
    set_quantile(-3.0)
    rows, theta = make_rows(2_000, 16, varied=True, seed=1), make_rows(1, 16, seed=21)[0]
    model = partition_model(2_000, 16, varied=True, seed=1, cells=40, coordinates=(16, 16))
    audit = model.audit(theta, temperature=0.1)
    assert audit.violations[0] > 100 and audit.miss[0] > 0.02
    logits = logits_of(rows, theta, 0.1)
    lowered = np.minimum(logits, Bounded().ceilings(Query.of(model.index, theta, 0.1), 0))
    p, q = np.exp(logits - log_sum_exp(logits)), np.exp(lowered - log_sum_exp(lowered))
    short = p > q  # the event that tells the two laws apart best
    drawn = race(model, theta, 40_000, temperature=0.1, rng=22)
    assert drawn.violations.any()
    rate = short[drawn.ids].mean()
    # Each copy rounds its tables anew, so that its ceilings are a little other ones.
    assert p[short].sum() - rate == pytest.approx(audit.miss[0], rel=0.2)
    assert abs(rate - p[short].sum()) > 8 * math.sqrt(0.25 / 40_000)


@pytest.mark.usefixtures("codes_alone")
def test_a_theta_that_gets_a_dense_pass_has_no_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    model = partition_model(2_000, 16, seed=1, cells=40, coordinates=(6, 6))
    theta = 0.3 * make_rows(1, 16, seed=5)[0]
    raced = model.audit(theta, temperature=0.05)
    assert raced.labels[0] == "bounded" and raced.bound[0] == 1e-4 and raced.miss[0] <= 1e-3

    def give_up(*arguments: Any) -> int:
        arguments[-1].passed[:] = -np.inf  # as if too many rows were heavy
        return 1

    monkeypatch.setattr("lazygumbel.kernels.race_thetas", give_up)
    dense = model.audit(theta, temperature=0.05)
    assert dense.labels[0] == "exact" and dense.miss[0] == dense.bound[0] == dense.violations[0] == 0


@dataclass(frozen=True)
class OfMyOwn:
    """Top k alone, as a user might write it."""

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> lg.Draws:
        return TopKOnly(7).sample(query, size, rng)

    def head_size(self, n: int) -> int:
        return n // 10

    def accuracy(self, logits: Floats, head: Mask, floor: float) -> Accuracy:
        assert logits[head].min() == pytest.approx(floor) and head.sum() == 7
        return Accuracy(1 - float(np.exp(log_sum_exp(logits[head]) - log_sum_exp(logits))), 0.5)


def test_a_method_of_ones_own_is_audited_by_its_own_closed_form() -> None:
    model, thetas = LogLinear.build(make_rows(70, 4, seed=18)), make_rows(5, 4, seed=19)
    mine, usual = (model.audit(thetas, method=method) for method in (OfMyOwn(), TopKOnly(7)))
    assert mine.k == 7 and (mine.bound == 0.5).all() and np.isnan(usual.bound).all()
    np.testing.assert_allclose(mine.miss, usual.miss)


@pytest.mark.parametrize("method", [Frozen(3), UniformTail(), FixedCutoff, Bounded, "lazy"])
def test_methods_without_a_closed_form_are_refused(method) -> None:
    model = LogLinear.build(make_rows(50, 3, seed=17))
    with pytest.raises(ValueError, match="method"):
        model.audit(np.ones(3), method=method)


def test_bad_thetas_and_temperatures_are_refused() -> None:
    model = LogLinear.build(make_rows(50, 3, seed=17))
    with pytest.raises(ValueError, match="theta"):
        model.audit(np.ones(4))
    with pytest.raises(ValueError, match="temperature"):
        model.audit(np.ones(3), temperature=0.0)


def test_a_summary_is_plain_data() -> None:
    model = LogLinear.build(make_rows(50, 3, seed=17))
    summary = model.audit(make_rows(4, 3), method=FixedCutoff(10, 10)).summary()
    assert all(isinstance(value, float) for value in summary.values())
    full = model.audit(make_rows(4, 3), method=Exhaustive()).summary()
    assert full["gap"] is None and full["bound"] is None and full["miss"] == 0.0 and full["recall"] == 1.0
    raced = partition_model(300, 4, seed=15).audit(make_rows(4, 4), temperature=0.05).summary()
    assert raced["gap"] is None and raced["recall"] is None and raced["head_mass"] is None
    assert raced["bound"] == raced["max_bound"] == 1e-4 and 0 <= raced["miss"] <= raced["max_miss"] < 1e-2


@pytest.mark.parametrize("index", [lg.ExactIndex.build, lambda rows: lg.PartitionIndex.build(rows, cells=20, rng=0)])
def test_what_is_excluded_is_left_out_of_the_audit(index):
    """As if the rows were not there: of heads at least as large, and of races, whatever was excluded."""
    rows = np.random.default_rng(0).normal(size=(1_000, 8)).astype(np.float32)
    thetas = 2 * rows[:3]
    out = [np.argsort(-(rows @ theta))[:40] for theta in thetas]
    model = lg.LogLinear(index(rows))
    for method in (None, lg.FixedCutoff(k=60), lg.LazyGumbel(k=60), lg.TopKOnly(60)):
        found = model.audit(thetas, method=method, exclude=out)
        assert np.isfinite(found.miss).all() and (found.miss >= 0).all() and (found.miss <= 1).all()
        if isinstance(method, lg.TopKOnly) and isinstance(model.index, lg.ExactIndex):
            for b, (theta, gone) in enumerate(zip(thetas, out, strict=True)):
                kept = np.delete(rows, gone, axis=0)
                alone = lg.LogLinear(lg.ExactIndex.build(kept)).audit(theta, method=method)
                assert found.miss[b] == pytest.approx(alone.miss[0], rel=1e-4)
                assert found.recall[b] == alone.recall[0] == 1
            assert (model.audit(thetas, method=method).miss < found.miss).all()  # control
