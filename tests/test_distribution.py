"""Shapes, types and values of a `Distribution`, and what is left when rows are excluded."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from distribution_helpers import ROWS, SHAPES, THETAS, D, N, exact_model, raced_model
from lazygumbel import (
    Distribution,
    ExactIndex,
    Exhaustive,
    FaissIndex,
    Features,
    Index,
    LogLinear,
    LSHIndex,
    PartitionIndex,
    TopKOnly,
    UniformTail,
)
from lazygumbel.methods.base import Seen
from statistics_helpers import chi_square_p, logits_of, make_rows, mean_p, partition_model, probabilities_of


@pytest.fixture(scope="module", params=["exact", "partition"])
def model(request: pytest.FixtureRequest) -> LogLinear:
    return exact_model() if request.param == "exact" else raced_model()


# Shapes and types


def check_array(array: object, shape: tuple[int, ...], dtype: type) -> None:
    assert type(array) is np.ndarray, f"{type(array)} in place of an array"
    assert array.shape == shape and array.dtype == dtype


def check_estimate(estimate, shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    check_array(estimate.value, shape, np.float64)
    check_array(estimate.stderr, shape, np.float64)
    check_array(estimate.rows, batch, np.int64)
    for end in estimate.interval():
        check_array(end, shape, np.float64)
    assert estimate.label in ("exact", "bounded", "heuristic") and estimate.exact == (estimate.label == "exact")
    assert estimate.labels.shape == batch and set(estimate.labels.reshape(-1).tolist()) <= {estimate.label, "exact"}
    check_array(estimate.bound, batch, np.float64)
    assert (np.isnan(estimate.bound) == (estimate.labels == "heuristic")).all()
    assert (estimate.bound[estimate.labels == "exact"] == 0).all()


@pytest.mark.parametrize("batch", list(SHAPES))
@pytest.mark.parametrize("method", [None, Exhaustive(), UniformTail(20, 20), TopKOnly(20)])
def test_shapes_of_estimates(model: LogLinear, batch: tuple[int, ...], method) -> None:
    dist = model(SHAPES[batch], temperature=0.5)
    assert dist.batch_shape == batch
    check_estimate(dist.log_partition(method=method, rng=0), batch, batch)
    check_estimate(dist.entropy(method=method, rng=0), batch, batch)
    check_estimate(dist.expectation(method=method, rng=0), (*batch, D), batch)
    check_estimate(dist.expectation(lambda ids: ids / 2, method=method, rng=0), batch, batch)
    check_estimate(dist.expectation(lambda ids: ids % 2 == 0, method=method, rng=0), batch, batch)
    check_estimate(dist.expectation(lambda ids: np.stack([ids] * 3, 1), method=method, rng=0), (*batch, 3), batch)
    check_estimate(dist.expectation(lambda ids: ids[:, None], method=method, rng=0), (*batch, 1), batch)
    check_estimate(dist.expectation(lambda ids: ids.tolist(), method=method, rng=0), batch, batch)
    for sample in ((), (2,), (2, 3), (0,)):
        ids = np.zeros(sample + batch, dtype=np.int64)
        check_estimate(dist.log_prob(ids, method=method, rng=0), sample + batch, batch)


@pytest.mark.parametrize("batch", list(SHAPES))
def test_shapes_of_merged_estimates(model: LogLinear, batch: tuple[int, ...]) -> None:
    dist = model(SHAPES[batch])
    half = np.arange(N) < N // 2
    parts = [dist.log_partition(exclude=mask, method=Exhaustive()) for mask in (half, ~half)]
    merged = parts[0].merge(parts[1])
    check_estimate(merged, batch, batch)
    np.testing.assert_allclose(merged.value, dist.log_partition(method=Exhaustive()).value)


@pytest.mark.parametrize("batch", list(SHAPES))
def test_shapes_of_draws(model: LogLinear, batch: tuple[int, ...]) -> None:
    dist = model(SHAPES[batch], temperature=0.5)
    for size, shape in ((1, (1,)), (7, (7,)), ((2, 3), (2, 3)), ((), ()), (0, (0,)), (np.int32(2), (2,))):
        drawn = dist.sample(size, rng=0)
        check_array(drawn.ids, shape + batch, np.int64)
        check_array(drawn.values, shape + batch, np.float64)
        check_array(drawn.rows, batch, np.int64)
        assert drawn.labels.shape == batch
        check_array(drawn.bound, batch, np.float64)
        check_array(drawn.violations, batch, np.int64)
    for size in (1, 6, N):
        ordered = dist.sample_without_replacement(size, rng=0)
        check_array(ordered.ids, (size, *batch), np.int64)
        for values in (ordered.logits, ordered.values, ordered.inclusion, ordered.weights):
            check_array(values, (size, *batch), np.float64)
        check_array(ordered.threshold, batch, np.float64)
        check_array(ordered.rows, batch, np.int64)
        check_array(ordered.bound, batch, np.float64)
        assert ordered.labels.shape == batch
        check_array(ordered.log_partition, batch, np.float64)
    for exclude in (None, [3, 4]):
        best = dist.top_k(6, exclude=exclude)
        check_array(best.ids, (*batch, 6), np.int64)
        check_array(best.scores, (*batch, 6), np.float32)
        check_array(best.rows, batch, np.int64)
        check_array(dist.mode(exclude=exclude).ids, batch, np.int64)
        assert best.k == 6
        if batch != (0,):
            assert dist.top_k(N + 5, exclude=exclude).ids.shape == (*batch, N - len(exclude or []))
    assert dist.top_k(N + 5).ids.shape == (*batch, N)


ASKS: tuple[Callable[[Distribution, object], object], ...] = (
    lambda d, rng: d.log_partition(rng=rng).value,
    lambda d, rng: d.expectation(rng=rng).value,
    lambda d, rng: d.expectation(lambda ids: ids % 3, rng=rng).value,
    lambda d, rng: d.entropy(rng=rng).value,
    lambda d, rng: d.log_prob(np.zeros((3, *d.batch_shape), dtype=np.int64), rng=rng).value,
    lambda d, rng: d.sample(5, rng=rng).ids,
    lambda d, rng: d.sample_without_replacement(5, rng=rng).ids,
    lambda d, _: d.top_k(5).ids,
)


def test_a_batch_of_one_and_a_bare_theta_agree(model: LogLinear) -> None:
    bare, one = model(THETAS[0]), model(THETAS[:1])
    for ask in ASKS:
        np.testing.assert_array_equal(np.ravel(ask(bare, 1)), np.ravel(ask(one, 1)))


def test_a_batch_is_its_thetas_one_by_one(varied_model: LogLinear) -> None:
    """By the default method over a partition, with one generator: each theta has seeds of its own."""
    model = varied_model
    thetas = np.concatenate([10 * make_rows(3, 8, seed=3), np.zeros((1, 8)), 300 * make_rows(2, 8, seed=3)])
    for ask in ASKS:
        together, rng = ask(model(thetas), np.random.default_rng(1)), np.random.default_rng(1)
        for b, theta in enumerate(thetas):
            axis = 0 if np.shape(together)[0] == len(thetas) else 1  # samples come before the batch
            np.testing.assert_array_equal(np.take(together, b, axis), ask(model(theta), rng))
    # Control: equal thetas of a batch have other seeds.
    twice = model(np.tile(thetas[:1], (2, 1))).log_partition(rng=1)
    assert twice.label == "bounded" and twice.value[0] != twice.value[1]


def test_a_distribution_says_what_it_is(model: LogLinear) -> None:
    assert repr(model(THETAS, temperature=0.25)) == "Distribution(n=300, d=5, batch_shape=(4,), temperature=0.25)"
    assert model(THETAS, temperature=2).temperature == 2.0


def test_integers_and_lists_are_thetas_too(model: LogLinear) -> None:
    assert (
        model([1, 0, 2, 0, -1]).log_partition(rng=0).value
        == model(np.array([1.0, 0, 2, 0, -1])).log_partition(rng=0).value
    )


# Values


def test_probabilities_sum_to_one_and_are_the_softmax(model: LogLinear) -> None:
    every = np.tile(np.arange(N)[:, None], (1, 4))
    found = np.exp(model(THETAS, temperature=0.3).log_prob(every, method=Exhaustive()).value)
    np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-5)
    for b, theta in enumerate(THETAS):
        np.testing.assert_allclose(found[:, b], probabilities_of(ROWS, theta, 0.3), rtol=1e-4)
    left = np.exp(model(THETAS, temperature=0.3).log_prob(every, method=Exhaustive(), exclude=[0, 7]).value)
    np.testing.assert_allclose(left.sum(axis=0), 1.0, rtol=1e-5)


def test_the_mode_and_the_top_are_the_true_ones() -> None:
    dist = exact_model()(THETAS)
    for b, theta in enumerate(THETAS):
        truth = np.argsort(-logits_of(ROWS, theta), kind="stable")
        np.testing.assert_array_equal(dist.top_k(9).ids[b], truth[:9])
        assert dist.mode().ids[b] == truth[0]
        np.testing.assert_allclose(dist.top_k(9).scores[b], logits_of(ROWS, theta)[truth[:9]], rtol=1e-5)
    assert dist.top_k(9).exact


@pytest.mark.usefixtures("codes_alone")
def test_rel_err_sets_the_budget_of_the_default_method() -> None:
    model = partition_model(20_000, 16, varied=True, seed=2, cells=40, coordinates=(8, 8))
    theta = 3 * make_rows(1, 16, seed=3)[0]
    log_z = np.logaddexp.reduce(logits_of(make_rows(20_000, 16, varied=True, seed=2), theta))
    dist = model(np.tile(theta, (200, 1)))
    asked = (0.02, 0.015, 0.01)
    found = [dist.log_partition(rel_err=e, rng=0) for e in asked]
    for rel_err, estimate in zip(asked, found, strict=True):
        assert estimate.label == "bounded"
        relative = np.expm1(estimate.value - log_z)
        assert np.sqrt(np.mean(relative**2)) < 1.2 * rel_err
    rough, middle, fine = (e.rows.mean() for e in found)
    assert rough < middle < fine / 1.5
    # Control: a tenth of the error asked for is not met.
    assert np.sqrt(np.mean(np.expm1(found[0].value - log_z) ** 2)) > 0.01
    np.testing.assert_array_equal(dist.log_partition(rng=0).value, found[2].value)  # 1% is the default
    for ask in (dist.entropy, dist.expectation):
        assert ask(rel_err=0.01, rng=0).rows.mean() > 2 * ask(rel_err=0.1, rng=0).rows.mean()
    exact = exact_model()(THETAS)
    assert exact.log_partition(rel_err=0.1).exact
    poor = LogLinear(FaissIndex.build(Features.of(make_rows(5000, 4, seed=3)), "HNSW16"))(np.ones(4))
    rough, fine = (poor.log_partition(rel_err=e, rng=0) for e in (0.5, 0.1))
    assert fine.rows > rough.rows and fine.stderr < rough.stderr
    for ask in (poor.entropy, poor.expectation):
        assert ask(rel_err=1.0, rng=0).rows > ask(rel_err=1.9, rng=0).rows


class Halved:
    """An estimator that finds half of Z."""

    def moments(self, query, f, rng) -> Seen:
        seen = Exhaustive().moments(query, f, rng)
        return seen._replace(moments=replace(seen.moments, total=seen.moments.total / 2))


def test_probabilities_are_at_most_one(model: LogLinear) -> None:
    """log Z is an estimate, and may be below the logit of a row with nearly all mass."""
    best = int(np.argmax(logits_of(ROWS, THETAS[0])))
    dist = model(THETAS[0], temperature=0.01)
    assert logits_of(ROWS, THETAS[0], 0.01)[best] - dist.log_partition(method=Halved()).value > 0.5
    told = dist.log_prob([best, 0], method=Halved()).value
    assert told[0] == 0.0 and told[1] < -1.0
    np.testing.assert_allclose(told[1], dist.log_prob(0, method=Exhaustive()).value + np.log(2), atol=1e-3)


# Exclusions


def masks() -> dict[str, tuple[object, list[npt.NDArray[np.int64]]]]:
    """Ways to exclude rows for four thetas, and the ids that each theta then leaves out."""
    rng = np.random.default_rng(4)
    some = np.unique(rng.integers(N, size=60))
    each = [np.unique(rng.integers(N, size=s)) for s in (1, 30, 200, 5)]
    heads = [np.argsort(-logits_of(ROWS, theta))[:150] for theta in THETAS]
    mask, table = np.isin(np.arange(N), some), np.stack([np.isin(np.arange(N), e) for e in each])
    all_but_one = np.delete(np.arange(N), 17)
    return {
        "ids": (some, [some] * 4),
        "list": (some.tolist(), [some] * 4),
        "repeated": (np.concatenate([some, some[:5]]), [some] * 4),
        "nothing": ([], [some[:0]] * 4),
        "mask": (mask, [some] * 4),
        "mask list": (mask.tolist(), [some] * 4),
        "per theta": (each, each),
        "tuple": (tuple(e.tolist() for e in each), each),
        "empty per theta": ([[], [1], [], []], [some[:0], np.array([1]), some[:0], some[:0]]),
        "masks": (table, each),
        "list of masks": (list(table), each),
        "table of ids": (np.tile(some[:6], (4, 1)), [some[:6]] * 4),
        "whole heads": (heads, heads),
        "all but one": (all_but_one, [all_but_one] * 4),
    }


@pytest.mark.parametrize("way", list(masks()))
def test_exclusions_equal_brute_force(model: LogLinear, way: str) -> None:
    exclude, excluded = masks()[way]
    dist = model(THETAS, temperature=0.5)
    table = np.random.default_rng(5).normal(size=(N, 2))
    p = np.stack([probabilities_of(ROWS, t, 0.5, e) for t, e in zip(THETAS, excluded, strict=True)])
    logits = np.stack([logits_of(ROWS, theta, 0.5) for theta in THETAS])
    log_z = np.log(np.where(p > 0, np.exp(logits), 0.0).sum(axis=1))
    for method in (Exhaustive(), UniformTail(N, 2), TopKOnly(N)):  # the last two by a head that holds every row
        ask = {"method": method, "exclude": exclude, "rng": 0}
        entropies = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=1)
        np.testing.assert_allclose(dist.log_partition(**ask).value, log_z, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(dist.expectation(**ask).value, p @ ROWS, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            dist.expectation(lambda ids: table[ids], **ask).value, p @ table, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(dist.entropy(**ask).value, entropies, rtol=1e-4, atol=1e-5)
        every = np.tile(np.arange(N)[:, None], (1, 4))
        found = dist.log_prob(every, **ask).value
        np.testing.assert_array_equal(np.isneginf(found), (p == 0).T)
        np.testing.assert_allclose(np.exp(found), p.T, rtol=1e-4)
        assert dist.log_partition(**ask).exact
    drawn, ordered = dist.sample(50, exclude=exclude, rng=0), dist.sample_without_replacement(1, exclude=exclude, rng=0)
    estimate, mean = dist.log_partition(exclude=exclude, rng=0), dist.expectation(exclude=exclude, rng=0)
    for b, out in enumerate(excluded):
        assert not np.isin(drawn.ids[:, b], out).any() and ordered.ids[:, b] not in out
        assert abs(estimate.value[b] - log_z[b]) < 0.1  # by the default method, at 1%
        assert (np.abs(mean.value[b] - p[b] @ ROWS) < 6 * mean.stderr[b] + 1e-4).all()


@pytest.mark.parametrize("way", list(masks()))
def test_the_top_after_exclusions(way: str) -> None:
    exclude, excluded = masks()[way]
    dist = exact_model()(THETAS)
    left = min(N - len(e) for e in excluded)
    for k in (1, 2, 10, 90, N):
        found = dist.top_k(k, exclude=exclude)
        assert found.ids.shape == (4, min(k, left)) and found.exact and found.k == k
        for b, theta in enumerate(THETAS):
            logits = logits_of(ROWS, theta)
            logits[excluded[b]] = -np.inf
            truth = np.argsort(-logits, kind="stable")[: min(k, left)]
            np.testing.assert_array_equal(found.ids[b], truth)
            np.testing.assert_allclose(found.scores[b], logits[truth], rtol=1e-5, atol=1e-6)
            assert dist.mode(exclude=exclude).ids[b] == truth[0]


def test_few_rows_left_far_down_the_ranking() -> None:
    """Half of what is left ranks high and half low: the index must be asked until all of it is there."""
    order = np.argsort(-logits_of(ROWS, THETAS[0]))
    kept = np.concatenate([order[5:10], order[200:205]])
    exclude = np.setdiff1d(np.arange(N), kept)
    for model in (exact_model(), raced_model()):
        dist = model(THETAS[0])
        np.testing.assert_array_equal(dist.top_k(8, exclude=exclude).ids, kept[:8])
        np.testing.assert_array_equal(dist.top_k(10, exclude=exclude).ids, kept)
        estimate = dist.log_partition(method=UniformTail(8, 2), exclude=exclude, rng=0)
        truth = np.log(np.exp(logits_of(ROWS, THETAS[0])[kept]).sum())
        assert abs(estimate.value - truth) < 0.5
        assert sorted(dist.sample_without_replacement(10, exclude=exclude, rng=0).ids) == sorted(kept)


@pytest.mark.parametrize("build", [ExactIndex.build, lambda f: FaissIndex.build(f, "HNSW4")])
def test_estimates_with_the_head_excluded_are_unbiased(build: Callable[[Features], Index]) -> None:
    theta = THETAS[0]
    order = np.argsort(-logits_of(ROWS, theta))
    exclude = order[:60]
    model = LogLinear(build(Features.of(ROWS)))
    dist = model(np.tile(theta, (3000, 1)))
    estimates = np.exp(dist.log_partition(method=UniformTail(10, 10), exclude=exclude, rng=6).value)
    assert mean_p(estimates, np.exp(logits_of(ROWS, theta)[order[60:]]).sum()) > 1e-3
    assert mean_p(estimates, np.exp(logits_of(ROWS, theta)).sum()) < 1e-6  # control: nothing excluded


def test_exclusions_of_one_theta_leave_the_others_alone(model: LogLinear) -> None:
    dist = model(THETAS)
    only = dist.log_partition(method=Exhaustive(), exclude=[[0, 1, 2], [], [], []]).value
    none = dist.log_partition(method=Exhaustive()).value
    assert only[0] < none[0]
    np.testing.assert_array_equal(only[1:], none[1:])


# The same over every index


@pytest.mark.parametrize(
    "build",
    [
        ExactIndex.build,
        lambda f: PartitionIndex.build(f, cells=20, rng=0),
        lambda f: LSHIndex.build(f, tables=8, rng=0),
        lambda f: FaissIndex.build(f, "HNSW16"),
    ],
)
def test_every_index_answers_every_question(build: Callable[[Features], Index]) -> None:
    model = LogLinear(build(Features.of(ROWS)))
    for batch, theta in SHAPES.items():
        dist = model(theta, temperature=0.5)
        check_estimate(dist.log_partition(rng=0), batch, batch)
        check_estimate(dist.expectation(rng=0, exclude=[1, 2]), (*batch, D), batch)
        check_array(dist.sample(3, rng=0, exclude=[1, 2]).ids, (3, *batch), np.int64)
        check_array(dist.sample_without_replacement(3, rng=0).ids, (3, *batch), np.int64)
        check_array(dist.mode().ids, batch, np.int64)
    dist = model(THETAS, temperature=0.5)
    np.testing.assert_array_equal(dist.sample(5, rng=3).ids, dist.sample(5, rng=3).ids)
    np.testing.assert_array_equal(dist.log_partition(rng=3).value, dist.log_partition(rng=3).value)


@pytest.mark.parametrize("index", [ExactIndex.build, lambda rows: PartitionIndex.build(rows, rng=0)])
def test_log_probabilities_are_never_above_zero(index) -> None:
    """Where one row has all of the mass, its logit and log Z are rounded in different ways."""
    rows = make_rows(2_000, 16, varied=True, seed=3)
    dist = LogLinear(index(rows))(30 * make_rows(300, 16, seed=4), temperature=0.1)
    found = dist.log_prob(dist.mode().ids, rng=0)
    assert (found.value <= 0).all() and (found.value > -1e-3).any()
    with np.errstate(divide="ignore"):
        assert not np.isnan(np.log1p(-np.exp(found.value))).any()


def test_rows_of_zeros_and_of_tiny_norms_are_rows() -> None:
    sparse = make_rows(2_000, 8, seed=5)
    sparse[np.arange(2_000) % 50 != 0] = 0.0
    for rows in (sparse, sparse * np.float32(1e-20), 0 * sparse):
        model = LogLinear(PartitionIndex.build(rows, rng=0))
        found = model(np.ones(8)).log_partition(rng=0)
        exact = np.logaddexp.reduce(logits_of(rows, np.ones(8)))
        assert abs(found.value - exact) <= 5 * found.stderr + 1e-5
        assert "accepted" in str(model.calibrate(rng=0))


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 3e19])
def test_thetas_whose_squares_leave_float32_are_thetas(scale: float) -> None:
    rows, theta = make_rows(1_000, 8, seed=5), (scale * make_rows(1, 8)[0]).astype(np.float32)
    dist, logits = LogLinear(PartitionIndex.build(rows, rng=0))(theta), logits_of(rows, theta)
    found, exact = dist.log_partition(rng=0), np.logaddexp.reduce(logits)
    assert abs(found.value - exact) <= 5 * found.stderr + 1e-6 * abs(exact)
    ids = dist.sample(2_000, rng=0).ids
    assert (ids == logits.argmax()).all() if scale > 1 else chi_square_p(ids, np.ones(1_000)) > 1e-4


def test_a_model_that_nobody_holds_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what a thread that helps, or one of the pool, was given last."""
    monkeypatch.setattr("lazygumbel.indexes.partition.index._SHARED_FROM", 0)
    model = LogLinear(PartitionIndex.build(make_rows(2_000, 8, seed=6), rng=0))
    model(make_rows(64, 8)).sample(2, rng=0)
    for ask in ("log_partition", "sample", "expectation"):
        getattr(model(make_rows(1, 8)[0]), ask)(rng=0)
    model(make_rows(1, 8)[0]).top_k(3)
    held = [weakref.ref(one) for one in (model.index, model.features, model.features.stored)]
    del model
    gc.collect()
    assert [one() for one in held] == [None] * 3
