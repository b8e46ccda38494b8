"""`fit` that is interrupted, resumed, and run from the command line."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lazygumbel as lg
from lazygumbel.cli import app
from lazygumbel.learning import Anchored, Interrupted, Record
from learning_helpers import IDS, LENGTH, D, log_likelihood, model, optimum, rows


class TestCheckpoints:
    def test_history_and_callback_agree(self):
        seen: list[Record] = []
        found = lg.fit(model(), IDS, iterations=100, rng=0, callback=seen.append)
        history = found.history
        assert history.iteration.tolist() == list(range(0, 101, 5)) and len(history) == 21
        for column, values in vars(history).items():
            assert values.tolist() == [getattr(record, column) for record in seen]
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 0
        assert np.array_equal(seen[-1].theta, found.theta) and not seen[0].theta.any()
        assert history.rows[0] == 0 and history.rows[-1] == found.rows and (np.diff(history.rows) > 0).all()
        assert history.seconds[0] == 0 and (np.diff(history.seconds) > 0).all()

    def test_the_last_iteration_is_always_one(self):
        found = lg.fit(model(), IDS, iterations=7, checkpoint_every=3)
        assert found.history.iteration.tolist() == [0, 3, 6, 7]
        assert lg.fit(model(), IDS, iterations=0).history.iteration.tolist() == [0]

    def test_a_callback_stops_the_run(self):
        found = lg.fit(model(), IDS, iterations=100, rng=0, callback=lambda record: record.iteration == 40)
        full = lg.fit(model(), IDS, iterations=100, rng=0, checkpoint_every=40)
        assert found.history.iteration[-1] == 40
        assert found.log_likelihood == full.history.log_likelihood[1]

    def test_tolerance_stops_when_the_log_likelihood_has_settled(self):
        options = {"iterations": 2000, "checkpoint_every": 20, "rng": 0}
        found = lg.fit(model(), IDS, tolerance=1e-3, **options)
        values = found.history.log_likelihood
        assert 60 <= found.history.iteration[-1] < 1000
        assert np.abs(np.diff(values)[-2:]).max() < 1e-3
        assert max(np.abs(np.diff(values))[:-2][-1], np.abs(np.diff(values))[-2]) >= 1e-3, (
            "it could have stopped before"
        )
        assert found.log_likelihood > optimum() - 0.02

    def test_progress_counts_the_steps(self):
        counted = Counter()
        lg.fit(model(), IDS, iterations=30, progress=counted)
        assert counted.done == counted.total == 30

    def test_the_rate_is_halved(self):
        seen: list[Record] = []
        options = {"learning_rate": 0.1, "method": lg.Exhaustive(), "checkpoint_every": 1, "iterations": 6}
        lg.fit(model(), IDS, halve_every=2, callback=seen.append, **options)
        steps = [np.linalg.norm(b.theta - a.theta) / a.gradient_norm for a, b in pairwise(seen)]
        assert np.allclose(steps, [0.1, 0.1, 0.05, 0.05, 0.025, 0.025])


class Counter:
    """A progress object that counts, and can press Ctrl-C after so many steps."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.done, self.total, self.interrupt_at = 0.0, 0.0, interrupt_at

    @contextmanager
    def task(self, label: str, total: float):
        assert label == "fitting"
        self.total = total
        yield self

    def advance(self, amount: float) -> None:
        self.done += amount
        if self.interrupt_at is not None and self.done >= self.interrupt_at:
            raise KeyboardInterrupt


class InterruptedLook:
    """`UniformTail`, with Ctrl-C in the middle of one look."""

    def __init__(self, at: int | None) -> None:
        self.calls, self.at = 0, at

    def moments(self, query, f, rng):
        self.calls += 1
        rng.random(3)  # the generator has moved on when the interrupt comes
        if self.calls == self.at:
            raise KeyboardInterrupt
        return lg.UniformTail(k=100, l=200).moments(query, f, rng)


def same(a: lg.Fit, b: lg.Fit) -> bool:
    """Equal to the last bit, times apart."""
    columns = ("iteration", "log_likelihood", "gradient_norm", "rows")
    return (
        np.array_equal(a.theta, b.theta)
        and (a.log_likelihood, a.rows) == (b.log_likelihood, b.rows)
        and all(np.array_equal(getattr(a.history, c), getattr(b.history, c)) for c in columns)
    )


class TestResume:
    @pytest.mark.parametrize(
        "method",
        [Anchored(size=200, reach=0.5), lg.UniformTail(k=100, l=200), lg.Bounded(rel_err=0.1), lg.Exhaustive()],
        ids=str,
    )
    @pytest.mark.parametrize("at", [30, 37])  # a checkpoint, and between two
    def test_a_resumed_run_is_the_run(self, tmp_path, method, at):
        full = lg.fit(model(), IDS, method=method, rng=1, **LENGTH)
        path = tmp_path / "run.npz"
        options = {"method": method, "checkpoint": path, **LENGTH}
        with pytest.raises(Interrupted) as stop:
            lg.fit(model(), IDS, rng=1, progress=Counter(interrupt_at=at), **options)
        stopped = stop.value.fit
        assert str(stop.value) == f"interrupted at iteration {at}"
        assert stopped.log_likelihood == pytest.approx(log_likelihood(stopped.theta), abs=1e-5)
        resumed = lg.fit(model(), IDS, rng=99, resume=True, **options)
        assert same(resumed, full)
        assert resumed.history.seconds[-1] > stopped.history.seconds[-1] > 0
        assert not same(lg.fit(model(), IDS, method=method, rng=2, **LENGTH), full) or method == lg.Exhaustive()
        assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]

    def test_ctrl_c_within_a_step_undoes_that_step(self, tmp_path):
        full = lg.fit(model(), IDS, method=InterruptedLook(None), rng=1, **LENGTH)
        options = {"checkpoint": tmp_path / "run", **LENGTH}
        with pytest.raises(KeyboardInterrupt):
            lg.fit(model(), IDS, method=InterruptedLook(51), rng=1, **options)
        assert same(lg.fit(model(), IDS, method=InterruptedLook(None), resume=True, **options), full)

    def test_ctrl_c_at_the_very_start(self, tmp_path):
        options = {"checkpoint": tmp_path / "run", **LENGTH}
        with pytest.raises(Interrupted) as stop:
            lg.fit(model(), IDS, method=InterruptedLook(1), rng=1, **options)
        assert not stop.value.fit.theta.any() and len(stop.value.fit.history) == 0
        full = lg.fit(model(), IDS, method=InterruptedLook(None), rng=1, **LENGTH)
        assert same(lg.fit(model(), IDS, method=InterruptedLook(None), resume=True, **options), full)

    def test_a_run_can_be_made_longer(self, tmp_path):
        path = tmp_path / "run"
        options = {"checkpoint_every": 20, "rng": 0, "checkpoint": path}
        short = lg.fit(model(), IDS, iterations=40, **options)
        assert same(lg.fit(model(), IDS, iterations=40, resume=True, **options), short)
        longer = lg.fit(model(), IDS, iterations=100, resume=True, **options)
        assert same(longer, lg.fit(model(), IDS, iterations=100, **options))
        with pytest.raises(ValueError, match="already"):
            lg.fit(model(), IDS, iterations=40, resume=True, **options)

    def test_a_settled_run_stays_settled(self, tmp_path):
        options = {"iterations": 2000, "checkpoint_every": 20, "tolerance": 1e-2, "rng": 0}
        settled = lg.fit(model(), IDS, checkpoint=tmp_path / "run", **options)
        assert same(lg.fit(model(), IDS, checkpoint=tmp_path / "run", resume=True, **options), settled)

    @pytest.mark.parametrize(
        "other",
        [
            {"ids": IDS + 1},
            {"weights": np.arange(16) + 1},
            {"theta0": np.ones(D)},
            {"method": Anchored(size=100)},
            {"learning_rate": 1.0},
            {"halve_every": None},
            {"temperature": 2.0},
            {"l2": 0.1},
            {"features": 1},
        ],
        ids=lambda other: next(iter(other)),
    )
    def test_another_problem_is_refused(self, tmp_path, other):
        path = tmp_path / "run"
        lg.fit(model(), IDS, iterations=10, checkpoint=path)
        before = path.read_bytes()
        name = next(iter(other))
        asked = lg.LogLinear.build(rows()[::-1]) if name == "features" else model()
        options = {"ids": IDS} | {key: value for key, value in other.items() if key != "features"}
        with pytest.raises(ValueError, match=name):
            lg.fit(asked, **options, iterations=10, checkpoint=path, resume=True)
        assert path.read_bytes() == before

    def test_the_file_is_plain_data(self, tmp_path):
        path = tmp_path / "run"
        lg.fit(model(), IDS, iterations=10, checkpoint=path)
        with np.load(path, allow_pickle=False) as held:
            facts = json.loads(str(held["facts"]))
            assert held["theta"].dtype == np.float64
        assert (facts["format"], facts["version"], facts["iteration"]) == ("lazygumbel-fit", 1, 10)
        assert len(facts["rng"]) == 2

    def archive(self, path: Path, **arrays: np.ndarray) -> None:
        with path.open("wb") as stream:
            np.savez(stream, **arrays)

    @pytest.mark.parametrize("resume", [False, True])
    def test_a_file_of_another_kind_is_left_alone(self, tmp_path, resume):
        path = tmp_path / "run"
        for write in (
            lambda: path.write_text("a novel"),
            lambda: path.write_bytes(b""),
            lambda: self.archive(path, theta=np.zeros(3)),
            lambda: self.archive(path, facts=np.array('{"format": "lazygumbel-fit", "version": 2}')),
            lambda: self.archive(path, facts=np.array("[1]")),
        ):
            write()
            before = path.read_bytes()
            with pytest.raises(ValueError, match="checkpoint"):
                lg.fit(model(), IDS, iterations=10, checkpoint=path, resume=resume)
            assert path.read_bytes() == before

    def test_there_must_be_something_to_resume(self, tmp_path):
        with pytest.raises(ValueError, match="resume needs checkpoint"):
            lg.fit(model(), IDS, resume=True)
        with pytest.raises(ValueError, match="resume: there is no file"):
            lg.fit(model(), IDS, checkpoint=tmp_path / "absent", resume=True)

    def test_the_path_must_be_usable(self, tmp_path):
        with pytest.raises(ValueError, match="is a folder"):
            lg.fit(model(), IDS, checkpoint=tmp_path)
        with pytest.raises(ValueError, match="there is no folder"):
            lg.fit(model(), IDS, checkpoint=tmp_path / "absent" / "run")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved models and files of rows."""
    path = tmp_path_factory.mktemp("fit")
    model().save(path / "model")
    lg.LogLinear.build(rows()).save(path / "nameless")
    (path / "ids.txt").write_text("\n".join(map(str, IDS)) + "\n\n")
    (path / "names.txt").write_text("".join(f"row{i}\r\n" for i in IDS))
    return path


class TestCommand:
    def run(self, folder: Path, rows_file: str, *more: object, code: int = 0):
        arguments = ["fit", folder / "model", folder / rows_file, "--out", folder / "theta.npy", "--seed", 0, *more]
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    @pytest.mark.parametrize("rows_file", ["ids.txt", "names.txt"])
    def test_a_file_of_ids_or_names(self, folder, rows_file):
        result = self.run(folder, rows_file, "--iterations", 100, "--learning-rate", 4, "--halve-every", 30)
        expected = lg.fit(model(), IDS, iterations=100, learning_rate=4.0, halve_every=30, rng=0)
        assert np.array_equal(np.load(folder / "theta.npy"), expected.theta)
        lines = result.stdout.splitlines()
        assert lines[0].split() == ["iteration", "log-likelihood", "gradient", "rows", "seconds"]
        assert lines[21].split()[:2] == ["100", f"{expected.log_likelihood:.6f}"]
        logits = rows().astype(np.float64) @ expected.theta
        logits[IDS] = -np.inf
        best = np.argsort(-logits)[:10]
        assert [line.split()[:2] for line in lines[-10:]] == [[str(i), f"row{i}"] for i in best]
        assert result.stderr == ""

    @pytest.mark.parametrize(
        ("name", "method"),
        [
            ("anchored", Anchored()),
            ("exhaustive", lg.Exhaustive()),
            ("bounded", lg.Bounded()),
            ("uniform-tail", lg.UniformTail(k=548, l=5478)),
            ("top-k", lg.TopKOnly(3000)),
        ],
    )
    def test_json(self, folder, name, method):
        result = self.run(folder, "ids.txt", "--iterations", 20, "--l2", 0.1, "--method", name, "--json")
        found = json.loads(result.stdout)
        expected = lg.fit(model(), IDS, iterations=20, l2=0.1, rng=0, method=method)
        assert found["log_likelihood"] == expected.log_likelihood and found["rows"] == expected.rows
        assert found["history"]["log_likelihood"] == expected.history.log_likelihood.tolist()
        assert len(found["ids"]) == 10 and not set(found["ids"]) & set(IDS.tolist()) and found["learnt"] == IDS.tolist()
        logits = rows().astype(np.float64) @ expected.theta
        chances = np.exp(logits) / np.exp(logits).sum()
        assert np.allclose(found["probabilities"], chances[found["ids"]], rtol=1e-4)
        assert len(result.stderr.splitlines()) == 22

    def test_a_run_goes_on(self, folder, tmp_path):
        kept = ("--checkpoint", tmp_path / "run")
        self.run(folder, "ids.txt", "--iterations", 50, *kept)
        self.run(folder, "ids.txt", "--iterations", 100, *kept, "--resume")
        assert np.array_equal(np.load(folder / "theta.npy"), lg.fit(model(), IDS, iterations=100, rng=0).theta)

    def test_every_row_may_be_learnt(self, tmp_path):
        lg.LogLinear.build(rows()[:5]).save(tmp_path / "few")
        (tmp_path / "all.txt").write_text("0\n1\n2\n3\n4\n")
        arguments = ["fit", tmp_path / "few", tmp_path / "all.txt", "--out", tmp_path / "theta.npy", "--json"]
        result = CliRunner().invoke(app, [str(a) for a in [*arguments, "--iterations", 5]])
        assert json.loads(result.stdout)["ids"] == []

    @pytest.mark.parametrize(
        ("content", "options", "said"),
        [
            (None, (), "rows: there is no file"),
            ("", (), "holds no row"),
            ("row1\nnobody\n", (), "no row is named 'nobody'"),
            ("1\n3000\n", (), "ids holds 3000"),
            ("-1\n", (), "ids holds -1"),
            ("1\n", ("--method", "guess"), "method: 'guess' is none of anchored"),
            ("1\n", ("--learning-rate", 0), "learning_rate must be greater than 0"),
            ("1\n", ("--resume",), "resume needs checkpoint"),
            ("1\n2\n", ("--learning-rate", 1e60), "learning_rate: 1e+60 is too high"),
        ],
    )
    def test_bad_input_ends_in_one_line(self, folder, tmp_path, content, options, said):
        if content is not None:
            (tmp_path / "rows.txt").write_text(content)
        before = set(folder.iterdir())
        arguments = ("fit", folder / "model", tmp_path / "rows.txt", "--out", tmp_path / "out.npy", "--json", *options)
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == 2 and result.stdout == ""
        last = result.stderr.splitlines()[-1]
        assert last.startswith("lazygumbel: ") and said in last
        assert "is too high" in said or len(result.stderr.splitlines()) == 1  # a curve had begun
        assert not (tmp_path / "out.npy").exists() and set(folder.iterdir()) == before

    def test_other_bad_files(self, folder, tmp_path):
        (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
        (tmp_path / "words").write_text("row1\n")
        for name, model_name, said in (
            ("bytes", "model", "not a text file"),
            ("words", "nameless", "have none; give ids"),
        ):
            arguments = ["fit", folder / model_name, tmp_path / name, "--out", tmp_path / "out.npy"]
            result = CliRunner().invoke(app, [str(a) for a in arguments])
            assert result.exit_code == 2 and said in result.stderr
        result = CliRunner().invoke(
            app, ["fit", str(folder / "model"), str(tmp_path / "words"), "--out", str(tmp_path)]
        )
        assert result.exit_code == 2 and "out: " in result.stderr and "is a folder" in result.stderr

    def test_ctrl_c_keeps_the_run(self, folder, tmp_path):
        """A real signal to a real process."""
        kept = tmp_path / "run"
        arguments = ["fit", folder / "model", folder / "ids.txt", "--out", tmp_path / "theta.npy", "--checkpoint", kept]
        command = [sys.executable, "-c", "from lazygumbel.cli import main; main()", *map(str, arguments)]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            [*command, "--iterations", "10000000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
        assert process.returncode == 130
        assert said.startswith("lazygumbel: interrupted at iteration ") and "--resume" in said and "\n" not in said[:-1]
        assert not (tmp_path / "theta.npy").exists()
        with np.load(kept) as held:
            done = json.loads(str(held["facts"]))["iteration"]
        more = str(done + 10)
        result = CliRunner().invoke(app, [*map(str, arguments), "--resume", "--iterations", more])
        assert result.exit_code == 0 and np.load(tmp_path / "theta.npy").shape == (D,)
