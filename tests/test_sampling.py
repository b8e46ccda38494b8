"""Samplers against the exact softmax: every sampler, four temperatures, equal and varied norms, several indexes."""

from collections.abc import Callable
from functools import cache
from zlib import crc32

import numpy as np
import pytest
from scipy import stats

import lazygumbel as lg
from lazygumbel.budgets import sampling_budget, sampling_failure, tail_work
from lazygumbel.methods import Sampler
from lazygumbel.methods.fixed_cutoff import miss_fixed
from lazygumbel.methods.gumbel import cutoff_of_rate, gumbel
from statistics_helpers import (
    CountingIndex,
    PoorIndex,
    chi_square_p,
    logits_of,
    make_rows,
    mean_p,
    partition_model,
    probabilities_of,
    race,
)

N, D, DRAWS = 2_000, 16, 200_000
HEAD = {"lsh": 200}  # with a head of 400 in 2,000 rows LSH scans everything, which tests nothing


@cache
def rows_of(norms: str) -> np.ndarray:
    return make_rows(N, D, varied=norms == "varied", seed=1)


@cache
def theta_of(seed: int = 5) -> np.ndarray:
    theta = np.random.default_rng(seed).normal(size=D)
    return (0.3 * theta / np.linalg.norm(theta)).astype(np.float32)


INDEXES: dict[str, Callable[[lg.Features], lg.Index]] = {
    "exact": lg.ExactIndex.build,
    "lsh": lambda f: lg.LSHIndex.build(f, gap=0.7, delta=0.5, tables=128, rng=1),
    "hnsw": lambda f: lg.FaissIndex.build(f, "HNSW32"),
    "ivf": lambda f: lg.FaissIndex.build(f, "IVF32,Flat", parameters="nprobe=12"),
}


@cache
def model_of(index: str, norms: str = "unit") -> lg.LogLinear:
    if index == "partition":
        return partition_model(N, D, varied=norms == "varied", seed=1, cells=40)
    return lg.LogLinear(INDEXES[index](lg.Features.of(rows_of(norms))))


def lazy(model: lg.LogLinear, theta: np.ndarray, temperature: float, k: int) -> lg.LazyGumbel:
    """Algorithm 1 with the gap that the audit found, and a little for rounding."""
    gap = model.audit(theta, temperature=temperature, method=lg.LazyGumbel(k=k)).gap.max()
    return lg.LazyGumbel(k=k, gap=max(float(gap), 0.0) * 1.001 + 1e-3)


def fixed(model: lg.LogLinear, theta: np.ndarray, temperature: float, k: int) -> lg.FixedCutoff:
    """Algorithm 2 with the smallest head from k on that the audit finds good enough for 200,000 draws."""
    for head in (k, 2 * k, 3 * k, 4 * k):
        method = lg.FixedCutoff(k=head, l=20)
        if model.audit(theta, temperature=temperature, method=method).miss.max() < 1e-5:
            return method
    return lg.FixedCutoff(k=N, l=20)


SAMPLERS: dict[str, Callable[[lg.LogLinear, np.ndarray, float, int], Sampler]] = {
    "bounded": lambda *_: lg.Bounded(),
    "exhaustive": lambda *_: lg.Exhaustive(),
    "lazy": lazy,
    "fixed": fixed,
}
CASES = (
    ("bounded", "partition"),
    ("exhaustive", "exact"),
    ("exhaustive", "partition"),  # by bytes
    ("lazy", "exact"),
    ("lazy", "lsh"),
    ("lazy", "hnsw"),
    ("fixed", "exact"),
    ("fixed", "partition"),
    ("fixed", "ivf"),
)
TEMPERATURES = (0.02, 0.05, 1.0, 50.0)
NORMS = ("unit", "varied")
TESTS = len(CASES) * len(TEMPERATURES) * len(NORMS)


def draw(
    model: lg.LogLinear, theta: np.ndarray, temperature: float, method: Sampler, draws: int, seed: int
) -> lg.Draws:
    """`draws` samples of one theta; those of `Bounded` by races, not by the dense pass that so many would get."""
    if not isinstance(method, lg.Bounded):
        return model(theta, temperature=temperature).sample(draws, method=method, rng=seed)
    drawn = race(model, theta, draws, temperature=temperature, method=method, rng=seed)
    assert (drawn.labels == "bounded").all() and drawn.rows.max() < N, "a dense pass was made: this tests nothing"
    return drawn


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("sampler", "index"), CASES)
def test_draws_follow_the_softmax(sampler, index, temperature, norms):
    seed = crc32(f"{sampler} {index} {temperature} {norms}".encode())
    model, theta = model_of(index, norms), theta_of()
    method = SAMPLERS[sampler](model, theta, temperature, HEAD.get(index, 400))
    drawn = draw(model, theta, temperature, method, DRAWS, seed)
    p = chi_square_p(drawn.ids, probabilities_of(rows_of(norms), theta, temperature))
    assert p > 1e-4 / TESTS, f"seed {seed}, {method}: p = {p}"


@pytest.mark.parametrize("sampler", ["bounded", "exhaustive"])
@pytest.mark.parametrize(("length", "excluding"), [(0.0, False), (2.0, True), (12.0, False), (12.0, True)])
def test_draws_over_many_chunks(sampler, length, excluding):
    """Blocks are weighed in chunks of 4,096 rows; the models above have one."""
    n = 20_000
    rows, theta = make_rows(n, D, varied=True, seed=2), length * make_rows(1, D, seed=3)[0]
    model = partition_model(n, D, varied=True, seed=2, cells=40, coordinates=(4, 4))
    out = np.argsort(-(rows @ theta))[:500] if excluding else np.arange(0)
    method = SAMPLERS[sampler](model, theta, 1.0, 0)
    if sampler == "bounded":
        drawn = race(model, theta, 60_000, each=50, method=method, rng=28, exclude=out)
        assert (drawn.labels == "bounded").all() and drawn.rows.max() < n
    else:
        drawn = model(theta).sample(60_000, method=method, rng=28, exclude=out)
    exact = probabilities_of(rows, theta, exclude=out)
    chunk = model.features.locate(np.arange(n)) // 4_096
    masses = np.bincount(chunk, exact)
    p = chi_square_p(drawn.ids, exact), chi_square_p(chunk[drawn.ids], masses)
    assert min(p) > 1e-6, f"seed 28: p = {p}"
    # Control: the chunk whose mass is nearest to a third has a tenth of its mass too little.
    masses[np.abs(masses - 1 / 3).argmin()] *= 0.9
    wrong = chi_square_p(chunk[drawn.ids], masses)
    assert wrong < 1e-10, f"a chunk that is drawn too rarely goes unnoticed: p = {wrong}"
    log_z = np.logaddexp.reduce(np.delete(logits_of(rows, theta), out))
    p = stats.kstest(drawn.values.reshape(-1), stats.gumbel_r(loc=log_z).cdf).pvalue
    assert p > 1e-6, f"seed 28: values, p = {p}"


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("index", [*INDEXES, "partition"])
def test_the_approximate_indexes_are_put_to_the_test(index, norms):
    """Were their heads exact, the suite above would say nothing about gaps."""
    method = lg.LazyGumbel(k=HEAD.get(index, 400))
    audit = model_of(index, norms).audit(theta_of(), temperature=0.05, method=method)
    assert (audit.recall[0] == 1) == (index in ("exact", "partition")), f"recall {audit.recall[0]}"


def poor_model() -> lg.LogLinear:
    return lg.LogLinear(PoorIndex(model_of("exact").index))


CONTROLS = {
    "tail dropped": (lambda: model_of("exact"), lg.TopKOnly(k=400), 1.0),
    "gap ignored": (poor_model, lg.LazyGumbel(k=400, gap=0.0), 0.05),
    "too few tail rows": (poor_model, lg.FixedCutoff(k=400, l=1), 0.05),
    "frozen noise": (lambda: model_of("exact"), lg.Frozen(t=200), 0.05),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_wrong_samplers_are_rejected(control):
    make, method, temperature = CONTROLS[control]
    drawn = make()(theta_of(), temperature=temperature).sample(DRAWS, method=method, rng=11)
    p = chi_square_p(drawn.ids, probabilities_of(rows_of("unit"), theta_of(), temperature))
    assert p < 1e-10, f"{control} goes unnoticed: p = {p}"


@pytest.mark.usefixtures("codes_alone")
def test_ceilings_that_are_too_low_are_noticed(set_quantile):
    """By the test of the draws, and by the draws themselves; with ceilings as they should be, by neither."""
    rows, theta, temperature = make_rows(N, D, varied=True, seed=1), theta_of(), 0.05
    model = partition_model(N, D, varied=True, seed=1, cells=40, coordinates=(16, 16))
    exact = probabilities_of(rows, theta, temperature)
    right = race(model, theta, 50_000, temperature=temperature, rng=10)
    p = chi_square_p(right.ids, exact)
    assert p > 1e-5 and not right.violations.any(), f"seed 10: p = {p}"
    set_quantile(-3.0)
    wrong = race(model, theta, 50_000, temperature=temperature, rng=10)
    p = chi_square_p(wrong.ids, exact)
    assert p < 1e-10 and wrong.violations.all(), f"too low ceilings go unnoticed: p = {p}"


def test_the_audited_gap_mends_a_poor_head():
    model, theta, temperature = poor_model(), theta_of(), 0.05
    method = lazy(model, theta, temperature, 400)
    drawn = model(theta, temperature=temperature).sample(DRAWS, method=method, rng=12)
    p = chi_square_p(drawn.ids, probabilities_of(rows_of("unit"), theta, temperature))
    assert p > 1e-5, f"seed 12, {method}: p = {p}"
    assert drawn.label == "heuristic"


def test_claims():
    theta = theta_of()
    exact, poor = model_of("exact")(theta), poor_model()(theta)
    for method, over_exact, over_poor in (
        (lg.Exhaustive(), "exact", "exact"),
        (lg.LazyGumbel(), "exact", "heuristic"),
        (lg.LazyGumbel(k=N), "exact", "exact"),
        (lg.FixedCutoff(delta=0.01), "bounded", "heuristic"),
        (lg.FixedCutoff(k=100, l=100), "heuristic", "heuristic"),
        (lg.FixedCutoff(k=10, l=N), "exact", "exact"),
        (lg.TopKOnly(k=N), "exact", "exact"),
        (lg.TopKOnly(k=10), "heuristic", "heuristic"),
        (lg.Frozen(t=2), "heuristic", "heuristic"),
    ):
        for at, label in ((exact, over_exact), (poor, over_poor)):
            drawn = at.sample(1, method=method, rng=0)
            assert drawn.label == drawn.labels == label, method
            bound = {"exact": 0.0, "bounded": 0.01, "heuristic": np.nan}[label]
            np.testing.assert_array_equal(drawn.bound, bound, err_msg=str(method))
            assert drawn.violations == 0


@cache
def coarse_model() -> lg.LogLinear:
    """Codes of four coordinates a nibble: twice theta at a temperature of 0.05 is too much for them."""
    return partition_model(N, D, seed=1, cells=40, coordinates=(6, 6))


@pytest.mark.usefixtures("codes_alone")
def test_the_claims_of_the_default_are_made_theta_by_theta():
    assert coarse_model()(theta_of()).sample(rng=0).bound == 1e-4
    thetas = np.stack([theta_of(), 20 * theta_of(), theta_of(6)])
    drawn = coarse_model()(thetas, temperature=0.05).sample(5, method=lg.Bounded(delta=1e-3), rng=0)
    assert drawn.labels.tolist() == ["bounded"] * 3 and drawn.label == "bounded"
    assert drawn.bound.tolist() == [1e-3] * 3 and drawn.violations.tolist() == [0, 0, 0]
    # A race for so many is given up, and what is left is drawn by one pass over all rows.
    many = model_of("partition")(theta_of(), temperature=0.05).sample(DRAWS, rng=0)
    assert many.label == "bounded" and N < many.rows < DRAWS / 2


@pytest.mark.parametrize(
    "options", [{"delta": 0.0}, {"delta": 0.02}, {"delta": np.nan}, {"rel_err": 0}, {"rel_err": 1}]
)
def test_knobs_of_the_default_that_are_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        lg.Bounded(**options)


def test_the_smallest_knobs_work_and_smaller_ones_are_refused_with_the_smallest():
    at = partition_model(400, 6, varied=True, seed=4)(np.ones(6))
    assert at.sample(method=lg.Bounded(delta=1e-100), rng=0).bound == 1e-100
    assert at.log_partition(rel_err=1e-12, rng=0).label == "exact"
    for least, tiny in ((1e-100, 5e-324), (1e-100, 1e-101)):
        with pytest.raises(ValueError, match=f"delta must be at least {least:g}, not {tiny:g}"):
            lg.Bounded(delta=tiny)
        with pytest.raises(ValueError, match=f"delta must be at least {least:g}"):
            lg.Calibrated(delta=tiny)
    for tiny in (1e-160, 1e-200, 5e-324):
        with pytest.raises(ValueError, match=f"rel_err must be at least 1e-12, not {tiny:g}"):
            at.log_partition(rel_err=tiny)


def test_the_default_needs_its_index():
    with pytest.raises(ValueError, match=r"Bounded needs a PartitionIndex, not ExactIndex; build one with"):
        model_of("exact")(theta_of()).sample(1, method=lg.Bounded())


@pytest.mark.parametrize("index", ["exact", "partition"])
@pytest.mark.parametrize(
    "method",
    [lg.Exhaustive(by_bytes=False), lg.LazyGumbel(k=400, gap=50.0), lg.FixedCutoff(k=1600, l=20)],
    ids=repr,
)
def test_blocks_and_chunks_change_nothing(monkeypatch, method, index):
    """Memory is bounded by going block by block, dense or lazy; here the blocks are small. (A gap of 50 is dense.)"""
    monkeypatch.setattr("lazygumbel.methods.base._SCORES_AT_ONCE", 300)
    monkeypatch.setattr("lazygumbel.methods.dense._SCORES_AT_ONCE", 1)
    monkeypatch.setattr("lazygumbel.methods.draw._ROWS_AT_ONCE", 5_000)
    drawn = model_of(index)(theta_of(), temperature=0.05).sample(50_000, method=method, rng=26)
    p = chi_square_p(drawn.ids, probabilities_of(rows_of("unit"), theta_of(), 0.05))
    assert p > 1e-6, f"seed 26: p = {p}"


# Values: Gumbel(log Z), whatever the id.


def value_p(drawn: lg.Draws, logits: np.ndarray) -> list[float]:
    """p-values of the values: all of them, those of the likeliest row, of the other head rows and of tail rows."""
    log_z = float(np.logaddexp.reduce(logits))
    rank = np.empty(len(logits), dtype=np.int64)
    rank[np.argsort(-logits)] = np.arange(len(logits))
    groups = np.digitize(rank[drawn.ids], [1, 20, 400])
    tests = [drawn.values.reshape(-1)] + [drawn.values[groups == g] for g in range(4)]
    return [float(stats.kstest(v, stats.gumbel_r(loc=log_z).cdf).pvalue) for v in tests if len(v) >= 20]


VALUED = (
    ("bounded", "partition"),
    ("exhaustive", "exact"),
    ("exhaustive", "partition"),
    ("lazy", "exact"),
    ("fixed", "ivf"),
)


@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize(("sampler", "index"), VALUED)
def test_values_are_gumbel_and_independent_of_ids(sampler, index, temperature):
    seed = crc32(f"values {sampler} {index} {temperature}".encode())
    model, theta = model_of(index), theta_of()
    method = SAMPLERS[sampler](model, theta, temperature, 400)
    drawn = draw(model, theta, temperature, method, 50_000, seed)
    found = value_p(drawn, logits_of(rows_of("unit"), theta, temperature))
    assert len(found) >= 4 and min(found) > 1e-6, f"seed {seed}, {method}: p = {found}"


def test_wrong_values_are_rejected():
    theta, temperature = theta_of(), 0.05
    logits = logits_of(rows_of("unit"), theta, temperature)
    dropped = model_of("exact")(theta, temperature=temperature).sample(50_000, method=lg.TopKOnly(k=100), rng=13)
    assert min(value_p(dropped, logits)) < 1e-10
    # With the gap ignored, a missed row that wins all the same does so with too large a value.
    ignored = poor_model()(theta, temperature=temperature).sample(50_000, method=lg.LazyGumbel(k=400), rng=13)
    assert min(value_p(ignored, logits)) < 1e-10


# Work: the expected number of tail rows of Algorithm 1, the failure rate of Algorithm 2.


@pytest.mark.parametrize("gap", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("temperature", [0.02, 0.05, 1.0, 50.0])
@pytest.mark.parametrize("k", [10, 50, 200, 1000])
def test_algorithm_1_looks_at_no_more_rows_than_promised(k, temperature, gap):
    draws = 4_000
    drawn = model_of("exact")(theta_of(), temperature=temperature).sample(draws, method=lg.LazyGumbel(k, gap), rng=14)
    mean, bound = (float(drawn.rows) - N) / draws, tail_work(N, k, gap=gap)
    # Given M the count is binomial, about Poisson, and its mean is about exponential over M.
    assert mean <= bound + 5 * np.sqrt(bound * (1 + bound) / draws), f"seed 14: {mean} rows, promised {bound}"


def test_algorithm_1_looks_at_as_many_rows_as_it_must():
    """On a flat softmax E[m] = (n - k) e^c / (k + e^c): fewer would be wrong, and half the head breaks the bound."""
    model, draws = lg.LogLinear.build(np.ones((N, 2), np.float32)), 20_000
    for k, gap in ((50, 0.0), (50, 1.0), (200, 2.0)):
        for head, promised in ((k, True), (k // 2, False)):
            drawn = model(np.ones(2)).sample(draws, method=lg.LazyGumbel(head, gap), rng=15)
            mean = (float(drawn.rows) - N) / draws
            exact = (N - head) * np.exp(gap) / (head + np.exp(gap))
            error = np.sqrt(exact * (1 + exact) / draws)
            assert abs(mean - exact) < 5 * error, f"seed 15, k {head}, gap {gap}: {mean} rows, not {exact}"
            assert (mean < tail_work(N, k, gap=gap) + 5 * error) == promised


def worst_case(n: int, k: int, l: int, gap: float) -> np.ndarray:  # noqa: E741
    """Logits for which Algorithm 2 fails most: head rows at 0, j tail rows at the gap, the rest far below."""
    rate = -np.log1p(-l / n)
    j = np.arange(1, n - k + 1)
    total = k * np.exp(-gap) + j
    most = int(j[np.argmax(j / total * np.exp(-rate * total))])
    return np.concatenate([np.zeros(k), np.full(most, gap), np.full(n - k - most, -60.0)])


def failures(logits: np.ndarray, k: int, l: int, rounds: int, seed: int) -> int:  # noqa: E741
    """How often the true winner is a tail row whose Gumbel is below the cutoff, with every Gumbel drawn."""
    rng, cutoff, lost = np.random.default_rng(seed), float(cutoff_of_rate(l / len(logits))), 0
    for part in np.array_split(np.arange(rounds), 10):
        noise = gumbel(rng, (len(part), len(logits)))
        winner = (logits + noise).argmax(axis=1)
        lost += int(((winner >= k) & (noise[np.arange(len(part)), winner] <= cutoff)).sum())
    return lost


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("delta", [0.3, 0.1, 0.01])
@pytest.mark.parametrize("n", [200, 1000])
def test_algorithm_2_fails_no_more_often_than_promised(n, delta, gap):
    rounds, k = 20_000, sampling_budget(n, delta, gap=gap)
    logits = worst_case(n, k, k, gap)
    lost = failures(logits, k, k, rounds, 16)
    assert sampling_failure(n, k, k, gap=gap) <= delta
    assert stats.binomtest(lost, rounds, delta, "greater").pvalue > 1e-4, f"seed 16: {lost} of {rounds}, not {delta}"
    closed = miss_fixed(logits, np.arange(n) < k, float(cutoff_of_rate(k / n)))
    assert stats.binomtest(lost, rounds, closed).pvalue > 1e-5, f"seed 16: {lost} of {rounds}, closed form {closed}"


@pytest.mark.parametrize(("delta", "share"), [(0.3, 4), (0.1, 2), (0.01, 2)])
def test_a_smaller_budget_fails_too_often(delta, share):
    n, rounds = 1000, 10_000
    k = sampling_budget(n, delta) // share
    lost = failures(worst_case(n, k, k, 0.0), k, k, rounds, 17)
    assert stats.binomtest(lost, rounds, delta, "greater").pvalue < 1e-10, f"{lost} of {rounds} are not too many"


def test_algorithm_2_in_the_library_meets_its_delta():
    """The whole sampler on its worst case: no row's probability is off by more than the closed form, nor by delta."""
    n, delta = 1000, 0.1
    k = sampling_budget(n, delta)
    logits = worst_case(n, k, k, 0.0)
    rows = np.stack([logits, np.ones(n)], axis=1)
    model, theta, draws = lg.LogLinear.build(rows), np.array([1.0, 0.0]), 40_000
    ids = model(theta).sample(draws, method=lg.FixedCutoff(delta=delta), rng=18).ids
    short = probabilities_of(rows, theta)[k:].sum() - (ids >= k).mean()
    missed = miss_fixed(logits, np.arange(n) < k, lg.FixedCutoff(delta=delta).cutoff(n))
    assert -0.01 < short < missed + 0.01 < delta, f"seed 18: {short} short, {missed} missed"


# Calls: one retrieval, batches, seeds, shapes.


@pytest.mark.parametrize("method", [lg.LazyGumbel(k=50), lg.FixedCutoff(k=50, l=50)])
def test_many_samples_share_one_retrieval(method):
    counting = CountingIndex(model_of("partition").index)
    model = lg.LogLinear(counting)
    model(theta_of()).sample((100, 10), method=method, rng=19)
    assert (counting.calls, counting.queries) == (1, 1)
    model(np.stack([theta_of(s) for s in range(7)])).sample(1000, method=method, rng=19)
    assert (counting.calls, counting.queries) == (2, 8)
    model(theta_of()).sample_without_replacement(5, method=lg.LazyGumbel(k=50), rng=19)
    assert counting.calls == 3


@pytest.mark.parametrize(("sampler", "index"), VALUED)
def test_a_batch_draws_like_its_thetas(sampler, index):
    model, temperature, draws, each = model_of(index), 0.05, 40_000, 10
    thetas = np.stack([theta_of(5), theta_of(6), theta_of(7), theta_of(5)])
    method = SAMPLERS[sampler](model, thetas, temperature, 400)
    if sampler == "bounded":
        drawn = model(np.tile(thetas, (draws // each, 1)), temperature=temperature).sample(each, method=method, rng=20)
        assert (drawn.labels == "bounded").all() and drawn.rows.max() < N
    else:
        drawn = model(thetas, temperature=temperature).sample(draws, method=method, rng=20)
    ids, values = drawn.ids.reshape(draws, 4), drawn.values.reshape(draws, 4)
    exact = [probabilities_of(rows_of("unit"), theta, temperature) for theta in thetas]
    found = [chi_square_p(ids[:, b], exact[b]) for b in range(len(thetas))]
    assert min(found) > 1e-6, f"seed 20, {method}: p = {found}"
    # Drawn independently: equal thetas, and successive draws, agree as often as chance has it.
    agreement = float((exact[0] ** 2).sum())
    found = [
        mean_p(ids[:, 0] == ids[:, 3], agreement),
        mean_p(ids[:-1, 0] == ids[1:, 0], agreement),
        float(stats.pearsonr(values[:, 0], values[:, 3]).pvalue),
        float(stats.pearsonr(values[:-1, 0], values[1:, 0]).pvalue),
    ]
    assert min(found) > 1e-6, f"seed 20, {method}: p = {found}"


@pytest.mark.parametrize("size", [1, 3, 3_000])
@pytest.mark.usefixtures("codes_alone")
def test_the_thetas_of_a_batch_are_drawn_as_if_alone(size):
    """With the same seeds, whatever threads do."""
    thetas = np.stack([theta_of(5), theta_of(6), 20 * theta_of(7), np.zeros(D, np.float32), theta_of(5)])
    model, exclude = coarse_model(), [[], [1, 2], [3], np.arange(1_999), []]
    together = model(thetas, temperature=0.05).sample(size, rng=np.random.default_rng(27), exclude=exclude)
    rng = np.random.default_rng(27)
    for b, theta in enumerate(thetas):
        one = model(theta, temperature=0.05).sample(size, rng=rng, exclude=exclude[b])
        for name in ("ids", "values"):
            assert np.array_equal(getattr(together, name)[:, b], getattr(one, name)), (b, name)
        for name in ("rows", "labels", "bound", "violations"):
            assert getattr(together, name)[b] == getattr(one, name), (b, name)
    # Control: equal thetas have seeds of their own.
    assert not np.array_equal(together.values[:, 0], together.values[:, 4])
    assert set(together.labels.tolist()) == {"bounded"}
    assert (together.rows[0] > N) == (size > 10), "a race for many is finished by a dense pass"


def test_frozen_draws_are_not_independent():
    drawn = model_of("exact")(theta_of(), temperature=0.05).sample(40_000, method=lg.Frozen(t=50), rng=21)
    agreement = float((probabilities_of(rows_of("unit"), theta_of(), 0.05) ** 2).sum())
    assert mean_p(drawn.ids[:-1] == drawn.ids[1:], agreement) < 1e-10
