"""`Distribution`: the model at one theta, or at a batch. Shapes, randomness and exclusions are settled here, once."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from math import prod
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count, check_ids
from lazygumbel.indexes import Index
from lazygumbel.methods import Estimator, Exhaustive, Normaliser, OrderedSampler, Query, Sampler
from lazygumbel.methods.base import NOTHING, Function, Kept, Phi, Seen
from lazygumbel.methods.defaults import default_estimator, default_ordered_sampler, default_sampler
from lazygumbel.methods.head import find_heads
from lazygumbel.methods.kept import OverKept
from lazygumbel.methods.slate import slate_log_prob
from lazygumbel.methods.truncation import Truncation
from lazygumbel.results import Draws, Estimate, OrderedDraws, TopK
from lazygumbel.rows.exclusions import Exclude, exclusions, whole_array
from lazygumbel.verbs import Rng, SumOptions, Verbs, sample_shape

__all__ = ["CLOSE", "Distribution", "Exclude", "Rng", "exclusions"]

_TWO_BUDGETS = "rel_err sets the default method's budget; give it to the method instead"

_KEPT = OverKept()
CLOSE = 1e-3
"""Relative error of Z that is tried before all rows are summed."""

T = TypeVar("T")


class Distribution(Verbs):
    """Pr(i) proportional to exp(theta . phi_i / temperature). Results have shape sample shape + batch shape."""

    def __init__(self, index: Index, theta: npt.ArrayLike, temperature: float) -> None:
        self.batch_shape: tuple[int, ...] = np.shape(theta)[:-1]
        self._query_all = Query.of(index, theta, temperature)
        self._index = index
        self._naming = index.features.names

    @property
    def temperature(self) -> float:
        """What divides the inner products."""
        return self._query_all.temperature

    def __repr__(self) -> str:
        n, d, kept = self._index.features.n, self._index.features.d, self._query_all.kept
        left = "" if kept is None else f", kept={sum(len(k.ids) for k in kept) / max(len(kept), 1):,.1f} rows a theta"
        return f"Distribution(n={n:,}, d={d}, batch_shape={self.batch_shape}, temperature={self.temperature:g}{left})"

    def _sample(self, size: int | tuple[int, ...], method: Sampler | None, rng: Rng, exclude: Exclude) -> Draws:
        shape, count = sample_shape(size)
        chosen = self._chosen(method, Sampler, default_sampler)
        drawn = chosen.sample(self._asked(chosen, exclude), count, np.random.default_rng(rng))
        return drawn.shaped(shape, self.batch_shape, self._naming)

    def sample_without_replacement(
        self, size: int, *, method: OrderedSampler | None = None, rng: Rng = None, exclude: Exclude = None
    ) -> OrderedDraws:
        """`size` distinct rows in the order of drawing: `ids` of shape (size,) + batch shape."""
        check_count(size, "size")
        chosen = self._chosen(method, OrderedSampler, default_ordered_sampler)
        query = self._asked(chosen, exclude)
        left = min((query.left(b) for b in range(query.size)), default=size)
        if size > left:
            raise ValueError(f"size is {size}, but only {left} rows can be drawn without replacement")
        drawn = chosen.sample_without_replacement(query, size, np.random.default_rng(rng))
        return drawn.shaped(self.batch_shape, self._naming)

    def _log_partition(self, options: SumOptions) -> Estimate:
        rel_err, method, rng, exclude = options
        generator = np.random.default_rng(rng)
        if method is not None and self._query_all.kept is None and _can(method, Normaliser):
            if rel_err is not None:
                raise ValueError(_TWO_BUDGETS)
            found = cast("Normaliser", method).log_partition(self._asked(method, exclude), generator)
            return found if self.batch_shape else found.at(0)
        chosen = self._estimator(method, rel_err)
        return Estimate.of_log_partition(*self._shape(chosen.moments(self._asked(chosen, exclude), None, generator)))

    def _expectation(self, f: Callable[[Ints], npt.ArrayLike] | None, options: SumOptions) -> Estimate:
        rel_err, method, rng, exclude = options
        chosen = self._estimator(method, rel_err)
        seen = self._shape(_sums(chosen, self._asked(chosen, exclude), self._function(f), rng))
        return Estimate.of_expectation(*seen)

    def logits(self, ids: npt.ArrayLike, *, exclude: Exclude = None) -> Floats:
        """theta . phi / temperature of ids of shape sample shape + batch shape; minus infinity for excluded rows."""
        asked, batch = self._ids(ids), len(self.batch_shape)
        query = self.query(exclude)
        flat = asked.reshape(prod(asked.shape[: asked.ndim - batch]), query.size)
        found = np.empty(flat.shape)
        for b in range(query.size):
            found[:, b] = query.logits(b, flat[:, b])
            found[~query.can_draw(b, flat[:, b]), b] = -np.inf
        return found.reshape(asked.shape)

    def _log_prob_ordered(self, ids: npt.ArrayLike, options: SumOptions) -> Estimate:
        rel_err, method, rng, exclude = options
        asked = self._ids(ids)
        if asked.ndim != len(self.batch_shape) + 1:
            raise ValueError(
                f"ids must have shape (K,) + {self.batch_shape}, one slate for each theta, not {asked.shape}"
            )
        chosen = self._estimator(method, rel_err)
        query = self._asked(chosen, exclude)
        found = slate_log_prob(query, asked.reshape(len(asked), query.size), chosen, np.random.default_rng(rng))
        return replace(found if self.batch_shape else found.at(0), naming=self._naming)

    def _mean_logit(self, options: SumOptions) -> Estimate:
        rel_err, method, rng, exclude = options
        chosen = self._estimator(method, rel_err)
        query = self._asked(chosen, exclude)
        seen = self._shape(_sums(chosen, query, _logit, rng))
        # The error of log Z, and of the mean logit, whose bound is relative to the largest logit there can be.
        norms = query.norms.reshape(self.batch_shape)
        bound = np.asarray(seen.bound * (1 + norms * query.features.max_norm / query.temperature))
        return Estimate.of_expectation(seen.moments, seen.rows, seen.grounds, bound)

    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows (as far as the index finds them), with raw inner products."""
        check_count(k, "k")
        query = self.query(exclude)
        if query.kept is None and not any(map(len, query.excluded)):
            found = self._index.top_k(query.thetas.reshape(*self.batch_shape, self._index.features.d), k)
            return replace(found, naming=self._naming)
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
            naming=self._naming,
        )

    def truncated(
        self,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        rel_err: float | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> "Distribution":
        """The distribution over what is left, for each theta, of the rows that are not excluded: by `top_k`, the k most
        probable; of these by `top_p`, the fewest most probable whose mass is at least p; of these by `min_p`, those of
        at least this share of the largest probability. Equally probable rows: the smaller id first.

        With `rel_err`, `top_p` is cut where an estimate of Z to this relative error puts it. Without, rows are summed
        until they leave no doubt: all of them, if need be. What is left is drawn and summed exactly.
        """
        errors = (None, CLOSE) if rel_err is None else (rel_err,)
        estimators = [default_estimator(self._index, error) for error in errors]
        if rel_err is None:
            estimators.append(Exhaustive())
        rules, query = Truncation(top_k, top_p, min_p), self.query(exclude)
        return self.cut(query, rules.keep(query, estimators, np.random.default_rng(rng)))

    def cut(self, query: Query, kept: tuple[Kept, ...] | None) -> "Distribution":
        """The distribution that a query is about, over what was kept of it."""
        found = copy(self)
        found._query_all = query if kept is None else replace(query, kept=kept, excluded=(NOTHING,) * query.size)
        return found

    def _chosen(self, method: object, capability: type[T], default: Callable[[Index], T]) -> T:
        if self._query_all.kept is not None:
            if method is not None:
                raise ValueError(f"method: what a truncation leaves is drawn and summed exactly; leave out {method!r}")
            return cast("T", _KEPT)
        return default(self._index) if method is None else _method(method, capability, "method")

    def _estimator(self, method: object, rel_err: float | None) -> Estimator:
        if method is not None and rel_err is not None:
            raise ValueError(_TWO_BUDGETS)
        return self._chosen(method, Estimator, lambda index: default_estimator(index, rel_err))

    def _asked(self, method: object, exclude: Exclude) -> Query:  # noqa: ARG002  # parts of a model look at it
        """What a method is asked."""
        return self.query(exclude)

    def _function(self, f: Callable[[Ints], npt.ArrayLike] | None) -> Function:
        if f is None:
            return Phi(self._index.features)

        def values(ids: Ints, _: Floats) -> Floats:
            found = whole_array(f(ids), "f must return numbers, (m,) or (m, p) of them for m ids")
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
        return Seen(seen.moments.at(0), seen.rows[0, ...], seen.grounds[0, ...], seen.bound[0, ...])

    def _ids(self, ids: npt.ArrayLike) -> Ints:
        """Checked ids of shape sample shape + batch shape."""
        asked, batch = check_ids(ids, "ids", self._index.features.size), len(self.batch_shape)
        if batch and asked.shape[-batch:] != self.batch_shape:
            raise ValueError(f"ids has shape {asked.shape}; it must end in the batch shape {self.batch_shape}")
        return asked

    def query(self, exclude: Exclude = None) -> Query:
        """What methods are asked: the thetas as a batch, with what is excluded for each."""
        if exclude is None:
            return self._query_all
        excluded, before = exclusions(exclude, self.batch_shape, self._index.features.size), self._query_all.excluded
        if any(map(len, before)):
            excluded = tuple(map(np.union1d, excluded, before))
        query = replace(self._query_all, excluded=excluded)
        if not all(map(query.left, range(query.size))):
            raise ValueError("exclude leaves no row to draw from")
        return query


def _method(given: object, capability: type[T], name: str) -> T:
    if not _can(given, capability):
        raise ValueError(f"{name}: {given!r} cannot do this (it is no {capability.__name__})")
    return cast("T", given)


def _can(given: object, capability: type) -> bool:
    # Of the type, which Python remembers; asking the object itself takes longer than a look at a thousand rows.
    return issubclass(type(given), capability)


def _sums(method: Estimator, query: Query, f: Function, rng: Rng) -> Seen:
    seen = method.moments(query, f, np.random.default_rng(rng))
    if query.size:
        return seen
    # No thetas: f was never asked, but the shape of its values is part of the answer.
    nothing = np.empty((0, *f(np.empty(0, dtype=np.int64), np.empty(0)).shape[1:]))
    return seen._replace(moments=replace(seen.moments, weighted=nothing, var_weighted=nothing, covariance=nothing))


def _logit(_: Ints, logits: Floats) -> Floats:
    # An excluded row has weight zero; zero stands for its logit, so that 0 * -inf does not arise.
    return np.where(np.isneginf(logits), 0.0, logits)
