"""Closed forms of what samplers miss, against simulated Gumbels; the paper's bound against both."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazygumbel import (
    FixedCutoff,
)
from lazygumbel._support.arrays import Floats, Mask
from lazygumbel.methods.draw import log_sum_exp
from lazygumbel.methods.fixed_cutoff import miss_fixed, paper_bound
from lazygumbel.methods.lazy import miss_adaptive

fixed = settings(derandomize=True, deadline=None, max_examples=150)


def head_of(logits: Floats, k: int, *, without: int = 0) -> Mask:
    """The top k, except the best `without` of them: a bad head."""
    head = np.zeros(len(logits), dtype=np.bool_)
    head[np.argsort(-logits)[without : k + without]] = True
    return head


def normal(n: int, spread: float, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(scale=spread, size=n)


def z_of(hits: npt.NDArray[np.bool_], probability: float) -> float:
    """How many standard errors lie between a simulated rate and a probability."""
    return float((hits.mean() - probability) / math.sqrt(probability * (1 - probability) / len(hits)))


def gumbels(times: int, n: int, seed: int = 0) -> Floats:
    return -np.log(np.random.default_rng(seed).standard_exponential((times, n)))


# Fixed cutoffs


@pytest.mark.parametrize("without", [0, 1, 5])
@pytest.mark.parametrize("spread", [0.3, 2.0])
@pytest.mark.parametrize("varied", [False, True])
def test_the_miss_of_a_fixed_cutoff(without: int, spread: float, varied: bool) -> None:
    n, times = 40, 150_000
    logits, noise = normal(n, spread), gumbels(times, n)
    head = head_of(logits, 8, without=without)
    cutoff = np.linspace(2.5, 1.0, n) if varied else np.full(n, 1.8)
    winner = (logits + noise).argmax(axis=1)
    missed = ~head[winner] & (noise[np.arange(times), winner] <= cutoff[winner])
    miss = miss_fixed(logits, head, cutoff if varied else 1.8)
    assert abs(z_of(missed, miss)) < 4
    # Controls: a cutoff that is a little off, and log Z taken over the head alone.
    assert abs(z_of(missed, miss_fixed(logits, head, cutoff + 0.4))) > 4
    p = np.exp(logits - log_sum_exp(logits))
    wrong = (p * np.exp(-np.exp(log_sum_exp(logits[head]) - logits - cutoff)))[~head].sum()
    assert abs(z_of(missed, wrong)) > 4


def test_the_ends_of_the_cutoff() -> None:
    logits = normal(30, 1.0)
    head = head_of(logits, 5)
    p = np.exp(logits - log_sum_exp(logits))
    assert miss_fixed(logits, head, -np.inf) == 0.0
    assert miss_fixed(logits, head, np.inf) == pytest.approx(p[~head].sum())
    assert miss_fixed(logits, np.ones(30, np.bool_), np.inf) == 0.0
    rows = np.where(np.arange(30) % 2, np.inf, -np.inf)
    assert miss_fixed(logits, head, rows) == pytest.approx(p[~head & np.isinf(rows) & (rows > 0)].sum())
    assert miss_fixed(logits + 5000, head, 1.0) == pytest.approx(miss_fixed(logits, head, 1.0))


# The adaptive cutoff


@pytest.mark.parametrize("without", [0, 1, 6])
@pytest.mark.parametrize("gap", [0.0, 0.7])
def test_the_miss_of_the_adaptive_cutoff(without: int, gap: float) -> None:
    n, times = 40, 150_000
    logits, noise = normal(n, 1.2, 1), gumbels(times, n, 1)
    head = head_of(logits, 8, without=without)
    floor = float(logits[head].min())
    perturbed = logits + noise
    winner = perturbed.argmax(axis=1)
    cutoff = perturbed[:, head].max(axis=1) - floor - gap  # Algorithm 1
    missed = ~head[winner] & (noise[np.arange(times), winner] <= cutoff)
    miss = miss_adaptive(logits, head, floor, gap)
    if not without:
        assert miss == 0.0 and not missed.any()
        return
    assert abs(z_of(missed, miss)) < 4
    # Controls: the gap a little off, and M taken as if it were not conditioned to lie below the winner.
    assert abs(z_of(missed, miss_adaptive(logits, head, floor, gap + 0.1))) > 4
    log_z = log_sum_exp(logits)
    excess = np.maximum(logits[~head] - floor - gap, 0)
    share = np.exp(log_sum_exp(logits[head]) - log_z)
    unconditioned = (np.exp(logits[~head] - log_z) * share * np.expm1(excess) / np.exp(excess)).sum()
    assert abs(z_of(missed, unconditioned)) > 4


def test_a_gap_that_is_large_enough_never_misses() -> None:
    logits = normal(50, 2.0, 2)
    head = head_of(logits, 10, without=7)
    floor = float(logits[head].min())
    true_gap = float(logits[~head].max() - floor)
    assert miss_adaptive(logits, head, floor, true_gap) == 0.0
    assert miss_adaptive(logits, head, floor, 0.9 * true_gap) > 0.0
    # However high a row towers, a head of k rows hides it with probability k / (1 + k) at least; no more than h e^e.
    grown = np.exp(logits[head] - floor).sum()
    for height in (50.0, 2000.0):
        towering = miss_adaptive(np.append(logits, height), np.append(head, False), floor)
        assert towering == pytest.approx(grown / (1 + grown)) and towering > 10 / 11


# Total variation


def outcome(logits: Floats, cutoffs: Floats) -> Floats:
    """Exact distribution of the row that a fixed-cutoff sampler returns, by quadrature; cutoff -inf: always seen.

    Row j is returned with Gumbel g > B_j when every other row i is unseen or lower: F(max(y_j + g - y_i, B_i)).
    """
    levels = np.linspace(-4.0, 40.0, 40_001)  # of y + G
    density = np.empty((len(logits), len(levels)))
    for j, y in enumerate(logits):
        g = levels - y
        log_below = -np.exp(-np.maximum(levels[:, None] - logits, cutoffs))
        log_below[:, j] = -g - np.exp(-g)  # the density of G_j
        density[j] = np.where(g > cutoffs[j], np.exp(log_below.sum(axis=1)), 0.0)
    return np.trapezoid(density, levels, axis=1)


@pytest.mark.parametrize("cutoff", [-1.0, 0.0, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("without", [0, 2])
def test_the_miss_bounds_the_total_variation_distance(cutoff: float, without: int) -> None:
    logits = normal(9, 1.0, 3)
    head = head_of(logits, 3, without=without)
    returned = outcome(logits, np.where(head, -np.inf, cutoff))
    p = np.exp(logits - log_sum_exp(logits))
    assert returned.sum() == pytest.approx(1.0, abs=2e-3)
    distance = 0.5 * np.abs(returned - p).sum()
    miss = miss_fixed(logits, head, cutoff)
    assert distance <= miss + 1e-3
    if miss > 0.01:
        assert distance > 0.3 * miss  # the bound says something
        # Control: at a cutoff much lower the closed form no longer bounds it.
        assert distance > miss_fixed(logits, head, cutoff - 1.5) + 2e-3


def test_truncation_misses_exactly_the_total_variation_distance() -> None:
    logits = normal(9, 1.0, 3)
    head = head_of(logits, 3)
    p = np.exp(logits - log_sum_exp(logits))
    truncated = np.where(head, p, 0.0) / p[head].sum()
    assert miss_fixed(logits, head, np.inf) == pytest.approx(0.5 * np.abs(truncated - p).sum())


# The paper's bound


@st.composite
def cases(draw: st.DrawFn) -> tuple[Floats, Mask, float]:
    n = draw(st.integers(2, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    logits = rng.normal(scale=draw(st.sampled_from([0.0, 0.5, 2.0, 10.0])), size=n) + draw(st.floats(-500, 500))
    head = rng.random(n) < draw(st.floats(0.0, 1.0))
    head[rng.integers(n)] = True
    return logits, head, draw(st.one_of(st.floats(-3, 12), st.sampled_from([-np.inf, np.inf])))


@fixed
@given(cases())
def test_the_papers_bound_is_never_below_the_miss(case: tuple[Floats, Mask, float]) -> None:
    logits, head, cutoff = case
    bound, miss = paper_bound(logits, head, cutoff), miss_fixed(logits, head, cutoff)
    assert 0.0 <= miss <= bound * (1 + 1e-9) <= 1 + 1e-9
    assert math.copysign(1.0, bound) == 1.0  # no -0.0


def naive_bound(logits: Floats, head: Mask, cutoff: float, x: float) -> float:
    """Section 4.2.1, word for word: 1 - Pr(head max > x) Pr(no unseen row exceeds x)."""
    below = np.exp(-np.exp(-(x - logits)))
    unseen_above = np.maximum(np.exp(-np.exp(-cutoff)) - below, 0.0)[~head]
    return float(1 - (1 - np.prod(below[head])) * np.prod(1 - unseen_above))


@fixed
@given(cases())
def test_the_threshold_is_near_the_best(case: tuple[Floats, Mask, float]) -> None:
    logits, head, cutoff = case
    logits = logits - log_sum_exp(logits[head])
    found = paper_bound(logits, head, cutoff)
    with np.errstate(over="ignore"):
        grid = [naive_bound(logits, head, cutoff, x) for x in np.linspace(-9.0, 12.0, 1500)]
    assert found <= min(grid) + 1e-3
    assert found >= min(grid) - 0.01  # and it is that bound, not a smaller number


def test_the_papers_bound_really_bounds_and_can_be_loose() -> None:
    n, times = 40, 100_000
    logits, noise = normal(n, 1.0, 7), gumbels(times, n, 7)
    head = head_of(logits, 8, without=1)
    winner = (logits + noise).argmax(axis=1)
    missed = ~head[winner] & (noise[np.arange(times), winner] <= 1.5)
    bound = paper_bound(logits, head, 1.5)
    assert missed.mean() < bound < 1
    # Control: a threshold chosen for the head alone, that forgets the unseen rows, bounds nothing.
    assert missed.mean() > naive_bound(logits, np.ones(n, np.bool_), 1.5, float(logits.max()) - 4)


def test_tiny_probabilities_are_not_rounded_to_zero() -> None:
    """The bound is what a reader compares with the miss: 0 where the miss is 1e-40 would be a lie."""
    logits, n = np.zeros(1000), 1000
    for k, l in ((300, 300), (600, 200), (100, 500)):  # noqa: E741
        head, cutoff = np.arange(n) < k, FixedCutoff(k, l).cutoff(n)
        miss, bound = miss_fixed(logits, head, cutoff), paper_bound(logits, head, cutoff)
        assert 0 < miss < 1e-12 and miss <= bound < 1e-9
