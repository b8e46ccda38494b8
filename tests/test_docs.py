"""The README and the pages under docs run as written: Python in order, page by page, and every `$ lazygumbel` line.

A block of text right after one of Python is what it prints, word for word, on pages that need no data set.
"""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lazygumbel as lg
from lazygumbel import datasets, forms
from lazygumbel._support.manifest import VERSION
from lazygumbel.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
WORDS = ["river", *(f"word{i}" for i in range(1, 3000))]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def small_rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((len(WORDS), 50), dtype=np.float32)


def python_and_output(page: Path) -> list[tuple[str, str | None]]:
    """The blocks of Python, each with the block of text that follows it, if one does."""
    pattern = r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?"
    found = re.finditer(pattern, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [(block[1], block[2]) for block in found]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_runs_and_prints_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a few thousand random rows in place of the word vectors, where what is printed differs from what is shown."""
    monkeypatch.setattr(datasets, "glove", lambda: lg.Features.of(small_rows(), names=WORDS).unit_norm())
    monkeypatch.chdir(tmp_path)
    stands_alone = "datasets.glove" not in page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
    for block, shown in python_and_output(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, str(page), "exec"), names)
        if stands_alone and shown is not None:
            assert printed.getvalue() == shown


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_every_block_is_found(page: Path) -> None:
    """A fence that the pattern does not see would not be run."""
    assert len(blocks(page, "python")) == page.read_text(encoding="utf-8").count("```python")


def test_commands_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [f"{word} {' '.join(f'{x:.5f}' for x in row)}\n" for word, row in zip(WORDS, small_rows(), strict=True)]
    (tmp_path / "glove.6B.50d.txt").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks(ROOT / "docs" / "cli.md", "console"))
    commands = re.findall(r"^\$ lazygumbel (.*)$", text, re.MULTILINE)
    verbs = {"build", "info", "top-k", "sample", "log-partition", "log-prob", "audit"}
    assert {shlex.split(c)[0] for c in commands} == verbs
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, (command, result.output)


def test_commands_are_those_of_today() -> None:
    """What the page shows of a folder is of the format that is written, and no command is missing."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^`lazygumbel (\w[\w| -]*)`;", text, re.MULTILINE)
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert commands <= set(named.split(" | ")) <= commands | {"paper"}
    assert set(re.findall(r'^(?:version  |.*"version": )(\d+)', text, re.MULTILINE)) == {str(VERSION)}


def test_answers_of_the_service_have_the_keys_that_are_documented() -> None:
    """`docs/refresh.py` asks a service; what it printed then must still be its form."""
    shown = "\n".join(blocks(ROOT / "docs" / "service.md", "console"))
    answers = re.findall(r"^\$ curl '?localhost:8000/v1/([\w-]+)(?:.*\\\n)*.*\n(\{.*\})$", shown, re.MULTILINE)
    form = {"sample": forms.Draws, "top-k": forms.TopK, "add": forms.Change, "remove": forms.Change}
    assert [route for route, _ in answers] == list(form) and shown.count("$ ") == len(answers)
    for route, answer in answers:
        schema, keys = forms.schema(form[route]), set(json.loads(answer))
        assert set(schema["required"]) <= keys <= set(schema["properties"]), route


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles], target
