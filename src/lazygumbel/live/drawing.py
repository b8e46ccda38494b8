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
from lazygumbel.kernels.batches import Few
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

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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
        heat, few = Heat.of(coded, query, rules, seeds), self._few(seeds[-1, :, 0])
        found, shape = heat.found, (len(thetas), rules.size)
        last = np.empty(shape, dtype=np.int64), np.empty(shape)
        if few is None:
            in_turns(heat)
        else:
            in_turns(heat, lambda first, stop: kernels.draw_few(few, (first, stop), *last))
        drawn = [*zip(found.positions, found.values, strict=True), *([] if few is None else [last])]
        ids, values = _earliest([(part.stored_ids[p], v) for part, (p, v) in zip(parts, drawn, strict=True)])
        rows = found.rows.sum(axis=0) + (0 if few is None else len(few.rows))
        reasons, bound = [Reason.CEILINGS] * len(thetas), np.full(len(thetas), rules.delta)
        for b in np.flatnonzero((found.drawn < heat.batch.wanted).any(axis=0)).tolist():
            every = [heat.drawn(b, p) for p in range(len(coded))]
            ends = [(part.ids[one.ids], one.values) for part, one in zip(parts, every, strict=False)]
            ends += [] if few is None else [(parts[-1].stored_ids[last[0][b]], last[1][b])]
            ids[b], values[b] = _earliest(ends)
            rows[b] = sum(one.rows for one in every) + (0 if few is None else len(few.rows))
            reasons[b], bound[b] = max((one.reason for one in every), key=_weakness), max(one.bound for one in every)
        return Draws(ids.T, values.T, rows, grounds(reasons), bound, found.violations.sum(axis=0))

    def _few(self, seeds: npt.NDArray[np.uint64]) -> Few | None:
        """The rows that came last, if there are any, of which all are scored."""
        last = self._segments[-1]
        if not isinstance(last.shown, ExactIndex):
            return None
        rows, dead = last.index.features.stored, last.shown.features.dead
        held = np.zeros(len(rows), dtype=np.bool_) if dead is None else dead.view()
        held.flags.writeable = False  # so that one compiled version does
        return Few(rows, held, self._thetas, 1 / self.temperature, seeds)


def _earliest(parts: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """Of what was drawn from every part, ids and perturbed logits, what fires first."""
    ids, values = parts[0]
    for others, later in parts[1:]:
        wins = later > values
        ids, values = np.where(wins, others, ids), np.where(wins, later, values)
    return ids, values


def _weakness(reason: Reason) -> int:
    return reason.code


def _entropy(rng: Rng, count: int) -> bytes:
    """So many random bytes: without a generator, from where one would be seeded, which takes a tenth of the time."""
    return os.urandom(count) if rng is None else np.random.default_rng(rng).bytes(count)
