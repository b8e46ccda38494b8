"""`PartitionIndex`: rows stored cell by cell, six-bit codes of their rotated residuals, and bytes.

A scan of the codes gives every row a ceiling that its logit exceeds with a known, small probability (see `law`), at a
few bits an entry. What is drawn, summed or ranked then reads only the rows whose ceilings matter.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Floats, Ints, Mask, Vectors
from lazygumbel._support.checks import check_count, check_vectors
from lazygumbel._support.persist import Reader, Writer
from lazygumbel._support.threads import get_threads, map_threads
from lazygumbel.datasets import rows_of
from lazygumbel.indexes.base import open_search, pack
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.indexes.partition.asking import MISSED, ask_best, ask_draws, ask_estimate
from lazygumbel.indexes.partition.build import Assigned, code_rows
from lazygumbel.indexes.partition.bytes import Bytes
from lazygumbel.indexes.partition.calibration import Calibration
from lazygumbel.indexes.partition.cells import Cells, mean_rows
from lazygumbel.indexes.partition.checking import check_saved
from lazygumbel.indexes.partition.codebook import COORDINATES
from lazygumbel.indexes.partition.cost import Effort, default_cells, default_coordinates
from lazygumbel.indexes.partition.forecasting import StandIns
from lazygumbel.indexes.partition.helping import call_helper, let_go
from lazygumbel.indexes.partition.kmeans import assign_cells, train_means
from lazygumbel.indexes.partition.sketch import Coder, Coding, Layout
from lazygumbel.kernels.types import BLOCK, CELL, PACKED, Asked, Coded, Outlook, Race, Rows, Run, Stored, Workspaces
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.results import TopK
from lazygumbel.rows.features import Features, Source

__all__ = ["Entered", "Foresight", "PartitionIndex"]


_SLACK = 2e-5
"""Rounding of float32 in estimates, in units of |theta| and the largest norm."""
_SPARE = 8
"""Races whose room is kept for the next."""
_OF_THIS_PROCESS = "stored", "_spare", "_spare_workspaces"
"""What holds addresses, and is made anew for a copy."""
_TOGETHER, _CACHED = 8, 2**25
"""Thetas of a batch that are scanned together, if there are more bytes of codes than caches may hold."""
_LONG_TOGETHER, _LONG, _NEAR = 16, 40, 2**21
"""The same where a block has more lines of codes than the second, so that to read them takes longer than to write its
ceilings, and there are more bytes of them than the nearest caches hold."""
_SHARED_FROM = 2_000_000
"""Bytes of codes from which a second thread pays."""
_TYPICAL_DELTA = 1e-4
_NOTHING = np.empty(0, dtype=np.int64)
_SCANNED_SHARE = 0.05
"""Of the rows: a larger k takes longer to find by ceilings than by scoring every row."""


class Entered(NamedTuple):
    """A theta whose scan was made: ready to be raced, summed or ranked."""

    run: Run
    outlook: Outlook
    order: Ints
    """The id of each position."""


class Foresight(NamedTuple):
    """What a draw would do: see `PartitionIndex.foresee`."""

    far: Mask
    """Cells that have one ceiling, (cells,)."""
    ceilings: Floats
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
        self.parts = coder.parts
        """Number of codes of the first part, and of all."""
        self.coding = coding
        self.bytes = byte_codes
        self.alive = self.layout.alive()
        """A bit for each slot that holds a row."""
        self.calibration: Calibration | None = None
        self._forget_workspaces()
        sketch = coding.sketch
        groups = np.maximum(np.bincount(sketch.cells, minlength=len(cells.means)), 1)
        means = np.stack([np.bincount(sketch.cells, widths, len(groups)) / groups for widths in sketch.widths])
        self.widest = float(sketch.widths[0].max()), float(sketch.widths[1].max())
        """The largest widths by the first part of codes and by all: see `Sketch`."""
        self.typical_width = max(float(np.median(sketch.widths[0])), 1e-30)
        self._coded = Coded(
            np.concatenate([coder.turn_thetas, cells.axes, cells.means]),
            coder.first,
            coder.second,
            np.log(np.diff(cells.offsets)),
            np.sqrt(2 * np.log(np.diff(cells.offsets))),
            np.sqrt(cells.variances),
            means,
            coding.exponents,
            np.exp2(-coding.exponents.astype(np.float64)),
            np.empty(0, dtype=np.int64),
            features.d,
            len(cells.axes),
            float(cells.around[0]),
            self.parts,
            coding.gain,
            coding.code_norm,
            byte_codes.error,
            2 * features.max_norm,
            self.widest,
            _SLACK * features.max_norm,
        )
        arrays = (self.alive, *self._coded[:10], *sketch, *coder, *byte_codes[:2], *cells, features.stored)
        for array in arrays:
            array.flags.writeable = False  # what is built and what is loaded share one compiled version
        self.rows = Rows(features.stored, byte_codes.codes, byte_codes.steps[:, None], byte_codes.error)

    @cached_property
    def stored(self) -> Stored:
        """What kernels are handed, packed when they first are."""
        words = np.zeros(PACKED, dtype=np.int64)
        stored = Stored(self._coded, self.coding.sketch, self.rows, self.alive, words)
        kernels.pack_stored(stored)
        return stored

    def in_cells_of(self, cells: Ints) -> "PartitionIndex":
        """The same, with the means of these cells of an index of the same rotation: over both, they are asked once."""
        other, shared = copy(self), cells.astype(np.int64)
        shared.flags.writeable = False
        other.__dict__.pop("stored", None)
        other._coded = self._coded._replace(cells_of_build=shared)
        other._forget_workspaces()
        return other

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.partition.means)

    @property
    def coordinates(self) -> tuple[int, int]:
        """Rotated coordinates that a code stands for, of the first part and of the second."""
        return self.coder.first.shape[1], self.coder.second.shape[1]

    def __repr__(self) -> str:
        first, bits = (6 * codes for codes in self.parts)
        size = f"n={self.features.n:,}, d={self.features.d}, cells={self.cells:,}"
        return f"PartitionIndex({size}, {bits} bits a row, {first} first)"

    @classmethod
    def build(
        cls,
        features: Source | Features,
        *,
        cells: int | None = None,
        coordinates: tuple[int, int] | None = None,
        thetas: npt.ArrayLike | None = None,
        rng: np.random.Generator | int | None = None,
        progress: ShowProgress = None,
    ) -> Self:
        """Train cells on a sample, store the rows cell by cell (a float32 copy), and code them.

        Codes are made for thetas like these, divided by their temperature, (B, d), a few hundred or more; by default
        for rows of norm 20 over that of a typical one. Others are answered as truly, but more slowly. `coordinates` to
        a code, of its first part and of its second, fewer for finer codes, are chosen by cost.
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
        like = None if thetas is None else np.atleast_2d(check_vectors(thetas, "thetas", d))
        features.check_finite(progress)
        trained = train_means(features, cells, generator, progress)
        cell_of = assign_cells(features, trained, progress)
        means, cell_of, squares = mean_rows(features, cell_of, len(trained), progress)
        assigned = Assigned(features, means, cell_of)
        stand_ins = StandIns.of(assigned, squares, like, generator)
        basis = stand_ins.basis()
        if coordinates is None:
            coordinates = default_coordinates(d, stand_ins.forecast(assigned, squares, basis))
        coder = Coder.of(basis, coordinates, generator)
        return cls(*code_rows(assigned, coder, generator, progress))

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The k rows of largest inner product; by the law of the sketch each is missed with probability below 1e-4."""
        search = open_search(queries, k, self.features)
        if search.k > _SCANNED_SHARE * self.features.n:
            return ExactIndex(self.features).top_k(queries, k)
        rows = np.empty(len(search.vectors), dtype=np.int64)
        shared, asked = self.shares(len(search.vectors)), ask_best(self.features.d, self.typical_width)

        def find(b: int) -> tuple[Ints, Vectors]:
            vector, mailbox = search.vectors[b], call_helper(shared)
            try:
                race = self.take_race()
                positions, rows[b] = kernels.top_theta(self.stored, asked, vector, search.k, race, mailbox)
                self.give_back_race(race)
            finally:
                let_go(mailbox)
            if not len(positions):  # there was no room for all that might be among the best
                rows[b] = self.features.n
                found = ExactIndex(self.features).top_k(vector, search.k)
                return found.ids, found.scores
            ids, scores = self.order[positions], self.features.score_at(positions, vector)
            order = np.lexsort((ids, -scores))[: search.k]
            return ids[order], scores[order]

        each = range(len(search.vectors))
        hits = [find(b) for b in each] if len(each) < 2 else list(map_threads(find, each))
        return pack(search, hits, rows, bound=MISSED)

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
        other._forget_workspaces()
        return other

    def without(self, ids: Ints) -> Self:
        """The same index, of which these rows were removed: no scan and no pass over its rows sees them.

        What was calibrated was measured with them, and is no longer assured: the calibration is dropped.
        """
        other = self.calibrated(None)
        slots, alive = self.slots(ids), self.alive.copy()
        np.bitwise_and.at(alive, slots // BLOCK, ~(np.uint64(1) << (slots % BLOCK).astype(np.uint64)))
        alive.flags.writeable = False
        other.features, other.alive = self.features.without(ids), alive
        return other

    def cell_of(self) -> Ints:
        """The cell of each row, by id."""
        found = np.empty(self.features.n, dtype=np.int64)
        found[self.order] = np.repeat(np.arange(self.cells), np.diff(self.partition.offsets))
        return found

    def foresee(self, theta: Vectors, temperature: float, far: float) -> Foresight:
        """What a draw would do for one theta with one ceiling for far cells; nothing is scanned."""
        asked = self.asked(temperature, delta=_TYPICAL_DELTA, size=1)._replace(far=far)
        facts, ceilings, outlook = kernels.prepare(self._coded, theta, asked, 1.0, np.uint64(0))
        deviations = self._coded.deviations * outlook.pooled_sd / temperature
        return Foresight(ceilings.levels == CELL, facts.cells / temperature + far * deviations, facts.norm, outlook)

    def shares(self, thetas: int) -> bool:
        """Whether two threads should share a scan: for a theta alone, when it takes long enough to wake one."""
        return thetas == 1 and self.coding.sketch.codes.size > _SHARED_FROM and get_threads() > 1

    def asked(self, temperature: float, *, delta: float, size: int, calibration: Calibration | None = None) -> Asked:
        """How ceilings are to be, to draw `size` rows of a theta: see `ask_draws`."""
        return ask_draws((self.features.d, self.parts), temperature, delta, size, calibration)

    def estimate(self, temperature: float, effort: Effort) -> Asked:
        """For estimates in place of ceilings: weights that rows may be sampled by."""
        return ask_estimate(temperature, effort)

    @contextmanager
    def enter(
        self, theta: Vectors, asked: Asked, *, seed: int = 0, excluded: Ints = _NOTHING, shared: bool = False
    ) -> Generator[Entered]:
        """Scan for one theta; `excluded` are slots. What was entered is no longer good when its context is left."""
        number = np.uint64(seed)
        with self.workspace() as race:
            kernels.open_race(self.stored, excluded, race)
            mailbox = call_helper(shared)
            try:
                facts, ceilings, outlook = kernels.enter(self.stored, asked, theta, number, race, mailbox)
            finally:
                let_go(mailbox)
            yield Entered(Run(self.stored.sketch, self.stored.rows, facts, ceilings, race), outlook, self.order)

    def slots(self, ids: Ints) -> Ints:
        """Where the codes of rows lie."""
        return self.layout.slots(self.features.locate(ids)) if len(ids) else ids

    @contextmanager
    def workspace(self) -> Generator[Race]:
        """Room for a race, for as long as a context lasts."""
        race = self.take_race()
        yield race
        self.give_back_race(race)

    def take_race(self) -> Race:
        """Room for a race: that of an earlier one, if there is any, because page faults take as long as a scan."""
        try:
            return self._spare.pop()
        except IndexError:
            race = Race.allocate(self.stored)
            kernels.pack_race(race)
            return race

    def give_back_race(self, race: Race) -> None:
        """For the next: not after an interruption, which may leave it half open."""
        self._spare.append(race)

    def take_workspaces(self, thetas: int) -> tuple[Workspaces, list[Race]]:
        """Room for the races of a part of a batch: of several at once, if codes have to come from memory."""
        together = min(thetas, self._together())
        spare = self._spare_workspaces.setdefault(together, deque[tuple[Workspaces, list[Race]]](maxlen=_SPARE))
        try:
            return spare.pop()
        except IndexError:
            races = [Race.allocate(self.stored) for _ in range(together)]
            for race in races:
                kernels.pack_race(race)
            workspaces = Workspaces.of(races, self.cells, self.parts[1], self.features.d)
            kernels.pack_workspaces(workspaces)
            return workspaces, races

    def _together(self) -> int:
        codes = self.coding.sketch.codes
        if codes.shape[1] > _LONG and codes.nbytes > _NEAR:
            return _LONG_TOGETHER
        return _TOGETHER if codes.nbytes > _CACHED else 1

    def give_back(self, taken: tuple[Workspaces, list[Race]]) -> None:
        """Likewise."""
        self._spare_workspaces[len(taken[1])].append(taken)

    @property
    def order(self) -> Ints:
        """The id of each position."""
        if self.features.order is None:
            raise ValueError("features of a PartitionIndex must be stored cell by cell; use PartitionIndex.build")
        return self.features.order

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_THIS_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_workspaces()

    def _forget_workspaces(self) -> None:
        self._spare = deque[Race](maxlen=_SPARE)
        self._spare_workspaces: dict[int, deque[tuple[Workspaces, list[Race]]]] = {}
