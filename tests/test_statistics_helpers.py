"""The judge is judged: right draws pass as often as the level says, wrong ones do not, and one bin is no test."""

import numpy as np
import pytest
from scipy import stats

from statistics_helpers import chi_square_p, mean_p

STATES = 300
LAWS = {
    "flat": np.full(STATES, 1 / STATES),
    "geometric": 0.9 ** np.arange(STATES) / (0.9 ** np.arange(STATES)).sum(),
    "a few heavy ones": np.concatenate([np.full(5, 0.19), np.full(STATES - 5, 0.05 / (STATES - 5))]),
    "one heavy, a rest of 8 draws": np.concatenate([[0.996], np.full(STATES - 1, 0.004 / (STATES - 1))]),
    "one of all but 1e-100": np.concatenate([[1.0], np.full(STATES - 1, 1e-100)]),
}


def draws(law: np.ndarray, size: int, rounds: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(STATES, size=(rounds, size), p=law / law.sum())


@pytest.mark.parametrize("name", LAWS)
def test_right_draws_are_refused_as_rarely_as_the_level_says(name):
    rounds = 2_000
    found = np.array([chi_square_p(ids, LAWS[name]) for ids in draws(LAWS[name], 2_000, rounds, 1)])
    assert ((found >= 0) & (found <= 1)).all()
    for level in (0.001, 0.01, 0.1):
        refused = int((found <= level).sum())
        assert stats.binomtest(refused, rounds, level, "greater").pvalue > 1e-4, f"seed 1: {refused} at {level}"
    if name in ("flat", "geometric"):  # control: it is no judge that accepts everything
        assert (found <= 0.1).mean() > 0.05


@pytest.mark.parametrize("name", LAWS)
def test_wrong_draws_are_refused(name):
    """Some of the draws, or all, from the second half of the states."""
    law = LAWS[name] / LAWS[name].sum()
    assert chi_square_p(draws(law, 20_000, 1, 2)[0], law) > 1e-4, "seed 2"
    half = np.where(np.arange(STATES) < STATES // 2, 0.0, 2 / STATES)
    for wrong in (0.8 * law + 0.2 * half, half):
        p = chi_square_p(draws(wrong, 20_000, 1, 2)[0], law)
        assert p < 1e-10, f"seed 2: p = {p}"


def test_states_that_never_occur_have_a_bin_of_their_own():
    """Merged with the heavy state, as they once were, 20,000 draws of one of them passed with p = 1."""
    law = np.array([1.0, 5e-127, 5e-127])
    right = np.zeros(20_000, dtype=np.int64)
    assert chi_square_p(right, law) == 1.0
    assert chi_square_p(np.full(20_000, 1), law) == 0.0
    once = right.copy()
    once[77] = 2
    assert chi_square_p(once, law) < 1e-100
    assert chi_square_p(once, np.array([1.0, 0.0, 1.0 / 20_000])) > 0.1  # control: where it may occur, it may


def test_a_draw_of_a_rare_state_is_no_crime():
    """By chi square one draw of a state that expects 0.01 would have p = 1e-22."""
    ids = np.zeros(1_000, dtype=np.int64)
    ids[0] = 1
    assert 0.005 < chi_square_p(ids, [1 - 1e-5, 1e-5]) < 0.03
    ids[1] = 1
    assert chi_square_p(ids, [1 - 1e-5, 1e-5]) < 1e-3


def test_impossible_states_and_ids_beyond_the_last():
    law, ids = np.array([0.5, 0.0, 0.5]), np.arange(1_000) % 2 * 2
    assert chi_square_p(ids, law) == 1.0
    for wrong in (1, 3):
        assert chi_square_p(np.append(ids, wrong), law) == 0.0


def test_one_bin_is_refused():
    for ids, law in (
        (np.zeros(1_000, dtype=np.int64), [1.0]),
        (np.zeros(1_000, dtype=np.int64), [1.0, 0.0]),
        (np.ones(1_000, dtype=np.int64), [1.0, 0.0]),
        (np.arange(10), np.full(10, 0.1)),
        (np.arange(0), np.full(10, 0.1)),
    ):
        with pytest.raises(ValueError, match="one bin"):
            chi_square_p(ids, law)
    assert chi_square_p(np.arange(400) % 10, np.full(10, 0.1)) == 1.0


def test_the_p_value_of_a_mean():
    rng = np.random.default_rng(3)
    found = np.array([mean_p(rng.normal(2.0, 5.0, 400), 2.0) for _ in range(1_000)])
    assert stats.kstest(found, "uniform").pvalue > 1e-4, "seed 3"
    assert mean_p(rng.normal(2.0, 5.0, 40_000), 1.5) < 1e-10
