"""Every compiled kernel against its NumPy twin. A kernel without a test here fails."""

import os
import subprocess
import sys
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from lazygumbel import PartitionIndex, kernels
from lazygumbel.kernels import compiled, reference
from lazygumbel.kernels.codes import weigh_block
from lazygumbel.kernels.dot import dot, lay_out
from lazygumbel.kernels.nibbles import exp2_block
from lazygumbel.kernels.types import BLOCK, EXP2_ERROR, FLOOR, TOP, Asked, Run, Sample

fixed = settings(derandomize=True, deadline=None, max_examples=60)
LENGTHS = 1, 2, 3, 7, 15, 16, 17, 33, 70
"""Of rows: below, at and above the width of a vector."""


def test_every_kernel_has_a_twin_and_is_named_here() -> None:
    assert set(kernels.__all__) == set(compiled.__all__) == set(reference.__all__)
    with open(__file__) as file:
        text = file.read()
    assert [name for name in kernels.__all__ if f"compiled.{name}(" not in text] == []


def test_kernels_release_the_lock_and_are_kept_on_disk() -> None:
    for name in compiled.__all__:
        dispatcher = getattr(compiled, name)
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


@fixed
@given(m=st.integers(1, 20), d=st.sampled_from(LENGTHS), width=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_encode_nibbles(m: int, d: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = matrix(rng, (m, d)), matrix(rng, (16, width)), 2 * -(-d // (2 * width))
    found, expected = compiled.encode_nibbles(*arguments), reference.encode_nibbles(*arguments)
    np.testing.assert_array_equal(found[0], expected[0])
    for a, b in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


@fixed
@given(m=st.integers(1, 128), positions=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_interleave(m: int, positions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 16, (m, 2 * positions)).astype(np.uint8)
    slots = rng.permutation(3 * BLOCK)[:m]
    found, expected = np.zeros((2, 3, positions, BLOCK), dtype=np.uint8)
    compiled.interleave(codes, slots, found)
    reference.interleave(codes, slots, expected)
    np.testing.assert_array_equal(found, expected)


@fixed
@given(
    d=st.sampled_from(LENGTHS), width=st.integers(1, 6), most=st.sampled_from([2, 16, 128]), seed=st.integers(0, 10**6)
)
def test_lookup_tables(d: int, width: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = matrix(rng, (d,)), matrix(rng, (16, width)), -(-d // (2 * width)), most, np.uint64(seed)
    found, expected = compiled.lookup_tables(*arguments), reference.lookup_tables(*arguments)
    assert found[0].max() < most
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-12, atol=1e-12)
    # A number may lie so close to where it is rounded the other way that a different order of additions decides.
    differences = np.abs(found[0].astype(int) - expected[0])
    assert differences.max() <= 1 and (differences > 0).mean() < 0.01


def test_tables_are_right_on_average() -> None:
    rng = np.random.default_rng(0)
    rotated, codebook = matrix(rng, (8,)), matrix(rng, (16, 2))
    exact = rotated.reshape(4, 2).astype(np.float64) @ codebook.T.astype(np.float64)
    found = []
    for seed in range(2000):
        tables, step, base = compiled.lookup_tables(rotated, codebook, 2, 16, np.uint64(7919 * seed))
        found.append(tables.reshape(4, 16) * step + base / 4)
    error = np.mean(found, axis=0) + exact.min(axis=1, keepdims=True) - base / 4 - exact
    assert np.abs(error).max() < 5 * step / np.sqrt(2000)
    assert np.abs(found[0] + exact.min(axis=1, keepdims=True) - base / 4 - exact).max() > step / 4  # one alone is not


@njit
def _exp2(exponents: np.ndarray, alive: np.ndarray) -> tuple[np.ndarray, float]:
    out = np.empty(BLOCK, dtype=np.float32)
    return out, exp2_block(exponents, alive, 0, out)


def test_exp2_is_within_its_error_and_its_range() -> None:
    everyone = np.array([2**64 - 1], dtype=np.uint64)
    for exponents in np.random.default_rng(0).uniform(FLOOR, TOP, (500, BLOCK)).astype(np.float32):
        found, total = _exp2(exponents, everyone)
        assert np.abs(np.log2(found.astype(np.float64)) - exponents).max() < EXP2_ERROR
        np.testing.assert_allclose(total, found.sum(dtype=np.float64), rtol=1e-5)
    found, _ = _exp2(np.full(BLOCK, -1e30, dtype=np.float32), everyone)
    assert (found == np.float32(2.0**FLOOR)).all()
    found, _ = _exp2(np.full(BLOCK, 1e30, dtype=np.float32), everyone)
    assert (found == np.float32(2.0**TOP)).all()
    found, total = _exp2(np.zeros(BLOCK, dtype=np.float32), np.array([5], dtype=np.uint64))
    assert found.tolist() == [1.0, 0.0, 1.0] + [0.0] * 61 and total == 2.0


class Setting(NamedTuple):
    """A small index, a theta and how it is asked."""

    index: PartitionIndex
    theta: np.ndarray
    temperature: float
    delta: float

    def run(self, excluded: np.ndarray, seed: int = 1) -> tuple[Run, float]:
        return self.index.enter(self.theta, self.temperature, delta=self.delta, seed=seed, excluded=excluded)


def setting(d: int, coordinates: int, temperature: float, delta: float, seed: int = 0, n: int = 700) -> Setting:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, d)) * rng.lognormal(sigma=0.5, size=(n, 1))).astype(np.float32)
    index = PartitionIndex.build(rows, cells=9, coordinates=coordinates, rng=seed)
    return Setting(index, rng.normal(size=d).astype(np.float32), temperature, delta)


SETTINGS = [
    (5, 1, 1.0, 1e-4),
    (17, 2, 2.0, 1e-2),
    (33, 4, 6.0, 1e-4),
    (40, 1, 0.2, 1e-4),  # so cold that the scan is at a higher temperature
    (20, 3, 1.0, 0.0),  # by bytes
    (20, 3, 0.05, 0.0),
]
nobody = np.empty(0, dtype=np.int64)


@pytest.mark.parametrize("case", SETTINGS)
def test_prepare(case: tuple[int, int, float, float]) -> None:
    held = setting(*case)
    asked = Asked(1.4 / held.temperature, 3.0, 2.0, case[3] == 0.0)
    for power in (1.0, 3.0):
        arguments = held.index._coded, held.theta, asked, power, np.uint64(5)
        found, expected = compiled.prepare(*arguments), reference.prepare(*arguments)
        for a, b in zip(
            (*found[0], *found[1][1:], *found[2:]), (*expected[0], *expected[1][1:], *expected[2:]), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", SETTINGS)
def test_scan(case: tuple[int, int, float, float]) -> None:
    run, _ = setting(*case).run(np.arange(0, 700, 3))
    twin = deepcopy(run)
    for one in (run, twin):
        one.race.weights[:] = one.race.sums[:] = -1.0
    chunks = len(run.race.sums)
    compiled.scan(run, 0, chunks)
    reference.scan(twin, 0, chunks)
    np.testing.assert_allclose(run.race.weights, twin.race.weights, rtol=2e-3 if run.ceilings.by_bytes else 1e-5)
    np.testing.assert_allclose(run.race.sums, twin.race.sums, rtol=2e-3 if run.ceilings.by_bytes else 1e-5)


def test_weights_of_codes_are_the_same_to_the_bit() -> None:
    run, _ = setting(33, 4, 0.5, 1e-4).run(np.arange(0, 700, 3))
    out = np.empty(BLOCK, dtype=np.float32)
    for block in range(len(run.race.weights)):
        weigh_block(run, block, out)
        np.testing.assert_array_equal(out, reference.weigh_block(run, block))
    run.sketch.codes.flags.writeable = True
    run.sketch.codes[0, 0, 2] ^= 1
    weigh_block(run, 0, out)
    changed = out.copy()
    run.sketch.codes[0, 0, 2] ^= 1
    weigh_block(run, 0, out)
    assert (changed != out).sum() == 1  # a control: one bit of a code counts, for one row


@pytest.mark.parametrize("case", SETTINGS)
def test_settle_and_all_ceilings(case: tuple[int, int, float, float]) -> None:
    held = setting(*case)
    run, low = held.run(nobody)
    twin = deepcopy(run)
    assert compiled.settle(run, low) == reference.settle(twin, low)
    np.testing.assert_allclose(run.race.state[:4], twin.race.state[:4], rtol=1e-3, atol=1e-6)
    count = int(run.race.state[0])
    np.testing.assert_array_equal(run.race.positions[:count], twin.race.positions[:count])
    np.testing.assert_array_equal(run.race.alive, twin.race.alive)
    np.testing.assert_allclose(run.race.ends[-1], twin.race.ends[-1], rtol=5e-3)
    found, expected = np.full((2, held.index.features.n), np.inf)
    compiled.all_ceilings(run, found)
    reference.all_ceilings(twin, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)
    assert np.isposinf(found).sum() == count


@pytest.mark.parametrize("case", SETTINGS[:3])
def test_score_above(case: tuple[int, int, float, float]) -> None:
    run, low = setting(*case).run(nobody)
    assert compiled.settle(run, low)
    twin, before = deepcopy(run), int(run.race.state[0])
    left = np.full(700, np.inf)
    compiled.all_ceilings(run, left)
    heavy = float(np.exp2(left[np.isfinite(left)].max() - run.race.state[2])) / 2
    assert compiled.score_above(run, heavy) and reference.score_above(twin, heavy)
    np.testing.assert_allclose(run.race.state[:4], twin.race.state[:4], rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(run.race.alive, twin.race.alive)
    left[:] = np.inf
    compiled.all_ceilings(run, left)
    assert (
        int(run.race.state[0]) > before and (left[np.isfinite(left)] <= np.log2(heavy) + run.race.state[2] + 1e-9).all()
    )


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("case", SETTINGS)
def test_draw(case: tuple[int, int, float, float], distinct: bool) -> None:
    run, low = setting(*case).run(np.arange(0, 700, 3))
    assert compiled.settle(run, low)
    twin = deepcopy(run)
    size = 20 if case[2] >= 1.0 else 5
    found, expected = np.empty((2, size), dtype=np.int64)
    values, twin_values = np.empty((2, size))
    drawn, time = compiled.draw(run, np.uint64(3), 10**5, found, values, distinct)
    twin_drawn, twin_time = reference.draw(twin, np.uint64(3), 10**5, expected, twin_values, distinct)
    assert drawn == twin_drawn == size
    np.testing.assert_allclose(time, twin_time, rtol=1e-3)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(values, twin_values, rtol=1e-6, atol=1e-3)
    assert not distinct or len(set(found.tolist())) == size
    compiled.draw(run, np.uint64(4), 10**5, expected, twin_values, False)
    assert case[2] < 1.0 or (found != expected).any()  # another seed, other draws; where there is anything to draw


def test_draw_gives_up_when_it_runs_out_of_patience() -> None:
    run, low = setting(33, 4, 6.0, 1e-9).run(nobody)
    compiled.settle(run, low)
    twin = deepcopy(run)
    room = np.empty(100, dtype=np.int64), np.empty(100)
    drawn, time = compiled.draw(run, np.uint64(3), 10, *room, False)
    assert 0 <= drawn < 100 and time >= 0.0
    assert drawn == reference.draw(twin, np.uint64(3), 10, *room, False)[0]
    assert compiled.draw(run, np.uint64(3), 10**9, *room, False)[0] == 100


@pytest.mark.parametrize("case", SETTINGS[:3])
def test_sample_strata(case: tuple[int, int, float, float]) -> None:
    run, low = setting(*case).run(np.arange(0, 700, 3))
    compiled.settle(run, low)
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
        arguments = found.ratios, found.widths, 1.7, 3.7
        np.testing.assert_allclose(compiled.weigh_sample(*arguments), reference.weigh_sample(*arguments), rtol=1e-6)
    nothing = np.zeros(4), np.ones(4, dtype=np.float32), 1.0, 3.7
    assert compiled.weigh_sample(*nothing) == reference.weigh_sample(*nothing) == (0.0,) * 4


@pytest.mark.parametrize("k", [1, 10, 100])
@pytest.mark.parametrize("case", SETTINGS[:3])
def test_top_rows(case: tuple[int, int, float, float], k: int) -> None:
    run, _ = setting(*case).run(np.arange(0, 700, 3))
    (found, logits), (expected, twin_logits) = compiled.top_rows(run, k), reference.top_rows(run, k)
    assert len(set(found.tolist())) == len(found) and set(expected.tolist()) <= set(found.tolist())
    by_position = dict(zip(found.tolist(), logits.tolist(), strict=True))
    np.testing.assert_allclose([by_position[p] for p in expected.tolist()], twin_logits, rtol=1e-5, atol=1e-5)
    assert k > 1 or len(found) < 400  # not simply all of them


_DRAWS = """
import numpy as np, lazygumbel as lg
rng = np.random.default_rng(0)
rows = rng.normal(size=(3000, 40)).astype(np.float32)
model = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))
dist = model(rng.normal(size=(20, 40)), temperature=3.0)
print(dist.sample(10, rng=1).ids.tolist(), dist.sample_without_replacement(5, rng=2).ids.tolist())
"""


def test_a_generic_processor_gives_the_same_draws() -> None:
    def draws(**settings: str) -> str:
        command = [sys.executable, "-c", _DRAWS]
        return subprocess.run(command, env=os.environ | settings, check=True, capture_output=True, text=True).stdout

    assert draws() == draws(NUMBA_CPU_NAME="generic")
