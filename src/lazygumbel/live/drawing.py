"""`LiveDistribution`: what `MergedDistribution` is, with a shorter way to the draws that are asked for most.

Default draws need no more of a part than its race. So thetas are checked once, a helper is called once to share the
scans of all parts, and kernels keep what fires first.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.distribution import Distribution, Exclude, Rng
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.kernels.batches import Few, Fired
from lazygumbel.live.features import LiveFeatures
from lazygumbel.live.truncating import truncate
from lazygumbel.merged import MergedDistribution
from lazygumbel.methods import Bounded, Query, Sampler
from lazygumbel.methods.base import NOTHING
from lazygumbel.methods.defaults import default_sampler
from lazygumbel.methods.racing import RaceBatch, Rules, in_turns, seeds_of
from lazygumbel.methods.truncation import Truncation
from lazygumbel.results import Draws, Naming, Reason
from lazygumbel.rows.exclusions import exclusions
from lazygumbel.verbs import sample_shape

if TYPE_CHECKING:
    from lazygumbel.live.snapshot import Snapshot

__all__ = ["LiveDistribution"]


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
        longest, d = snapshot.max_norm, snapshot.d
        super().__init__(parts, snapshot, theta, temperature, d=d, max_norm=longest, naming=naming)
        self._segments, self._snapshot = parts, snapshot

    def _sample(self, size: int | tuple[int, ...], method: Sampler | None, rng: Rng, exclude: Exclude) -> Draws:
        large = self._segments[0].shown
        chosen = default_sampler(large) if method is None else method
        coded = isinstance(large, PartitionIndex) and len(self._thetas) > 0
        if exclude is not None or not coded or not isinstance(chosen, Bounded):
            return super()._sample(size, method, rng, exclude)
        shape, count = sample_shape(size)
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
        seeds = seeds_of(_entropy(rng, 24 * len(thetas) * len(parts)), len(parts))
        coded = [part.shown for part in parts if isinstance(part.shown, PartitionIndex)]
        query = Query(coded[0], thetas, self.temperature, (NOTHING,) * len(thetas))
        few = self._few(seeds[-1, :, 0])
        races = RaceBatch.of(coded, query, rules, seeds, more=0 if few is None else 1)
        found, fired = races.found, Fired.allocate(len(thetas), rules.size)
        in_turns(races, None if few is None else lambda first, last: kernels.draw_few(few, (first, last), found))
        kernels.find_first(found, fired)
        ids, values, rows = np.empty_like(fired.parts), fired.values, fired.rows
        for p in set(fired.parts.ravel().tolist()):
            here = fired.parts == p
            ids[here] = parts[p].stored_ids[fired.positions[here]]
        reasons, bound = np.full(len(thetas), Reason.CEILINGS.code, dtype=np.int8), np.full(len(thetas), rules.delta)
        for b in np.flatnonzero(fired.undone).tolist():
            every = [races.finished(b, p) for p in range(len(coded))]
            ends = [(part.ids[one.ids], one.values) for part, one in zip(parts, every, strict=False)]
            if few is not None:
                ends.append((parts[-1].stored_ids[found.positions[-1, b]], found.values[-1, b]))
            ids[b], values[b] = _earliest(ends)
            rows[b] = sum(int(one.rows) for one in every) + (0 if few is None else len(few.rows))
            reasons[b], bound[b] = max(int(one.grounds) for one in every), max(float(one.bound) for one in every)
        return Draws(ids.T, values.T, rows, reasons, bound, fired.violations)

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


def _entropy(rng: Rng, count: int) -> bytes:
    """So many random bytes: without a generator, from where one would be seeded, which takes a tenth of the time."""
    return os.urandom(count) if rng is None else np.random.default_rng(rng).bytes(count)
