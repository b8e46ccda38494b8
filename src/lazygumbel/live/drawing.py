"""`LiveDistribution`: what `MergedDistribution` is, with a shorter way to the draws that are asked for most.

Default draws need no more of a part than its race. So thetas are checked once, a helper is called once to share the
scans of all parts, and kernels keep what fires first.
"""

import os
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.checks import check_count
from lazygumbel.distribution import Distribution, Exclude, Rng
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.indexes.partition.helping import helped
from lazygumbel.kernels.batches import Few, First
from lazygumbel.live.features import LiveFeatures
from lazygumbel.live.truncating import truncate
from lazygumbel.merged import MergedDistribution
from lazygumbel.methods import Bounded, Query, Sampler
from lazygumbel.methods.base import NOTHING
from lazygumbel.methods.racing import Heat, Rules, in_turns, seeds_of
from lazygumbel.methods.truncation import Truncation
from lazygumbel.results import Draws, Naming, Reason, grounds
from lazygumbel.rows.exclusions import exclusions

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
        rules = Rules(chosen.delta, None, count, distinct=False)
        return self._race(rules, rng).shaped(shape, self.batch_shape, self._naming)

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

    def _race(self, rules: Rules, rng: Rng) -> Draws:
        """All parts, of which the first is the large one."""
        parts, thetas = self._segments, self._thetas
        seeds = seeds_of(_entropy(rng, 24 * len(thetas) * len(parts))).reshape(len(parts), len(thetas), 3)
        coded = [part.shown for part in parts if isinstance(part.shown, PartitionIndex)]
        query = Query(coded[0], thetas, self.temperature, (NOTHING,) * len(thetas))
        heats = [Heat.of(coded[0], query, rules, seeds[0])]
        heats += [heats[0].beside(index, seeds[p]) for p, index in enumerate(coded[1:], 1)]
        few, first = self._few(seeds[-1, :, 0]), First.room(len(thetas), rules.size)

        def run(start: int, stop: int) -> None:
            with helped(heats[0].shares) as desk:
                if len(few.rows):
                    kernels.draw_few(few, (start, stop), first)
                for heat, part in zip(heats, parts, strict=False):
                    heat.run(start, stop, desk)
                    kernels.keep_first(heat.found, heat.batch.wanted, (start, stop), part.stored_ids, first)

        in_turns(run, len(thetas))
        reasons, bound = [Reason.CEILINGS] * len(thetas), np.full(len(thetas), rules.delta)
        for b in np.flatnonzero(first.undone).tolist():
            reasons[b], bound[b] = self._finish(heats, few, b, first)
        return Draws(first.ids.T, first.values.T, first.rows, grounds(reasons), bound, first.violations)

    def _few(self, seeds: npt.NDArray[np.uint64]) -> Few:
        """The rows that came last, if there are any, of which all are scored."""
        last = self._segments[-1]
        rows, ids, dead = self._thetas[:0], NOTHING, None
        if isinstance(last.shown, ExactIndex):
            rows, ids, dead = last.index.features.stored, last.stored_ids, last.shown.features.dead
        held = rows, np.zeros(len(rows), dtype=np.bool_) if dead is None else dead.view(), ids.view()
        for array in held:
            array.flags.writeable = False  # so that one compiled version does
        return Few(held[0], held[1], self._thetas, 1 / self.temperature, seeds, held[2])

    def _finish(self, heats: Sequence[Heat], few: Few, b: int, first: First) -> tuple[Reason, float]:
        """Race a theta to its end where that takes a dense pass; the weakest reason and bound of all parts."""
        drawn = [heat.drawn(b) for heat in heats]
        first.values[b] = -np.inf
        if len(few.rows):
            kernels.draw_few(few, (b, b + 1), first)
        for part, one in zip(self._segments, drawn, strict=False):
            wins = one.values > first.values[b]
            first.values[b, wins], first.ids[b, wins] = one.values[wins], part.ids[one.ids[wins]]
        first.rows[b] = sum(one.rows for one in drawn) + len(few.rows)
        return max((one.reason for one in drawn), key=lambda reason: reason.code), max(one.bound for one in drawn)


def _entropy(rng: Rng, count: int) -> bytes:
    """So many random bytes: without a generator, from where one would be seeded, which takes a tenth of the time."""
    return os.urandom(count) if rng is None else np.random.default_rng(rng).bytes(count)
