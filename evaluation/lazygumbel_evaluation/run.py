"""`run`: all experiments of the paper on one data set, each kept as soon as it is done.

out/
  results.json        header and sections; replaced in one step after every experiment
  lazygumbel-cache/   the model, and what a run that was interrupted takes up again; may be deleted
"""

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np

from lazygumbel import __version__
from lazygumbel.progress import Progress, Silent, Task
from lazygumbel_evaluation.experiments import (
    amortised,
    bins,
    figure_2,
    figure_4,
    relative_error,
    table_1,
    table_2,
    walks,
)
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.budget import FULL, QUICK, Budget
from lazygumbel_evaluation.harness.source import Source
from lazygumbel_evaluation.harness.store import Store, write_json
from lazygumbel_evaluation.report.section import Section

__all__ = ["EXPERIMENTS", "Run", "run", "run_within"]


class _Experiment(NamedTuple):
    run: Callable[[Bench, Task], Section]
    seconds: Callable[[Bench], float]
    """How long it is expected to take."""
    reuses: str | None = None
    """The experiment whose measurements it takes, and makes if they were not made."""


_EXPERIMENTS = {
    "figure-2": _Experiment(figure_2.run, figure_2.expected_seconds),
    "table-1": _Experiment(table_1.run, table_1.expected_seconds),
    "walks": _Experiment(walks.run, walks.expected_seconds),
    "figure-4": _Experiment(figure_4.run, figure_4.expected_seconds),
    "table-2": _Experiment(table_2.run, table_2.expected_seconds),
    "amortised": _Experiment(amortised.run, amortised.expected_seconds, reuses="figure-2"),
    "bins": _Experiment(bins.run, bins.expected_seconds),
    "relative-error": _Experiment(relative_error.run, relative_error.expected_seconds),
}
EXPERIMENTS: tuple[str, ...] = tuple(_EXPERIMENTS)
_RESULTS = "results.json"


@dataclass(frozen=True)
class Run:
    """What was measured, with where and how."""

    header: dict[str, Any]
    """The settings of the source, quick, n (rows in the index), held_out (rows that are not), d, machine, versions,
    started, seconds."""
    sections: list[Section] = field(default_factory=list[Section])
    """Of the experiments done so far, in the order of `EXPERIMENTS`."""

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {"header": self.header, "sections": [section.as_json() for section in self.sections]}

    @classmethod
    def from_json(cls, held: dict[str, Any]) -> Self:
        """What `as_json` gave."""
        return cls(held["header"], [Section.from_json(section) for section in held["sections"]])


def run(
    out: Path, source: Source, *, quick: bool = False, only: Sequence[str] = (), progress: Progress | None = None
) -> Run:
    """Do the experiments `only`, or all of them, that `out` has not seen done, and write `results.json` after each.

    A folder of a run with another source or `quick` is refused.
    """
    return run_within(QUICK if quick else FULL, Path(out), source, quick=quick, only=only, progress=progress)


def run_within(
    budget: Budget,
    out: Path,
    source: Source,
    *,
    quick: bool,
    only: Sequence[str] = (),
    progress: Progress | None = None,
) -> Run:
    """`run`, within a budget of the caller's."""
    wanted, settings = _wanted(only), source.settings() | {"quick": quick}
    done, shown = _take_up(out, settings) or _begin(out, settings), progress or Silent()
    began, spent = perf_counter(), done.header["seconds"]
    left = [name for name in wanted if name not in {section.name for section in done.sections}]
    if not left:
        return done
    bench = Bench.open(out, source, budget, shown)
    facts = {"n": bench.n, "held_out": len(bench.leading.held_out), "d": bench.features.d}
    done = Run(done.header | facts, done.sections)
    expected = _expected_seconds(bench, left, [section.name for section in done.sections])
    with shown.task("all experiments", sum(expected.values())) as whole:
        for name in left:
            with shown.task(name, expected[name]) as stage:
                both = _Both(stage, whole, expected[name])
                section = _EXPERIMENTS[name].run(bench, both)
                both.finish()
            sections = sorted([*done.sections, section], key=lambda s: EXPERIMENTS.index(s.name))
            done = Run(done.header | {"seconds": spent + perf_counter() - began}, sections)
            write_json(out / _RESULTS, done.as_json())
    return _read(out)


def _expected_seconds(bench: Bench, left: list[str], done: list[str]) -> dict[str, float]:
    """Of each experiment that is left; what one reuses is paid for once."""
    expected: dict[str, float] = {}
    for name in left:
        _, seconds, reuses = _EXPERIMENTS[name]
        paid = reuses is None or reuses in done or reuses in expected
        expected[name] = seconds(bench) + (0.0 if paid else _EXPERIMENTS[str(reuses)].seconds(bench))
    return expected


class _Both:
    """Moves the bars of an experiment and of the whole run, in expected seconds, by shares of the experiment."""

    def __init__(self, stage: Task, whole: Task, seconds: float) -> None:
        self._tasks, self._seconds, self._left = (stage, whole), seconds, 1.0

    def advance(self, amount: float) -> None:
        step = min(amount, self._left)
        self._left -= step
        for task in self._tasks:
            task.advance(step * self._seconds)

    def finish(self) -> None:
        self.advance(self._left)


def _wanted(only: Sequence[str]) -> list[str]:
    if isinstance(only, str):
        raise ValueError(f"only must be a sequence of names, not the string {only!r}")
    for name in only:
        if name not in EXPERIMENTS:
            raise ValueError(f"only: there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return [name for name in EXPERIMENTS if name in only or not only]


def _take_up(out: Path, settings: dict[str, Any]) -> Run | None:
    """The run that `out` holds, if any; one with other settings is refused, unless nothing of it is done."""
    if not (out / _RESULTS).exists():
        return None
    held = _read(out)
    for name, value in settings.items():
        if held.header.get(name) != value:
            if not held.sections:
                return None
            raise ValueError(
                f"out: {out} holds a run with {name} = {held.header.get(name)!r}, not {value!r}; choose another "
                "folder, or take up that run with its own settings"
            )
    return held


def _begin(out: Path, settings: dict[str, Any]) -> Run:
    """A run without sections, written down at once, with its settings."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out: {out} is a file; results are written to a folder")
    Store.within(out).clear()  # of a run with other settings, or with some that nobody knows
    out.mkdir(parents=True, exist_ok=True)
    header = settings | {
        "machine": {"processor": _processor(), "cores": os.cpu_count() or 1},
        "versions": _versions(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": 0.0,
    }
    begun = Run(header)
    write_json(out / _RESULTS, begun.as_json())
    return begun


def _read(out: Path) -> Run:
    try:
        return Run.from_json(json.loads((out / _RESULTS).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"out: {out / _RESULTS} is not the file of a run; choose another folder") from None


def _processor() -> str:
    """The name of the processor; never that of the machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    faiss: Any = import_module("faiss")
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": version("numba"),
        "faiss": str(faiss.__version__),
        "lazygumbel": __version__,
    }
