"""`Truncation`: which rows of a theta are left by top-k, top-p and min-p, found from the best rows downwards.

Rows are in the order of their logits, equal ones by smaller id, and each rule keeps a beginning of this list; so all
three keep the shortest of their beginnings. The index is asked for longer and longer lists until one rule ends within.
Only top-p without top-k needs more: the mass of all rows.

What is lost where the index misses a row with probability beta at most: by top-k the mass of the rows that it misses
and no more, so beta; by min-p as much, and beta for the first row, which sets the threshold; by top-p, whose list then
ends later, four times beta. Top-p of a list that top-k ended is certain only if no row of it was missed: k beta. Where
Z is estimated to a relative error r, top-p cuts as another p would that is off by r p: the mass of what it wrongly
keeps or drops is at most r of all that is kept, and one row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log, nan
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count, check_number
from lazygumbel.methods.base import Estimator, Kept, Query
from lazygumbel.methods.head import find_heads
from lazygumbel.results import Estimate

__all__ = ["Truncation"]


_FIRST, _GROWTH = 256, 8
"""How many rows are looked for at first, and by how much longer each next list is."""
_STANDARD_ERRORS = 4.0
"""By which the mass of all rows may be off without a change of what is kept, unless the caller allows an error."""
_REACHED = 1e-6
"""Relative rounding of sums in float32: a mass that is short of p by less has reached it."""


class _List(NamedTuple):
    """The best rows of one theta."""

    ids: Ints
    logits: Floats
    rows: int
    missed: float
    """Probability at most that a row is missed."""
    whole: bool
    """Whether there are no more rows."""


class _Mass(NamedTuple):
    """log Z of one theta as it was estimated by the estimator of this number; by none at first."""

    log_total: float = nan
    stderr: float = nan
    bound: float = nan
    rows: int = 0
    level: int = -1

    def relative_to(self, best: _List) -> float:
        """Z in units of the weight of the first row."""
        return exp(self.log_total - float(best.logits[0]))


@dataclass(frozen=True)
class Truncation:
    """Keep the `top_k` most probable rows; of these the fewest of mass `top_p`; of these those of `min_p` times the
    largest probability."""

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if self.top_k is self.top_p is self.min_p is None:
            raise ValueError("top_k, top_p, min_p: give at least one of them")
        if self.top_k is not None:
            check_count(self.top_k, "top_k")
        for name, value in (("top_p", self.top_p), ("min_p", self.min_p)):
            if value is not None and check_number(value, name, least=0.0) > 1.0:
                raise ValueError(f"{name} must be at most 1, not {value:g}")
        if self.top_p == 0.0:
            raise ValueError("top_p must be greater than 0; top_k=1 keeps the most probable row alone")

    def keep(self, query: Query, estimators: Sequence[Estimator], rng: np.random.Generator) -> tuple[Kept, ...] | None:
        """What is left of each theta; None if no rule leaves out any row."""
        most = max((query.left(b) for b in range(query.size)), default=0)
        if not self._by_mass and not self.min_p and (self.top_k or most) >= most:
            return None
        return self.find(query, estimators, rng)

    def find(self, query: Query, estimators: Sequence[Estimator], rng: np.random.Generator) -> tuple[Kept, ...]:
        """What is left of each theta, all rows if need be.

        `estimators` of Z for top-p, each closer than the one before: the next is asked where one leaves a doubt.
        """
        kept: dict[int, Kept] = {}
        masses = dict.fromkeys(range(query.size), _Mass())
        looked, count = [0] * query.size, self.top_k or _FIRST
        while len(kept) < query.size:
            open_ = [b for b in range(query.size) if b not in kept]
            lists = dict(zip(open_, _best(_some(query, open_), count), strict=True))
            for level, estimator in enumerate(estimators):
                doubtful = [b for b in open_ if masses[b].level < level and self._is_doubtful(lists[b], masses[b])]
                for b, mass in zip(doubtful, _masses(_some(query, doubtful), estimator, rng, level), strict=True):
                    masses[b] = mass
                    looked[b] += mass.rows
            for b, best in lists.items():
                looked[b] += best.rows
                length = self._length(best, masses[b])
                if length is not None:
                    bound = self._bound(best, length, masses[b], strict=len(estimators) > 1)
                    counted = not self._by_mass and not self.min_p
                    kept[b] = Kept(best.ids[:length], best.logits[:length], looked[b], bound, counted)
            count *= _GROWTH
        return tuple(kept[b] for b in range(query.size))

    @property
    def _by_mass(self) -> bool:
        return self.top_p is not None and self.top_p < 1.0

    def _length(self, best: _List, mass: _Mass, off: float = 0.0) -> int | None:
        """How many rows of a list are kept, if Z is off by so much; None if it is too short to tell."""
        count, ends, ended = len(best.ids), _ends(best), self._is_ended(best)
        count = min(self.top_k or count, count)
        lengths = [count] if ended else []
        if self.min_p:
            least = float(best.logits[0]) + log(self.min_p)
            likely = int(np.searchsorted(-best.logits, -least, side="right"))
            lengths += [likely] if likely < len(best.ids) else []
        if self.top_p is not None and self._by_mass:
            total = float(ends[count - 1])
            if not ended:
                total = max(total, (1 + off) * mass.relative_to(best))
            heavy = int(np.searchsorted(ends, self.top_p * (1 - _REACHED) * total)) + 1
            lengths += [heavy] if heavy <= count else []
        return min(lengths, default=None)

    def _is_ended(self, best: _List) -> bool:
        """Whether no row below a list can be kept."""
        return best.whole or self.top_k is not None

    def _is_doubtful(self, best: _List, mass: _Mass) -> bool:
        """Whether the error of Z may matter; with none at all it does."""
        if not self._by_mass or self._is_ended(best):
            return False
        if mass.level < 0:
            return True
        off = _STANDARD_ERRORS * mass.stderr
        here = self._length(best, mass)
        return here is not None and not (self._length(best, mass, -off) == here == self._length(best, mass, off))

    def _bound(self, best: _List, length: int, mass: _Mass, *, strict: bool) -> float:
        """Total variation distance: see above. An estimate that was found close enough by its error proves nothing."""
        times = 2 if self.min_p else 1
        if self._by_mass:
            times = self.top_k or (len(best.ids) if best.whole else 4)
        bound = times * best.missed
        if self._by_mass and not self._is_ended(best) and mass.stderr > 0:
            bound = nan if strict else bound + mass.bound + self._step(best, length, mass)
        return float(np.minimum(bound, 1.0))

    def _step(self, best: _List, length: int, mass: _Mass) -> float:
        """By how much of what is kept one row more or less may change it."""
        ends, after = _ends(best), best.logits[min(length, len(best.ids) - 1)] - best.logits[0]
        over = 0.0
        if length > 1 and self.top_p is not None:
            over = float(ends[length - 1]) - self.top_p * mass.relative_to(best)
        return max(over, exp(after)) / float(ends[length - 1])


def _masses(query: Query, estimator: Estimator, rng: np.random.Generator, level: int) -> list[_Mass]:
    if not query.size:
        return []
    seen = Estimate.of_log_partition(*estimator.moments(query, None, rng))
    return [
        _Mass(float(seen.value[b]), float(seen.stderr[b]), float(seen.bound[b]), int(seen.rows[b]), level)
        for b in range(query.size)
    ]


def _best(query: Query, count: int) -> Iterator[_List]:
    """The best rows of each theta: so many, or all of them."""
    if query.kept is None and count > query.features.n // 2:
        yield from (_all_rows(query, b) for b in range(query.size))
        return
    for b, head in enumerate(find_heads(query, count)):
        whole, missed = len(head.ids) >= query.left(b), head.bound
        if query.kept is None:
            missed = 0.0 if whole else missed
        elif missed > 0 and not query.kept[b].counted:
            missed = nan  # a bound on a distance says nothing of single rows
        yield _List(head.ids, head.logits, head.rows, missed, whole)


def _all_rows(query: Query, b: int) -> _List:
    """All rows in order, by a dense pass."""
    blocks = [(block.ids, block.logits[0]) for block in query.at(slice(b, b + 1)).dense()]
    ids, logits = (np.concatenate(column) for column in zip(*blocks, strict=True))
    order = np.lexsort((ids, -logits))[: query.left(b)]  # what is excluded comes last
    return _List(ids[order], logits[order], query.features.n, 0.0, True)


def _some(query: Query, thetas: list[int]) -> Query:
    excluded = tuple(query.excluded[b] for b in thetas)
    kept = None if query.kept is None else tuple(query.kept[b] for b in thetas)
    return replace(query, thetas=query.thetas[thetas], excluded=excluded, kept=kept)


def _ends(best: _List) -> Floats:
    """Sums of weights from the first row on, in units of its weight."""
    return np.cumsum(np.exp(best.logits - best.logits[0]))
