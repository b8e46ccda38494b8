"""Rows of shards that come and go (`engine="threads"`): ids, answers, versions, and what happens when a call fails."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel import Features, PartitionIndex
from lazygumbel.sharded import ShardedModel, ShardError
from lazygumbel.sharded.worker import ShardWorker
from statistics_helpers import chi_square_p, make_rows, probabilities_of

N, D = 600, 8
ROWS = 3 * make_rows(N, D, varied=True, seed=2)
MORE = 3 * make_rows(400, D, varied=True, seed=3)
THETAS = make_rows(4, D, seed=9)
LAYOUTS: dict[str, list[int]] = {"1": [600], "2": [310, 290], "5, one tiny, one empty": [250, 3, 0, 197, 150]}


def by_codes(rows: Features) -> PartitionIndex:
    """A small partition index, so that segments are coded."""
    return PartitionIndex.build(rows, cells=min(5, rows.n), rng=0)


@pytest.fixture(params=list(LAYOUTS), ids=list(LAYOUTS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(tmp_path / "out", LAYOUTS[request.param])


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return made(tmp_path / "out", [310, 290])


def made(out: Path, layout: list[int]) -> Path:
    ShardedModel.split(Features.of(ROWS, names=[f"row {i}" for i in range(N)]), out, shards=layout, rng=0)
    return out


def writer(folder: Path) -> ShardedModel:
    return ShardedModel.connect(folder, engine="threads", mode="r+", deadline=120)  # a busy machine


def assert_holds(model: ShardedModel, held: dict[int, tuple[np.ndarray, str]]) -> None:
    """Every verb answers for these rows, with these ids and names."""
    ids = np.array(sorted(held))
    rows = np.stack([held[i][0] for i in ids.tolist()])
    names = [held[i][1] for i in ids.tolist()]
    np.testing.assert_array_equal(model.ids, ids)
    assert model.n == len(ids) and model.size > ids[-1]
    np.testing.assert_array_equal(model.features.gather(ids), rows)
    assert model.names(ids) == names and model.find(names[-1]) == ids[-1]
    some = [i for i, name in zip(ids.tolist(), names, strict=True) if name.startswith("new 1")]
    equal = [i for i in some if held[i][1] == "new 1"]
    expected = [*equal, *(i for i in some if i not in equal)]
    assert model.features.beginning_with("NEW 1", 1_000).tolist() == expected
    logits = rows.astype(np.float64) @ THETAS.T.astype(np.float64)
    dist = model(THETAS)
    log_z = np.log(np.exp(logits).sum(axis=0))
    np.testing.assert_allclose(dist.log_partition().value, log_z, rtol=1e-5)
    mean = (np.exp(logits - log_z).T @ rows).astype(np.float64)
    np.testing.assert_allclose(dist.expectation().value, mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(dist.top_k(20).ids, ids[np.argsort(-logits.T, axis=1, kind="stable")[:, :20]])
    np.testing.assert_allclose(
        dist.log_prob(ids[[3, 4, 5, -1]]).value, np.diag((logits - log_z)[[3, 4, 5, -1]]), rtol=1e-4
    )
    drawn = dist.sample_without_replacement(len(ids), rng=0)
    np.testing.assert_array_equal(np.sort(drawn.ids, axis=0), np.tile(ids[:, None], (1, 4)))
    left_out = np.zeros(model.size, dtype=bool)
    left_out[ids[10:]] = True
    assert set(np.unique(dist.sample(100, exclude=left_out, rng=0).ids)) <= set(ids[:10].tolist())


def test_rows_come_and_go_and_ids_are_never_given_again(folder: Path) -> None:
    held = {i: (ROWS[i], f"row {i}") for i in range(N)}
    given, rng, at = set(held), np.random.default_rng(0), 0
    model = writer(folder)
    for turn in range(12):
        new, names = MORE[at : at + 20], [f"new {at + j}" for j in range(20)]
        ids = model.add(new, names).tolist()
        assert not given & set(ids) and len(set(ids)) == 20
        given |= set(ids)
        held |= dict(zip(ids, zip(new, names, strict=True), strict=True))
        others = rng.choice(sorted(held), 15, replace=False)
        model.replace(others[:7], MORE[at + 10 : at + 17])
        held |= {i: (row, held[i][1]) for i, row in zip(others[:7].tolist(), MORE[at + 10 : at + 17], strict=True)}
        gone = others[7:] if turn != 2 else np.array([i for i in range(400, N) if i in held])  # all that a shard has
        model.remove(gone)
        held = {i: what for i, what in held.items() if i not in gone}
        with pytest.raises(ValueError, match=f"ids holds {gone[0]}, but no row has this id"):
            model(THETAS[0]).log_prob(gone)
        at += 20
        if turn == 5:
            model.compact()
        if turn in (3, 8):  # what is on disk is what was there
            model.close()
            model = writer(folder)
    assert len(held) < N + 240
    assert_holds(model, held)
    model.compact(rebuild=True)
    assert_holds(model, held)
    model.close()
    with ShardedModel.connect(folder, engine="threads") as reader:
        assert_holds(reader, held)


def test_draws_over_changed_rows_follow_the_softmax(two: Path) -> None:
    with writer(two) as model:
        ids = model.add(MORE[:200], [f"new {i}" for i in range(200)])
        model.remove(np.arange(0, 500, 2))
        drawn = model(THETAS[0]).sample(20_000, rng=1)
    rows = np.zeros((int(ids[-1]) + 1, D), dtype=np.float32)
    rows[:N], rows[ids] = ROWS, MORE[:200]
    there = np.setdiff1d(np.concatenate([np.arange(N), ids]), np.arange(0, 500, 2))
    expected = probabilities_of(rows, THETAS[0], exclude=np.setdiff1d(np.arange(len(rows)), there))
    assert drawn.label == "exact" and chi_square_p(drawn.ids, expected) > 1e-3
    unchanged = np.where(np.arange(len(rows)) < N, 1.0, 0.0) * probabilities_of(rows, THETAS[0])
    assert chi_square_p(drawn.ids, unchanged / unchanged.sum()) < 1e-6  # the control


def test_keyed_draws_stay_while_other_rows_come_and_go(two: Path) -> None:
    """Over segments within shards: ids of the model are what noise hangs on, and the same rows are drawn in one."""
    with writer(two) as model:
        ids = model.add(MORE[:30], [f"new {i}" for i in range(30)])
        model.remove(np.arange(0, 300, 2))
        model.replace([1, 599], MORE[30:32])
        drawn = model(THETAS).sample(200, method=lg.Keyed(), rng=3).ids
        ordered = model(THETAS).sample_without_replacement(20, method=lg.Keyed(), rng=3).ids
        rows = np.zeros((int(ids[-1]) + 1, D), dtype=np.float32)
        rows[model.ids] = model.features.gather(model.ids)
    gone = np.setdiff1d(np.arange(len(rows)), np.concatenate([np.arange(1, 300, 2), np.arange(300, N), ids]))
    whole = lg.LogLinear.build(rows)(THETAS)
    np.testing.assert_array_equal(drawn, whole.sample(200, method=lg.Keyed(), rng=3, exclude=gone).ids)
    expected = whole.sample_without_replacement(20, method=lg.Keyed(), rng=3, exclude=gone).ids
    np.testing.assert_array_equal(ordered, expected)


def test_rows_go_to_the_emptiest_shard(two: Path) -> None:
    with writer(two) as model:
        sizes: list[list[int]] = []
        for i in range(4):
            model.add(MORE[15 * i : 15 * i + 15], ["x"] * 15)
            sizes.append([record.rows for record in model.health()])
        assert sizes == [[310, 305], [310, 320], [325, 320], [325, 335]]
        assert model.find("x") == model.ids[N] and model.add(np.empty((0, D)), []).tolist() == []


def test_a_shard_loses_all_rows_and_gets_others(two: Path) -> None:
    """Its ids are not given again, on disk too; compacting the others passes over it."""
    held = {i: (ROWS[i], f"row {i}") for i in range(310)}
    model = writer(two)
    model.remove(np.arange(310, 600))
    model.compact(rebuild=True)
    assert [record.rows for record in model.health()] == [310, 0] and model.n == 310
    assert_holds(model, held)
    empty = model(THETAS[:0])
    assert empty.sample(2).ids.shape == (2, 0) and empty.log_partition().value.shape == (0,)
    with pytest.raises(ValueError, match="all 310 rows of the model"):
        model.remove(np.arange(310))
    model.close()
    with pytest.raises(ValueError, match="a shard that has lost all of its rows"):
        lg.LogLinear.load(two / "shard-001")
    for mode in ("r", "r+"):
        with ShardedModel.connect(two, engine="threads", mode=mode) as again:  # type: ignore[arg-type]
            assert_holds(again, held)
            assert again.audit(THETAS).miss.shape == (4,)
    with writer(two) as model:
        ids = model.add(MORE[:20], [f"new {i}" for i in range(20)])
        np.testing.assert_array_equal(ids, N + 2 * np.arange(20) + 1)
        held |= {int(i): (MORE[j], f"new {j}") for j, i in enumerate(ids)}
        assert_holds(model, held)
        model.compact()
        assert_holds(model, held)


def test_a_shard_that_was_built_empty_gets_the_first_rows(tmp_path: Path) -> None:
    """Under an index like those of the others; after that it is like them."""
    held = {i: (ROWS[i], f"row {i}") for i in range(N)}
    named = Features.of(ROWS, names=[f"row {i}" for i in range(N)])
    ShardedModel.build(named, tmp_path / "out", shards=[0, 600, 0], index=by_codes, rng=0)
    with writer(tmp_path / "out") as model, ShardedModel.connect(tmp_path / "out", engine="threads") as before:
        with pytest.raises(ValueError, match="names has 1 entries"):
            model.add(MORE[:2], ["a"])
        for start, end, shard in ((0, 30, 0), (30, 40, 2), (40, 65, 2), (65, 70, 0)):
            names = [f"new {i}" for i in range(start, end)]
            ids = model.add(MORE[start:end], names)
            assert (ids % 3 == shard).all()
            held |= {int(i): (MORE[start + j], names[j]) for j, i in enumerate(ids)}
        assert [record.rows for record in model.health()] == [35, 600, 35]
        assert model.index_type is PartitionIndex
        drawn = model(THETAS).sample(200, rng=0)
        assert drawn.label == "bounded" and set(drawn.ids.ravel().tolist()) <= set(held)
        assert before(THETAS).sample(200, rng=0).ids.max() < N and before.n == N
    for mode in ("r", "r+"):
        with ShardedModel.connect(tmp_path / "out", engine="threads", mode=mode) as again:  # type: ignore[arg-type]
            np.testing.assert_array_equal(again.ids, sorted(held))
            np.testing.assert_array_equal(again.features.gather(again.ids), [held[i][0] for i in again.ids.tolist()])
            assert again.names(again.ids) == [held[i][1] for i in again.ids.tolist()]
            np.testing.assert_array_equal(again(THETAS).sample(200, rng=0).ids, drawn.ids)


@pytest.mark.parametrize("before", [True, False])
def test_first_rows_of_a_shard_that_were_not_heard_of_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    folder, names = made(tmp_path / "out", [600, 0]), [f"new {i}" for i in range(5)]
    with writer(folder) as model:
        lose(monkeypatch, "shard-001", before=before, verb="add")
        with pytest.raises(ShardError, match="shard 1: RuntimeError: killed; its part of the change is made before"):
            model.add(MORE[:5], names)
        assert model(THETAS).sample_without_replacement(605, rng=0).ids.max() == N + 9  # the next call makes it
        np.testing.assert_array_equal(model.features.gather(N + 2 * np.arange(5) + 1), MORE[:5])
    facts = json.loads((folder / "manifest.json").read_text())
    facts["shards"][1] |= {"version": None, "compacting": True}  # the writer ended before it noted the files
    (folder / "manifest.json").write_text(json.dumps(facts))
    with ShardedModel.connect(folder, engine="threads") as reader:
        assert reader.n == N
    with writer(folder) as model:
        assert model.n == N + 5 and model.names([N + 9]) == ["new 4"]
    with ShardedModel.connect(folder, engine="threads") as reader:
        assert reader.n == N + 5


def test_files_that_nobody_wrote_here_are_not_taken_for_first_rows(tmp_path: Path) -> None:
    folder = made(tmp_path / "out", [600, 0])
    lg.LogLinear.build(MORE[:7]).save(folder / "shard-001")
    with writer(folder) as model:
        assert model.n == N and model.size == N and model(THETAS).sample(1).coverage == 1.0
        assert (model.add(MORE[:5], ["a"] * 5) % 2 == 0).all()  # to the other one


def test_coded_shards_keep_their_bounds(tmp_path: Path) -> None:
    ShardedModel.build(ROWS, tmp_path / "out", shards=2, index=by_codes, rng=0)
    with writer(tmp_path / "out") as model:
        ids = model.add(MORE[:50])
        model.remove(ids[:10])
        drawn = model(THETAS).sample(5, method=lg.Bounded(delta=1e-5), rng=0)
        assert drawn.label in ("bounded", "exact") and np.nanmax(drawn.bound) <= 1e-5
        audit = model.audit(THETAS)
        assert audit.miss.shape == (4,) and (audit.miss <= 1e-3).all()


def test_a_batch_is_checked_before_any_shard_changes(two: Path) -> None:
    bad = MORE[:3].copy()
    bad[1, 2] = np.nan
    with writer(two) as model:
        version = [record.version for record in model.health()]
        for message, change in {
            "rows.1. holds NaN": lambda: model.replace([1, 2, 400], bad),
            "ids holds 5 more than once": lambda: model.remove([400, 5, 5]),
            "row ids run from 0 to 599": lambda: model.remove([1, 400, 600]),
            "rows has 2 rows, but ids has 3": lambda: model.replace([1, 2, 400], MORE[:2]),
            "ids must have shape": lambda: model.remove([[1, 400]]),
            "rows must have shape": lambda: model.add(MORE[:, :3], ["a"] * 400),
            "the rows of this model have names": lambda: model.add(MORE),
            "names has 1 entries": lambda: model.add(MORE, ["a"]),
            "all 600 rows of the model; at least one must be left": lambda: model.remove(np.arange(600)),
        }.items():
            with pytest.raises(ValueError, match=message):
                change()
        assert [record.version for record in model.health()] == version and model.n == N
        np.testing.assert_array_equal(model.features.gather([1, 400]), ROWS[[1, 400]])


def test_readers_and_second_writers_are_refused_with_the_cure(two: Path) -> None:
    with ShardedModel.connect(two, engine="threads") as reader:
        for change in (
            lambda: reader.add(MORE, ["a"] * 400),
            lambda: reader.remove([1]),
            lambda: reader.replace([1], MORE[:1]),
            lambda: reader.compact(),
        ):
            with pytest.raises(ValueError, match=r"connect with mode='r\+'"):
                change()
    with writer(two), pytest.raises(ValueError, match="is being written by process"):
        writer(two)
    with pytest.raises(ValueError, match="each shard has one worker"):
        ShardedModel.connect(two, mode="r+", replicas=2)
    with pytest.raises(ValueError, match="mode must be"):
        ShardedModel.connect(two, engine="threads", mode="w")  # type: ignore[arg-type]
    writer(two).close()  # nothing is left locked


def test_a_reader_keeps_the_version_it_connected_to(two: Path) -> None:
    with ShardedModel.connect(two, engine="threads") as reader, writer(two) as model:
        before = reader(THETAS).log_partition().value
        model.remove(np.arange(0, 200))
        np.testing.assert_array_equal(reader(THETAS).log_partition().value, before)
        reader._shards._engine._workers[0]._held = None  # type: ignore[attr-defined]  # as if it were started anew
        with pytest.raises(ShardError, match=r"^shard 0: .* holds version \w+\+1-\w+, but version \w+ was expected"):
            reader(THETAS).log_partition()
        with ShardedModel.connect(two, engine="threads") as later:
            assert later.n == 400 and (later(THETAS).log_partition().value < before).all()


def test_a_log_that_was_put_back_is_refused(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two / "shard-000", tmp_path / "old")
    with writer(two) as model:
        model.remove([1])
        shutil.rmtree(two / "shard-000")
        shutil.copytree(tmp_path / "old", two / "shard-000")
        model._shards._engine._workers[0].close()  # type: ignore[attr-defined]
        with pytest.raises(ShardError, match=r"shard 0: .* holds version"):
            model(THETAS).sample(1)


def lose(monkeypatch: pytest.MonkeyPatch, shard: str, *, before: bool, verb: str = "remove") -> None:
    """One change of a shard fails, before or after it is made; its worker starts anew."""
    original, left = ShardWorker._change, [True]

    def change(self: ShardWorker, request: object, version: str) -> object:
        if self._folder.name == shard and request.verb == verb and left:  # type: ignore[attr-defined]
            left.clear()
            if not before:
                original(self, request, version)  # type: ignore[arg-type]
            self.close()
            raise RuntimeError("killed")
        return original(self, request, version)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardWorker, "_change", change)


@pytest.mark.parametrize("before", [True, False])
def test_a_change_that_was_not_heard_of_is_made_once(two: Path, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    with writer(two) as model:
        lose(monkeypatch, "shard-001", before=before)
        with pytest.raises(ShardError, match="shard 1: RuntimeError: killed; its part of the change is made before"):
            model.remove([1, 400])
        assert len(model(THETAS).sample_without_replacement(598, rng=0).ids) == 598  # the next call makes it
        assert model.n == 598
        monkeypatch.undo()
        lose(monkeypatch, "shard-001", before=before, verb="add")
        with pytest.raises(ShardError, match="shard 1"):
            model.add(MORE[:2], ["a", "b"])
        assert model.find("b") == 603 and model.n == 600
        np.testing.assert_array_equal(model.features.gather([601, 603]), MORE[:2])
        np.testing.assert_array_equal(model.ids, np.setdiff1d(np.arange(604), [1, 400, 600, 602]))


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupted_compaction_is_found_by_the_next_writer(
    two: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    model = writer(two)
    model.remove([1, 400])
    expected = model(THETAS).log_partition().value
    lose(monkeypatch, "shard-001", before=before, verb="compact")
    if before:
        with pytest.raises(ShardError, match="shard 1: RuntimeError: killed"):
            model.compact()
    else:
        model.compact()
    np.testing.assert_allclose(model(THETAS).log_partition().value, expected, rtol=1e-6)
    model.close()
    facts = json.loads((two / "manifest.json").read_text())
    facts["shards"][1] |= {"version": "0" * 16, "compacting": True}  # the writer ended before it noted the new files
    (two / "manifest.json").write_text(json.dumps(facts))
    with writer(two) as model:
        if before:  # there are changes, so these are not compacted files
            with pytest.raises(ShardError, match="was expected"):
                model(THETAS).sample(1)
            return
        np.testing.assert_allclose(model(THETAS).log_partition().value, expected, rtol=1e-6)
    with ShardedModel.connect(two, engine="threads") as reader:
        np.testing.assert_allclose(reader(THETAS).log_partition().value, expected, rtol=1e-6)


def test_questions_during_changes_are_of_one_version_of_all_shards(two: Path) -> None:
    """Rows 0 and 400 lie in different shards and go and come back together: nobody sees one of them alone."""
    theta = ROWS[0] + ROWS[400]
    with writer(two) as model:
        moved = np.stack([ROWS[0] + 1, ROWS[400] + 1])
        right: list[float] = []
        for rows in (ROWS[[0, 400]], moved):
            model.replace([0, 400], rows)
            right.append(float(model(theta).log_partition().value))
        stop, seen = threading.Event(), list[float]()

        def ask() -> None:
            while not stop.is_set():
                seen.append(float(model(theta).log_partition().value))

        asking = threading.Thread(target=ask)
        asking.start()
        for turn in range(60):
            model.replace([0, 400], moved if turn % 2 else ROWS[[0, 400]])
        stop.set()
        asking.join()
    assert seen and all(min(abs(value - a) for a in right) < 1e-9 for value in seen)
    assert abs(right[0] - right[1]) > 1e-3


def test_what_runs_on_a_snapshot_refuses_to_mix_versions(two: Path) -> None:
    with writer(two) as model:
        pinned = model.snapshot()
        assert pinned(THETAS).sample(2, rng=0).ids.shape == (2, 4)
        model.remove([5])
        with pytest.raises(ValueError, match="were changed meanwhile"):
            pinned(THETAS).sample(2)
        walked = lg.walk(model, 3, chains=200, temperature=2.0, rng=0)
        assert 5 not in walked.ids and 5 not in walked.start
