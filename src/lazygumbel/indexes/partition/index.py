"""`PartitionIndex`: rows stored cell by cell, six-bit codes of their rotated residuals, and bytes.

A scan of the codes gives every row a ceiling that its logit exceeds with a known, small probability (see `law`), at a
few bits an entry. What is drawn, summed or ranked then reads only the rows whose ceilings matter.
"""

from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from itertools import product
from math import ceil, inf, log, log2, sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel.checks import check_count, check_number
from lazygumbel.datasets import rows_of
from lazygumbel.features import Features, Source
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.indexes.partition.build import Assigned, code_rows
from lazygumbel.indexes.partition.bytes import Bytes
from lazygumbel.indexes.partition.calibration import Calibration
from lazygumbel.indexes.partition.cells import Cells, mean_rows
from lazygumbel.indexes.partition.checking import check_saved
from lazygumbel.indexes.partition.codebook import COORDINATES
from lazygumbel.indexes.partition.cost import BY_BYTES, Effort, default_cells, default_coordinates, for_draws, for_top
from lazygumbel.indexes.partition.kmeans import assign_cells, train_means
from lazygumbel.indexes.partition.law import error_quantile
from lazygumbel.indexes.partition.sketch import Coder, Coding, Layout
from lazygumbel.kernels.types import BLOCK, CELL, CHUNK, Asked, Coded, Outlook, Race, Rows, Run
from lazygumbel.persist import Reader, Writer
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.results import TopK
from lazygumbel.threads import map_threads, submit

__all__ = ["Entered", "Foresight", "PartitionIndex"]

_SCALE = 20.0
"""Norm of theta over temperature that codes are made for by default, in units of one over the typical norm of a row."""
_SLACK = 2e-5
"""Rounding of float32 in estimates, in units of |theta| and the largest norm."""
_ROUNDING_SHARE = 0.1
"""Share of delta that is kept for the rounding of lookup tables."""
_SPARE = 8
"""Races whose room is kept for the next."""
_SHARED_FROM = 2_000_000
"""Bytes of codes from which a second thread pays."""
_OTHERS_SHARE = 0.45
"""Of a shared scan that the other thread makes: it wakes late, and to wait for it would take as long again."""
_TYPICAL_DELTA = 1e-4
_LARGEST_DEVIATION = 64.0
_LN2 = log(2.0)
_NOTHING = np.empty(0, dtype=np.int64)
_MISSED = 1e-4
"""Probability that `top_k` misses a row."""
_SCANNED_SHARE = 0.05
"""Of the rows: a larger k takes longer to find by ceilings than by scoring every row."""
_HOT = 2.0**120
"""A weight that may have been cut off."""
_RANGE = 140.0
"""Powers of two that a scan can tell apart above a lower bound of log Z."""


class Entered(NamedTuple):
    """A theta whose scan was made: ready to be raced, summed or ranked."""

    run: Run
    outlook: Outlook
    order: npt.NDArray[np.int64]
    """The id of each position."""
    far: bool
    """Whether some cells have one ceiling, which is calibrated."""


class Foresight(NamedTuple):
    """What a draw would do: see `PartitionIndex.foresee`."""

    far: npt.NDArray[np.bool_]
    """Cells that have one ceiling, (cells,)."""
    ceilings: npt.NDArray[np.float64]
    """What it would be of each, (cells,)."""
    norm: float
    outlook: Outlook


class PartitionIndex:
    """The structure under the race with ceilings."""

    kind: ClassVar[str] = "partition"

    def __init__(self, features: Features, cells: Cells, coder: Coder, coding: Coding, byte_codes: Bytes) -> None:
        self.features = features
        """The rows, stored cell by cell."""
        self.layout = Layout.of(cells.offsets)
        self.partition = cells
        self.coder = coder
        self.coding = coding
        self.bytes = byte_codes
        self.alive = self.layout.alive()
        """A bit for each slot that holds a row."""
        self.calibration: Calibration | None = None
        self._spare = deque[Race](maxlen=_SPARE)
        self.rows = Rows(features.stored, byte_codes.codes, byte_codes.steps[:, None], byte_codes.error)
        sketch = coding.sketch
        groups = np.maximum(np.bincount(sketch.cells, minlength=len(cells.means)), 1)
        means = np.stack([np.bincount(sketch.cells, widths, len(groups)) / groups for widths in sketch.widths])
        self.widest = float(sketch.widths[0].max()), float(sketch.widths[1].max())
        """The largest widths by the first part of codes and by all: see `Sketch`."""
        self.typical_width = max(float(np.median(sketch.widths[0])), 1e-30)
        self._coded = Coded(
            np.concatenate([coder.rotation, cells.root, cells.means]),
            coder.first,
            coder.second,
            np.log(np.diff(cells.offsets)),
            np.sqrt(2 * np.log(np.diff(cells.offsets))),
            np.sqrt(cells.variances),
            means,
            coding.exponents,
            features.d,
            coder.parts,
            coding.gain,
            coding.code_norm,
            byte_codes.error,
            2 * features.max_norm,
            _SLACK * features.max_norm,
        )
        arrays = (self.alive, *self._coded[:8], *sketch, *coder, *byte_codes[:2], *cells, features.stored)
        for array in arrays:
            array.flags.writeable = False  # what is built and what is loaded share one compiled version

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.partition.means)

    @property
    def coordinates(self) -> tuple[int, int]:
        """Rotated coordinates that a code stands for, of the first part and of the second."""
        return self.coder.first.shape[1], self.coder.second.shape[1]

    def __repr__(self) -> str:
        first, bits = (6 * codes for codes in self.coder.parts)
        size = f"n={self.features.n:,}, d={self.features.d}, cells={self.cells:,}"
        return f"PartitionIndex({size}, {bits} bits a row, {first} first)"

    @classmethod
    def build(
        cls,
        features: Source | Features,
        *,
        cells: int | None = None,
        coordinates: tuple[int, int] | None = None,
        scale: float | None = None,
        rng: np.random.Generator | int | None = None,
        progress: ShowProgress = None,
    ) -> Self:
        """Train cells on a sample, store the rows cell by cell (a float32 copy), and code them.

        `coordinates` to a code, of its first part and of its second, fewer for finer codes, are chosen by cost for
        thetas of norm over temperature `scale`: by default 20 over the typical norm of a row.
        """
        progress, generator = choose(progress), np.random.default_rng(rng)
        features = rows_of(features, progress)
        n, d = features.n, features.d
        cells = default_cells(n, d) if cells is None else check_count(cells, "cells")
        if n >= 2**31:
            raise ValueError(f"features: a PartitionIndex holds fewer than 2^31 rows, not {n:,}; split them")
        if cells > n:
            raise ValueError(f"cells must be at most the number of rows, {n}, not {cells}")
        if coordinates is not None and coordinates not in set(product(COORDINATES, repeat=2)):
            raise ValueError(f"coordinates must be a pair of {', '.join(map(str, COORDINATES))}, not {coordinates!r}")
        if scale is not None:
            check_number(scale, "scale", above=0.0)
        features.check_finite(progress)
        trained = train_means(features, cells, generator, progress)
        cell_of = assign_cells(features, trained, progress)
        means, cell_of, square = mean_rows(features, cell_of, len(trained), progress)
        if coordinates is None:
            counts = np.bincount(cell_of)
            between = float(counts @ np.einsum("cd,cd->c", means, means, dtype=np.float64)) / n
            spread = sqrt(max(square - between, 0.0))
            coordinates = default_coordinates(n, d, spread, scale or _SCALE / max(sqrt(square), 1e-30))
        coder = Coder.of(d, coordinates, generator)
        return cls(*code_rows(Assigned(features, means, cell_of), coder, generator, progress))

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The k rows of largest inner product; by the law of the sketch each is missed with probability below 1e-4."""
        search = open_search(queries, k, self.features)
        if search.k > _SCANNED_SHARE * self.features.n:
            return ExactIndex(self.features).top_k(queries, k)
        rows = np.empty(len(search.vectors), dtype=np.int64)
        shared = self.shares(len(search.vectors))

        quantile = error_quantile((1 - _ROUNDING_SHARE) * _MISSED, self.features.d)
        rounding = sqrt(-0.5 * log(_ROUNDING_SHARE * _MISSED))
        effort = for_top(quantile)

        def find(b: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
            vector = search.vectors[b]
            norm = float(np.linalg.norm(vector.astype(np.float64)))
            # Any temperature will do; at this one a scan tells rows apart well, and all of them are in its range.
            scale = sqrt(max(self.features.d - 1, 1)) / (_LN2 * max(norm, 1e-30) * self.typical_width)
            asked = Asked(scale, (quantile, quantile), rounding, 0.0, *effort)
            with self._enter(vector, asked, 0, _NOTHING, shared) as entered:
                positions, rows[b] = self._candidates(entered.run, search.k, shared)
            scores = self.features.score_at(positions, vector)
            return best(self.features, vector, self.order[positions], scores, search.k)

        each = range(len(search.vectors))
        hits = [find(b) for b in each] if len(each) < 2 else list(map_threads(find, each))
        return pack(search, hits, rows, bound=_MISSED)

    @staticmethod
    def _candidates(run: Run, k: int, shared: bool) -> tuple[npt.NDArray[np.int64], int]:
        """Positions that may be among the best k, and how many rows were looked at to know."""
        blocks = len(run.race.weights)
        middle = blocks // 2 if shared else blocks
        other = submit(kernels.top_rows, run, k, middle, blocks) if shared else None
        positions, _, looked = kernels.top_rows(run, k, 0, middle)
        if other is None:
            return positions, looked
        more, _, also = other.result()
        return np.concatenate([positions, more]), looked + also

    def save(self, writer: Writer) -> None:
        """Cells, codes and bytes; the rows are saved by their owner."""
        calibration = None if self.calibration is None else self.calibration.to_dict()
        writer.config["index"] = {
            "kind": self.kind,
            "cells": self.cells,
            "coordinates": list(self.coordinates),
            "calibration": calibration,
        }
        for name in Coder._fields:
            writer.array(f"coder_{name}", getattr(self.coder, name))
        for part in (self.partition, self.coding, self.bytes):
            part.save(writer)

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back; the arrays stay memory-mapped."""
        check_saved(reader, features)
        cells = Cells.load(reader)
        coder = Coder(*(reader.array(f"coder_{name}") for name in Coder._fields))
        index = cls(features, cells, coder, Coding.load(reader, Layout.of(cells.offsets)), Bytes.load(reader))
        saved = reader.config["index"].get("calibration")
        index.calibration = None if saved is None else Calibration.from_dict(saved)
        return index

    def calibrated(self, calibration: Calibration | None) -> Self:
        """The same index with another calibration, or with none."""
        other = copy(self)
        other.calibration = calibration
        other._spare = deque[Race](maxlen=_SPARE)
        return other

    def foresee(self, theta: npt.NDArray[np.float32], temperature: float, far: float) -> Foresight:
        """What a draw would do for one theta with one ceiling for far cells; nothing is scanned."""
        d, scale = self.features.d, 1 / (_LN2 * temperature)
        norm = sqrt(float(np.einsum("d,d->", theta, theta, dtype=np.float64)))
        first, all_ = self._quantiles(_TYPICAL_DELTA, norm / temperature / sqrt(max(d - 1, 1)))
        asked = Asked(scale, (first, all_), 0.0, far, *for_draws(d, self.coder.parts, first, 1))
        facts, ceilings, outlook = kernels.prepare(self._coded, theta, asked, 1.0, np.uint64(0))
        deviations = self._coded.deviations * outlook.spread / temperature
        return Foresight(ceilings.levels == CELL, facts.cells / temperature + far * deviations, facts.norm, outlook)

    def shares(self, thetas: int) -> bool:
        """Whether two threads should share a scan: for a theta alone, when it takes long enough to wake one."""
        return thetas == 1 and self.coding.sketch.codes.size > _SHARED_FROM

    def enter(
        self,
        theta: npt.NDArray[np.float32],
        temperature: float,
        *,
        delta: float = 0.0,
        size: int = 1,
        calibration: Calibration | None = None,
        seed: int = 0,
        excluded: npt.NDArray[np.int64] = _NOTHING,
        shared: bool = False,
    ) -> AbstractContextManager[Entered]:
        """A scan for ceilings of one theta, to draw `size` rows; `excluded` are positions.

        What rows lose to ceilings that are too low is at most `delta` of Z, on average over rotations; nothing with
        zero, when ceilings are by bytes. With a calibration that covers theta, far cells have one ceiling each and are
        out of that account. What was entered is no longer good when its context is left.
        """
        d, scale = self.features.d, 1 / (_LN2 * temperature)
        if delta == 0.0:
            asked = Asked(scale, (0.0, 0.0), 0.0, 0.0, *BY_BYTES)
        else:
            norm = sqrt(float(np.einsum("d,d->", theta, theta, dtype=np.float64)))
            first, all_ = self._quantiles(delta, norm / temperature / sqrt(max(d - 1, 1)))
            rounding = sqrt(-0.5 * log(_ROUNDING_SHARE * delta))
            far = calibration.far if calibration is not None else 0.0
            asked = Asked(scale, (first, all_), rounding, far, *for_draws(d, self.coder.parts, first, size))
        return self._enter(theta, asked, seed, excluded, shared, calibration)

    def estimate(
        self,
        theta: npt.NDArray[np.float32],
        temperature: float,
        *,
        effort: Effort,
        seed: int = 0,
        excluded: npt.NDArray[np.int64] = _NOTHING,
        shared: bool = False,
    ) -> AbstractContextManager[Entered]:
        """A scan for estimates in place of ceilings: weights that rows may be sampled by."""
        asked = Asked(1 / (_LN2 * temperature), (0.0, 0.0), 0.0, 0.0, *effort)
        return self._enter(theta, asked, seed, excluded, shared)

    def _quantiles(self, delta: float, unit: float) -> tuple[float, float]:
        """By the first part of codes and by all, for errors of at most this deviation a unit of width."""
        allowed, d = (1 - _ROUNDING_SHARE) * delta, self.features.d
        first, all_ = (error_quantile(allowed, d, _grid(unit * width)) for width in self.widest)
        return first, all_

    @contextmanager
    def _enter(
        self,
        theta: npt.NDArray[np.float32],
        asked: Asked,
        seed: int,
        excluded: npt.NDArray[np.int64],
        shared: bool,
        calibration: Calibration | None = None,
    ) -> Generator[Entered]:
        race, number = self._take_race(excluded), np.uint64(seed)
        chunks = len(race.sums)
        middle = int((1 - _OTHERS_SHARE) * chunks) if shared else chunks

        def prepare(power: float) -> tuple[Run, Outlook, bool]:
            facts, ceilings, outlook = kernels.prepare(self._coded, theta, asked, power, number)
            far = calibration is not None and calibration.covers(facts.norm * asked.scale * _LN2, facts.norm, outlook)
            if asked.far > 0.0 and not far:  # unlike those calibrated on
                facts, ceilings, outlook = kernels.prepare(self._coded, theta, asked._replace(far=0.0), power, number)
            return Run(self.coding.sketch, self.rows, facts, ceilings, race), outlook, far

        def scan(first: int, last: int, power: float) -> tuple[Run, Outlook, bool]:
            run, outlook, far = prepare(power)
            kernels.scan(run, first, last)
            return run, outlook, far

        # The other thread prepares for itself: that takes about as long as to wake it.
        other = submit(scan, middle, chunks, 1.0) if shared else None
        run, outlook, far = scan(0, middle, 1.0)
        if other is not None:
            other.result()
        tempered = (outlook.high - outlook.low) / _RANGE
        if tempered > 1.0 and race.sums.max() > _HOT:
            calibration = None
            run, outlook, far = scan(0, chunks, tempered)
        try:
            yield Entered(run, outlook, self.order, far)
        finally:
            self._spare.append(race)

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The id of each position."""
        if self.features.order is None:
            raise ValueError("features of a PartitionIndex must be stored cell by cell; use PartitionIndex.build")
        return self.features.order

    def _take_race(self, excluded: npt.NDArray[np.int64]) -> Race:
        """Room for a race: that of an earlier one, if there is any, because page faults take as long as a scan."""
        try:
            race = self._spare.pop()
        except IndexError:
            blocks, room = len(self.alive), self.features.n // 8 + 64
            chunks = -(-blocks // CHUNK)
            race = Race(
                np.empty_like(self.alive),
                np.empty(blocks),
                np.empty(chunks),
                np.empty(chunks),
                np.empty(room, dtype=np.int64),
                np.empty(room),
                np.empty(5),
                np.empty((blocks, BLOCK), dtype=np.int16),
            )
        np.copyto(race.alive, self.alive)
        if len(excluded):
            slots = self.layout.slots(excluded)
            np.bitwise_and.at(race.alive, slots // BLOCK, ~(np.uint64(1) << (slots % BLOCK).astype(np.uint64)))
        race.state.fill(0.0)
        return race

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_spare": deque[Race](maxlen=_SPARE)}


def _grid(deviation: float) -> float:
    """A standard deviation rounded up, so that few quantiles have to be computed."""
    return 2.0 ** (ceil(4 * log2(max(deviation, 0.03))) / 4) if deviation < _LARGEST_DEVIATION else inf
