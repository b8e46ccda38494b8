"""Shards in this process (`engine="threads"`): every verb against the unsplit model, files, and what goes wrong."""

import dataclasses
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lazygumbel as lg
from lazygumbel import Features, LogLinear, PartitionIndex
from lazygumbel.cli import app
from lazygumbel.guarantees.audit import race_distance
from lazygumbel.live import raced
from lazygumbel.sharded import ShardedModel, ShardError
from lazygumbel.sharded.requests import Request
from lazygumbel.sharded.threads import ThreadsEngine
from lazygumbel.sharded.worker import ShardWorker
from statistics_helpers import chi_square_p, make_rows, mean_p, probabilities_of

N, D = 2_000, 8
ROWS = 3 * make_rows(N, D, varied=True, seed=2)
NAMES, THETAS = [f"row {i}" for i in range(N)], make_rows(5, D, seed=9)
LAYOUTS: dict[str, int | list[int]] = {"1": 1, "2": 2, "5, one tiny, one empty": [900, 3, 0, 697, 400]}


def by_codes(rows: Features) -> PartitionIndex:
    """A small partition index, so that draws are by race and sums are estimates."""
    return PartitionIndex.build(rows, cells=min(10, rows.n), rng=0)


@pytest.fixture(scope="module")
def whole() -> LogLinear:
    return LogLinear.build(Features.of(ROWS, names=NAMES))


@pytest.fixture(scope="module", params=list(LAYOUTS), ids=list(LAYOUTS))
def sharded(request: pytest.FixtureRequest, whole: LogLinear, tmp_path_factory: pytest.TempPathFactory) -> ShardedModel:
    out = tmp_path_factory.mktemp("shards") / "out"
    ShardedModel.split(whole, out, shards=LAYOUTS[request.param], rng=0)
    return ShardedModel.connect(out, engine="threads", deadline=120)  # a busy machine


@pytest.fixture
def folder(whole: LogLinear, tmp_path: Path) -> Path:
    ShardedModel.split(whole, tmp_path / "out", shards=3, rng=0)
    return tmp_path / "out"


def test_draws_follow_the_softmax_over_all_rows(sharded: ShardedModel) -> None:
    drawn = sharded(THETAS[0]).sample(20_000, rng=1)
    assert chi_square_p(drawn.ids, probabilities_of(ROWS, THETAS[0])) > 1e-3
    assert drawn.label == "exact" and drawn.coverage == 1.0 and drawn.rows == N
    without_one = drawn.ids[(drawn.ids < 900) | (drawn.ids >= 1_000)]  # the control: a shard that never wins
    assert chi_square_p(without_one, probabilities_of(ROWS, THETAS[0])) < 1e-6


def test_exact_answers_are_those_of_the_unsplit_model(sharded: ShardedModel, whole: LogLinear) -> None:
    for theta in (THETAS[0], THETAS):
        ours, theirs = sharded(theta, temperature=0.5), whole(theta, temperature=0.5)
        ids = np.random.default_rng(0).integers(N, size=(4, *theta.shape[:-1]))
        for exclude in (None, np.arange(0, N, 3), np.arange(890, 1_700)):
            for verb in ("log_partition", "expectation", "entropy"):
                mine, other = getattr(ours, verb)(exclude=exclude), getattr(theirs, verb)(exclude=exclude)
                np.testing.assert_allclose(mine.value, other.value, rtol=1e-5, atol=1e-5)
                assert mine.value.shape == other.value.shape and mine.label == "exact"
            found = ours.log_prob(ids, exclude=exclude)
            np.testing.assert_allclose(found.value, theirs.log_prob(ids, exclude=exclude).value, rtol=1e-5, atol=1e-5)
            slate = np.stack([np.full(theta.shape[:-1], i) for i in (1_700, 2, 901)])
            mine, other = (dist.log_prob_ordered(slate).value for dist in (ours, theirs))
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
            top = ours.top_k(1_000, exclude=exclude)
            expected = theirs.top_k(1_000, exclude=exclude)
            np.testing.assert_array_equal(top.ids, expected.ids)
            assert top.exact and top.scores.shape == expected.scores.shape
            mode = ours.mode(exclude=exclude)
            np.testing.assert_array_equal(mode.ids, theirs.mode(exclude=exclude).ids)
            assert mode.exact


def test_functions_of_ids_are_averaged_as_by_the_unsplit_model(sharded: ShardedModel, whole: LogLinear) -> None:
    by_id = np.random.default_rng(0).standard_normal((N, 3))
    for f in (lambda ids: by_id[ids], lambda ids: by_id[ids, 0]):
        for theta in (THETAS[0], THETAS):
            for exclude in (None, np.arange(890, 1_700)):
                mine = sharded(theta).expectation(f, exclude=exclude)
                other = whole(theta).expectation(f, exclude=exclude)
                np.testing.assert_allclose(mine.value, other.value, rtol=1e-5, atol=1e-6)
                assert mine.value.shape == other.value.shape and mine.label == "exact"
    shifted = whole(THETAS).expectation(lambda ids: by_id[(ids + 1) % N])  # the control: ids of another row
    assert np.abs(sharded(THETAS).expectation(lambda ids: by_id[ids]).value - shifted.value).max() > 1e-2


def test_a_call_is_one_fan_out(sharded: ShardedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    original = ThreadsEngine.ask

    def ask(self: ThreadsEngine, requests: Any, *given: Any) -> Any:
        counted.append(len(requests))
        return original(self, requests, *given)

    monkeypatch.setattr(ThreadsEngine, "ask", ask)
    ids = np.zeros((3, 5), dtype=np.int64) + 1_999
    for verb, question in {
        "sample": lambda dist: dist.sample(4, rng=0),
        "sample, excluding": lambda dist: dist.sample(4, rng=0, exclude=np.arange(850, 1_100)),
        "without replacement": lambda dist: dist.sample_without_replacement(3, rng=0),
        "log_partition": lambda dist: dist.log_partition(),
        "expectation": lambda dist: dist.expectation(),
        "log_prob": lambda dist: dist.log_prob(ids),
        "entropy": lambda dist: dist.entropy(),
        "top_k": lambda dist: dist.top_k(3),
        "mode": lambda dist: dist.mode(),
    }.items():
        counted.clear()
        question(sharded(THETAS))
        assert len(counted) == 1 and counted[0] >= 1, verb


def test_ordered_draws_start_like_the_softmax_and_never_repeat(sharded: ShardedModel) -> None:
    copies = np.tile(THETAS[0], (3_000, 1))
    drawn = sharded(copies).sample_without_replacement(7, rng=3)
    assert drawn.ids.shape == (7, 3_000) and drawn.label == "exact"
    assert chi_square_p(drawn.ids[0], probabilities_of(ROWS, THETAS[0])) > 1e-3
    assert (np.diff(np.sort(drawn.ids, axis=0), axis=0) > 0).all()
    truth = np.log(np.exp(ROWS.astype(np.float64) @ THETAS[0]).sum())
    assert mean_p(np.exp(drawn.log_partition - truth), 1.0) > 1e-3


def test_all_rows_can_be_drawn_without_replacement(sharded: ShardedModel) -> None:
    kept = np.array([1, 899, 900, 902, 1_500, 1_999])
    drawn = sharded(THETAS).sample_without_replacement(6, exclude=np.setdiff1d(np.arange(N), kept), rng=0)
    np.testing.assert_array_equal(np.sort(drawn.ids, axis=0), np.tile(kept[:, None], (1, 5)))
    with pytest.raises(ValueError, match="only 6 rows"):
        sharded(THETAS).sample_without_replacement(7, exclude=np.setdiff1d(np.arange(N), kept))


def test_thetas_with_exclusions_of_their_own_draw_what_is_left(sharded: ShardedModel) -> None:
    each = [np.arange(900), np.arange(900, 1_600), [0], np.arange(3, N), np.arange(1, N)]
    drawn = sharded(THETAS).sample(200, exclude=each, rng=0)
    for b, excluded in enumerate(each):
        assert not np.isin(drawn.ids[:, b], excluded).any()
    assert (drawn.ids[:, 4] == 0).all() and len(np.unique(drawn.ids[:, 0])) > 20


def test_equal_seeds_give_equal_draws(sharded: ShardedModel) -> None:
    dist = sharded(THETAS)
    np.testing.assert_array_equal(dist.sample(50, rng=4).ids, dist.sample(50, rng=4).ids)
    generator = np.random.default_rng(4)
    first, second = dist.sample(50, rng=generator).ids, dist.sample(50, rng=generator).ids
    assert (first != second).any()


def test_keyed_draws_are_the_same_however_rows_are_split(sharded: ShardedModel, whole: LogLinear) -> None:
    """Noise by seed, theta and row: equal to those of the unsplit model, with exclusions and without replacement."""
    for theta in (THETAS, THETAS[0], np.tile(THETAS[:2], (2, 1))):
        for exclude in (None, np.arange(850, 1_640)):
            for verb in ("sample", "sample_without_replacement"):
                mine, other = (
                    getattr(model(theta, temperature=2.0), verb)(30, method=lg.Keyed(), rng=4, exclude=exclude)
                    for model in (sharded, whole)
                )
                np.testing.assert_array_equal(mine.ids, other.ids)
                np.testing.assert_allclose(mine.values, other.values, rtol=1e-5)
                assert mine.label == other.label == "exact"
    twice = sharded(np.tile(THETAS[0], (2, 1))).sample(30, method=lg.Keyed(), rng=4).ids
    assert (twice[:, 0] != twice[:, 1]).any()  # a theta that comes again has other noise
    np.testing.assert_array_equal(twice[:, 0], whole(THETAS[0]).sample(30, method=lg.Keyed(), rng=4).ids)
    others = sharded(THETAS).sample(30, method=lg.Keyed(), rng=5).ids
    assert (others != sharded(THETAS).sample(30, method=lg.Keyed(), rng=4).ids).any()
    drawn = sharded(THETAS[0]).sample(20_000, method=lg.Keyed(), rng=1)
    assert chi_square_p(drawn.ids, probabilities_of(ROWS, THETAS[0])) > 1e-3


def test_rows_and_names_have_the_ids_of_the_unsplit_model(sharded: ShardedModel) -> None:
    ids = np.array([[0, 1_999], [902, 900]])
    np.testing.assert_array_equal(sharded.features.gather(ids), ROWS[ids])
    assert sharded.names(ids) == ["row 0", "row 1999", "row 902", "row 900"]
    assert sharded.find("row 901") == 901
    with pytest.raises(ValueError, match="no row is named 'nobody'"):
        sharded.find("nobody")
    complete = sharded.features.beginning_with
    assert complete("ROW 19", 4).tolist() == [19, 190, 191, 192]
    assert complete("row 190", 3).tolist() == [190, 1_900, 1_901]
    assert complete("row", 2_500).tolist() == list(range(N)) and complete("ow", 5).tolist() == []


def test_every_shard_has_a_record_of_its_health(sharded: ShardedModel) -> None:
    records = sharded.health()
    assert [record.shard for record in records] == list(range(len(records)))
    fields = ["shard", "node", "pid", "rows", "version", "restarts", "last_error"]
    assert all([field.name for field in dataclasses.fields(record)] == fields for record in records)
    assert sum(record.rows for record in records) == N and len(records) in (1, 2, 5)
    for record in records:
        named = (record.node, record.pid, record.version)
        assert (None not in named) == (record.rows > 0) and (record.restarts, record.last_error) == (0, None)


def test_the_same_rows_have_the_same_version(sharded: ShardedModel, folder: Path) -> None:
    with (
        ShardedModel.connect(folder, engine="threads") as model,
        ShardedModel.connect(folder, engine="threads") as again,
    ):
        assert model.version == again.version != sharded.version and model.index_type is lg.ExactIndex


def test_a_walk_runs_over_shards(sharded: ShardedModel) -> None:
    walked = lg.walk(sharded, 5, chains=400, start=3, temperature=2.0, stay=False, rng=0)
    assert walked.exact and walked.n == N
    expected = probabilities_of(ROWS, ROWS[3], 2.0, exclude=[3])
    assert chi_square_p(walked.ids[0], expected, least=10) > 1e-3


def test_a_loss_over_shards_has_the_value_and_gradient_of_the_unsplit_one(
    sharded: ShardedModel, whole: LogLinear
) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from lazygumbel.torch import LogLinearLoss, negatives

    target, found = torch.tensor([0, 901, 1_999, 5, 5]), []
    for model in (sharded, whole):
        theta = torch.tensor(THETAS, requires_grad=True)
        loss = LogLinearLoss(model, temperature=0.7, rng=0)(theta, target)
        loss.backward()
        found.append((loss.item(), theta.grad.numpy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)
    drawn = negatives(sharded, torch.tensor(THETAS), 4, rng=0)
    expected = whole(THETAS).log_prob(drawn.ids.numpy().T).value.T
    np.testing.assert_allclose(drawn.log_propensity.numpy(), expected, rtol=1e-4)


def test_a_fit_over_shards_finds_the_theta_of_the_unsplit_one(
    sharded: ShardedModel, whole: LogLinear, tmp_path: Path
) -> None:
    ids, asked = np.array([3, 901, 902, 1_999]), {"iterations": 60, "learning_rate": 0.05, "l2": 0.1, "rng": 0}
    expected = lg.fit(whole, ids, method=lg.Exhaustive(), **asked)
    exact = lg.fit(sharded, ids, method=lg.Exhaustive(), **asked)
    np.testing.assert_allclose(exact.theta, expected.theta, rtol=1e-3, atol=1e-4)
    anchored = lg.fit(sharded, ids, checkpoint=tmp_path / "run.npz", **asked)
    assert anchored.log_likelihood == pytest.approx(expected.log_likelihood, abs=0.02)
    lg.fit(sharded, ids, checkpoint=tmp_path / "cut.npz", **asked | {"iterations": 33})
    resumed = lg.fit(sharded, ids, checkpoint=tmp_path / "cut.npz", resume=True, **asked)
    np.testing.assert_array_equal(resumed.theta, anchored.theta)


def test_an_audit_over_shards_is_that_of_one_race_over_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ShardedModel.build(ROWS, tmp_path / "out", shards=[1_200, 800], index=by_codes, rng=0)

    def too_low(*given: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(logits, np.minimum(limits, np.quantile(logits, 0.9))) for logits, limits in raced(*given)]

    monkeypatch.setattr("lazygumbel.sharded.auditing.raced", too_low)
    with ShardedModel.connect(tmp_path / "out", engine="threads", deadline=120) as model:
        found = model.audit(THETAS, method=lg.Bounded())
        monkeypatch.undo()
        right, exact = model.audit(THETAS), model.audit(THETAS, method=lg.Exhaustive())
    assert (exact.miss == 0).all() and exact.labels.tolist() == ["exact"] * 5 and (right.miss <= 1e-3).all()
    parts = [LogLinear.load(tmp_path / "out" / f"shard-00{s}").parts[0] for s in (0, 1)]
    told = [too_low(part, THETAS, 1.0, lg.Bounded()) for part in parts]
    for b, (first, second) in enumerate(zip(*told, strict=True)):
        logits, ceilings = (np.concatenate(pair) for pair in zip(first, second, strict=True))
        assert found.miss[b] == pytest.approx(race_distance(logits, ceilings), rel=1e-9) and found.miss[b] > 0.05
        assert found.violations[b] == (logits > ceilings).sum() > 100


def test_an_audit_leaves_out_what_draws_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ShardedModel.build(ROWS, tmp_path / "out", shards=[1_200, 800], index=by_codes, rng=0)
    parts = [LogLinear.load(tmp_path / "out" / f"shard-00{s}").parts[0] for s in (0, 1)]

    def too_low(*given: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(logits, np.minimum(limits, np.quantile(logits, 0.9))) for logits, limits in raced(*given)]

    monkeypatch.setattr("lazygumbel.sharded.auditing.raced", too_low)
    out = [np.arange(1_100, 1_300), np.array([3]), np.arange(0, N, 2), np.arange(1_200), np.empty(0, dtype=np.int64)]
    with ShardedModel.connect(tmp_path / "out", engine="threads", deadline=120) as model:
        found = model.audit(THETAS, method=lg.Bounded(), exclude=out)
        unlike = model.audit(THETAS, method=lg.Bounded())
        alone = model.audit(THETAS[0], method=lg.Bounded(), exclude=out[0])
    told = [too_low(part, THETAS, 1.0, lg.Bounded()) for part in parts]
    for b, (first, second) in enumerate(zip(*told, strict=True)):
        logits, ceilings = (np.delete(np.concatenate(pair), out[b]) for pair in zip(first, second, strict=True))
        assert found.miss[b] == pytest.approx(race_distance(logits, ceilings), rel=1e-9)
    assert alone.miss[0] == pytest.approx(found.miss[0])
    assert (found.miss[2:4] != unlike.miss[2:4]).all() and found.miss[4] == unlike.miss[4]


def test_labels_and_bounds_survive(tmp_path: Path) -> None:
    ShardedModel.split(LogLinear.build(ROWS), tmp_path / "out", shards=[1_200, 800], index=by_codes, rng=0)
    dist = ShardedModel.connect(tmp_path / "out", engine="threads", deadline=120)(THETAS)  # kernels may compile
    drawn = dist.sample(3, method=lg.Bounded(delta=1e-5), rng=0)
    assert drawn.label in ("bounded", "exact") and np.nanmax(drawn.bound) <= 1e-5
    estimate = dist.log_partition(rel_err=0.05, rng=0)
    truth = np.log(np.exp(ROWS.astype(np.float64) @ THETAS.T.astype(np.float64)).sum(axis=0))
    assert (np.abs(estimate.value - truth) < 0.25).all() and estimate.label in ("bounded", "exact")
    assert dist.sample(2, method=lg.TopKOnly(k=10), rng=0).label == "heuristic"


def test_a_shard_of_another_version_is_refused_by_name(folder: Path) -> None:
    LogLinear.build(ROWS[:667]).save(folder / "shard-001")
    model = ShardedModel.connect(folder, engine="threads")
    with pytest.raises(ShardError, match=r"shard 1: .*holds version .* was expected"):
        model(THETAS).sample(1)
    assert [record.last_error is None for record in model.health()] == [True, False, True]


def test_files_are_opened_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    original = LogLinear.load

    def load(path: Path, *given: Any, **named: Any) -> LogLinear:
        loaded.append(Path(path).name)
        return original(path, *given, **named)

    monkeypatch.setattr(LogLinear, "load", load)
    for mode in ("r", "r+"):
        loaded.clear()
        with ShardedModel.connect(folder, engine="threads", mode=mode) as model:  # type: ignore[arg-type]
            model(THETAS).sample(1)
            model.health()
        assert loaded == ["shard-000", "shard-001", "shard-002"]


def test_what_comes_from_another_process_compiles_nothing_that_a_worker_has_not_tried(tmp_path: Path) -> None:
    """Arrays that travelled cannot be written to, which is another type for compiled code."""
    LogLinear(by_codes(Features.of(ROWS))).save(tmp_path / "shard")
    worker = ShardWorker(str(tmp_path / "shard"), lambda: "here")
    worker.warm_up()
    before = compiled()
    for thetas in (THETAS, THETAS[:1], 5 * THETAS):
        dist = {"method": None, "rng": np.random.SeedSequence(1), "exclude": [np.arange(9)] * len(thetas)}
        asked = [
            Request("sample", {"size": 2} | dist, thetas),
            Request("sample_without_replacement", {"size": 2} | dist, thetas),
            Request("log_partition", {"rel_err": None} | dist, thetas),
            Request("top_k", {"k": 3, "exclude": dist["exclude"]}, thetas),
            Request("logits", {"ids": np.zeros((3, len(thetas)), dtype=np.int64)}, thetas),
        ]
        buffers: list[Any] = []
        packed = pickle.dumps(tuple(asked), protocol=5, buffer_callback=buffers.append)
        travelled = pickle.loads(packed, buffers=[bytes(buffer) for buffer in buffers])
        assert not travelled[0].thetas.flags.writeable
        assert worker.answer(travelled, None).status == "answered"
    assert before and compiled() == before


def compiled() -> dict[str, int]:
    """How often each kernel was compiled in this process."""
    rooms = [vars(module) for name, module in sys.modules.items() if name.startswith("lazygumbel.kernels")]
    return {repr(one): len(one.signatures) for room in rooms for one in room.values() if hasattr(one, "signatures")}


def test_a_missing_shard_can_be_left_out_and_the_answer_says_so(folder: Path) -> None:
    model = ShardedModel.connect(folder, engine="threads", missing="partial")
    assert model(THETAS).sample(2, rng=0).coverage == 1.0
    (folder / "shard-002" / "config.json").rename(folder / "shard-002" / "away.json")
    model = ShardedModel.connect(folder, engine="threads", missing="partial")
    drawn, rows = model(THETAS[0]).sample(20_000, rng=0), ROWS[:1_333]
    assert drawn.coverage == pytest.approx(1_333 / N) and drawn.label == "heuristic" and np.isnan(drawn.bound)
    assert chi_square_p(drawn.ids, probabilities_of(rows, THETAS[0])) > 1e-3
    log_z = model(THETAS[0]).log_partition()
    assert log_z.value == pytest.approx(np.log(np.exp(rows.astype(np.float64) @ THETAS[0]).sum()), rel=1e-5)
    assert log_z.label == "heuristic" and log_z.coverage < 1 and not model(THETAS).top_k(3).exact
    assert model(THETAS).top_k(3).label == "heuristic" and model(THETAS).top_k(3).coverage < 1
    found = model(THETAS[0]).log_prob([5, 1_999]).value
    assert np.isfinite(found[0]) and np.isnan(found[1])
    for question in (
        lambda: model(THETAS).mode(),
        lambda: model.features.gather([1_999]),
        lambda: model(THETAS).sample_without_replacement(1_400),
        lambda: model(THETAS).sample(1, exclude=np.arange(1_400)),
    ):
        with pytest.raises(ShardError, match="shard 2: its files cannot be opened"):
            question()


def test_a_slow_shard_misses_the_deadline_and_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ShardedModel.connect(folder, engine="threads", deadline=0.5)
    model(THETAS).sample(1)
    original, slow = ShardWorker.answer, [True]

    def answer(self: ShardWorker, *asked: object) -> object:
        if self._folder.name == "shard-000" and slow:
            slow.clear()
            time.sleep(1.5)
        return original(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardWorker, "answer", answer)
    began = time.monotonic()
    with pytest.raises(ShardError, match=r"shard 0: no answer within 0\.5 s"):
        model(THETAS).sample(1)
    assert time.monotonic() - began < 1.4
    assert model(THETAS).sample(1).coverage == 1.0


def test_bad_input_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    model = ShardedModel.connect(folder, engine="threads")
    for message, question in {
        "f: it raised ZeroDivisionError": lambda: model(THETAS).expectation(lambda ids: ids / (1 // 0)),
        "model must be a LogLinear or a ShardedModel, not dict": lambda: lg.fit({}, [1]),  # type: ignore[arg-type]
        "calibrate: .* bounded without, or calibrate an unsplit LogLinear": lambda: model.calibrate(THETAS, tv=0.01),
        "top_k, top_p, min_p: shards cannot be truncated": lambda: model(THETAS).truncated(top_p=0.9),
        "cannot be audited .* audit an unsplit model": lambda: model.audit(THETAS, method=lg.TopKOnly(k=3)),
        "theta has 3 columns": lambda: model(np.zeros(3)),
        "temperature": lambda: model(THETAS, temperature=0),
        "exclude leaves no row": lambda: model(THETAS).sample(1, exclude=np.arange(N)),
        "row ids run from 0 to 1999": lambda: model(THETAS[0]).log_prob([N]),
        "needs a PartitionIndex": lambda: model(THETAS).sample(1, method=lg.Calibrated()),
        "engine must be": lambda: ShardedModel.connect(folder, engine="dask"),  # type: ignore[arg-type]
        "missing must be": lambda: ShardedModel.connect(folder, missing="ignore"),  # type: ignore[arg-type]
        "deadline must be": lambda: ShardedModel.connect(folder, engine="threads", deadline=0),
        "replicas and address": lambda: ShardedModel.connect(folder, engine="threads", replicas=2),
        "holds no manifest.json": lambda: ShardedModel.connect(tmp_path, engine="threads"),
        "shards is 3000": lambda: ShardedModel.split(ROWS, tmp_path / "new", shards=3_000),
        "sum to 10": lambda: ShardedModel.split(ROWS, tmp_path / "new", shards=[5, 5]),
        "choose an empty folder": lambda: ShardedModel.split(ROWS, tmp_path, shards=2),
    }.items():
        with pytest.raises(ValueError, match=message):
            question()


def test_an_address_where_nobody_listens_is_refused_at_once(folder: Path) -> None:
    pytest.importorskip("ray", exc_type=ImportError)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"address: no Ray cluster answers at '127\.0\.0\.1:1'"):
        ShardedModel.connect(folder, engine="ray", address="127.0.0.1:1")
    assert time.monotonic() - began < 8


def test_without_ray_the_engine_fails_at_the_door(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'lazygumbel\[ray\]'"):
        ShardedModel.connect(folder, engine="ray")


def test_the_command_line_splits_and_asks_shards(whole: LogLinear, tmp_path: Path) -> None:
    whole.save(tmp_path / "model")
    np.save(tmp_path / "a.npy", ROWS[:1_200])
    np.save(tmp_path / "b.npy", ROWS[1_200:])
    run = CliRunner().invoke
    made = run(app, ["split", str(tmp_path / "model"), str(tmp_path / "out"), "--shards", "3", "--seed", "0", "--json"])
    assert made.exit_code == 0, made.output
    assert [shard["rows"] for shard in json.loads(made.stdout)["shards"]] == [666, 667, 667]
    asked = ["--name", "row 1999", "--seed", "5", "--json"]
    found = json.loads(run(app, ["sample", str(tmp_path / "out"), "50", *asked]).stdout)
    with ShardedModel.connect(tmp_path / "out", engine="threads") as model:
        assert found["ids"] == model(ROWS[1_999]).sample(50, rng=5).ids.tolist()
    assert found["names"] == [NAMES[i] for i in found["ids"]] and found["label"] == "exact"
    (tmp_path / "out.txt").write_text("".join(f"{name}\n" for name in found["names"]))
    left = ["sample", str(tmp_path / "out"), "50", *asked, "--exclude", str(tmp_path / "out.txt")]
    assert not {*json.loads(run(app, left).stdout)["ids"]} & {*found["ids"]}
    np.save(tmp_path / "thetas.npy", THETAS)
    many = ["sample", str(tmp_path / "out"), "4", "--theta", str(tmp_path / "thetas.npy"), "--seed", "5", "--json"]
    batch = json.loads(run(app, many).stdout)
    assert np.shape(batch["ids"]) == (4, 5) and batch["names"] == [[NAMES[i] for i in ids] for ids in batch["ids"]]
    files = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    made = run(app, ["split", *files, str(tmp_path / "files"), "--shards", "2", "--seed", "0"])
    assert made.exit_code == 0 and "shard-001" in made.stdout
    ordered = ["sample", str(tmp_path / "files"), "5", "--row", "1999", "--without-replacement", "--json"]
    assert len(set(json.loads(run(app, ordered).stdout)["ids"])) == 5
    cut = run(app, ["sample", str(tmp_path / "out"), "5", "--row", "1", "--top-p", "0.9"])
    assert cut.exit_code == 2 and "shards cannot be truncated" in cut.stderr
    refused = run(app, ["sample", str(tmp_path / "model"), "5", "--row", "1", "--ray", "auto"])
    assert refused.exit_code == 2 and "no manifest.json" in refused.stderr
