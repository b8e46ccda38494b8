"""The theorems: budgets move as they must, bounds hold exactly and by simulation, the paper's slip is real."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from lazygumbel.budgets import (
    expectation_budget,
    partition_budget,
    partition_failure,
    sampling_budget,
    sampling_failure,
    tail_work,
)

fixed = settings(derandomize=True, deadline=None, max_examples=200)
sizes = st.integers(1, 10**12)
deltas = st.floats(1e-300, 0.999)
gaps = st.floats(0.0, 2000.0)
errors = st.floats(1e-200, 1.999)


# What the budgets are


@fixed
@given(sizes, deltas, gaps, errors)
def test_budgets_are_whole_numbers_up_to_n(n: int, delta: float, gap: float, rel_err: float) -> None:
    for budget in (
        sampling_budget(n, delta, gap=gap),
        partition_budget(n, rel_err, delta, gap=gap),
        expectation_budget(n, rel_err, delta, gap=gap),
    ):
        assert isinstance(budget, int) and 1 <= budget <= n


@fixed
@given(sizes, deltas, gaps, errors, st.floats(1.0, 10.0))
def test_budgets_are_monotone(n: int, delta: float, gap: float, rel_err: float, factor: float) -> None:
    more, stricter, closer = math.ceil(n * factor), delta / factor, rel_err / factor
    assert sampling_budget(more, delta, gap=gap) >= sampling_budget(n, delta, gap=gap)
    assert sampling_budget(n, stricter, gap=gap) >= sampling_budget(n, delta, gap=gap)
    assert sampling_budget(n, delta, gap=gap * factor) >= sampling_budget(n, delta, gap=gap)
    for budget in (partition_budget, expectation_budget):
        least = budget(n, rel_err, delta, gap=gap)
        assert budget(more, rel_err, delta, gap=gap) >= least
        assert budget(n, closer, delta, gap=gap) >= least
        assert budget(n, rel_err, stricter, gap=gap) >= least
        assert budget(n, rel_err, delta, gap=gap * factor) >= least


@fixed
@given(st.integers(100, 10**12), st.floats(1e-12, 0.9), st.floats(0.0, 3.0), st.floats(0.001, 1.9))
def test_budgets_are_enough_and_not_one_too_many(n: int, delta: float, gap: float, rel_err: float) -> None:
    k = sampling_budget(n, delta, gap=gap)
    if k < n:
        assert sampling_failure(n, k, k, gap=gap) <= delta * (1 + 1e-9)
        assert sampling_failure(n, k - 1, k - 1, gap=gap) > delta * (1 - 1e-9)
    k = partition_budget(n, rel_err, delta, gap=gap)
    if k < n:
        assert partition_failure(n, k, k, rel_err, gap=gap) <= delta * (1 + 1e-9)
        assert partition_failure(n, k - 1, k - 1, rel_err, gap=gap) > delta * (1 - 1e-9)
    k = expectation_budget(n, rel_err, delta, gap=gap)
    if k < n:
        second = 2 * math.exp(-(k**3) * rel_err**2 * math.exp(-2 * gap) / (8 * n**2))
        assert partition_failure(n, k, k, rel_err / 2, gap=gap) <= delta / 2 * (1 + 1e-9)
        assert second <= delta / 2 * (1 + 1e-9)


def test_formulae() -> None:
    assert tail_work(10_000, 100) == 100
    assert tail_work(10_000, 100, gap=1.0) == pytest.approx(100 * math.e)
    assert tail_work(10_000, 100, gap=1000.0) == math.inf
    assert sampling_failure(10_000, 200, 300, gap=math.log(2)) == pytest.approx(math.exp(-3))
    assert sampling_budget(1_000_000, 0.01) == math.ceil(1000 * math.sqrt(math.log(100)))
    assert sampling_budget(1_000_000, 0.01, gap=2.0) == math.ceil(1000 * math.sqrt(math.log(100)) * math.e)
    assert partition_failure(10_000, 300, 400, 1.0) == pytest.approx(2 * math.exp(-8 / 9 * 12))
    assert partition_failure(10_000, 1, 1, 0.1) == 1.0
    # For small errors: k l = (n / 2 eps^2) ln(2 / delta), where the proof's last line would ask for 3/2 of that and n.
    assert partition_budget(10**12, 0.001, 0.1) == pytest.approx(1e6 * 1e3 * math.sqrt(math.log(20) / 2), rel=1e-3)
    # k = l of order n^(2/3): the second condition decides when n is large, the first when it is small.
    assert expectation_budget(10**9, 0.5, 0.1) == math.ceil((8e18 / 0.25 * math.log(40)) ** (1 / 3))
    assert expectation_budget(10**9, 0.5, 0.1) > partition_budget(10**9, 0.25, 0.05)
    assert sampling_budget(5, 1e-9) == 5


@pytest.mark.parametrize("budget", [sampling_budget, partition_budget, expectation_budget])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 1.5),
        ("n", "ten"),
        ("n", True),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", -0.1),
        ("delta", math.nan),
        ("delta", "small"),
        ("gap", -0.1),
        ("gap", math.inf),
        ("gap", math.nan),
        ("rel_err", 0.0),
        ("rel_err", -1.0),
        ("rel_err", 2.0),
        ("rel_err", math.nan),
        ("rel_err", None),
    ],
)
def test_out_of_range_is_refused_by_name(budget: Callable[..., int], name: str, value: object) -> None:
    arguments: dict[str, object] = {"n": 100, "delta": 0.1, "gap": 0.5, "rel_err": 0.5}
    if budget is sampling_budget:
        if name == "rel_err":
            return
        del arguments["rel_err"]
    budget(**arguments)
    with pytest.raises(ValueError, match=name):
        budget(**{**arguments, name: value})


# What the bounds promise: sampling


@pytest.mark.parametrize("gap", [0.0, 1.0])
@pytest.mark.parametrize(("n", "k"), [(2000, 60), (500, 20)])
def test_the_work_of_sampling_is_bounded(n: int, k: int, gap: float) -> None:
    """The worst case: head rows at -gap, tail rows at 0. Then Algorithm 1 has B = M - (-gap) - gap = M."""
    rng, times = np.random.default_rng(1), 20_000
    top = -gap + np.log(k) - np.log(rng.standard_exponential(times))
    looked = rng.binomial(n - k, -np.expm1(-np.exp(-top)))
    assert looked.mean() <= tail_work(n, k, gap=gap)
    assert looked.mean() > 0.5 * tail_work(n, k, gap=gap)  # and the bound is no idle one


@pytest.mark.parametrize("gap", [0.0, 1.0])
@pytest.mark.parametrize(("n", "k", "l"), [(2000, 60, 60), (2000, 30, 200), (500, 20, 20), (500, 10, 20)])
def test_the_failures_of_sampling_are_bounded(n: int, k: int, l: int, gap: float) -> None:  # noqa: E741
    """Head rows at -gap, n / l tail rows at 0 and the rest at nothing: the head is often beaten by an unseen row."""
    rng, times, rate, heavy = np.random.default_rng(3), 50_000, l / n, n // l
    top = -gap + np.log(k) - np.log(rng.standard_exponential(times))
    seen = rng.binomial(heavy, rate, size=times)
    # exp(-G) of a row that is not looked at exceeds -log(1 - l/n); their largest Gumbel is the smallest of these.
    hidden = -np.log(-np.log1p(-rate) + rng.standard_exponential(times) / np.maximum(heavy - seen, 1))
    failed = ((hidden > top) & (seen == 0)).mean()  # a row that was looked at beats every hidden one
    assert failed <= sampling_failure(n, k, l, gap=gap)
    if k * l < n * math.exp(gap):
        assert failed > 0.1 * sampling_failure(n, k, l, gap=gap)


def test_sampling_with_a_tenth_of_the_budget_fails() -> None:
    """The theorem's own event: the head's best lies below the cutoff."""
    n, delta = 100_000, 0.01
    rng = np.random.default_rng(2)

    def below(k: int) -> float:
        best = np.log(k) - np.log(rng.standard_exponential(100_000))
        return float((best < -np.log(-np.log1p(-k / n))).mean())

    k = sampling_budget(n, delta)
    assert below(k) <= delta * 1.1  # the bound is tight here
    assert below(k) > delta * 0.5
    assert below(k // 10) > 0.9


# What the bounds promise: the partition function


def failure(n: int, k: int, heavy: int, l: int, rel_err: float, gap: float = 0.0) -> float:  # noqa: E741
    """Pr(|Z_hat - Z| > rel_err Z), exactly, when head rows weigh e^-gap, `heavy` tail rows 1 and all others nothing.

    The draws are then Bernoulli: of all weights in [0, 1] of the same mean these spread the most.
    """
    share = heavy / (n - k)
    allowed = rel_err * (heavy + k * math.exp(-gap)) / (n - k) * l * (1 + 1e-12)
    above = binom.sf(math.floor(l * share + allowed), l, share)
    lowest = math.ceil(l * share - allowed)
    return float(above + (binom.cdf(lowest - 1, l, share) if lowest > 0 else 0.0))


def test_the_partition_bound_is_never_exceeded() -> None:
    tightest = 0.0
    for n in (1000, 100_000, 10_000_000):
        for k in sorted({max(1, n // 1000), n // 100, n // 10, n // 3}):
            for l in (2, 10, 100, 1000, 30_000, 1_000_000):  # noqa: E741
                for rel_err in (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6, 1.9):
                    for gap in (0.0, 1.0):
                        bound = partition_failure(n, k, l, rel_err, gap=gap)
                        if not 1e-300 < bound < 1.0:
                            continue
                        for times in (0.03, 0.1, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 10.0):
                            heavy = min(max(1, round(times * k * math.exp(-gap))), n - k)
                            probability = failure(n, k, heavy, l, rel_err, gap)
                            assert probability <= bound
                            tightest = max(tightest, probability / bound)
    assert tightest > 0.1  # the bound is no idle one


@fixed
@given(
    st.integers(100, 10**7),
    st.floats(0.001, 0.5),
    st.integers(2, 10**6),
    st.floats(0.001, 1.99),
    st.floats(0.0, 2.0),
    st.floats(0.01, 20.0),
)
def test_the_partition_bound_holds_anywhere(
    n: int,
    share: float,
    l: int,  # noqa: E741
    rel_err: float,
    gap: float,
    times: float,
) -> None:
    k = max(1, int(share * n))
    heavy = min(max(1, round(times * k * math.exp(-gap))), n - k)
    assert failure(n, k, heavy, l, rel_err, gap) <= partition_failure(n, k, l, rel_err, gap=gap)


def paper_tail(n: int, k: int, rel_err: float, delta: float) -> int:
    """The l that Theorem 3.4 asks for as printed: k l >= (2/3) (n / rel_err^2) ln(1/delta)."""
    return math.ceil(2 / 3 * n / rel_err**2 * math.log(1 / delta) / k)


@pytest.mark.parametrize(
    ("rel_err", "delta", "heavy"),
    [(1.9, 1e-2, 56), (1.5, 1e-3, 57), (1.2, 1e-4, 52), (1.0, 1e-9, 73), (0.8, 1e-20, 69)],
)
def test_the_theorem_as_printed_is_false(rel_err: float, delta: float, heavy: int) -> None:
    """Large errors and small delta break it: the proof's Chernoff bound holds only for deviations up to the mean."""
    n, k = 1_000_000, 100
    l = paper_tail(n, k, rel_err, delta)  # noqa: E741
    assert l < n
    assert failure(n, k, heavy, l, rel_err) > delta
    # What `partition_failure` asks for at the same k is enough.
    enough = math.ceil(n / k * (2 + rel_err) ** 2 / (8 * rel_err**2) * math.log(2 / delta))
    assert partition_failure(n, k, enough, rel_err) <= delta * (1 + 1e-9)
    assert failure(n, k, heavy, enough, rel_err) <= delta


def test_the_theorem_as_printed_holds_for_small_errors_in_the_extremal_case() -> None:
    """Up to rel_err 1/2 no counterexample was found: there 2 exp(-2 e^2 k l / n) is at most delta for delta <= 1/8."""
    n, k = 1_000_000, 100
    for rel_err in (0.03, 0.1, 0.3, 0.5):
        for delta in (0.3, 0.1, 1e-2, 1e-4, 1e-9):
            l = paper_tail(n, k, rel_err, delta)  # noqa: E741
            assert max(failure(n, k, heavy, l, rel_err) for heavy in range(5, 400, 5)) <= delta
