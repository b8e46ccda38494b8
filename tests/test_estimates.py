"""log Z, expectations and entropy by every method: unbiased, within budget, covered by their intervals (or not)."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from lazygumbel import (
    ExactIndex,
    Exhaustive,
    FaissIndex,
    Features,
    Frozen,
    LogLinear,
    LSHIndex,
    PartitionIndex,
    TopK,
    TopKOnly,
    UniformTail,
)
from lazygumbel.budgets import expectation_budget, partition_budget
from statistics_helpers import logits_of, make_rows, mean_p, probabilities_of

PASSES, FAILS = 1e-3, 1e-6  # what a right estimate must exceed, what a wrong one must not

Floats = npt.NDArray[np.float64]


class Given:
    """An index that ranks the rows in a given order, right or wrong: the head is the first k of it."""

    def __init__(self, logits: npt.ArrayLike, order: npt.ArrayLike | None = None, *, exact: bool = False) -> None:
        self.features = Features.of(np.asarray(logits, dtype=np.float32)[:, None])
        values = self.features.stored[:, 0]
        self.order = np.argsort(-values, kind="stable") if order is None else np.asarray(order)
        self.exact = exact

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The first k of the order, best first; queries are all ones."""
        size = len(np.asarray(queries))
        ids = self.order[:k]
        ids = ids[np.argsort(-self.features.stored[ids, 0], kind="stable")]
        scores = self.features.stored[ids, 0]
        return TopK(
            np.tile(ids, (size, 1)),
            np.tile(scores, (size, 1)),
            np.full(size, len(ids)),
            self.exact or k >= self.features.n,
            k,
        )

    @property
    def logits(self) -> Floats:
        return self.features.stored[:, 0].astype(np.float64)

    def copies(self, times: int):
        """The same theta many times: each is one replication."""
        return LogLinear(self)(np.ones((times, 1)))


def normal_logits(n: int, spread: float, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(scale=spread, size=n)


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


def built_indexes() -> dict[str, object]:
    features = Features.of(make_rows(1500, 8, varied=True, seed=6))
    return {
        "exact": ExactIndex.build(features),
        "partition": PartitionIndex.build(features, cells=40, probe=3, rng=0),
        "lsh": LSHIndex.build(features, tables=16, rng=0),
        "hnsw": FaissIndex.build(features, "HNSW16"),
        "ivf": FaissIndex.build(features, "IVF16,Flat"),
    }


@pytest.mark.parametrize("name", ["exact", "partition", "lsh", "hnsw", "ivf"])
def test_the_partition_estimate_is_unbiased_over_every_index(name: str) -> None:
    index = built_indexes()[name]
    rows = make_rows(1500, 8, varied=True, seed=6)
    theta = 2 * make_rows(1, 8, seed=7)[0]
    weights = np.exp(logits_of(rows, theta, 0.8))
    dist = LogLinear(index)(np.tile(theta, (1500, 1)), temperature=0.8)  # type: ignore[arg-type]
    estimates = np.exp(dist.log_partition(method=UniformTail(40, 100), rng=8).value)
    assert mean_p(estimates, weights.sum()) > PASSES
    assert mean_p(estimates * 1.03, weights.sum()) < FAILS  # a bias of 3% is seen


# Budgets


def near_worst(n: int, k: int, gap: float, times: float = 1.0) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Head rows all at the floor, tail rows e^gap above it that weigh `times` the head, the rest at nothing."""
    heavy = max(1, round(times * k * np.exp(-gap)))
    logits = np.full(n, -30.0)
    logits[:k] = -gap
    logits[k : k + heavy] = 0.0
    return logits, np.arange(n)


def flat(n: int, k: int, gap: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Half of the tail at the ceiling, half well below it."""
    logits = np.where(np.arange(n) % 2, 0.0, -3.0)
    logits[:k] = -gap
    return logits, np.arange(n)


def gaussian(n: int, _: int, gap: float) -> tuple[Floats, npt.NDArray[np.int64]]:  # noqa: ARG001
    logits = np.sort(normal_logits(n, 1.5, 9))[::-1]
    return logits, np.arange(n)


def gap_of(index: Given, k: int) -> float:
    """The gap that this head has."""
    head, tail = index.order[:k], index.order[k:]
    return float(index.logits[tail].max() - index.logits[head].min())


@pytest.mark.parametrize("shape", [near_worst, flat, gaussian])
@pytest.mark.parametrize(
    ("n", "rel_err", "delta", "gap"),
    [(2000, 0.5, 0.1, 0.0), (2000, 1.0, 0.05, 0.0), (2000, 0.6, 0.2, 1.0), (20_000, 0.25, 0.1, 0.5)],
)
def test_the_partition_budget_holds(shape, n: int, rel_err: float, delta: float, gap: float) -> None:
    k = partition_budget(n, rel_err, delta, gap=gap)
    assert k < n // 2
    index = Given(*shape(n, k, gap))
    assert gap_of(index, k) <= gap + 1e-6
    method = UniformTail(rel_err=rel_err, delta=delta, gap=gap)
    assert method.budget(n, expectation=False) == (k, k)
    assert failures(index, method, rel_err) <= delta


def failures(index: Given, method: UniformTail, rel_err: float, times: int = 1500) -> float:
    """Share of replications with Z off by more than rel_err."""
    log_z = np.log(np.exp(index.logits).sum())
    estimates = index.copies(times).log_partition(method=method, rng=10).value
    return float((np.abs(np.expm1(estimates - log_z)) > rel_err).mean())


@pytest.mark.parametrize(("n", "rel_err", "delta", "gap"), [(2000, 0.5, 0.1, 0.0), (20_000, 0.25, 0.1, 0.5)])
def test_a_tenth_of_the_partition_budget_fails(n: int, rel_err: float, delta: float, gap: float) -> None:
    k = partition_budget(n, rel_err, delta, gap=gap) // 10
    assert failures(Given(*near_worst(n, k, gap, 3.0)), UniformTail(k, k), rel_err) > delta


def test_an_understated_gap_breaks_the_partition_budget() -> None:
    k = partition_budget(20_000, 0.5, 0.1, gap=0.0)
    logits, order = near_worst(20_000, k, 3.0)  # the head lies 3 below the ceiling, and the budget was not told
    assert failures(Given(logits, order), UniformTail(rel_err=0.5, delta=0.1), 0.5) > 0.1


def signs(n: int, k: int) -> Floats:
    """f = +1 or -1, so that the tail matters most."""
    values = np.random.default_rng(11).choice([-1.0, 1.0], size=n)
    values[:k] = 1.0
    return values


def wrong_expectations(index: Given, method: UniformTail, f: Floats, rel_err: float, times: int = 600) -> float:
    """Share of replications with E[f] off by more than rel_err max |f|, the worst component of f."""
    weights = np.exp(index.logits)
    truth = weights @ f / weights.sum()
    estimates = index.copies(times).expectation(lambda ids: f[ids], method=method, rng=12).value
    return float((np.abs(estimates - truth) > rel_err * np.abs(f).max()).mean(axis=0).max())


@pytest.mark.parametrize("shape", [near_worst, flat, gaussian])
@pytest.mark.parametrize(("rel_err", "delta", "gap"), [(0.3, 0.1, 0.0), (0.5, 0.2, 0.5)])
def test_the_expectation_budget_holds(shape, rel_err: float, delta: float, gap: float) -> None:
    n = 2500
    k = expectation_budget(n, rel_err, delta, gap=gap)
    assert k < n
    index = Given(*shape(n, k, gap))
    assert gap_of(index, k) <= gap + 1e-6
    method = UniformTail(rel_err=rel_err, delta=delta, gap=gap)
    assert method.budget(n, expectation=True) == (k, k)
    scalar = signs(n, k // 2)
    vector = np.stack([scalar, np.roll(scalar, 7), np.linspace(-1, 1, n)], axis=1)
    assert wrong_expectations(index, method, scalar, rel_err) <= delta
    assert wrong_expectations(index, method, vector, rel_err) <= delta


def test_a_thirtieth_of_the_expectation_budget_fails() -> None:
    n, rel_err, delta = 2000, 0.2, 0.1
    k = expectation_budget(n, rel_err, delta) // 30
    index = Given(np.zeros(n), np.arange(n))
    f = signs(n, 0)
    assert wrong_expectations(index, UniformTail(k, k), f, rel_err) > delta
    assert wrong_expectations(index, UniformTail(k, k), np.stack([f, -f], axis=1), rel_err) > delta


def test_labels_say_what_was_promised() -> None:
    logits = normal_logits(400, 1.0)
    promised = UniformTail(rel_err=0.5, delta=0.1)
    assert Given(logits, exact=True).copies(1).log_partition(method=promised).label == "calibrated"
    assert Given(logits).copies(1).log_partition(method=UniformTail(20, 20)).label == "heuristic"
    assert Given(logits).copies(1).log_partition(method=UniformTail(400, 20)).label == "exact"
    model = LogLinear(PartitionIndex.build(Features.of(make_rows(400, 4)), cells=20, probe=1, rng=0))
    assert model(np.ones(4)).log_partition(method=promised).label == "heuristic"
    assert model(np.ones(4)).log_partition(method=TopKOnly(400)).label == "exact"
    assert model(np.ones(4)).log_partition(method=TopKOnly(20)).label == "heuristic"


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
        np.testing.assert_allclose(dist.expectation(method=method, rng=0).value[0], 1000 * p[0] + 999 * p[1], rtol=1e-9)
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
