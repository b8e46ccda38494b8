"""`MergedDistribution`: one distribution over several disjoint sets of rows, each with an index of its own.

Every part answers for its own rows, and the answers merge (see `results`): the larger perturbed value wins a draw, sums
add with their variances, top-k lists interleave. So what holds of each part holds of the union: the bound of its draws
is at most the largest of theirs, and a relative error of Z that each part meets is met by their sum.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count, check_ids, check_temperature, check_vectors, longest_vector
from lazygumbel.merged.parts import Answers, Each, Part, Places, one_by_one
from lazygumbel.merged.scattering import scatter_draws, scatter_estimate, scatter_ordered, scatter_top
from lazygumbel.methods import Keyed, OrderedSampler, Sampler
from lazygumbel.methods.keyed import keyed_within
from lazygumbel.methods.slate import chained, check_slates
from lazygumbel.results import Draws, Estimate, Moments, Naming, OrderedDraws, TopK
from lazygumbel.rows.exclusions import Exclude, exclusions
from lazygumbel.verbs import Rng, SumOptions, Verbs, sample_shape

__all__ = ["MergedDistribution"]

T = TypeVar("T")
R = TypeVar("R", Draws, OrderedDraws, Estimate, TopK)


@dataclass(frozen=True, eq=False)
class _Renamed:
    """A function of ids as a function of places in a part; can be sent to other processes."""

    f: Callable[[Ints], npt.ArrayLike]
    ids: Ints

    def __call__(self, places: Ints) -> npt.ArrayLike:
        return self.f(self.ids[places])


class MergedDistribution(Verbs):
    """Pr(i) proportional to exp(theta . phi_i / temperature) over the rows of all parts; verbs as of `Distribution`."""

    def __init__(
        self,
        parts: Sequence[Part],
        places: Places,
        theta: npt.ArrayLike,
        temperature: float,
        *,
        d: int,
        max_norm: float = 0.0,
        each: Each = one_by_one,
        naming: Naming | None = None,
    ) -> None:
        self.temperature = check_temperature(temperature)
        vectors = check_vectors(theta, "theta", d, longest_vector(max_norm, self.temperature))
        self.batch_shape: tuple[int, ...] = vectors.shape[:-1]
        self._thetas = np.atleast_2d(vectors)
        self._parts, self._places, self._each, self._naming = parts, places, each, naming

    @cached_property
    def _answers(self) -> list[Answers]:
        return [part(self._thetas, temperature=self.temperature) for part in self._parts]

    def __repr__(self) -> str:
        n, d = sum(part.count for part in self._parts), self._thetas.shape[1]
        shown = f"n={n:,}, d={d}, parts={len(self._parts)}, batch_shape={self.batch_shape}"
        return f"MergedDistribution({shown}, temperature={self.temperature:g})"

    def _sample(self, size: int | tuple[int, ...], method: Sampler | None, rng: Rng, exclude: Exclude) -> Draws:
        shape, count = sample_shape(size)
        chosen = method.seeded(rng) if isinstance(method, Keyed) else method
        rngs = self._rngs(rng)

        def ask(p: int, answers: Answers, excluded: Exclude, _: int) -> Draws:
            ids = self._parts[p].ids
            found = answers.sample(count, method=keyed_within(chosen, ids), rng=rngs[p], exclude=excluded)
            return replace(found, ids=ids[found.ids])

        found = reduce(Draws.merge, self._ask(ask, scatter_draws, self._left_out(exclude)))
        return self._shaped(found, ids=shape + self.batch_shape, values=shape + self.batch_shape)

    def sample_without_replacement(
        self, size: int, *, method: OrderedSampler | None = None, rng: Rng = None, exclude: Exclude = None
    ) -> OrderedDraws:
        """`size` distinct rows in the order of drawing, shaped as those of `Distribution`."""
        check_count(size, "size")
        chosen = method.seeded(rng) if isinstance(method, Keyed) else method
        left_out, rngs = self._left_out(exclude), self._rngs(rng)
        left = int(self._left(left_out).sum(axis=0).min(initial=size))
        if size > left:
            raise ValueError(f"size is {size}, but only {left} rows can be drawn without replacement")

        def ask(p: int, answers: Answers, excluded: Exclude, k: int) -> OrderedDraws:
            ids = self._parts[p].ids
            own = keyed_within(chosen, ids)
            found = answers.sample_without_replacement(k, method=own, rng=rngs[p], exclude=excluded)
            return replace(found, ids=ids[found.ids])

        found = reduce(OrderedDraws.merge, self._ask(ask, scatter_ordered, left_out, size))
        shape = (size, *self.batch_shape)
        return self._shaped(found, ids=shape, logits=shape, values=shape, threshold=self.batch_shape)

    def _log_partition(self, options: SumOptions) -> Estimate:
        return self._estimate(options, lambda answers, _, given: answers.log_partition(**given))

    def _expectation(self, f: Callable[[Ints], npt.ArrayLike] | None, options: SumOptions) -> Estimate:
        def ask(answers: Answers, ids: Ints, given: dict[str, Any]) -> Estimate:
            return answers.expectation(None if f is None else _Renamed(f, ids), **given)

        return self._estimate(options, ask)

    def _mean_logit(self, options: SumOptions) -> Estimate:
        return self._estimate(options, lambda answers, _, given: answers.mean_logit(**given))

    def _log_prob_ordered(self, ids: npt.ArrayLike, options: SumOptions) -> Estimate:
        asked, batch, exclude = self._check(ids, "ids"), self.batch_shape, options.exclude
        if asked.ndim != len(batch) + 1:
            raise ValueError(f"ids must have shape (K,) + {batch}, one slate for each theta, not {asked.shape}")
        logits, slates = self.logits(asked, exclude=exclude), asked.reshape(len(asked), len(self._thetas))
        check_slates(slates)
        held = exclusions(() if exclude is None else exclude, batch, self._places.size)
        live = (one[self._places.find(one)[0] >= 0] for one in held)  # a mask may hold removed rows
        out = [np.union1d(one, slate) for one, slate in zip(live, slates.T, strict=True)]
        rest = self._log_partition(options._replace(exclude=out if batch else out[0]))
        return chained(asked, logits, rest)

    def logits(self, ids: npt.ArrayLike, *, exclude: Exclude = None) -> Floats:
        """theta . phi / temperature of ids of shape sample shape + batch shape; minus infinity for excluded rows."""
        asked, batch = self._check(ids, "ids"), len(self.batch_shape)
        if batch and asked.shape[-batch:] != self.batch_shape:
            raise ValueError(f"ids has shape {asked.shape}; it must end in the batch shape {self.batch_shape}")
        flat = asked.reshape(prod(asked.shape[: asked.ndim - batch]), len(self._thetas))
        part_of, places = self._places.find(flat)
        found = np.full(flat.shape, -np.inf)

        def ask(p: int) -> Floats:
            here = part_of == p
            if len(self._thetas) == 1:
                return self._answers[p].logits(places[here][:, None])[:, 0]
            # Any row that is there will do in the place of those of other parts.
            return self._answers[p].logits(np.where(here, places, places[here][0]))[here]

        present = np.unique(part_of).tolist()
        for p, logits in zip(present, self._each(ask, present), strict=True):
            found[part_of == p] = logits
        if exclude is not None:
            for b, excluded in enumerate(exclusions(exclude, self.batch_shape, self._places.size)):
                found[np.isin(flat[:, b], excluded), b] = -np.inf
        return found.reshape(asked.shape)

    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows (as far as the indexes find them), with raw inner products."""
        check_count(k, "k")
        left_out = self._left_out(exclude)
        width = min(k, int(self._left(left_out).sum(axis=0).min(initial=k)))

        def ask(p: int, answers: Answers, excluded: Exclude, count: int) -> TopK:
            found = answers.top_k(count, exclude=excluded)
            return replace(found, ids=self._parts[p].ids[found.ids])

        found = reduce(TopK.merge, self._ask(ask, scatter_top, left_out, k))
        shape, batch = (*self.batch_shape, width), self.batch_shape
        ids, scores = found.ids[:, :width].reshape(shape), found.scores[:, :width].reshape(shape)
        rows, bound = found.rows.reshape(batch), found.bound.reshape(batch)
        return replace(found, ids=ids, scores=scores, rows=rows, bound=bound, k=k, naming=self._naming)

    def _estimate(self, options: SumOptions, verb: Callable[[Answers, Ints, dict[str, Any]], Estimate]) -> Estimate:
        rngs, method = self._rngs(options.rng), options.method

        def ask(p: int, answers: Answers, excluded: Exclude, _: int) -> Estimate:
            return verb(answers, self._parts[p].ids, options._replace(rng=rngs[p], exclude=excluded)._asdict())

        found = self._ask(ask, scatter_estimate, self._left_out(options.exclude))
        if any(one.moments is None for one in found):
            raise ValueError(f"method: {method!r} cannot answer for rows that lie in {len(self._parts)} parts")
        merged = reduce(Estimate.merge, found)
        batch, values = self.batch_shape, merged.value.shape[1:]
        return self._shaped(
            replace(merged, moments=_reshaped(merged.moments, batch)), value=batch + values, stderr=batch + values
        )

    def _ask(
        self,
        ask: Callable[[int, Answers, Exclude, int], R],
        scatter: Callable[[Sequence[tuple[Ints, R]], int, int], R],
        left_out: "list[tuple[Ints, ...]] | None",
        most: int = 1,
    ) -> list[R]:
        """What every part answers for all thetas; of those for which it has fewer rows than `most`, for so many."""
        left, size = self._left(left_out), len(self._thetas)

        def of_part(p: int) -> R | None:
            if not self._parts[p].count:
                return None
            excluded: tuple[Ints, ...] | None = None if left_out is None else left_out[p]
            groups = _groups(np.minimum(left[p], most))
            if not size or (len(groups) == 1 and groups[0][1] == most):
                return ask(p, self._answers[p], _given(excluded), most)
            found: list[tuple[Ints, R]] = []
            for thetas, count in groups:
                if count:
                    each: list[int] = thetas.tolist()
                    some = None if excluded is None else tuple(excluded[b] for b in each)
                    answers = self._parts[p](self._thetas[thetas], temperature=self.temperature)
                    found.append((thetas, ask(p, answers, _given(some), count)))
            return scatter(found, size, most) if found else None

        return [found for found in self._each(of_part, range(len(self._parts))) if found is not None]

    def _left(self, left_out: "list[tuple[Ints, ...]] | None") -> Ints:
        """How many rows of each part are not excluded for each theta, (parts, B)."""
        counts = np.array([part.count for part in self._parts], dtype=np.int64)[:, None]
        if left_out is None:
            return np.repeat(counts, len(self._thetas), axis=1)
        excluded = np.array([[len(ids) for ids in part] for part in left_out], dtype=np.int64)
        return counts - excluded.reshape(len(self._parts), len(self._thetas))

    def _left_out(self, exclude: Exclude) -> "list[tuple[Ints, ...]] | None":
        """For each part and theta the places that are excluded."""
        if exclude is None:
            return None
        excluded = exclusions(exclude, self.batch_shape, self._places.size)
        shared = all(ids is excluded[0] for ids in excluded)
        found: list[list[Ints]] = []
        for ids in excluded[:1] if shared else excluded:
            part_of, places = self._places.find(ids)
            if not _is_mask(exclude):
                self._refuse(ids, part_of, "exclude")
            found.append([np.sort(places[part_of == p]) for p in range(len(self._parts))])
        each = [found[0 if shared else b] for b in range(len(excluded))]
        if any(sum(map(len, parts)) == sum(part.count for part in self._parts) for parts in found):
            raise ValueError("exclude leaves no row to draw from")
        return [tuple(theta[p] for theta in each) for p in range(len(self._parts))]

    def _check(self, ids: npt.ArrayLike, name: str) -> Ints:
        asked = check_ids(ids, name, self._places.size)
        self._refuse(asked, self._places.find(asked)[0], name)
        return asked

    @staticmethod
    def _refuse(ids: Ints, part_of: Ints, name: str) -> None:
        if (part_of < 0).any():
            raise ValueError(f"{name} holds {ids[part_of < 0].flat[0]}, but no row has this id (any more)")

    def _rngs(self, rng: Rng) -> list[np.random.Generator]:
        """A generator for each part."""
        return np.random.default_rng(rng).spawn(len(self._parts))

    def _shaped(self, found: T, **shapes: tuple[int, ...]) -> T:
        """A result with these fields reshaped, and those of batch shape."""
        batch = dict.fromkeys(("rows", "grounds", "bound", "violations"), self.batch_shape)
        wanted = {name: shape for name, shape in (batch | shapes).items() if hasattr(found, name)}
        changed: dict[str, Any] = {name: getattr(found, name).reshape(shape) for name, shape in wanted.items()}
        changed["naming"] = self._naming
        return replace(found, **changed)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]


def _given(excluded: tuple[Ints, ...] | None) -> Exclude:
    """Nothing rather than empty sets; always one for each theta."""
    return list(excluded) if excluded is not None and any(map(len, excluded)) else None


def _is_mask(exclude: Exclude) -> bool:
    """A mask has an entry for rows that are no longer there too; a list of ids does not."""
    first: Any = exclude
    while isinstance(first, list | tuple) and first:
        first = cast("Any", first)[0]
    return np.asarray(cast("Any", first)).dtype.kind == "b"


def _groups(counts: Ints) -> list[tuple[Ints, int]]:
    """Thetas of which a part is asked the same number of rows, and how many."""
    return [(np.flatnonzero(counts == count), int(count)) for count in np.unique(counts)]


def _reshaped(moments: Moments | None, batch: tuple[int, ...]) -> Moments | None:
    return moments.at(0) if moments is not None and not batch else moments
