"""Every compiled kernel against its NumPy twin. A kernel without a test here fails."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import inf
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.stats import chisquare

from lazygumbel import Features, PartitionIndex, kernels
from lazygumbel.indexes.partition.build import Assigned, code_rows
from lazygumbel.indexes.partition.cost import for_sums
from lazygumbel.indexes.partition.sketch import Coder
from lazygumbel.kernels import boxing, compiled, contest, reference, sharing, strata, top
from lazygumbel.kernels.batches import Batch, Few, First, Found, Sample
from lazygumbel.kernels.decorators import door
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.lookups import largest_ceiling, segment_weight, sum_weights, weight_of
from lazygumbel.kernels.types import (
    AWAITED,
    BIAS,
    BLOCK,
    BYTES,
    CELL,
    CHUNK,
    COUNT,
    DESK,
    FLOOR,
    FULL,
    GAINS,
    PACKED,
    REFERENCE,
    SCORED,
    SEGMENT,
    SHORT,
    TOP,
    UNIT,
    VIOLATIONS,
    WORDS,
    Asked,
    Outlook,
    Race,
    Run,
)

fixed = settings(derandomize=True, deadline=None, max_examples=60)
NOBODY = np.empty(0, dtype=np.int64)
"""The desk of a scan that is not shared."""
_STATE = 1
"""Its entry that is zero while it is closed."""
LENGTHS = 1, 2, 3, 7, 15, 16, 17, 33, 70
"""Of rows: below, at and above the width of a vector."""


def test_every_kernel_has_a_twin_and_is_named_here() -> None:
    assert set(kernels.__all__) == set(compiled.__all__) == set(reference.__all__)
    with open(__file__) as file:
        text = file.read()
    assert [name for name in kernels.__all__ if f".{name}" not in text] == []


def test_add_by_cell() -> None:
    rng = np.random.default_rng(0)
    rows, cells = matrix(rng, (500, 13)), rng.integers(7, size=500)
    found, expected = ((np.ones((9, 13)), np.ones(9)) for _ in range(2))
    compiled.add_by_cell(rows, cells, *found)
    reference.add_by_cell(rows, cells, *expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_add_pairs() -> None:
    rng = np.random.default_rng(0)
    rows, places, owner = matrix(rng, (9, 13)), rng.integers(300, size=700), rng.integers(9, size=700)
    found, expected = (np.ones((300, 13), dtype=np.float32) for _ in range(2))
    weights = matrix(rng, (700,))
    compiled.add_pairs(found, places, weights, rows, owner)
    reference.add_pairs(expected, places, weights, rows, owner)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_kernels_release_the_lock_and_are_kept_on_disk() -> None:
    for name in compiled.__all__:
        homes = compiled, contest, strata, top, boxing  # what `boxing` gives names to is behind these
        named = (getattr(home, one, None) for one in (name, f"_{name}") for home in homes)
        dispatcher = next(one for one in named if getattr(one, "targetoptions", {}).get("nogil"))
        assert dispatcher.targetoptions["nogil"] and not dispatcher.targetoptions.get("parallel")


def matrix(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-4, 4, shape).astype(np.float32)


def close(a: np.ndarray, b: np.ndarray, d: int) -> None:
    """Up to the rounding of sums of d products of size at most 16."""
    np.testing.assert_allclose(a, b, rtol=0, atol=2 * d * np.finfo(np.float32).eps * 16 * d)


@fixed
@given(n=st.integers(1, 20), d=st.sampled_from(LENGTHS), m=st.integers(0, 30), seed=st.integers(0, 10**6))
def test_gather_dot(n: int, d: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = matrix(rng, (n, d)), rng.integers(0, n, m), matrix(rng, (3, d)), rng.integers(0, 3, m)
    close(compiled.gather_dot(*arguments), reference.gather_dot(*arguments), d)


@fixed
@given(n=st.integers(1, 20), d=st.sampled_from(LENGTHS), m=st.integers(0, 300), seed=st.integers(0, 10**6))
def test_sum_rows(n: int, d: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = matrix(rng, (n, d)), rng.integers(0, n, m), rng.exponential(size=m)
    for a, b in zip(compiled.sum_rows(*arguments), reference.sum_rows(*arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@fixed
@given(n=st.integers(1, 20), d=st.sampled_from(LENGTHS), pairs=st.integers(0, 150), seed=st.integers(0, 10**6))
def test_sum_pairs(n: int, d: int, pairs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = matrix(rng, (n, d)), rng.integers(0, n, 2 * pairs), rng.exponential(size=2 * pairs)
    for a, b in zip(compiled.sum_pairs(*arguments), reference.sum_pairs(*arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@njit
def _dots(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    laid_out, out = lay_out(query), np.empty(rows.shape[0], dtype=np.float32)
    for row in range(rows.shape[0]):
        out[row] = dot(rows, row, laid_out)
    return out


@pytest.mark.parametrize("kind", [np.float32, np.int8])
@pytest.mark.parametrize("d", [*range(1, 70), 127, 128, 129])
def test_dot(kind: type, d: int) -> None:
    rng = np.random.default_rng(d)
    rows, query = rng.integers(-100, 100, (5, d)).astype(kind), np.rint(matrix(rng, (d,)))
    np.testing.assert_array_equal(_dots(rows, query), rows.astype(np.float32) @ query)
    if d > 1:
        assert (_dots(rows, query[::-1].copy()) != rows.astype(np.float32) @ query).any()


def codes_of(d: int, width: int) -> int:
    return 4 * -(-d // (4 * width))


widths = st.sampled_from([1, 2, 3, 5, 8, 24])


@fixed
@given(m=st.integers(1, 20), d=st.sampled_from(LENGTHS), one=widths, other=widths, seed=st.integers(0, 10**6))
def test_encode_rows(m: int, d: int, one: int, other: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = codes_of(d, one), codes_of(d, one) + codes_of(d, other)
    arguments = matrix(rng, (m, d)), matrix(rng, (WORDS, one)), matrix(rng, (WORDS, other)) / 4, parts
    found, expected = compiled.encode_rows(*arguments), reference.encode_rows(*arguments)
    same = (found[0] == expected[0]).all(axis=1)  # two words may be as near as one another, up to rounding
    assert (~same).sum() <= 1 and (found[0] != expected[0]).sum() <= 2
    for a, b in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(a[same], b[same], rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(a, b, rtol=0.1, atol=1.0)
    assert d < 3 or m < 3 or (found[0][:, : parts[0]] != found[0][:, : parts[0]][::-1]).any()


@fixed
@given(m=st.integers(1, 128), quadruples=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_interleave(m: int, quadruples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, WORDS, (m, 4 * quadruples)).astype(np.uint8)
    gains = rng.integers(0, 2**15, m).astype(np.int16)
    slots, order = rng.permutation(3 * BLOCK)[:m], rng.permutation(m)
    found, expected = np.zeros((2, 3, 3 * quadruples + GAINS, BLOCK), dtype=np.uint8)
    compiled.interleave(codes, gains, slots, order, found)
    reference.interleave(codes, gains, slots, order, expected)
    np.testing.assert_array_equal(found, expected)


@fixed
@given(m=st.integers(1, 128), quadruples=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_codes_that_were_moved_are_as_if_they_had_been_written_there(m: int, quadruples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, WORDS, (m, 4 * quadruples)).astype(np.uint8)
    gains = rng.integers(0, 2**15, m).astype(np.int16)
    before, after = rng.permutation(3 * BLOCK)[:m], rng.permutation(4 * BLOCK)[:m]
    held, expected = (np.zeros((blocks, 3 * quadruples + GAINS, BLOCK), dtype=np.uint8) for blocks in (3, 4))
    compiled.interleave(codes, gains, before, np.arange(m), held)
    compiled.interleave(codes, gains, after, np.arange(m), expected)
    found, twin = np.zeros_like(expected), np.zeros_like(expected)
    compiled.move_codes(held, before, after, found)
    reference.move_codes(held, before, after, twin)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(twin, expected)


@fixed
@given(
    d=st.sampled_from(LENGTHS),
    one=widths,
    other=widths,
    scale=st.sampled_from([0.0, 1e-3, 1.0]),
    seed=st.integers(0, 999),
)
def test_lookup_tables(d: int, one: int, other: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = codes_of(d, one), codes_of(d, one) + codes_of(d, other)
    rotated, unit = matrix(rng, (d,)) * np.float32(scale), float(rng.uniform(0.1, 1000))
    arguments = rotated, matrix(rng, (WORDS, one)), matrix(rng, (WORDS, other)) / 4, parts, unit, np.uint64(seed)
    found, expected = compiled.lookup_tables(*arguments), reference.lookup_tables(*arguments)
    assert found[0].max() < 128 and found[1] == expected[1]
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[3], expected[3], rtol=1e-9, atol=1e-9)
    # A number may lie so close to where it is rounded the other way that a different order of additions decides.
    differences = np.abs(found[0].astype(int) - expected[0])
    assert differences.max() <= 1 and (differences > 0).mean() < 0.01


def test_tables_are_right_on_average() -> None:
    rng = np.random.default_rng(0)
    rotated, first, second = matrix(rng, (8,)), matrix(rng, (WORDS, 2)), matrix(rng, (WORDS, 2))
    exact = [rotated.reshape(4, 2).astype(np.float64) @ words.T.astype(np.float64) for words in (first, second)]
    above = np.concatenate(exact) - np.concatenate(exact).min(axis=1, keepdims=True)
    found = []
    for seed in range(2000):
        tables, exponent, _, _ = compiled.lookup_tables(rotated, first, second, (4, 8), 1.0, np.uint64(7919 * seed))
        found.append(tables * 2.0**exponent)
    assert np.abs(np.mean(found, axis=0) - above).max() < 5 * 2.0**exponent / np.sqrt(2000)
    assert np.abs(found[0] - above).max() > 2.0**exponent / 4  # one alone is not


def test_least_sums_and_reach_are_those_of_the_tables() -> None:
    """Whatever the codes of a row are, its sum lies between the least and the reach."""
    rng = np.random.default_rng(1)
    rotated, first, second = matrix(rng, (20,)), matrix(rng, (WORDS, 3)), matrix(rng, (WORDS, 2)) / 4
    parts = codes_of(20, 3), codes_of(20, 3) + codes_of(20, 2)
    tables, exponent, bases, reach = compiled.lookup_tables(rotated, first, second, parts, 1.0, np.uint64(1))
    exact = []
    for words in (first, second):
        runs = -(-20 // words.shape[1])
        padded = np.zeros(runs * words.shape[1])
        padded[:20] = rotated
        exact.append(padded.reshape(runs, -1) @ words.T.astype(np.float64) / 2.0**exponent)
    lows = [found.min(axis=1).sum() for found in exact]
    np.testing.assert_allclose(bases, np.cumsum(lows), rtol=1e-9)
    assert reach >= max(-bases[1], sum(found.max(axis=1).sum() for found in exact)) * (1 - 1e-9)
    assert tables[parts[0] - 1].max() == 0  # 7 runs in 8 codes: what no row uses adds nothing


@njit
def _weights(ceilings: np.ndarray) -> tuple[np.ndarray, float, int, np.ndarray]:
    out, segments = np.empty(BLOCK), np.empty(BLOCK // SEGMENT)
    for lane in range(BLOCK):
        out[lane] = weight_of(np.int64(ceilings[0, lane]))
    for segment in range(BLOCK // SEGMENT):
        segments[segment] = segment_weight(ceilings, segment)
    return out, np.float64(sum_weights(ceilings, 0)), largest_ceiling(ceilings, 0), segments


def test_weights_are_read_off_ceilings_and_are_never_too_low() -> None:
    lowest, highest = int(UNIT * (FLOOR + BIAS)), int(UNIT * (TOP + BIAS))
    for ceilings in np.resize(np.arange(lowest, highest + 1), (-(-(highest - lowest) // BLOCK), BLOCK)):
        weights, total, largest, segments = _weights(ceilings[None].astype(np.int16))
        above = np.log2(weights) - (ceilings / UNIT - BIAS)
        assert above.min() >= 0.0 and above.max() < 0.0861
        with np.errstate(over="ignore"):  # sums of the very largest are infinite
            sums = weights.reshape(-1, SEGMENT).sum(axis=1).astype(np.float32)
            np.testing.assert_allclose(total, np.float32(weights.sum()), rtol=1e-6)
        np.testing.assert_allclose(segments, sums, rtol=1e-6)
        assert largest == ceilings.max()
    some = np.zeros((1, BLOCK), dtype=np.int16)
    some[0, [0, 40]] = UNIT * BIAS
    weights, total, largest, segments = _weights(some)
    assert weights.sum() == total == 2.0 and largest == UNIT * BIAS and segments.tolist() == [1.0, 0.0, 1.0, 0.0]


def copy_of(run: Run) -> Run:
    """With a race of its own."""
    return run._replace(race=Race(*(array.copy() for array in run.race)))


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
    coder = Coder.of(d, coordinates, rng)
    return PartitionIndex(*code_rows(Assigned(Features.of(rows), means, cell_of), coder, rng))


EVERYTHING = np.array([[-inf] * 3, [inf] * 3])


def race_of(index: PartitionIndex, excluded: np.ndarray) -> Race:
    """Room for a race without rows at these positions."""
    with index.room() as race:
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
                (3.4, 3.7),
                2.0,
                far,
                0.0,
                3.0,
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


@every_case
def test_prepare(case: Case) -> None:
    arguments = case.index._coded, case.theta, case.asked(), case.power, np.uint64(5)
    (theta, ceilings, outlook), (facts, expected, foreseen) = (
        compiled.prepare(*arguments),
        reference.prepare(*arguments),
    )
    for a, b in zip((*theta, *outlook), (*facts, *foreseen), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ceilings.levels, expected.levels)
    np.testing.assert_array_equal(ceilings.rights, expected.rights)
    assert ceilings.left == expected.left >= 0 and ceilings.power == expected.power
    np.testing.assert_allclose(ceilings.scores, expected.scores, rtol=1e-5, atol=0.1)  # in units
    far = ceilings.levels == CELL
    np.testing.assert_allclose(ceilings.far[far], expected.far[far], rtol=1e-3)
    np.testing.assert_allclose(ceilings.spreads, expected.spreads, rtol=1e-6)
    np.testing.assert_allclose(ceilings.shift, expected.shift, rtol=1e-6)
    # Projections are in float32, in another order: a step of rounding in a few entries, and in what they sum to.
    differences = np.abs(ceilings.tables.astype(int) - expected.tables)
    assert differences.max() <= 1 and (differences > 0).mean() < 0.01
    np.testing.assert_allclose(ceilings.centres, expected.centres, atol=1)
    assert np.diff(case.index.partition.offsets).min() == 1  # there are cells of one row


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-10, 1e10])
def test_any_length_of_theta_can_be_prepared(length: float) -> None:
    index = index_of(17, (2, 4), 2000)
    theta = (length * np.random.default_rng(0).normal(size=17)).astype(np.float32)
    asked = Asked(1.4, (3.4, 3.7), 2.0, 3.0, 2.0, 3.0, 0.5, (inf, inf), (-5.0, 0.0, inf), EVERYTHING)
    arguments = index._coded, theta, asked, 1.0, np.uint64(5)
    (_, found, outlook), (_, expected, foreseen) = compiled.prepare(*arguments), reference.prepare(*arguments)
    np.testing.assert_array_equal(found.levels, expected.levels)
    np.testing.assert_array_equal(found.rights, expected.rights)
    assert found.left == expected.left >= 0
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    np.testing.assert_allclose(outlook, foreseen, rtol=1e-5, atol=1e-6)
    assert np.isfinite(outlook).all() and np.isfinite(found.scores).all()


def test_codes_that_are_too_wide_are_not_used() -> None:
    held = case(24, (8, 8), 0.4, FULL)
    coded, found = held.index._coded, []
    unit = float(np.linalg.norm(held.theta)) / held.temperature / np.sqrt(held.d - 1)
    for widest in (0.0, float(unit * np.median(coded.widths[1])), inf):
        arguments = coded, held.theta, held.asked()._replace(widest=(widest, widest)), 1.0, np.uint64(5)
        levels = compiled.prepare(*arguments)[1].levels
        np.testing.assert_array_equal(levels, reference.prepare(*arguments)[1].levels)
        found.append(int((levels == FULL).sum()))
    assert found[0] < found[1] < found[2] == len(levels)


@every_case
def test_scan(case: Case) -> None:
    run, _ = case.prepared(some)
    twin, chunks = copy_of(run), len(run.race.sums)
    compiled.scan(run, chunks // 2, chunks)
    reference.scan(twin, chunks // 2, chunks)
    half = chunks // 2 * CHUNK
    assert (run.race.weights[:half] == -1).all() and (run.race.ceilings[:half] == -1).all()
    compiled.scan(run, 0, chunks // 2)
    reference.scan(twin, 0, chunks // 2)
    levels = np.array([reference.level_of(run, block) for block in range(len(run.race.weights))])
    by_code = levels != BYTES
    np.testing.assert_array_equal(run.race.ceilings[by_code], twin.race.ceilings[by_code])  # to the bit
    off = np.abs(run.race.ceilings[~by_code].astype(int) - twin.race.ceilings[~by_code])
    assert off.max(initial=0) <= 1 and (off > 0).sum() <= 0.01 * off.size
    tolerance, near = np.where(by_code, 1e-6, 1e-2), levels != CELL  # weights of cells with one ceiling are not kept
    assert (np.abs(run.race.weights - twin.race.weights) <= tolerance * twin.race.weights)[near].all()
    np.testing.assert_allclose(run.race.sums, twin.race.sums, rtol=1e-6 if by_code.all() else 1e-2)
    assert run.race.sums.min() > 0.0
    known = run.race.ceilings[near]
    assert ((known == 0) | ((known >= UNIT * (FLOOR + BIAS)) & (known <= UNIT * (TOP + BIAS)))).all()
    alive = np.stack([reference.alive_of(run, block) for block in range(len(levels))])
    np.testing.assert_array_equal(known > 0, alive[near])
    assert alive.sum() == case.n - len(some)


@pytest.mark.parametrize(("part", "level"), [("codes", SHORT), ("codes", FULL), ("more", FULL)])
def test_one_bit_of_a_code_counts_for_one_row(part: str, level: int) -> None:
    run, _ = case(33, (4, 3), 0.5, level).scanned(nobody)
    before = run.race.ceilings.copy()
    changed = getattr(run.sketch, part).copy()
    block = next(b for b in range(len(before)) if (before[b] > 0).all())
    changed[block, 0, 2] ^= 32
    changed.flags.writeable = False
    twin = copy_of(run._replace(sketch=run.sketch._replace(**{part: changed})))
    compiled.scan(twin, 0, len(run.race.sums))
    assert np.argwhere(twin.race.ceilings != before).tolist() == [[block, 1]]
    np.testing.assert_array_equal(twin.race.ceilings[block], reference.ceilings_of(twin, block, level))


def test_ceilings_by_codes_are_logits_but_for_their_width() -> None:
    """What both twins might have wrong alike: without quantile and rounding it is an estimate of the logit."""
    for level, coordinates in ((SHORT, (1, 1)), (FULL, (2, 2))):
        for d in (1, 2, 3, 33):
            held = case(d, coordinates, 0.5, level, n=300)
            index = held.index
            asked = held.asked()._replace(quantiles=(0.0, 0.0), rounding=0.0)
            theta, ceilings, _ = compiled.prepare(index._coded, held.theta, asked, 1.0, np.uint64(5))
            run = Run(index.coding.sketch, index.rows, theta, ceilings, race_of(index, nobody))
            run.race.state[REFERENCE] = ceilings.shift
            compiled.scan(run, 0, len(run.race.sums))
            found = np.empty(300)
            compiled.all_ceilings(run, found)
            logits = index.rows.rows.astype(np.float64) @ held.theta.astype(np.float64) * asked.scale
            widest = float(index.coding.sketch.widths[level - SHORT].max())
            deviation = theta.norm * asked.scale / np.sqrt(max(d - 1, 1)) * widest
            # Read off bits a ceiling is 0.06 too high on average, and a few units more for rounding.
            assert (found - logits).std() < deviation + 0.06 < logits.std() / 8
            assert abs((found - logits).mean() - 0.08) < deviation + 0.02


@every_case
def test_temper_refine_and_all_ceilings(case: Case) -> None:
    run, outlook = case.scanned(some)
    twin = copy_of(run)
    for one in (run, twin):
        one.race.state[REFERENCE] = one.ceilings.shift
    if case.power != 1.0:
        found, expected = compiled.temper(run, outlook.low), reference.temper(twin, outlook.low)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        twin.race.state[REFERENCE] = run.race.state[REFERENCE]
        np.testing.assert_allclose(run.race.weights, twin.race.weights, rtol=1e-3)
        np.testing.assert_allclose(run.race.sums, twin.race.sums, rtol=1e-3)
    low = float(np.exp2(min(outlook.expected - run.race.state[REFERENCE], 1000.0)))
    low = min(low, float(run.race.sums.sum()) / 8)
    for grow in (True, False):
        before = int(run.race.state[COUNT])
        assert compiled.refine(run, low, grow) and reference.refine(twin, low, grow)
        count = int(run.race.state[COUNT])
        np.testing.assert_allclose(run.race.state, twin.race.state, rtol=1e-4)
        np.testing.assert_array_equal(run.race.positions[:count], twin.race.positions[:count])
        np.testing.assert_allclose(run.race.masses[:count], twin.race.masses[:count], rtol=1e-3)
        np.testing.assert_array_equal(run.race.alive, twin.race.alive)
        np.testing.assert_allclose(run.race.ends, twin.race.ends, rtol=1e-4)
        found, expected = np.full((2, case.n), np.inf)
        compiled.all_ceilings(run, found)
        reference.all_ceilings(twin, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        left = np.isfinite(found)
        if case.power == 1.0:  # else some ceilings are nothing
            assert left.sum() == case.n - len(some) - count
        assert grow or (found[left] <= np.log2(low) + run.race.state[REFERENCE]).all()
        assert grow or count > before
        low = float(np.exp2(found[left].max() - run.race.state[REFERENCE])) / 2


def test_refine_gives_up_when_there_is_no_more_room() -> None:
    run, _ = case(33, (4, 3), 0.5, FULL).scanned(nobody)
    run.race.state[REFERENCE] = run.ceilings.shift
    twin = copy_of(run)
    assert not compiled.refine(run, 0.0, False) and not reference.refine(twin, 0.0, False)
    assert run.race.state[COUNT] == twin.race.state[COUNT] == len(run.race.positions)


def drawn(run: Run, size: int, seed: int, twin: bool, distinct: bool) -> tuple[int, float, np.ndarray, np.ndarray]:
    arguments = run, np.uint64(seed), (10**5, distinct), np.empty(size, dtype=np.int64), np.empty(size)
    found = reference.draw(*arguments) if twin else compiled.draw(*arguments)
    return *found, *arguments[3:]


@pytest.mark.parametrize("distinct", [False, True])
@every_case
def test_draw(case: Case, distinct: bool) -> None:
    run, _ = case.settled(some)
    twin, again = copy_of(run), copy_of(run)
    size = 20 if case.power == 1.0 else 5
    count, time, found, values = drawn(run, size, 3, False, distinct)
    twin_count, twin_time, expected, twin_values = drawn(twin, size, 3, True, distinct)
    assert count == twin_count == size or (
        distinct and count == twin_count >= 1 and case.power > 20
    )  # too many heavy rows
    found, expected, values, twin_values = found[:count], expected[:count], values[:count], twin_values[:count]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(time, twin_time, rtol=1e-3)
    np.testing.assert_allclose(values, twin_values, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(run.race.alive, twin.race.alive)
    np.testing.assert_array_equal(
        run.race.state[[COUNT, SCORED, VIOLATIONS]], twin.race.state[[COUNT, SCORED, VIOLATIONS]]
    )
    assert not np.isin(found, some).any()
    assert not distinct or len(set(found.tolist())) == count
    assert (
        case.power != 1.0 or (drawn(again, size, 4, False, distinct)[2] != found).any()
    )  # other draws by another seed


def test_heavy_rows_are_looked_for_again_in_a_long_race_without_replacement() -> None:
    run, _ = case(33, (4, 3), 0.5, SHORT, FULL, BYTES).settled(nobody)
    twin, before = copy_of(run), int(run.race.state[COUNT])
    _, _, found, values = drawn(run, 400, 3, False, True)
    _, _, expected, twin_values = drawn(twin, 400, 3, True, True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(values, twin_values, rtol=1e-5, atol=1e-3)
    assert run.race.state[COUNT] == twin.race.state[COUNT] > before
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("distinct", [False, True])
def test_draw_gives_up_when_it_runs_out_of_patience(distinct: bool) -> None:
    run, _ = case(33, (4, 3), 0.5, SHORT, FULL).settled(nobody)
    twin = copy_of(run)
    room = np.empty(100, dtype=np.int64), np.empty(100)
    count, time = compiled.draw(run, np.uint64(3), (10, distinct), *room)
    assert count == reference.draw(twin, np.uint64(3), (10, distinct), *room)[0]
    assert 0 <= count < 100 and time >= 0.0
    assert compiled.draw(run, np.uint64(3), (10**9, False), *room)[0] == 100


def test_everybody_can_be_drawn_once_and_then_nobody() -> None:
    held = case(3, (1, 2), 0.5, FULL, n=300)
    run, _ = held.settled(some)
    left = 300 - len(some)
    count, _, found, _ = drawn(run, left + 1, 3, False, True)
    assert count == left
    np.testing.assert_array_equal(np.sort(found[:count]), np.setdiff1d(np.arange(300), some))


@every_near_case
def test_sample_strata_and_weigh_sample(case: Case) -> None:
    run, outlook = case.scanned(some)
    run.race.state[REFERENCE] = run.ceilings.shift
    if case.power != 1.0:
        compiled.temper(run, outlook.low)
    np.cumsum(run.race.sums, out=run.race.ends)
    if case.power > 20:
        assert not np.isfinite(run.race.ends[-1])  # nothing can be sampled, and sums are dense
        return
    for count in (2, 64, 1000):
        found, expected = Sample.empty(count), Sample.empty(count)
        half = count // 4 * 2
        compiled.sample_strata(run, np.uint64(9), half, count, found)
        compiled.sample_strata(run, np.uint64(9), 0, half, found)
        reference.sample_strata(run, np.uint64(9), 0, count, expected)
        same = found.positions == expected.positions  # a place within rounding of the end of a row may fall to the next
        assert same.mean() > 0.99
        for a, b in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(a[same], b[same], rtol=1e-3, atol=1e-5)
        assert not np.isin(found.positions, some).any()
        arguments = found.ratios, found.widths, 1.7
        np.testing.assert_allclose(
            compiled.weigh_sample(*arguments), reference.weigh_sample(*arguments), rtol=1e-6, atol=1e-9
        )


every_plain_case = pytest.mark.parametrize(
    "case", [c for c, _ in NEAR if c.power == 1.0], ids=[n for c, n in NEAR if c.power == 1.0]
)
"""Sums at another temperature are dense."""


@every_plain_case
@pytest.mark.parametrize("least", [0.0, 1e-4])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0])
def test_score_wide(case: Case, quantile: float, least: float) -> None:
    """All rows are certain, the wider half, or none; or those of them that may weigh something."""
    run, _ = case.scanned(some)
    run.race.state[REFERENCE] = run.ceilings.shift
    twin = copy_of(run)
    widest = float(np.quantile(reference._widths(run), quantile)) * (1.001 if quantile == 1.0 else 1.0) - (
        quantile == 0
    )
    found = compiled.score_wide(run, 1.0, (widest, widest), least)
    assert found == reference.score_wide(twin, 1.0, (widest, widest), least)
    if found:
        np.testing.assert_allclose(run.race.state[:4], twin.race.state[:4], rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(run.race.ceilings, twin.race.ceilings)
        np.testing.assert_allclose(run.race.ends, twin.race.ends, rtol=1e-4)
    assert least > 0 or (run.race.state[COUNT] > 0) == (quantile < 1.0)


@every_plain_case
def test_sample_to(case: Case) -> None:
    seeds = np.array([1, 2, 3], dtype=np.uint64)
    unit = float(np.linalg.norm(case.theta)) / case.temperature / np.sqrt(max(case.d - 1, 1))
    sizes = []
    for rel_err in (0.5, 0.02, 0.005, 1e-6):
        run, outlook = case.scanned(some)
        compiled.set_reference(run, outlook)
        twin = copy_of(run)
        rules = rel_err, 100.0 * case.n, (0.8, 0.5)
        found, expected = compiled.sample_to(run, unit, rules, seeds), reference.sample_to(twin, unit, rules, seeds)
        assert abs(len(found.positions) - len(expected.positions)) <= 0.02 * len(expected.positions)
        sizes.append(len(found.positions))
        assert run.race.state[COUNT] == twin.race.state[COUNT]
        if len(found.positions) == len(expected.positions) > 0:
            assert (found.positions == expected.positions).mean() > 0.98
    assert sizes[0] in (256, 0) and sizes[-1] in (0, 256)  # no more than allowed; or nothing is left to chance


def test_set_reference_of_a_scan_at_a_higher_temperature() -> None:
    for held in (case(33, (4, 3), 0.5, FULL), case(40, (6, 3), 0.01, FULL, power=12.0)):
        run, outlook = held.scanned(nobody)
        twin = copy_of(run)
        found, expected = compiled.set_reference(run, outlook), reference.set_reference(twin, outlook)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        np.testing.assert_allclose(run.race.state, twin.race.state, rtol=1e-6)
        np.testing.assert_allclose(run.race.weights, twin.race.weights, rtol=1e-3)


def batch_of(held: Case, count: int, size: int) -> tuple[Asked, Batch, Found]:
    """Thetas of several lengths, for which other rows are excluded."""
    rng, index = np.random.default_rng(1), held.index
    thetas = (rng.normal(size=(count, held.d)) * rng.lognormal(size=(count, 1))).astype(np.float32)
    slots = [index.layout.slots(np.arange(b % 4)) for b in range(count)]
    return (
        index.asked(held.temperature, delta=1e-4, size=size),
        Batch(
            thetas,
            np.array([index.quantiles(1e-4, float(np.linalg.norm(t)) / held.temperature) for t in thetas]),
            rng.integers(2**63, size=(count, 2)).astype(np.uint64),
            np.concatenate(slots),
            np.cumsum([len(some) for some in slots]),
            np.full(count, size),
        ),
        Found.room(count, size),
    )


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("d", [3, 33])
def test_race_thetas(d: int, distinct: bool, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    held = case(d, (2, 2), 0.5, FULL)
    asked, batch, found = batch_of(held, 12, 5)
    expected, index, rules = Found.room(12, 5), held.index, (10**6, distinct)
    monkeypatch.setattr("lazygumbel.indexes.partition.index._CACHED", 0 if together else 2**40)
    for first, last in ((5, 12), (0, 5)):  # in whatever order
        with index.rooms(last - first) as rooms:
            assert (len(rooms.races) > 1) == together
            compiled.race_thetas(index.stored, asked, batch, (first, last), rooms, NOBODY, rules, found)
    reference.race_thetas(index.stored, asked, batch, (0, 12), rooms, NOBODY, rules, expected)
    np.testing.assert_array_equal(found.positions, expected.positions)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-3)
    for name in ("drawn", "violations", "far"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert np.abs(found.rows - expected.rows).max() <= 1
    for b in range(12):
        assert not np.isin(found.positions[b], np.arange(b % 4)).any()


def few_of(held: Case, thetas: np.ndarray, count: int) -> Few:
    """Some rows without an index, of which the third, and so on, are dead."""
    rows = np.random.default_rng(3).normal(size=(count, held.d)).astype(np.float32)
    seeds = np.arange(len(thetas), dtype=np.uint64)
    return Few(rows, np.arange(count) % 3 == 2, thetas, 1 / held.temperature, seeds, 100_000 + np.arange(count))


@pytest.mark.parametrize("count", [0, 50])
def test_keep_first(count: int) -> None:
    """As the twin, and as the races of each part alone, of which the first to fire is taken."""
    held = case(33, (2, 2), 0.5, FULL)
    index, given = held.index, np.arange(held.index.features.n)
    asked, batch, _ = batch_of(held, 6, 4)
    batch = batch._replace(excluded=batch.excluded[:0], ends=np.zeros(6, dtype=np.int64))
    few, results = few_of(held, batch.thetas, count), []
    for twin in (compiled, reference):
        first, alone = First.room(6, 4), []
        for start, stop in ((3, 6), (0, 3)) if count else ():
            twin.draw_few(few, (start, stop), first)
        alone += [first.values.copy()] if count else []
        for p in range(2):
            each = batch._replace(seeds=batch.seeds + np.uint64(p))
            found, ids = Found.room(6, 4), 1000 * (p + 1) + given
            for thetas in ((3, 6), (0, 3)):
                with index.rooms(3) as rooms:
                    twin.race_thetas(index.stored, asked, each, thetas, rooms, NOBODY, (10**6, False), found)
                twin.keep_first(found, each.wanted, thetas, ids, first)
            alone.append(found.values)
        np.testing.assert_array_equal(first.values, np.max(alone, axis=0))
        assert not first.undone.any() and (first.rows > count).all()
        results.append(first)
    found, expected = results
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found.violations, expected.violations)
    assert len(set((found.ids // 1000).ravel().tolist())) >= 2 + (count > 0)  # each part has won some


def test_draw_few_draws_from_the_softmax_of_the_rows_that_are_not_dead() -> None:
    held = case(3, (2, 2), 0.5, FULL)
    few = few_of(held, np.ones((1, 3), dtype=np.float32), 20)
    first = First.room(1, 40_000)
    compiled.draw_few(few, (0, 1), first)
    weights = np.exp(few.rows.astype(np.float64).sum(axis=1) * few.scale)
    counts = np.bincount(first.ids[0] - 100_000, minlength=20)
    assert not counts[few.dead].any()
    left = np.where(few.dead, 0.0, weights)[~few.dead]
    assert chisquare(counts[~few.dead], 40_000 * left / left.sum()).pvalue > 1e-3
    flat = left**0.9  # a control: another temperature
    assert chisquare(counts[~few.dead], 40_000 * flat / flat.sum()).pvalue < 1e-6
    mean = first.values.mean() - np.log(left.sum())  # Gumbel
    assert abs(mean - np.euler_gamma) < 5 * np.pi / np.sqrt(6 * 40_000)


def test_a_race_that_is_broken_off_is_undone() -> None:
    held = case(33, (2, 2), 0.5, FULL)
    asked, batch, _ = batch_of(held, 2, 4)
    batch = batch._replace(excluded=batch.excluded[:0], ends=np.zeros(2, dtype=np.int64))
    few = few_of(held, batch.thetas, 5)
    ids, found, first = np.arange(held.index.features.n), Found.room(2, 4), First.room(2, 4)
    compiled.draw_few(few, (0, 2), first)
    with held.index.rooms(2) as rooms:
        compiled.race_thetas(held.index.stored, asked, batch, (0, 2), rooms, NOBODY, (0, False), found)
    compiled.keep_first(found, batch.wanted, (0, 2), ids, first)
    assert first.undone.all() and (first.ids >= 100_000).all()


@contextmanager
def helper_at(desk: np.ndarray) -> Iterator[Callable[[], None]]:
    """A thread that helps whenever it is called, until the end."""
    asleep, bell = os.pipe()
    os.close(bell)
    compiled.serve(asleep, desk)  # returns at once; from now on it is compiled
    os.close(asleep)
    asleep, bell = os.pipe()
    thread = Thread(target=compiled.serve, args=(asleep, desk))
    thread.start()

    def call() -> None:
        desk[AWAITED] = 1
        os.write(bell, b"!")

    try:
        yield call
    finally:
        desk[AWAITED] = 0
        os.close(bell)
        thread.join(timeout=60)
        os.close(asleep)
        assert not thread.is_alive()


@pytest.mark.parametrize("held", [case(33, (4, 3), 0.5, SHORT, FULL), case(40, (6, 3), 0.001, BYTES)])
def test_enter(held: Case) -> None:
    """Also at a desk to which nobody comes, and where ceilings are out of range at first."""
    index, asked, found, powers = held.index, held.asked(), [], []
    for enter, desk in ((compiled.enter, NOBODY), (compiled.enter, np.zeros(DESK, int)), (reference.enter, NOBODY)):
        race = race_of(index, some)
        _, ceilings, _ = enter(index.stored, asked, held.theta, np.uint64(5), race, desk)
        found.append(race)
        powers.append(ceilings.power)
    alone, awaited, twin = found
    for name in ("ceilings", "weights", "sums"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(awaited, name))
    np.testing.assert_allclose(twin.sums, alone.sums, rtol=2e-2)
    np.testing.assert_allclose(powers, powers[0], rtol=1e-6)
    assert (powers[0] > 1.0) == (held.temperature < 0.01)


def test_a_helper_scans_what_lies_on_its_desk() -> None:
    """All of it, if nobody else does."""
    held, desk = case(33, (4, 3), 0.5, SHORT, FULL), np.zeros(DESK, dtype=np.int64)
    run, _ = held.scanned(some)
    twin = copy_of(run)
    compiled.pack_race(twin.race)
    open_desk, found = door(sharing.open_desk), []
    with helper_at(desk) as call:
        for work in (sharing.SCAN, sharing.BEST, sharing.SCAN):
            if work == sharing.SCAN:
                twin.race.weights[:], twin.race.sums[:], twin.race.ceilings[:] = 0.0, 0.0, 0
            desk[sharing.ASKED] = 10
            open_desk(twin, desk, work)
            deadline = monotonic() + 60
            while desk[_STATE] and monotonic() < deadline:
                call()  # again: it may have lost patience before this thread came to open the desk
                sleep(0.01)
            found.append(desk[sharing.FOUND])
            for name in ("ceilings", "weights", "sums"):
                np.testing.assert_array_equal(getattr(twin.race, name), getattr(run.race, name))
    assert found[0] == 0 < found[1]
    half, count = len(twin.race.positions) // 2, found[1]
    alone, _ = compiled.top_rows(copy_of(run), 10, np.zeros(DESK, dtype=np.int64))
    np.testing.assert_array_equal(twin.race.positions[half : half + count], alone[len(alone) - count :])
    assert set(compiled.top_rows(run, 10, NOBODY)[0].tolist()) & set(alone.tolist())


def test_a_helper_who_comes_late_touches_nothing() -> None:
    desk = np.zeros(DESK, dtype=np.int64)
    desk[8:] = -1  # no addresses: to read a run from here would end the process
    with helper_at(desk) as call:
        for _ in range(20):
            call()
            desk[AWAITED] = 0


def test_what_is_packed_is_read_back() -> None:
    """By kernels that take words: their answers are of the tuples that were packed last."""
    held = case(33, (4, 3), 0.5, SHORT, FULL)
    stored, race = held.index.stored, race_of(held.index, nobody)
    fewer = stored._replace(alive=np.zeros_like(stored.alive), words=np.zeros(PACKED, dtype=np.int64))
    fewer.alive.flags.writeable = False
    compiled.pack_stored(fewer)
    for packed, expected in ((fewer, 0), (stored, stored.alive)):
        race.changed[0] = -1
        compiled.open_race(packed, nobody, race)
        np.testing.assert_array_equal(race.alive, expected)
    other = Race(*(array.copy() for array in race))
    compiled.pack_race(other)
    compiled.open_race(stored, np.arange(BLOCK), other)
    assert other.alive[0] == 0 and race.alive[0] == stored.alive[0]


@pytest.mark.parametrize("d", [3, 33])
def test_sample_theta(d: int) -> None:
    held = case(d, (2, 2), 0.5, FULL)
    index, rules = held.index, (0.05, 1e6, (10.0, 10.0))
    asked, seeds = index.estimate(held.temperature, for_sums(d, index.coder.parts, 0.05)), np.arange(3, dtype=np.uint64)
    arguments = index.stored, asked, (held.theta, index.layout.slots(some)), seeds
    race, twin = race_of(index, nobody), race_of(index, nobody)
    found = compiled.sample_theta(*arguments, race, NOBODY, rules)
    expected = reference.sample_theta(*arguments, twin, NOBODY, rules)
    assert len(found.sample.positions) >= 256 and not np.isin(found.sample.positions, some).any()
    assert abs(len(found.sample.positions) - len(expected.sample.positions)) <= 2
    if len(found.sample.positions) == len(expected.sample.positions):
        assert (found.sample.positions == expected.sample.positions).mean() > 0.98
    np.testing.assert_allclose(found.weighed.mean, expected.weighed.mean, rtol=0.02)
    np.testing.assert_allclose(found.norm, np.linalg.norm(held.theta), rtol=1e-6)
    np.testing.assert_allclose(race.state[[COUNT, REFERENCE]], twin.state[[COUNT, REFERENCE]], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 10])
def test_top_theta(k: int) -> None:
    held = case(33, (4, 3), 0.5, SHORT, FULL)
    index = held.index
    arguments = index.stored, held.asked(), held.theta, k, race_of(index, some), NOBODY  # opened anew
    positions, looked = compiled.top_theta(*arguments)
    expected, _ = reference.top_theta(*arguments)
    assert set(expected.tolist()) <= set(positions.tolist()) and len(positions) <= looked
    exact = index.rows.rows.astype(np.float64) @ held.theta.astype(np.float64)
    assert np.isin(np.argsort(-exact)[:k], positions).mean() > 0.98


def test_a_sample_of_nothing_weighs_nothing() -> None:
    nothing = np.zeros(4), np.ones(4, dtype=np.float32), 1.0
    assert compiled.weigh_sample(*nothing) == reference.weigh_sample(*nothing) == (0.0,) * 5


@pytest.mark.parametrize("k", [1, 10, 100])
@every_near_case
def test_top_rows(case: Case, k: int) -> None:
    run, _ = case.scanned(some)
    positions, looked = compiled.top_rows(copy_of(run), k, NOBODY)
    expected, reached = reference.top_rows(run, k, NOBODY)
    assert len(set(positions.tolist())) == len(positions) and set(expected.tolist()) <= set(positions.tolist())
    assert len(positions) <= looked and reached <= looked
    exact = case.index.rows.rows.astype(np.float64) @ case.theta.astype(np.float64)
    exact[some] = -np.inf
    best = np.argsort(-exact)[:k]
    assert np.isin(best, positions).mean() > 0.98


def test_top_rows_looks_at_few_rows() -> None:
    run, _ = case(17, (2, 4), 0.4, SHORT, FULL).scanned(some)
    positions, looked = compiled.top_rows(run, 1, NOBODY)
    assert 0 < len(positions) < 50 and looked < 400


def test_top_rows_that_do_not_fit_are_none() -> None:
    run, _ = case(17, (2, 4), 0.4, SHORT, FULL).scanned(some)
    race = run.race._replace(positions=run.race.positions[:4], masses=run.race.masses[:4])
    assert len(compiled.top_rows(run._replace(race=race), 100, NOBODY)[0]) == 0


_DRAWS = """
import json, numpy as np, lazygumbel as lg
rng = np.random.default_rng(0)
rows = rng.normal(size=(3000, 40)).astype(np.float32)
model = lg.LogLinear(lg.PartitionIndex.build(rows, coordinates=(4, 4), rng=0))
dist = model(rng.normal(size=(20, 40)), temperature=3.0)
ids = dist.sample(10, rng=1).ids, dist.sample_without_replacement(5, rng=2).ids, dist.top_k(5).ids
print(json.dumps([found.tolist() for found in ids]))
"""


def test_a_generic_processor_gives_the_same_draws() -> None:
    """And the same top rows. Sums need not agree: inner products are fused where they can be, and where ceilings by
    bytes are rounded up the last bit may decide, and with it which row is sampled."""

    def answers(**settings: str) -> list[list[list[int]]]:
        command = [sys.executable, "-c", _DRAWS]
        found = subprocess.run(command, env=os.environ | settings, check=True, capture_output=True, text=True).stdout
        return json.loads(found)

    assert answers() == answers(NUMBA_CPU_NAME="generic")
