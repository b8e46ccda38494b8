"""`run`: all experiments of the paper on one data set, each kept as soon as it is done.

out/
  results.json        header and sections; replaced in one step after every experiment
  model/              the model, built once
  lazygumbel-cache/   what a run that was interrupted takes up again
"""

import json
import os
import platform
import shutil
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
from lazygumbel.checks import check_count
from lazygumbel.paper import amortised, bins, figure_2, figure_4, relative_error, table_1, table_2, walks
from lazygumbel.paper.bench import TEMPERATURE, Bench, cache_of, write_json
from lazygumbel.paper.budget import FULL, QUICK, Budget
from lazygumbel.paper.section import Section
from lazygumbel.paper.source import Source
from lazygumbel.persist import check_target
from lazygumbel.progress import Progress, Silent, Task

__all__ = ["EXPERIMENTS", "Run", "run", "run_within"]


class _Experiment(NamedTuple):
    run: Callable[[Bench, Task], Section]
    seconds: Callable[[Bench], float]
    """How long it is expected to take."""


_EXPERIMENTS = {
    "figure-2": _Experiment(figure_2.run, figure_2.expected_seconds),
    "table-1": _Experiment(table_1.run, table_1.expected_seconds),
    "walks": _Experiment(walks.run, walks.expected_seconds),
    "figure-4": _Experiment(figure_4.run, figure_4.expected_seconds),
    "table-2": _Experiment(table_2.run, table_2.expected_seconds),
    "amortised": _Experiment(amortised.run, amortised.expected_seconds),
    "bins": _Experiment(bins.run, bins.expected_seconds),
    "relative-error": _Experiment(relative_error.run, relative_error.expected_seconds),
}
EXPERIMENTS: tuple[str, ...] = tuple(_EXPERIMENTS)
_RESULTS = "results.json"


@dataclass(frozen=True)
class Run:
    """What was measured, with where and how."""

    header: dict[str, Any]
    """data, bytes (of its file), n (rows in the index), held_out (rows that are not), d, temperature,
    machine, versions, seed, quick, started, seconds."""
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
    out: Path,
    *,
    data: str = "glove",
    quick: bool = False,
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Run:
    """Do the experiments `only`, or all of them, that `out` has not seen done, and write `results.json` after each.

    `data` is "glove", "synthetic" or the path of a file for `datasets.read`; its rows are scaled to unit norm. A folder
    of a run with another `data`, `seed` or `quick` is refused.
    """
    budget = QUICK if quick else FULL
    return run_within(budget, Path(out), data=data, quick=quick, only=only, seed=seed, progress=progress)


def run_within(
    budget: Budget,
    out: Path,
    *,
    data: str,
    quick: bool,
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Run:
    """`run`, within a budget of the caller's."""
    wanted = _wanted(only)
    source = Source.of(data, check_count(seed, "seed", least=0))
    settings = {"data": source.name, "bytes": source.size, "seed": seed, "quick": quick}
    done, shown = _take_up(out, settings) or _begin(out, settings), progress or Silent()
    began, spent = perf_counter(), done.header["seconds"]
    left = [name for name in wanted if name not in {section.name for section in done.sections}]
    if not left:
        return done
    bench = Bench.open(out, source, budget, seed, shown)
    done = Run(done.header | {"n": bench.n, "held_out": len(bench.held_out.ids), "d": bench.features.d}, done.sections)
    expected = {name: _EXPERIMENTS[name].seconds(bench) for name in left}
    if "figure-2" in left and "amortised" in left:
        expected["amortised"] = 0.5  # by then its times are measured
    with shown.task("all experiments", sum(expected.values())) as whole:
        for name in left:
            with shown.task(name, expected[name]) as stage:
                both = _Both(stage, whole, expected[name])
                section = _EXPERIMENTS[name].run(bench, both)
                both.finish()
            sections = sorted([*done.sections, section], key=lambda s: EXPERIMENTS.index(s.name))
            done = Run(done.header | {"seconds": spent + perf_counter() - began}, sections)
            write_json(out / _RESULTS, done.as_json())
    return Run.from_json(_read(out))


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
    """The run that `out` holds, if any; one with other settings is refused."""
    if not (out / _RESULTS).exists():
        return None
    held = Run.from_json(_read(out))
    for name, value in settings.items():
        if held.header.get(name) != value:
            raise ValueError(
                f"out: {out} holds a run with {name} = {held.header.get(name)!r}, not {value!r}; choose another "
                "folder, or take up that run with its own settings"
            )
    return held


def _begin(out: Path, settings: dict[str, Any]) -> Run:
    """A run without sections, written down at once: its settings hold from here on."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out: {out} is a file; results are written to a folder")
    check_target(out / "model")
    shutil.rmtree(cache_of(out))  # of a run whose results were deleted, with settings that nobody knows
    header = settings | {
        "temperature": TEMPERATURE,
        "machine": {"processor": _processor(), "cores": os.cpu_count() or 1},
        "versions": _versions(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": 0.0,
    }
    begun = Run(header)
    write_json(out / _RESULTS, begun.as_json())
    return begun


def _read(out: Path) -> dict[str, Any]:
    try:
        held = json.loads((out / _RESULTS).read_text(encoding="utf-8"))
        Run.from_json(held)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"out: {out / _RESULTS} is not the file of a run; choose another folder") from None
    return held


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
