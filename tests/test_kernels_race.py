"""Compiled kernels against the NumPy reference: ceilings, scans, draws."""

from math import inf

import numpy as np
import pytest

from kernel_helpers import EVERYTHING, Case, case, copy_of, every_case, index_of, nobody, race_of, some
from lazygumbel.kernels import compiled, reference
from lazygumbel.kernels.types import (
    BIAS,
    BYTES,
    CELL,
    CHUNK,
    COUNT,
    DEVIATIONS,
    FLOOR,
    FULL,
    REFERENCE,
    SCORED,
    SHORT,
    TOP,
    UNIT,
    VIOLATIONS,
    Asked,
    Run,
)


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
    assert ceilings.multiple == expected.multiple > 0 and ceilings.power == expected.power
    np.testing.assert_allclose(ceilings.deviations, expected.deviations, rtol=1e-5)
    np.testing.assert_allclose(ceilings.scores, expected.scores, rtol=1e-5, atol=0.1)  # in units
    far = ceilings.levels == CELL
    np.testing.assert_allclose(ceilings.far[far], expected.far[far], rtol=1e-3)
    np.testing.assert_allclose(ceilings.margins, expected.margins, rtol=1e-6)
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
    asked = Asked(
        1.4, np.linspace(3.3, 3.7, DEVIATIONS), 2.0, 3.0, 2.0, 0.85, 0.5, (inf, inf), (-5.0, 0.0, inf), EVERYTHING
    )
    arguments = index._coded, theta, asked, 1.0, np.uint64(5)
    (_, found, outlook), (_, expected, foreseen) = compiled.prepare(*arguments), reference.prepare(*arguments)
    np.testing.assert_array_equal(found.levels, expected.levels)
    np.testing.assert_array_equal(found.rights, expected.rights)
    assert found.multiple == expected.multiple > 0
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
            asked = held.asked()._replace(quantiles=np.zeros(DEVIATIONS), rounding=0.0)
            theta, ceilings, _ = compiled.prepare(index._coded, held.theta, asked, 1.0, np.uint64(5))
            run = Run(index.coding.sketch, index.rows, theta, ceilings, race_of(index, nobody))
            run.race.state[REFERENCE] = ceilings.shift
            compiled.scan(run, 0, len(run.race.sums))
            found = np.empty(300)
            compiled.all_ceilings(run, found)
            logits = index.rows.rows.astype(np.float64) @ held.theta.astype(np.float64) * asked.scale
            widest = float(index.coding.sketch.widths[level - SHORT].max())
            deviation = theta.turned * asked.scale / np.sqrt(max(d - 1, 1)) * widest
            # Read off bits a ceiling is 0.06 too high on average, and a few units more for rounding.
            assert (found - logits).std() < deviation + 0.06 < logits.std() / 7
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


def test_set_reference_of_a_scan_at_a_higher_temperature() -> None:
    for held in (case(33, (4, 3), 0.5, FULL), case(40, (6, 3), 0.01, FULL, power=12.0)):
        run, outlook = held.scanned(nobody)
        twin = copy_of(run)
        found, expected = compiled.set_reference(run, outlook), reference.set_reference(twin, outlook)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        np.testing.assert_allclose(run.race.state, twin.race.state, rtol=1e-6)
        np.testing.assert_allclose(run.race.weights, twin.race.weights, rtol=1e-3)
