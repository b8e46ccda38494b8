"""Compiled kernels against the NumPy reference: strata, sums, the best rows."""

import numpy as np
import pytest

from kernel_helpers import NOBODY, Case, case, copy_of, every_near_case, every_plain_case, nobody, race_of, some
from lazygumbel.indexes.partition.cost import for_sums
from lazygumbel.kernels import compiled, reference
from lazygumbel.kernels.batches import Sample
from lazygumbel.kernels.types import (
    COUNT,
    FULL,
    REFERENCE,
    SHORT,
)


@every_near_case
def test_sample_strata_and_estimate_from_sample(case: Case) -> None:
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
        arguments = found.ratios, found.deviations
        np.testing.assert_allclose(
            compiled.estimate_from_sample(*arguments), reference.estimate_from_sample(*arguments), rtol=1e-6, atol=1e-9
        )


@every_plain_case
@pytest.mark.parametrize("least", [0.0, 1e-4])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0])
def test_score_wide(case: Case, quantile: float, least: float) -> None:
    """All rows are certain, the wider half, or none; or those of them that may weigh something."""
    run, _ = case.scanned(some)
    run.race.state[REFERENCE] = run.ceilings.shift
    twin = copy_of(run)
    widest = {0.0: 0.0, 1.0: 1.001}.get(quantile, 1.0) * float(np.quantile(reference._deviations(run), quantile))
    found = compiled.score_wide(run, (widest, widest), least)
    assert found == reference.score_wide(twin, (widest, widest), least)
    if found:
        np.testing.assert_allclose(run.race.state[:4], twin.race.state[:4], rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(run.race.ceilings, twin.race.ceilings)
        np.testing.assert_allclose(run.race.ends, twin.race.ends, rtol=1e-4)
    assert least > 0 or (run.race.state[COUNT] > 0) == (quantile < 1.0)


@every_plain_case
def test_sample_to(case: Case) -> None:
    seeds = np.array([1, 2, 3], dtype=np.uint64)
    sizes = []
    for rel_err in (0.5, 0.02, 0.005, 1e-6):
        run, outlook = case.scanned(some)
        compiled.set_reference(run, outlook)
        twin = copy_of(run)
        rules = rel_err, 100.0 * case.n, (0.8, 0.5)
        found, expected = compiled.sample_to(run, rules, seeds), reference.sample_to(twin, rules, seeds)
        assert abs(len(found.positions) - len(expected.positions)) <= 0.02 * len(expected.positions)
        sizes.append(len(found.positions))
        assert run.race.state[COUNT] == twin.race.state[COUNT]
        if len(found.positions) == len(expected.positions) > 0:
            assert (found.positions == expected.positions).mean() > 0.98
    assert sizes[0] in (256, 0) and sizes[-1] in (0, 256)  # no more than allowed; or nothing is left to chance


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
    np.testing.assert_allclose(found.estimate.mean, expected.estimate.mean, rtol=0.02)
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
    nothing = np.zeros(4), np.ones(4, dtype=np.float32)
    assert compiled.estimate_from_sample(*nothing) == reference.estimate_from_sample(*nothing) == (0.0,) * 5


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
