"""`fit`: maximum likelihood by gradient ascent (section 4.4 of the paper).

The mean log-likelihood of some rows is theta . (their mean) / temperature - log Z(theta), which is concave; its
gradient is (their mean - E[phi]) / temperature. E[phi] may come from any method that estimates expectations. But a
learner is a hard judge of those: it walks to the thetas where the estimate is wrong, since nothing holds down rows that
are never looked at. By default it comes from `Anchored`, which never goes far from a theta where all rows were scored.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_count, check_ids, check_number, check_vectors
from lazygumbel.distribution import Rng
from lazygumbel.features import Features
from lazygumbel.methods import Estimator, Exhaustive
from lazygumbel.model import LogLinear
from lazygumbel.progress import Progress, Silent, Task
from lazygumbel.threads import map_threads

__all__ = ["Anchored", "Diverged", "Fit", "History", "Interrupted", "Record", "check_file", "fit", "replacing"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_FORMAT, _VERSION = "lazygumbel-fit", 1
_CHECKPOINTS = 20
_BLOCK_BYTES = 2**20
"""Rows that a dense pass reads from memory once, and again from cache; BLAS starts no threads for so few."""
_BLOCKS_AT_ONCE = 8
_LARGEST = 1e38
"""Of the entries of theta: rows are scored in float32."""


@dataclass(frozen=True)
class Anchored:
    """E[phi] from a sample of the softmax at an earlier theta, the anchor, where E[phi] is known exactly.

    Between there and here each of `size` draws changes its weight by the ratio of the two softmaxes, and the exact
    E[phi] of the anchor moves by as much as the sample's does: E_a + E'[phi | here] - E'[phi | anchor]. No logit has
    moved by more than `reach`, or a dense pass drops a new anchor here; so no probability has grown by more than a
    factor of exp(2 reach) since all rows were scored. Steps longer than the reach are exact ones, and where learning
    slows down, one dense pass serves hundreds of steps.
    """

    size: int = 2000
    reach: float = 2.0

    def __post_init__(self) -> None:
        check_count(self.size, "size")
        check_number(self.reach, "reach", least=0.0)


class Record(NamedTuple):
    """What is known at a checkpoint."""

    iteration: int
    log_likelihood: float
    """Exact: the (weighted) mean over the rows to be learnt, without the penalty."""
    gradient_norm: float
    """Of the gradient as the method estimates it here."""
    rows: int
    """How many rows the steps up to here have scored."""
    seconds: float
    """Time that the steps up to here took."""
    theta: Floats


@dataclass(frozen=True, eq=False)
class History:
    """The records of all checkpoints but for their thetas, an array for each column."""

    iteration: Ints
    log_likelihood: Floats
    gradient_norm: Floats
    rows: Ints
    seconds: Floats

    @classmethod
    def of(cls, records: Sequence[Record]) -> "History":
        """The columns of some records, read-only."""
        history = cls(
            np.array([record.iteration for record in records], dtype=np.int64),
            np.array([record.log_likelihood for record in records], dtype=np.float64),
            np.array([record.gradient_norm for record in records], dtype=np.float64),
            np.array([record.rows for record in records], dtype=np.int64),
            np.array([record.seconds for record in records], dtype=np.float64),
        )
        for column in vars(history).values():
            column.flags.writeable = False
        return history

    def __len__(self) -> int:
        return len(self.iteration)


@dataclass(frozen=True, eq=False)
class Fit:
    """What was learnt: theta (d,), its exact log-likelihood, the checkpoints, and the rows that all steps scored."""

    theta: Floats
    log_likelihood: float
    history: History
    rows: int


class Diverged(ArithmeticError):
    """Steps were too long. `fit` ends at the last checkpoint that was still good."""

    def __init__(self, message: str, fit: Fit) -> None:
        super().__init__(message)
        self.fit = fit


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. `fit` holds the theta after the last whole step, and so does the checkpoint file."""

    def __init__(self, message: str, fit: Fit) -> None:
        super().__init__(message)
        self.fit = fit


def fit(
    model: LogLinear,
    ids: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    method: Anchored | Estimator | None = None,
    learning_rate: float = 10.0,
    halve_every: int | None = 1000,
    iterations: int = 5000,
    temperature: float = 1.0,
    l2: float = 0.0,
    theta0: npt.ArrayLike | None = None,
    tolerance: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    rng: Rng = None,
    callback: Callable[[Record], bool | None] | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Find the theta under which the rows `ids` are most likely on average, less `l2` / 2 times its squared norm.

    Ids may repeat; `weights` (m,) say how much each counts. From `theta0` (zeros), `iterations` steps are made at
    `learning_rate`, halved every `halve_every` steps; 10 temperature^2 is at any temperature what 10 is at one.
    `method` estimates E[phi]: `Anchored()` unless given, which needs no index.

    Checkpoints are the first iteration, the last, and every `checkpoint_every` (a twentieth of all). There the exact
    log-likelihood is recorded, by a dense pass that is neither timed nor counted; the file `checkpoint` is replaced;
    and `callback` is called, which may return True to stop. `tolerance` stops when the exact log-likelihood has moved
    by less than this from checkpoint to checkpoint twice in a row; the norm of a noisy gradient could not tell.

    `resume` goes on from the file `checkpoint`, to the very theta of a run that was never stopped: with the random
    numbers of the file, not `rng`. Only `iterations`, `tolerance` and `checkpoint_every` may differ. Ctrl-C raises
    `Interrupted`; a theta that is not finite, or a log-likelihood more than log n below the first, `Diverged`.
    """
    if resume and checkpoint is None:
        raise ValueError("resume needs checkpoint: the file to go on from")
    rows, shares = _check_rows(model, ids, weights)
    problem = _Problem(
        model,
        shares @ model.features.gather(rows).astype(np.float64),
        Anchored() if method is None else method,
        check_number(learning_rate, "learning_rate", above=0.0),
        None if halve_every is None else check_count(halve_every, "halve_every"),
        check_number(temperature, "temperature", above=0.0),
        check_number(l2, "l2", least=0.0),
    )
    start = _check_theta(theta0, model.features.d)
    last = check_count(iterations, "iterations", least=0)
    every = max(1, last // _CHECKPOINTS)
    if checkpoint_every is not None:
        every = check_count(checkpoint_every, "checkpoint_every")
    if tolerance is not None:
        check_number(tolerance, "tolerance", above=0.0)
    ascent = _Ascent(problem, np.random.default_rng(rng).integers(2**63, size=2).tolist(), _State(0, start))
    file = None if checkpoint is None else _File(Path(checkpoint), problem.settings(rows, shares, start))
    if file is not None:
        file.check(resume=resume)
    if file is not None and resume:
        ascent = file.load(problem)
        if ascent.state.iteration > last:
            raise ValueError(f"iterations is {last}, but {file.path} is at iteration {ascent.state.iteration} already")

    def at_checkpoint(record: Record) -> bool:
        if file is not None:
            file.save(ascent)
        return callback is not None and bool(callback(record))

    with (progress or Silent()).task("fitting", last) as task:
        task.advance(ascent.state.iteration)
        try:
            ascent.climb(last, every, tolerance, at_checkpoint, task)
        except KeyboardInterrupt:
            if file is not None:
                file.save(ascent)
            raise Interrupted(f"interrupted at iteration {ascent.state.iteration:,}", ascent.fit()) from None
    return ascent.fit()


@dataclass(frozen=True, eq=False)
class _Anchor:
    """A theta at which all rows were scored, E[phi] there, and the distinct rows of a sample with their shares."""

    theta: Floats
    iteration: int
    mean: Floats
    rows: Floats
    shares: Floats

    def mean_at(self, theta: Floats, temperature: float) -> Floats:
        """E[phi] at another theta."""
        gains = self.rows @ ((theta - self.theta) / temperature)
        weights = self.shares * np.exp(gains - gains.max())
        return self.mean + (weights / weights.sum() - self.shares) @ self.rows


class _State(NamedTuple):
    """Where an ascent is, after a whole number of steps. Replaced at once, so that Ctrl-C cannot split it."""

    iteration: int
    theta: Floats
    rows: int = 0
    seconds: float = 0.0
    anchor: _Anchor | None = None


class _Estimated(NamedTuple):
    """An estimate of E[phi] or of the gradient, (d,), the rows scored for it, and the anchor it rests on, if any."""

    value: Floats
    rows: int
    anchor: _Anchor | None


@dataclass(frozen=True, eq=False)
class _Problem:
    """What is climbed, and how."""

    model: LogLinear
    target: Floats
    """Weighted mean of the rows to be learnt, (d,)."""
    method: Anchored | Estimator
    learning_rate: float
    halve_every: int | None
    temperature: float
    l2: float

    def gradient(self, state: _State, seed: Sequence[int]) -> _Estimated:
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
            log_z = self.model(seen, temperature=self.temperature).log_partition(method=Exhaustive())
            return float(seen @ self.target / self.temperature - log_z.value)

    def drop_anchor(self, theta: Floats, size: int, iteration: int, seed: Sequence[int]) -> _Anchor:
        """One dense pass, and draws by systematic sampling: rows are stored by cell, so these spread over cells."""
        weights, mean = _softmax(self.model.features, theta, self.temperature)
        cumulative = np.cumsum(weights, dtype=np.float64)
        offset = np.random.default_rng([*seed, iteration]).random()
        targets: Floats = (np.arange(size) + offset) * (cumulative[-1] / size)
        drawn = cumulative.searchsorted(targets, side="right")
        positions, counts = np.unique(np.minimum(drawn, len(weights) - 1), return_counts=True)
        rows = self.model.features.stored[positions].astype(np.float64)
        return _Anchor(theta, iteration, mean, rows, counts / size)

    def settings(self, rows: Ints, shares: Floats, start: Floats) -> dict[str, Any]:
        """What must be the same for a run to be resumed; arrays by their digests."""
        features = self.model.features
        some = features.gather(np.random.default_rng(0).integers(features.n, size=64))
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

    def _expectation(self, state: _State, seed: Sequence[int]) -> _Estimated:
        """E[phi]. Random numbers are a function of seed and iteration, whatever a method does with its generator."""
        method, features = self.method, self.model.features
        if isinstance(method, Anchored):
            anchor = state.anchor
            if anchor is not None:
                distance = float(np.linalg.norm(state.theta - anchor.theta)) * features.max_norm
                if distance <= method.reach * self.temperature:
                    return _Estimated(anchor.mean_at(state.theta, self.temperature), len(anchor.rows), anchor)
            anchor = self.drop_anchor(state.theta, method.size, state.iteration, seed)
            return _Estimated(anchor.mean, features.n, anchor)
        if isinstance(method, Exhaustive):  # without the variances of `expectation`, which nobody asks for here
            return _Estimated(_softmax(features, state.theta, self.temperature)[1], features.n, None)
        dist = self.model(state.theta, temperature=self.temperature)
        estimate = dist.expectation(method=method, rng=np.random.default_rng([*seed, state.iteration]))
        if np.isfinite(estimate.value).all():
            return _Estimated(estimate.value, int(estimate.rows), None)
        # No row was looked at, which happens to sparse methods.
        exact = _softmax(features, state.theta, self.temperature)[1]
        return _Estimated(exact, int(estimate.rows) + features.n, None)


def _softmax(features: Features, theta: Floats, temperature: float) -> tuple[npt.NDArray[np.float32], Floats]:
    """Weights proportional to the probabilities, (n,) in storage order, and E[phi]; memory is read once."""
    vector = theta.astype(np.float32)
    step = max(1, _BLOCK_BYTES // (4 * features.d))
    starts = range(0, features.n, step)
    weights = np.empty(features.n, dtype=np.float32)
    tops, sums = np.empty(len(starts)), np.empty((len(starts), features.d))

    def weigh(first: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for b, start in enumerate(starts[first : first + _BLOCKS_AT_ONCE], first):
                rows = np.ascontiguousarray(features.stored[start : start + step], dtype=np.float32)
                part = weights[start : start + step]
                np.dot(rows, vector, out=part)
                tops[b] = part.max()
                part -= np.float32(tops[b])
                part /= temperature
                np.exp(part, out=part)
                sums[b] = np.dot(part, rows)

    for _ in map_threads(weigh, range(0, len(starts), _BLOCKS_AT_ONCE)):
        pass
    scales = np.exp((tops - tops.max()) / temperature)
    weights *= np.repeat(scales.astype(np.float32), step)[: features.n]
    return weights, scales @ sums / weights.sum(dtype=np.float64)


class _Ascent:
    """A run: what it climbs, where it is, what was recorded."""

    def __init__(self, problem: _Problem, seed: Sequence[int], state: _State, records: tuple[Record, ...] = ()) -> None:
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
            if not float(np.abs(theta).max()) < _LARGEST:
                raise self._diverged("theta is no longer finite")
            seconds += perf_counter() - began
            self.state = _State(iteration + 1, theta, rows + gradient.rows, seconds, gradient.anchor)
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


@dataclass(frozen=True)
class _File:
    """A run on disk: an .npz without pickled objects, replaced as a whole."""

    path: Path
    settings: dict[str, Any]

    def check(self, *, resume: bool) -> None:
        """Refuse what cannot be written, and not to overwrite anything but a checkpoint."""
        check_file(self.path, "checkpoint")
        if self.path.exists():
            self._read()
        elif resume:
            raise ValueError(f"resume: there is no file {self.path} to go on from")

    def save(self, ascent: _Ascent) -> None:
        """Write the run as it is after its last whole step."""
        state, records = ascent.state, ascent.records
        facts = {
            "format": _FORMAT,
            "version": _VERSION,
            "iteration": state.iteration,
            "rows": state.rows,
            "seconds": state.seconds,
            "rng": list(ascent.seed),
            "anchored": None if state.anchor is None else state.anchor.iteration,
            "settings": self.settings,
        }
        with replacing(self.path) as stream:
            np.savez(
                stream,
                allow_pickle=False,
                facts=np.array(json.dumps(facts)),
                theta=state.theta,
                recorded=records[-1].theta if records else state.theta,
                anchor=state.theta if state.anchor is None else state.anchor.theta,
                **vars(History.of(records)),
            )

    def load(self, problem: _Problem) -> _Ascent:
        """The run as it was saved; that of another problem is refused."""
        facts, arrays = self._read()
        saved: dict[str, Any] = facts.get("settings", {})
        for name, value in self.settings.items():
            if saved.get(name) != value:
                raise ValueError(
                    f"resume: {self.path} was written with another {name} ({saved.get(name)}, not {value})"
                )
        columns: list[list[Any]] = [arrays[name].tolist() for name in History.__dataclass_fields__]
        records = tuple(Record._make((*at, arrays["recorded"])) for at in zip(*columns, strict=True))
        anchor, at = None, facts["anchored"]
        if isinstance(problem.method, Anchored) and at is not None:  # not kept: a dense pass gives the same again
            anchor = problem.drop_anchor(arrays["anchor"], problem.method.size, at, facts["rng"])
        state = _State(facts["iteration"], arrays["theta"], facts["rows"], facts["seconds"], anchor)
        return _Ascent(problem, facts["rng"], state, records)

    def _read(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        try:
            with np.load(self.path, allow_pickle=False) as held:
                arrays = dict(held)
            facts: Any = json.loads(str(arrays.pop("facts")))
            kind, version = facts["format"], facts["version"]
        except (ValueError, EOFError, KeyError, TypeError, AttributeError, BadZipFile):
            kind, version, facts, arrays = None, 0, {}, {}
        if kind != _FORMAT:
            raise ValueError(f"checkpoint: {self.path} is no checkpoint of a fit; choose another path")
        if not isinstance(version, int) or version > _VERSION:
            raise ValueError(
                f"checkpoint: {self.path} has format version {version}, newer than the {_VERSION} this release reads; "
                "upgrade with: pip install --upgrade lazygumbel"
            )
        return facts, arrays


def check_file(path: Path, name: str) -> None:
    """Refuse a path at which no file can be put."""
    if path.is_dir():
        raise ValueError(f"{name}: {path} is a folder; give the path of a file")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{name}: there is no folder {path.absolute().parent}")


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A stream to a new file that takes the place of `path` when the block ends, and leaves no trace if it fails."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _digest(values: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def _check_rows(model: LogLinear, ids: npt.ArrayLike, weights: npt.ArrayLike | None) -> tuple[Ints, Floats]:
    """The rows to be learnt and the share of each, both (m,)."""
    rows = check_ids(ids, "ids", model.features.n)
    if rows.ndim != 1 or not len(rows):
        raise ValueError(f"ids must be the ids of one or more rows, (m,), not of shape {rows.shape}")
    if weights is None:
        return rows, np.full(len(rows), 1 / len(rows))
    given: npt.NDArray[Any] = np.asarray(weights)
    if given.dtype.kind not in "fiu" or given.shape != rows.shape:
        raise ValueError(
            f"weights must be real numbers of shape {rows.shape}, not {given.dtype} of shape {given.shape}"
        )
    shares = given.astype(np.float64)
    if not np.isfinite(shares).all() or shares.min() < 0 or not shares.sum() > 0:
        raise ValueError("weights must be finite, none of them negative and not all of them zero")
    return rows, shares / shares.sum()


def _check_theta(theta0: npt.ArrayLike | None, d: int) -> Floats:
    if theta0 is None:
        return np.zeros(d)
    if check_vectors(theta0, "theta0", d).ndim != 1:
        raise ValueError(f"theta0 must have shape ({d},), not {np.shape(theta0)}")
    return np.array(theta0, dtype=np.float64)
