"""Exclusions, more rows than float32 can count, and inputs at the edge: right answers, no warnings, no NaN."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import stats

import lazygumbel as lg
from statistics_helpers import CountingIndex, chi_square_p, logits_of, make_rows, probabilities_of

INDEXES: dict[str, Callable[[lg.Features], lg.Index]] = {
    "exact": lg.ExactIndex.build,
    "partition": lambda f: lg.PartitionIndex.build(f, rng=0),
    "lsh": lambda f: lg.LSHIndex.build(f, rng=0),
    "hnsw": lambda f: lg.FaissIndex.build(f, "HNSW8"),
    "flat": lambda f: lg.FaissIndex.build(f, "Flat"),
}
# The gap of 60 covers whatever the approximate indexes miss at the temperatures below.
SAMPLERS = {
    "exhaustive": lg.Exhaustive(),
    "lazy": lg.LazyGumbel(),
    "lazy with a gap": lg.LazyGumbel(k=5, gap=60.0),
    "fixed": lg.FixedCutoff(),
    "fixed by delta": lg.FixedCutoff(delta=1e-6),
}
N, D, DRAWS = 400, 6, 20_000


@cache
def model_of(index: str) -> lg.LogLinear:
    return lg.LogLinear(INDEXES[index](lg.Features.of(make_rows(N, D, varied=True, seed=4))))


ROWS = make_rows(N, D, varied=True, seed=4)
THETAS = np.random.default_rng(5).normal(size=(3, D)).astype(np.float32)
BEST = np.argsort(-logits_of(ROWS, THETAS[0]))
EXCLUSIONS = {
    "nothing": BEST[:0],
    "the best": BEST[:1],
    "the whole head": BEST[:60],
    "all but the worst 5%": BEST[:380],
    "the worst": BEST[200:],
    "a random half": np.random.default_rng(6).permutation(N)[:200],
    "all but one": np.delete(np.arange(N), 17),
}


@pytest.mark.parametrize("out", EXCLUSIONS)
@pytest.mark.parametrize("index", ["exact", "partition"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_excluded_rows_are_never_drawn(sampler, index, out):
    method, exclude = SAMPLERS[sampler], EXCLUSIONS[out]
    if index == "partition" and sampler in ("lazy", "fixed"):
        method = {"lazy": lg.LazyGumbel(k=20, gap=8.0), "fixed": lg.FixedCutoff(k=200, l=60)}[sampler]
    at = model_of(index)(THETAS[0], temperature=0.5)
    drawn = at.sample(DRAWS, method=method, rng=51, exclude=exclude)
    assert not np.isin(drawn.ids, exclude).any()
    p = chi_square_p(drawn.ids, probabilities_of(ROWS, THETAS[0], 0.5, exclude))
    assert p > 1e-7, f"seed 51, {method}: p = {p}"
    if len(exclude) and out != "the worst":
        control = chi_square_p(drawn.ids, probabilities_of(ROWS, THETAS[0], 0.5))
        assert control < 1e-10, f"the exclusion makes no difference: p = {control}"
    log_z = np.logaddexp.reduce(np.delete(logits_of(ROWS, THETAS[0], 0.5), exclude))
    p = stats.kstest(drawn.values, stats.gumbel_r(loc=log_z).cdf).pvalue
    assert p > 1e-7, f"seed 51, {method}: values, p = {p}"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_exclusions_come_in_three_forms(sampler):
    at, method = model_of("exact")(THETAS, temperature=0.5), SAMPLERS[sampler]
    ids = EXCLUSIONS["the whole head"]
    mask = np.isin(np.arange(N), ids)
    each = [ids, BEST[:0], np.arange(390)]
    masks = np.stack([np.isin(np.arange(N), e) for e in each])
    for exclude in (ids, ids.tolist(), np.repeat(ids, 2), mask):
        drawn = at.sample(DRAWS, method=method, rng=52, exclude=exclude)
        for b, theta in enumerate(THETAS):
            p = chi_square_p(drawn.ids[:, b], probabilities_of(ROWS, theta, 0.5, ids))
            assert p > 1e-7, f"seed 52, theta {b}: p = {p}"
    for exclude in (each, tuple(each), masks, list(masks)):
        drawn = at.sample(DRAWS, method=method, rng=53, exclude=exclude)
        for b, theta in enumerate(THETAS):
            p = chi_square_p(drawn.ids[:, b], probabilities_of(ROWS, theta, 0.5, each[b]))
            assert p > 1e-7, f"seed 53, theta {b}: p = {p}"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nothing_left_is_an_error(sampler):
    one, many = model_of("exact")(THETAS[0]), model_of("exact")(THETAS)
    for exclude in (np.arange(N), np.ones(N, dtype=bool)):
        with pytest.raises(ValueError, match="exclude leaves no row"):
            one.sample(1, method=SAMPLERS[sampler], exclude=exclude)
    with pytest.raises(ValueError, match="exclude leaves no row"):
        many.sample(1, method=SAMPLERS[sampler], exclude=[[], np.arange(N), [1]])
    with pytest.raises(ValueError, match="exclude leaves no row"):
        one.sample_without_replacement(1, method=lg.LazyGumbel(), exclude=np.arange(N))
    for wrong in ([N], [-1], [0.5], np.ones(N + 1, dtype=bool)):
        with pytest.raises(ValueError, match="exclude"):
            one.sample(1, exclude=wrong)
    with pytest.raises(ValueError, match="exclude has 2 entries, but there are 3 thetas"):
        many.sample(1, exclude=[[1], [2]])


def test_an_exclusion_leaves_a_head_of_k():
    """The theorems count on k rows in the head, so a delta would be broken by a head that exclusions thin out."""
    n, delta = 2000, 0.1
    features = lg.Features.of(make_rows(n, D, seed=7))
    best = np.argsort(-logits_of(features.stored, THETAS[0]))
    k = lg.FixedCutoff(delta=delta).budget(n)[0]
    for out in (best[:k], best[: 3 * k // 2], best[: 5 * k], best[:-k]):
        counting = CountingIndex(lg.ExactIndex.build(features))
        drawn = lg.LogLinear(counting)(THETAS[0]).sample(5_000, method=lg.TopKOnly(k), rng=54, exclude=out)
        assert drawn.rows == counting.calls * n, "the rows of every search count"
        held = np.unique(drawn.ids)
        assert len(held) > 0.95 * k, f"seed 54: {len(out)} excluded, {len(held)} rows held of {k}"
        assert set(held[:k]) <= set(best[len(out) :]), "seed 54"


def test_a_high_rate_among_the_few_rows_left_is_quick():
    """To look at nearly all of the rows left, nearly all are taken at once, not collected one coincidence at a time."""
    n = 300_000
    model = lg.LogLinear(lg.ExactIndex.build(lg.Features.of(make_rows(n, 4, seed=8))))
    drawn = model(np.ones(4)).sample(3, method=lg.FixedCutoff(k=10, l=n - 1), rng=55, exclude=np.arange(n - 20_000))
    assert (drawn.ids >= n - 20_000).all()
    assert drawn.rows <= 20 * n


# More rows than float32 can tell apart.


def test_more_than_2_to_the_24_rows():
    limit, extra = 2**24, 4096
    rows = np.zeros((limit + extra, 4), np.float32)
    rows[limit:, 0] = np.log(limit / extra)  # the rows beyond share half of all mass
    rows[:, 1] = 1.0
    model = lg.LogLinear(lg.ExactIndex.build(lg.Features.of(rows)))
    at, draws = model(np.array([1.0, 0.0, 0.0, 0.0])), 300
    for method in (lg.LazyGumbel(k=4000), lg.FixedCutoff(k=4000, l=16_000), lg.Exhaustive()):
        ids = at.sample(draws, method=method, rng=56).ids
        beyond, below = ids[ids >= limit], ids[ids < limit]
        p = [
            stats.binomtest(len(beyond), draws, 0.5).pvalue,
            stats.binomtest(int((beyond % 2).sum()), len(beyond), 0.5).pvalue,
            stats.kstest((beyond - limit) / extra, "uniform").pvalue,
            stats.kstest(below / limit, "uniform").pvalue,
        ]
        assert min(p) > 1e-6, f"seed 56, {method}: p = {p}"
        rounded = ids.astype(np.float32).astype(np.int64)
        assert (rounded != ids).any(), "control: float32 would have lost ids"
    ordered = at.sample_without_replacement(50, method=lg.LazyGumbel(), rng=56)
    assert len(np.unique(ordered.ids)) == 50
    assert stats.binomtest(int((ordered.ids >= limit).sum()), 50, 0.5).pvalue > 1e-6, "seed 56"


# Inputs at the edge.


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_single_row(sampler, index):
    model = lg.LogLinear(INDEXES[index](lg.Features.of(np.array([[1.0, -2.0]], np.float32))))
    drawn = model(np.array([3.0, 1.0])).sample(5_000, method=SAMPLERS[sampler], rng=57)
    assert (drawn.ids == 0).all()
    p = stats.kstest(drawn.values, stats.gumbel_r(loc=1.0).cdf).pvalue
    assert p > 1e-6, f"seed 57: p = {p}"
    ordered = model(np.array([3.0, 1.0])).sample_without_replacement(1, method=lg.LazyGumbel(), rng=57)
    assert ordered.ids.tolist() == [0] and ordered.threshold == -np.inf and ordered.log_partition == pytest.approx(1.0)


@pytest.mark.parametrize("k", [N - 1, N, N + 1, 10 * N])
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("method", [lg.LazyGumbel, lg.FixedCutoff, lg.TopKOnly])
def test_a_head_of_every_row(method, index, k):
    drawn = model_of(index)(THETAS[0]).sample(DRAWS, method=method(k=k), rng=58)
    p = chi_square_p(drawn.ids, probabilities_of(ROWS, THETAS[0]))
    assert p > 1e-6, f"seed 58: p = {p}"
    if k >= N:
        assert drawn.exact
        # All rows are in the head: none is looked at a second time.
        assert drawn.rows == model_of(index).index.top_k(THETAS[0], k).rows


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_equal_rows(sampler, index):
    rows = np.tile(np.array([[0.5, -1.0, 2.0]], np.float32), (50, 1))
    model = lg.LogLinear(INDEXES[index](lg.Features.of(rows)))
    drawn = model(np.array([4.0, 1.0, 1.0]), temperature=0.1).sample(DRAWS, method=SAMPLERS[sampler], rng=59)
    p = chi_square_p(drawn.ids, np.full(50, 0.02))
    assert p > 1e-6, f"seed 59: p = {p}"
    p = stats.kstest(drawn.values, stats.gumbel_r(loc=30 + np.log(50)).cdf).pvalue
    assert p > 1e-6, f"seed 59: values, p = {p}"


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_theta_zero(sampler, index):
    drawn = model_of(index)(np.zeros(D)).sample(DRAWS, method=SAMPLERS[sampler], rng=60)
    p = chi_square_p(drawn.ids, np.full(N, 1 / N))
    assert p > 1e-6, f"seed 60: p = {p}"


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_row_far_above_the_rest(sampler, index):
    rows = make_rows(N, D, seed=9)
    rows[123] = 0.0
    rows[:, 0] = 0.0
    rows[123, 0] = 1.0
    theta = np.zeros(D)
    theta[0] = 500.0
    model = lg.LogLinear(INDEXES[index](lg.Features.of(rows)))
    drawn = model(theta).sample(1_000, method=SAMPLERS[sampler], rng=61)
    assert (drawn.ids == 123).all()
    assert np.isfinite(drawn.values).all()
    # Once it is excluded, nothing tells the others apart.
    drawn = model(theta).sample(DRAWS, method=SAMPLERS[sampler], rng=61, exclude=[123])
    p = chi_square_p(drawn.ids, np.arange(N) != 123)
    assert p > 1e-6, f"seed 61: p = {p}"


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("temperature", [1e-3, 1e6])
def test_extreme_temperatures(sampler, index, temperature):
    # Rows of the data are the thetas: at 1e-3 an index must find the row itself, and the next few.
    for theta in ROWS[[5, 50]]:
        drawn = model_of(index)(theta, temperature=temperature).sample(DRAWS, method=SAMPLERS[sampler], rng=62)
        assert np.isfinite(drawn.values).all()
        p = chi_square_p(drawn.ids, probabilities_of(ROWS, theta, temperature))
        assert p > 1e-6, f"seed 62: p = {p}"


@pytest.mark.parametrize("index", INDEXES)
def test_extreme_temperatures_without_replacement(index):
    for temperature in (1e-3, 1e6):
        at = model_of(index)(THETAS, temperature=temperature)
        drawn = at.sample_without_replacement(10, method=lg.LazyGumbel(k=30, gap=3.0), rng=63)
        assert np.isfinite(drawn.values).all() and np.isfinite(drawn.threshold).all()
        assert ((drawn.inclusion > 0) & (drawn.inclusion <= 1)).all()
        np.testing.assert_allclose(drawn.weights.sum(axis=1), 1)
        assert np.isfinite(drawn.log_partition).all()
