"""`Plan`: where `Stratified` looks for each theta of a query, and how eagerly; carries out the looks."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods.base import Query
from lazygumbel.methods.calibration import Calibration
from lazygumbel.results import Label
from lazygumbel.threads import map_threads

__all__ = ["Looked", "Plan", "Winners"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


_DRAWS_AT_ONCE = 64
_PARTS_AT_ONCE = 8
"""Parts of that many draws are handed to the threads together; their random numbers are held in memory."""


class Looked(NamedTuple):
    """The rows that one look saw."""

    ids: Ints
    logits: Floats
    values: Floats
    """Perturbed logits."""
    rates: Floats
    """Probability of each row to be looked at."""


class Winners(NamedTuple):
    """The winners of several looks; a look that saw nothing has value minus infinity."""

    ids: Ints
    values: Floats
    rows: Ints


class Noise(NamedTuple):
    """The random numbers of looks: exponentials for what is skipped, uniforms in (0, 1] for the Gumbels."""

    exponentials: Floats
    uniforms: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator, shape: tuple[int, ...]) -> "Noise":
        """Fresh numbers."""
        return cls(rng.standard_exponential(shape), 1.0 - rng.random(shape))

    def plus(self, more: "Noise") -> "Noise":
        """A longer stream that begins as this one."""
        return Noise(
            np.concatenate([self.exponentials, more.exponentials]), np.concatenate([self.uniforms, more.uniforms])
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """Routing scores and hazards for the thetas of a query."""

    query: Query
    index: PartitionIndex
    scores: npt.NDArray[np.float32]
    """(B, cells)"""
    inner: Ints
    """First ranks of all buckets but the first."""
    hazards: Floats
    """(B, K)"""
    calibrated: npt.NDArray[np.bool_]
    """Whether theta b is like those of the calibration."""
    expected: Floats
    """Rows that one look is expected to take, (B,)."""

    @classmethod
    def of(cls, query: Query, rel_err: float | None, *, estimate: bool = False) -> "Plan":
        """For draws, or for estimates of this relative error (None: what was calibrated for)."""
        index, calibration = _calibrated(query)
        route = index.route(query.thetas)
        norms = np.sqrt(np.einsum("bd,bd->b", query.thetas, query.thetas, dtype=np.float64))
        hazards = np.empty((query.size, len(calibration.sizes)))
        calibrated = np.empty(query.size, dtype=np.bool_)
        for b, norm in enumerate(norms.tolist()):
            scale = norm / query.temperature
            alignment = float(route.alignment[b]) / norm if norm > 0 else 1.0
            if estimate:
                found = calibration.estimation_hazards(scale, alignment, rel_err or calibration.rel_err)
            else:
                found = calibration.sampling_hazards(scale, alignment)
            hazards[b], calibrated[b] = found
        expected = -np.expm1(-hazards) @ calibration.sizes
        return cls(query, index, route.scores, calibration.edges[1:-1], hazards, calibrated, expected)

    def label(self, b: int) -> Label:
        """What may be said of theta b."""
        if np.isinf(self.hazards[b]).all():
            return "exact"
        return "calibrated" if self.calibrated[b] and not len(self.query.excluded[b]) else "heuristic"

    def row_hazards(self, b: int) -> Floats:
        """The hazard of every row for theta b, by id, (n,)."""
        thresholds = self._thresholds(self.scores[b : b + 1])[0]
        bucket_of = (self.scores[b][:, None] < thresholds[None, :]).sum(axis=1)
        hazards = np.empty(self.query.features.n)
        hazards[self.index.order] = np.repeat(self.hazards[b][bucket_of], np.diff(self.index.offsets))
        return hazards

    def look(self, b: int, rng: np.random.Generator) -> Looked:
        """One look at theta b; excluded rows are left out."""
        noise = Noise.draw(rng, (0,))
        while True:
            # More of the same stream: what was read is read again, so that a long look is continued, not drawn anew.
            noise = noise.plus(Noise.draw(rng, (_room(float(self.expected[b])),)))
            count, positions, logits, values, buckets = kernels.look(
                self.index.features.stored,
                self.index.offsets,
                self.scores[b],
                self._thresholds(self.scores[b : b + 1])[0],
                self.hazards[b],
                self.query.thetas[b],
                1.0 / self.query.temperature,
                *noise,
            )
            if count >= 0:
                break
        looked = Looked(self.index.order[positions], logits, values, -np.expm1(-self.hazards[b][buckets]))
        if not len(self.query.excluded[b]):
            return looked
        kept = np.isin(looked.ids, self.query.excluded[b], invert=True)
        return Looked(looked.ids[kept], looked.logits[kept], looked.values[kept], looked.rates[kept])

    def winners(self, thetas: Ints, rng: np.random.Generator) -> Winners:
        """One draw for each entry of `thetas`, on all threads when there are many.

        How the work is cut does not depend on the number of threads, so that a seed gives the same draws anywhere.
        """
        room = _room(float(self.expected[thetas].max()))
        chunk = max(1, min(_DRAWS_AT_ONCE, 2**20 // room))
        parts = [thetas[a : a + chunk] for a in range(0, len(thetas), chunk)]
        found: list[Winners] = []
        for a in range(0, len(parts), _PARTS_AT_ONCE):
            some = parts[a : a + _PARTS_AT_ONCE]
            streams = [Noise.draw(rng, (len(part), room)) for part in some]
            if len(some) == 1 and len(some[0]) < 8:
                drawn = [self._draw(some[0], streams[0])]
            else:
                drawn = list(map_threads(self._draw, some, streams))
            for part, stream, winners in zip(some, streams, drawn, strict=True):
                self._finish(part, stream, winners, rng)
            found += drawn
        return Winners(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _draw(self, thetas: Ints, noise: Noise) -> Winners:
        scores = self.scores if len(thetas) == len(self.scores) == 1 else self.scores[thetas]
        positions, values, rows = kernels.winners(
            self.index.features.stored,
            self.index.offsets,
            scores,
            self._thresholds(scores),
            self.hazards[thetas],
            self.query.thetas[thetas],
            1.0 / self.query.temperature,
            *noise,
        )
        return Winners(self.index.order[positions], values, rows)

    def _finish(self, thetas: Ints, noise: Noise, winners: Winners, rng: np.random.Generator) -> None:
        """Continue the looks whose random numbers ran out, each with more of its own stream."""
        for j in np.flatnonzero(winners.rows < 0):
            stream = Noise(noise.exponentials[j], noise.uniforms[j])
            while winners.rows[j] < 0:
                stream = stream.plus(Noise.draw(rng, stream.uniforms.shape))
                again = self._draw(thetas[j : j + 1], Noise(stream.exponentials[None], stream.uniforms[None]))
                winners.ids[j], winners.values[j], winners.rows[j] = again.ids[0], again.values[0], again.rows[0]

    def _thresholds(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The routing score of the last cell in each bucket but the last, (B, K - 1)."""
        return np.ascontiguousarray(np.sort(scores, axis=1)[:, scores.shape[1] - self.inner])


def _calibrated(query: Query) -> tuple[PartitionIndex, Calibration]:
    if not isinstance(query.index, PartitionIndex):
        raise ValueError("method: Stratified needs a PartitionIndex; use another method, or build one")
    if query.calibration is None:
        raise ValueError("method: Stratified needs a calibrated model; call model.calibrate() first")
    return query.index, query.calibration


def _room(expected: float) -> int:
    """Random numbers of each kind for a look of this many rows, with spare for the spread of the count."""
    return int(1.2 * expected + 8 * np.sqrt(expected) + 300)
