"""`LiveDistribution`: what `MergedDistribution` is, with a shorter way to the draws that are asked for most.

Default draws need no more of a part than its race. So thetas are checked once, the small parts are raced while another
thread begins to scan the large one, and the earliest to fire is found without a result for each part.
"""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_count
from lazygumbel.distribution import Distribution, Exclude, Rng
from lazygumbel.exclusions import exclusions
from lazygumbel.indexes import PartitionIndex
from lazygumbel.live.features import LiveFeatures
from lazygumbel.live.segment import Segment
from lazygumbel.live.truncating import truncate
from lazygumbel.merged import MergedDistribution
from lazygumbel.methods import Bounded, Query, Sampler
from lazygumbel.methods.base import NOTHING
from lazygumbel.methods.racing import Drawn, Rules, race
from lazygumbel.methods.truncation import Truncation
from lazygumbel.results import Draws, Naming, Reason, grounds

if TYPE_CHECKING:
    from lazygumbel.live.snapshot import Snapshot

__all__ = ["LiveDistribution"]

_BOUNDED = Bounded()


class LiveDistribution(MergedDistribution):
    """The distribution over the rows of a snapshot."""

    def __init__(
        self,
        snapshot: "Snapshot",
        theta: npt.ArrayLike,
        temperature: float,
        *,
        naming: Naming | None = None,
    ) -> None:
        parts = snapshot.parts
        longest = max(part.index.features.max_norm for part in parts)
        super().__init__(parts, snapshot, theta, temperature, d=snapshot.d, max_norm=longest, naming=naming)
        self._segments, self._snapshot = parts, snapshot

    def sample(
        self,
        size: int | tuple[int, ...] = 1,
        *,
        method: Sampler | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Draws:
        """Independent samples: `ids` of shape (size,) + batch shape."""
        large = self._segments[0].shown
        chosen = _BOUNDED if method is None else method
        if exclude is not None or not isinstance(chosen, Bounded) or not len(self._thetas):
            return super().sample(size, method=method, rng=rng, exclude=exclude)
        if not isinstance(large, PartitionIndex) or (method is None and large.calibration is not None):
            return super().sample(size, method=method, rng=rng)
        shape = size if isinstance(size, tuple) else (size,)
        count = prod(check_count(s, "size", least=0) for s in shape)
        found = self._race(large, Rules(chosen.delta, None, count, distinct=False), np.random.default_rng(rng))
        return _merged(self._segments, found, count).shaped(shape, self.batch_shape, self._naming)

    def truncated(
        self,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        rel_err: float | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Distribution:
        """The distribution over what is left, for each theta: see `Distribution.truncated`."""
        rules, batch = Truncation(top_k, top_p, min_p), self.batch_shape
        if exclude is not None:
            self._left_out(exclude)  # refuses rows that were removed, but for those of a mask
            held = exclusions(exclude, batch, self._snapshot.size)
            out = [one[self._snapshot.find(one)[0] >= 0] for one in held]
            exclude = out if batch else out[0]
        thetas = self._thetas if batch else self._thetas[0]
        features, generator = LiveFeatures(self._snapshot), np.random.default_rng(rng)
        return truncate(
            rules,
            features,
            self._snapshot,
            thetas,
            self.temperature,
            rel_err=rel_err,
            rng=generator,
            exclude=exclude,
        )

    def _race(self, large: PartitionIndex, rules: Rules, rng: np.random.Generator) -> list[list[Drawn]]:
        """For every part, of which the first is the large one, what each theta draws of it."""
        nothing = (NOTHING,) * len(self._thetas)
        found: list[list[Drawn]] = []

        def race_small() -> None:
            for part in self._segments[1:]:
                index = part.shown
                if isinstance(index, PartitionIndex):
                    found.append(race(index, Query(index, self._thetas, self.temperature, nothing), rules, rng))
                else:
                    found.append(self._score(part, rules.size, rng))

        query = Query(large, self._thetas, self.temperature, nothing)
        return [race(large, query, rules, rng, race_small), *found]

    def _score(self, part: Segment, size: int, rng: np.random.Generator) -> list[Drawn]:
        """Draws from rows that are so few that all of them are scored."""
        scores, dead, n = self._thetas @ part.index.features.stored.T, part.shown.features.dead, len(part.ids)
        if dead is not None:
            scores[:, dead] = -np.inf
        high = scores.max(axis=1, keepdims=True)
        masses = np.exp((scores - high) / np.float64(self.temperature)).cumsum(axis=1)
        total = masses[:, -1:]
        times, marks = rng.standard_exponential((len(scores), size)), rng.random((len(scores), size)) * total
        values = high.astype(np.float64) / self.temperature + np.log(total / times)
        marks = np.minimum(marks, np.nextafter(total, 0.0))
        return [
            Drawn(np.searchsorted(masses[b], marks[b], side="right"), values[b], n, Reason.EVERY_ROW, 0.0, 0)
            for b in range(len(scores))
        ]


def _merged(parts: Sequence[Segment], found: Sequence[list[Drawn]], size: int) -> Draws:
    """Of each draw that of the part where it fired first."""
    each: list[tuple[Drawn, ...]] = list(zip(*found, strict=True))
    ids, values = np.empty((size, len(each)), dtype=np.int64), np.empty((size, len(each)))
    for b, drawn in enumerate(each):
        best, fired = drawn[0].values, parts[0].ids[drawn[0].ids]
        for part, one in zip(parts[1:], drawn[1:], strict=True):
            wins = one.values > best
            if wins.any():
                best, fired = np.where(wins, one.values, best), np.where(wins, part.ids[one.ids], fired)
        ids[:, b], values[:, b] = fired, best
    weakest = [max((one.reason for one in drawn), key=lambda reason: reason.code) for drawn in each]
    return Draws(
        ids,
        values,
        np.array([sum(one.rows for one in drawn) for drawn in each], dtype=np.int64),
        grounds(weakest),
        np.array([max(one.bound for one in drawn) for drawn in each]),
        np.array([sum(one.violations for one in drawn) for drawn in each], dtype=np.int64),
    )
