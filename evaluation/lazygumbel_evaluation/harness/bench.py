"""`Bench`: what all experiments share. The model, the paper's index, thetas, exact answers, and the clock.

Everything that takes long is kept in the store of the run, so that an interrupted run goes on where it was.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Vectors
from lazygumbel.distribution import Distribution
from lazygumbel.indexes import FaissIndex, PartitionIndex
from lazygumbel.methods import Bounded, Sampler
from lazygumbel.model import LogLinear
from lazygumbel.progress import Progress, Silent, Task
from lazygumbel.rows.features import Features
from lazygumbel_evaluation.harness import baseline
from lazygumbel_evaluation.harness.brute_force import DENSE, Variants, compare
from lazygumbel_evaluation.harness.budget import Budget
from lazygumbel_evaluation.harness.clock import Clocked, Contender, take_turns
from lazygumbel_evaluation.harness.oracle import Oracle
from lazygumbel_evaluation.harness.source import Source
from lazygumbel_evaluation.harness.store import Store
from lazygumbel_evaluation.harness.thetas import MOST_THETAS, Protocol, Thetas, choose, hold_out, protocols

__all__ = ["LEAST_ROWS", "Bench", "Within", "build_model"]

Ask = Callable[[Distribution], object]
"""A question to a model at one theta."""

LEAST_ROWS = 20 * MOST_THETAS
"""Of fewer rows, those held out would be more than 5%."""
_WARM_UP = 1_000


@dataclass(frozen=True, eq=False)
class Bench:
    """The bench of one run; `open` builds it or takes up what an earlier run left."""

    store: Store
    budget: Budget
    seed: int
    temperature: float
    model: LogLinear
    build_seconds: float
    """Of the index."""
    given: bool
    """Whether thetas are the user's."""
    leading: Thetas
    """Those that are not rows of the index."""
    progress: Progress

    @classmethod
    def open(cls, out: Path, source: Source, budget: Budget, progress: Progress | None = None) -> "Bench":
        """Build the model, or load it; either way it is read from disk, so that a resumed run times the same thing."""
        shown, store, seed = progress or Silent(), Store.within(out), source.seed
        path, given = store.path("model"), source.thetas is not None

        def build() -> dict[str, npt.NDArray[Any]]:
            rows = source.read(shown)
            if rows.n < LEAST_ROWS:
                raise ValueError(f"data has {rows.n} rows; at least {LEAST_ROWS:,} are needed")
            thetas = source.read_thetas(rows.d)
            if thetas is None:
                rows, leading = hold_out(rows, _rng(seed, "held out"))
            else:
                leading = choose(thetas, _rng(seed, "given"))
            build_model(Features.of(rows.gather(np.arange(_WARM_UP))), seed)  # compiles, which is not building
            model, seconds = build_model(rows, seed, shown, like=leading.rows / source.temperature)
            model.save(path)
            return vars(leading) | {"seconds": np.asarray(seconds)}

        held = store.once_arrays("build", build)
        seconds, leading = float(held.pop("seconds")), Thetas(**held)
        model = LogLinear.load(path)
        fewer = budget.at_most(len(leading.rows))
        return cls(store, fewer, seed, source.temperature, model, seconds, given, leading, shown)

    @property
    def protocols(self) -> dict[Protocol, str]:
        """What the protocols of the run are called: thetas that are not rows first."""
        return protocols(given=self.given)

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

    @property
    def like(self) -> npt.NDArray[np.float32]:
        """Thetas over temperature that the codes of indexes are sized for."""
        return np.asarray(self.leading.rows / np.float32(self.temperature))

    def name_of(self, row: int) -> str:
        """The name of a row of the index, or where it was in the data."""
        names = self.features.names
        return f"row {self._kept[row]}" if names is None else names[row]

    @cached_property
    def _kept(self) -> npt.NDArray[np.int64]:
        held_out = self.leading.held_out
        return np.delete(np.arange(self.n + len(held_out)), held_out)

    def rng(self, label: str) -> np.random.Generator:
        """Random numbers of their own for each label: the same whichever experiments are run."""
        return _rng(self.seed, label)

    def thetas(self, protocol: Protocol) -> Vectors:
        """The thetas of a protocol, (T, d); an experiment takes the first few."""
        if protocol == "row":
            return self.features.gather(self.theta_rows)
        return self.leading.rows[: self.budget.most_thetas]

    def theta_names(self, protocol: Protocol) -> list[str]:
        """What each theta is called."""
        if protocol == "row":
            return [self.name_of(row) for row in self.theta_rows.tolist()]
        return self.leading.names[: self.budget.most_thetas].tolist()

    @cached_property
    def theta_rows(self) -> npt.NDArray[np.int64]:
        """Random rows of the index: those that serve as thetas where a theta is a row."""
        return self.rng("thetas").choice(self.n, self.budget.most_thetas, replace=False)

    def oracle(self, protocol: Protocol) -> Oracle:
        """Exact answers for all thetas."""

        def make() -> dict[str, npt.NDArray[Any]]:
            with self.progress.task("exact answers", 1.0) as task:
                return vars(Oracle.of(self.features, self.thetas(protocol), self.temperature, task))

        return Oracle(**self.store.once_arrays(f"oracle-{protocol}", make))

    @cached_property
    def paper_index(self) -> tuple[FaissIndex, float]:
        """The paper's index over all rows, and the seconds it took to build."""
        import faiss

        path = self.store.path("paper.faiss")

        def make() -> float:
            with self.progress.task("building the paper's index", 1.0):
                index, seconds = baseline.build_index(self.features)
            faiss.write_index(index.index, str(path))
            return seconds

        seconds = self.store.once("paper-index", make)
        return FaissIndex(self.features, faiss.read_index(str(path))), float(seconds)

    @property
    def paper_model(self) -> LogLinear:
        """The model over the paper's index."""
        return LogLinear(self.paper_index[0])

    @cached_property
    def rough_seconds(self) -> dict[str, float]:
        """Of one draw, exact and ours: what the expected time of an experiment is reckoned from."""
        some, rng = self.leading.rows[:3], self.rng("rough seconds")
        drawn = {"exact": self.drawing(self.model, DENSE, rng), "ours": self.drawing(self.model, Bounded(), rng)}
        asked = {name: Contender(call, some) for name, call in drawn.items()}
        return {name: one.median for name, one in take_turns(asked, self.budget.pace._replace(passes=1)).items()}

    def drawing(self, model: LogLinear, method: Sampler, rng: np.random.Generator) -> Callable[[Vectors], object]:
        """The call that draws once at a theta."""
        return self.asking(model, lambda dist: dist.sample(method=method, rng=rng))

    def asking(self, model: LogLinear, ask: Ask) -> Callable[[Vectors], object]:
        """The call that puts a question to a model at a theta, `model(theta)` included."""
        return lambda theta: ask(cast("Distribution", model(theta, temperature=self.temperature)))

    def compare(
        self, exact: Variants, calls: Mapping[str, Callable[[Vectors], object]], thetas: Vectors
    ) -> dict[str, Clocked]:
        """Time calls at the same thetas, in turns with brute force at its quickest, which is called "exact"."""
        return compare(exact, calls, thetas, self.budget.pace)


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


def build_model(
    features: Features, seed: int, progress: Progress | None = None, *, like: npt.ArrayLike | None = None
) -> tuple[LogLinear, float]:
    """A model over a `PartitionIndex`, however few the rows, and the seconds it took to build."""
    start = perf_counter()
    model = LogLinear(PartitionIndex.build(features, rng=seed, thetas=like, progress=progress))
    return model, perf_counter() - start


def _rng(seed: int, label: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(label.encode())])
