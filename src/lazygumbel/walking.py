"""`walk`: the paper's Markov chain over the rows (section 4.2.2), many chains at once.

From row j the chain moves to row i with probability proportional to w_ij = exp(phi_i . phi_j / temperature): each step
is a draw of the model at theta = phi_j. w is symmetric, so the chain is reversible, and the long-run share of row j is
proportional to the sum of w_ij over i: to Z at theta = phi_j, less w_jj when staying is forbidden.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel._support.checks import check_count
from lazygumbel.distribution import Rng
from lazygumbel.methods import Sampler
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.protocols import Model, check_model
from lazygumbel.results import Label, weakest

__all__ = ["Walk", "walk"]


@dataclass(frozen=True, eq=False)
class Walk:
    """Where the chains went. The rows they start from are not counted as steps."""

    ids: Ints
    """The row of each chain after each step, (steps, chains)."""
    start: Ints
    """The row of each chain before the first step, (chains,)."""
    n: int
    """Number of ids of the model: of its rows, and of those that were removed from it."""
    rows: Ints
    """How many rows were scored in each step, over all chains, (steps,)."""
    label: Label
    """The weakest claim of all draws."""

    @property
    def exact(self) -> bool:
        """Whether every step follows the chain's law exactly."""
        return self.label == "exact"

    @cached_property
    def counts(self) -> Ints:
        """How often each row was visited, (n,); sums to steps x chains."""
        return np.bincount(self.ids.reshape(-1), minlength=self.n).astype(np.int64, copy=False)

    def top(self, k: int) -> Ints:
        """The k most visited rows, most visited first, ties by smaller id; fewer when fewer were visited."""
        check_count(k, "k")
        visited = np.flatnonzero(self.counts)
        return visited[np.argsort(-self.counts[visited], kind="stable")[:k]]

    def window(self, start: int, stop: int) -> "Walk":
        """Steps `start` to `stop`, the second not included, of every chain; the arrays are not copied."""
        steps = len(self.ids)
        first, last = check_count(start, "start", least=0), check_count(stop, "stop")
        if not first < last <= steps:
            raise ValueError(f"start and stop must satisfy 0 <= start < stop <= {steps}, not {first} and {last}")
        before = self.ids[first - 1] if first else self.start
        return Walk(self.ids[first:last], before, self.n, self.rows[first:last], self.label)

    def overlap(self, other: "Walk", k: int = 1000) -> float:
        """Share of the k most visited rows that two walks have in common; both must have visited k rows or more."""
        if self.n != other.n:
            raise ValueError(f"other is a walk over {other.n} rows, this one over {self.n}")
        mine, theirs = self.top(k), other.top(k)
        found = min(len(mine), len(theirs))
        if found < k:
            raise ValueError(f"k is {k}, but one of the walks has visited {found} rows only")
        return len(np.intersect1d(mine, theirs, assume_unique=True)) / k


def walk(
    model: Model,
    steps: int,
    *,
    start: npt.ArrayLike | None = None,
    chains: int = 1,
    temperature: float = 0.05,
    method: Sampler | None = None,
    stay: bool = True,
    rng: Rng = None,
    progress: ShowProgress = None,
) -> Walk:
    """Run chains with Pr(j -> i) proportional to exp(phi_i . phi_j / temperature), each for `steps` steps.

    There are steps x chains steps in all, and a step is kept in 8 bytes (16 with one chain). `start` is an id for all
    chains, or one id for each; by default each starts at a random row. With `Exhaustive()` as method the chains are
    exact. `stay=False` forbids a step from a row to itself: that row is excluded.
    """
    check_model(model)
    steps, chains = check_count(steps, "steps"), check_count(chains, "chains")
    model = model.snapshot()  # whatever happens to the rows meanwhile
    if not stay and model.features.n == 1:
        raise ValueError("stay=False needs another row to move to, but the model has 1 row")
    generator = np.random.default_rng(rng)
    at = first = _starts(start, chains, model, generator)
    ids, rows = _room(steps, chains), np.empty(steps, dtype=np.int64)
    label: Label = "exact"
    with choose(progress).task("walking", steps * chains) as task:
        for t in range(steps):
            dist = model(model.features.gather(at), temperature=temperature)
            step = dist.sample((), method=method, rng=generator, exclude=None if stay else at[:, None])
            at = ids[t] = step.ids
            rows[t] = step.rows.sum()
            label = weakest((label, step.label))
            task.advance(chains)
    return Walk(ids, first, model.size, rows, label)


def _starts(start: npt.ArrayLike | None, chains: int, model: Model, rng: np.random.Generator) -> Ints:
    if start is None:
        places = rng.integers(model.features.n, size=chains)
        return places if model.size == model.features.n else model.ids[places]
    ids = model.check_ids(start, "start")
    if ids.shape not in ((), (chains,)):
        raise ValueError(f"start must be one id, or one for each of {chains} chains, not of shape {ids.shape}")
    return np.full(chains, ids)


def _room(steps: int, chains: int) -> Ints:
    """Room for the path, asked for before the first step."""
    try:
        return np.empty((steps, chains), dtype=np.int64)
    except (MemoryError, ValueError):
        size = 8 * steps * chains / 2**30
        raise ValueError(f"steps x chains is {steps * chains:,}: their ids, {size:,.0f} GiB, do not fit") from None
