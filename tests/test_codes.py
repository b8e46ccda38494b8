"""Codes of rows: how far a score by code may be off, and that nothing rests on more than that."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import lazygumbel as lg
from lazygumbel.indexes.codes import Codes
from statistics_helpers import chi_square_p

fixed = settings(derandomize=True, deadline=None, max_examples=60)


def scores_by_code(codes: Codes, queries: np.ndarray) -> np.ndarray:
    """In float64, (n, B)."""
    decoded = codes.low.astype(np.float64) + codes.step.astype(np.float64) * codes.bytes
    return decoded @ queries.T.astype(np.float64)


def furthest(codes: Codes, rows: np.ndarray) -> float:
    decoded = codes.low.astype(np.float64) + codes.step.astype(np.float64) * codes.bytes
    return float(np.linalg.norm(decoded - rows, axis=1).max())


@fixed
@given(st.integers(1, 80), st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([1e-20, 1.0, 1e10]))
def test_a_score_by_code_is_within_the_error(n: int, d: int, seed: int, size: float):
    rng = np.random.default_rng(seed)
    rows = (size * rng.normal(size=(n, d)) * np.exp(rng.normal(size=d))).astype(np.float32)
    rows[:, rng.random(d) < 0.2] = rows[0, 0]  # columns that hold one number
    codes = Codes.of(lg.Features.of(rows))
    assert codes.bytes.shape == rows.shape and codes.bytes.dtype == np.uint8
    queries = rng.normal(size=(5, d)).astype(np.float32)
    off = np.abs(scores_by_code(codes, queries) - rows.astype(np.float64) @ queries.T.astype(np.float64))
    assert (off <= codes.error * np.linalg.norm(queries, axis=1)).all()


def test_the_error_is_no_larger_than_it_has_to_be():
    rows = np.random.default_rng(0).normal(size=(5_000, 32)).astype(np.float32)
    codes = Codes.of(lg.Features.of(rows))
    assert furthest(codes, rows) <= codes.error < 1.01 * furthest(codes, rows)
    # Control: with a byte changed, a row is further off than the error says.
    spoilt = codes.bytes.copy()
    spoilt[7, 3] ^= 64
    assert furthest(codes._replace(bytes=spoilt), rows) > codes.error


@pytest.mark.parametrize("largest", [1e-38, 3e38])
def test_numbers_at_the_ends_of_float32(largest: float):
    rows = np.array([[largest, -largest], [-largest, largest], [largest, largest]], dtype=np.float32)
    codes = Codes.of(lg.Features.of(rows))
    assert codes.error >= furthest(codes, rows)


def test_draws_by_codes_follow_the_softmax():
    rows = np.random.default_rng(1).normal(size=(3_000, 8)).astype(np.float32)
    index = lg.PartitionIndex.build(lg.Features.of(rows), cells=60, rng=0)
    calibrated = lg.LogLinear(index)
    calibrated.calibrate(miss=1e-5, rel_err=0.1, rng=0)
    logits = rows.astype(np.float64) @ rows[5] / 2.0
    log_z = logits.max() + np.log(np.exp(logits - logits.max()).sum())

    def p_values(codes: Codes) -> tuple[float, float]:
        """That the rows drawn are from the softmax, and that their values are Gumbel at log Z."""
        held = index.features, index.centroids, index.scales, index.offsets, codes
        model = lg.LogLinear(lg.PartitionIndex(*held, probe=index.probe), calibrated.calibration)
        drawn = model(np.tile(rows[5], (100_000, 1)), temperature=2.0).sample(1, method=lg.Stratified(), rng=5)
        assert drawn.rows.mean() < 1_500, "a dense pass was made: this tests nothing"
        gumbel = stats.kstest(drawn.values.ravel() - log_z, stats.gumbel_r.cdf).pvalue
        return chi_square_p(drawn.ids, np.exp(logits - log_z)), float(gumbel)

    for error in (index.codes.error, 8 * index.codes.error, np.inf):  # a bound, a loose one, and none: rows are read
        assert min(p_values(index.codes._replace(error=error))) > 1e-4, error
    # Controls: codes of other rows, and codes that are off, with an error that is not true.
    wrong = index.codes._replace(bytes=index.codes.bytes[::-1].copy(), error=1e-6)
    coarse = index.codes._replace(step=index.codes.step * np.float32(1.05), error=1e-6)
    assert p_values(wrong)[0] < 1e-10 and min(p_values(coarse)) < 1e-4


def test_log_z_by_codes_is_unbiased():
    rows = np.random.default_rng(2).normal(size=(3_000, 8)).astype(np.float32)
    index = lg.PartitionIndex.build(lg.Features.of(rows), cells=60, rng=0)
    model = lg.LogLinear(index)
    model.calibrate(miss=1e-3, rel_err=0.1, rng=0)
    theta, copies = rows[3], 20_000
    logits = rows.astype(np.float64) @ theta.astype(np.float64) / 4.0
    log_z = float(np.log(np.exp(logits).sum()))
    dist = model(np.tile(theta, (copies, 1)), temperature=4.0)
    # Codes that are off in one direction: without the rows that are read, Z would be off as much.
    coarse = index.codes._replace(low=index.codes.low + np.float32(0.02) * theta / np.float32(theta @ theta))
    object.__setattr__(index, "codes", coarse)
    found = np.exp(dist.log_partition(method=lg.Stratified(rel_err=0.1), rng=0).value - log_z)
    error = found.std() / np.sqrt(copies)
    assert abs(found.mean() - 1) < 4 * error
    assert abs(np.exp(0.02 / 4.0) - 1) > 4 * error  # the control: that is what would have been seen
