"""`lazygumbel paper`, found by its entry point, over a stand-in for the experiments."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from finished_run import Finished
from report_samples import HEADER, fake_run, small_run
from typer.testing import CliRunner

from lazygumbel.cli import others
from lazygumbel.cli.others import add_commands
from lazygumbel_evaluation import run as run_module
from lazygumbel_evaluation.harness.source import Source
from lazygumbel_evaluation.harness.store import Store
from lazygumbel_evaluation.report.page import write_report

ROOT = Path(__file__).parents[2]


@pytest.fixture
def app(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """A command line where the evaluation is installed: its entry points are those of its pyproject.toml."""
    declared = re.search(r'(?<=commands"\]\n).*', (ROOT / "evaluation" / "pyproject.toml").read_text())
    assert declared is not None
    folder = tmp_path_factory.mktemp("site")
    installed = folder / "stand_in-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: stand-in\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[lazygumbel.commands]\n{declared[0].replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(folder)
    return app_with_commands()


def app_with_commands() -> typer.Typer:
    app = typer.Typer()
    app.command("other")(lambda: None)  # a single command would be the app itself
    add_commands(app)
    return app


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = []

    def run(out: Path, source: Source, **settings: Any) -> SimpleNamespace:
        asked.append({"out": out, "source": source, **settings})
        return SimpleNamespace(header=HEADER, sections=[*small_run(), replace(fake_run()[0], tables=[])])

    monkeypatch.setattr(run_module, "run", run)
    return asked


def test_it_runs_and_reports(app: typer.Typer, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    store = Store.within(tmp_path)
    store.path("model").write_bytes(bytes(3_000_000))
    options = ["--only", "figure-2", "--only", "table-1", "--seed", "3", "--quick", "--data", "synthetic"]
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    (settings,) = asked
    assert settings.pop("progress") is not None
    source = Source.of("synthetic", 3)
    assert settings == {"out": tmp_path, "source": source, "quick": True, "only": ["figure-2", "table-1"]}
    lines = result.stdout.splitlines()
    assert re.split(" {2,}", lines[0].rstrip()) == ["claim", "method", "thetas", "paper", "this run", "holds"]
    assert re.split(" {2,}", lines[2].rstrip()) == [
        "One sample is drawn faster than by brute force",
        "Bounded (ours)",
        "held-out thetas",
        "4.65x",
        "71.3x (fake)",
        "yes",
    ]
    assert lines[-2] == f"5 of 5 claims hold in this run: {tmp_path / 'report.html'}"
    assert lines[-1].startswith(f"{store.folder} (3 MB) only serves to go on with this run, and may be deleted")
    assert (tmp_path / "report.html").exists() and (tmp_path / "figures" / "small.png").exists()


def test_own_rows_and_thetas_are_taken_as_they_are(
    app: typer.Typer, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows, thetas = tmp_path / "rows.npy", tmp_path / "thetas.npy"
    for file in (rows, thetas):
        np.save(file, np.eye(3, dtype=np.float32))
    command = ["paper", "--out", str(tmp_path / "out"), "--data", str(rows)]
    for options, expected in (
        ([], Source("rows", rows, 0, 1.0, False, None)),
        (["--thetas", str(thetas), "--temperature", "0.3"], Source("rows", rows, 0, 0.3, False, thetas)),
        (["--unit-norm"], Source("rows", rows, 0, 1.0, True, None)),
    ):
        result = CliRunner().invoke(app, [*command, *options])
        assert result.exit_code == 0, result.output
        assert asked[-1]["source"] == expected


def test_json(app: typer.Typer, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["report"] == str(tmp_path / "report.html") and told["header"] == HEADER
    assert told["may_be_deleted"] == str(Store.within(tmp_path).folder)
    assert told["claims"][0] == {
        "experiment": "one",
        "claim": "It holds",
        "method": "Bounded (ours)",
        "paper": None,
        "measured": "yes",
        "holds": True,
        "thetas": "",
    }
    assert not asked[0]["only"] and asked[0]["source"] == Source.of("glove", 0) and asked[0]["quick"] is False


def test_without_matplotlib_nothing_is_run(
    app: typer.Typer, asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and "pip install 'lazygumbel[plots]'" in result.stderr
    assert not asked


def test_an_unknown_experiment_is_refused(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "out"), "--only", "figure-9"])
    assert result.exit_code == 2 and result.stdout == ""
    assert "figure-9" in result.stderr and ", ".join(run_module.EXPERIMENTS) in result.stderr
    assert len(result.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_whole_run_is_reported(finished: Finished) -> None:
    """What the experiments give can be drawn and written."""
    page = write_report(finished.out, finished.run.header, finished.run.sections).read_text(encoding="utf-8")
    assert all(section.title in page for section in finished.run.sections)


def test_without_the_evaluation_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "entry_points", lambda **_: [])
    result = CliRunner().invoke(app_with_commands(), ["paper", "--quick", "--out", "report"])
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
    assert "pip install 'lazygumbel[evaluation]'" in result.stderr and "pip install ./evaluation" in result.stderr


def test_the_library_does_not_carry_the_evaluation() -> None:
    """Nor import it: the wheel is `src/lazygumbel` alone."""
    said = [
        file for file in (ROOT / "src").rglob("*.py") if "lazygumbel_evaluation" in file.read_text(encoding="utf-8")
    ]
    assert said == [] and not (ROOT / "src" / "lazygumbel_evaluation").exists()
