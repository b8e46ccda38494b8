"""Top-k, top-p and min-p against brute force: which rows are left, ties included, and what every verb says of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygumbel as lg
from statistics_helpers import PoorIndex, chi_square_p, partition_model

N, D, TEMPERATURE = 20_000, 8, 0.25
THETAS = (np.random.default_rng(5).normal(size=(6, D)) * [[0.3], [0.3], [0.5], [0.3], [1.0], [2.0]]).astype(np.float32)


def large_model() -> lg.LogLinear:
    return partition_model(N, D, varied=True, seed=4, cells=80)


def in_order(model: lg.LogLinear, theta, temperature, exclude=()) -> tuple[np.ndarray, np.ndarray]:
    """Ids and logits of all rows that are not excluded, best first, equal ones by smaller id."""
    ids = np.setdiff1d(np.arange(model.features.n), np.asarray(exclude, dtype=np.int64))
    logits = model.features.score(ids, np.asarray(theta, np.float32)).astype(np.float64) / temperature
    order = np.lexsort((ids, -logits))
    return ids[order], logits[order]


def left_by_hand(ids, logits, top_k=None, top_p=None, min_p=None) -> np.ndarray:
    """One rule after another, each on the softmax over what the one before left."""
    if top_k is not None:
        ids, logits = ids[:top_k], logits[:top_k]
    if top_p is not None:
        p = np.exp(logits - logits[0])
        p /= p.sum()
        before = np.cumsum(p) - p
        ids, logits = ids[before < top_p * (1 - 1e-6)], logits[before < top_p * (1 - 1e-6)]
    if min_p:
        ids = ids[logits >= logits[0] + np.log(min_p)]
    return ids


def left_in(dist: lg.Distribution, b: int | None = None) -> np.ndarray:
    """The rows that have a probability, best first."""
    n = dist._index.features.n
    ids = np.arange(n) if b is None else np.repeat(np.arange(n)[:, None], dist.batch_shape[0], axis=1)
    log_prob = dist.log_prob(ids).value if b is None else dist.log_prob(ids).value[:, b]
    kept = np.flatnonzero(log_prob > -np.inf)
    return kept[np.lexsort((kept, -log_prob[kept]))]


rules = st.fixed_dictionaries(
    {
        "top_k": st.none() | st.integers(1, 30),
        "top_p": st.none() | st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9, 1.0]),
        "min_p": st.none() | st.sampled_from([0.0, 0.05, 0.3, 0.5, 1.0]),
    }
).filter(lambda rules: set(rules.values()) != {None})


@settings(max_examples=120, deadline=None)
@given(st.data(), rules)
def test_what_is_left_is_what_brute_force_leaves_with_ties_of_every_kind(data, rules):
    n, d = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 3))
    whole = st.integers(-1, 1)
    rows = np.array(data.draw(st.lists(st.lists(whole, min_size=d, max_size=d), min_size=n, max_size=n)), np.float32)
    thetas = np.array(data.draw(st.lists(st.lists(whole, min_size=d, max_size=d), min_size=1, max_size=3)), np.float32)
    exclude = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))
    model = lg.LogLinear(lg.ExactIndex(rows))
    dist = model(thetas, temperature=0.5).truncated(**rules, exclude=exclude)
    for b, theta in enumerate(thetas):
        expected = left_by_hand(*in_order(model, theta, 0.5, exclude), **rules)
        assert left_in(dist, b).tolist() == expected.tolist()
        alone = model(theta, temperature=0.5).truncated(**rules, exclude=exclude)
        assert left_in(alone).tolist() == expected.tolist()
        assert alone.mode().ids == expected[0]
    assert dist.sample(3, rng=0).exact


RULES = [
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 15_000},
    {"min_p": 0.3},
    {"min_p": 1e-6},
    {"top_p": 0.02},
    {"top_p": 0.5},
    {"top_p": 0.97},
    {"top_k": 400, "top_p": 0.8},
    {"top_p": 0.6, "min_p": 0.2},
    {"top_k": 100, "top_p": 0.9, "min_p": 0.3},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_what_a_scan_finds_is_what_brute_force_leaves(rules):
    model = large_model()
    dist = model(THETAS, temperature=TEMPERATURE).truncated(**rules, exclude=[3, 4, 5], rng=0)
    for b, theta in enumerate(THETAS):
        expected = left_by_hand(*in_order(model, theta, TEMPERATURE, [3, 4, 5]), **rules)
        assert left_in(dist, b).tolist() == expected.tolist()


def changed_model() -> tuple[lg.LogLinear, dict[int, np.ndarray]]:
    """A model whose rows came, went and became others, some of the best ones among them; and its rows by id."""
    model, rng = large_model().snapshot(), np.random.default_rng(8)
    rows = dict(enumerate(model.features.gather(np.arange(N))))
    model.remove(np.arange(0, 900, 3))
    came = rng.normal(size=(400, D)).astype(np.float32)
    rows |= dict(zip(model.add(came).tolist(), came, strict=True))
    other = rng.normal(size=(50, D)).astype(np.float32)
    model.replace(np.arange(1, 151, 3), other)
    rows |= dict(zip(range(1, 151, 3), other, strict=True))
    for gone in range(0, 900, 3):
        del rows[gone]
    return model, rows


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_rows_that_changed_are_truncated_like_others(rules):
    model, rows = changed_model()
    ids = np.array(sorted(rows))
    fresh = lg.LogLinear(lg.ExactIndex(np.stack([rows[i] for i in ids.tolist()])))
    out = [1, 2, 20_001]
    dist = model(THETAS, temperature=TEMPERATURE).truncated(**rules, exclude=out, rng=0)
    for b, theta in enumerate(THETAS):
        expected = ids[left_by_hand(*in_order(fresh, theta, TEMPERATURE, np.searchsorted(ids, out)), **rules)]
        found = np.repeat(ids[:, None], len(THETAS), axis=1)
        log_prob = dist.log_prob(found).value[:, b]
        assert ids[np.isfinite(log_prob)].tolist() == sorted(expected.tolist())
        assert np.isclose(np.exp(log_prob).sum(), 1.0)
        drawn = dist.sample(200, rng=1)
        assert np.isin(drawn.ids[:, b], expected).all()


def test_verbs_of_rows_that_changed_and_were_truncated():
    model, rows = changed_model()
    theta = THETAS[2]
    dist = model(theta, temperature=TEMPERATURE).truncated(top_k=30)
    best = model(theta, temperature=TEMPERATURE).top_k(30)
    p = np.exp((best.scores - best.scores[0]).astype(np.float64) / TEMPERATURE)
    p /= p.sum()
    assert dist.top_k(30).ids.tolist() == best.ids.tolist() and max(best.ids) >= N
    assert np.allclose(dist.expectation().value, p @ np.stack([rows[i] for i in best.ids.tolist()]), atol=1e-5)
    assert np.isclose(dist.entropy().value, -(p * np.log(p)).sum(), rtol=1e-5)
    drawn = dist.sample(5_000, rng=3)
    counted = np.zeros(model.size)
    counted[best.ids] = p
    assert drawn.label == "bounded" and drawn.bound == best.bound
    assert chi_square_p(drawn.ids, counted) > 1e-3 and chi_square_p(drawn.ids, np.sign(counted)) < 1e-6
    assert dist.truncated(top_p=0.5).sample(1, rng=0).rows < N
    nothing_cut = model(theta, temperature=TEMPERATURE).truncated(top_p=1.0, exclude=best.ids[:2])
    assert not np.isin(nothing_cut.sample(500, rng=0).ids, best.ids[:2]).any()
    mask = np.zeros(model.size, dtype=bool)
    mask[:3] = True  # row 0 is not there any more
    assert not np.isin(model(theta).truncated(top_k=model.features.n - 2, exclude=mask).top_k(9).ids, [1, 2]).any()
    with pytest.raises(ValueError, match="no row has this id"):
        model(theta).truncated(top_k=5, exclude=[0])
    with pytest.raises(ValueError, match="removed"):
        dist.log_prob(0)


def test_a_small_set_is_found_without_scoring_all_rows():
    model = large_model()
    for rules in ({"top_k": 20}, {"min_p": 0.5}, {"top_p": 0.02}, {"top_p": 0.3, "rel_err": 0.02}):
        rows = model(THETAS[4], temperature=TEMPERATURE).truncated(**rules, rng=0).sample(1, rng=0).rows
        assert rows < N / 2, rules


def test_labels_claim_what_is_proved_and_no_more():
    at = large_model()(THETAS, temperature=TEMPERATURE)
    missed = float(at.top_k(50).bound[0])
    drawn = at.truncated(top_k=50).sample(1, rng=0)
    assert drawn.label == "bounded" and np.allclose(drawn.bound, missed)
    assert np.allclose(at.truncated(top_k=50).sample_without_replacement(3, rng=0).bound, 3 * missed)
    assert np.allclose(at.truncated(top_k=50).log_partition().bound, 2 * np.sqrt(missed))
    assert np.allclose(at.truncated(min_p=0.3).sample(1, rng=0).bound, 2 * missed)
    assert np.allclose(at.truncated(top_k=50, top_p=0.9).sample(1, rng=0).bound, 50 * missed)
    assert at.truncated(min_p=0.3).log_partition().label == "heuristic"
    assert at.truncated(min_p=0.3).sample_without_replacement(1, rng=0).label == "heuristic"
    twice = at.truncated(top_k=50)
    assert np.allclose(twice.truncated(top_k=20).sample(1, rng=0).bound, missed)
    assert np.allclose(twice.truncated(top_p=0.9).sample(1, rng=0).bound, 50 * missed)
    assert at.truncated(min_p=0.3).truncated(top_k=5).sample(1, rng=0).label == "heuristic"
    assert at.truncated(top_k=15_000).sample(1, rng=0).exact and at.truncated(top_k=15_000).entropy().exact
    poor = lg.LogLinear(PoorIndex(large_model().index))(THETAS[0], temperature=TEMPERATURE)
    assert poor.truncated(top_k=50).sample(1, rng=0).label == "heuristic"


def test_a_cut_within_the_error_of_z_is_made_by_an_exact_sum_and_one_beyond_it_is_not_called_proved():
    model, theta = large_model(), THETAS[1]
    _, logits = in_order(model, theta, TEMPERATURE)
    ends = np.cumsum(np.exp(logits - logits[0]))
    ends /= ends[-1]
    for sign in (-1, 1):  # just before, and just after, the mass of the first 40 rows
        dist = model(theta, temperature=TEMPERATURE).truncated(top_p=ends[39] * (1 + sign * 2e-5), rng=0)
        assert len(left_in(dist)) == (40 if sign < 0 else 41)
        assert dist.sample(1, rng=0).label == "bounded" and dist.sample(1, rng=0).rows > N
    alone = model(THETAS[5], temperature=TEMPERATURE).truncated(top_p=0.02, rng=0)
    assert len(left_in(alone)) == 1 and alone.sample(1, rng=0).label == "heuristic"


def test_with_an_error_of_z_the_distance_from_the_nucleus_is_within_its_bound_on_average():
    model = large_model()
    thetas = np.random.default_rng(6).normal(scale=0.7, size=(40, D)).astype(np.float32)
    distances, bounds = [], []
    for theta in thetas:
        ids, logits = in_order(model, theta, TEMPERATURE)
        right = left_by_hand(ids, logits, top_p=0.7)
        dist = model(theta, temperature=TEMPERATURE).truncated(top_p=0.7, rel_err=0.03, rng=1)
        found, drawn = left_in(dist), dist.sample(1, rng=0)
        assert drawn.label == ("bounded" if drawn.bound else "exact")
        shorter, longer = sorted((len(right), len(found)))
        weights = np.exp(logits[:longer] - logits[0])
        distances.append(weights[shorter:].sum() / weights.sum())
        bounds.append(float(drawn.bound))
    assert 0 < np.mean(distances) <= np.mean(bounds) < 0.2 and np.median(bounds) > 0.01


def test_every_verb_speaks_of_what_is_left():
    model = large_model()
    theta, out = THETAS[2], np.array([7, 8])
    dist = model(theta, temperature=TEMPERATURE).truncated(top_k=30)
    ids, logits = (x[:30] for x in in_order(model, theta, TEMPERATURE))
    p = np.exp(logits - logits[0])
    log_z, p = logits[0] + np.log(p.sum()), p / p.sum()
    assert np.isclose(dist.log_partition().value, log_z)
    assert np.isclose(dist.entropy().value, -(p * np.log(p)).sum())
    assert np.allclose(dist.expectation().value, p @ model.features.gather(ids), atol=1e-6)
    assert np.isclose(dist.expectation(lambda i: i % 5, rel_err=0.1).value, p @ (ids % 5))
    assert np.allclose(dist.log_prob(ids).value, np.log(p))
    assert dist.top_k(50).ids.tolist() == ids.tolist() and dist.mode().ids == ids[0]
    assert np.allclose(dist.top_k(5).scores, logits[:5] * TEMPERATURE)
    outside = np.setdiff1d(np.arange(40), ids)[0]
    assert dist.log_prob(outside).value == -np.inf and dist.logits(outside) == -np.inf
    slate = dist.log_prob_ordered(ids).value
    assert np.allclose(slate, np.log(p) - np.log(np.cumsum(p[::-1])[::-1]))
    assert sorted(dist.sample_without_replacement(30, rng=0).ids) == sorted(ids)
    without = dist.sample(400, rng=0, exclude=ids[:2])
    assert not np.isin(without.ids, ids[:2]).any() and np.isin(without.ids, ids).all()
    again = dist.truncated(min_p=0.5, exclude=out)
    assert left_in(again).tolist() == left_by_hand(ids, logits, min_p=0.5).tolist()
    assert "kept=30.0 rows a theta" in repr(dist)


def test_draws_follow_the_softmax_over_what_is_left_and_not_that_over_all():
    model = large_model()
    dist = model(np.tile(THETAS[3], (2, 1)), temperature=TEMPERATURE).truncated(top_p=0.3, rng=0)
    drawn = dist.sample((50, 100), rng=3).ids
    ids, logits = in_order(model, THETAS[3], TEMPERATURE)
    p = np.zeros(N)
    p[ids] = np.exp(logits - logits[0])
    kept = np.zeros(N)
    found = left_by_hand(ids, logits, top_p=0.3)
    kept[found] = p[found]
    assert drawn.shape == (50, 100, 2) and chi_square_p(drawn, kept) > 1e-3
    assert chi_square_p(drawn, p) < 1e-6
    first = dist.sample_without_replacement(2, rng=4).ids
    assert first.shape == (2, 2) and np.isin(first, found).all()


def test_rules_that_leave_out_nothing_change_nothing():
    at = large_model()(THETAS, temperature=TEMPERATURE)
    same = at.truncated(top_k=N, top_p=1.0, min_p=0.0)
    assert np.array_equal(same.sample(5, rng=1).ids, at.sample(5, rng=1).ids)
    out = at.top_k(3).ids[0]
    without = at.truncated(top_p=1.0, exclude=out)
    assert np.array_equal(without.sample(5, rng=1).ids, at.sample(5, rng=1, exclude=out).ids)
    assert not np.isin(without.top_k(3).ids, out).any()
    assert not np.isin(without.sample(50, rng=1, exclude=[1]).ids, [*out, 1]).any()


def test_no_thetas_give_no_draws():
    none = large_model()(np.empty((0, D), np.float32)).truncated(top_p=0.5, min_p=0.1)
    assert none.sample(3, rng=0).ids.shape == (3, 0) and none.log_partition().value.shape == (0,)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({}, "give at least one"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must be greater than 0"),
        ({"top_p": 1.5}, "top_p must be at most 1"),
        ({"top_p": "0.9"}, "top_p must be a number"),
        ({"min_p": -0.1}, "min_p must be at least 0"),
        ({"top_p": 0.9, "rel_err": 2.0}, "rel_err must be less than 1"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        large_model()(THETAS[0]).truncated(**rules)


def test_what_is_left_is_exact_and_takes_no_method():
    dist = large_model()(THETAS[0], temperature=TEMPERATURE).truncated(top_k=2)
    for ask in (dist.sample, dist.log_partition, dist.entropy):
        with pytest.raises(ValueError, match="leave out Bounded"):
            ask(method=lg.Bounded())
    with pytest.raises(ValueError, match="leaves no row"):
        dist.sample(1, exclude=dist.top_k(2).ids)
    with pytest.raises(ValueError, match="only 2 rows"):
        dist.sample_without_replacement(3)
