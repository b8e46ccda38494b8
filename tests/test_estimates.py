"""Estimators are unbiased, their intervals cover, and their labels hold."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from estimate_helpers import Floats, Given, normal_logits
from lazygumbel import (
    Bounded,
    ExactIndex,
    Exhaustive,
    FaissIndex,
    Features,
    Frozen,
    LogLinear,
    LSHIndex,
    PartitionIndex,
    TopKOnly,
    UniformTail,
    kernels,
)
from statistics_helpers import across_model, logits_of, make_rows, mean_p, partition_model, probabilities_of

PASSES, FAILS = 1e-3, 1e-6  # what a right estimate must exceed, what a wrong one must not


# Unbiased


def test_the_partition_estimate_is_unbiased() -> None:
    index, k, l = Given(normal_logits(1000, 1.0)), 30, 40  # noqa: E741
    weights = np.exp(index.logits)
    drawn = [index.copies(10_000).log_partition(method=UniformTail(k, l), rng=seed) for seed in (1, 2)]
    estimates = np.exp(np.concatenate([e.value for e in drawn]))
    assert mean_p(estimates, weights.sum()) > PASSES
    head = np.sort(weights)[-k:].sum()
    tail = estimates - head
    # Controls: the factor forgotten, n in place of n - k, and no tail at all.
    assert mean_p(head + tail * l / (1000 - k), weights.sum()) < FAILS
    assert mean_p(head + tail * 1000 / (1000 - k), weights.sum()) < FAILS
    truncated = float(np.exp(index.copies(1).log_partition(method=TopKOnly(k)).value[0]))
    assert abs(truncated - weights.sum()) > 20 * estimates.std() / np.sqrt(len(estimates))


def test_variances_and_covariances_are_unbiased() -> None:
    index, k, l = Given(normal_logits(1000, 0.7, 3)), 20, 8  # noqa: E741
    table = np.random.default_rng(4).normal(size=(1000, 2)) + index.logits[:, None]
    weights = np.exp(index.logits)
    estimate = index.copies(20_000).expectation(lambda ids: table[ids], method=UniformTail(k, l), rng=5)
    moments = estimate.moments
    assert moments is not None and moments.weighted is not None
    assert moments.var_weighted is not None and moments.covariance is not None
    unit = np.exp(moments.shift)
    error = moments.total * unit - weights.sum()
    errors = moments.weighted * unit[:, None] - weights @ table
    assert mean_p(error, 0.0) > PASSES
    assert mean_p(moments.var_total * unit**2 - error**2, 0.0) > PASSES
    for j in range(2):
        assert mean_p(errors[:, j], 0.0) > PASSES
        assert mean_p(moments.var_weighted[:, j] * unit**2 - errors[:, j] ** 2, 0.0) > PASSES
        assert mean_p(moments.covariance[:, j] * unit**2 - error * errors[:, j], 0.0) > PASSES
        # Control: dividing by l^2 in place of l (l - 1).
        assert mean_p((l - 1) / l * moments.var_weighted[:, j] * unit**2 - errors[:, j] ** 2, 0.0) < FAILS
    assert mean_p((l - 1) / l * moments.var_total * unit**2 - error**2, 0.0) < FAILS
    log_z = index.copies(50).log_partition(method=UniformTail(k, l), rng=5)
    assert log_z.moments is not None
    np.testing.assert_allclose(log_z.stderr, np.sqrt(log_z.moments.var_total) / log_z.moments.total)


BUILDS = {
    "exact": ExactIndex.build,
    "lsh": lambda f: LSHIndex.build(f, tables=16, rng=0),
    "hnsw": lambda f: FaissIndex.build(f, "HNSW16"),
}


@pytest.mark.parametrize("name", list(BUILDS))
def test_the_partition_estimate_is_unbiased_over_every_index(name: str) -> None:
    rows = make_rows(1500, 8, varied=True, seed=6)
    theta = 2 * make_rows(1, 8, seed=7)[0]
    weights = np.exp(logits_of(rows, theta, 0.8))
    dist = LogLinear(BUILDS[name](Features.of(rows)))(np.tile(theta, (1500, 1)), temperature=0.8)
    estimates = np.exp(dist.log_partition(method=UniformTail(40, 100), rng=8).value)
    assert mean_p(estimates, weights.sum()) > PASSES
    assert mean_p(estimates * 1.03, weights.sum()) < FAILS  # a bias of 3% is seen


# The default: strata of ceilings


N, D = 20_000, 16
COPIES = 2_000
CASES = {"hot": (0.5, 0.01), "warm": (2.0, 0.025), "cold": (2.5, 0.05)}
"""Norm of theta, and the relative error asked for: few rows are sampled, or many."""


def coarse() -> LogLinear:
    """Codes so coarse that sums need many rows."""
    return partition_model(N, D, varied=True, seed=2, cells=40, coordinates=(16, 16))


def truth(norm: float, exclude: npt.ArrayLike = ()) -> tuple[Floats, Floats, float, Floats]:
    """Theta, probabilities, log Z and rows."""
    rows, theta = make_rows(N, D, varied=True, seed=2), norm * make_rows(1, D, seed=3)[0]
    logits = np.delete(logits_of(rows, theta), np.asarray(exclude, dtype=np.int64))
    return theta, probabilities_of(rows, theta, exclude=exclude), float(np.logaddexp.reduce(logits)), rows


def copies_of(theta: Floats, times: int = COPIES):
    return coarse()(np.tile(theta, (times, 1)))


@pytest.mark.usefixtures("codes_alone")
@pytest.mark.parametrize("excluding", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_strata_are_unbiased_and_meet_what_was_asked_and_what_they_state(case: str, excluding: bool) -> None:
    norm, rel_err = CASES[case]
    out = np.argsort(-truth(norm)[1])[:300] if excluding else np.arange(0)
    theta, p, log_z, rows = truth(norm, out)
    many, method = copies_of(theta), Bounded(rel_err=rel_err)
    estimate = many.log_partition(method=method, rng=50, exclude=out)
    # A pilot may find so wide a spread that all rows are summed.
    assert (estimate.labels == "bounded").mean() > 0.9 and estimate.rows.mean() < N / 2, "this tests nothing"
    relative = np.exp(estimate.value - log_z)
    assert mean_p(relative, 1.0) > PASSES, f"seed 50: off by {relative.mean() - 1}"
    assert mean_p(relative * (1 + relative.std() / 4), 1.0) < FAILS  # control: a bias of a quarter of the error is seen
    assert relative.std() < 1.1 * rel_err, "seed 50"
    stated = np.sqrt(np.mean((estimate.stderr * relative) ** 2))
    # Variances are within pairs of strata, so they may be too large, but not by much.
    assert 0.9 < stated / relative.std() < 1.3, f"seed 50: {stated} is stated, {relative.std()} found"
    assert relative.std() <= np.sqrt(np.mean(estimate.bound**2)), "seed 50: more than the theorem allows"
    sign = np.where(np.arange(N) % 2, 1.0, -1.0)
    for f, exact, seed in ((None, p @ rows.astype(np.float64), 51), (lambda ids: sign[ids], p @ sign, 52)):
        mean = many.expectation(f, method=method, rng=seed, exclude=out)
        error = (mean.value - exact).reshape(COPIES, -1)
        assert min(mean_p(column, 0.0) for column in error.T) > PASSES / 10, f"seed {seed}"
        ratio = np.sqrt(np.mean(mean.stderr**2)) / error.std()
        assert 0.9 < ratio < 1.3, f"seed {seed}: {ratio} times the error is stated"


@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_an_expectation_holds(case: str) -> None:
    """It is relative to the largest |f|: here one."""
    theta, p, _, _ = truth(CASES[case][0])
    sign = np.where(np.arange(N) % 2, 1.0, -1.0)
    mean = copies_of(theta, 500).expectation(lambda ids: sign[ids], method=Bounded(rel_err=CASES[case][1]), rng=53)
    error = np.sqrt(np.mean(np.square(mean.value - p @ sign)))
    assert mean.label == "bounded"
    assert error <= np.sqrt(np.mean(mean.bound**2)), f"seed 53: {error}, {mean.bound.mean()} is allowed"


@pytest.mark.parametrize("case", CASES)
def test_intervals_of_strata_cover(case: str) -> None:
    norm, rel_err = CASES[case]
    theta, p, log_z, rows = truth(norm)
    many, method = copies_of(theta), Bounded(rel_err=rel_err)
    log_partition = many.log_partition(method=method, rng=54)
    shares = [
        covered(log_partition, log_z),
        covered(many.expectation(method=method, rng=55), p @ rows.astype(np.float64)).mean(),
        covered(many.entropy(method=method, rng=56), -float(p @ np.log(p))),
    ]
    assert min(shares) > 0.925 and max(shares) < 0.985, f"{shares}"
    # Control: intervals of half the width.
    low, high = log_partition.interval(float(2 * stats.norm.cdf(0.98) - 1))
    assert ((low <= log_z) & (log_z <= high)).mean() < 0.85


@pytest.mark.usefixtures("codes_alone")
def test_estimates_of_strata_are_independent_of_each_other() -> None:
    theta, _, log_z, _ = truth(2.0)
    error = copies_of(theta).log_partition(rel_err=0.03, rng=57).value - log_z
    assert stats.pearsonr(error[:-1], error[1:]).pvalue > PASSES, "seed 57"
    assert stats.pearsonr(error[:-1], error[:-1] + error[1:]).pvalue < FAILS


@pytest.mark.usefixtures("codes_alone")
def test_wrong_ceilings_make_sums_worse_but_not_biased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes only say where to look: unbiased whatever they are worth."""
    theta, _, log_z, _ = truth(2.0)
    right = np.exp(copies_of(theta).log_partition(rel_err=0.03, rng=58).value - log_z)
    index = coarse().index
    assert isinstance(index, PartitionIndex)
    sketch = index.coding.sketch
    codes = np.ascontiguousarray(np.random.default_rng(0).permutation(sketch.codes, axis=2))
    codes.flags.writeable = False
    words = np.zeros_like(index.stored.words)
    monkeypatch.setattr(index, "stored", index.stored._replace(sketch=sketch._replace(codes=codes), words=words))
    kernels.pack_stored(index.stored)
    wrong = np.exp(copies_of(theta).log_partition(rel_err=0.03, rng=58).value - log_z)
    assert mean_p(right, 1.0) > PASSES and mean_p(wrong, 1.0) > PASSES, "seed 58"
    assert not np.array_equal(right, wrong)


def test_a_heavy_row_among_loose_ceilings() -> None:
    """Half of the mass in one row: it is scored, and what is left is of equal rows."""
    model = across_model()
    n = model.features.n - 1
    estimate = model(np.tile(np.eye(1, model.features.d), (1_000, 1))).log_partition(rel_err=0.1, rng=59)
    relative = np.exp(estimate.value) / (2 * n)
    assert estimate.label == "bounded" and np.abs(relative - 1).max() < 1e-5, "seed 59"


def test_labels_say_what_was_promised() -> None:
    logits = normal_logits(400, 1.0)
    promised = UniformTail(rel_err=0.5, delta=0.1)
    by_theorem = Given(logits, exact=True).copies(1).log_partition(method=promised)
    assert by_theorem.label == "bounded" and by_theorem.bound == 0.5
    assert Given(logits).copies(1).log_partition(method=promised).label == "heuristic"
    assert Given(logits).copies(1).log_partition(method=UniformTail(20, 20)).label == "heuristic"
    assert Given(logits).copies(1).log_partition(method=UniformTail(400, 20)).label == "exact"
    assert np.isnan(Given(logits).copies(1).log_partition(method=UniformTail(20, 20)).bound).all()
    model = LogLinear(FaissIndex.build(Features.of(make_rows(400, 4)), "HNSW16", parameters="efSearch=400"))
    assert model(np.ones(4)).log_partition(method=promised).label == "heuristic"
    assert model(np.ones(4)).log_partition(method=TopKOnly(400)).label == "exact"
    assert model(np.ones(4)).log_partition(method=TopKOnly(20)).label == "heuristic"
    raced = coarse()(np.stack([np.zeros(D), 8000 * make_rows(1, D, seed=3)[0]]))
    for estimate in (raced.log_partition(rng=0), raced.expectation(rng=0), raced.entropy(rng=0)):
        assert estimate.labels.tolist() == ["bounded", "exact"] and estimate.label == "bounded"
        assert estimate.bound[1] == 0.0 and estimate.rows[1] == N > estimate.rows[0]
        assert not estimate.stderr[1].any()


# Intervals


def covered(estimate, truth: npt.ArrayLike, level: float = 0.95) -> Floats:
    low, high = estimate.interval(level)
    return ((low <= truth) & (truth <= high)).mean(axis=0)


def test_intervals_cover_when_the_tail_is_moderate_and_drawn_often() -> None:
    index, method = Given(normal_logits(2000, 0.6, 13)), UniformTail(100, 300)
    table = np.random.default_rng(14).normal(size=(2000, 2))
    p = np.exp(index.logits - np.log(np.exp(index.logits).sum()))
    many = index.copies(4000)
    coverage = [
        covered(many.log_partition(method=method, rng=15), np.log(np.exp(index.logits).sum())),
        covered(many.expectation(method=method, rng=16), p @ index.features.stored),
        covered(many.expectation(lambda ids: table[ids, 0], method=method, rng=17), p @ table[:, 0]),
        covered(many.expectation(lambda ids: table[ids], method=method, rng=18), p @ table),
        covered(many.entropy(method=method, rng=19), -(p @ np.log(p))),
    ]
    for share in coverage:
        assert (share > 0.93).all() and (share < 0.97).all()
    # Controls: an interval of half the width, and the variance of log Z alone for the entropy.
    narrow = many.log_partition(method=method, rng=15).interval(float(2 * stats.norm.cdf(0.98) - 1))
    inside = (narrow[0] <= np.log(np.exp(index.logits).sum())) & (np.log(np.exp(index.logits).sum()) <= narrow[1])
    assert inside.mean() < 0.8
    entropy, log_z = many.entropy(method=method, rng=19), many.log_partition(method=method, rng=19)
    off = np.abs(entropy.value + p @ np.log(p)) <= 1.96 * log_z.stderr
    assert not 0.93 < off.mean() < 0.97


def test_a_heavy_row_that_the_index_missed_is_not_covered() -> None:
    """What no estimate can see. The interval is honest about the draws, not about rows that were never drawn."""
    logits = normal_logits(2000, 0.6, 20)
    logits[77] = 8.0  # about half of Z
    right = Given(logits)
    missed = Given(logits, np.concatenate([np.delete(right.order, 0), [77]]))
    log_z = np.log(np.exp(right.logits).sum())
    p = np.exp(right.logits - log_z)
    table = np.where(np.arange(2000) == 77, 5.0, 0.0)
    method = UniformTail(100, 300)
    for index, low, high in ((right, 0.93, 0.97), (missed, 0.0, 0.5)):
        many = index.copies(1000)
        assert low <= covered(many.log_partition(method=method, rng=21), log_z) <= high
    # The estimate is unbiased all the same: rarely, and then hugely, too large.
    estimates = np.exp(missed.copies(20_000).log_partition(method=method, rng=22).value - log_z)
    assert np.median(estimates) < 0.7 and mean_p(estimates, 1.0) > PASSES
    assert covered(missed.copies(1000).expectation(lambda ids: table[ids], method=method, rng=23), p @ table) < 0.5
    assert covered(missed.copies(1000).entropy(method=method, rng=24), -(p @ np.log(p))) < 0.5


# Exact and truncated values


@pytest.mark.parametrize("at_once", [2**22, 700])
def test_exhaustive_equals_float64(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr("lazygumbel.methods.base._SCORES_AT_ONCE", at_once)  # 700: many blocks
    rows, thetas = make_rows(3000, 8, varied=True, seed=25), 3 * make_rows(4, 8, seed=26)
    table = np.random.default_rng(27).normal(size=(3000, 3))
    for index in (
        ExactIndex.build(Features.of(rows)),
        PartitionIndex.build(Features.of(rows), cells=30, rng=0),  # rows are stored in another order
    ):
        dist = LogLinear(index)(thetas, temperature=0.3)
        p = np.stack([probabilities_of(rows, theta, 0.3) for theta in thetas])
        log_z = np.array([np.log(np.exp(logits_of(rows, theta, 0.3)).sum()) for theta in thetas])
        method = Exhaustive()
        answers = [
            (dist.log_partition(method=method), log_z),
            (dist.expectation(method=method), p @ rows.astype(np.float64)),
            (dist.expectation(lambda ids: table[ids, 0], method=method), p @ table[:, 0]),
            (dist.expectation(lambda ids: table[ids], method=method), p @ table),
            (dist.expectation(lambda ids: ids < 100, method=method), p[:, :100].sum(axis=1)),
            (dist.entropy(method=method), -(p * np.log(p)).sum(axis=1)),
            (
                dist.log_prob([[5, 6, 7, 8], [9, 9, 9, 9]], method=method),
                np.log(p[np.arange(4), [[5, 6, 7, 8], [9] * 4]]),
            ),
        ]
        for estimate, truth in answers:
            np.testing.assert_allclose(estimate.value, truth, rtol=2e-5, atol=2e-5)
            assert estimate.exact and not estimate.stderr.any() and estimate.value.dtype == np.float64
            low, high = estimate.interval()
            np.testing.assert_array_equal(low, high)


def test_exact_values_survive_extreme_logits() -> None:
    index = Given(np.array([1000.0, 999.0, -1000.0, 0.0]))
    dist = index.copies(1)
    p = np.array([1.0, np.exp(-1.0)]) / (1 + np.exp(-1.0))
    for method in (Exhaustive(), UniformTail(2, 5), TopKOnly(2)):
        np.testing.assert_allclose(dist.log_partition(method=method, rng=0).value, 1000 + np.log(1 + np.exp(-1.0)))
        np.testing.assert_allclose(dist.entropy(method=method, rng=0).value, -(p @ np.log(p)), rtol=1e-9)
        rtol = 2e-7 if method == Exhaustive() else 1e-9  # brute force sums features in float32
        found = dist.expectation(method=method, rng=0).value[0]
        np.testing.assert_allclose(found, 1000 * p[0] + 999 * p[1], rtol=rtol)
    np.testing.assert_allclose(
        index.copies(1).entropy(method=UniformTail(1, 40), rng=1).value, -(p @ np.log(p)), atol=0.3
    )


def test_top_k_only_is_the_truncated_softmax() -> None:
    rows, theta, k = make_rows(500, 6, seed=28), 5 * make_rows(1, 6, seed=29)[0], 40
    logits = logits_of(rows, theta)
    top = np.sort(np.argsort(-logits)[:k])
    p = np.exp(logits[top] - np.log(np.exp(logits[top]).sum()))
    dist = LogLinear.build(rows)(theta)
    log_z = dist.log_partition(method=TopKOnly(k))
    np.testing.assert_allclose(log_z.value, np.log(np.exp(logits[top]).sum()), rtol=1e-6)
    np.testing.assert_allclose(dist.expectation(method=TopKOnly(k)).value, p @ rows[top], atol=1e-6)
    np.testing.assert_allclose(dist.entropy(method=TopKOnly(k)).value, -(p @ np.log(p)), atol=1e-6)
    np.testing.assert_allclose(dist.log_prob(top, method=TopKOnly(k)).value, np.log(p), atol=1e-6)
    assert log_z.label == "heuristic" and log_z.value < np.log(np.exp(logits).sum()) - 0.1


# Frozen noise


def test_frozen_noise_is_unbiased_over_seeds_with_its_stated_error() -> None:
    rows, theta, t = make_rows(100, 3, seed=30), 2 * make_rows(1, 3, seed=31)[0], 12
    model = LogLinear.build(rows)
    z = np.exp(logits_of(rows, theta, 0.5)).sum()
    estimates = [model(theta, temperature=0.5).log_partition(method=Frozen(t, seed)) for seed in range(3000)]
    relative = np.exp([e.value for e in estimates]) / z
    assert mean_p(relative, 1.0) > PASSES
    assert mean_p(relative * t / (t - 1), 1.0) < FAILS  # control: t in place of t - 1
    np.testing.assert_allclose(relative.std(), 1 / np.sqrt(t - 2), rtol=0.12)
    assert abs(1 / np.sqrt(t) / relative.std() - 1) > 0.05
    assert all(e.label == "heuristic" for e in estimates)
    np.testing.assert_allclose([e.stderr for e in estimates], 1 / np.sqrt(t - 2))


def test_frozen_noise_is_frozen() -> None:
    model = LogLinear.build(make_rows(200, 3, seed=32))
    theta = np.array([1.0, -2.0, 0.5])
    method = Frozen(8)
    first, second = (model(theta).log_partition(method=method, rng=r).value for r in (1, 2))
    assert first == second
    assert first == model(theta).log_partition(method=Frozen(8)).value
    assert first != model(theta).log_partition(method=Frozen(8, seed=1)).value
    assert len(np.unique(model(theta).sample(5000, method=method, rng=3).ids)) <= 8
    assert len(np.unique(model(theta).sample(5000, rng=3).ids)) > 50
    for t in (1, 2):
        assert np.isinf(model(theta).log_partition(method=Frozen(t)).stderr)


def test_frozen_noise_respects_exclusions() -> None:
    rows = make_rows(60, 3, seed=33)
    model, theta = LogLinear.build(rows), np.array([3.0, -2.0, 0.5])
    left = np.arange(30)
    z = np.exp(logits_of(rows, theta)[left]).sum()
    estimates = [
        model(theta).log_partition(method=Frozen(12, seed), exclude=np.arange(30, 60)).value for seed in range(800)
    ]
    assert mean_p(np.exp(estimates) / z, 1.0) > PASSES
    everything = np.exp(logits_of(rows, theta)).sum()
    assert mean_p(np.exp(estimates) / everything, 1.0) < FAILS
