"""The Gumbel toolbox against scipy and against high-precision decimals."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from lazygumbel.methods.gumbel import cutoff_of_rate, gumbel, gumbel_above, gumbel_max, tail_count, tail_probability
from statistics_helpers import mean_p

CUTOFFS = (-700.0, -50.0, -5.0, -1.0, 0.0, 3.0, 20.0, 35.0, 100.0, 700.0)
DRAWS = 100_000
ALPHA = 1e-5


def above_cdf(cutoff: float):
    """Distribution function of a Gumbel conditioned above the cutoff, in scipy's logs: 1 - S(x) / S(cutoff)."""

    def log_survival(x: np.ndarray) -> np.ndarray:
        # scipy's logsf of a Gumbel loses its digits where the density underflows: there it is -x.
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(np.asarray(x) > 30, -np.asarray(x), stats.gumbel_r.logsf(x))

    return lambda x: -np.expm1(log_survival(x) - log_survival(np.asarray(cutoff)))


def exact_tail(cutoff: float) -> Decimal:
    """1 - exp(-exp(-cutoff)) to 60 digits."""
    with localcontext() as context:
        context.prec = 400 if cutoff < 700 else 800
        rate = (-Decimal(cutoff)).exp()
        return 1 - (-rate).exp() if rate < 10_000 else Decimal(1)


def test_standard_gumbels():
    values = gumbel(np.random.default_rng(1), DRAWS)
    p = stats.kstest(values, stats.gumbel_r.cdf).pvalue
    assert p > ALPHA, f"seed 1: p = {p}"
    control = stats.kstest(values + 0.05, stats.gumbel_r.cdf).pvalue
    assert control < 1e-10, f"a shift of 0.05 goes unnoticed: p = {control}"


@pytest.mark.parametrize("shape", [(), 7, (2, 3), (0,)])
def test_shapes(shape):
    rng = np.random.default_rng(2)
    wanted = shape if isinstance(shape, tuple) else (shape,)
    assert gumbel(rng, shape).shape == wanted
    assert gumbel_above(rng, 1.0, shape).shape == wanted
    assert gumbel_above(rng, np.full(wanted, 1.0)).shape == wanted
    assert tail_count(rng, np.full(wanted, 5), 1.0).shape == wanted
    assert gumbel_max(rng, np.full(wanted, 1.0)).shape == wanted


@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_gumbels_above_a_cutoff(cutoff):
    values = gumbel_above(np.random.default_rng(3), np.full(DRAWS, cutoff))
    assert np.isfinite(values).all()
    assert (values >= cutoff).all()
    p = stats.kstest(values, above_cdf(cutoff)).pvalue
    assert p > ALPHA / len(CUTOFFS), f"seed 3, cutoff {cutoff}: p = {p}"
    control = stats.kstest(values + 0.05, above_cdf(cutoff)).pvalue
    assert control < 1e-10, f"cutoff {cutoff}: a shift of 0.05 goes unnoticed: p = {control}"


def test_gumbels_above_mixed_cutoffs_broadcast():
    cutoffs = np.array(CUTOFFS)
    values = gumbel_above(np.random.default_rng(4), cutoffs, (DRAWS // 10, len(cutoffs)))
    for column, cutoff in zip(values.T, CUTOFFS, strict=True):
        p = stats.kstest(column, above_cdf(cutoff)).pvalue
        assert p > ALPHA / len(CUTOFFS), f"seed 4, cutoff {cutoff}: p = {p}"
    free = gumbel_above(np.random.default_rng(4), -np.inf, DRAWS)
    p = stats.kstest(free, stats.gumbel_r.cdf).pvalue
    assert p > ALPHA, f"seed 4, no cutoff: p = {p}"


def test_conditional_gumbels_rebuild_the_unconditional_ones():
    """Each of n Gumbels is above B with known probability: counts, then values above, give the maximum of n."""
    rng, n, cutoff, rounds = np.random.default_rng(5), 50, 1.0, 50_000
    counts = tail_count(rng, np.full(rounds, n), cutoff)
    owner = np.repeat(np.arange(rounds), counts)
    largest = np.full(rounds, -np.inf)
    np.maximum.at(largest, owner, gumbel_above(rng, np.full(len(owner), cutoff)))
    seen = largest[counts > 0]
    below = stats.gumbel_r.cdf(cutoff - np.log(n))
    p_none = stats.binomtest(int((counts == 0).sum()), rounds, below).pvalue

    def cdf(x: np.ndarray) -> np.ndarray:
        return (stats.gumbel_r.cdf(x - np.log(n)) - below) / (1 - below)

    p_values = stats.kstest(seen, cdf).pvalue
    assert min(p_none, p_values) > ALPHA, f"seed 5: p = {p_none}, {p_values}"


@pytest.mark.parametrize("cutoff", [*CUTOFFS, -3.5, -2.0, -0.1, 1e-9, 10.0, 30.0, 36.0, 40.0, 300.0])
def test_tail_probability_is_accurate(cutoff):
    exact = exact_tail(cutoff)
    found = Decimal(float(tail_probability(cutoff)))
    assert abs(found / exact - 1) < Decimal("1e-15") * 4, f"cutoff {cutoff}"


@pytest.mark.parametrize("rate", [1e-300, 1e-100, 1e-17, 1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999999])
def test_cutoff_of_rate_is_accurate_and_inverts(rate):
    with localcontext() as context:
        context.prec = 400
        exact = -(-(1 - Decimal(rate)).ln()).ln()
    found = float(cutoff_of_rate(rate))
    assert abs(Decimal(found) - exact) <= Decimal("4e-16") * max(1, abs(exact))
    # A cutoff of c is only known to |c| eps, and the rate falls by one e-fold for each unit of it.
    assert float(tail_probability(found)) == pytest.approx(rate, rel=max(1e-14, abs(found) * 4e-16))


@pytest.mark.parametrize("cutoff", [-3.0, -1.0, 0.0, 3.0, 20.0, 35.0, 100.0, 700.0])
def test_tail_probability_inverts(cutoff):
    # Near rate 1 the spacing of floats limits what can come back: at -3, 1 - rate is 2e-9.
    assert float(cutoff_of_rate(tail_probability(cutoff))) == pytest.approx(cutoff, rel=1e-7 if cutoff < -2 else 1e-13)


def test_the_ends_of_the_scale():
    assert cutoff_of_rate(1.0) == -np.inf
    assert cutoff_of_rate(0.0) == np.inf
    assert tail_probability(-np.inf) == 1.0
    assert tail_probability(np.inf) == 0.0
    assert tail_probability(-1e5) == 1.0
    assert tail_probability(1e5) == 0.0


@pytest.mark.parametrize("n", [1, 30, 10**4, 10**8, 10**12])
def test_tail_count_moments(n):
    rng, size = np.random.default_rng(6), 20_000
    cutoffs = [*CUTOFFS, 10.0, float(np.log(n)), float(np.log(n)) - 3, float(np.log(n)) + 2]
    for cutoff in cutoffs:
        counts = tail_count(rng, np.full(size, n), cutoff)
        assert counts.dtype == np.int64 and counts.min() >= 0 and counts.max() <= n
        p = float(exact_tail(cutoff))
        mean, variance = n * p, n * p * float((-(-Decimal(cutoff)).exp()).exp()) if cutoff > -6 else 0.0
        if variance * size < 10:  # next to nothing happens: Poisson
            surprise = stats.poisson.sf(min(counts.sum(), (n - counts).sum()) - 1, max(variance * size, 1e-300))
            assert surprise > ALPHA / 100, f"seed 6, n {n}, cutoff {cutoff}"
            continue
        z_mean = (counts.mean() - mean) / np.sqrt(variance / size)
        kurtosis = 3 + (1 - 6 * p * (1 - p)) / variance
        z_variance = (((counts - mean) ** 2).mean() / variance - 1) / np.sqrt((kurtosis - 1) / size)
        assert abs(z_mean) < 5.5 and abs(z_variance) < 5.5, f"seed 6, n {n}, cutoff {cutoff}: {z_mean}, {z_variance}"


def test_tail_count_broadcasts():
    counts = tail_count(np.random.default_rng(7), 10**6, np.array([-700.0, 700.0]))
    assert counts.tolist() == [10**6, 0]
    assert tail_count(np.random.default_rng(7), 0, np.array([-700.0, 0.0])).tolist() == [0, 0]
    assert tail_count(np.random.default_rng(7), 5, np.empty(0)).shape == (0,)


def test_tail_count_control():
    """The moment test must see a count that is off by one part in a hundred."""
    size, n, cutoff = 20_000, 10**6, 5.0
    counts = tail_count(np.random.default_rng(8), np.full(size, n), cutoff + 0.01)
    assert mean_p(counts, n * float(tail_probability(cutoff))) < 1e-10


def test_maximum_of_many():
    rng = np.random.default_rng(9)
    brute = gumbel(rng, (20_000, 30)).max(axis=1)
    quick = gumbel_max(rng, np.full(20_000, np.log(30)))
    p = stats.ks_2samp(brute, quick).pvalue
    assert p > ALPHA, f"seed 9: p = {p}"
    logits = np.array([0.3, -2.0, 1.7, 500.0 - 499.0])
    brute = (logits + gumbel(rng, (50_000, 4))).max(axis=1)
    quick = gumbel_max(rng, np.full(50_000, np.log(np.exp(logits).sum())))
    p = stats.ks_2samp(brute, quick).pvalue
    assert p > ALPHA, f"seed 9, with locations: p = {p}"
    control = stats.ks_2samp(brute, quick + 0.1).pvalue
    assert control < 1e-10, f"a shift of 0.1 goes unnoticed: p = {control}"
