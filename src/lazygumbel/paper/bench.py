"""`Bench`: what all experiments share. The model, the paper's index, thetas, exact answers, and a stopwatch.

Everything that takes long is kept in the folder of the run, so that an interrupted run goes on where it was.
"""

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from lazygumbel.distribution import Distribution
from lazygumbel.features import Features
from lazygumbel.indexes import FaissIndex, PartitionIndex
from lazygumbel.model import LogLinear
from lazygumbel.paper import baseline
from lazygumbel.paper.brute_force import BruteForce
from lazygumbel.paper.budget import Budget
from lazygumbel.paper.oracle import Oracle
from lazygumbel.paper.source import Source
from lazygumbel.paper.wording import plain
from lazygumbel.persist import check_target
from lazygumbel.progress import Progress, Silent, Task

__all__ = ["LEAST_ROWS", "TEMPERATURE", "Bench", "Within", "build_model", "cache_of", "seconds_each", "write_json"]

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
Ask = Callable[[Distribution], object]
"""A question to the model at one theta."""

TEMPERATURE = 0.05
"""The paper's."""
LEAST_ROWS = 2_000
"""Fewer rows cannot be calibrated."""
_THETAS = 100


@dataclass(frozen=True, eq=False)
class Bench:
    """The bench of one run; `open` builds it or takes up what an earlier run left."""

    out: Path
    budget: Budget
    seed: int
    model: LogLinear
    build_seconds: float
    """Of index and calibration together."""
    progress: Progress
    temperature: float = TEMPERATURE

    @classmethod
    def open(cls, out: Path, source: Source, budget: Budget, seed: int, progress: Progress | None = None) -> "Bench":
        """Build the model, or load it; either way it is read from disk, so that a resumed run times the same thing."""
        shown, path = progress or Silent(), out / "model"

        def build() -> float:
            check_target(path)
            features = source.read(shown)
            if features.n < LEAST_ROWS:
                raise ValueError(f"data has {features.n} rows; at least {LEAST_ROWS:,} are needed")
            build_model(Features.of(features.gather(np.arange(LEAST_ROWS))), seed)  # compiles, which is not building
            model, seconds = build_model(features, seed, shown)
            model.save(path)
            return seconds

        seconds = _once(out, "build", build)
        return cls(out, budget, seed, LogLinear.load(path), float(seconds), shown)

    @property
    def features(self) -> Features:
        """The rows, as the model stores them."""
        return self.model.features

    @property
    def index(self) -> PartitionIndex:
        """The cells of the model."""
        if not isinstance(self.model.index, PartitionIndex):
            raise ValueError(f"model has a {type(self.model.index).__name__}, not a PartitionIndex")
        return self.model.index

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.features.n

    def rng(self, label: str) -> np.random.Generator:
        """Random numbers of their own for each label: the same whichever experiments are run."""
        return np.random.default_rng([self.seed, crc32(label.encode())])

    @property
    def cache(self) -> Path:
        """The folder of what is kept."""
        return cache_of(self.out)

    def has(self, key: str) -> bool:
        """Whether `once` was done for this key."""
        return (self.cache / f"{key}.json").exists()

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, as plain data; made once for each folder."""
        return _once(self.out, key, make)

    def once_arrays(self, key: str, make: Callable[[], dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
        """The same for arrays."""
        path = self.cache / f"{key}.npz"
        if not path.exists():
            scratch = path.with_suffix(".part.npz")
            np.savez(scratch, allow_pickle=False, **make())
            scratch.replace(path)
        with np.load(path, allow_pickle=False) as held:
            return dict(held)

    @cached_property
    def theta_ids(self) -> npt.NDArray[np.int64]:
        """100 random rows, which serve as thetas."""
        return self.rng("thetas").choice(self.n, min(_THETAS, self.n), replace=False)

    @cached_property
    def thetas(self) -> Vectors:
        """The rows of `theta_ids`, (100, d); an experiment takes the first few."""
        return self.features.gather(self.theta_ids)

    @cached_property
    def oracle(self) -> Oracle:
        """Exact answers for all thetas."""

        def make() -> dict[str, npt.NDArray[Any]]:
            with self.progress.task("exact answers", 1.0) as task:
                return vars(Oracle.of(self.features, self.thetas, self.temperature, task))

        return Oracle(**self.once_arrays("oracle", make))

    @cached_property
    def paper_index(self) -> tuple[FaissIndex, float]:
        """The paper's index over all rows, and the seconds it took to build."""
        import faiss

        path = self.cache / "paper.faiss"

        def make() -> float:
            with self.progress.task("building the paper's index", 1.0):
                index, seconds = baseline.build_index(self.features)
            faiss.write_index(index.index, str(path))
            return seconds

        seconds = self.once("paper-index", make)
        return FaissIndex(self.features, faiss.read_index(str(path))), float(seconds)

    @property
    def paper_model(self) -> LogLinear:
        """The model over the paper's index."""
        return LogLinear(self.paper_index[0])

    @cached_property
    def exact_seconds(self) -> float:
        """Of one exact draw: what the expected time of an experiment is reckoned from."""
        rng = self.rng("exact seconds")
        some = self.thetas[:5]
        return float(self.seconds(self.model, some, lambda dist: dist.sample(method=BruteForce(), rng=rng)).mean())

    @cached_property
    def look_seconds(self) -> float:
        """Of one draw of ours, among many."""

        def ask(batch: Vectors) -> object:
            return self.model(batch, temperature=self.temperature).sample(rng=self.rng("look seconds"))

        return float(seconds_each(ask, self.thetas[None], 1)[0]) / len(self.thetas)

    def seconds(self, model: LogLinear, thetas: Vectors, ask: Ask) -> Floats:
        """Time of one question at each theta, (T,), `model(theta)` included."""
        return seconds_each(lambda theta: ask(model(theta, temperature=self.temperature)), thetas, self.budget.repeats)


class Within:
    """Progress whose stages together are a share of a task: for library calls that make up part of an experiment."""

    def __init__(self, task: Task, share: float) -> None:
        self._task, self._share = task, share

    @contextmanager
    def task(self, label: str, total: float) -> Generator[Task]:  # noqa: ARG002  # the protocol's signature
        """A stage that moves the outer task."""
        yield _Scaled(self._task, self._share / total)


class _Scaled:
    def __init__(self, task: Task, unit: float) -> None:
        self._task, self._unit = task, unit

    def advance(self, amount: float) -> None:
        self._task.advance(amount * self._unit)


def build_model(features: Features, seed: int, progress: Progress | None = None) -> tuple[LogLinear, float]:
    """A calibrated model over cells, however few the rows, and the seconds it took to build."""
    generator = np.random.default_rng(seed)
    start = perf_counter()
    index = PartitionIndex.build(features, rng=generator, progress=progress)
    model = LogLinear(index)
    model.calibrate(rng=generator, progress=progress)
    return model, perf_counter() - start


def seconds_each(ask: Callable[[Vectors], object], thetas: Vectors, repeats: int) -> Floats:
    """For each theta the median time of `repeats` calls, (T,); the first two calls, which compile, are not timed."""
    for theta in thetas[:2]:
        ask(theta)
    medians = np.empty(len(thetas))
    for t, theta in enumerate(thetas):
        taken: list[float] = []
        for _ in range(repeats):
            start = perf_counter()
            ask(theta)
            taken.append(perf_counter() - start)
        medians[t] = np.median(taken)
    return medians


def write_json(path: Path, value: Any) -> None:
    """Replace a file in one step: whoever reads it sees the old or the new, whole."""
    text = json.dumps(plain(value), indent=1, allow_nan=False)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.part")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def cache_of(out: Path) -> Path:
    """The folder of what is kept between runs, made if there is none."""
    path = out / "lazygumbel-cache"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _once(out: Path, key: str, make: Callable[[], Any]) -> Any:
    path = cache_of(out) / f"{key}.json"
    if not path.exists():
        write_json(path, make())
    return json.loads(path.read_text(encoding="utf-8"))
