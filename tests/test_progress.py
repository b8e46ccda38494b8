"""Progress: what shows it, when, and what it may be."""

import os
import pty
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress as RichProgress

import lazygumbel as lg
from lazygumbel.progress import Bars, Silent, choose

ROWS = np.random.default_rng(0).normal(size=(2_000, 8)).astype(np.float32)
BUILDERS = {
    "model": lambda progress: lg.LogLinear.build(ROWS, progress=progress),
    "exact": lambda progress: lg.ExactIndex.build(ROWS, progress=progress),
    "partition": lambda progress: lg.PartitionIndex.build(ROWS, rng=0, progress=progress),
    "lsh": lambda progress: lg.LSHIndex.build(ROWS, tables=2, rng=0, progress=progress),
    "faiss": lambda progress: lg.FaissIndex.build(ROWS, "HNSW8", progress=progress),
    "walk": lambda progress: lg.walk(lg.LogLinear.build(ROWS), 3, rng=0, progress=progress),
    "fit": lambda progress: lg.fit(
        lg.LogLinear.build(ROWS), [1, 2], iterations=2, learning_rate=0.01, rng=0, progress=progress
    ),
}


class Stages:
    """A progress of the user's own."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    @contextmanager
    def task(self, label: str, total: float) -> Generator["Stages"]:
        self.labels.append(f"{label}, {total:g}")
        yield self

    def advance(self, amount: float) -> None:
        assert amount >= 0


@pytest.mark.parametrize("what", BUILDERS)
def test_bars_silence_and_ones_own_are_taken(what: str, capfd: pytest.CaptureFixture[str]):
    BUILDERS[what](None)
    BUILDERS[what](False)
    assert capfd.readouterr() == ("", "")  # no terminal, no bars
    BUILDERS[what](True)
    assert capfd.readouterr().out == ""
    stages = Stages()
    BUILDERS[what](stages)
    assert stages.labels or what in ("model", "exact")  # small rows were checked when they were taken
    with pytest.raises(ValueError, match="progress must be True, False or an object with a method `task`, not 'yes'"):
        BUILDERS[what]("yes")


def test_a_stage_is_shown_and_its_bar_goes(capfd: pytest.CaptureFixture[str]):
    with Bars().task("doing things", 4) as task:
        task.advance(4)
    out, err = capfd.readouterr()
    assert out == "" and err.strip() == ""  # a file has no bars that come and go


def test_bars_of_the_caller_are_not_disturbed():
    with RichProgress() as mine, Bars().task("inner", 1) as task:
        mine.add_task("outer", total=1)
        task.advance(1)


def test_stages_within_stages_have_bars_of_their_own(monkeypatch: pytest.MonkeyPatch):
    shown: list[tuple[str, int]] = []

    class Noted(RichProgress):
        def add_task(self, *arguments: Any, **given: Any) -> Any:
            shown.append((arguments[0], id(self)))
            return super().add_task(*arguments, **given)

    monkeypatch.setattr("rich.progress.Progress", Noted)
    bars = Bars()
    for _ in range(2):
        with bars.task("outer", 2) as outer, bars.task("inner", 1) as inner:
            inner.advance(1)
            outer.advance(1)
    assert [label for label, _ in shown] == ["outer", "inner"] * 2
    assert shown[0][1] == shown[1][1] and shown[2][1] == shown[3][1]  # bars of one display


def test_a_build_in_a_terminal_shows_its_progress():
    script = "import numpy as np, lazygumbel as lg; lg.PartitionIndex.build(np.eye(9), rng=0)"
    master, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    subprocess.run([sys.executable, "-c", script], stderr=terminal, env=environment, check=True)
    os.close(terminal)
    shown = b""
    try:
        while block := os.read(master, 2**16):
            shown += block
    except OSError:  # the end, of a terminal that was closed
        pass
    os.close(master)
    assert b"training cells" in shown and b"9/9" in shown


def test_what_is_chosen(monkeypatch: pytest.MonkeyPatch):
    own = Stages()
    assert choose(own) is own and isinstance(choose(True), Bars)
    assert isinstance(choose(False), Silent) and isinstance(choose(None), Silent)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(choose(None), Bars) and isinstance(choose(False), Silent)


# What is printed of objects


def test_models_indexes_and_names_say_what_they_are():
    named = lg.Features.of(ROWS[:5], names=list("abcde"))
    assert repr(lg.ExactIndex(ROWS)) == "ExactIndex(n=2,000, d=8)"
    assert repr(lg.LogLinear.build(ROWS)) == "LogLinear(ExactIndex(n=2,000, d=8))"
    assert repr(lg.LSHIndex.build(ROWS, tables=2, rng=0)) == "LSHIndex(n=2,000, d=8, gap=0.1, delta=0.05, tables=2)"
    assert repr(lg.FaissIndex.build(ROWS, "HNSW8")) == "FaissIndex(n=2,000, d=8, IndexHNSWFlat)"
    assert repr(named.names) == "Names('a', 'b', 'c', ...; n=5)"
    assert repr(lg.Features.of(ROWS[:2], names=["a", "b"]).names) == "Names('a', 'b'; n=2)"


def test_names_are_taken_by_array_and_slice():
    names = lg.Features.of(ROWS[:5], names=list("abcde")).names
    assert names is not None
    assert names[3] == names[np.int64(3)] == names[np.array(3)] == "d"
    assert names[1:3] == ["b", "c"] and names[::-2] == ["e", "c", "a"] and names[:] == list("abcde")
    assert names[np.array([[4, 0], [1, 1]])].tolist() == [["e", "a"], ["b", "b"]]
    assert names[[2, 0]].tolist() == ["c", "a"] and names[np.empty((0, 2), np.int64)].shape == (0, 2)
    with pytest.raises(IndexError, match="row 5 of 5"):
        names[5]
    with pytest.raises(ValueError, match="ids holds 5, but row ids run from 0 to 4"):
        names[np.array([1, 5])]
    with pytest.raises(ValueError, match="ids must hold whole numbers"):
        names[np.array([0.5])]
