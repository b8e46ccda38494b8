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
from lazygumbel.methods import Bounded, Exhaustive, Sampler
from lazygumbel.model import LogLinear
from lazygumbel.paper import baseline
from lazygumbel.paper.budget import Budget
from lazygumbel.paper.oracle import Oracle
from lazygumbel.paper.protocols import HELD_OUT, HeldOut, Protocol, hold_out
from lazygumbel.paper.source import Source
from lazygumbel.paper.wording import plain
from lazygumbel.persist import check_target
from lazygumbel.progress import Progress, Silent, Task
from lazygumbel.threads import one_blas_thread

__all__ = [
    "BRUTE_FORCE",
    "LEAST_ROWS",
    "TEMPERATURE",
    "Bench",
    "Within",
    "build_model",
    "cache_of",
    "quickest",
    "seconds_each",
    "write_json",
]

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
Ask = Callable[[Distribution], object]
"""A question to the model at one theta."""

TEMPERATURE = 0.05
"""The paper's."""
LEAST_ROWS = 20 * HELD_OUT
"""Of fewer rows, those held out would be more than 5%."""
BRUTE_FORCE = Exhaustive(by_bytes=False)
"""What speed is compared with: a dense pass in float32 that owes nothing to our index."""
_WARM_UP = 1_000


@dataclass(frozen=True, eq=False)
class Bench:
    """The bench of one run; `open` builds it or takes up what an earlier run left."""

    out: Path
    budget: Budget
    seed: int
    model: LogLinear
    build_seconds: float
    """Of the index."""
    held_out: HeldOut
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
            rows, held_out = hold_out(features, _rng(seed, "held out"))
            del features  # a second copy of the rows
            _save_arrays(_arrays(out, "held-out"), vars(held_out))
            build_model(Features.of(rows.gather(np.arange(_WARM_UP))), seed)  # compiles, which is not building
            model, seconds = build_model(rows, seed, shown)
            model.save(path)
            return seconds

        seconds = _once(out, "build", build)
        held_out = HeldOut(**_load_arrays(_arrays(out, "held-out")))
        return cls(out, budget, seed, LogLinear.load(path), float(seconds), held_out, shown)

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
        """Number of rows in the index."""
        return self.features.n

    def name_of(self, row: int) -> str:
        """The name of a row of the index, or where it was in the data."""
        names = self.features.names
        return f"row {self._kept[row]}" if names is None else names[row]

    @cached_property
    def _kept(self) -> npt.NDArray[np.int64]:
        return np.delete(np.arange(self.n + len(self.held_out.ids)), self.held_out.ids)

    def rng(self, label: str) -> np.random.Generator:
        """Random numbers of their own for each label: the same whichever experiments are run."""
        return _rng(self.seed, label)

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
        path = _arrays(self.out, key)
        if not path.exists():
            _save_arrays(path, make())
        return _load_arrays(path)

    def thetas(self, protocol: Protocol) -> Vectors:
        """The thetas of a protocol, (T, d); an experiment takes the first few."""
        return self.held_out.rows[: self._thetas] if protocol == "held-out" else self.features.gather(self.theta_rows)

    def theta_names(self, protocol: Protocol) -> list[str]:
        """What each theta is called."""
        if protocol == "row":
            return [self.name_of(row) for row in self.theta_rows.tolist()]
        return self.held_out.names[: self._thetas].tolist()

    @cached_property
    def theta_rows(self) -> npt.NDArray[np.int64]:
        """Random rows of the index: those that serve as thetas where a theta is a row."""
        return self.rng("thetas").choice(self.n, self._thetas, replace=False)

    @property
    def _thetas(self) -> int:
        budget = self.budget
        return min(HELD_OUT, max(budget.thetas, budget.partition_thetas, budget.error_thetas))

    def oracle(self, protocol: Protocol) -> Oracle:
        """Exact answers for all thetas."""

        def make() -> dict[str, npt.NDArray[Any]]:
            with self.progress.task("exact answers", 1.0) as task:
                return vars(Oracle.of(self.features, self.thetas(protocol), self.temperature, task))

        return Oracle(**self.once_arrays(f"oracle-{protocol}", make))

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
        return self._draw_seconds(BRUTE_FORCE)

    @cached_property
    def draw_seconds(self) -> float:
        """Of one draw of ours."""
        return self._draw_seconds(Bounded())

    def _draw_seconds(self, method: Sampler) -> float:
        some = self.thetas("held-out")[:5]
        return float(self.sampling_seconds(self.model, some, method, self.rng("draw seconds")).mean())

    def sampling_seconds(self, model: LogLinear, thetas: Vectors, method: Sampler, rng: np.random.Generator) -> Floats:
        """Time of one draw at each theta, (T,)."""

        def measure() -> Floats:
            return self.seconds(model, thetas, lambda dist: dist.sample(method=method, rng=rng))

        return quickest(measure) if method == BRUTE_FORCE else measure()

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
    """A model over a `PartitionIndex`, however few the rows, and the seconds it took to build."""
    start = perf_counter()
    model = LogLinear(PartitionIndex.build(features, rng=seed, progress=progress))
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


def quickest(measure: Callable[[], Floats]) -> Floats:
    """Times of brute force with all threads of BLAS or with one: at each theta the smaller.

    On a busy machine the threads of a product wait for each other, 8 ms for one of 0.1 ms. What we are compared with
    must not be slowed by that.
    """
    together = measure()
    with one_blas_thread():
        alone = measure()
    return np.minimum(together, alone)


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


def _rng(seed: int, label: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(label.encode())])


def _arrays(out: Path, key: str) -> Path:
    return cache_of(out) / f"{key}.npz"


def _save_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    scratch = path.with_suffix(".part.npz")
    np.savez(scratch, allow_pickle=False, **arrays)
    scratch.replace(path)


def _load_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    with np.load(path, allow_pickle=False) as held:
        return dict(held)
