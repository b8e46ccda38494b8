"""Compiled kernels against the NumPy reference: sums over rows, codes, tables, weights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy import stats

from lazygumbel import kernels
from lazygumbel.kernels import boxing, compiled, contest, reference, strata, top
from lazygumbel.kernels.byte_dot import byte_dot, lay_out_steps
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.lookups import largest_ceiling, segment_weight, sum_weights, weight_of
from lazygumbel.kernels.types import (
    BIAS,
    BLOCK,
    FLOOR,
    GAINS,
    SEGMENT,
    TOP,
    UNIT,
    WORDS,
)

fixed = settings(derandomize=True, deadline=None, max_examples=60)
LENGTHS = 1, 2, 3, 7, 15, 16, 17, 33, 70
"""Of rows: below, at and above the width of a vector."""


def test_every_kernel_has_a_twin_and_is_named_here() -> None:
    assert set(kernels.__all__) == set(compiled.__all__) == set(reference.__all__)
    text = "".join(file.read_text() for file in Path(__file__).parent.glob("test_kernels*.py"))
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


@njit
def _byte_dots(rows: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, float, float]:
    steps, step, left_over = lay_out_steps(query)
    out = np.empty(rows.shape[0], dtype=np.int64)
    for row in range(rows.shape[0]):
        out[row] = byte_dot(rows, row, steps)
    return out, step, left_over


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("d", [*range(1, 70), 127, 128, 129, 640, 9_000])
def test_byte_dot(d: int, scale: float) -> None:
    rng = np.random.default_rng(d)
    rows = rng.integers(-127, 128, (5, d)).astype(np.int8)
    query = (scale * rng.normal(size=d)).astype(np.float32)
    query[0] = 5 * scale
    rows[0], rows[1] = np.where(query > 0, 127, -127), np.where(query > 0, -127, 127)  # as large as sums can become
    found, step, left_over = _byte_dots(rows, query)
    exact = rows.astype(np.float64) @ query.astype(np.float64)
    allowed = np.linalg.norm(rows.astype(np.float64), axis=1) * left_over
    assert (np.abs(step * found - exact) <= allowed + 1e-9 * np.abs(exact).max()).all()
    assert left_over <= np.linalg.norm(query.astype(np.float64)) * np.sqrt(d) / 30_000 * max(d / 500, 1)
    if d > 1:  # the control
        others = rows[:, ::-1].copy()
        assert (np.abs(step * _byte_dots(others, query)[0] - exact) > allowed + 1e-9 * np.abs(exact).max()).any()


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
@given(m=st.integers(0, 20), d=st.sampled_from(LENGTHS), seed=st.integers(0, 10**6))
def test_encode_bytes(m: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    residuals, places = matrix(rng, (m, d)) * np.float32(10.0) ** rng.integers(-30, 30, (m, 1)), rng.permutation(30)[:m]
    residuals[: m // 4] = 0.0
    found, expected = ((np.zeros((30, d), dtype=np.int8), np.zeros(30, dtype=np.float32)) for _ in range(2))
    error = compiled.encode_bytes(residuals.astype(np.float32), places, *found)
    np.testing.assert_allclose(
        error, reference.encode_bytes(residuals.astype(np.float32), places, *expected), rtol=1e-5
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert error <= np.sqrt(d) / 2


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
    units = unit, float(rng.choice([1e9, 1.0])) * scale
    arguments = rotated, matrix(rng, (WORDS, one)), matrix(rng, (WORDS, other)) / 4, parts, units, np.uint64(seed)
    found, expected = compiled.lookup_tables(*arguments), reference.lookup_tables(*arguments)
    assert found[0].max() < 128 and found[1] == expected[1]
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-9, atol=1e-9)
    # A number may lie so close to where it is rounded the other way that a different order of additions decides.
    differences = np.abs(found[0].astype(int) - expected[0])
    assert differences.max() <= 1 and (differences > 0).mean() < 0.01


def tables_of(seed: int) -> tuple[Any, Any, Any, Any, Any]:
    """Of a theta and codewords that do not change: tables, (multiple, exponent), centres, and exact sums in steps."""
    rng, parts = np.random.default_rng(0), (codes_of(20, 3), codes_of(20, 3) + codes_of(20, 2))
    rotated, first, second = matrix(rng, (20,)), matrix(rng, (WORDS, 3)), matrix(rng, (WORDS, 2)) / 4
    tables, (multiple, exponent), centres = compiled.lookup_tables(
        rotated, first, second, parts, (1.0, 1e9), np.uint64(7919 * seed)
    )
    exact = np.zeros(tables.shape)
    for start, words in ((0, first), (parts[0], second)):
        runs = -(-20 // words.shape[1])
        padded = np.zeros(runs * words.shape[1])
        padded[:20] = rotated
        exact[start : start + runs] = padded.reshape(runs, -1) @ words.T.astype(np.float64)
    return tables, (multiple, exponent), centres, exact / (multiple * 2.0**exponent), parts


def test_sums_are_off_by_uniform_roundings() -> None:
    """Of some codes, with the centre taken off: of mean zero, the variance of so many uniform numbers, and as rarely
    far off as the margin of ceilings takes for granted. A control without what the centre knows of the rounding."""
    codes, errors, control = np.random.default_rng(1).integers(WORDS, size=64), [], []
    for seed in range(4000):
        tables, _, centres, exact, parts = tables_of(seed)
        chosen = np.arange(parts[1]), codes[: parts[1]]
        errors.append(tables[chosen].sum() - centres[1] - exact[chosen].sum())
        control.append(tables[chosen].sum() + exact.min(axis=1).sum() - exact[chosen].sum())
    law = stats.norm(scale=np.sqrt(parts[1] / 12))  # 20 of them
    assert stats.kstest(errors, law.cdf).pvalue > 1e-3
    assert stats.kstest(control, law.cdf).pvalue < 1e-6
    for p in (0.1, 0.01):
        assert (np.array(errors) < -np.sqrt(parts[1] * np.log(1 / p) / 6)).mean() <= p


def test_products_of_sums_fit_16_bits() -> None:
    """Whatever the codes of a row are, in multiples and from the centre; and the multiple is no smaller than it must
    be."""
    tables, (multiple, _), centres, exact, parts = tables_of(1)
    for count, centre in zip(parts, centres, strict=True):
        largest = max(tables[:count].max(axis=1).sum() - centre, centre - tables[:count].min(axis=1).sum())
        assert multiple * (largest + count / 2) < 2**15
    assert multiple * max(np.ptp(exact, axis=1)) < 127 * (multiple + 1)
    assert multiple > 8 and tables.max() > 100


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
