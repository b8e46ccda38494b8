"""What every method is asked (`Query`) and what it can do (the protocols).

A method is a small immutable object that owns its knobs. Capabilities are types: a `Sampler` draws, an `Estimator`
looks at some rows and returns weighted sums (`Moments`), from which log Z, expectations and entropy all follow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Mask, Vectors
from lazygumbel._support.checks import check_temperature, check_vectors, longest_vector
from lazygumbel.indexes import Index
from lazygumbel.results import Draws, Estimate, Grounds, Moments, OrderedDraws
from lazygumbel.rows.features import Features

__all__ = [
    "Accuracy",
    "Dense",
    "Estimator",
    "Function",
    "Headed",
    "Kept",
    "Normaliser",
    "OrderedSampler",
    "Phi",
    "Query",
    "Raced",
    "Sampler",
    "Seen",
]


Function = Callable[[Ints, Floats], Floats]
"""Values of f at rows: (ids, logits) -> (m,) or (m, p), float64."""

NOTHING: Ints = np.empty(0, dtype=np.int64)
"""No ids: what is excluded unless something is asked for."""
_SCORES_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Phi:
    """The features as a `Function`; methods that know it need not copy rows."""

    features: Features

    def __call__(self, ids: Ints, _: Floats) -> Floats:
        """The rows with these ids, (m, d)."""
        return self.features.gather(ids).astype(np.float64)


class Dense(NamedTuple):
    """Logits of a block of rows for every theta, (B, m); excluded rows are minus infinity."""

    ids: Ints
    rows: Vectors
    logits: Floats


class Kept(NamedTuple):
    """The rows of one theta that a truncation left, best first, ties by smaller id: see `methods.truncation`."""

    ids: Ints
    logits: Floats
    rows: int
    """Rows scored to find them."""
    bound: float
    """Total variation distance, at most, of the softmax over these rows from that over the rows it should be."""
    counted: bool
    """Whether they are the best so many, and no other rule was asked for."""


@dataclass(frozen=True, eq=False)
class Query:
    """The model at a batch of thetas, (B, d), checked at the boundary."""

    index: Index
    thetas: Vectors
    temperature: float
    excluded: tuple[Ints, ...]
    """For each theta the ids left out, sorted and distinct; at least one row is left."""
    kept: tuple[Kept, ...] | None = None
    """For each theta what a truncation left, all other rows being left out; None without one."""

    @classmethod
    def of(cls, index: Index, thetas: npt.ArrayLike, temperature: float) -> "Query":
        """A checked query with nothing excluded; a bare theta (d,) is a batch of one."""
        divisor = check_temperature(temperature)
        features = index.features
        vectors = check_vectors(thetas, "theta", features.d, longest_vector(features.max_norm, divisor))
        if vectors.ndim == 1:
            vectors = vectors[None]
        return cls(index, vectors, divisor, (NOTHING,) * len(vectors))

    @property
    def features(self) -> Features:
        """The rows phi."""
        return self.index.features

    @property
    def size(self) -> int:
        """Number of thetas."""
        return len(self.thetas)

    @cached_property
    def norms(self) -> Floats:
        """Of thetas, (B,)."""
        return np.sqrt(np.einsum("bd,bd->b", self.thetas, self.thetas, dtype=np.float64))

    def left(self, b: int) -> int:
        """Number of rows that can be drawn for theta b."""
        if self.kept is not None:
            return int(self.can_draw(b, self.kept[b].ids).sum())
        return self.features.live - len(self.excluded[b])

    def can_draw(self, b: int, ids: Ints) -> Mask:
        """Which of these rows are neither excluded nor truncated for theta b."""
        allowed = np.isin(ids, self.excluded[b], invert=True)
        return allowed if self.kept is None else allowed & np.isin(ids, self.kept[b].ids)

    def at(self, thetas: slice) -> "Query":
        """The query for some of the thetas."""
        kept = None if self.kept is None else self.kept[thetas]
        return replace(self, thetas=self.thetas[thetas], excluded=self.excluded[thetas], kept=kept)

    def logits(self, b: int, ids: Ints) -> Floats:
        """theta_b . phi_i / temperature for these rows."""
        return self.features.score(ids, self.thetas[b]).astype(np.float64) / self.temperature

    def dense(self, rows_at_once: int = _SCORES_AT_ONCE) -> Iterator[Dense]:
        """All logits, block by block."""
        step = max(1, min(rows_at_once, _SCORES_AT_ONCE // max(self.size, 1)))
        for ids, rows in self.features.blocks(step):
            logits = (self.thetas @ rows.T).astype(np.float64)
            logits /= self.temperature
            for b, excluded in enumerate(self.excluded):
                if len(excluded):
                    logits[b, np.isin(ids, excluded)] = -np.inf
            yield Dense(ids, rows, logits)


class Seen(NamedTuple):
    """What an estimator saw."""

    moments: Moments
    rows: Ints
    grounds: Grounds
    bound: Floats
    """What a theorem allows the relative error of Z; not a number without one."""


@runtime_checkable
class Sampler(Protocol):
    """Draws independent samples."""

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """`size` samples of each theta: ids and values of shape (size, B)."""
        ...


@runtime_checkable
class OrderedSampler(Protocol):
    """Draws without replacement."""

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """`size` distinct rows of each theta in order: shape (size, B)."""
        ...


@runtime_checkable
class Estimator(Protocol):
    """Estimates sums over rows."""

    def moments(self, query: Query, f: Function | None, rng: np.random.Generator) -> Seen:
        """Sums of exp(logit) and, with f, of exp(logit) f, with their variances; batch shape (B,)."""
        ...


@runtime_checkable
class Normaliser(Protocol):
    """Estimates log Z, and nothing else."""

    def log_partition(self, query: Query, rng: np.random.Generator) -> Estimate:
        """log Z for each theta, shape (B,)."""
        ...


class Accuracy(NamedTuple):
    """Of draws at one theta, from all logits."""

    miss: float
    """Probability that the row that should win is not looked at."""
    bound: float = nan
    """What the paper allows it; not a number where it says nothing."""


@runtime_checkable
class Headed(Sampler, Protocol):
    """A sampler that looks at the best rows, and at some others by chance, with a closed form of what it misses."""

    def head_size(self, n: int) -> int:
        """How many rows it asks an index of n rows for."""
        ...

    def accuracy(self, logits: Floats, head: Mask, floor: float) -> Accuracy:
        """At one theta: all logits, which rows the index found, and the smallest logit of these."""
        ...


@runtime_checkable
class Raced(Sampler, Protocol):
    """A sampler that is wrong where a logit exceeds its ceiling, and nowhere else."""

    def ceilings(self, query: Query, seed: int) -> Floats:
        """Of the logits of one theta, by id, as draws with this seed have them; infinite where rows are scored."""
        ...
