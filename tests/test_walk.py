"""The Markov chain against its transition matrix and its stationary law; what a `Walk` reports; the command."""

import json
import sys
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import lazygumbel as lg
from lazygumbel.cli import app
from statistics_helpers import chi_square_p, make_rows, mean_p, probabilities_of

N_EXACT, N_RACED, TEMPERATURE = 60, 2_000, 0.05
METHODS = {"exhaustive": lg.Exhaustive(), "bounded": lg.Bounded()}


@cache
def rows_of(kind: str) -> np.ndarray:
    """Rows that lean one way, so that some are visited far more often than others; of varied norms, or of norm one."""
    rows = make_rows(N_EXACT, 4, varied=True, seed=2) if kind == "exact" else make_rows(N_RACED, 8, seed=3)
    leaning = rows + np.float32(0.5) * np.eye(1, rows.shape[1], dtype=np.float32)
    return leaning if kind == "exact" else leaning / np.linalg.norm(leaning, axis=1, keepdims=True)


@cache
def model_of(kind: str) -> lg.LogLinear:
    features = lg.Features.of(rows_of(kind), names=[f"word{i}" for i in range(len(rows_of(kind)))])
    if kind == "exact":
        return lg.LogLinear.build(features)
    return lg.LogLinear(lg.PartitionIndex.build(features, cells=64, rng=0))


def weights_of(rows: np.ndarray, temperature: float = TEMPERATURE, *, stay: bool = True) -> np.ndarray:
    """w_ij = exp(phi_i . phi_j / temperature), by brute force."""
    exact = rows.astype(np.float64)
    weights = np.exp(exact @ exact.T / temperature)
    if not stay:
        np.fill_diagonal(weights, 0.0)
    return weights


def transitions_of(rows: np.ndarray, temperature: float = TEMPERATURE, *, stay: bool = True) -> np.ndarray:
    """Row j holds Pr(j -> i)."""
    weights = weights_of(rows, temperature, stay=stay)
    return weights / weights.sum(axis=1, keepdims=True)


def stationary_of(rows: np.ndarray, temperature: float = TEMPERATURE, *, stay: bool = True) -> np.ndarray:
    """pi_j = Z_j / sum of Z, with Z_j the sum of w_ij over i.

    Proof. P_ji = w_ij / Z_j, so pi_j P_ji is proportional to w_ij, and w_ij = w_ji because phi_i . phi_j is symmetric:
    the chain is in detailed balance with pi. Setting the diagonal to zero keeps w symmetric.
    """
    totals = weights_of(rows, temperature, stay=stay).sum(axis=1)
    return totals / totals.sum()


def ranks_of(walked: lg.Walk, transitions: np.ndarray, seed: int) -> np.ndarray:
    """Every step of a walk as one number, uniform on [0, 1] and independent of the others if the law is `transitions`.

    From the state before a step, states are lined up by decreasing probability; the number lies within the stretch of
    the state that was drawn.
    """
    before = np.concatenate([walked.start[None], walked.ids[:-1]]).reshape(-1)
    order = np.argsort(-transitions, axis=1)
    rank = np.argsort(order, axis=1)[before, walked.ids.reshape(-1)]
    ends = np.cumsum(np.take_along_axis(transitions, order, axis=1), axis=1)[before, rank]
    width = transitions[before, walked.ids.reshape(-1)]
    return ends - width * np.random.default_rng(seed).random(len(before))


def uniform_p(numbers: np.ndarray) -> float:
    return chi_square_p((np.clip(numbers, 0, 1 - 1e-12) * 50).astype(np.int64), np.full(50, 1 / 50))


@pytest.mark.parametrize("method", METHODS)
class TestLaw:
    """Every step of the chain, by brute force and by the default method."""

    def test_one_step_follows_the_transition_matrix(self, method):
        model, rows = model_of("raced"), rows_of("raced")
        walked = lg.walk(model, 1, start=7, chains=4_000, temperature=TEMPERATURE, method=METHODS[method], rng=4)
        assert walked.label == ("exact" if method == "exhaustive" else "bounded")
        p = chi_square_p(walked.ids, probabilities_of(rows, rows[7], TEMPERATURE))
        assert p > 1e-4, f"seed 4: p = {p}"
        wrong = chi_square_p(walked.ids, probabilities_of(rows, rows[7], 1.3 * TEMPERATURE))
        assert wrong < 1e-10, f"a wrong temperature goes unnoticed: p = {wrong}"

    def test_every_step_follows_the_row_before_it(self, method):
        walked = lg.walk(model_of("raced"), 20, chains=200, temperature=TEMPERATURE, method=METHODS[method], rng=5)
        transitions = transitions_of(rows_of("raced"))
        p = uniform_p(ranks_of(walked, transitions, 0))
        assert p > 1e-4, f"seed 5: p = {p}"
        hotter = transitions_of(rows_of("raced"), 1.3 * TEMPERATURE)
        assert uniform_p(ranks_of(walked, hotter, 0)) < 1e-10
        # Every other row of the path: what a chain would look like whose theta lags a step behind.
        stale = lg.Walk(walked.ids[1::2], walked.start, walked.n, walked.rows[1::2], walked.label)
        assert uniform_p(ranks_of(stale, transitions, 0)) < 1e-10

    def test_steps_to_other_rows_follow_the_rest_of_the_matrix(self, method):
        walked = lg.walk(
            model_of("raced"),
            20,
            chains=200,
            temperature=TEMPERATURE,
            method=METHODS[method],
            stay=False,
            rng=6,
        )
        assert walked.label == ("exact" if method == "exhaustive" else "bounded")
        p = uniform_p(ranks_of(walked, transitions_of(rows_of("raced"), stay=False), 0))
        assert p > 1e-4, f"seed 6: p = {p}"
        assert uniform_p(ranks_of(walked, transitions_of(rows_of("raced")), 0)) < 1e-10
        hotter = transitions_of(rows_of("raced"), 1.3 * TEMPERATURE, stay=False)
        assert uniform_p(ranks_of(walked, hotter, 0)) < 1e-10

    def test_chains_are_independent_of_each_other(self, method):
        """Chains that start together: where one goes says nothing of where its neighbour in the batch goes."""
        walked = lg.walk(
            model_of("raced"), 2, start=7, chains=4_000, temperature=TEMPERATURE, method=METHODS[method], rng=7
        )
        likely = np.argsort(-probabilities_of(rows_of("raced"), rows_of("raced")[7], TEMPERATURE))
        group = np.empty(walked.n, dtype=np.int64)
        group[likely] = np.minimum(np.log2(np.arange(walked.n) + 1), 5).astype(np.int64)
        for step in group[walked.ids]:
            assert dependence_p(step[::2], step[1::2]) > 1e-4
            twins = np.where(np.arange(len(step[::2])) % 4 == 0, step[::2], step[1::2])
            assert dependence_p(step[::2], twins) < 1e-10


def dependence_p(a: np.ndarray, b: np.ndarray) -> float:
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    return float(stats.chi2_contingency(table)[1])


@pytest.mark.parametrize("stay", [True, False])
def test_chains_settle_on_the_stationary_law(stay):
    """After mixing, the last rows of independent chains are independent draws from pi."""
    rows, steps = rows_of("exact"), 15
    transitions, law = transitions_of(rows, 1.0, stay=stay), stationary_of(rows, 1.0, stay=stay)
    uniform = np.full(len(rows), 1 / len(rows))
    assert np.abs(uniform @ np.linalg.matrix_power(transitions, steps) - law).sum() < 1e-3
    walked = lg.walk(model_of("exact"), steps, chains=2_500, temperature=1.0, stay=stay, rng=8)
    p = chi_square_p(walked.ids[-1], law)
    assert p > 1e-4, f"seed 8: p = {p}"
    assert chi_square_p(walked.ids[-1], stationary_of(rows, 2.0, stay=stay)) < 1e-10
    assert chi_square_p(walked.ids[-1], uniform) < 1e-10


def test_long_run_shares_are_proportional_to_z():
    """Visits of the chain; chains are independent, so their spread gives the error of the mean."""
    rows, chains = rows_of("raced"), 100
    law = stationary_of(rows, 0.2)
    walked = lg.walk(model_of("raced"), 120, chains=chains, temperature=0.2, rng=9).window(20, 120)
    often = law >= np.quantile(law, 0.8)
    shares = often[walked.ids].mean(axis=0)
    p = mean_p(shares, law[often].sum())
    assert walked.label == "bounded" and p > 1e-4, f"seed 9: p = {p}"
    assert mean_p(shares, often.mean()) < 1e-10, "the test cannot tell pi from uniform"


def test_a_row_that_holds_nearly_all_mass_is_left_at_last():
    """It is excluded: also `TopKOnly(1)`, which would never draw anything else, goes to the best of the others."""
    rows, j = rows_of("exact"), int(np.linalg.norm(rows_of("exact"), axis=1).argmax())
    law = transitions_of(rows, 0.5, stay=False)[j]
    options = {"start": j, "chains": 1_000, "temperature": 0.5, "stay": False, "rng": 10}
    raced = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))
    for model, method, label in (
        (model_of("exact"), lg.Exhaustive(), "exact"),
        (raced, lg.Bounded(), "bounded"),
        (raced, lg.Exhaustive(), "exact"),
    ):
        walked = lg.walk(model, 1, method=method, **options)
        assert walked.label == label
        p = chi_square_p(walked.ids, law)
        assert p > 1e-4, f"seed 10, {method}: p = {p}"
        assert chi_square_p(walked.ids, transitions_of(rows, 0.7, stay=False)[j]) < 1e-10
    walked = lg.walk(model_of("exact"), 1, method=lg.TopKOnly(k=1), **options)
    assert walked.label == "heuristic" and (walked.ids == law.argmax()).all()


def test_a_cold_chain_moves_when_it_must():
    rows = rows_of("raced")
    assert np.diag(transitions_of(rows, 0.005)).min() > 0.5
    walked = lg.walk(model_of("raced"), 3, chains=20, temperature=0.005, stay=False, rng=0)
    before = np.concatenate([walked.start[None], walked.ids[:-1]])
    assert (walked.ids != before).all()


def test_starts():
    model = model_of("exact")
    assert np.array_equal(lg.walk(model, 1, start=5, chains=3, rng=0).start, [5, 5, 5])
    assert np.array_equal(lg.walk(model, 1, start=[5, 6, 7], chains=3, rng=0).start, [5, 6, 7])
    # At so low a temperature every chain stays: at the row it started from, not at another chain's.
    cold = lg.walk(model_of("raced"), 2, start=[5, 6, 7], chains=3, temperature=1e-4, rng=0)
    assert np.array_equal(cold.ids, [[5, 6, 7], [5, 6, 7]])
    random = lg.walk(model, 1, chains=5_000, rng=0).start
    assert chi_square_p(random, np.full(N_EXACT, 1 / N_EXACT)) > 1e-4


def test_a_walk_is_continued_from_its_end():
    model = model_of("exact")
    rng = np.random.default_rng(3)
    first = lg.walk(model, 4, start=5, chains=3, rng=rng)
    second = lg.walk(model, 6, start=first.ids[-1], chains=3, rng=rng)
    whole = lg.walk(model, 10, start=5, chains=3, rng=3)
    assert np.array_equal(np.concatenate([first.ids, second.ids]), whole.ids)


@pytest.mark.parametrize("stay", [True, False])
@pytest.mark.parametrize("kind", ["exact", "raced"])
def test_a_seed_fixes_the_walk(kind, stay):
    a, b, c = (lg.walk(model_of(kind), 30, chains=3, stay=stay, rng=seed) for seed in (1, 1, 2))
    assert np.array_equal(a.start, b.start) and np.array_equal(a.ids, b.ids) and np.array_equal(a.rows, b.rows)
    assert not np.array_equal(a.ids, c.ids)


def test_what_a_walk_reports():
    walked = lg.walk(model_of("raced"), 50, chains=4, temperature=TEMPERATURE, rng=0)
    assert walked.ids.shape == (50, 4) and walked.ids.dtype == np.int64
    assert walked.counts.shape == (N_RACED,) and walked.counts.dtype == np.int64
    assert np.array_equal(walked.counts, [(walked.ids == i).sum() for i in range(N_RACED)])
    assert walked.rows.shape == (50,) and (walked.rows > 0).all() and (walked.rows < 4 * N_RACED).all()
    assert not walked.exact
    exact = lg.walk(model_of("raced"), 3, chains=4, method=lg.Exhaustive(), rng=0)
    assert exact.exact and (exact.rows == 4 * N_RACED).all()


def test_memory_grows_by_sixteen_bytes_a_step_at_most():
    def peak(steps: int) -> int:
        tracemalloc.start()
        lg.walk(model_of("exact"), steps, rng=0)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(10)
    # Keeping the draws of every step would take hundreds of bytes for each.
    assert peak(2_500) - peak(500) < 2_000 * 16 + 2**15


class Recorder:
    """A progress that notes what it is told, and interrupts after some of it."""

    def __init__(self, patience: float = np.inf) -> None:
        self.label, self.total, self.done, self.patience, self.closed = "", 0.0, 0.0, patience, False

    @contextmanager
    def task(self, label: str, total: float) -> Generator["Recorder"]:
        self.label, self.total = label, total
        try:
            yield self
        finally:
            self.closed = True

    def advance(self, amount: float) -> None:
        self.done += amount
        if self.done >= self.patience:
            raise KeyboardInterrupt


def test_progress_counts_the_steps_of_all_chains():
    seen = Recorder()
    lg.walk(model_of("exact"), 7, chains=3, progress=seen)
    assert (seen.label, seen.total, seen.done, seen.closed) == ("walking", 21, 21, True)


def test_an_interrupted_walk_gives_nothing():
    seen = Recorder(patience=6)
    with pytest.raises(KeyboardInterrupt):
        lg.walk(model_of("exact"), 1_000_000, chains=3, progress=seen)
    assert seen.done == 6 and seen.closed


def hand_made(ids: list[list[int]], n: int = 10) -> lg.Walk:
    path = np.array(ids, dtype=np.int64)
    return lg.Walk(path, np.full(path.shape[1], 9), n, np.arange(len(path)), "exact")


def test_top_is_by_visits_and_then_by_id():
    walked = hand_made([[3, 1], [3, 7], [1, 7], [0, 5]])
    assert walked.counts.tolist() == [1, 2, 0, 2, 0, 1, 0, 2, 0, 0]
    assert walked.top(4).tolist() == [1, 3, 7, 0]
    assert walked.top(100).tolist() == [1, 3, 7, 0, 5], "rows that were never visited are not among the most visited"


def test_window_is_some_steps_of_every_chain():
    walked = hand_made([[3, 1], [3, 7], [1, 7], [0, 5]])
    window = walked.window(1, 3)
    assert window.ids.tolist() == [[3, 7], [1, 7]]
    assert window.start.tolist() == [3, 1] and window.rows.tolist() == [1, 2] and window.n == 10
    assert window.counts.tolist() == [0, 1, 0, 1, 0, 0, 0, 2, 0, 0]
    assert walked.window(0, 4).start.tolist() == [9, 9]
    assert np.array_equal(window.window(1, 2).ids, walked.window(2, 3).ids)
    for start, stop in ((-1, 2), (2, 2), (3, 2), (0, 5)):
        with pytest.raises(ValueError, match=r"start|stop"):
            walked.window(start, stop)


def test_overlap_is_the_share_of_the_top_in_common():
    walked, other = hand_made([[0], [0], [1], [1], [2], [3]]), hand_made([[1], [1], [4], [4], [0], [2]])
    assert walked.overlap(walked, k=4) == 1.0
    assert walked.overlap(other, k=1) == 0.0
    assert walked.overlap(other, k=2) == other.overlap(walked, k=2) == 0.5
    assert walked.overlap(other, k=3) == 2 / 3  # 0, 1, 2 and 1, 4, 0
    assert walked.window(0, 3).overlap(walked.window(2, 6), k=2) == 0.5
    with pytest.raises(ValueError, match="k is 5, but one of the walks has visited 4 rows"):
        walked.overlap(other, k=5)
    with pytest.raises(ValueError, match="other is a walk over 11 rows, this one over 10"):
        walked.overlap(hand_made([[0]], n=11), k=1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        walked.overlap(other, k=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": 10**15}, "steps x chains is 1,000,000,000,000,000: their ids, .* GiB, do not fit"),
        ({"steps": 10**19}, "steps x chains is .* do not fit"),
        ({"chains": 0}, "chains must be at least 1, not 0"),
        ({"start": N_EXACT}, f"start holds {N_EXACT}, but row ids run from 0 to {N_EXACT - 1}"),
        ({"start": -1}, "start holds -1"),
        ({"start": 0.5}, "start must hold whole numbers"),
        ({"start": True}, "start must hold whole numbers"),
        ({"start": [1, 2], "chains": 3}, r"start must be one id, or one for each of 3 chains, not of shape \(2,\)"),
        ({"start": [], "chains": 3}, r"not of shape \(0,\)"),
        ({"start": [[1, 2, 3]], "chains": 3}, r"not of shape \(1, 3\)"),
        ({"temperature": 0}, "temperature must be greater than 0"),
        ({"temperature": np.nan}, "temperature must be finite"),
        ({"method": "exhaustive"}, "method: 'exhaustive' cannot do this"),
        ({"method": lg.UniformTail()}, "method: .* cannot do this"),
    ],
)
def test_bad_input_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        lg.walk(model_of("exact"), **{"steps": 2, "rng": 0} | given)


def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match=r"model must be a LogLinear .* not ndarray: give LogLinear.build\(rows\)"):
        lg.walk(np.ones((3, 2), dtype=np.float32), 2)


def test_a_single_row_can_only_stay():
    model = lg.LogLinear.build(np.ones((1, 2), dtype=np.float32))
    assert lg.walk(model, 3, rng=0).ids.tolist() == [[0], [0], [0]]
    with pytest.raises(ValueError, match="stay=False needs another row"):
        lg.walk(model, 3, stay=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("walk") / "model"
    model_of("raced").save(path)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["walk", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["walk", *map(str, arguments)])
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert result.stderr.startswith("lazygumbel: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


class TestCommand:
    """`lazygumbel walk`."""

    def test_json_is_what_the_library_says(self, saved, tmp_path):
        out = tmp_path / "ids.npy"
        options = ("--chains", 3, "--temperature", 0.2, "--top", 5, "--seed", 1, "--out", out, "--json")
        told = json.loads(run(saved, 30, *options))
        walked = lg.walk(lg.LogLinear.load(saved), 30, chains=3, temperature=0.2, rng=1)
        top = walked.top(5)
        assert told == {
            "steps": 90,
            "visited": len(np.unique(walked.ids)),
            "rows": walked.rows.sum(),
            "label": "bounded",
            "ids": top.tolist(),
            "names": [f"word{i}" for i in top],
            "visits": walked.counts[top].tolist(),
            "shares": (walked.counts[top] / 90).tolist(),
            "first_chain": walked.ids[:20, 0].tolist(),
            "first_chain_names": [f"word{i}" for i in walked.ids[:20, 0]],
        }
        assert np.array_equal(np.load(out), walked.ids)
        assert list(tmp_path.iterdir()) == [out]

    def test_the_table_shows_names_shares_and_the_first_chain(self, saved):
        lines = run(saved, 30, "--name", "word7", "--temperature", 0.2, "--top", 3, "--seed", 1).splitlines()
        walked = lg.walk(lg.LogLinear.load(saved), 30, start=7, temperature=0.2, rng=1)
        best = walked.top(3)
        assert lines[0].split() == ["id", "name", "visits", "share"]
        assert [line.split()[0] for line in lines[1:4]] == [str(i) for i in best]
        assert lines[1].split()[1:] == [
            f"word{best[0]}",
            str(walked.counts[best[0]]),
            f"{walked.counts.max() / 30:.3%}",
        ]
        assert lines[4].startswith("30 steps, ") and lines[4].endswith(" a step, bounded")
        assert lines[5] == "first chain: " + ", ".join(f"word{i}" for i in walked.ids[:20, 0])
        assert run(saved, 30, "--start", 7, "--temperature", 0.2, "--top", 3, "--seed", 1).splitlines() == lines

    @pytest.mark.parametrize("method", ["bounded", "exhaustive", "fixed-cutoff", "lazy"])
    def test_methods(self, saved, method):
        told = json.loads(run(saved, 5, "--method", method, "--seed", 0, "--json"))
        chosen = {"bounded": lg.Bounded(), "exhaustive": lg.Exhaustive(), "fixed-cutoff": lg.FixedCutoff()}
        walked = lg.walk(lg.LogLinear.load(saved), 5, method=chosen.get(method, lg.LazyGumbel()), rng=0)
        assert told["first_chain"] == walked.ids[:, 0].tolist() and told["label"] == walked.label

    def test_no_stay(self, saved):
        cold = (saved, 20, "--start", 5, "--temperature", 0.01, "--seed", 0, "--json")
        stayed, moved = (json.loads(run(*cold, *more))["first_chain"] for more in ((), ("--no-stay",)))
        assert any(a == b for a, b in pairwise(stayed))
        assert all(a != b for a, b in pairwise([5, *moved]))

    def test_rows_without_names(self, tmp_path):
        lg.LogLinear.build(rows_of("exact")).save(tmp_path / "model")
        told = json.loads(run(tmp_path / "model", 5, "--seed", 0, "--json"))
        assert told["names"] is None and told["first_chain_names"] is None
        text = run(tmp_path / "model", 5, "--seed", 0)
        assert "name" not in text
        assert text.splitlines()[-1] == "first chain: " + ", ".join(map(str, told["first_chain"]))
        assert "have no names; use --start" in refused(tmp_path / "model", 5, "--name", "river")

    def test_bad_input_is_one_line(self, saved, tmp_path):
        assert "steps must be at least 1" in refused(saved, 0)
        assert "chains must be at least 1" in refused(saved, 5, "--chains", 0)
        assert "temperature must be greater than 0" in refused(saved, 5, "--temperature", 0)
        assert "top must be at least 1" in refused(saved, 5, "--top", 0)
        assert f"row ids run from 0 to {N_RACED - 1}" in refused(saved, 5, "--start", N_RACED)
        assert "no row is named 'xyzzy'" in refused(saved, 5, "--name", "xyzzy")
        assert "give --start or --name, not both" in refused(saved, 5, "--name", "word1", "--start", 1)
        assert "is none of bounded, calibrated, exhaustive" in refused(saved, 5, "--method", "magic")
        assert "out must end in .npy" in refused(saved, 5, "--out", tmp_path / "ids.txt")
        assert "there is no folder" in refused(saved, 5, "--out", tmp_path / "absent" / "ids.npy")
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupt_leaves_no_file(self, saved, tmp_path, monkeypatch):
        monkeypatch.setattr(sys.modules["lazygumbel.walking"], "choose", lambda _: Recorder(patience=5))
        result = CliRunner().invoke(app, ["walk", str(saved), "100", "--out", str(tmp_path / "ids.npy")])
        assert result.exit_code == 130 and result.stdout == "" and "interrupted" in result.stderr
        assert list(tmp_path.iterdir()) == []
