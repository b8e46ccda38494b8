"""Gumbel top-k: ordered draws without replacement against Plackett-Luce, and the weights that come with them."""

from collections.abc import Callable
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import lazygumbel as lg
from lazygumbel.methods.draw import distinct_outside, uniform_outside
from statistics_helpers import (
    PoorIndex,
    chi_square_p,
    logits_of,
    make_rows,
    mean_p,
    partition_model,
    probabilities_of,
)

D, TEMPERATURE = 8, 0.25


@cache
def model_of(index: str, n: int) -> lg.LogLinear:
    if index == "partition":
        return partition_model(n, D, varied=True, seed=2, cells=max(2, n // 50))
    features = lg.Features.of(make_rows(n, D, varied=True, seed=2))
    return lg.LogLinear(lg.ExactIndex.build(features))


@cache
def theta_of(seed: int = 3) -> np.ndarray:
    theta = np.random.default_rng(seed).normal(size=D)
    return (theta / np.linalg.norm(theta)).astype(np.float32)


def exact_of(n: int, exclude: tuple[int, ...] = ()) -> np.ndarray:
    return probabilities_of(make_rows(n, D, varied=True, seed=2), theta_of(), TEMPERATURE, exclude)


def lazy(model: lg.LogLinear, n: int, size: int) -> tuple[lg.LogLinear, lg.LazyGumbel]:
    """Algorithm 1 with the gap that the audit found for the head that a draw of this size takes."""
    k = max(2 * (size + 1), int(np.ceil(np.sqrt(n * (size + 1)))))
    found = model.audit(theta_of(), temperature=TEMPERATURE, method=lg.LazyGumbel(k=k))
    assert (found.recall[0] == 1) == isinstance(model.index, lg.ExactIndex)
    return model, lg.LazyGumbel(k=k, gap=max(float(found.gap[0]), 0.0) * 1.001 + 1e-3)


SAMPLERS: dict[str, Callable[[int, int], tuple[lg.LogLinear, object]]] = {
    "bounded": lambda n, _: (model_of("partition", n), lg.Bounded()),
    "exhaustive": lambda n, _: (model_of("exact", n), lg.Exhaustive()),
    "lazy": lambda n, size: lazy(model_of("exact", n), n, size),
    "lazy, poor head": lambda n, size: lazy(lg.LogLinear(PoorIndex(model_of("exact", n).index)), n, size),
}


def draw(sampler: str, n: int, size: int, rounds: int, seed: int, **options) -> lg.OrderedDraws:
    """`rounds` independent rounds: the same theta as often, in one batch."""
    model, method = SAMPLERS[sampler](n, size)
    thetas = np.tile(theta_of(), (rounds, 1))
    drawn = model(thetas, temperature=TEMPERATURE).sample_without_replacement(size, method=method, rng=seed, **options)
    if sampler == "bounded" and n > 1_000:
        assert (drawn.labels == "bounded").all() and drawn.rows.max() < n, "a dense pass was made: this tests nothing"
    return drawn


def pair_probabilities(p: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Plackett-Luce probabilities of the first two draws, summed over groups of rows, flat."""
    pairs = p[:, None] * p[None, :] / (1 - p[:, None])
    np.fill_diagonal(pairs, 0.0)
    groups = group.max() + 1
    return np.bincount((group[:, None] * groups + group[None, :]).ravel(), pairs.ravel(), groups**2)


@pytest.mark.parametrize("n", [12, 40, 2000])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_order_is_plackett_luce(sampler, n):
    if n == 12 and sampler == "lazy, poor head":
        n = 24  # too few rows for a head that leaves any out
    drawn = draw(sampler, n, 2, 20_000 if n < 100 else 8_000, seed=31)
    p = exact_of(n)
    first = chi_square_p(drawn.ids[0], p)
    # For many rows, pairs are counted by groups of rows of equal total probability.
    by_size = np.argsort(p)
    group = np.arange(n)
    if n > 100:
        group[by_size] = np.minimum(np.cumsum(p[by_size]) * 16, 15).astype(np.int64)
    groups = int(group.max()) + 1
    pairs = group[drawn.ids[0]] * groups + group[drawn.ids[1]]
    both = chi_square_p(pairs, pair_probabilities(p, group))
    assert min(first, both) > 1e-6, f"seed 31: p = {first}, {both}"
    independent = chi_square_p(pairs, np.outer(*2 * [np.bincount(group, p)]).ravel())
    assert n > 100 or independent < 1e-10, f"draws with replacement would pass: p = {independent}"


def test_many_distinct_rows_over_many_chunks():
    """Each of the 200 first is a draw from those that are left: by ranks that are uniform if it is."""
    n, size, copies = 20_000, 200, 60
    drawn, p = draw("bounded", n, size, copies, seed=47), exact_of(n)
    order = np.argsort(-p)
    ranks, wrong = [], []
    for ids in drawn.ids.T:
        left = p[order].copy()
        place = np.argsort(order)[ids]
        for step, at in enumerate(place):
            low, width = left[:at].sum(), left[at]
            ranks.append((low + width * ((step * 0.618034) % 1)) / left.sum())
            wrong.append(p[order][:at].sum() + width * ((step * 0.618034) % 1))
            left[at] = 0.0
    bins = [np.minimum((np.array(r) * 40).astype(np.int64), 39) for r in (ranks, wrong)]
    found, control = (chi_square_p(b, np.full(40, 1 / 40)) for b in bins)
    assert found > 1e-6, f"seed 47: p = {found}"
    assert control < 1e-6, f"draws with replacement would pass: p = {control}"


@pytest.mark.parametrize("n", [24, 40])
def test_small_cases_take_the_lazy_path(n):
    """Were the head more than half of the rows, Exhaustive would have answered."""
    assert draw("lazy", n, 2, 50, seed=32).rows.min() < draw("lazy", n, 2, 50, seed=32).rows.max()


def test_a_missed_head_is_noticed():
    """Control: over an index that leaves out half the best rows, a gap of zero gives the wrong order."""
    n, rounds, temperature = 2000, 8_000, 0.1
    thetas = np.tile(theta_of(), (rounds, 1))
    p = probabilities_of(make_rows(n, D, varied=True, seed=2), theta_of(), temperature)
    right, wrong = model_of("exact", n), lg.LogLinear(PoorIndex(model_of("exact", n).index))
    drawn = right(thetas, temperature=temperature).sample_without_replacement(2, method=lg.LazyGumbel(), rng=33)
    assert chi_square_p(drawn.ids[0], p) > 1e-6, "seed 33"
    assert drawn.label == "exact"
    drawn = wrong(thetas, temperature=temperature).sample_without_replacement(2, method=lg.LazyGumbel(), rng=33)
    assert chi_square_p(drawn.ids[0], p) < 1e-10
    assert drawn.label == "heuristic"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_three_in_order_are_plackett_luce(sampler):
    n, rounds = 40, 20_000
    drawn, p = draw(sampler, n, 3, rounds, seed=34), exact_of(n)
    i, j, m = np.ix_(*3 * [np.arange(n)])
    distinct = (i != j) & (j != m) & (i != m)
    ordered = np.where(distinct, p[i] * p[j] / (1 - p[i]) * p[m] / np.where(distinct, 1 - p[i] - p[j], 1.0), 0.0)
    assert ordered.sum() == pytest.approx(1)
    group = np.full(n, 7)  # the seven likeliest rows each, and the others together
    group[np.argsort(-p)[:7]] = np.arange(7)

    def coded(*ids: np.ndarray) -> np.ndarray:
        return (group[ids[0]] * 8 + group[ids[1]]) * 8 + group[ids[2]]

    expected = np.bincount(coded(i, j, m).ravel(), ordered.ravel(), 8**3)
    found = chi_square_p(coded(*drawn.ids), expected)
    assert found > 1e-6, f"seed 34: p = {found}"
    replaced = np.bincount(coded(i, j, m).ravel(), (p[i] * p[j] * p[m]).ravel(), 8**3)
    assert chi_square_p(coded(*drawn.ids), replaced) < 1e-10


@pytest.mark.parametrize(("n", "size"), [(2000, 1), (2000, 50), (20_000, 1000), (40, 39), (40, 40)])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_are_distinct_ordered_and_above_the_threshold(sampler, n, size):
    lazily = size >= n // 2 and sampler.startswith("lazy")  # there is no such head to be audited
    model, method = (model_of("exact", n), lg.LazyGumbel()) if lazily else SAMPLERS[sampler](n, size)
    drawn = model(theta_of(), temperature=TEMPERATURE).sample_without_replacement(size, method=method, rng=35)
    assert drawn.ids.shape == drawn.values.shape == drawn.logits.shape == (size,)
    assert drawn.threshold.shape == drawn.rows.shape == ()
    assert len(np.unique(drawn.ids)) == size
    assert (np.diff(drawn.values) < 0).all()
    assert drawn.threshold < drawn.values[-1]
    assert (drawn.threshold == -np.inf) == (size == n)
    exact = logits_of(make_rows(n, D, varied=True, seed=2), theta_of(), TEMPERATURE)
    np.testing.assert_allclose(drawn.logits, exact[drawn.ids], atol=1e-5)
    assert ((drawn.inclusion > 0) & (drawn.inclusion <= 1)).all()
    assert drawn.weights.sum() == pytest.approx(1)
    tolerance = {n: 1e-5}.get(size, 8 / np.sqrt(size + 1))
    assert drawn.log_partition == pytest.approx(np.logaddexp.reduce(exact), abs=tolerance)


def test_many_draws_stay_lazy():
    at = model_of("partition", 20_000)(theta_of(), temperature=TEMPERATURE)
    drawn = at.sample_without_replacement(1000, rng=35)
    assert drawn.label == "bounded" and drawn.bound == pytest.approx(0.1) and drawn.rows < 5_000


@pytest.mark.parametrize("size", [1, 10, 200])
def test_the_threshold_is_the_next_value(size):
    """With the same noise, the one left out of K draws is the last of K + 1."""
    at = model_of("exact", 2000)(np.tile(theta_of(), (20, 1)), temperature=TEMPERATURE)
    fewer = at.sample_without_replacement(size, method=lg.Exhaustive(), rng=36)
    more = at.sample_without_replacement(size + 1, method=lg.Exhaustive(), rng=36)
    assert np.array_equal(fewer.threshold, more.values[-1])
    assert np.array_equal(fewer.ids, more.ids[:-1])


def test_the_first_value_is_gumbel_and_thresholds_agree():
    n, size, rounds = 2000, 5, 4_000
    drawn = {sampler: draw(sampler, n, size, rounds, seed=37) for sampler in SAMPLERS}
    log_z = np.logaddexp.reduce(logits_of(make_rows(n, D, varied=True, seed=2), theta_of(), TEMPERATURE))
    for sampler, found in drawn.items():
        first = stats.kstest(found.values[0], stats.gumbel_r(loc=log_z).cdf).pvalue
        assert first > 1e-6, f"seed 37, {sampler}: p = {first}"
        same = stats.ks_2samp(found.threshold, drawn["exhaustive"].threshold).pvalue
        assert same > 1e-6, f"seed 37, {sampler}: p = {same}"
        control = stats.ks_2samp(found.threshold, drawn["exhaustive"].values[-1]).pvalue
        assert control < 1e-10, f"{sampler}: the threshold could be the last value: p = {control}"


@pytest.mark.parametrize("size", [5, 40])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_inclusion_weights_are_unbiased(sampler, size):
    n, rounds = 2000, 3_000
    drawn = draw(sampler, n, size, rounds, seed=38)
    exact = logits_of(make_rows(n, D, varied=True, seed=2), theta_of(), TEMPERATURE)
    log_z, p = np.logaddexp.reduce(exact), exact_of(n)
    ratio = np.exp(drawn.log_partition - log_z)
    found = mean_p(ratio, 1.0)
    assert found > 1e-6, f"seed 38: Z is off by {ratio.mean() - 1}, p = {found}"
    f = np.sin(np.arange(n)) + (np.arange(n) % 3 == 0)
    terms = np.exp(drawn.logits - log_z) / drawn.inclusion * f[drawn.ids]
    found = mean_p(terms.sum(axis=0), float(p @ f))
    assert found > 1e-6, f"seed 38: E[f] is off, p = {found}"
    # Control: the last value in place of the threshold, and no inclusion probability at all.
    wrong = -np.expm1(-np.exp(drawn.logits - drawn.values[-1]))
    assert mean_p((np.exp(drawn.logits - log_z) / wrong).sum(axis=0), 1.0) < 1e-10
    assert mean_p((np.exp(drawn.logits - log_z) * n / size).sum(axis=0), 1.0) < 1e-10


def test_self_normalised_weights_estimate_an_expectation():
    n, size, rounds = 2000, 200, 300
    drawn = draw("lazy", n, size, rounds, seed=39)
    f = np.cos(np.arange(n))
    found = (drawn.weights * f[drawn.ids]).sum(axis=0)
    assert found.mean() == pytest.approx(float(exact_of(n) @ f), abs=5 * found.std() / np.sqrt(rounds) + 1 / size)


@pytest.mark.parametrize("form", ["ids", "mask", "list"])
@pytest.mark.parametrize("sampler", ["bounded", "exhaustive", "lazy"])
def test_excluded_rows_are_left_out(sampler, form):
    n, rounds = 40, 10_000
    out = np.argsort(-exact_of(n))[[0, 1, 2, 5, 8, 13, 30]]
    mask = np.isin(np.arange(n), out)
    exclude = {"ids": out, "mask": mask, "list": [out] * rounds}[form]
    drawn = draw(sampler, n, 2, rounds, seed=40, exclude=exclude)
    assert not np.isin(drawn.ids, out).any()
    p = exact_of(n, tuple(out))
    pairs = chi_square_p(drawn.ids[0] * n + drawn.ids[1], pair_probabilities(p, np.arange(n)))
    assert pairs > 1e-6, f"seed 40: p = {pairs}"
    wrong = chi_square_p(drawn.ids[0], exact_of(n))
    assert wrong < 1e-10


@pytest.mark.parametrize("size", [1, 9, 10])
@pytest.mark.parametrize("index", ["exact", "partition"])
def test_all_that_an_exclusion_leaves_can_be_drawn(index, size):
    """The ten worst rows of 2,000: the head takes a search of everything, and there is no tail."""
    n = 2000
    worst = np.argsort(exact_of(n))[:10]
    exclude = np.setdiff1d(np.arange(n), worst)
    at = model_of(index, n)(theta_of(), temperature=TEMPERATURE)
    methods = [lg.LazyGumbel(), lg.LazyGumbel(gap=3.0), lg.Exhaustive()]
    for method in methods if index == "exact" else [*methods, lg.Bounded()]:
        drawn = at.sample_without_replacement(size, method=method, rng=41, exclude=exclude)
        assert len(np.unique(drawn.ids)) == size and np.isin(drawn.ids, worst).all()
        assert drawn.exact or method == lg.Bounded()
        assert (drawn.threshold == -np.inf) == (size == 10)
    with pytest.raises(ValueError, match="size is 11, but only 10"):
        at.sample_without_replacement(11, method=lg.LazyGumbel(), rng=41, exclude=exclude)


@pytest.mark.parametrize(("index", "method"), [("exact", lg.LazyGumbel()), ("partition", lg.Bounded())])
def test_each_theta_has_its_own_exclusions(index, method):
    n = 40
    thetas = np.stack([theta_of(3), theta_of(4), theta_of(3)])
    at = model_of(index, n)(thetas, temperature=TEMPERATURE)
    drawn = at.sample_without_replacement(15, method=method, rng=42, exclude=[np.arange(20), [], [39]])
    assert drawn.ids.shape == (15, 3) and drawn.threshold.shape == (3,)
    assert drawn.ids[:, 0].min() >= 20
    assert 39 not in drawn.ids[:, 2]


def test_the_thetas_of_a_batch_are_drawn_as_if_alone():
    model, rng = model_of("partition", 2000), np.random.default_rng(45)
    thetas = np.stack([theta_of(3), 30 * theta_of(4), np.zeros(D, np.float32), theta_of(3)])
    exclude = [[], [1, 2], np.arange(1_900), []]
    together = model(thetas).sample_without_replacement(5, rng=np.random.default_rng(45), exclude=exclude)
    for b, theta in enumerate(thetas):
        one = model(theta).sample_without_replacement(5, rng=rng, exclude=exclude[b])
        for name in ("ids", "logits", "values", "threshold", "rows", "labels", "bound"):
            assert np.array_equal(getattr(together, name)[..., b], getattr(one, name)), (b, name)
    assert not np.array_equal(together.values[:, 0], together.values[:, 3])


@pytest.mark.parametrize(("size", "bound"), [(1, 1e-4), (5, 5e-4)])
def test_what_is_claimed(size, bound):
    at = model_of("partition", 2000)(np.stack([theta_of(3), theta_of(4)]), temperature=TEMPERATURE)
    drawn = at.sample_without_replacement(size, rng=46)
    assert drawn.labels.tolist() == ["bounded"] * 2 and drawn.label == "bounded" and not drawn.exact
    np.testing.assert_allclose(drawn.bound, bound)
    assert (drawn.rows < 2_000).all()
    assert model_of("exact", 2000)(theta_of(3)).sample_without_replacement(size, rng=46).exact
    empty = model_of("partition", 2000)(np.empty((0, D))).sample_without_replacement(size)
    assert empty.ids.shape == (size, 0) and empty.labels.shape == (0,)


def test_distinct_rows_are_uniform_sets():
    """Each set of c rows outside the taken ones is equally likely, whatever c."""
    rng, taken, n = np.random.default_rng(43), np.array([0, 3, 4, 9]), 10
    outside = np.setdiff1d(np.arange(n), taken)
    for count in range(len(outside) + 1):
        rounds = 20_000
        ids, owner = distinct_outside(rng, n, taken, np.full(rounds, count))
        assert np.array_equal(owner, np.repeat(np.arange(rounds), count))
        codes = np.bincount(owner, 2.0**ids, rounds).astype(np.int64)
        sets = [sum(2**i for i in chosen) for chosen in combinations(outside.tolist(), count)]
        p = np.zeros(2**n)
        p[sets] = 1 / len(sets)
        if 0 < count < len(outside):
            assert chi_square_p(codes, p) > 1e-6, f"seed 43, {count} rows"
            assert chi_square_p(np.where(codes == sets[0], sets[1], codes), p) < 1e-10  # control
        else:
            assert (codes == sets[0]).all()
    drawn = uniform_outside(rng, n, taken, 20_000)
    assert chi_square_p(drawn, np.isin(np.arange(n), taken, invert=True) / 6) > 1e-6, "seed 43"
    mixed, owner = distinct_outside(rng, n, taken, np.array([0, 6, 2, 0, 1]))
    assert np.bincount(owner, minlength=5).tolist() == [0, 6, 2, 0, 1]
    assert np.array_equal(np.sort(mixed[owner == 1]), outside)


# Probabilities of slates


@pytest.mark.parametrize("index", ["exact", "partition"])
def test_the_probability_of_a_slate_is_plackett_luce(index):
    n = 2000
    thetas = np.stack([theta_of(3), theta_of(4), theta_of(5)])
    at = model_of(index, n)(thetas, temperature=TEMPERATURE)
    for exclude in (None, [[3, 4], [], np.arange(1_000)]):
        slate = at.sample_without_replacement(6, rng=48, exclude=exclude).ids
        found = at.log_prob_ordered(slate, rng=49, exclude=exclude)
        assert found.value.shape == found.stderr.shape == (6, 3) and found.rows.shape == found.labels.shape == (3,)
        rows = make_rows(n, D, varied=True, seed=2)
        for b, theta in enumerate(thetas):
            out = [] if exclude is None else exclude[b]
            p = probabilities_of(rows, theta, TEMPERATURE, tuple(out))[slate[:, b]]
            exact = np.log(p / (1 - np.cumsum(p) + p))
            assert (np.abs(found.value[:, b] - exact) <= 5 * found.stderr[:, b] + 1e-5).all()
            alone = model_of("exact", n)(theta, temperature=TEMPERATURE).log_prob_ordered(slate[:, b], exclude=out)
            np.testing.assert_allclose(alone.value, exact, atol=1e-5)
            assert alone.exact and (alone.stderr == 0).all()
        assert (found.label == "exact") == (index == "exact")
    first = at.log_prob(slate[0], rng=49, exclude=exclude)
    assert (np.abs(first.value - found.value[0]) <= 5 * (first.stderr + found.stderr[0]) + 1e-5).all()


def test_the_mass_that_is_left_is_never_negative():
    """A slate that holds nearly all of the mass: by Z less the rows before, the last ones would have none."""
    rows = np.array([[50.0], [30.0], [10.0], *np.linspace(-1, 1, 400)[:, None]])
    at = lg.LogLinear(lg.PartitionIndex.build(rows, cells=3, rng=0))(np.ones(1))
    found = at.log_prob_ordered([0, 1, 2, 5], rng=0)
    assert np.isfinite(found.value).all() and (found.value <= 0).all()
    assert found.value[2] == pytest.approx(-np.log1p(np.exp(rows[3:, 0] - 10).sum()), abs=0.05)
    by_hand = np.exp(at.log_partition(rng=0).value) - np.cumsum(np.exp([50.0, 30.0, 10.0]))
    assert by_hand[-1] <= 0 or by_hand[-1] > 1e6  # control: rounding alone makes nonsense of it


def test_a_slate_of_all_rows_and_slates_that_are_none():
    model = model_of("exact", 12)
    at = model(np.stack([theta_of(3), theta_of(4)]), temperature=TEMPERATURE)
    slate = at.sample_without_replacement(12, rng=0).ids
    found = at.log_prob_ordered(slate)
    np.testing.assert_allclose(found.value[-1], 0.0, atol=1e-12)
    assert found.exact
    assert np.isneginf(at.log_prob_ordered(slate[:3], exclude=slate[1, :1]).value[1, 0])
    with pytest.raises(ValueError, match=r"ids holds a row twice in the slate of theta 1"):
        at.log_prob_ordered([[0, 1], [1, 1]])
    for wrong in (slate[0], slate.T, slate[None]):
        with pytest.raises(ValueError, match=r"ids (has shape|must have shape)"):
            at.log_prob_ordered(wrong)


def test_draws_with_and_without_replacement_have_one_shape():
    """What either draws, `log_prob` takes; turned around it is refused unless there are as many draws as thetas."""
    at = model_of("exact", 40)(np.stack([theta_of(3), 9 * theta_of(4), theta_of(5)]), temperature=TEMPERATURE)
    for drawn in (at.sample(7, rng=1), at.sample_without_replacement(7, rng=1)):
        assert drawn.ids.shape == at.log_prob(drawn.ids).value.shape == (7, 3)
        with pytest.raises(ValueError, match=r"it must end in the batch shape \(3,\)"):
            at.log_prob(drawn.ids.T)
    ordered = at.sample_without_replacement(3, rng=1)
    log_z = at.log_partition().value
    np.testing.assert_allclose(at.log_prob(ordered.ids).value, np.minimum(ordered.logits - log_z, 0), atol=1e-5)


def test_sets_are_taken_as_exclusions():
    thetas = np.stack([theta_of(3), theta_of(4)])
    one, two = model_of("exact", 40)(thetas[0]), model_of("exact", 40)(thetas)
    for at, exclude, same in (
        (one, {3, 5}, [3, 5]),
        (two, frozenset({3, 5}), [3, 5]),
        (two, [{3, 5}, set()], [[3, 5], []]),
        (two, [{3}, np.array([5])], [[3], [5]]),
    ):
        np.testing.assert_array_equal(at.sample(9, rng=0, exclude=exclude).ids, at.sample(9, rng=0, exclude=same).ids)
    with pytest.raises(ValueError, match="exclude"):
        one.sample(exclude={"a"})
