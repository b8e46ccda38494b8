"""`Distribution`: the model at one theta, or at a batch. Shapes, randomness and exclusions are settled here, once."""

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_count, check_ids
from lazygumbel.indexes import Index
from lazygumbel.methods import Estimator, Normaliser, OrderedSampler, Query, Sampler
from lazygumbel.methods.base import Function, Phi, Seen
from lazygumbel.methods.defaults import default_estimator, default_ordered_sampler, default_sampler
from lazygumbel.methods.head import find_heads
from lazygumbel.methods.slate import slate_log_prob
from lazygumbel.results import Draws, Estimate, Mode, Moments, OrderedDraws, TopK

__all__ = ["Distribution", "Exclude", "Rng", "entropy_of", "exclusions"]

Rng = np.random.Generator | np.random.SeedSequence | int | None
Exclude = npt.ArrayLike | Set[int] | Sequence[npt.ArrayLike | Set[int]] | None
"""Ids (a set will do) or a boolean mask for all thetas, or one of these for each theta."""
_SETS = set, frozenset

_TWO_BUDGETS = "rel_err sets the default method's budget; give it to the method instead"

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Distribution:
    """Pr(i) proportional to exp(theta . phi_i / temperature). Results have shape sample shape + batch shape."""

    def __init__(self, index: Index, theta: npt.ArrayLike, temperature: float) -> None:
        self.batch_shape: tuple[int, ...] = np.shape(theta)[:-1]
        self._query_all = Query.of(index, theta, temperature)
        self._index = index

    @property
    def temperature(self) -> float:
        """What divides the inner products."""
        return self._query_all.temperature

    def __repr__(self) -> str:
        n, d = self._index.features.n, self._index.features.d
        return f"Distribution(n={n:,}, d={d}, batch_shape={self.batch_shape}, temperature={self.temperature:g})"

    def sample(
        self,
        size: int | tuple[int, ...] = 1,
        *,
        method: Sampler | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Draws:
        """Independent samples: `ids` of shape (size,) + batch shape."""
        shape = size if isinstance(size, tuple) else (size,)
        count = prod(check_count(s, "size", least=0) for s in shape)
        chosen = default_sampler(self._index) if method is None else _method(method, Sampler, "method")
        drawn = chosen.sample(self.query(exclude), count, np.random.default_rng(rng))
        return Draws(
            drawn.ids.reshape(shape + self.batch_shape),
            drawn.values.reshape(shape + self.batch_shape),
            drawn.rows.reshape(self.batch_shape),
            drawn.labels.reshape(self.batch_shape),
            drawn.bound.reshape(self.batch_shape),
            drawn.violations.reshape(self.batch_shape),
        )

    def sample_without_replacement(
        self, size: int, *, method: OrderedSampler | None = None, rng: Rng = None, exclude: Exclude = None
    ) -> OrderedDraws:
        """`size` distinct rows in the order of drawing: `ids` of shape (size,) + batch shape."""
        check_count(size, "size")
        query = self.query(exclude)
        left = min((query.left(b) for b in range(query.size)), default=size)
        if size > left:
            raise ValueError(f"size is {size}, but only {left} rows can be drawn without replacement")
        default = default_ordered_sampler(self._index)
        chosen = default if method is None else _method(method, OrderedSampler, "method")
        drawn = chosen.sample_without_replacement(query, size, np.random.default_rng(rng))
        return OrderedDraws(
            drawn.ids.reshape((size, *self.batch_shape)),
            drawn.logits.reshape((size, *self.batch_shape)),
            drawn.values.reshape((size, *self.batch_shape)),
            drawn.threshold.reshape(self.batch_shape),
            drawn.rows.reshape(self.batch_shape),
            drawn.labels.reshape(self.batch_shape),
            drawn.bound.reshape(self.batch_shape),
        )

    def log_partition(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | Normaliser | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Z, shape batch shape. `rel_err` asks the default method for this relative error of Z."""
        query = self.query(exclude)
        if method is not None and _can(method, Normaliser):
            if rel_err is not None:
                raise ValueError(_TWO_BUDGETS)
            found = cast("Normaliser", method).log_partition(query, np.random.default_rng(rng))
            value, stderr = found.value.reshape(self.batch_shape), found.stderr.reshape(self.batch_shape)
            return Estimate(
                value,
                stderr,
                found.rows.reshape(self.batch_shape),
                found.labels.reshape(self.batch_shape),
                bound=found.bound.reshape(self.batch_shape),
            )
        return self._log_partition(query, self._estimator(method, rel_err), np.random.default_rng(rng))

    def expectation(
        self,
        f: Callable[[Ints], npt.ArrayLike] | None = None,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """E[f(i)], shape batch shape + value shape; without f, the expectation of the features phi.

        `f` takes ids of shape (m,) and returns (m,) or (m, p).
        """
        chosen = self._estimator(method, rel_err)
        seen = self._shape(_look(chosen, self.query(exclude), self._function(f), rng))
        return Estimate.of_expectation(*seen)

    def log_prob(
        self,
        ids: npt.ArrayLike,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Pr(ids), for ids of shape sample shape + batch shape; excluded rows have minus infinity."""
        logits, query = self.logits(ids, exclude=exclude), self.query(exclude)
        log_z = self._log_partition(query, self._estimator(method, rel_err), np.random.default_rng(rng))
        return Estimate(
            np.asarray(np.minimum(logits - log_z.value, 0.0)),
            np.broadcast_to(log_z.stderr, logits.shape).copy(),
            np.asarray(log_z.rows + prod(logits.shape[: logits.ndim - len(self.batch_shape)])),
            log_z.labels,
            bound=log_z.bound,
        )

    def logits(self, ids: npt.ArrayLike, *, exclude: Exclude = None) -> Floats:
        """theta . phi / temperature of ids of shape sample shape + batch shape; minus infinity for excluded rows."""
        asked, batch = self._ids(ids), len(self.batch_shape)
        query = self.query(exclude)
        flat = asked.reshape(prod(asked.shape[: asked.ndim - batch]), query.size)
        found = np.empty(flat.shape)
        for b in range(query.size):
            found[:, b] = query.logits(b, flat[:, b])
            found[np.isin(flat[:, b], query.excluded[b]), b] = -np.inf
        return found.reshape(asked.shape)

    def log_prob_ordered(
        self,
        ids: npt.ArrayLike,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Pr of each row of a slate given those before it, drawn without replacement; ids (K,) + batch shape.

        Their sum over the first axis is the log-probability of the slate in this order (Plackett-Luce).
        """
        asked = self._ids(ids)
        if asked.ndim != len(self.batch_shape) + 1:
            raise ValueError(
                f"ids must have shape (K,) + {self.batch_shape}, one slate for each theta, not {asked.shape}"
            )
        query, estimator = self.query(exclude), self._estimator(method, rel_err)
        found = slate_log_prob(query, asked.reshape(len(asked), query.size), estimator, np.random.default_rng(rng))
        return Estimate(
            found.value.reshape(asked.shape),
            found.stderr.reshape(asked.shape),
            found.rows.reshape(self.batch_shape),
            found.labels.reshape(self.batch_shape),
            bound=found.bound.reshape(self.batch_shape),
        )

    def entropy(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """-E[log Pr(i)] in nats, shape batch shape."""
        return entropy_of(self.mean_logit(rel_err=rel_err, method=method, rng=rng, exclude=exclude))

    def mean_logit(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """E[theta . phi / temperature], shape batch shape; merges, and `bound` is that of an entropy made from it."""
        chosen, query = self._estimator(method, rel_err), self.query(exclude)
        seen = self._shape(_look(chosen, query, _logit, rng))
        # The error of log Z, and of the mean logit, whose bound is relative to the largest logit there can be.
        norms = np.linalg.norm(query.thetas.astype(np.float64), axis=1).reshape(self.batch_shape)
        bound = np.asarray(seen.bound * (1 + norms * query.features.max_norm / query.temperature))
        return Estimate.of_expectation(seen.moments, seen.rows, seen.labels, bound)

    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows (as far as the index finds them), with raw inner products."""
        check_count(k, "k")
        if exclude is None:
            return self._index.top_k(self._query_all.thetas.reshape(*self.batch_shape, self._index.features.d), k)
        query = self.query(exclude)
        width = min(k, query.features.n, *(query.left(b) for b in range(query.size)))
        heads = [find_heads(query.at(slice(b, b + 1)), width)[0] for b in range(query.size)]
        ids = np.array([h.ids[:width] for h in heads], dtype=np.int64)
        owner = np.repeat(np.arange(query.size), width)
        scores = query.features.score(ids.reshape(-1), query.thetas, owner)
        return TopK(
            ids.reshape(*self.batch_shape, width),
            scores.reshape(*self.batch_shape, width),
            np.array([h.rows for h in heads], dtype=np.int64).reshape(self.batch_shape),
            all(h.exact for h in heads),
            k,
            np.array([h.bound for h in heads], dtype=np.float64).reshape(self.batch_shape),
        )

    def mode(self, *, exclude: Exclude = None) -> Mode:
        """The most probable row (as far as the index finds it), shape batch shape."""
        best = self.top_k(1, exclude=exclude)
        return Mode(best.ids[..., 0], best.scores[..., 0], best.rows, best.bound)

    def _estimator(self, method: object, rel_err: float | None) -> Estimator:
        if method is not None and rel_err is not None:
            raise ValueError(_TWO_BUDGETS)
        if method is not None:
            return _method(method, Estimator, "method")
        return default_estimator(self._index, rel_err)

    def _log_partition(self, query: Query, method: Estimator, rng: np.random.Generator) -> Estimate:
        return Estimate.of_log_partition(*self._shape(method.moments(query, None, rng)))

    def _function(self, f: Callable[[Ints], npt.ArrayLike] | None) -> Function:
        if f is None:
            return Phi(self._index.features)

        def values(ids: Ints, _: Floats) -> Floats:
            found = _array(f(ids), "f must return numbers, (m,) or (m, p) of them for m ids")
            if found.ndim not in (1, 2) or len(found) != len(ids):
                raise ValueError(
                    f"f must return shape ({len(ids)},) or ({len(ids)}, p) for {len(ids)} ids, not {found.shape}"
                )
            if found.dtype.kind not in "biuf":
                raise ValueError(f"f must return real numbers, not dtype {found.dtype}")
            return found.astype(np.float64, copy=False)

        return values

    def _shape(self, seen: Seen) -> Seen:
        """Drop the batch axis of size one that a bare theta was given."""
        if self.batch_shape:
            return seen
        return Seen(seen.moments.at(0), seen.rows[0, ...], seen.labels[0, ...], seen.bound[0, ...])

    def _ids(self, ids: npt.ArrayLike) -> Ints:
        """Checked ids of shape sample shape + batch shape."""
        asked, batch = check_ids(ids, "ids", self._index.features.n), len(self.batch_shape)
        if batch and asked.shape[-batch:] != self.batch_shape:
            raise ValueError(f"ids has shape {asked.shape}; it must end in the batch shape {self.batch_shape}")
        return asked

    def query(self, exclude: Exclude = None) -> Query:
        """What methods are asked: the thetas as a batch, with what is excluded for each."""
        if exclude is None:
            return self._query_all
        n = self._index.features.n
        excluded = exclusions(exclude, self.batch_shape, n)
        if any(len(e) == n for e in excluded):
            raise ValueError("exclude leaves no row to draw from")
        return replace(self._query_all, excluded=excluded)


def exclusions(exclude: Exclude, batch_shape: tuple[int, ...], n: int) -> tuple[Ints, ...]:
    """For each theta the ids, of 0 to n - 1, that are left out: sorted and distinct."""
    size = prod(batch_shape)
    if not _is_per_theta(exclude, batch_shape):
        return (_excluded_ids(cast("npt.ArrayLike", exclude), n),) * size
    each = cast("Sequence[npt.ArrayLike]", exclude)
    if len(each) != size:
        raise ValueError(f"exclude has {len(each)} entries, but there are {size} thetas")
    return tuple(_excluded_ids(e, n) for e in each)


def entropy_of(mean_logit: Estimate) -> Estimate:
    """The entropy, log Z - E[logit], from what `Distribution.mean_logit` found, of one set of rows or merged."""
    if mean_logit.moments is None:
        raise ValueError("mean_logit holds no moments, so no entropy can be formed")
    values = _entropy(mean_logit.moments)
    return Estimate(*values, mean_logit.rows, mean_logit.labels, bound=mean_logit.bound)


def _is_per_theta(exclude: Exclude, batch_shape: tuple[int, ...]) -> bool:
    """One set for each theta: a list of arrays, or a (B, n) mask."""
    if not batch_shape:
        return False
    if isinstance(exclude, np.ndarray):
        return cast("npt.NDArray[Any]", exclude).ndim == 2
    each = cast("list[Any]", exclude)
    return isinstance(exclude, list | tuple) and any(isinstance(e, _SETS) or np.ndim(e) > 0 for e in each)


def _method(given: object, capability: type[T], name: str) -> T:
    if not _can(given, capability):
        raise ValueError(f"{name}: {given!r} cannot do this (it is no {capability.__name__})")
    return cast("T", given)


def _can(given: object, capability: type) -> bool:
    # Of the type, which Python remembers; asking the object itself takes longer than a look at a thousand rows.
    return issubclass(type(given), capability)


def _look(method: Estimator, query: Query, f: Function, rng: Rng) -> Seen:
    seen = method.moments(query, f, np.random.default_rng(rng))
    if query.size:
        return seen
    # No thetas: f was never asked, but the shape of its values is part of the answer.
    nothing = np.empty((0, *f(np.empty(0, dtype=np.int64), np.empty(0)).shape[1:]))
    return seen._replace(moments=replace(seen.moments, weighted=nothing, var_weighted=nothing, covariance=nothing))


def _array(values: npt.ArrayLike, expected: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{expected}, not a ragged sequence") from None


def _excluded_ids(values: npt.ArrayLike, n: int) -> Ints:
    held: npt.ArrayLike = sorted(cast("Set[int]", values)) if isinstance(values, _SETS) else values
    array = _array(held, f"exclude must be 1-D ids or a mask of shape ({n},)")
    if array.ndim != 1:
        raise ValueError(f"exclude must be 1-D ids or a mask of shape ({n},), not of shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != n:
            raise ValueError(f"exclude is a mask of length {len(array)}, but there are {n} rows")
        return np.flatnonzero(array)
    return np.unique(check_ids(array, "exclude", n))


def _logit(_: Ints, logits: Floats) -> Floats:
    # An excluded row has weight zero; zero stands for its logit, so that 0 * -inf does not arise.
    return np.where(np.isneginf(logits), 0.0, logits)


def _entropy(moments: Moments) -> tuple[Floats, Floats]:
    """log Z - E[logit]; its standard error by the delta method."""
    if moments.weighted is None or moments.var_weighted is None or moments.covariance is None:
        raise ValueError("moments hold no weighted sum, so no entropy can be formed")
    mean = moments.weighted / moments.total
    value = moments.shift + np.log(moments.total) - mean
    variance = (1 + mean) ** 2 * moments.var_total - 2 * (1 + mean) * moments.covariance + moments.var_weighted
    return np.asarray(value), np.asarray(np.sqrt(np.maximum(variance, 0.0)) / moments.total)
