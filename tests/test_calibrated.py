"""`Calibrated`: what is measured is true of thetas left out; others are bounded; what does not pay is dropped."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.indexes.partition import Calibration
from lazygumbel.methods import Query
from statistics_helpers import chi_square_p, probabilities_of

N, D, TEMPERATURE = 60_000, 24, 0.1
ANYTHING = Calibration(4.0, (0.0, -9.0, 0.0), (1e9, 9.0, 9.0), 1.0, 0.0, 0.0, 0.0, 1, 2.0)
"""Covers every theta."""


@cache
def rows() -> np.ndarray:
    """Clusters of unit rows."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, D))
    found = centres[rng.integers(200, size=N)] + 0.5 * rng.normal(size=(N, D))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@cache
def thetas() -> np.ndarray:
    """Not rows, but like them."""
    rng = np.random.default_rng(1)
    found = rows()[rng.integers(N, size=600)] + 0.3 * rng.normal(size=(600, D)) / np.sqrt(D)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@cache
def bounded() -> lg.LogLinear:
    return lg.LogLinear(lg.PartitionIndex.build(rows(), cells=400, rng=0))


def with_ceilings(far: float) -> lg.LogLinear:
    """Without asking whether they do."""
    index = bounded().index
    assert isinstance(index, lg.PartitionIndex)
    return lg.LogLinear(index.calibrated(replace(ANYTHING, far=far)))


def test_the_distance_that_is_measured_is_that_of_thetas_left_out() -> None:
    model = lg.LogLinear(bounded().index)
    report = model.calibrate(thetas()[:400], temperature=TEMPERATURE)
    assert report.thetas == 200 and report.mean <= report.upper
    if report.accepted:
        assert report.upper <= report.tv == 2.5e-4
    index = bounded().index
    assert isinstance(index, lg.PartitionIndex)
    again = lg.LogLinear(index.calibrated(replace(report, low=ANYTHING.low, high=ANYTHING.high)))
    audit = again.audit(thetas()[400:], temperature=TEMPERATURE, method=lg.Calibrated())
    assert (audit.labels == "calibrated").all() and np.isnan(audit.bound).all()
    assert audit.miss.mean() <= 3 * max(report.upper, 1e-5)


def test_draws_follow_the_softmax_and_with_low_ceilings_do_not() -> None:
    theta = thetas()[0]
    exact = probabilities_of(rows(), theta, TEMPERATURE)

    def p_of(far: float) -> float:
        at = with_ceilings(far)(np.tile(theta, (2000, 1)), temperature=TEMPERATURE)
        drawn = at.sample(25, method=lg.Calibrated(), rng=3)
        assert (drawn.labels == "calibrated").all()
        return chi_square_p(drawn.ids, exact)

    assert p_of(6.0) > 1e-5, "seed 3"
    assert p_of(0.1) < 1e-8, "ceilings at the mean go unnoticed"


def test_the_audit_knows_the_ceilings_of_cells() -> None:
    low, high = (
        with_ceilings(far).audit(thetas()[:20], temperature=TEMPERATURE, method=lg.Calibrated()) for far in (0.5, 6.0)
    )
    assert low.miss.mean() > 10 * high.miss.mean() and low.violations.sum() > high.violations.sum()


def test_far_rows_are_not_scanned_and_still_drawn() -> None:
    model = with_ceilings(5.0)
    query = Query.of(model.index, thetas()[:1], TEMPERATURE)
    ceilings, finer = lg.Calibrated().ceilings(query, 0), lg.Bounded().ceilings(query, 0)
    values, counts = np.unique(ceilings, return_counts=True)
    assert counts.max() > 20 and len(values) < N, "no cell has one ceiling"
    assert np.isfinite(finer).sum() > 0 and len(np.unique(finer)) > len(values)


def test_an_unlike_theta_is_bounded() -> None:
    index = bounded().index
    assert isinstance(index, lg.PartitionIndex)
    narrow = replace(ANYTHING, low=(9.9, -9.0, 0.0), high=(10.1, 9.0, 9.0))
    model = lg.LogLinear(index.calibrated(narrow))
    drawn = model(np.stack([thetas()[0], 3 * thetas()[0]]), temperature=TEMPERATURE).sample(2, rng=0)
    assert drawn.labels.tolist() == ["calibrated", "bounded"]
    assert np.isnan(drawn.bound[0]) and drawn.bound[1] == 1e-4


def test_thetas_as_long_as_those_of_the_calibration_are_covered() -> None:
    """Users of very different lengths: with directions alone, two of five could never be calibrated."""
    lengths = np.random.default_rng(6).lognormal(sigma=0.7, size=600)
    users, index = thetas() * lengths[:, None].astype(np.float32), bounded().index
    assert isinstance(index, lg.PartitionIndex)
    report = lg.LogLinear(index).calibrate(users[:200], temperature=TEMPERATURE)
    model = lg.LogLinear(index.calibrated(report))
    labels = model(users[400:500], temperature=TEMPERATURE).sample(1, rng=0).labels
    assert (labels == "calibrated").mean() > 0.9
    # Control: of users longer than any of these none is.
    longer = model(thetas()[400:420] * np.float32(2 * lengths.max()), temperature=TEMPERATURE).sample(1, rng=0).labels
    assert not (longer == "calibrated").any()


def test_without_replacement_and_exclusion() -> None:
    model = with_ceilings(5.0)
    best = np.argsort(-(rows() @ thetas()[0]))[:50]
    drawn = model(thetas()[:3], temperature=TEMPERATURE).sample_without_replacement(
        20, method=lg.Calibrated(), rng=0, exclude=best
    )
    assert drawn.ids.shape == (20, 3) and not np.isin(drawn.ids, best).any()
    assert all(len(set(ids)) == 20 for ids in drawn.ids.T.tolist())


def test_what_does_not_pay_is_not_kept() -> None:
    model = lg.LogLinear(bounded().index)
    report = model.calibrate(thetas()[:60], temperature=TEMPERATURE, tv=1e-12)
    index = model.index
    assert isinstance(index, lg.PartitionIndex)
    assert report.accepted == (index.calibration is not None)
    slow, wrong = replace(report, speed_up=0.9, upper=0.0), replace(report, upper=1.0)
    assert not slow.accepted and "no quicker" in str(slow)
    assert not wrong.accepted and "above the" in str(wrong)
    assert replace(report, upper=0.0, speed_up=2.0).accepted


def test_rows_stand_in_for_thetas_without_themselves() -> None:
    few = lg.LogLinear(lg.PartitionIndex.build(rows()[:3000], cells=50, rng=0))
    report = few.calibrate(temperature=TEMPERATURE, rng=0)
    assert report.thetas == 500


def test_a_calibration_is_saved(tmp_path: Path) -> None:
    model = with_ceilings(5.0)
    model.save(tmp_path / "model")
    loaded = lg.LogLinear.load(tmp_path / "model")
    assert isinstance(loaded.index, lg.PartitionIndex) and isinstance(model.index, lg.PartitionIndex)
    assert loaded.index.calibration == model.index.calibration
    at = {"temperature": TEMPERATURE}
    assert (
        loaded(thetas()[0], **at).sample(5, rng=0).ids.tolist()
        == model(thetas()[0], **at).sample(5, rng=0).ids.tolist()
    )


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="calibrate needs a PartitionIndex, not ExactIndex"):
        lg.LogLinear.build(rows()[:100]).calibrate()
    with pytest.raises(ValueError, match="thetas has 5 rows"):
        bounded().calibrate(thetas()[:5])
    with pytest.raises(ValueError, match="tv"):
        bounded().calibrate(thetas(), tv=0.0)
    with pytest.raises(ValueError, match=r"call model\.calibrate"):
        bounded()(thetas()[0]).sample(1, method=lg.Calibrated())
    with pytest.raises(ValueError, match="delta"):
        lg.Calibrated(delta=1.0)
