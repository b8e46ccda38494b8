"""What everything is measured with: the clock, brute force, rows and thetas, exact answers."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from finished_run import KEPT, TINY, Finished, softmax, source_of

import lazygumbel as lg
from lazygumbel_evaluation.harness import brute_force, clock
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.budget import FULL, QUICK
from lazygumbel_evaluation.harness.clock import Contender, Pace, take_turns
from lazygumbel_evaluation.harness.source import Source
from lazygumbel_evaluation.harness.thetas import MOST_THETAS, choose, hold_out
from statistics_helpers import chi_square_p

# The clock


class Time:
    """A clock that goes on when somebody works or rests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, []
        monkeypatch.setattr(clock, "perf_counter", lambda: self.now)
        monkeypatch.setattr(clock, "sleep", self.pass_by)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def worker(self, name: str, seconds: float):
        def work(argument: float) -> tuple[str, float]:
            self.calls.append(name)
            self.now += seconds * argument
            return name, argument

        return work


def test_contenders_take_turns_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    asked = {name: Contender(time.worker(name, cost), [1.0, 3.0]) for name, cost in (("a", 1.0), ("b", 10.0))}
    found = take_turns(asked, Pace(passes=3))
    assert "".join(time.calls) == "aabb" + 3 * "aaabbb", (
        "warmed up, then three turns each, of which one call is not timed"
    )
    assert found["a"].seconds.tolist() == [1.0, 3.0] * 3 and found["b"].by_argument.tolist() == [10.0, 30.0]
    assert found["a"].median == 2.0 and found["b"].answers == [("b", 1.0), ("b", 3.0)] * 3


def test_turns_by_time_go_on_until_all_had_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    asked = {name: Contender(time.worker(name, cost), [1.0] * 4) for name, cost in (("quick", 0.05), ("slow", 1.0))}
    found = take_turns(asked)
    assert len(found["slow"].seconds) == 4, "every argument, a turn each"
    assert len(found["quick"].seconds) >= 4 * 5 and found["quick"].seconds.sum() >= 0.75
    assert len(found["quick"].answers) == len(found["slow"].answers) == 4, "one for each argument"


def test_a_contender_may_have_one_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[str] = []

    @contextmanager
    def alone() -> Generator[None]:
        limits.append("one")
        yield
        limits.pop()

    monkeypatch.setattr(clock, "one_blas_thread", alone)
    seen: dict[bool, set[int]] = {False: set(), True: set()}
    asked = {
        str(one): Contender(lambda _, one=one: seen[one].add(len(limits)), [0], one_thread=one) for one in (False, True)
    }
    take_turns(asked, Pace(passes=1, rest_seconds=0.0))
    assert seen[False] == {0} and 1 in seen[True]


# Brute force


def test_brute_force_is_timed_at_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of variants the quickest; with all threads or with one, argument by argument: they may wait for each other."""
    time, alone = Time(monkeypatch), []

    @contextmanager
    def one_thread() -> Generator[None]:
        alone.append(True)
        yield
        alone.pop()

    monkeypatch.setattr(clock, "one_blas_thread", one_thread)

    def threaded(argument: float) -> None:
        time.now += argument if alone else 4.0

    variants = {"slow": time.worker("slow", 100.0), "quick": threaded, "middling": time.worker("middling", 50.0)}
    found = brute_force.compare(variants, {"ours": time.worker("ours", 0.5)}, np.array([1.0, 3.0, 9.0]), Pace(passes=3))
    assert found["exact"].by_argument.tolist() == [1.0, 3.0, 4.0] and found["exact"].median == 3.0
    assert found["ours"].by_argument.tolist() == [0.5, 1.5, 4.5] and list(found) == ["exact", "ours"]


@pytest.mark.parametrize("temperature", [0.05, 0.01])
def test_every_way_of_brute_force_is_exact(finished: Finished, temperature: float) -> None:
    """The quick ones make no shift, and are left out where that would overflow."""
    held, rng = finished.bench, np.random.default_rng(0)
    thetas = held.thetas("held-out")[np.argsort(held.oracle("held-out").masses[:, 0])[:3]]  # flat ones
    logits = held.features.stored.astype(np.float64) @ thetas[1].astype(np.float64) / temperature
    p, log_z = softmax(logits), logits.max() + np.log(np.exp(logits - logits.max()).sum())
    normalisers = brute_force.normalisers(held.model, thetas, temperature)
    samplers = brute_force.samplers(held.model, thetas, temperature, rng)
    batches = brute_force.batch_samplers(held.model, thetas, temperature, rng)
    assert (len(normalisers), len(samplers), len(batches)) == ((3, 5, 2) if temperature == 0.05 else (1, 1, 1))
    for name, normalise in normalisers.items():
        answer = normalise(thetas[1])
        assert getattr(answer, "value", answer) == pytest.approx(log_z, abs=1e-4), name
    for name, draw in samplers.items():
        drawn = np.concatenate([_positions(held, draw(thetas[1])) for _ in range(1_000)])
        assert chi_square_p(drawn, p) > 1e-3, name
    for name, draw in batches.items():
        drawn = _positions(held, draw(np.repeat(thetas[1:2], 1_000, axis=0)))
        assert chi_square_p(drawn, p) > 1e-3, name
    assert chi_square_p(drawn, softmax(0.7 * logits)) < 1e-3, "another softmax was not told apart"


def _positions(held: Bench, answer: object) -> np.ndarray:
    """Where the rows that were drawn are stored: the library says ids."""
    return held.features.locate(np.ravel(answer.ids)) if isinstance(answer, lg.Draws) else np.ravel(answer)


# Rows and thetas


def test_rows_of_a_file_are_taken_as_they_are(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(1, 256, size=(50, 8), dtype=np.uint8)
    np.save(tmp_path / "photos.npy", rows)
    source = Source.of(str(tmp_path / "photos.npy"), 0)
    assert (source.name, source.temperature, source.unit_norm) == ("photos", 1.0, False)
    np.testing.assert_array_equal(source.read().gather(np.arange(50)), rows)
    unit = Source.of(str(tmp_path / "photos.npy"), 0, unit_norm=True, temperature=0.1)
    expected = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(unit.read().gather(np.arange(50)), expected, rtol=1e-6)
    assert unit.settings()["temperature"] == 0.1 and unit.settings()["unit_norm"] is True


def test_sets_of_the_paper_are_taken_as_in_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lg.datasets, "synthetic", lambda *, rng: lg.Features.of(np.full((2, 2), rng / 1)))
    source = Source.of("synthetic", 7)
    assert source.read().gather(0)[0] == 7 and (source.temperature, source.unit_norm) == (0.05, True)
    with pytest.raises(ValueError, match=r"^unit_norm: the rows of glove have length one"):
        Source.of("glove", 0, unit_norm=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"data": "glvoe"}, "^data must be glove, synthetic or the path of a file"),
        ({"seed": -1}, "^seed must be at least 0, not -1"),
        ({"thetas": Path("nowhere.npy")}, "^thetas: there is no file 'nowhere.npy'"),
        ({"temperature": 0.0}, "^temperature must be greater than 0, not 0"),
    ],
)
def test_a_source_that_cannot_be_is_refused(finished: Finished, wrong: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        source_of(**{"data": finished.file} | wrong)


def test_thetas_of_the_user_lead(finished: Finished, tmp_path: Path) -> None:
    """At their own norm; no row is held out, and no experiment asks for more of them than there are."""
    rows, thetas = np.load(finished.file), 3 * np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    np.save(tmp_path / "thetas.npy", thetas)
    source = Source.of(str(finished.file), 0, thetas=tmp_path / "thetas.npy", temperature=2.0)
    bench = Bench.open(tmp_path / "out", source, TINY)
    assert list(bench.protocols) == ["given", "row"] and bench.n == len(rows) and bench.temperature == 2.0
    np.testing.assert_array_equal(bench.thetas("given"), thetas)
    assert bench.theta_names("given") == [f"theta {i}" for i in range(4)]
    np.testing.assert_array_equal(bench.features.gather(np.arange(len(rows))), rows)
    assert (bench.budget.thetas, bench.budget.error_thetas, len(bench.thetas("row"))) == (4, 4, 4)
    np.testing.assert_allclose(bench.like, thetas / 2, rtol=1e-6)
    many = choose(lg.Features.of(np.arange(600.0).reshape(300, 2)), np.random.default_rng(0))
    assert many.rows.shape == (MOST_THETAS, 2) and len(np.unique(many.rows[:, 0])) == MOST_THETAS


def test_the_full_run_is_that_of_the_paper() -> None:
    assert (FULL.thetas, FULL.iterations, FULL.draws, FULL.error_thetas) == (100, 5_000, 50_000, 30)
    assert FULL.chains * FULL.long_steps >= 2_000_000 and FULL.smallest == 10_000
    assert QUICK.chains * QUICK.steps == 2_000
    assert FULL.most_thetas == MOST_THETAS, "thetas that nobody held out"


def test_held_out_thetas_are_not_rows_of_the_index(finished: Finished) -> None:
    held = finished.bench
    distance = {p: np.linalg.norm(held.thetas(p)[:, None] - finished.rows, axis=2).min(axis=1) for p in held.protocols}
    assert list(held.protocols) == ["held-out", "row"], "those that are not rows come first"
    assert all(len(d) == 12 for d in distance.values())
    assert distance["held-out"].min() > 0.01 and distance["row"].max() == 0


def test_rows_are_named_by_where_they_were_in_the_data(finished: Finished) -> None:
    data = np.load(finished.file).astype(np.float64)
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    held = finished.bench
    for protocol in held.protocols:
        numbers = [int(name.removeprefix("row ")) for name in held.theta_names(protocol)]
        np.testing.assert_allclose(data[numbers], held.thetas(protocol), atol=1e-6)
    numbers = [int(held.name_of(row).removeprefix("row ")) for row in range(KEPT)]
    assert not set(numbers) & set(held.leading.held_out.tolist()) and len(set(numbers)) == KEPT
    np.testing.assert_allclose(data[numbers], finished.rows, atol=1e-6)


def test_names_go_with_their_rows() -> None:
    rows = np.arange(600.0, dtype=np.float32).reshape(300, 2)
    kept, held = hold_out(lg.Features.of(rows, names=[f"name {i}" for i in range(300)]), np.random.default_rng(0))
    assert kept.n == 200 and kept.names is not None and len(held.held_out) == MOST_THETAS
    for names, found in ((list(kept.names), kept.gather(np.arange(200))), (held.names.tolist(), held.rows)):
        assert [int(name.removeprefix("name ")) for name in names] == (found[:, 0] / 2).tolist()


# Exact answers


def test_the_oracle_is_the_sum_over_all_rows(finished: Finished) -> None:
    for protocol, t in ((protocol, t) for protocol in finished.bench.protocols for t in (0, 1, 11)):
        oracle, logits = finished.bench.oracle(protocol), finished.logits(protocol, t)
        assert oracle.edges.tolist() == [10, 100, 1000, KEPT]
        ranked = np.sort(softmax(logits))[::-1]
        assert oracle.log_z[t] == pytest.approx(logits.max() + np.log(np.exp(logits - logits.max()).sum()), abs=1e-5)
        np.testing.assert_allclose(oracle.masses[t], np.add.reduceat(ranked, [0, 10, 100, 1000]), rtol=1e-4)


def test_rows_fall_into_the_group_of_their_rank(finished: Finished) -> None:
    held = finished.bench
    ranked = np.argsort(-finished.logits("row", 3))
    groups = held.oracle("row").groups(3, held.features.score(ranked, held.thetas("row")[3]))
    expected = np.repeat([0, 1, 2, 3], [10, 90, 900, KEPT - 1000])
    assert (groups != expected).sum() <= 2, "rows that tie up to rounding may change places"
