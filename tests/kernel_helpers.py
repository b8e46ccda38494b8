"""Small indexes at every level of ceilings, for tests of kernels."""

from functools import cache
from math import inf
from typing import NamedTuple

import numpy as np
import pytest

from lazygumbel import Features, PartitionIndex
from lazygumbel.indexes.partition.build import Assigned, code_rows
from lazygumbel.indexes.partition.sketch import Coder
from lazygumbel.kernels import compiled
from lazygumbel.kernels.types import (
    BYTES,
    CELL,
    DEVIATIONS,
    FULL,
    SHORT,
    Asked,
    Outlook,
    Race,
    Run,
)

NOBODY = np.empty(0, dtype=np.int64)
"""The mailbox of a scan that is not shared."""


def copy_of(run: Run) -> Run:
    """With a race of its own."""
    return run._replace(race=Race(*(array.copy() for array in run.race)))


def stretched(d: int) -> np.ndarray:
    """A basis in which some vectors are nearly three times as long as others of the same norm."""
    axes = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    return (axes * np.exp(np.linspace(-0.5, 0.5, d))) @ axes.T


@cache
def index_of(d: int, coordinates: tuple[int, int], n: int) -> PartitionIndex:
    """Rows of varied norm in nine cells, three of which are of one row; norms differ between cells too."""
    rng = np.random.default_rng(d)
    middle = rng.normal(size=(6, d))
    cell_of = np.concatenate([rng.permutation(np.arange(n - 3) % 6), [6, 7, 8]])
    rows = rng.normal(size=(n, d)) * rng.lognormal(sigma=0.3, size=(n, 1))
    rows *= np.array([1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 1.0, 1.0, 1.0])[cell_of, None]
    rows[:-3] += middle[cell_of[:-3]]
    rows = rows.astype(np.float32)
    means = np.stack([rows[cell_of == c].mean(axis=0) for c in range(9)])
    coder = Coder.of(stretched(d), coordinates, rng)
    return PartitionIndex(*code_rows(Assigned(Features.of(rows), means, cell_of), coder, rng))


EVERYTHING = np.array([[-inf] * 3, [inf] * 3])


def race_of(index: PartitionIndex, excluded: np.ndarray) -> Race:
    """Room for a race without rows at these positions."""
    with index.workspace() as race:
        compiled.open_race(index.stored, index.layout.slots(excluded), race)
    index._spare.clear()
    return race


class Case(NamedTuple):
    """An index, and how closely and at what temperature it is looked at."""

    d: int
    coordinates: tuple[int, int]
    temperature: float
    levels: frozenset[int]
    power: float = 1.0
    n: int = 2000

    @property
    def index(self) -> PartitionIndex:
        return index_of(self.d, self.coordinates, self.n)

    @property
    def theta(self) -> np.ndarray:
        return (np.random.default_rng(self.d).normal(size=self.d) / np.sqrt(self.d)).astype(np.float32)

    def asked(self) -> Asked:
        """With limits at which cells have these levels, and others if there is no limit with these alone."""
        scale = 1 / (np.log(2.0) * self.temperature)
        far = 3.0 if CELL in self.levels else 0.0
        for limit in (np.linspace(-15.0, 15.0, 121) / self.temperature).tolist():
            if len(self.levels) == 1:
                limits = tuple(inf if level in self.levels else -inf for level in (CELL, SHORT, FULL))
            else:
                finest = max(self.levels)  # whatever it costs
                limits = tuple(
                    (inf if level == finest else limit + 4.0 * level) if level in self.levels else -inf
                    for level in (CELL, SHORT, FULL)
                )
            asked = Asked(
                float(scale),
                np.linspace(3.3, 3.7, DEVIATIONS),
                2.0,
                far,
                0.0,
                0.85,
                0.5,
                (inf, inf),
                (limits[0], limits[1], limits[2]),
                EVERYTHING,
            )
            levels = compiled.prepare(self.index._coded, self.theta, asked, self.power, np.uint64(5))[1].levels
            if set(levels.tolist()) == self.levels:
                return asked
        raise AssertionError(f"no limits with {self.levels}")

    def prepared(self, excluded: np.ndarray) -> tuple[Run, Outlook]:
        """Before a scan; nothing is known of ceilings and weights."""
        index = self.index
        theta, ceilings, outlook = compiled.prepare(index._coded, self.theta, self.asked(), self.power, np.uint64(5))
        race = race_of(index, excluded)
        for array in (race.weights, race.sums, race.ends, race.ceilings, race.positions, race.masses):
            array.fill(-1)
        return Run(index.coding.sketch, index.rows, theta, ceilings, race), outlook

    def scanned(self, excluded: np.ndarray) -> tuple[Run, Outlook]:
        run, outlook = self.prepared(excluded)
        compiled.scan(run, 0, len(run.race.sums))
        return run, outlook

    def settled(self, excluded: np.ndarray) -> tuple[Run, Outlook]:
        run, outlook = self.scanned(excluded)
        assert compiled.settle(run, outlook, 1)
        return run, outlook


def case(d: int, coordinates: tuple[int, int], temperature: float, *levels: int, **options: float) -> Case:
    return Case(d, coordinates, temperature, frozenset(levels), **options)  # type: ignore[arg-type]


CASES = [
    case(1, (1, 1), 0.5, SHORT),
    case(2, (2, 1), 0.5, FULL),
    case(3, (1, 2), 0.3, SHORT, FULL),
    case(5, (3, 5), 0.5, SHORT, FULL, BYTES),
    case(17, (2, 4), 0.4, SHORT, FULL),
    case(33, (4, 3), 0.5, SHORT, FULL, BYTES),
    case(33, (4, 3), 0.5, FULL),
    case(40, (6, 3), 0.01, FULL, power=12.0),  # so cold that the scan is at a higher temperature
    case(40, (6, 3), 0.01, SHORT, FULL, power=12.0),
    case(20, (3, 3), 0.3, BYTES),
    case(20, (3, 3), 0.01, BYTES, power=12.0),
    case(24, (8, 8), 0.4, CELL, SHORT),
    case(24, (8, 8), 0.4, CELL, SHORT, FULL),
    case(24, (8, 8), 0.4, CELL, BYTES),
    case(24, (8, 8), 0.4, CELL),
    case(24, (24, 24), 0.02, SHORT, FULL, power=30.0),
    case(400, (1, 1), 0.5, SHORT, FULL, n=300),  # sums of more than 16 bits
]
names = [f"{c.d}-{c.coordinates}-{c.temperature}-{'.'.join(map(str, sorted(c.levels)))}" for c in CASES]
every_case = pytest.mark.parametrize("case", CASES, ids=names)
NEAR = [(c, name) for c, name in zip(CASES, names, strict=True) if CELL not in c.levels]
every_near_case = pytest.mark.parametrize("case", [c for c, _ in NEAR], ids=[name for _, name in NEAR])
"""Sums and ranks need ceilings of every row."""
nobody, some = np.empty(0, dtype=np.int64), np.arange(0, 300, 3)


every_plain_case = pytest.mark.parametrize(
    "case", [c for c, _ in NEAR if c.power == 1.0], ids=[n for c, n in NEAR if c.power == 1.0]
)
"""Sums at another temperature are dense."""
