"""Rows come and go: answers are those of a model built afresh from the rows that there are."""

import numpy as np
import pytest
from scipy.stats import chisquare

import lazygumbel as lg
from lazygumbel.indexes import ExactIndex, FaissIndex, PartitionIndex
from lazygumbel.live import rows as live_rows
from lazygumbel.methods.defaults import default_sampler
from lazygumbel.sharded import ShardedModel
from live_helpers import INDEXES, THETAS, D, build, churned, near, rows_of


@pytest.fixture(autouse=True, scope="module")
def small_tails():
    """So that a few hundred rows are sealed and merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_rows, "_TAIL", 64)
        yield


@pytest.fixture(scope="module", params=INDEXES)
def changed(request):
    return churned(request.param)


def fresh(held):
    ids = np.array(sorted(held))
    return ids, lg.LogLinear(ExactIndex.build(lg.Features.of(np.stack([held[i] for i in ids.tolist()]))))


def test_ids_and_rows_are_those_that_are_left(changed):
    model, held = changed
    ids = np.array(sorted(held))
    assert len(model._live.snapshot.parts) > 2  # else the tests below would say little
    assert np.array_equal(model.ids, ids) and model.features.n == len(ids) and model.size == ids.max() + 1
    assert np.array_equal(model.features.gather(ids), np.stack([held[i] for i in ids.tolist()]))
    by_blocks = {int(i): row for some, rows in model.features.blocks(50) for i, row in zip(some, rows, strict=True)}
    assert sorted(by_blocks) == ids.tolist() and all(np.array_equal(by_blocks[i], held[i]) for i in held)


@pytest.mark.parametrize("thetas", [THETAS[0], THETAS], ids=["one", "batch"])
def test_values_are_those_of_a_model_built_afresh(changed, thetas):
    model, held = changed
    ids, whole = fresh(held)
    ours, theirs = model(thetas), whole(thetas)
    for verb in ("log_partition", "expectation", "entropy"):
        expected = getattr(theirs, verb)(method=lg.Exhaustive()).value
        assert near(getattr(ours, verb)(rng=0), expected)
        assert np.allclose(getattr(ours, verb)(method=lg.Exhaustive()).value, expected, atol=1e-4)
        assert near(getattr(ours, verb)(method=lg.UniformTail(), rng=0), expected)
    assert np.array_equal(ours.top_k(40).ids, ids[theirs.top_k(40).ids])
    places = np.random.default_rng(0).integers(len(ids), size=(5, *ours.batch_shape))
    assert near(ours.log_prob(ids[places]), theirs.log_prob(places).value)


@pytest.mark.parametrize("thetas", [THETAS[0], THETAS], ids=["one", "batch"])
def test_slates_have_the_probabilities_of_a_model_built_afresh(changed, thetas):
    model, held = changed
    ids, whole = fresh(held)
    dist, out = model(thetas), ids[5:60]
    slate = dist.sample_without_replacement(8, exclude=out, rng=0).ids
    places = np.searchsorted(ids, slate)
    for exclude, expected in (
        (out, np.arange(5, 60)),
        (np.isin(np.arange(model.size), out), np.arange(5, 60)),
        (None, None),
    ):
        found = dist.log_prob_ordered(slate, exclude=exclude, rng=1)
        assert found.value.shape == slate.shape
        exact = whole(thetas).log_prob_ordered(places, exclude=expected, method=lg.Exhaustive()).value
        assert near(found, exact)
    with pytest.raises(ValueError, match="holds a row twice"):
        dist.log_prob_ordered(np.concatenate([slate, slate[:1]]))
    with pytest.raises(ValueError, match=r"ids must have shape \(K,\)"):
        dist.log_prob_ordered(slate[None])


METHODS = [None, lg.Exhaustive(), lg.LazyGumbel(), lg.FixedCutoff()]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_draws_follow_the_softmax_of_the_rows_that_are_left(changed, method):
    model, held = changed
    ids, _ = fresh(held)
    logits = np.stack([held[i] for i in ids.tolist()]).astype(np.float64) @ THETAS[0]
    expected = np.exp(logits - logits.max())
    drawn = model(THETAS[0]).sample(20_000, method=method, rng=3).ids
    assert np.isin(drawn, ids).all()
    counts = np.bincount(np.searchsorted(ids, drawn), minlength=len(ids))
    order = np.argsort(expected)
    bins = np.unique((np.cumsum(expected[order]) / expected.sum() * 400).astype(int), return_inverse=True)[1]
    ours, theirs = np.bincount(bins, counts[order]), np.bincount(bins, expected[order])
    assert chisquare(ours, theirs * ours.sum() / theirs.sum()).pvalue > 1e-3
    stale = np.bincount(bins, np.exp(0.9 * (logits - logits.max()))[order])  # a control: another temperature
    assert chisquare(ours, stale * ours.sum() / stale.sum()).pvalue < 1e-6


@pytest.mark.parametrize("thetas", [THETAS[0], THETAS], ids=["one", "batch"])
def test_draws_that_are_broken_off_are_finished_by_a_dense_pass(monkeypatch, thetas):
    model, held = churned(PartitionIndex)
    ids, whole = fresh(held)
    monkeypatch.setattr("lazygumbel.methods.racing.patience_of", lambda _: 0)
    drawn = model(thetas).sample(20_000, rng=3)
    assert (drawn.rows >= len(held)).all() and drawn.label in ("exact", "bounded")
    expected = np.exp(
        whole(thetas[..., :]).logits(
            np.broadcast_to(np.arange(len(ids)).reshape(-1, *[1] * (thetas.ndim - 1)), (len(ids), *thetas.shape[:-1]))
        )
    )
    counts = np.stack(
        [np.bincount(np.searchsorted(ids, column), minlength=len(ids)) for column in drawn.ids.reshape(20_000, -1).T]
    )
    for ours, weights in zip(counts, expected.reshape(len(ids), -1).T, strict=True):
        common = np.argsort(-weights)[:40]
        theirs = np.append(weights[common], weights.sum() - weights[common].sum())
        seen = np.append(ours[common], 20_000 - ours[common].sum())
        assert chisquare(seen, theirs / theirs.sum() * 20_000).pvalue > 1e-3


def test_draws_do_not_depend_on_the_number_of_threads():
    model, _ = churned(PartitionIndex)
    thetas = rows_of(8, 40)
    several = model(thetas).sample(3, rng=5)
    lg.set_threads(1)
    try:
        alone = model(thetas).sample(3, rng=5)
    finally:
        lg.set_threads(None)
    assert np.array_equal(several.ids, alone.ids) and np.array_equal(several.values, alone.values)
    assert not np.array_equal(several.ids, model(thetas).sample(3, rng=6).ids)
    assert not np.array_equal(model(thetas).sample(3).ids, model(thetas).sample(3).ids)  # without rng


def test_draws_without_replacement_reach_all_rows_and_no_others(changed):
    model, held = changed
    ordered = model(THETAS[0]).sample_without_replacement(len(held), rng=0).ids
    assert np.array_equal(np.sort(ordered), np.array(sorted(held)))


def test_removed_ids_are_refused_by_every_verb(changed):
    model, held = changed
    gone = int(np.setdiff1d(np.arange(model.size), model.ids)[0])
    dist = model(THETAS[0])
    for ask in (
        lambda: dist.log_prob([gone]),
        lambda: dist.logits([gone]),
        lambda: dist.log_prob_ordered([gone]),
        lambda: dist.log_partition(exclude=[gone]),
        lambda: dist.expectation(exclude=[gone]),
        lambda: dist.entropy(exclude=[gone]),
        lambda: dist.sample_without_replacement(2, exclude=[gone]),
        lambda: dist.mode(exclude=[gone]),
        lambda: model.audit(THETAS[0], exclude=[gone]),
        lambda: model.check_ids([gone]),
        lambda: dist.sample(exclude=[gone]),
        lambda: dist.top_k(3, exclude=[gone]),
        lambda: model.features.gather([gone]),
        lambda: model.remove([gone]),
        lambda: model.replace([gone], rows_of(0, 1)),
        lambda: lg.walk(model, 2, start=gone),
        lambda: lg.fit(model, [gone], iterations=1),
    ):
        with pytest.raises(ValueError, match=f"{gone}, but"):
            ask()
    assert len(held) == model.features.n


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, 1e-310])
def test_temperatures_are_refused_as_by_rows_that_never_changed(changed, temperature):
    for ask in (changed[0], build(ExactIndex)):
        with pytest.raises(ValueError, match="temperature must be"):
            ask(np.zeros(D), temperature=temperature).sample()


@pytest.mark.parametrize("index", INDEXES)
def test_a_change_is_seen_at_once_and_a_distribution_keeps_its_rows(index):
    model = build(index)
    before = model(THETAS[0])
    expected = before.log_partition(method=lg.Exhaustive()).value
    best = int(before.top_k(1).ids[0])
    model.remove([best])
    middle = model(THETAS[0])
    assert best not in model(THETAS[0]).top_k(5).ids
    (new,) = model.add(20 * THETAS[:1])
    assert model(THETAS[0]).top_k(1).ids == [new] and new == 600
    model.compact()
    assert middle.top_k(1).ids != [new] and best not in middle.sample(500, rng=0).ids
    assert before.top_k(1).ids == [best]
    assert before.log_partition(method=lg.Exhaustive()).value == expected
    model.remove([new])
    assert model.add(rows_of(3, 2)).tolist() == [601, 602]  # ids are never given again


@pytest.mark.parametrize("sparse", [0, 8], ids=["sorted", "by table"])
@pytest.mark.parametrize("index", INDEXES)
def test_compact_keeps_ids_and_answers(index, sparse, monkeypatch):
    monkeypatch.setattr("lazygumbel.live.sources._SPARSE", sparse)
    model, held = churned(index)
    expected = model(THETAS).log_partition(method=lg.Exhaustive()).value
    for rebuild in (False, True):
        model.compact(rebuild=rebuild)
        assert np.array_equal(model.ids, np.array(sorted(held))) and model.drift().parts == 1
        assert np.allclose(model(THETAS).log_partition(method=lg.Exhaustive()).value, expected, atol=1e-4)
        assert near(model(THETAS).log_partition(rng=0), expected)
        assert np.array_equal(model.features.gather(model.ids), np.stack([held[i] for i in sorted(held)]))


def test_a_batch_is_taken_as_a_whole_or_not_at_all():
    model = build(ExactIndex)
    bad = rows_of(0, 5)
    bad[3, 2] = np.nan
    before = model.size
    for call, words in (
        (lambda: model.add(bad), r"rows\[3\]"),
        (lambda: model.replace([0, 1, 2, 3, 4], bad), r"rows\[3\]"),
        (lambda: model.add(rows_of(0, 2)[:, :3]), r"\(m, 8\)"),
        (lambda: model.add(["a"]), "rows must have shape"),
        (lambda: model.add(rows_of(0, 1), names=["a"]), "have no names"),
        (lambda: model.remove([1, 2, 1]), "1 more than once"),
        (lambda: model.remove([5, 600]), "600, but"),
        (lambda: model.remove(np.arange(600)), "at least one"),
        (lambda: model.replace([1], rows_of(0, 2)), "rows has 2 rows, but ids has 1"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert model.size == before and model.features.n == before
    assert np.array_equal(model.features.gather(np.arange(600)), rows_of(0, 600))


def test_names_follow_their_ids():
    model = build(PartitionIndex, names=[f"row {i}" for i in range(600)])
    ids = model.add(rows_of(1, 100), names=[f"new {i}" for i in range(100)])
    model.replace([3, ids[7]], rows_of(2, 2))
    model.remove([4, ids[8]])
    for _ in range(2):
        names = model.features.names
        assert [names[3], names[int(ids[7])], names[599]] == ["row 3", "new 7", "row 599"]
        assert names.find("new 9") == ids[9] and len(names) == 698 and len(list(names)) == 698
        for gone in ("row 4", "new 8"):
            with pytest.raises(ValueError, match="no row is named"):
                names.find(gone)
        with pytest.raises(ValueError, match="was removed"):
            names[4]
        model.compact()
    with pytest.raises(ValueError, match="give a sequence of one for each"):
        model.add(rows_of(1, 1))


def test_other_indexes_refuse_changes():
    model = lg.LogLinear(FaissIndex.build(lg.Features.of(rows_of(0, 300)), "Flat"))
    with pytest.raises(ValueError, match="FaissIndex cannot change"):
        model.add(rows_of(0, 1))


def test_what_takes_one_array_of_rows_refuses_changed_ones(changed):
    model, held = changed
    for ask in (
        lambda: model.index,
        lambda: model.features.stored,
        lambda: PartitionIndex.build(model.features),
        lambda: lg.LogLinear.build(model.features),
        lambda: model.features.unit_norm(),
        lambda: model.calibrate(),
    ):
        with pytest.raises(ValueError, match=r"changed|change"):
            ask()
    settled = model.settled()
    assert settled.features.n == len(held)
    assert np.array_equal(settled.features.gather(np.arange(len(held))), model.features.gather(model.ids))


def test_learning_and_walks_see_the_rows_that_are_left(changed):
    model, held = changed
    walked = lg.walk(model, 30, chains=5, temperature=1.0, stay=False, rng=0)
    assert np.isin(walked.ids, np.array(sorted(held))).all() and np.isin(walked.start, model.ids).all()
    chosen = model.ids[::7]
    ours = lg.fit(model, chosen, iterations=30, learning_rate=0.1, rng=0)
    ids, whole = fresh(held)
    theirs = lg.fit(whole, np.searchsorted(ids, chosen), iterations=30, learning_rate=0.1, rng=0)
    assert abs(ours.log_likelihood - theirs.log_likelihood) < 1e-3


@pytest.mark.parametrize("index", INDEXES)
def test_a_saved_model_has_the_same_rows_and_ids(index, tmp_path):
    model, held = churned(index, steps=3)
    model.save(tmp_path / "model")
    loaded = lg.LogLinear.load(tmp_path / "model")
    assert np.array_equal(loaded.ids, model.ids) and loaded.size == model.size
    assert np.allclose(
        loaded(THETAS).log_partition(method=lg.Exhaustive()).value,
        model(THETAS).log_partition(method=lg.Exhaustive()).value,
        atol=1e-4,
    )
    with pytest.warns(UserWarning, match="in memory only"):
        assert loaded.add(rows_of(0, 1)).tolist() == [model.size]
    assert "in memory only" in repr(loaded) and len(held) == model.features.n


@pytest.mark.parametrize("index", INDEXES)
def test_rows_far_shorter_than_those_of_the_build_are_saved_and_answer(index, tmp_path):
    """Means of cells are then longer than any row, which nothing that is built is."""
    model, small = build(index), rows_of(4, 600) / 1000
    model.replace(np.arange(600), small)
    model.compact()
    model.save(tmp_path / "model")
    loaded, theta = lg.LogLinear.load(tmp_path / "model"), 1000 * THETAS[0]
    true = np.logaddexp.reduce(small.astype(np.float64) @ theta)
    assert near(loaded(theta).log_partition(rng=0), true)
    assert loaded(theta).mode().ids == np.argmax(small @ theta)


def test_shards_are_of_changed_rows_unless_some_were_removed(tmp_path):
    model = build(ExactIndex, n=60)
    model.replace([3], rows_of(1, 1))
    ShardedModel.split(model, tmp_path / "shards", shards=2)
    with ShardedModel.connect(tmp_path / "shards", engine="threads") as shards:
        assert np.array_equal(shards.features.gather(shards.ids), model.features.gather(model.ids))
    model.remove([5])
    with pytest.raises(ValueError, match="1 of its rows were removed"):
        ShardedModel.split(model, tmp_path / "more", shards=2)


def test_the_loss_of_live_rows_is_that_of_rows_built_afresh(changed):
    torch = pytest.importorskip("torch")
    from lazygumbel.torch import LogLinearLoss

    model, held = changed
    ids, whole = fresh(held)
    theta, target = torch.tensor(THETAS), model.ids[[0, 5, 9]]
    ours = LogLinearLoss(model, method=lg.Exhaustive())(theta, torch.tensor(target))
    theirs = LogLinearLoss(whole, method=lg.Exhaustive())(theta, torch.tensor(np.searchsorted(ids, target)))
    assert abs(float(ours - theirs)) < 1e-5
    gone = np.setdiff1d(np.arange(model.size), ids)[:3]
    with pytest.raises(ValueError, match="was removed"):
        LogLinearLoss(model)(theta, torch.tensor(gone))


def test_adding_keeps_a_calibration_and_removing_sets_it_aside_and_says_so():
    features = lg.Features.of(rows_of(0, 3000))
    model = lg.LogLinear(PartitionIndex.build(features, rng=0))
    found = model.calibrate(rows_of(5, 40), tv=0.1, rng=0)
    model.index = model.index.calibrated(found)  # whether or not it would be quicker
    model.add(rows_of(6, 10))
    assert model(THETAS[0]).sample(5, rng=0).label in ("calibrated", "bounded")
    assert any(part.shown.calibration is not None for part in model._live.snapshot.parts[:1])
    assert model.drift().calibration.startswith("holds: 10 rows were added to the 3,000")
    model.remove([0, 3001])
    assert model.drift().calibration.startswith("set aside: 1 of the 3,000 rows that it was made on were removed")
    for method in (None, lg.Calibrated()):
        assert model(THETAS[0]).sample(5, method=method, rng=0).label == "bounded"
    with pytest.raises(ValueError, match="compact"):
        model.calibrate(rows_of(5, 40))
    model.compact()
    again = model.calibrate(rows_of(5, 40), tv=0.1, rng=0)
    model._live.calibrate(model._live.base.index.calibrated(again))
    assert model.drift().calibration.startswith("holds: 0 rows")
    assert model.index_type is PartitionIndex and 0 not in model(THETAS[0]).sample(500, rng=0).ids


def test_an_audit_takes_ids_that_are_left_out_before_and_after_compact():
    model, _ = churned(PartitionIndex, steps=2)
    best = model(THETAS).mode().ids
    before = model.audit(THETAS, exclude=[[i] for i in best.tolist()])
    model.compact()
    after = model.audit(THETAS, exclude=[[i] for i in best.tolist()])
    for found in (before, after):
        assert set(found.labels) <= {"bounded", "exact"} and (found.miss <= 0.01).all()


def test_rows_in_several_parts_are_audited_by_every_method_that_knows_its_ceilings():
    """A protocol is asked for, not a class: what was wrapped by its user has a closed form as well."""

    class Wrapped:
        def sample(self, query, size, rng):
            return default_sampler(query.index).sample(query, size, rng)

        def ceilings(self, query, seed):
            return default_sampler(query.index).ceilings(query, seed)

    model, _ = churned(PartitionIndex, steps=2)
    assert len(model.parts) > 1
    plain, wrapped = (model.audit(THETAS, method=method) for method in (lg.Bounded(), Wrapped()))
    assert np.allclose(plain.miss, wrapped.miss, atol=1e-6) and (plain.miss <= 0.01).all()
    assert (model.audit(THETAS, method=lg.Exhaustive()).miss == 0).all()
    with pytest.raises(ValueError, match=r"cannot be audited .* audit model.settled\(\)"):
        model.audit(THETAS, method=lg.TopKOnly(k=3))
