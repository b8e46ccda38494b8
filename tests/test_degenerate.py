"""Exclusions, more rows than float32 can count, and inputs at the edge: right answers, no warnings, no NaN."""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import lazygumbel as lg
from lazygumbel.methods import Sampler
from statistics_helpers import (
    CountingIndex,
    chi_square_p,
    logits_of,
    make_rows,
    mean_p,
    partition_model,
    probabilities_of,
    race,
)

INDEXES: dict[str, Callable[[lg.Features], lg.Index]] = {
    "exact": lg.ExactIndex.build,
    "partition": lambda f: lg.PartitionIndex.build(f, rng=0),
    "lsh": lambda f: lg.LSHIndex.build(f, rng=0),
    "hnsw": lambda f: lg.FaissIndex.build(f, "HNSW8"),
    "flat": lambda f: lg.FaissIndex.build(f, "Flat"),
}
# The gap of 60 covers whatever the approximate indexes miss at the temperatures below.
SAMPLERS: dict[str, Sampler] = {
    "bounded": lg.Bounded(),
    "exhaustive": lg.Exhaustive(),
    "lazy": lg.LazyGumbel(),
    "lazy with a gap": lg.LazyGumbel(k=5, gap=60.0),
    "fixed": lg.FixedCutoff(),
    "fixed by delta": lg.FixedCutoff(delta=1e-6),
}
N, D, DRAWS = 400, 6, 20_000


@cache
def model_of(index: str) -> lg.LogLinear:
    if index == "partition":
        return partition_model(N, D, varied=True, seed=4)
    return lg.LogLinear(INDEXES[index](lg.Features.of(make_rows(N, D, varied=True, seed=4))))


def draw(
    model: lg.LogLinear,
    theta: np.ndarray,
    sampler: str | Sampler,
    draws: int,
    seed: int,
    temperature: float = 1.0,
    **options,
) -> lg.Draws:
    """`draws` samples of one theta; those of `Bounded` by races, not by the dense pass that so many would get."""
    method = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
    if isinstance(method, lg.Bounded):
        return race(model, theta, draws, temperature=temperature, method=method, rng=seed, **options)
    return model(theta, temperature=temperature).sample(draws, method=method, rng=seed, **options)


def softmax_p(ids: np.ndarray, exact: np.ndarray) -> float:
    """Also where one row only can be drawn."""
    return float((ids == exact.argmax()).all()) if np.count_nonzero(exact) == 1 else chi_square_p(ids, exact)


ROWS = make_rows(N, D, varied=True, seed=4)
THETAS = np.random.default_rng(5).normal(size=(3, D)).astype(np.float32)
BEST = np.argsort(-logits_of(ROWS, THETAS[0]))


@pytest.mark.parametrize("sampler", ["bounded", "exhaustive", "lazy", "fixed"])
def test_exclusions_come_in_three_forms(sampler):
    at, method = model_of("partition" if sampler == "bounded" else "exact")(THETAS, temperature=0.5), SAMPLERS[sampler]
    ids = BEST[:60]
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
    model = model_of("partition" if sampler == "bounded" else "exact")
    one, many = model(THETAS[0]), model(THETAS)
    for exclude in (np.arange(N), np.ones(N, dtype=bool)):
        with pytest.raises(ValueError, match="exclude leaves no row"):
            one.sample(1, method=SAMPLERS[sampler], exclude=exclude)
    with pytest.raises(ValueError, match="exclude leaves no row"):
        many.sample(1, method=SAMPLERS[sampler], exclude=[[], np.arange(N), [1]])
    with pytest.raises(ValueError, match="exclude leaves no row"):
        one.sample_without_replacement(1, exclude=np.arange(N))
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


@pytest.mark.parametrize("k", [N - 1, N, 10 * N])
@pytest.mark.parametrize(
    ("method", "index"),
    [
        *((lg.LazyGumbel, i) for i in INDEXES),
        *((lg.FixedCutoff, i) for i in ("exact", "hnsw")),
        *((lg.TopKOnly, i) for i in ("partition", "lsh")),
    ],
)
def test_a_head_of_every_row(method, index, k):
    drawn = model_of(index)(THETAS[0]).sample(DRAWS, method=method(k=k), rng=58)
    p = chi_square_p(drawn.ids, probabilities_of(ROWS, THETAS[0]))
    assert p > 1e-6, f"seed 58: p = {p}"
    if k >= N:
        assert drawn.exact
        # All rows are in the head: none is looked at a second time.
        assert drawn.rows == model_of(index).index.top_k(THETAS[0], k).rows


# All edges at all temperatures, for the default method.


def edges() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows, theta, and what is excluded."""
    rng = np.random.default_rng(7)
    theta = ROWS[5]
    best = np.argsort(-logits_of(ROWS, theta))
    lonely, tower = make_rows(N, D, seed=9), np.zeros(D, np.float32)
    lonely[:, 0], tower[0] = 0.0, 50.0
    lonely[123] = np.eye(1, D)
    repeated = np.repeat(make_rows(40, D, seed=3), 10, axis=0)
    uneven = ROWS.copy()
    uneven[7], uneven[50:60], uneven[200] = 0.0, uneven[3], 30 * uneven[200]
    line = rng.normal(size=(300, 1)).astype(np.float32)
    nothing = np.arange(0)
    return {
        "a row": (ROWS, theta, nothing),
        "without itself": (ROWS, theta, best[:1]),
        "without the best 60": (ROWS, theta, best[:60]),
        "without all but 5": (ROWS, theta, best[:-5]),
        "without all but one": (ROWS, theta, np.delete(np.arange(N), 17)),
        "theta zero": (ROWS, np.zeros(D, np.float32), nothing),
        "equal rows": (np.tile(ROWS[:1], (50, 1)), theta, nothing),
        "rows of zeros": (np.zeros((50, D), np.float32), theta, nothing),
        "one row": (ROWS[:1], theta, nothing),
        "two rows": (np.stack([theta, -theta]), theta, nothing),
        "far above": (lonely, tower, nothing),
        "far above, excluded": (lonely, tower, np.array([123])),
        "duplicates": (repeated, repeated[7], nothing),
        "uneven lengths": (uneven, theta, nothing),
        "the longest excluded": (uneven, uneven[200], np.array([200])),
        "d = 1": (line, np.ones(1, np.float32), nothing),
        "d = 1, the largest excluded": (line, np.ones(1, np.float32), np.array([line.argmax()])),
        "d = 2": (rng.normal(size=(300, 2)).astype(np.float32), np.array([1.0, 0.5], np.float32), nothing),
    }


EDGES, EXTREMES = edges(), (1e-3, 1e-2, 0.05, 0.3, 1.0, 1e3, 1e6)


@pytest.fixture(scope="module")
def edge_models() -> dict[str, lg.LogLinear]:
    return {name: lg.LogLinear(lg.PartitionIndex.build(rows, rng=0)) for name, (rows, _, _) in EDGES.items()}


@pytest.mark.parametrize("temperature", EXTREMES)
@pytest.mark.parametrize("edge", EDGES)
def test_draws_at_every_edge(edge_models, edge, temperature):
    rows, theta, out = EDGES[edge]
    drawn = draw(edge_models[edge], theta, "bounded", 4_000, 64, temperature, exclude=out)
    assert not np.isin(drawn.ids, out).any() and not drawn.violations.any()
    exact = probabilities_of(rows, theta, temperature, out)
    p = softmax_p(drawn.ids, exact)
    assert p > 1e-7, f"seed 64: p = {p}, {drawn.label}"
    log_z = np.logaddexp.reduce(np.delete(logits_of(rows, theta, temperature), out))
    p = stats.kstest(drawn.values.reshape(-1), stats.gumbel_r(loc=log_z).cdf).pvalue
    assert p > 1e-7, f"seed 64: values, p = {p}, off by {drawn.values.mean() - log_z - np.euler_gamma}, {drawn.label}"


@pytest.mark.parametrize("temperature", EXTREMES)
@pytest.mark.parametrize("edge", EDGES)
def test_draws_without_replacement_at_every_edge(edge_models, edge, temperature):
    rows, theta, out = EDGES[edge]
    left, copies = len(rows) - len(out), 2_000
    size = min(2, left)
    at = edge_models[edge](np.tile(theta, (copies, 1)), temperature=temperature)
    drawn = at.sample_without_replacement(size, rng=65, exclude=out)
    assert not np.isin(drawn.ids, out).any()
    assert (drawn.ids[0] != drawn.ids[-1]).all() or size == 1
    exact, logits = probabilities_of(rows, theta, temperature, out), logits_of(rows, theta, temperature)
    p = softmax_p(drawn.ids[0], exact)
    assert p > 1e-7, f"seed 65: p = {p}, {drawn.label}"
    # The second, given the likeliest first.
    second = drawn.ids[-1, drawn.ids[0] == exact.argmax()]
    if size == 2 and len(second) > 100:
        p = softmax_p(second, probabilities_of(rows, theta, temperature, np.append(out, exact.argmax())))
        assert p > 1e-7, f"seed 65: second, p = {p}, {drawn.label}"
    p = stats.kstest(drawn.values[0], stats.gumbel_r(loc=np.logaddexp.reduce(np.delete(logits, out))).cdf).pvalue
    assert p > 1e-7, f"seed 65: values, p = {p}, {drawn.label}"
    np.testing.assert_allclose(drawn.logits, logits[drawn.ids], rtol=1e-5, atol=1e-5)
    assert (drawn.values[0] >= drawn.values[-1]).all() and (drawn.threshold < drawn.values[-1]).all()
    assert (np.isneginf(drawn.threshold) == (left == size)).all()


@pytest.mark.parametrize("temperature", EXTREMES)
@pytest.mark.parametrize("edge", EDGES)
def test_sums_at_every_edge(edge_models, edge, temperature):
    """Unbiased, of the error that was asked for, and of the error that they state."""
    rows, theta, out = EDGES[edge]
    copies, rel_err = 300, 0.02
    at = edge_models[edge](np.tile(theta, (copies, 1)), temperature=temperature)
    exact, logits = probabilities_of(rows, theta, temperature, out), logits_of(rows, theta, temperature)
    log_z = float(np.logaddexp.reduce(np.delete(logits, out)))
    entropy = -float(exact[exact > 0] @ np.log(exact[exact > 0]))
    rounding = 1e-6 * np.abs(logits).max() + 1e-6

    def check(estimate: lg.Estimate, truth: npt.ArrayLike, unit: float = 1.0) -> np.ndarray:
        error = (estimate.value - truth).reshape(copies, -1) / unit
        stated = estimate.stderr.reshape(copies, -1) / unit
        assert np.isfinite(error).all() and np.isfinite(stated).all()
        found, said = (np.sqrt(np.square(x).sum(axis=1).mean()) for x in (error, stated))
        assert found < 1.5 * said + rounding, f"{found}, but {said} is stated: {estimate.label}"
        return error

    relative = np.expm1(check(at.log_partition(rel_err=rel_err, rng=66, exclude=out), log_z))
    assert np.sqrt(np.mean(relative**2)) < 1.5 * rel_err, "seed 66"
    assert abs(relative.mean()) < rounding or mean_p(relative, 0.0) > 1e-6, f"seed 66: {relative.mean()}"
    longest = max(float(np.linalg.norm(rows, axis=1).max()), 1e-30)
    check(at.expectation(rel_err=rel_err, rng=67, exclude=out), exact @ rows.astype(np.float64), longest)
    check(at.entropy(rel_err=rel_err, rng=68, exclude=out), entropy)
    asked = np.tile(np.argsort(-exact)[: min(3, len(rows)), None], (1, copies))
    told = at.log_prob(asked, rel_err=rel_err, rng=69, exclude=out).value
    assert (told <= 0.0).all()
    left = ~np.isin(asked, out)
    assert np.isneginf(told[~left]).all()
    np.testing.assert_allclose(told[left], (logits[asked] - log_z)[left], atol=0.15 + rounding)


@pytest.mark.parametrize("edge", EDGES)
def test_no_thetas_at_every_edge(edge_models, edge):
    rows, theta, out = EDGES[edge]
    at = edge_models[edge](np.empty((0, len(theta))))
    assert at.sample(3, exclude=out).ids.shape == (3, 0) and at.sample(3).label == "exact"
    ordered = at.sample_without_replacement(1, exclude=out)
    assert ordered.ids.shape == ordered.logits.shape == (1, 0) and ordered.threshold.shape == ordered.labels.shape == (
        0,
    )
    for estimate in (at.log_partition(exclude=out), at.entropy(exclude=out)):
        assert estimate.value.shape == estimate.rows.shape == estimate.labels.shape == estimate.bound.shape == (0,)
    assert at.expectation(exclude=out).value.shape == (0, rows.shape[1])
    assert at.log_prob(np.empty((2, 0), np.int64)).value.shape == (2, 0)
