"""Learning: gradients and optima against brute force, runs that stop and go on, runs that go wrong, the command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from typer.testing import CliRunner

import lazygumbel as lg
from lazygumbel.cli import app
from lazygumbel.learning import Anchored, Diverged, Interrupted, Record

N, D, CLUSTERS = 3_000, 8, 40
SHORT = {"iterations": 300, "halve_every": 100, "learning_rate": 10.0}
"""Ends within 0.000001 nats of the optimum when gradients are exact."""
LENGTH = {"iterations": 120, "halve_every": 40}


@cache
def rows() -> np.ndarray:
    """Clustered rows."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(CLUSTERS, D))[rng.integers(CLUSTERS, size=N)]
    found = centres + 0.7 * rng.normal(size=(N, D))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


IDS = np.argsort(-(rows() @ rows()[7]))[:64:4]
"""Related rows whose mean lies well inside the hull of all, so that the optimum is finite: at a norm of 14."""


@cache
def model() -> lg.LogLinear:
    index = lg.PartitionIndex.build(lg.Features.of(rows(), names=[f"row{i}" for i in range(N)]), cells=64, rng=0)
    return lg.LogLinear.build(index.features, index=index, rng=0)


def log_likelihood(theta: np.ndarray, weights: np.ndarray | None = None, temperature: float = 1.0) -> float:
    """By the definition, in float64."""
    logits = rows().astype(np.float64) @ theta / temperature
    log_z = logits.max() + np.log(np.exp(logits - logits.max()).sum())
    return float(np.average(logits[IDS], weights=weights) - log_z)


def gradient(objective: Callable[[np.ndarray], float], theta: np.ndarray) -> np.ndarray:
    """Central differences."""
    steps = 1e-5 * np.eye(D)
    return np.array([objective(theta + e) - objective(theta - e) for e in steps]) / 2e-5


@cache
def optimum() -> float:
    return -minimize(lambda theta: -log_likelihood(theta), np.zeros(D), method="BFGS").fun


class TestGradient:
    """The first step is learning_rate times the gradient, so any fit of one step shows it."""

    @pytest.mark.parametrize("method", [lg.Exhaustive(), Anchored()])
    @pytest.mark.parametrize("temperature", [1.0, 0.3])
    @pytest.mark.parametrize("l2", [0.0, 0.7])
    def test_it_is_the_slope_of_the_exact_objective(self, method, temperature, l2):
        theta = np.random.default_rng(1).normal(size=D)
        theta = theta.astype(np.float32).astype(np.float64)  # as the rows see it
        weights = np.random.default_rng(2).random(len(IDS))
        options = {"weights": weights, "temperature": temperature, "l2": l2, "theta0": theta, "method": method}
        found = lg.fit(model(), IDS, iterations=1, learning_rate=0.01, **options)

        def objective(t: np.ndarray) -> float:
            return log_likelihood(t, weights, temperature) - l2 / 2 * t @ t

        slope = (found.theta - theta) / 0.01
        assert np.allclose(slope, gradient(objective, theta), atol=2e-6)
        assert found.history.gradient_norm[0] == pytest.approx(np.linalg.norm(slope), rel=1e-9)
        assert not np.allclose(slope, gradient(log_likelihood, theta), atol=2e-2), "weights and the rest change nothing"

    def test_the_recorded_log_likelihood_is_exact(self):
        weights = np.arange(1, 17)
        options = {"weights": weights, "temperature": 0.5, "l2": 0.1, "method": lg.TopKOnly(50)}
        found = lg.fit(model(), IDS, iterations=20, learning_rate=0.1, **options)
        assert found.log_likelihood == found.history.log_likelihood[-1]
        assert found.log_likelihood == pytest.approx(log_likelihood(found.theta, weights, 0.5), abs=1e-5)
        assert found.history.log_likelihood[0] == pytest.approx(-np.log(N), abs=1e-5)

    def test_weights_are_repetitions(self):
        repeats = np.arange(16) % 3
        weighted = lg.fit(model(), IDS, weights=repeats, method=lg.Exhaustive(), iterations=30)
        repeated = lg.fit(model(), np.repeat(IDS, repeats), method=lg.Exhaustive(), iterations=30)
        assert np.allclose(weighted.theta, repeated.theta, atol=1e-5)
        plain = lg.fit(model(), IDS, method=lg.Exhaustive(), iterations=30)
        assert not np.allclose(weighted.theta, plain.theta, atol=0.1)


class TestOptimum:
    def test_the_penalty_ends_where_it_balances_the_gradient(self):
        found = lg.fit(
            model(), IDS, l2=0.05, temperature=0.5, method=lg.Exhaustive(), learning_rate=1.0, iterations=300
        )
        mean = rows()[IDS].astype(np.float64).mean(axis=0)
        expected = model()(found.theta, temperature=0.5).expectation(method=lg.Exhaustive()).value
        assert np.allclose(found.theta, (mean - expected) / 0.5 / 0.05, atol=1e-4)
        assert np.linalg.norm(found.theta) > 1, "there is nothing to balance"

    @pytest.mark.parametrize(
        ("method", "gap", "share"),
        [
            (lg.Exhaustive(), 1e-6, 1.0),
            (Anchored(), 1e-5, 0.15),
            (Anchored(size=200, reach=1.0), 1e-4, 0.1),
            (lg.Bounded(rel_err=0.05), 0.002, 0.3),
            (lg.UniformTail(k=150, l=600), 0.002, 0.45),
        ],
        ids=str,
    )
    def test_every_method_that_sees_the_tail_gets_there(self, method, gap, share):
        found = lg.fit(model(), IDS, method=method, rng=3, **SHORT)
        assert optimum() - gap < found.log_likelihood < optimum() + 1e-5, "seed 3"
        assert found.rows <= share * N * SHORT["iterations"]

    def test_the_top_rows_alone_do_not(self):
        found = lg.fit(model(), IDS, method=lg.TopKOnly(100), **SHORT)
        assert found.log_likelihood < optimum() - 0.1

    @pytest.mark.parametrize("temperature", [1.0, 0.2])
    def test_the_default(self, temperature):
        rate = SHORT["learning_rate"] * temperature**2
        found = lg.fit(model(), IDS, temperature=temperature, rng=3, **SHORT | {"learning_rate": rate})
        assert optimum() - 1e-5 < found.log_likelihood < optimum() + 1e-5


class TestAnchored:
    def slopes(self, method: Anchored, seeds: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Gradients a given distance from an anchor, one for each seed, and the exact one there."""
        theta = 3.0 * rows()[7].astype(np.float64)
        first = lg.fit(model(), IDS, theta0=theta, iterations=1, learning_rate=1.0).theta - theta
        rate = distance / np.linalg.norm(first)  # the first step leads from the anchor, exactly, to this distance
        options = {"theta0": theta, "iterations": 2, "learning_rate": rate, "halve_every": None}
        found = [lg.fit(model(), IDS, method=method, rng=seed, **options).theta for seed in range(seeds)]
        here = theta + rate * first
        return (np.array(found) - here) / rate, gradient(log_likelihood, here)

    def test_estimates_scatter_about_the_truth(self):
        found, exact = self.slopes(Anchored(size=100), seeds=200, distance=0.5)
        error = found.mean(axis=0) - exact
        assert found.std(axis=0).min() > 1e-4, "nothing was random"
        # The ratio's bias is of the order of one over the size; the mean must be right to well below one run's error.
        assert np.linalg.norm(error) < 0.3 * np.sqrt(found.var(axis=0).sum())

    def test_the_error_falls_with_the_size_and_the_distance(self):
        def error(size: int, distance: float) -> float:
            found, exact = self.slopes(Anchored(size=size), seeds=20, distance=distance)
            return float(np.sqrt(((found - exact) ** 2).sum(axis=1).mean()))

        reference = error(100, 1.0)
        assert error(1600, 1.0) < reference / 3
        assert error(100, 0.1) < reference / 5

    def test_without_reach_every_step_is_exact(self):
        exact = lg.fit(model(), IDS, method=lg.Exhaustive(), iterations=40)
        found = lg.fit(model(), IDS, method=Anchored(size=10, reach=0.0), iterations=40)
        assert np.allclose(found.theta, exact.theta, atol=1e-9) and found.rows == exact.rows

    def test_an_anchor_that_is_never_renewed_does_not_do(self):
        with pytest.raises(Diverged):  # it runs away to rows that the sample lacks
            lg.fit(model(), IDS, method=Anchored(size=50, reach=1e9), rng=0, **SHORT)

    def test_the_reach_is_in_logits(self):
        """Rows ten times as long, or a temperature ten times as low, and steps to match: the same anchors."""
        plain = lg.fit(model(), IDS, rng=0, **SHORT)
        longer = lg.LogLinear.build(10 * rows())
        scaled = lg.fit(longer, IDS, rng=0, **SHORT | {"learning_rate": SHORT["learning_rate"] / 100})
        cold = lg.fit(model(), IDS, rng=0, temperature=0.1, **SHORT | {"learning_rate": SHORT["learning_rate"] / 100})
        assert np.allclose(cold.theta, plain.theta / 10, atol=3e-3)
        assert cold.rows == pytest.approx(plain.rows, rel=0.25)
        assert scaled.rows == pytest.approx(plain.rows, rel=0.25)
        further = lg.fit(model(), IDS, rng=0, method=Anchored(reach=20.0), **SHORT)
        assert further.rows != pytest.approx(plain.rows, rel=0.25), "the reach makes no difference"

    @pytest.mark.parametrize(("option", "value"), [("size", 0), ("size", 2.5), ("reach", -1.0), ("reach", np.nan)])
    def test_bad_knobs_are_refused(self, option, value):
        with pytest.raises(ValueError, match=option):
            Anchored(**{option: value})


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


class TestDivergence:
    def test_a_log_likelihood_that_collapses(self, tmp_path):
        """At a temperature of 0.02 a rate of 10 leaps over the optimum, ever further."""
        options = {"temperature": 0.02, "iterations": 100, "checkpoint_every": 1}
        with pytest.raises(Diverged, match=r"learning_rate: 10 is too high.*try 1") as stop:
            lg.fit(model(), IDS, checkpoint=tmp_path / "run", **options)
        good = stop.value.fit
        assert good.log_likelihood == good.history.log_likelihood[-1]
        assert good.log_likelihood == pytest.approx(log_likelihood(good.theta, None, 0.02), abs=1e-3)
        assert good.log_likelihood > -2 * np.log(N)
        with np.load(tmp_path / "run") as held:
            assert np.array_equal(held["theta"], good.theta)
        assert lg.fit(model(), IDS, learning_rate=10 * 0.02**2, **options).log_likelihood > optimum() - 0.1

    @pytest.mark.parametrize("method", [None, lg.Exhaustive(), lg.UniformTail(k=100, l=200)], ids=str)
    @pytest.mark.parametrize("rate", [1e60, 1e300])
    def test_a_theta_that_is_not_finite(self, method, rate):
        with pytest.raises(Diverged, match="logits overflow") as stop:
            lg.fit(model(), IDS, method=method, learning_rate=rate, iterations=100)
        good = stop.value.fit
        assert np.isfinite(good.theta).all() and good.history.iteration.tolist() == [0]
        assert isinstance(stop.value, ArithmeticError)

    @pytest.mark.parametrize("method", [None, lg.Exhaustive(), lg.UniformTail(k=100, l=200)], ids=str)
    def test_scores_beyond_float32(self, method):
        huge = lg.LogLinear.build(1e18 * rows())
        with pytest.raises(Diverged):
            lg.fit(huge, IDS, method=method, learning_rate=1e3, iterations=100)

    def test_a_look_that_sees_nothing_is_made_dense(self):
        found = lg.fit(model(), IDS, method=Blind(), iterations=20)
        exact = lg.fit(model(), IDS, method=lg.Exhaustive(), iterations=20)
        assert np.array_equal(found.theta, exact.theta)


@dataclass(frozen=True)
class Blind:
    """Looks at no row."""

    def moments(self, query, f, rng):
        seen = lg.TopKOnly(1).moments(query, f, rng)
        nothing = seen.moments
        assert nothing.weighted is not None
        nothing.total[:], nothing.weighted[:] = 0.0, 0.0
        return seen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ids": []}, "ids must be the ids of one or more rows"),
        ({"ids": [[1, 2]]}, "ids must be the ids"),
        ({"ids": 3}, "ids must be the ids"),
        ({"ids": [N]}, f"ids holds {N}"),
        ({"ids": [0.5]}, "ids must hold whole numbers"),
        ({"weights": [1.0]}, "weights must be real numbers of shape"),
        ({"weights": ["a"] * 16}, "weights must be real numbers"),
        ({"weights": [-1.0] + [1.0] * 15}, "none of them negative"),
        ({"weights": [0.0] * 16}, "not all of them zero"),
        ({"weights": [np.inf] * 16}, "weights must be finite"),
        ({"method": lg.Exhaustive}, "method"),
        ({"method": lg.LazyGumbel()}, "method"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"halve_every": 0}, "halve_every must be at least 1"),
        ({"iterations": -1}, "iterations must be at least 0"),
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"theta0": np.zeros(D + 1)}, "theta0 has 9 columns"),
        ({"theta0": np.zeros((1, D))}, "theta0 must have shape"),
        ({"theta0": np.full(D, np.nan)}, "theta0 holds NaN"),
        ({"tolerance": 0.0}, "tolerance must be greater than 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"rng": -1}, "non-negative"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        lg.fit(model(), **{"ids": IDS} | options)


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
