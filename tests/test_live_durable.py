"""Changes are on disk before the call returns, and a crash at any byte leaves the model before or after a call."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
import live_writer
from lazygumbel._support import persist
from lazygumbel._support.persist import changes_file, read_config
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.live import journal
from lazygumbel.live import rows as live_rows
from lazygumbel.live.rows import Change
from lazygumbel.model import describe
from live_writer import rows_of

KILLS = 60


@pytest.fixture(params=[ExactIndex, PartitionIndex])
def folder(request, tmp_path):
    features = lg.Features.of(rows_of(1, 200))
    index = ExactIndex.build(features) if request.param is ExactIndex else PartitionIndex.build(features, rng=0)
    lg.LogLinear(index).save(tmp_path / "model")
    return tmp_path / "model"


def log_of(folder) -> Path:
    return changes_file(folder, read_config(folder)["data"])


def state_of(folder):
    model = lg.LogLinear.load(folder)
    ids = model.ids
    return dict(zip(ids.tolist(), model.features.gather(ids), strict=True)), model.size


def failing(*_, **__):
    raise OSError("no space")


def wait_for(file, word, seconds=120):
    late = time.monotonic() + seconds
    while word not in file.read_bytes():
        assert time.monotonic() < late
        time.sleep(0.001)


def same(ours, theirs):
    rows, size = ours
    other, given = theirs
    return size == given and sorted(rows) == sorted(other) and all(np.array_equal(rows[i], other[i]) for i in rows)


def test_every_call_is_on_disk_when_it_returns(folder):
    model, expected = lg.LogLinear.load(folder, mode="r+"), state_of(folder)
    rng = np.random.default_rng(0)
    for number in range(12):
        step = live_writer.plan(rng, model.ids, number)
        live_writer.change(model, step)
        expected = live_writer.applied(*expected, step)
        assert same(state_of(folder), expected)
    assert f"logged in {folder}" in repr(model)
    facts = describe(folder)
    assert facts["n"] == len(expected[0])
    model.close()
    with pytest.raises(ValueError, match="was closed"):
        model.add(rows_of(0, 1))
    with lg.LogLinear.load(folder, mode="r+") as again:
        theta = rows_of(9, 1)[0]
        assert np.allclose(
            again(theta).log_partition(method=lg.Exhaustive()).value,
            model(theta).log_partition(method=lg.Exhaustive()).value,
            atol=1e-4,
        )


def test_names_are_logged_too(tmp_path):
    features = lg.Features.of(rows_of(1, 20), names=[f"n{i}" for i in range(20)])
    lg.LogLinear(ExactIndex.build(features)).save(tmp_path / "model")
    with lg.LogLinear.load(tmp_path / "model", mode="r+") as model:
        model.add(rows_of(2, 2), names=["é", "b"])
        model.replace([20], rows_of(3, 1))
        model.remove([0])
    names = lg.LogLinear.load(tmp_path / "model").features.names
    assert (names[20], names[21], names[1]) == ("é", "b", "n1")


def test_without_r_plus_changes_live_in_memory_only(folder):
    before = state_of(folder)
    model = lg.LogLinear.load(folder)
    with pytest.warns(UserWarning, match=r"in memory only.*mode='r\+'"):
        model.add(rows_of(2, 3))
    model.add(rows_of(3, 1))  # once is enough
    assert "in memory only" in repr(model) and same(state_of(folder), before)
    with pytest.raises(ValueError, match="mode must be"):
        lg.LogLinear.load(folder, mode="w")


def test_a_second_writer_is_refused_and_told_who_holds_the_lock(folder):
    model = lg.LogLinear.load(folder, mode="r+")
    with pytest.raises(ValueError, match=f"process {os.getpid()}"):
        lg.LogLinear.load(folder, mode="r+")
    with pytest.raises(ValueError, match="being written"):
        lg.LogLinear(ExactIndex.build(lg.Features.of(rows_of(0, 5)))).save(folder)
    with pytest.raises(ValueError, match="open at"):
        model.save(folder)
    lg.LogLinear.load(folder)  # readers need no lock
    model.close()
    lg.LogLinear.load(folder, mode="r+").close()


def in_a_fork(work):
    """Whether `work` returns something true in a child of this process."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_fork_of_the_writer_writes_nothing_and_lets_go_of_nothing(folder):
    model = lg.LogLinear.load(folder, mode="r+")
    model.add(rows_of(2, 1))

    def child():
        for call in (lambda: model.add(rows_of(3, 1)), model.compact):
            with pytest.raises(ValueError, match="forked"):
                call()
        model.close()  # its own end, not that of the writer
        return True

    assert in_a_fork(child)
    with pytest.raises(ValueError, match=f"process {os.getpid()}"):
        lg.LogLinear.load(folder, mode="r+")
    model.add(rows_of(4, 1))
    assert state_of(folder)[1] == model.size == 202
    model.close()
    lg.LogLinear.load(folder, mode="r+").close()


def test_the_lock_of_a_dead_process_is_taken_over_though_a_fork_of_it_lives(folder):
    code = (
        "import os, sys, time, lazygumbel as lg; model = lg.LogLinear.load(sys.argv[1], mode='r+')\n"
        "if os.fork() == 0: os.write(1, b'x'); time.sleep(60)\n"
        "else: os.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, process_group=0) as writer:
        try:
            assert writer.stdout.read(1) == b"x"
            with pytest.raises(ValueError, match=f"process {writer.pid}"):
                lg.LogLinear.load(folder, mode="r+")
            writer.kill()
            writer.wait(30)
            lg.LogLinear.load(folder, mode="r+").close()
        finally:
            os.killpg(writer.pid, signal.SIGKILL)


def test_the_log_cut_at_any_byte_of_its_last_record_is_the_model_before_it(folder):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.add(rows_of(2, 2))
        model.remove([5])
        before, start = state_of(folder), log_of(folder).stat().st_size
        model.replace([7], rows_of(3, 1))
        after = state_of(folder)
    whole = log_of(folder).read_bytes()
    assert not same(before, after)
    for cut in range(start, len(whole)):
        log_of(folder).write_bytes(whole[:cut])
        assert same(state_of(folder), before)
    for filler in (b"\0", b"\xff"):  # what a file system may leave in the place of what was not written
        log_of(folder).write_bytes(whole[:start] + filler * (len(whole) - start))
        assert same(state_of(folder), before)
    log_of(folder).write_bytes(whole[:-1])
    with lg.LogLinear.load(folder, mode="r+") as model:
        assert log_of(folder).stat().st_size == start
        model.add(rows_of(8, 1))
    assert len(state_of(folder)[0]) == len(before[0]) + 1
    log_of(folder).write_bytes(whole)
    assert same(state_of(folder), after)


def test_a_torn_record_whose_rows_look_like_a_record_is_dropped(folder):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.remove([5])
        before = state_of(folder)
        forged = journal._packed(Change(np.array([7]), np.empty(0, int), np.empty((0, 6), "f4"), None), 9)
        padded = forged + bytes(-len(forged) % 24)
        rows = np.frombuffer(padded, "<f4").reshape(-1, 6)
        assert np.isfinite(rows).all()
        model.add(rows)
    whole = log_of(folder).read_bytes()
    assert forged in whole
    log_of(folder).write_bytes(whole[:-1])
    assert same(state_of(folder), before)


def test_damage_before_the_end_is_refused_not_dropped(folder):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.add(rows_of(2, 2))
        model.remove([5])
    whole = bytearray(log_of(folder).read_bytes())
    for at in (0, 6, 20, 60):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        log_of(folder).write_bytes(damaged)
        with pytest.raises(ValueError, match="record 1 is damaged, but record 2 is not"):
            lg.LogLinear.load(folder)


NO_IDS, NO_ROWS = np.empty(0, dtype=np.int64), np.empty((0, 6), dtype=np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(NO_IDS, np.array([200]), np.full((1, 6), np.nan, "f4"), None), "NaN"),
        (Change(NO_IDS, np.array([200]), np.zeros((1, 5), "f4"), None), "shape"),
        (Change(NO_IDS, np.array([300]), np.zeros((1, 6), "f4"), None), "the next ones"),
        (Change(NO_IDS, np.array([7]), np.zeros((1, 6), "f4"), None), "the next ones"),
        (Change(np.array([3]), np.array([4]), np.zeros((1, 6), "f4"), None), "the next ones"),
        (Change(NO_IDS, np.array([200]), np.zeros((1, 6), "f4"), ["a"]), "names"),
        (Change(np.array([-1]), NO_IDS, NO_ROWS, None), "ids run from 0"),
        (Change(np.array([2**40]), NO_IDS, NO_ROWS, None), "ids run from 0"),
        (Change(np.array([3, 3]), NO_IDS, NO_ROWS, None), "more than once"),
        (Change(np.arange(200), NO_IDS, NO_ROWS, None), "lost all of its rows"),
    ],
    ids=range(10),
)
def test_records_that_are_whole_but_not_of_this_model_are_refused(folder, change, words):
    """Checksums tell of damage; who means it can compute them."""
    log_of(folder).write_bytes(journal._packed(change, 1))
    for mode in ("r", "r+"):
        with pytest.raises(ValueError, match=f"(change 1 of its log is not of this model|is a shard).*{words}"):
            lg.LogLinear.load(folder, mode=mode)
    log_of(folder).write_bytes(b"")
    lg.LogLinear.load(folder, mode="r+").close()


def test_a_disk_that_is_full_leaves_the_model_as_it_was(folder, monkeypatch):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.add(rows_of(2, 2))
        before = state_of(folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(OSError, match="no space"):
                model.add(rows_of(3, 2))
        assert model.size == before[1] and same(state_of(folder), before)
        model.add(rows_of(4, 1))
        assert same(state_of(folder), live_writer.applied(*before, {"kind": "add", "tag": 4, "count": 1}))


def test_a_log_from_which_nothing_can_be_taken_back_takes_no_more(folder, monkeypatch):
    """What was written of a record would stand before those that come later, which would be lost."""
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.add(rows_of(2, 2))
        before = state_of(folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            patch.setattr(os, "truncate", failing)
            with pytest.raises(OSError, match="no space"):
                model.add(rows_of(3, 2))
        with pytest.raises(ValueError, match="open it again"):
            model.add(rows_of(4, 1))
    os.truncate(log_of(folder), log_of(folder).stat().st_size - 1)
    assert same(state_of(folder), before)


def test_ctrl_c_after_the_flush_takes_the_change_back(folder, monkeypatch):
    real = os.fsync
    with lg.LogLinear.load(folder, mode="r+") as model:
        before = state_of(folder)
        with monkeypatch.context() as patch:

            def interrupted(handle):
                real(handle)
                patch.setattr(os, "fsync", real)
                raise KeyboardInterrupt

            patch.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.add(rows_of(3, 2))
        assert same(state_of(folder), before)
        assert model.add(rows_of(4, 1)).tolist() == [200]
        assert same(state_of(folder), live_writer.applied(*before, {"kind": "add", "tag": 4, "count": 1}))


def test_a_batch_that_is_refused_leaves_no_trace(folder):
    bad = rows_of(2, 4)
    bad[2, 1] = np.inf
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.remove([9])
        before, log = state_of(folder), log_of(folder).read_bytes()
        for call, words in (
            (lambda: model.add(bad), r"rows\[2\]"),
            (lambda: model.replace([0, 1, 2, 3], bad), r"rows\[2\]"),
            (lambda: model.remove([1, 9]), "9, but the row with this id was removed"),
            (lambda: model.remove([1, 500]), "500"),
        ):
            with pytest.raises(ValueError, match=words):
                call()
        assert log_of(folder).read_bytes() == log and same(state_of(folder), before)
        assert model.features.n == 199


def test_info_says_that_a_rebuild_would_pay_after_all_rows_were_replaced_by_others(tmp_path):
    from typer.testing import CliRunner

    from lazygumbel.cli import app

    rng = np.random.default_rng(0)
    phi = (3 * rng.standard_normal((20, 6))[rng.integers(20, size=2000)] + 0.2 * rng.standard_normal((2000, 6))).astype(
        "f4"
    )
    lg.LogLinear(PartitionIndex.build(phi, rng=0)).save(tmp_path / "model")
    advice = []
    for step in range(3):
        found = CliRunner().invoke(app, ["info", str(tmp_path / "model"), "--json"])
        advice.append(json.loads(found.stdout).get("drift") or {"advice": "nothing to gain"})
        chosen = np.arange(1000 * step, min(1000 * step + 1000, 2000))
        if len(chosen):
            with lg.LogLinear.load(tmp_path / "model", mode="r+") as model:
                model.replace(chosen, 2 * rows_of(step, len(chosen)) + 5)
    assert advice[0]["advice"] == "nothing to gain" and "compact(rebuild=True)" in advice[2]["advice"]
    assert advice[2]["residuals"] > 1.5 and advice[2]["removed"] == 2000
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "model")]).output
    assert "rebuild=True" in "".join(shown.split())  # as people see it, whatever the width of the table


def test_a_change_that_was_logged_but_not_made_stops_further_ones(folder, monkeypatch):
    with lg.LogLinear.load(folder, mode="r+") as model:
        with monkeypatch.context() as patch:
            patch.setattr(live_rows.Live, "_plus", failing)
            with pytest.raises(OSError, match="no space"):
                model.add(rows_of(2, 2))
        for call in (lambda: model.add(rows_of(3, 1)), model.compact):
            with pytest.raises(ValueError, match="load"):
                call()
    assert state_of(folder)[1] == 202


def test_leftovers_never_stop_a_start_and_a_log_of_other_data_means_nothing(folder):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.add(rows_of(2, 40))
    log, expected = log_of(folder).read_bytes(), state_of(folder)
    (folder / "data-0123456789abcdef").mkdir()
    (folder / "changes-0123456789abcdef.log").write_bytes(log)
    (folder / "writer.lock").write_text("process 1 on a machine that is no more")
    assert same(state_of(folder), expected)
    with lg.LogLinear.load(folder, mode="r+") as model:
        old = log_of(folder)
        model.compact()
        assert same(state_of(folder), expected)
        assert not old.exists() and log_of(folder).stat().st_size == 0
        assert sorted(p.name for p in folder.iterdir() if p.name != "writer.lock") == sorted(
            ["config.json", read_config(folder)["data"], log_of(folder).name]
        )
        model.add(rows_of(3, 1))
    assert state_of(folder)[1] == expected[1] + 1


def test_a_model_saved_over_another_does_not_inherit_its_changes(folder):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.remove(np.arange(10))
    lg.LogLinear(ExactIndex.build(lg.Features.of(rows_of(5, 30)))).save(folder)
    assert same(state_of(folder), (dict(enumerate(rows_of(5, 30))), 30))


def test_a_crash_while_compacting_leaves_the_model_as_it_was(folder, monkeypatch):
    with lg.LogLinear.load(folder, mode="r+") as model:
        model.add(rows_of(2, 40))
        model.remove([3])
        before = state_of(folder)
        for module, name in ((os, "replace"), (os, "fsync"), (persist, "_sweep")):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, failing)
                with pytest.raises(OSError, match="no space"):
                    model.compact()
            assert same(state_of(folder), before)
            model.add(rows_of(7, 1))  # also where the new data was in place when it failed
            before = live_writer.applied(*before, {"kind": "add", "tag": 7, "count": 1})
            assert same(state_of(folder), before)
        model.compact()
        assert same(state_of(folder), before)


def test_killed_at_random_moments_it_is_the_model_before_or_after_the_last_call(folder, tmp_path):
    acks, fresh = tmp_path / "acks", shutil.copytree(folder, tmp_path / "fresh")
    acks.touch()
    script = [sys.executable, live_writer.__file__, str(folder), str(acks)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    rng = np.random.default_rng(4)
    expected, calls, during = state_of(folder), 0, 0
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        for seed in range(KILLS):
            writer.stdin.write(f"{seed + 1}\n")
            writer.stdin.flush()
            pid = int(writer.stdout.readline())
            if seed % 2:  # after a call, whatever the machine has to do besides; else at any time
                wait_for(acks, b"done")
            time.sleep(float(rng.uniform(0.0, 0.05)))
            os.kill(pid, signal.SIGKILL)
            assert writer.stdout.readline() == "over\n"
            lines = acks.read_text().split("\n")[:-1]
            acks.write_text("")
            steps = [json.loads(line) for line in lines if line != "done"]
            finished = lines.count("done")
            for step in steps[:finished]:
                expected = live_writer.applied(*expected, step)
            found = state_of(folder)
            calls += finished
            if not same(found, expected):
                assert len(steps) == finished + 1  # a call that had not returned
                expected = live_writer.applied(*expected, steps[-1])
                during += 1
                assert same(found, expected)
            if seed % 20 == 19:  # small again, so that loading stays quick
                shutil.rmtree(folder)
                shutil.copytree(fresh, folder)
                expected = state_of(folder)
        writer.stdin.close()
    assert calls >= KILLS // 2  # else nothing was put to the test


def test_the_command_line_changes_a_model_on_disk(folder, tmp_path):
    from typer.testing import CliRunner

    from lazygumbel.cli import app

    def run(*words):
        found = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    np.save(tmp_path / "new.npy", rows_of(3, 2))
    assert run("add", folder, tmp_path / "new.npy") == {
        "added": 2,
        "first_id": 200,
        "last_id": 201,
        "n": 202,
        "ids": 202,
    }
    assert run("remove", folder, 0, 200)["n"] == 200
    assert run("replace", folder, tmp_path / "new.npy", 5, 201)["replaced"] == 2
    held, size = state_of(folder)
    assert size == 202 and 0 not in held and np.array_equal(held[5], rows_of(3, 2)[0])
    facts = run("info", folder)
    assert facts["n"] == 200 and facts["changes"] == 8 and facts["drift"]["removed"] == 4
    assert run("top-k", folder, 1, "--row", 201)["names"] is None
    assert run("compact", folder)["n"] == 200
    assert same(state_of(folder), (held, size)) and run("info", folder)["changes"] == 0
    assert CliRunner().invoke(app, ["remove", str(folder), "0"]).exit_code != 0
