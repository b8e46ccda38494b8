"""The climb: what is climbed (`Problem`), where a run is (`State`), and the run itself (`Ascent`)."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import longest_vector
from lazygumbel.learning.anchored import Anchor, Anchored, softmax
from lazygumbel.learning.records import Diverged, Fit, History, Record
from lazygumbel.methods import Estimator, Exhaustive, Query
from lazygumbel.model import LogLinear
from lazygumbel.progress import Task
from lazygumbel.protocols import Model

__all__ = ["Ascent", "Problem", "State"]


class State(NamedTuple):
    """Where an ascent is, after a whole number of steps. Replaced at once, so that Ctrl-C cannot split it."""

    iteration: int
    theta: Floats
    rows: int = 0
    seconds: float = 0.0
    anchor: Anchor | None = None


class _Estimated(NamedTuple):
    """An estimate of E[phi] or of the gradient, (d,), the rows scored for it, and the anchor it rests on, if any."""

    value: Floats
    rows: int
    anchor: Anchor | None


@dataclass(frozen=True, eq=False)
class Problem:
    """What is climbed, and how."""

    model: Model
    target: Floats
    """Weighted mean of the rows to be learnt, (d,)."""
    method: Anchored | Estimator
    learning_rate: float
    halve_every: int | None
    temperature: float
    l2: float

    def gradient(self, state: State, seed: Sequence[int]) -> _Estimated:
        """Of the mean log-likelihood less the penalty."""
        with np.errstate(over="ignore", invalid="ignore"):  # a theta that has run away is refused after the step
            mean, rows, anchor = self._expectation(state, seed)
            return _Estimated((self.target - mean) / self.temperature - self.l2 * state.theta, rows, anchor)

    def step(self, theta: Floats, gradient: Floats, iteration: int) -> Floats:
        """Theta after one step."""
        halvings = 0 if self.halve_every is None else iteration // self.halve_every
        with np.errstate(over="ignore", invalid="ignore"):
            return theta + self.learning_rate * 0.5**halvings * gradient

    def log_likelihood(self, theta: Floats) -> float:
        """Exact; of theta as the rows see it, in float32."""
        seen = theta.astype(np.float32).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            log_z = self.model(seen.astype(np.float32), temperature=self.temperature).log_partition(method=Exhaustive())
            return float(seen @ self.target / self.temperature - log_z.value)

    @property
    def longest(self) -> float:
        """No theta may be longer."""
        return longest_vector(self.model.features.max_norm, self.temperature)

    def settings(self, rows: Ints, shares: Floats, start: Floats) -> dict[str, Any]:
        """What must be the same for a run to be resumed; arrays by their digests."""
        features = self.model.features
        held = isinstance(self.model, LogLinear)
        # Of rows that are elsewhere, and may have changed, those to be learnt are surely there.
        some = features.gather(np.random.default_rng(0).integers(features.n, size=64) if held else rows[:64])
        return {
            "features": f"{features.n} x {features.d}, {_digest(some)}",
            "ids": _digest(rows),
            "weights": _digest(shares),
            "theta0": _digest(start),
            "method": repr(self.method) if is_dataclass(self.method) else type(self.method).__qualname__,
            "learning_rate": self.learning_rate,
            "halve_every": self.halve_every,
            "temperature": self.temperature,
            "l2": self.l2,
        }

    def _expectation(self, state: State, seed: Sequence[int]) -> _Estimated:
        """E[phi]. Random numbers are a function of seed and iteration, whatever a method does with its generator."""
        method, features = self.method, self.model.features
        if isinstance(method, Anchored):
            anchor = state.anchor
            if anchor is not None:
                distance = float(np.linalg.norm(state.theta - anchor.theta)) * features.max_norm
                if distance <= method.reach * self.temperature:
                    return _Estimated(anchor.mean_at(state.theta, self.temperature), len(anchor.rows), anchor)
            anchor = self.drop(state.theta, method, state.iteration, seed)
            return _Estimated(anchor.mean, anchor.rows_read, anchor)
        if isinstance(method, Exhaustive):
            return _Estimated(self._exact(state.theta), features.n, None)
        dist = self.model(state.theta.astype(np.float32), temperature=self.temperature)
        estimate = dist.expectation(method=method, rng=np.random.default_rng([*seed, state.iteration]))
        if np.isfinite(estimate.value).all():
            return _Estimated(estimate.value, int(estimate.rows), None)
        # No row was looked at, which happens to sparse methods.
        return _Estimated(self._exact(state.theta), int(estimate.rows) + features.n, None)

    def drop(self, theta: Floats, method: Anchored, iteration: int, seed: Sequence[int]) -> Anchor:
        """An anchor: the same for the same seed and iteration."""
        if not isinstance(self.model, LogLinear):
            return Anchor.afar(self.model, theta, self.temperature, method.size, [*seed, iteration])
        query = Query.of(self.model.index, theta, self.temperature)
        return Anchor.drop(query, theta, method.size, iteration, seed)

    def _exact(self, theta: Floats) -> Floats:
        if isinstance(self.model, LogLinear):  # without the variances of `expectation`, which nobody asks for here
            return softmax(self.model.features, theta, self.temperature)[1]
        dist = self.model(theta.astype(np.float32), temperature=self.temperature)
        return dist.expectation(method=Exhaustive()).value


class Ascent:
    """A run: what it climbs, where it is, what was recorded."""

    def __init__(self, problem: Problem, seed: Sequence[int], state: State, records: tuple[Record, ...] = ()) -> None:
        self.problem, self.seed, self.state, self.records = problem, seed, state, records

    def climb(
        self,
        last: int,
        every: int,
        tolerance: float | None,
        at_checkpoint: Callable[[Record], bool],
        task: Task,
    ) -> None:
        """Step until the last iteration, or until told to stop."""
        while True:
            iteration, theta, rows, seconds, _ = self.state
            began = perf_counter()
            gradient = self.problem.gradient(self.state, self.seed)
            seconds += perf_counter() - began
            if iteration % every == 0 or iteration == last:
                known = self.records and self.records[-1].iteration == iteration  # when resumed
                if not known and at_checkpoint(self._record(gradient.value)):
                    return
                if iteration == last or self._settled(tolerance):
                    return
            began = perf_counter()
            theta = self.problem.step(theta, gradient.value, iteration)
            if not float(np.abs(theta).max()) * sqrt(len(theta)) < self.problem.longest:
                raise self._diverged("logits overflow")
            seconds += perf_counter() - began
            self.state = State(iteration + 1, theta, rows + gradient.rows, seconds, gradient.anchor)
            task.advance(1)

    def fit(self) -> Fit:
        """The run so far."""
        if self.records and self.records[-1].iteration == self.state.iteration:
            exact = self.records[-1].log_likelihood
        else:
            exact = self.problem.log_likelihood(self.state.theta)
        return Fit(self.state.theta, exact, History.of(self.records), self.state.rows)

    def _record(self, gradient: Floats) -> Record:
        state = self.state
        exact = self.problem.log_likelihood(state.theta)
        # From a sure guess to a uniform one is log n: whoever loses more than that is not climbing.
        lowest = self.records[0].log_likelihood - np.log(self.problem.model.features.n) if self.records else -np.inf
        if not (np.isfinite(exact) and exact >= lowest):
            raise self._diverged(f"the log-likelihood is {exact:.4g}")
        norm = float(np.linalg.norm(gradient))
        record = Record(state.iteration, exact, norm, state.rows, state.seconds, state.theta)
        self.records = (*self.records, record)
        return record

    def _settled(self, tolerance: float | None) -> bool:
        recent = [record.log_likelihood for record in self.records[-3:]]
        return tolerance is not None and len(recent) == 3 and bool(np.abs(np.diff(recent)).max() < tolerance)

    def _diverged(self, what: str) -> Diverged:
        rate = self.problem.learning_rate
        good = self.records[-1] if self.records else Record(0, np.nan, np.nan, 0, 0.0, self.state.theta)
        return Diverged(
            f"learning_rate: {rate:g} is too high, {what} at iteration {self.state.iteration:,}; try {rate / 10:g}, "
            "or a method with a smaller error",
            Fit(good.theta, good.log_likelihood, History.of(self.records), good.rows),
        )


def _digest(values: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
