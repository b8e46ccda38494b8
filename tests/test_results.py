"""Results merge: the answer over two disjoint sets of rows is the answer over their union."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm

import lazygumbel as lg
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.results import Draws, Estimate, Label, Moments, OrderedDraws, TopK, weakest
from lazygumbel.rows.features import Features

fixed = settings(derandomize=True, deadline=None, max_examples=80)
batches = st.sampled_from([(), (1,), (3,)])
seeds = st.integers(0, 10**6)
Record = TypeVar("Record", TopK, Draws, OrderedDraws, Estimate, Moments)


def claim(label: Label, shape: tuple[int, ...] = ()) -> np.ndarray:
    """The same label for every theta."""
    return np.full(shape, label, dtype="U10")


def check_same(a: Any, b: Any, rtol: float = 0.0) -> None:
    """All fields equal: arrays by shape, kind and value, to `rtol` where they hold floats."""
    for field in fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, Moments):
            check_same(x, y, rtol)
        elif isinstance(x, np.ndarray | np.generic):
            assert x.shape == np.shape(y), field.name
            assert x.dtype == y.dtype, field.name
            if x.dtype.kind == "U":
                np.testing.assert_array_equal(x, y, err_msg=field.name)
            else:
                np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol, err_msg=field.name)
        else:
            assert x == y, field.name


def check_merges(parts: list[Record], whole: Record, *, rtol: float = 0.0) -> None:
    """Equality with the unsplit answer in every grouping and order."""

    def merged(records: list[Record]) -> Record:
        join: Callable[[Any, Any], Any] = lambda a, b: a + b if isinstance(a, Moments) else a.merge(b)  # noqa: E731
        return reduce(join, records)

    a, b, c = parts
    for found in (
        merged([a, b, c]),
        merged([a, merged([b, c])]),
        merged([c, b, a]),
        merged([b, merged([a, c])]),
    ):
        check_same(found, whole, rtol)


@st.composite
def splits(draw: st.DrawFn, least: int = 1, most: int = 10) -> list[np.ndarray]:
    """The ids 0 to n-1 in three disjoint sets, in no order."""
    sizes = [draw(st.integers(least, most)) for _ in range(3)]
    ids = np.random.default_rng(draw(seeds)).permutation(sum(sizes))
    return np.split(ids, np.cumsum(sizes)[:2])


# Top k


def exact_top(rows: np.ndarray, ids: np.ndarray, queries: np.ndarray, k: int) -> TopK:
    """The top k among the rows `ids`; these are sorted, so that ties go to the smaller id."""
    ids = np.sort(ids)
    found = ExactIndex.build(Features.of(rows[ids])).top_k(queries, k)
    return replace(found, ids=ids[found.ids])


@fixed
@given(splits(), batches, seeds, st.integers(1, 40), st.booleans())
def test_top_k_of_shards_is_top_k(shards: list[np.ndarray], batch: tuple[int, ...], seed: int, k: int, ties: bool):
    rng = np.random.default_rng(seed)
    n = sum(len(shard) for shard in shards)
    rows, queries = rng.standard_normal((n, 3)), rng.standard_normal((*batch, 3))
    if ties:
        rows, queries = np.rint(rows), np.rint(queries)
    whole = exact_top(rows, np.arange(n), queries, k)
    assert whole.ids.shape == (*batch, min(k, n))
    check_merges([exact_top(rows, shard, queries, k) for shard in shards], whole)
    nothing = TopK(
        np.zeros((*batch, 0), np.int64),
        np.zeros((*batch, 0), np.float32),
        np.zeros(batch, np.int64),
        exact=True,
        k=k,
    )
    check_same(whole.merge(nothing), whole)
    check_same(nothing.merge(whole), whole)


@fixed
@given(splits(), seeds, st.tuples(*[st.integers(1, 12)] * 3))
def test_top_k_of_different_k_holds_no_more_than_is_known(
    shards: list[np.ndarray], seed: int, ks: tuple[int, int, int]
):
    rng = np.random.default_rng(seed)
    rows, query = rng.standard_normal((30, 3)), rng.standard_normal(3)
    whole = exact_top(rows, np.concatenate(shards), query, min(ks))
    check_merges([exact_top(rows, s, query, k) for s, k in zip(shards, ks, strict=True)], whole)


def test_top_k_is_exact_only_when_both_are():
    a = TopK(np.array([1]), np.array([2.0], np.float32), np.array(5), exact=True, k=1)
    for b in (True, False):
        assert a.merge(replace(a, exact=b)).exact is b
        assert replace(a, exact=b).merge(a).exact is b
    assert not replace(a, exact=False).merge(replace(a, exact=False)).exact


# Draws

LABELS: tuple[Label, ...] = ("exact", "bounded", "calibrated", "heuristic")


def gumbel_max(perturbed: np.ndarray, ids: np.ndarray, rows: np.ndarray, label: Label = "exact") -> Draws:
    """The winners among `ids` of perturbed logits of shape sample_shape + batch + (n,)."""
    chosen = perturbed[..., ids]
    return Draws(ids[chosen.argmax(axis=-1)], chosen.max(axis=-1), rows, claim(label, rows.shape))


@fixed
@given(splits(), st.sampled_from([(), (1,), (4,), (2, 3)]), batches, seeds)
def test_draws_of_shards_are_draws(
    shards: list[np.ndarray], sample_shape: tuple[int, ...], batch: tuple[int, ...], seed: int
):
    rng = np.random.default_rng(seed)
    n = sum(len(shard) for shard in shards)
    perturbed = rng.standard_normal((*batch, n)) + rng.gumbel(size=(*sample_shape, *batch, n))
    counts = [np.full(batch, len(shard)) for shard in shards]
    whole = gumbel_max(perturbed, np.arange(n), np.full(batch, n))
    check_merges([gumbel_max(perturbed, s, c) for s, c in zip(shards, counts, strict=True)], whole)
    nothing = Draws(
        whole.ids * 0 - 1, np.full_like(whole.values, -np.inf), np.zeros(batch, np.int64), claim("exact", batch)
    )
    check_same(whole.merge(nothing), whole)
    check_same(nothing.merge(whole), whole)


def test_the_weaker_label_survives():
    draws = Draws(np.array([1]), np.array([0.5]), np.array(3), claim("exact"))
    for i, a in enumerate(LABELS):
        assert replace(draws, grounds=claim(a)).exact is (a == "exact")
        for j, b in enumerate(LABELS):
            weaker = LABELS[max(i, j)]
            assert weakest((a, b)) == weakest([b, a, "exact"]) == weaker
            assert replace(draws, grounds=claim(a)).merge(replace(draws, grounds=claim(b))).label == weaker
    assert weakest([]) == "exact"


RECORDS: dict[str, Callable[..., Any]] = {
    "Draws": lambda rows, **claims: Draws(
        np.zeros((2, *rows.shape), np.int64), np.zeros((2, *rows.shape)), rows, **claims
    ),
    "OrderedDraws": lambda rows, **claims: OrderedDraws(
        np.zeros((2, *rows.shape), np.int64), *np.zeros((2, 2, *rows.shape)), np.zeros(rows.shape), rows, **claims
    ),
    "Estimate": lambda rows, **claims: Estimate(
        np.zeros(rows.shape),
        np.zeros(rows.shape),
        rows,
        moments=Moments(np.zeros(rows.shape), np.ones(rows.shape), np.zeros(rows.shape)),
        **claims,
    ),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_labels_and_bounds_are_kept_theta_by_theta(kind: str):
    make, rows = RECORDS[kind], np.array([5, 6, 7])
    a = make(rows, grounds=np.array(["exact", "bounded", "heuristic"]), bound=np.array([0.0, 0.1, np.nan]))
    assert a.label == "heuristic" and not a.exact
    np.testing.assert_array_equal(a.bound, [0.0, 0.1, np.nan])
    b = make(rows, grounds=np.array(["bounded", "bounded", "exact"]), bound=np.array([0.2, 0.4, 0.0]))
    merged = a.merge(b)
    assert merged.labels.tolist() == ["bounded", "bounded", "heuristic"]
    np.testing.assert_array_equal(merged.bound, [0.2, 0.4, np.nan])
    np.testing.assert_array_equal(merged.rows, 2 * rows)
    check_same(b.merge(a), merged)
    # Without a bound none is known, but of what is exact.
    plain = make(rows, grounds=np.array(["bounded", "exact", "heuristic"]))
    np.testing.assert_array_equal(plain.bound, [np.nan, 0.0, np.nan])
    bare = make(np.array(4), grounds=claim("exact"))
    for record in (bare, bare.merge(bare)):
        assert record.labels.shape == () and record.bound == 0.0
        assert type(record.bound) is np.ndarray and type(record.labels) is np.ndarray
    assert make(np.empty(0, np.int64), grounds=claim("heuristic", (0,))).label == "exact"


def test_violations_add_up():
    make, rows, labels = RECORDS["Draws"], np.array([5, 6]), claim("bounded", (2,))
    assert make(rows, grounds=labels).violations.tolist() == [0, 0]
    a, b = (make(rows, grounds=labels, violations=np.array(found)) for found in ([1, 0], [2, 3]))
    assert a.merge(b).violations.tolist() == [3, 3]


def test_top_k_and_mode_are_labelled_theta_by_theta():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3_000, 8)).astype(np.float32)
    thetas = np.stack([rows[0], rows[1]])
    labels = {
        "exact": lg.ExactIndex(rows),
        "bounded": lg.PartitionIndex.build(rows, rng=0),
        "heuristic": lg.FaissIndex.build(rows, "HNSW8"),
    }
    for label, index in labels.items():
        for theta, batch in ((thetas, (2,)), (thetas[0], ())):
            dist = lg.LogLinear(index)(theta)
            for found in (dist.top_k(3), dist.mode(), dist.top_k(3, exclude=[5]), dist.mode(exclude=[5])):
                assert found.label == label and found.labels.shape == found.bound.shape == batch
                assert found.exact == (label == "exact")
    # A theta that took a scan has another label than its neighbour.
    lsh = lg.LSHIndex.build(np.concatenate([rows, 3 * rows[:1]]), tables=8, rng=0)
    far = rng.normal(size=8)
    found = lg.LogLinear(lsh)(np.stack([rows[0], far])).top_k(1)
    assert found.labels.tolist() == ["heuristic", "exact"] and found.label == "heuristic"


def test_bounds_of_top_k_are_those_of_the_weaker_part():
    a = TopK(np.array([[1], [2]]), np.ones((2, 1), np.float32), np.array([5, 5]), False, 1, np.array([0.0, 1e-4]))
    assert a.labels.tolist() == ["exact", "bounded"]
    unknown = replace(a, bound=np.array([np.nan, 0.0]))
    assert a.merge(unknown).labels.tolist() == ["heuristic", "bounded"]
    assert a.merge(replace(a, exact=True)).labels.tolist() == ["exact", "bounded"]


# Ordered draws


def ordered(logits: np.ndarray, gumbels: np.ndarray, ids: np.ndarray, k: int) -> OrderedDraws:
    """The k largest perturbed logits among `ids` (Gumbel top-k) and the next one as threshold."""
    chosen, perturbed = logits[..., ids], (logits + gumbels)[..., ids]
    order = np.argsort(-perturbed, axis=-1)
    values = np.take_along_axis(perturbed, order, -1)
    threshold = values[..., k] if len(ids) > k else np.full(logits.shape[:-1], -np.inf)
    return OrderedDraws(
        np.moveaxis(ids[order[..., :k]], -1, 0),
        np.moveaxis(np.take_along_axis(chosen, order, -1)[..., :k], -1, 0),
        np.moveaxis(values[..., :k], -1, 0),
        threshold,
        np.full(logits.shape[:-1], len(ids)),
        claim("exact", logits.shape[:-1]),
    )


@fixed
@given(splits(least=4), batches, st.integers(1, 4), seeds)
def test_ordered_draws_of_shards_are_ordered_draws(shards: list[np.ndarray], batch: tuple[int, ...], k: int, seed: int):
    rng = np.random.default_rng(seed)
    n = sum(len(shard) for shard in shards)
    logits = 3 * rng.standard_normal((*batch, n))
    gumbels = rng.gumbel(size=logits.shape)
    whole = ordered(logits, gumbels, np.arange(n), k)
    check_merges([ordered(logits, gumbels, shard, k) for shard in shards], whole)
    lowest = np.full((k, *batch), -np.inf)
    none = np.zeros(batch, np.int64)
    nothing = OrderedDraws(whole.ids * 0 - 1, lowest, lowest, np.full(batch, -np.inf), none, claim("exact", batch))
    check_same(whole.merge(nothing), whole)
    check_same(nothing.merge(whole), whole)


@fixed
@given(batches, st.integers(1, 6), st.integers(0, 3), seeds)
def test_ordered_draws_derive_what_the_formulas_say(batch: tuple[int, ...], k: int, extra: int, seed: int):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((*batch, k + extra)) + 500  # exp(logit) overflows a float32
    draws = ordered(logits, rng.gumbel(size=logits.shape), np.arange(k + extra), k)
    inclusion = 1 - np.exp(-np.exp(draws.logits - draws.threshold)) if extra else np.ones((k, *batch))
    assert draws.inclusion.shape == draws.weights.shape == (k, *batch)
    np.testing.assert_allclose(draws.inclusion, inclusion, rtol=1e-9)
    importance = np.exp(draws.logits - 500) / inclusion
    np.testing.assert_allclose(draws.weights, importance / importance.sum(0), rtol=1e-9)
    np.testing.assert_allclose(draws.weights.sum(0), 1, rtol=1e-12)
    np.testing.assert_allclose(draws.log_partition, 500 + np.log(importance.sum(0)), rtol=1e-12)
    if not extra:
        np.testing.assert_allclose(draws.log_partition, logsumexp(logits, axis=-1), rtol=1e-12)


def test_inclusion_keeps_its_digits_when_tiny_and_does_not_overflow_when_sure():
    logits, threshold = np.array([-30.0, 2000.0]), np.array(8.0)
    draws = OrderedDraws(np.array([0, 1]), logits, logits + 39, threshold, np.array(2), claim("exact"))
    np.testing.assert_allclose(draws.inclusion, [np.exp(-38), 1], rtol=1e-12)


@pytest.mark.parametrize("k", [1, 4, 11])
def test_the_partition_of_ordered_draws_is_unbiased(k: int):
    size, seed = 40_000, 17
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(12)
    logits = np.broadcast_to(logits - logsumexp(logits), (size, 12))  # Z = 1
    draws = ordered(logits, rng.gumbel(size=(size, 12)), np.arange(12), k)

    def z(estimates: np.ndarray) -> float:
        return float((estimates.mean() - 1) / (estimates.std(ddof=1) / np.sqrt(size)))

    assert abs(z(np.exp(draws.log_partition))) < 4, f"seed {seed}"
    assert abs(z(np.exp(draws.logits).sum(axis=0))) > 40, "without inclusion probabilities it must fail"


# Estimates


def sums(w: np.ndarray, rate: np.ndarray, f: np.ndarray, batch: tuple[int, ...], shift: np.ndarray) -> Moments:
    """Horvitz-Thompson sums of rows seen with known rates, in units of exp(shift)."""
    noise = w**2 * (1 - rate) / rate**2
    extra = (...,) + (None,) * (f.ndim - w.ndim)
    axis = len(batch)
    scale = np.exp(-shift)
    up = scale[extra]
    return Moments(
        shift,
        (w / rate).sum(axis) * scale,
        noise.sum(axis) * scale**2,
        ((w / rate)[extra] * f).sum(axis) * up,
        (noise[extra] * f**2).sum(axis) * up**2,
        (noise[extra] * f).sum(axis) * up**2,
    )


@fixed
@given(splits(), batches, st.sampled_from([(), (1,), (4,)]), seeds)
def test_estimates_of_shards_are_estimates(
    shards: list[np.ndarray], batch: tuple[int, ...], value: tuple[int, ...], seed: int
):
    rng = np.random.default_rng(seed)
    n = sum(len(shard) for shard in shards)
    w, rate = np.exp(2 * rng.standard_normal((*batch, n))), rng.uniform(0.1, 1, (*batch, n))
    f = rng.standard_normal((*batch, n, *value))

    def part(ids: np.ndarray) -> tuple[Moments, np.ndarray]:
        chosen = f[:, ids] if batch else f[ids]
        shift = np.asarray(rng.uniform(-5, 5, batch))
        return sums(w[..., ids], rate[..., ids], chosen, batch, shift), np.full(batch, len(ids))

    axis, extra = len(batch), (...,) + (None,) * len(value)
    total, noise = (w / rate).sum(axis), w**2 * (1 - rate) / rate**2
    mean = ((w / rate)[extra] * f).sum(axis) / total[extra]
    error = np.sqrt((noise[extra] * (f - np.expand_dims(mean, axis)) ** 2).sum(axis)) / total[extra]
    expected: list[tuple[Any, np.ndarray, np.ndarray]] = [
        (Estimate.of_log_partition, np.log(total), np.sqrt(noise.sum(axis)) / total),
        (Estimate.of_expectation, mean, error),
    ]
    parts = [part(shard) for shard in shards]
    a, b, c = (moments for moments, _ in parts)
    check_merges([a, b, c], a + b + c, rtol=1e-9)
    empty = np.zeros((*batch, *value))
    zero = Moments(np.full(batch, -np.inf), np.zeros(batch), np.zeros(batch), empty, empty, empty)
    claims = claim("bounded", batch), np.full(batch, 0.1)
    for make, truth, stderr in expected:
        whole = make(a + b + c, np.full(batch, n), *claims)
        np.testing.assert_allclose(whole.value, truth, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(whole.stderr, stderr, rtol=1e-6, atol=1e-9)
        assert np.shape(whole.value) == np.shape(whole.stderr) == truth.shape
        check_merges([make(*p, *claims) for p in parts], whole, rtol=1e-6)
        nothing = make(zero, np.zeros(batch, np.int64), claim("exact", batch), np.zeros(batch))
        assert np.isposinf(nothing.stderr).all() and not np.isfinite(nothing.value).any()
        check_same(whole.merge(nothing), whole)
        check_same(nothing.merge(whole), whole)
        check_same(nothing.merge(nothing), nothing)


def test_estimates_far_apart_neither_overflow_nor_vanish():
    def at(shift: float) -> Estimate:
        moments = Moments(np.array(shift), np.array(2.0), np.array(0.25))
        return Estimate.of_log_partition(moments, np.array(1), claim("calibrated"), np.array(0.1))

    for a, b in ((-5000.0, 5000.0), (5000.0, -5000.0)):
        merged = at(a).merge(at(b))
        assert merged.value == 5000 + np.log(2) and merged.stderr == 0.25
    low = at(-5000.0).merge(at(-5000.0))
    np.testing.assert_allclose([low.value, low.stderr], [-5000 + np.log(4), np.sqrt(0.5) / 4])
    assert low.rows == 2 and low.label == "calibrated" and not low.exact


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.999])
def test_the_interval_is_the_normal_one(level: float):
    value, stderr = np.array([[0.0, -3.5], [2.0, 7.0]]), np.array([[1.0, 0.2], [0.0, 3.0]])
    low, high = Estimate(value, stderr, np.array([1, 2]), claim("heuristic", (2,))).interval(level)
    width = norm.ppf(0.5 + level / 2) * stderr
    np.testing.assert_allclose(low, value - width)
    np.testing.assert_allclose(high, value + width)
    if level == 0.95:
        assert np.array_equal(Estimate(value, stderr, np.array(1), claim("exact")).interval()[1], high)


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, 95, float("nan")])
def test_a_level_outside_zero_and_one_is_refused(level: float):
    estimate = Estimate(np.array(0.0), np.array(1.0), np.array(1), claim("exact"))
    with pytest.raises(ValueError, match=f"level must lie strictly between 0 and 1, not {level}"):
        estimate.interval(level)


# What does not merge, and what does not change


def example(kind: str, batch: tuple[int, ...], width: int = 3) -> Any:
    ids, rows = np.zeros((*batch, width), np.int64), np.zeros(batch, np.int64)
    reals, one = ids.astype(np.float64), np.ones(batch)
    moments = Moments(one, one, one, reals, reals, reals)
    return {
        "TopK": TopK(ids, reals.astype(np.float32), rows, exact=True, k=width),
        "Draws": Draws(np.zeros((width, *batch), np.int64), np.zeros((width, *batch)), rows, claim("exact", batch)),
        "OrderedDraws": OrderedDraws(
            *(np.moveaxis(a, -1, 0) for a in (ids, reals, reals)), one, rows, claim("exact", batch)
        ),
        "Moments": moments,
        "log partition": Estimate.of_log_partition(moments, rows, claim("exact", batch), one),
        "expectation": Estimate.of_expectation(moments, rows, claim("exact", batch), one),
        "entropy": Estimate(one, one, rows, claim("exact", batch)),
    }[kind]


KINDS = ("TopK", "Draws", "OrderedDraws", "Moments", "log partition", "expectation")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("a", "b"), [((), (1,)), ((1,), ()), ((2,), (3,)), ((1,), (3,)), ((3,), ())])
def test_different_batches_are_refused(kind: str, a: tuple[int, ...], b: tuple[int, ...]):
    left, right = example(kind, a), example(kind, b)
    with pytest.raises(ValueError, match="do not merge"):
        left + right if kind == "Moments" else left.merge(right)


@pytest.mark.parametrize("kind", ["Draws", "OrderedDraws", "Moments", "expectation"])
@pytest.mark.parametrize("widths", [(2, 3), (1, 3), (3, 1)])
def test_different_widths_are_refused(kind: str, widths: tuple[int, int]):
    left, right = (example(kind, (2,), width) for width in widths)
    with pytest.raises(ValueError, match="do not merge"):
        left + right if kind == "Moments" else left.merge(right)


def test_draws_with_another_reading_of_the_same_shape_are_refused():
    ids, values = np.zeros((4, 3), np.int64), np.zeros((4, 3))
    batched, single = (Draws(ids, values, np.zeros(batch, np.int64), claim("exact", batch)) for batch in ((3,), ()))
    with pytest.raises(ValueError, match=r"batch shapes \(3,\) and \(\) do not merge"):
        batched.merge(single)


def test_different_kinds_of_estimates_are_refused():
    log_partition, expectation, entropy = (example(kind, ()) for kind in ("log partition", "expectation", "entropy"))
    for a, b in ((log_partition, expectation), (expectation, log_partition)):
        with pytest.raises(ValueError, match="a log partition and an expectation do not merge"):
            a.merge(b)
    for a, b in ((log_partition, entropy), (entropy, log_partition), (entropy, entropy)):
        with pytest.raises(ValueError, match="does not merge; merge its log_partition or expectation instead"):
            a.merge(b)
    with pytest.raises(ValueError, match="moments hold no weighted sum"):
        Estimate.of_expectation(log_partition.moments, np.array(1), claim("exact"), np.array(0.0))


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_frozen(kind: str):
    record = example(kind, ())
    for field in fields(record):
        with pytest.raises(FrozenInstanceError):
            setattr(record, field.name, None)
