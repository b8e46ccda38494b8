"""Every compiled kernel against its NumPy twin. A kernel without a case here fails."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from lazygumbel import kernels
from lazygumbel.features import Features
from lazygumbel.indexes.codes import Codes
from lazygumbel.kernels import compiled, reference
from lazygumbel.kernels.block_dot import block_dot, lay_out_pairs
from lazygumbel.kernels.blocks import lay_out_blocks
from lazygumbel.kernels.code_dot import lay_out_whole
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.draws import _points
from lazygumbel.kernels.scoring import score_codes

fixed = settings(derandomize=True, deadline=None, max_examples=150)

LENGTHS = (1, 2, 3, 5, 9, 16, 17, 33)
"""Of rows: below, at and above the width of a vector."""


class Case(NamedTuple):
    """Arguments of a kernel and how far apart the twins' floats may be; integers must always agree."""

    arguments: tuple[np.ndarray, ...]
    tolerance: float
    filled: int = 0
    """How many arguments, the last ones, the kernel fills in; vectors in these agree up to their largest entry."""


def matrix(draw: st.DrawFn, shape: tuple[int, ...], whole: bool) -> np.ndarray:
    """Float32 numbers of size at most 4; whole ones have exact sums, so that twins must agree to the bit."""
    values = np.random.default_rng(draw(st.integers(0, 10**6))).uniform(-4, 4, shape)
    return (np.rint(values) if whole else values).astype(np.float32)


def rounding(d: int, whole: bool) -> float:
    """How far two sums of d products of size at most 16 may be apart in float32."""
    return 0.0 if whole else 2 * d * np.finfo(np.float32).eps * 16 * d


@st.composite
def gather_dot_cases(draw: st.DrawFn) -> Case:
    n, d, size, m = (draw(st.integers(a, b)) for a, b in ((1, 20), (1, 70), (1, 4), (0, 30)))
    whole, rng = draw(st.booleans()), np.random.default_rng(draw(st.integers(0, 10**6)))
    positions, owner = rng.integers(0, n, m), rng.integers(0, size, m)
    rows, queries = matrix(draw, (n, d), whole), matrix(draw, (size, d), whole)
    return Case((rows, positions, queries, owner), rounding(d, whole))


@st.composite
def score_ranges_cases(draw: st.DrawFn) -> Case:
    n, d, whole = draw(st.integers(0, 20)), draw(st.integers(1, 70)), draw(st.booleans())
    ends = draw(st.lists(st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted), max_size=6))
    starts, stops = np.array(ends, dtype=np.int64).reshape(-1, 2).T.copy()
    return Case((matrix(draw, (n, d), whole), starts, stops, matrix(draw, (d,), whole)), rounding(d, whole))


def falling(levels: np.ndarray) -> np.ndarray:
    """As kernels take them: they do not increase from bucket to bucket."""
    return np.sort(levels)[..., ::-1].copy()


class Ranked(NamedTuple):
    """Cells of random sizes, in random buckets for a few queries, hazards from none to all."""

    rng: np.random.Generator
    rows: np.ndarray
    offsets: np.ndarray
    buckets: np.ndarray
    hazards: np.ndarray
    queries: np.ndarray

    @classmethod
    def draw(cls, draw: st.DrawFn) -> "Ranked":
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        cells, d, size = draw(st.integers(1, 12)), draw(st.sampled_from(LENGTHS)), draw(st.integers(1, 4))
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 30, cells))]).astype(np.int64)
        buckets = draw(st.integers(1, 6))
        return cls(
            rng,
            rng.normal(size=(offsets[-1], d)).astype(np.float32),
            offsets,
            rng.integers(0, buckets, (size, cells)).astype(np.uint8),
            falling(rng.choice([0.0, 1e-3, 0.1, 1.0, 5.0, np.inf], size=(size, buckets))),
            rng.normal(size=(size, d)).astype(np.float32),
        )

    def codes(self) -> Codes:
        n, d = self.rows.shape
        return (
            Codes.of(Features.of(self.rows)) if n else Codes(self.rows.astype(np.uint8), *np.zeros((2, d), "f4"), 0.0)
        )


@st.composite
def survey_cases(draw: st.DrawFn) -> Case:
    """Whole numbers, so that both twins find the same inner products to the bit; ties among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cells, d, size = draw(st.integers(1, 150)), draw(st.sampled_from(LENGTHS)), draw(st.integers(0, 4))
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 9, cells))]).astype(np.int64)
    edges = np.unique([0, 1, cells // 2, cells]).astype(np.int64)
    queries = draw(st.sampled_from([0, 3])) * np.rint(3 * rng.normal(size=(size, d))).astype(np.float32)
    step = draw(st.sampled_from([1.0, 0.5]))  # coarse, so that some cells come close to the nearest
    centroids = np.rint(2 * rng.normal(size=(cells, d))).astype(np.float32) / 2
    routes = lay_out_blocks(np.rint(centroids / step).astype(np.int8))
    scales = rng.choice([0.25, 0.5, 1.0], draw(st.sampled_from([0, cells]))).astype(np.float32)
    code_low, code_step = rng.integers(-3, 3, (2, d)).astype(np.float32)
    codes = rng.integers(0, 256, (offsets[-1], d)).astype(np.uint8), code_low, code_step
    return Case((routes, centroids, *codes, queries, scales, offsets, edges), 0.0)


@st.composite
def place_cases(draw: st.DrawFn) -> Case:
    """At, near, between and beyond the rungs; cosines and reaches to both sides of the least."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ladder, size = np.geomspace(1.0, 64.0, draw(st.integers(1, 7))), draw(st.integers(0, 9))
    norms = rng.choice([0.0, *ladder], size) * rng.choice([0.5, 0.985, 0.995, 1.0, 1.005, 1.015, 1.5, 3.0], size)
    alignment, reach = (norms * rng.uniform(0, 1, (2, size))).astype(np.float32)
    return Case((norms / 2, alignment, reach, 2.0, 1.5, ladder, 0.3, 0.3), 0.0)


@st.composite
def look_cases(draw: st.DrawFn) -> Case:
    rng, rows, offsets, buckets, hazards, queries = Ranked.draw(draw)
    return Case((rows, offsets, buckets[-1], hazards[-1], queries[-1], 2.5, rng.random(2)), 1e-4)


@st.composite
def winners_cases(draw: st.DrawFn) -> Case:
    cells = Ranked.draw(draw)
    rng, size, n = cells.rng, len(cells.queries), len(cells.rows)
    banned = [np.flatnonzero(rng.random(n) < share) for share in rng.choice([0.0, 0.2, 1.0], size)]
    ends = np.cumsum([0, *map(len, banned)])
    seeds = rng.random((size, draw(st.integers(0, 3)), 2))
    codes = cells.codes()
    if draw(st.booleans()):
        codes = codes._replace(error=np.inf)  # of no use: rows are read
    return Case((cells.rows, *codes, *cells[2:], 2.5, np.concatenate(banned), ends, seeds), 1e-4)


@st.composite
def pick_cases(draw: st.DrawFn) -> Case:
    cells = Ranked.draw(draw)
    rates = falling(cells.rng.choice([0.0, 1e-3, 0.1, 0.3, 0.9, 1.0], size=cells.hazards.shape[1]))
    return Case((cells.offsets, cells.buckets[-1], rates, cells.rng.random()), 0.0)


@st.composite
def pick_variance_cases(draw: st.DrawFn) -> Case:
    cells = Ranked.draw(draw)
    rates = falling(cells.rng.choice([0.0, 1e-3, 0.1, 0.3, 0.9, 1.0], size=cells.hazards.shape[1]))
    scores = cells.rng.normal(size=max(cells.offsets[-1], 1)).astype(np.float32)
    offsets = cells.offsets.copy()
    offsets[-1] = len(scores)
    return Case((scores, offsets, cells.buckets[-1], rates, draw(st.sampled_from([0.5, 5.0]))), 1e-6)


@st.composite
def score_at_cases(draw: st.DrawFn) -> Case:
    (rows, positions, queries, _), tolerance, _ = draw(gather_dot_cases())
    return Case((rows, positions, queries[0]), tolerance)


@st.composite
def sum_rows_cases(draw: st.DrawFn) -> Case:
    (rows, positions, _, _), *_ = draw(gather_dot_cases())
    weights = np.random.default_rng(draw(st.integers(0, 10**6))).uniform(0, 1, len(positions))
    return Case((rows, positions, weights), 1e-9)


@st.composite
def weigh_cases(draw: st.DrawFn) -> Case:
    cells = Ranked.draw(draw)
    rng, size, n = cells.rng, len(cells.queries), len(cells.rows)
    banned = [np.flatnonzero(rng.random(n) < share) for share in rng.choice([0.0, 0.2, 1.0], size)]
    ends = np.cumsum([0, *map(len, banned)])
    rates = falling(rng.choice([0.0, 1e-3, 0.1, 0.3, 0.9, 1.0], size=cells.hazards.shape))
    queries = cells.queries / np.float32(np.sqrt(cells.queries.shape[1]))
    codes = cells.codes()._replace(error=draw(st.sampled_from([0.0, np.inf])))  # of use, or of none
    units, wide = draw(st.integers(2, 4)), draw(st.sampled_from([0, cells.rows.shape[1]]))
    progress = np.full(2, draw(st.integers(0, size)))  # some pieces may be done
    filled = progress, np.zeros(size), np.zeros((size, units), dtype=np.int64), np.zeros((size, units, 3, 1 + wide))
    bell = np.array([4]), draw(st.sampled_from([-1, 3, 4]))
    largest = draw(st.sampled_from([1.0, 620.0]))  # without a shift and, mostly, with one
    asked = cells.offsets, cells.buckets, rates, rng.random((size, units, 2)), queries, 0.5, largest
    arguments = cells.rows, *codes, *asked, np.concatenate(banned), ends, *filled, *bell
    return Case(arguments, 1e-4, len(filled) + len(bell))


@st.composite
def spread_cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, units, wide = draw(st.integers(0, 3)), draw(st.integers(1, 4)), draw(st.integers(0, 4))
    found = rng.normal(size=(size, units, 3, 1 + wide))
    found[:, :, 1] **= 2
    return Case((rng.integers(0, 4, (size, units)), found), 1e-9)


@st.composite
def bin_scores_cases(draw: st.DrawFn) -> Case:
    cells, bins = Ranked.draw(draw), draw(st.integers(1, 40))
    scores = cells.rng.normal(size=len(cells.rows)).astype(np.float32)
    return Case((scores, cells.offsets, cells.buckets[-1], 6, -1.0, 2.0 / bins, bins), 0.0)


CASES: dict[str, Callable[[], st.SearchStrategy[Case]]] = {
    "gather_dot": gather_dot_cases,
    "score_ranges": score_ranges_cases,
    "look": look_cases,
    "pick": pick_cases,
    "pick_variance": pick_variance_cases,
    "place": place_cases,
    "score_at": score_at_cases,
    "spread": spread_cases,
    "sum_rows": sum_rows_cases,
    "survey": survey_cases,
    "weigh": weigh_cases,
    "winners": winners_cases,
    "bin_scores": bin_scores_cases,
}


def check_equal(found: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            check_equal(a, b, tolerance)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind != "f":
        tolerance = 0.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_both_modules_export_the_same_kernels():
    assert sorted(reference.__all__) == sorted(compiled.__all__) == sorted(kernels.__all__)
    for name in kernels.__all__:
        assert getattr(kernels, name) is getattr(compiled, name)
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        kernels.absent  # noqa: B018  # looking is the test


def test_every_kernel_has_a_case():
    assert sorted(CASES) == sorted({*reference.__all__, *compiled.__all__})


@pytest.mark.parametrize("name", compiled.__all__)
def test_kernels_are_compiled_with_the_safe_options(name: str):
    options = getattr(compiled, name).targetoptions
    assert options["fastmath"] <= {"reassoc", "contract", "nsz"}  # `True` would let NaN pass for finite
    assert options.get("nogil", False) == (name != "spread") and not options.get("parallel")


@pytest.mark.parametrize("name", reference.__all__)
def test_the_compiled_kernel_equals_the_reference(name: str):
    @fixed
    @given(CASES[name]())
    def check(case: Case) -> None:
        given, filled = case.arguments[: -case.filled or None], case.arguments[-case.filled or len(case.arguments) :]
        before = [np.copy(argument) for argument in given]
        first, second = deepcopy(filled), deepcopy(filled)
        expected = getattr(reference, name)(*given, *first)
        found = getattr(compiled, name)(*given, *second)
        if expected is not None or not filled:
            check_equal(found, expected, case.tolerance)
        for a, b in zip(map(np.asarray, second), map(np.asarray, first), strict=True):
            if b.dtype.kind == "f":
                scale = np.abs(b).max(axis=-1, keepdims=True, initial=1e-9)
                a, b = a / scale, b / scale
            check_equal(a, b, case.tolerance)
        for argument, copy in zip(given, before, strict=True):
            np.testing.assert_array_equal(argument, copy)

    check()


def test_the_reference_is_what_it_says():
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    queries = np.array([[1, 0, 0], [1, 1, 1]], dtype=np.float32)
    found = reference.gather_dot(rows, np.array([3, 0, 3]), queries, np.array([0, 1, 1]))
    assert found.tolist() == [9, 3, 30]
    positions, scores = reference.score_ranges(rows, np.array([2, 0, 3]), np.array([4, 0, 4]), queries[1])
    assert positions.tolist() == [2, 3, 3]
    assert scores.tolist() == [21, 30, 30]


@njit
def inner_products(matrix: np.ndarray, laid_out: np.ndarray) -> np.ndarray:
    return np.array([dot(matrix, i, laid_out) for i in range(matrix.shape[0])])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_inner_products_of_any_type_and_length(dtype: type):
    rng = np.random.default_rng(0)
    low = 0 if dtype is np.uint8 else -255
    for d in (*range(1, 70), 127, 128, 300):
        matrix, query = rng.integers(low, 256, (5, d)).astype(dtype), rng.integers(1, 10, d).astype(np.float32)
        truth = matrix.astype(np.float64) @ query
        np.testing.assert_array_equal(inner_products(matrix, lay_out(query)), truth)
        # Control: the layout matters where a row is longer than a vector, and not a whole number of them.
        padded = np.pad(query, (0, 16))
        assert np.array_equal(inner_products(matrix, padded), truth) == (d < 16 or d % 16 == 0)


@njit
def code_products(codes: np.ndarray, laid_out: np.ndarray, unit: float, offset: float) -> np.ndarray:
    out = np.empty(codes.shape[0] + 3, dtype=np.float32)
    score_codes(codes, np.arange(codes.shape[0]), laid_out, np.float32(unit), np.float32(offset), out)
    return out[: codes.shape[0]]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 70])
def test_inner_products_of_codes(n: int):
    rng = np.random.default_rng(n)
    for d in (*range(1, 70), 127, 128, 300, 1000):
        codes = rng.integers(0, 256, (n, d)).astype(np.uint8)
        codes[0] = 255
        query = np.where(rng.random(d) < 0.9, rng.normal(size=d), 1.0).astype(np.float32)
        if d % 2:
            query = np.abs(query)  # the largest sums that there can be
        laid_out, unit = lay_out_whole(query)
        truth = 1.5 + codes.astype(np.float64) @ query
        error = 127.5 * d * unit + 1e-6 * np.abs(truth).max()  # half a unit for each of d bytes up to 255
        assert np.abs(code_products(codes, laid_out, unit, np.float32(1.5)) - truth).max() <= error
        # Control: the layout matters where a row is longer than a vector, and not a whole number of them.
        plain = np.pad(np.rint(query.astype(np.float64) / unit).astype(np.int16), (0, 32))
        wrong = np.abs(code_products(codes, plain, unit, np.float32(1.5)) - truth).max() > error
        assert wrong or d < 33 or d % 32 == 0 or n < 70


@njit
def block_products(blocks: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    out = np.empty(blocks.shape[0] * 64, dtype=np.int32)
    for k in range(blocks.shape[0]):
        block_dot(blocks, k, pairs, out)
    return out


@pytest.mark.parametrize("n", [1, 64, 65, 200])
def test_inner_products_by_blocks(n: int):
    rng = np.random.default_rng(n)
    for d in (*range(1, 20), 127, 128, 300, 1000):
        rows = rng.integers(-128, 128, (n, d)).astype(np.int8)
        rows[0] = -128
        query = np.where(rng.random(d) < 0.9, rng.normal(size=d), 1.0).astype(np.float32)
        if d % 2:
            query = np.abs(query)  # the largest sums that there can be
        blocks = lay_out_blocks(rows)
        pairs, unit = lay_out_pairs(query, blocks.shape[1])
        error = 64 * d * unit  # half a unit for each of d bytes up to 128
        found = block_products(blocks, pairs)
        assert not found[n:].any()
        assert np.abs(found[:n] * unit - rows.astype(np.float64) @ query).max() <= error
        # Control: the bound says something, for another query is further off.
        other = np.roll(query, 1) if d > 1 else query + 1
        assert d < 3 or n == 1 or np.abs(found[:n] * unit - rows.astype(np.float64) @ other).max() > error


def test_a_poisson_process_goes_on_to_its_end():
    total, seeds = 30.0, 20_000
    points = [_points(total, np.uint64(seed)) for seed in range(seeds)]
    assert min(p[-1] for p in points) >= total
    counts = np.array([np.searchsorted(p, total) for p in points])
    assert max(map(len, points)) > 2 * total  # some had to go on beyond what was expected
    assert abs(counts.mean() - total) < 5 * np.sqrt(total / seeds)
    assert abs(counts.var() / total - 1) < 5 * np.sqrt(2.0 / seeds)
    # Control: cut where they would have ended, there are too few.
    cut = np.minimum(counts, int(total + 2 * np.sqrt(total)))
    assert abs(cut.var() / total - 1) > 5 * np.sqrt(2.0 / seeds)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("module", [reference, compiled])
def test_what_is_not_finite_is_not_lost(module: Any, value: float):
    rows = np.ones((3, 33), dtype=np.float32)
    rows[1, 20] = value
    query = np.ones(33, dtype=np.float32)
    scores = module.gather_dot(rows, np.arange(3), query[None], np.zeros(3, dtype=np.int64))
    np.testing.assert_array_equal(scores, [33, value, 33])
    np.testing.assert_array_equal(module.score_ranges(rows, np.array([0]), np.array([3]), query)[1], scores)


@pytest.mark.parametrize("module", [reference, compiled])
def test_read_only_arrays_are_taken(module: Any):
    rows = np.ones((3, 5), dtype=np.float32)
    rows.flags.writeable = False
    ids = np.arange(3)
    assert module.gather_dot(rows, ids, rows[:1], ids * 0).tolist() == [5, 5, 5]
    assert module.score_ranges(rows, ids[:1], ids[2:], rows[0])[1].tolist() == [5, 5]
