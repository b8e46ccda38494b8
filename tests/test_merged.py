"""A distribution over several disjoint sets of rows is the distribution over their union."""

import numpy as np
import pytest
from scipy.stats import chisquare

import lazygumbel as lg
from distribution_helpers import Directory
from lazygumbel.distribution import Distribution
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.merged import MergedDistribution

N, D = 900, 6


class Rows:
    """A part: some rows of a matrix under an index of their own."""

    def __init__(self, phi, ids, index=ExactIndex):
        self.ids = np.asarray(ids, dtype=np.int64)
        self.count = len(self.ids)
        self._index = index.build(lg.Features.of(phi[self.ids]), **({} if index is ExactIndex else {"rng": 0}))

    def __call__(self, theta, *, temperature):
        return Distribution(self._index, theta, temperature)


@pytest.fixture(scope="module")
def phi():
    return np.random.default_rng(1).standard_normal((N, D)).astype(np.float32)


@pytest.fixture(scope="module", params=[ExactIndex, PartitionIndex])
def parts(request, phi):
    shuffled = np.random.default_rng(2).permutation(N)
    # A part of two rows: smaller than most k.
    return [Rows(phi, shuffled[:500], request.param), Rows(phi, shuffled[500:502]), Rows(phi, shuffled[502:])]


def pair(phi, parts, theta, temperature=1.0):
    whole = lg.LogLinear(ExactIndex.build(lg.Features.of(phi)))(theta, temperature=temperature)
    return MergedDistribution(parts, Directory(parts), theta, temperature, d=D), whole


def logits_of(phi, theta):
    return phi.astype(np.float64) @ np.asarray(theta, dtype=np.float64).T


THETAS = np.random.default_rng(3).standard_normal((3, D))


@pytest.mark.parametrize("theta", [THETAS[0], THETAS, THETAS[:0]], ids=["one", "batch", "none"])
def test_values_and_shapes_are_those_of_the_unsplit_model(phi, parts, theta):
    merged, whole = pair(phi, parts, theta)
    tight = {"rel_err": 0.003} if isinstance(parts[0]._index, PartitionIndex) else {}
    for name, give in (("log_partition", ()), ("expectation", ()), ("entropy", ()), ("expectation", (np.cos,))):
        ours, theirs = getattr(merged, name)(*give, rng=0, **tight), getattr(whole, name)(*give)
        assert ours.value.shape == theirs.value.shape and ours.rows.shape == theirs.rows.shape
        assert np.all(np.abs(ours.value - theirs.value) <= 6 * ours.stderr + 1e-5)
    ids = np.random.default_rng(0).integers(N, size=(7, *whole.batch_shape))
    ours, theirs = merged.log_prob(ids, rng=0, **tight), whole.log_prob(ids)
    assert ours.value.shape == theirs.value.shape
    assert np.all(np.abs(ours.value - theirs.value) <= 6 * ours.stderr + 1e-5)


@pytest.mark.parametrize("theta", [THETAS[0], THETAS], ids=["one", "batch"])
@pytest.mark.parametrize("k", [1, 2, 17, N + 5])
def test_top_k_and_mode_are_those_of_the_unsplit_model(phi, parts, theta, k):
    merged, whole = pair(phi, parts, theta)
    assert np.array_equal(merged.top_k(k).ids, whole.top_k(k).ids)
    assert merged.top_k(k).k == k
    assert np.array_equal(merged.mode().ids, whole.mode().ids)
    assert merged.mode().rows.shape == merged.mode().bound.shape == whole.mode().bound.shape


def test_draws_follow_the_softmax_of_all_rows(phi, parts):
    theta = np.stack([THETAS[0], -THETAS[1]])
    merged, _ = pair(phi, parts, theta)
    draws = merged.sample((2, 10_000), rng=4)
    assert draws.ids.shape == (2, 10_000, 2)
    for b in range(2):
        logits = logits_of(phi, theta[b])
        expected = np.exp(logits - logits.max())
        expected *= draws.ids[..., b].size / expected.sum()
        counts = np.bincount(draws.ids[..., b].reshape(-1), minlength=N)
        order = np.argsort(expected)
        bins = np.unique((np.cumsum(expected[order]) / 25).astype(int), return_inverse=True)[1]
        ours, theirs = np.bincount(bins, counts[order]), np.bincount(bins, expected[order])
        assert chisquare(ours, theirs * ours.sum() / theirs.sum()).pvalue > 1e-3
        # The control: draws of the other theta do not pass.
        wrong = np.bincount(bins, np.bincount(draws.ids[..., 1 - b].reshape(-1), minlength=N)[order])
        assert chisquare(wrong, theirs * wrong.sum() / theirs.sum()).pvalue < 1e-6


def test_draws_without_replacement_are_distinct_and_first_ones_follow_the_softmax(phi, parts):
    merged, whole = pair(phi, parts, np.tile(5 * THETAS[0], (4000, 1)))
    drawn = merged.sample_without_replacement(3, rng=5)
    alone = whole.sample_without_replacement(3, rng=6)
    assert drawn.ids.shape == alone.ids.shape
    assert (np.diff(np.sort(drawn.ids, axis=0), axis=0) > 0).all()
    best = int(whole.mode().ids[0])
    share, expected = (drawn.ids == best).sum(), (alone.ids == best).sum()
    assert abs(share - expected) < 5 * np.sqrt(2000)
    assert np.isfinite(drawn.threshold).all()


def test_all_rows_can_be_drawn_without_replacement(phi, parts):
    merged, _ = pair(phi, parts, THETAS[0])
    drawn = merged.sample_without_replacement(N, rng=0)
    assert np.array_equal(np.sort(drawn.ids), np.arange(N)) and np.isneginf(drawn.threshold)
    with pytest.raises(ValueError, match="only 900 rows"):
        merged.sample_without_replacement(N + 1)


def test_sets_of_ids_are_excluded_like_lists(phi, parts):
    merged, _ = pair(phi, parts, THETAS)
    best = merged.mode().ids
    for given, same in (({*best.tolist()}, best), ([{i} for i in best.tolist()], best[:, None])):
        found = merged.top_k(3, exclude=given).ids
        assert np.array_equal(found, merged.top_k(3, exclude=list(same)).ids)
        assert not (found == best[:, None]).any()


@pytest.mark.parametrize("per_theta", [False, True])
def test_exclusions_reach_every_part_even_when_they_leave_nothing_of_it(phi, parts, per_theta):
    merged, whole = pair(phi, parts, THETAS)
    few = parts[1].ids
    # Theta 0 loses all of the second part, theta 1 half of it, theta 2 nothing of it.
    exclude = [few, few[:1], parts[2].ids] if per_theta else few
    left_out = exclude if per_theta else [few] * 3
    tight = {"rel_err": 0.003} if isinstance(parts[0]._index, PartitionIndex) else {}
    ours, theirs = (d.log_partition(exclude=exclude, **o) for d, o in ((merged, tight), (whole, {})))
    assert np.all(np.abs(ours.value - theirs.value) <= 6 * ours.stderr + 1e-5)
    ours, theirs = (d.expectation(exclude=exclude, **o) for d, o in ((merged, tight), (whole, {})))
    assert np.all(np.abs(ours.value - theirs.value) <= 6 * ours.stderr + 1e-5)
    assert np.array_equal(merged.top_k(9, exclude=exclude).ids, whole.top_k(9, exclude=exclude).ids)
    drawn = merged.sample(3000, rng=0, exclude=exclude).ids
    ordered = merged.sample_without_replacement(400, rng=0, exclude=exclude)
    for b, ids in enumerate(left_out):
        assert not np.isin(drawn[:, b], ids).any()
        assert not np.isin(ordered.ids[:, b], ids).any() and len(np.unique(ordered.ids[:, b])) == 400
    for b in range(3):
        assert np.isneginf(merged.log_prob(np.full(3, left_out[b][0]), exclude=exclude).value[b])
    with pytest.raises(ValueError, match="leaves no row"):
        merged.sample(exclude=np.arange(N))


def test_equal_seeds_give_equal_draws_and_others_do_not(phi, parts):
    merged, _ = pair(phi, parts, THETAS)
    assert np.array_equal(merged.sample(20, rng=1).ids, merged.sample(20, rng=1).ids)
    assert not np.array_equal(merged.sample(20, rng=1).ids, merged.sample(20, rng=2).ids)


def test_methods_are_passed_on_and_labels_are_the_weakest(phi, parts):
    merged, _ = pair(phi, parts, THETAS)
    assert merged.sample(2, method=lg.Exhaustive()).label == "exact"
    expected = "bounded" if isinstance(parts[0]._index, PartitionIndex) else "exact"
    assert merged.log_partition().label in (expected, "exact")
    assert merged.sample(2, method=lg.TopKOnly(k=1)).label == "heuristic"


def test_ids_that_no_part_has_are_refused(parts):
    merged = MergedDistribution(parts[:1], Directory(parts[:1]), THETAS[0], 1.0, d=D)
    gone = int(np.setdiff1d(np.arange(parts[0].ids.max()), parts[0].ids)[0])
    with pytest.raises(ValueError, match=f"ids holds {gone}, but no row has this id"):
        merged.log_prob([gone])
    with pytest.raises(ValueError, match=f"exclude holds {gone}"):
        merged.sample(exclude=[gone])
    assert merged.sample(exclude=np.arange(int(parts[0].ids.max()) + 1) == gone).ids.shape == (1,)
