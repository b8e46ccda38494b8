"""A whole run of the evaluation on a small file, and what tests ask of it."""

import json
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.budget import Budget
from lazygumbel_evaluation.harness.clock import Pace
from lazygumbel_evaluation.harness.source import Source
from lazygumbel_evaluation.harness.thetas import MOST_THETAS, Protocol
from lazygumbel_evaluation.report.section import Section
from lazygumbel_evaluation.run import Run, run_within

N, D = 5_000, 16
KEPT = N - MOST_THETAS
TINY = Budget(
    thetas=6,
    pace=Pace(passes=2, rest_seconds=0.0),
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
    error_draws=10_000,
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
    """The run, with its folder and the bench it was made on."""

    file: Path
    out: Path
    run: Run
    bench: Bench
    stages: list[list]

    @property
    def rows(self) -> np.ndarray:
        """Of the index, by id, as the model sees them, in float64."""
        return self.bench.features.gather(np.arange(KEPT)).astype(np.float64)

    def logits(self, protocol: Protocol, t: int) -> np.ndarray:
        """Of all rows at one theta."""
        return self.rows @ self.bench.thetas(protocol)[t].astype(np.float64) / self.bench.temperature

    def section(self, name: str) -> Section:
        return next(section for section in self.run.sections if section.name == name)

    def again(self, out: Path, *, quick: bool = True, only: Sequence[str] = (), **changed) -> Run:
        """The same command once more, but for what is changed."""
        return run_within(TINY, out, source_of(**{"data": self.file} | changed), quick=quick, only=only)

    def copy(self, to: Path, *, without: tuple[str, ...] = ()) -> Path:
        """The folder, as if these experiments had not been done yet."""
        shutil.copytree(self.out, to)
        held = json.loads((to / "results.json").read_text())
        held["sections"] = [section for section in held["sections"] if section["name"] not in without]
        (to / "results.json").write_text(json.dumps(held))
        return to


def source_of(data: object, seed: int = 0, temperature: float = 0.05, unit_norm: bool = True, **settings) -> Source:
    """As the paper takes its own rows."""
    return Source.of(str(data), seed, temperature=temperature, unit_norm=unit_norm, **settings)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()
