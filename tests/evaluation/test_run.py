"""A whole run: everything is done and kept, an interrupted run goes on, and what does not fit is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from finished_run import KEPT, D, Finished, N, source_of

import lazygumbel as lg
from lazygumbel_evaluation import run as run_module
from lazygumbel_evaluation.experiments import walks
from lazygumbel_evaluation.harness import bench, learning
from lazygumbel_evaluation.harness.thetas import MOST_THETAS
from lazygumbel_evaluation.run import EXPERIMENTS, Run, run

# The whole run


def test_all_experiments_are_done_in_order(finished: Finished) -> None:
    assert [section.name for section in finished.run.sections] == list(EXPERIMENTS)
    for section in finished.run.sections:
        assert section.verdicts and section.text and section.facts, section.name
        assert section.tables or section.figures, section.name


def test_figures_can_be_drawn_and_tables_are_rectangular(finished: Finished) -> None:
    figures = [figure for section in finished.run.sections for figure in section.figures]
    assert len({figure.name for figure in figures}) == len(figures) >= 15
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
    assert (header["data"], header["n"], header["d"], header["temperature"]) == ("clusters", KEPT, D, 0.05)
    assert header["held_out"] == MOST_THETAS
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
    assert not list(finished.out.rglob(".*")), "a file was left half-written"


def test_progress_adds_up(finished: Finished) -> None:
    stages = {label: (total, reached) for label, total, reached in finished.stages}
    for label in ("all experiments", *EXPERIMENTS):
        total, reached = stages[label]
        assert total > 0 and reached == pytest.approx(total), label
    whole = sum(stages[name][0] for name in EXPERIMENTS)
    assert stages["all experiments"][0] == pytest.approx(whole)


# Resuming and refusing


def test_what_is_done_is_not_repeated(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module.Bench, "open", lambda *_: pytest.fail("the bench was opened again"))
    assert finished.again(finished.out) == finished.run


def test_only_what_is_missing_is_run(finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = finished.copy(tmp_path / "out", without=("amortised", "bins"))
    monkeypatch.setattr(bench, "build_model", lambda *_, **__: pytest.fail("the model was built again"))
    part = finished.again(out, only=["amortised"])
    assert [section.name for section in part.sections] == [name for name in EXPERIMENTS if name != "bins"]
    assert part.sections[5] == finished.section("amortised"), "the same numbers from the times that were kept"
    assert part.header["seconds"] > finished.run.header["seconds"]
    whole = finished.again(out)
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
            finished.again(out, only=["figure-2", "walks", "bins"])
    held = Run.from_json(json.loads((out / "results.json").read_text()))
    assert [section.name for section in held.sections] == ["figure-2"]
    monkeypatch.setattr(walks, "walk", lambda *_, **__: pytest.fail("a walk was made again"))
    assert [section.name for section in finished.again(out, only=["walks"]).sections] == ["figure-2", "walks"]


def test_learning_goes_on_where_it_was(finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = finished.copy(tmp_path / "out", without=("table-2",))
    for kept in (*out.rglob("table-2-*.json"), *out.rglob("fit-*.npz")):
        kept.unlink()
    begun: list[str] = []
    fit = learning.fit

    def counted(*args, **knobs):
        begun.append(knobs["checkpoint"].stem)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return fit(*args, **knobs)

    monkeypatch.setattr(learning, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        finished.again(out)
    redone = finished.again(out)
    assert begun == ["fit-exact", "fit-ours", "fit-tail", "fit-tail", "fit-top"]
    facts = redone.sections[4].facts["learnt"]
    for name, learnt in finished.section("table-2").facts["learnt"].items():
        assert facts[name]["curve"]["log_likelihood"] == learnt["curve"]["log_likelihood"], name


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 1), ("quick", False), ("data", "synthetic"), ("temperature", 0.1), ("unit_norm", False)],
)
def test_a_run_with_other_settings_is_refused(finished: Finished, name: str, value: object) -> None:
    before = (finished.out / "results.json").read_bytes()
    with pytest.raises(ValueError, match=rf"^out: .* holds a run with {name} = .*, not {value!r}"):
        finished.again(finished.out, **{name: value})
    assert (finished.out / "results.json").read_bytes() == before


def test_a_run_of_which_nothing_is_done_may_change_its_settings(finished: Finished, tmp_path: Path) -> None:
    """A file of thetas that did not fit is mended, and the command given again."""
    np.save(tmp_path / "thetas.npy", np.ones((4, D + 1), dtype=np.float32))
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=rf"^thetas: .* has {D + 1} columns, but the rows have {D}"):
        finished.again(out, thetas=tmp_path / "thetas.npy")
    np.save(tmp_path / "few.npy", np.eye(300, dtype=np.float32))
    with pytest.raises(ValueError, match=r"^data has 300 rows; at least 2,000 are needed"):
        finished.again(out, data=tmp_path / "few.npy")


def test_another_file_of_the_same_name_is_refused(finished: Finished, tmp_path: Path) -> None:
    np.save(tmp_path / "clusters.npy", np.ones((3_000, 4), dtype=np.float32))
    with pytest.raises(ValueError, match="holds a run with bytes"):
        finished.again(finished.out, data=tmp_path / "clusters.npy")


def test_results_of_other_programs_are_refused(finished: Finished, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"accuracy": 0.9}')
    with pytest.raises(ValueError, match="is not the file of a run"):
        finished.again(tmp_path)
    assert (tmp_path / "results.json").read_text() == '{"accuracy": 0.9}'


def test_what_a_deleted_run_left_is_not_used(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, model = finished.copy(tmp_path / "out"), finished.bench.model
    (out / "results.json").unlink()
    monkeypatch.setattr(bench, "build_model", lambda *_, **__: (model, 1.0))
    finished.again(out, only=["bins"])
    kept = {path.name for path in (out / "lazygumbel-cache").iterdir()}
    assert kept == {"build.npz", "model", "oracle-held-out.npz", "oracle-row.npz"}
    assert np.load(out / "lazygumbel-cache" / "build.npz")["seconds"] == 1
    shutil.rmtree(out / "lazygumbel-cache")
    assert finished.again(out, only=["bins"]).sections[0].name == "bins", "what may be deleted is not needed"


def test_bad_arguments_are_refused_before_any_work(finished: Finished, tmp_path: Path) -> None:
    out, source = tmp_path / "out", source_of(finished.file)
    with pytest.raises(ValueError, match=r"^only: there is no experiment 'table-3'; there are figure-2, table-1, "):
        run(out, source, only=["table-3"])
    with pytest.raises(ValueError, match=r"^only must be a sequence of names, not the string 'table-1'"):
        run(out, source, only="table-1")
    with pytest.raises(ValueError, match=r"^out: .* is a file"):
        run(finished.file, source)
    assert not out.exists()


def test_a_run_on_own_rows_and_thetas_is_about_them(finished: Finished, tmp_path: Path) -> None:
    """At their own norms and temperature, in every experiment; no row is held out."""
    thetas = np.random.default_rng(3).normal(size=(9, D)).astype(np.float32)
    np.save(tmp_path / "users.npy", thetas)
    done = finished.again(tmp_path / "out", thetas=tmp_path / "users.npy", temperature=2.0, unit_norm=False)
    header = {name: done.header[name] for name in ("thetas", "temperature", "unit_norm", "held_out", "n")}
    assert header == {"thetas": "users", "temperature": 2.0, "unit_norm": False, "held_out": 0, "n": N}
    assert [section.name for section in done.sections] == list(EXPERIMENTS)
    kinds = [verdict.thetas for section in done.sections for verdict in section.verdicts if verdict.thetas]
    assert set(kinds) == {"given thetas", "theta a row (the paper's protocol)"} and kinds[0] == "given thetas"
    logits = np.load(finished.file).astype(np.float64) @ thetas[4].astype(np.float64) / 2
    oracle = np.load(tmp_path / "out" / "lazygumbel-cache" / "oracle-given.npz")
    assert oracle["log_z"][4] == pytest.approx(logits.max() + np.log(np.exp(logits - logits.max()).sum()), abs=1e-4)


def test_what_is_reused_is_expected_once(finished: Finished) -> None:
    """Without Figure 2, the amortised cost has to measure its times itself."""
    alone, after, both = (
        run_module._expected_seconds(finished.bench, left, done)
        for left, done in ((["amortised"], []), (["amortised"], ["figure-2"]), (["figure-2", "amortised"], []))
    )
    assert alone["amortised"] == pytest.approx(both["figure-2"] + both["amortised"])
    assert both["amortised"] == after["amortised"] < both["figure-2"]
