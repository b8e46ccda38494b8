"""The paper's evaluation on a small file: numbers against direct computation, resuming, refusals."""

import json
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import faiss
import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.paper import amortised, bench, bins, figure_4, relative_error, table_2, walks
from lazygumbel.paper import run as paper_run
from lazygumbel.paper.bench import Bench, seconds_each
from lazygumbel.paper.brute_force import BruteForce, BruteForceGradient
from lazygumbel.paper.budget import FULL, QUICK, Budget
from lazygumbel.paper.figure_4 import Point
from lazygumbel.paper.looks import count_ranks
from lazygumbel.paper.run import EXPERIMENTS, Run, run, run_within
from lazygumbel.paper.section import Section
from lazygumbel.paper.source import Source
from lazygumbel.walk import Walk
from statistics_helpers import chi_square_p

N, D = 5_000, 16
TINY = Budget(
    thetas=6,
    repeats=2,
    smallest=2_500,
    sizes=2,
    chains=8,
    steps=60,
    long_steps=80,
    partition_thetas=5,
    heads=(1, 10),
    noises=(8,),
    iterations=40,
    draws=3_000,
    error_thetas=12,
    error_draws=2_000,
)


@dataclass
class Recorder:
    """Progress that keeps every stage: its label, its total, and how far it came."""

    stages: list[list] = field(default_factory=list)

    @contextmanager
    def task(self, label: str, total: float) -> Generator["Recorder.Stage"]:
        self.stages.append([label, total, 0.0])
        yield Recorder.Stage(self.stages[-1])

    @dataclass
    class Stage:
        record: list

        def advance(self, amount: float) -> None:
            self.record[2] += amount


@dataclass(frozen=True)
class Finished:
    """A whole run, done once for all tests."""

    file: Path
    out: Path
    run: Run
    stages: list[list]

    @property
    def bench(self) -> Bench:
        return Bench.open(self.out, Source.of(str(self.file), 0), TINY, 0)

    @property
    def rows(self) -> np.ndarray:
        """By id, as the model sees them, in float64."""
        return self.bench.features.gather(np.arange(N)).astype(np.float64)

    def section(self, name: str) -> Section:
        return next(section for section in self.run.sections if section.name == name)

    def copy(self, to: Path, *, without: tuple[str, ...] = ()) -> Path:
        """The folder, as if these experiments had not been done yet."""
        shutil.copytree(self.out, to)
        held = json.loads((to / "results.json").read_text())
        held["sections"] = [section for section in held["sections"] if section["name"] not in without]
        (to / "results.json").write_text(json.dumps(held))
        return to


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Generator[None]:
    """FAISS's threads wait busily: with so few rows they only get into each other's way."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("paper")
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60, D))[rng.integers(60, size=N)] + 0.7 * rng.normal(size=(N, D))
    np.save(folder / "clusters.npy", rows.astype(np.float32))
    recorder = Recorder()
    done = run_within(TINY, folder / "out", data=str(folder / "clusters.npy"), quick=True, seed=0, progress=recorder)
    return Finished(folder / "clusters.npy", folder / "out", done, recorder.stages)


def again(finished: Finished, out: Path, **changed) -> Run:
    settings = {"data": str(finished.file), "quick": True, "seed": 0} | changed
    return run_within(TINY, out, **settings)


def logits_of(finished: Finished, t: int) -> np.ndarray:
    held = finished.bench
    return finished.rows @ held.thetas[t].astype(np.float64) / held.temperature


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


# The whole run


def test_all_experiments_are_done_in_order(finished: Finished) -> None:
    assert [section.name for section in finished.run.sections] == list(EXPERIMENTS)
    for section in finished.run.sections:
        assert section.verdicts and section.text and section.facts, section.name
        assert section.tables or section.figures, section.name


def test_figures_can_be_drawn_and_tables_are_rectangular(finished: Finished) -> None:
    figures = [figure for section in finished.run.sections for figure in section.figures]
    assert len({figure.name for figure in figures}) == len(figures) >= 9
    for figure in figures:
        for curve in figure.curves:
            assert curve.y and (curve.kind == "level" or len(curve.x) == len(curve.y)), (figure.name, curve.label)
            assert np.isfinite([*curve.x, *curve.y]).all(), (figure.name, curve.label)
            assert not figure.x_log or min(curve.x, default=1.0) > 0, (figure.name, curve.label)
            assert not figure.y_log or min(curve.y) > 0, (figure.name, curve.label)
    for table in (table for section in finished.run.sections for table in section.tables):
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows), table.title


def test_header_says_what_was_run_and_where(finished: Finished) -> None:
    header = finished.run.header
    assert (header["data"], header["n"], header["d"], header["temperature"]) == ("clusters", N, D, 0.05)
    assert (header["seed"], header["quick"]) == (0, True)
    assert header["machine"]["processor"] and header["machine"]["cores"] >= 1
    assert header["versions"]["numpy"] == np.__version__ and header["versions"]["lazygumbel"] == lg.__version__
    assert set(header["versions"]) == {"python", "numpy", "numba", "faiss", "lazygumbel"}
    assert header["seconds"] > 0 and header["started"].endswith("+00:00")
    assert str(finished.file.parent) not in json.dumps(finished.run.as_json()), "a path of this machine"


def test_the_file_holds_the_run(finished: Finished) -> None:
    held = json.loads((finished.out / "results.json").read_text())
    assert Run.from_json(held) == finished.run
    assert Run.from_json(finished.run.as_json()) == finished.run
    assert not list(finished.out.rglob("*.part*")), "a file was left half-written"


def test_progress_adds_up(finished: Finished) -> None:
    stages = {label: (total, reached) for label, total, reached in finished.stages}
    for label in ("all experiments", *EXPERIMENTS):
        total, reached = stages[label]
        assert total > 0 and reached == pytest.approx(total), label
    whole = sum(stages[name][0] for name in EXPERIMENTS)
    assert stages["all experiments"][0] == pytest.approx(whole)


# Resuming and refusing


def test_what_is_done_is_not_repeated(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_run.Bench, "open", lambda *_: pytest.fail("the bench was opened again"))
    assert again(finished, finished.out) == finished.run


def test_only_what_is_missing_is_run(finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = finished.copy(tmp_path / "out", without=("amortised", "bins"))
    monkeypatch.setattr(bench, "build_model", lambda *_: pytest.fail("the model was built again"))
    part = again(finished, out, only=["amortised"])
    assert [section.name for section in part.sections] == [name for name in EXPERIMENTS if name != "bins"]
    assert part.sections[5] == finished.section("amortised"), "the same numbers from the times that were kept"
    assert part.header["seconds"] > finished.run.header["seconds"]
    whole = again(finished, out)
    assert [section.name for section in whole.sections] == list(EXPERIMENTS)
    assert whole.sections[6] == finished.section("bins"), "random numbers do not depend on what else is run"


def test_an_interrupted_run_can_be_read_and_taken_up(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = finished.copy(tmp_path / "out", without=EXPERIMENTS)

    def interrupted(*_: object) -> float:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(walks, "compare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            again(finished, out, only=["figure-2", "walks", "bins"])
    held = Run.from_json(json.loads((out / "results.json").read_text()))
    assert [section.name for section in held.sections] == ["figure-2"]
    monkeypatch.setattr(walks, "walk", lambda *_, **__: pytest.fail("a walk was made again"))
    assert [section.name for section in again(finished, out, only=["walks"]).sections] == ["figure-2", "walks"]


def test_learning_goes_on_where_it_was(finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = finished.copy(tmp_path / "out", without=("table-2",))
    for kept in (*out.rglob("table-2-*.json"), *out.rglob("fit-*.npz")):
        kept.unlink()
    begun: list[str] = []
    fit = table_2.fit

    def counted(*args, **knobs):
        begun.append(knobs["checkpoint"].stem)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return fit(*args, **knobs)

    monkeypatch.setattr(table_2, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        again(finished, out)
    redone = again(finished, out)
    assert begun == ["fit-exact", "fit-top", "fit-tail", "fit-tail", "fit-ours"]
    facts = redone.sections[4].facts["learnt"]
    for name, learnt in finished.section("table-2").facts["learnt"].items():
        assert facts[name]["history"] == learnt["history"], name


@pytest.mark.parametrize(("name", "value"), [("seed", 1), ("quick", False), ("data", "synthetic")])
def test_a_run_with_other_settings_is_refused(finished: Finished, name: str, value: object) -> None:
    before = (finished.out / "results.json").read_bytes()
    with pytest.raises(ValueError, match=rf"^out: .* holds a run with {name} = .*, not {value!r}"):
        again(finished, finished.out, **{name: value})
    assert (finished.out / "results.json").read_bytes() == before


def test_another_file_of_the_same_name_is_refused(finished: Finished, tmp_path: Path) -> None:
    np.save(tmp_path / "clusters.npy", np.ones((3_000, 4), dtype=np.float32))
    with pytest.raises(ValueError, match="holds a run with bytes"):
        again(finished, finished.out, data=str(tmp_path / "clusters.npy"))


def test_results_of_other_programs_are_refused(finished: Finished, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"accuracy": 0.9}')
    with pytest.raises(ValueError, match="is not the file of a run"):
        again(finished, tmp_path)
    assert (tmp_path / "results.json").read_text() == '{"accuracy": 0.9}'


def test_what_a_deleted_run_left_is_not_used(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, model = finished.copy(tmp_path / "out"), finished.bench.model
    (out / "results.json").unlink()
    monkeypatch.setattr(bench, "build_model", lambda *_: (model, 1.0))
    again(finished, out, only=["bins"])
    kept = {path.name for path in (out / "lazygumbel-cache").iterdir()}
    assert (
        kept == {"build.json", "oracle.npz"} and json.loads((out / "lazygumbel-cache" / "build.json").read_text()) == 1
    )


def test_bad_arguments_are_refused_before_any_work(finished: Finished, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"^only: there is no experiment 'table-3'; there are figure-2, table-1, "):
        run(out, data=str(finished.file), only=["table-3"])
    with pytest.raises(ValueError, match=r"^only must be a sequence of names, not the string 'table-1'"):
        run(out, data=str(finished.file), only="table-1")
    with pytest.raises(ValueError, match=r"^data must be glove, synthetic or the path of a file"):
        run(out, data="glvoe")
    with pytest.raises(ValueError, match=r"^seed must be at least 0, not -1"):
        run(out, data=str(finished.file), seed=-1)
    with pytest.raises(ValueError, match=r"^out: .* is a file"):
        run(finished.file, data=str(finished.file))
    assert not out.exists()
    np.save(tmp_path / "few.npy", np.eye(300, dtype=np.float32))
    with pytest.raises(ValueError, match=r"^data has 300 rows; at least 2,000 are needed"):
        run(out, data=str(tmp_path / "few.npy"))


# Data


def test_files_are_scaled_to_unit_norm(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(1, 256, size=(50, 8), dtype=np.uint8)
    np.save(tmp_path / "photos.npy", rows)
    source = Source.of(str(tmp_path / "photos.npy"), 0)
    assert source.name == "photos"
    expected = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(source.read(None).gather(np.arange(50)), expected, rtol=1e-6)


def test_synthetic_rows_follow_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lg.datasets, "synthetic", lambda *, rng: lg.Features.of(np.full((2, 2), rng / 1)))
    assert Source.of("synthetic", 7).read(None).gather(0)[0] == 7


def test_the_full_run_is_that_of_the_paper() -> None:
    assert (FULL.thetas, FULL.iterations, FULL.draws, FULL.error_thetas) == (100, 5_000, 50_000, 30)
    assert FULL.chains * FULL.long_steps >= 2_000_000 and FULL.smallest == 10_000
    assert QUICK.chains * QUICK.steps == 20_000


# The bench


def test_the_oracle_is_the_sum_over_all_rows(finished: Finished) -> None:
    oracle = finished.bench.oracle
    assert oracle.edges.tolist() == [10, 100, 1000, N]
    for t in (0, 1, 99):
        logits = logits_of(finished, t)
        ranked = np.sort(softmax(logits))[::-1]
        assert oracle.log_z[t] == pytest.approx(logits.max() + np.log(np.exp(logits - logits.max()).sum()), abs=1e-5)
        np.testing.assert_allclose(oracle.masses[t], np.add.reduceat(ranked, [0, 10, 100, 1000]), rtol=1e-4)


def test_rows_fall_into_the_group_of_their_rank(finished: Finished) -> None:
    held = finished.bench
    ranked = np.argsort(-logits_of(finished, 3))
    groups = held.oracle.groups(3, held.features.score(ranked, held.thetas[3]))
    expected = np.repeat([0, 1, 2, 3], [10, 90, 900, N - 1000])
    assert (groups != expected).sum() <= 2, "rows that tie up to rounding may change places"


def test_seconds_are_medians_without_the_first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], []
    monkeypatch.setattr(bench, "perf_counter", lambda: clock[0])

    def ask(theta: np.ndarray) -> None:
        calls.append(theta[0])
        clock[0] += 100.0 if len(calls) <= 2 else theta[0] * (10.0 if len(calls) % 3 == 0 else 1.0)

    seconds = seconds_each(ask, np.array([[1.0], [2.0], [3.0]], dtype=np.float32), 3)
    assert seconds.tolist() == [1.0, 2.0, 3.0]
    assert calls == [1, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3]


# Brute force


@pytest.mark.parametrize("batch", [False, True])
def test_brute_force_draws_follow_the_softmax(finished: Finished, batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygumbel.paper.brute_force._SCORES_AT_ONCE", 2_048)  # several blocks, and a last part
    held = finished.bench
    theta = held.thetas[0]
    exact = softmax(finished.rows @ theta.astype(np.float64) / 0.1)
    dist = held.model(np.tile(theta, (100, 1)) if batch else theta, temperature=0.1)
    drawn = dist.sample(200 if batch else 20_000, method=BruteForce(), rng=5)
    assert drawn.exact and drawn.rows.max() == N
    assert chi_square_p(drawn.ids, exact) > 1e-4
    wrong = softmax(finished.rows @ theta.astype(np.float64) / 0.11)
    assert chi_square_p(drawn.ids, wrong) < 1e-4, "the test cannot tell a temperature from another"


def test_brute_force_sums_are_exact(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygumbel.paper.brute_force._SCORES_AT_ONCE", 2_048)
    held, rows = finished.bench, finished.rows
    for thetas in (40 * held.thetas[:1], 40 * held.thetas[:3]):  # logits to 800: beyond exp
        dist = held.model(thetas, temperature=0.05)
        logits = rows @ thetas.T.astype(np.float64) / 0.05
        shifted = np.exp(logits - logits.max(axis=0))
        log_z = logits.max(axis=0) + np.log(shifted.sum(axis=0))
        np.testing.assert_allclose(dist.log_partition(method=BruteForce()).value, log_z, rtol=1e-6)
        mean = (shifted / shifted.sum(axis=0)).T @ rows
        found = held.model(thetas, temperature=1.0).expectation(method=BruteForceGradient())
        truth = held.model(thetas, temperature=1.0).expectation(method=lg.Exhaustive())
        np.testing.assert_allclose(found.value, truth.value, atol=1e-5)
        np.testing.assert_allclose(dist.expectation(method=BruteForceGradient()).value, mean, atol=1e-3)


def test_brute_force_leaves_out_what_is_excluded(finished: Finished) -> None:
    held = finished.bench
    dist = held.model(held.thetas[0], temperature=0.05)
    most = dist.top_k(3).ids
    assert np.isin(dist.sample(100, method=BruteForce(), rng=0).ids, most).any()
    assert not np.isin(dist.sample(100, method=BruteForce(), rng=0, exclude=most).ids, most).any()
    expected = dist.log_partition(method=lg.Exhaustive(), exclude=most).value
    assert dist.log_partition(method=BruteForce(), exclude=most).value == pytest.approx(expected)
    with pytest.raises(ValueError, match="the features only"):
        dist.expectation(lambda ids: ids.astype(float), method=BruteForceGradient())


# Experiments


def test_times_and_speed_ups_fit_together(finished: Finished) -> None:
    sizes = finished.section("figure-2").facts["sizes"]
    assert [size["n"] for size in sizes] == [2_500, N]
    first = finished.section("figure-2").figures[1].curves[1]
    assert first.y == pytest.approx([size["exact"] / size["ours"] for size in sizes])
    facts = finished.section("table-1").facts
    for method in facts["methods"].values():
        assert method["speedup"] == pytest.approx(np.mean(facts["exact_seconds"]) / np.mean(method["seconds"]))
    whole = finished.section("amortised").facts["sizes"][-1]
    assert whole == sizes[-1], "measured once"


def test_bounds_of_table_1_are_those_of_the_audit(finished: Finished) -> None:
    methods = list(finished.section("table-1").facts["methods"].values())
    for method in methods[:2]:
        assert (np.array(method["bound"]) >= np.array(method["miss"]) - 1e-12).all()
    held = finished.bench
    miss = held.model.audit(held.thetas[:6], temperature=0.05, method=lg.Stratified()).miss
    np.testing.assert_allclose(methods[2]["miss"], miss)
    assert methods[2]["bound"] is None
    verdicts = finished.section("table-1").verdicts
    assert verdicts[1].holds == (miss.mean() <= 2.5e-4)
    assert verdicts[2].holds == (verdicts[0].holds and verdicts[1].holds)


def test_building_pays_when_its_cost_is_made_up() -> None:
    assert amortised.pays_after(build=12.0, draw=0.001, exact=0.007) == pytest.approx(2_000)
    assert amortised.pays_after(build=12.0, draw=0.007, exact=0.007) is None


def path_of(ids: np.ndarray) -> Walk:
    return Walk(ids, ids[0], N, np.zeros(len(ids), dtype=np.int64), "exact")


def test_walks_are_compared_by_the_rows_they_visit_most() -> None:
    rng = np.random.default_rng(0)
    same = [path_of(rng.geometric(0.002, size=(2_000, 40)) % N) for _ in range(2)]
    other = path_of((rng.geometric(0.002, size=(2_000, 40)) + 400) % N)
    assert walks.top_size(*same) == 1_000
    alike, apart = (walks.compare(same[0], w, lambda a, b: a.overlap(b, 1_000)) for w in (same[1], other))
    assert walks.verdict(alike, 1_000).holds and not walks.verdict(apart, 1_000).holds
    short = path_of(np.arange(40).reshape(20, 2) % 7)
    assert walks.top_size(same[0], short) == 7
    assert walks.compare(short, short, lambda a, b: a.overlap(b, 7)) == {"exact": 1, "ours": 1, "between": 1}


def test_walks_of_the_run_have_the_law_of_the_chain(finished: Finished) -> None:
    facts, held, rows = finished.section("walks").facts, finished.bench, finished.rows
    for name, steps in (("exact", 60), ("ours", 60), ("long", 80)):
        ids = np.load(held.cache / f"walk-{name}.npz")["ids"]
        assert ids.shape == (steps, 8)
        # Whether a step stays is a coin of known bias: together they are normal.
        before = ids[:-1].reshape(-1)
        p = np.array([softmax(rows @ rows[i] / 0.05)[i] for i in np.unique(before)])[
            np.unique(before, return_inverse=True)[1]
        ]
        z = ((ids[1:].reshape(-1) == before).sum() - p.sum()) / np.sqrt((p * (1 - p)).sum())
        assert abs(z) < 4, name
    assert facts["steps"] == 4 * 60 and 0 < facts["stayed"]["ours"] < 1
    ids, offsets = np.load(held.cache / "walk-exact.npz")["ids"], held.index.offsets
    cells = np.searchsorted(offsets, held.features.locate(ids), side="right") - 1
    first, second = (
        np.bincount(cells[:, part].reshape(-1), minlength=held.index.cells) for part in (slice(4), slice(4, 8))
    )
    assert facts["visits_by_cell"]["exact"] == pytest.approx(np.minimum(first, second).sum() / (4 * 60))


def test_a_curve_beats_what_is_slower_and_less_accurate() -> None:
    ours = [Point("", "", 1.0, 0.1), Point("", "", 4.0, 0.05)]
    assert figure_4.beaten(Point("", "", 1.0, 0.2), ours)
    assert figure_4.beaten(Point("", "", 9.0, 0.06), ours)
    assert figure_4.beaten(Point("", "", 2.0, 0.08), ours), "between two points of the curve"
    assert not figure_4.beaten(Point("", "", 2.0, 0.06), ours)
    assert not figure_4.beaten(Point("", "", 0.5, 0.9), ours), "faster than all of the curve"


def test_errors_of_figure_4_are_relative_errors_of_z(finished: Finished) -> None:
    points = finished.section("figure-4").facts["points"]
    held = finished.bench
    top = next(p for p in points if p["method"] == "top k only")
    found = figure_4._headed(held.index, 71).index.top_k(held.thetas[:5], 71).ids
    expected = [1 - softmax(logits_of(finished, t))[found[t]].sum() for t in range(5)]
    assert top["setting"] == "k = 71" and top["error"] == pytest.approx(np.mean(expected), rel=1e-3)
    ours = [p for p in points if p["method"] == "Stratified (ours)"]
    assert ours[0]["error"] > 3 * ours[-1]["error"], "a smaller error was asked for, and not had"
    assert ours[-1]["error"] < 0.005


def test_learning_is_gradient_ascent(finished: Finished) -> None:
    held, rows = finished.bench, finished.rows
    ids, described = table_2.training_set(held)
    nearest = np.argsort(-(rows @ held.thetas[0].astype(np.float64)))[:16]
    assert set(ids) == set(nearest) and held.theta_ids[0] in ids and "fifteen nearest" in described
    theta, target = np.zeros(D), rows[ids].mean(axis=0)
    for step in range(40):
        theta += 10.0 * 0.5 ** (step // 8) * (target - softmax(rows @ theta) @ rows)
    logits = rows @ theta
    reached = theta @ target - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    facts = finished.section("table-2").facts
    assert facts["learnt"]["exact"]["log_likelihood"] == pytest.approx(reached, abs=1e-4)
    assert facts["gap"] == pytest.approx(reached - facts["learnt"]["ours"]["log_likelihood"], abs=1e-4)
    assert abs(facts["gap"]) < 0.05
    ranked = np.argsort(-logits)
    best = facts["learnt"]["exact"]["best"]
    assert len(best) == 10 and set(best[:8]) <= set(ranked[~np.isin(ranked, ids)][:10])
    assert not set(best) & set(ids)
    assert facts["learnt"]["exact"]["history"][0] == pytest.approx(-np.log(N), abs=1e-5)


def test_words_are_learnt_from_where_there_are_names() -> None:
    rows = np.random.default_rng(0).normal(size=(2_000, 4)).astype(np.float32)
    words = [*table_2._WORDS, *(f"other {i}" for i in range(2_000 - 16))]
    model = lg.LogLinear.build(lg.Features.of(rows, names=words))
    ids, described = table_2.training_set(Bench(Path(), TINY, 0, model, 1.0, Recorder()))
    assert ids.tolist() == list(range(16)) and "water" in described


def test_draws_are_counted_by_rank(finished: Finished) -> None:
    facts = finished.section("bins").facts
    assert facts["edges"] == [10, 100, 1000, N]
    first = [held["true"][0] for held in facts["thetas"]]
    masses = finished.bench.oracle.masses[:, 0]
    assert first == pytest.approx([masses.max(), masses.min()])
    for held in facts["thetas"]:
        assert sum(held["exact"]) == sum(held["ours"]) == 3_000
        assert held["p"]["ours"] > 1e-3 and held["p"]["exact"] > 1e-3


def test_a_wrong_sampler_fails_the_histogram(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "Stratified", lambda: lg.TopKOnly(10))
    verdicts = bins.run(finished.bench, Recorder.Stage(["", 1.0, 0.0])).verdicts
    assert not verdicts[1].holds, "the flat theta has much of its mass beyond the top 10"


def test_p_values_of_counts_are_uniform() -> None:
    rng = np.random.default_rng(0)
    masses = np.array([0.7, 0.2, 0.0997, 0.0003])
    p = [bins.chi_square_p(rng.multinomial(2_000, masses), masses, rng) for _ in range(60)]
    assert 0.3 < np.mean(p) < 0.7 and min(p) > 1e-3
    assert bins.chi_square_p(np.array([1_500, 300, 199, 1]), masses, rng) < 1e-3


def test_relative_errors_are_over_events_with_enough_draws() -> None:
    errors = relative_error.errors_of(np.array([60, 36, 4]), np.array([0.5, 0.4, 0.1]))
    assert errors == pytest.approx({"groups": (0.2 + 0.1 + 0.6) / 3, "tops": (0.2 + 6 / 90) / 2})
    errors = relative_error.errors_of(np.array([6, 41, 53]), np.array([0.09, 0.5, 0.41]))
    assert errors == pytest.approx({"groups": (9 / 50 + 12 / 41) / 2, "tops": 12 / 59})


def test_the_paired_test_tells_a_shift_from_noise() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=30)
    assert relative_error.paired_p(noise - noise.mean(), rng) > 0.9
    assert relative_error.paired_p(noise + 1.5, rng) < 1e-3


def test_the_relative_error_of_a_cut_softmax_is_found_out(finished: Finished) -> None:
    facts = finished.section("relative-error").facts
    assert facts["p"]["groups"]["cut"] < 0.01
    assert facts["p"]["groups"]["ours"] > 1e-3 and facts["p"]["tops"]["ours"] > 1e-3
    assert all(len(values) == 12 for values in facts["errors"]["tops"].values())


def test_draws_apart_are_looks(finished: Finished) -> None:
    """Asked together, so many draws of one theta would be one dense pass, and nothing would be tested."""
    held, rng = finished.bench, np.random.default_rng(0)
    together = held.model(held.thetas[0], temperature=0.05).sample(3_000, method=lg.Stratified(), rng=rng)
    assert together.exact
    seen: list[str] = []

    class Watched:
        def sample(self, query, size, rng):
            drawn = lg.Stratified().sample(query, size, rng)
            seen.append(drawn.label)
            return drawn

    counts = count_ranks(held, 0, 3_000, Watched(), rng, apart=True)
    assert counts.sum() == 3_000 and "exact" not in seen
