"""The paper's budgets: what they promise holds, and less is not enough."""

import numpy as np
import numpy.typing as npt
import pytest

from estimate_helpers import Floats, Given, normal_logits
from lazygumbel import (
    UniformTail,
)
from lazygumbel.budgets import expectation_budget, partition_budget

# Budgets


def near_worst(n: int, k: int, gap: float, times: float = 1.0) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Head rows all at the floor, tail rows e^gap above it that weigh `times` the head, the rest at nothing."""
    heavy = max(1, round(times * k * np.exp(-gap)))
    logits = np.full(n, -30.0)
    logits[:k] = -gap
    logits[k : k + heavy] = 0.0
    return logits, np.arange(n)


def flat(n: int, k: int, gap: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Half of the tail at the ceiling, half well below it."""
    logits = np.where(np.arange(n) % 2, 0.0, -3.0)
    logits[:k] = -gap
    return logits, np.arange(n)


def gaussian(n: int, _: int, gap: float) -> tuple[Floats, npt.NDArray[np.int64]]:  # noqa: ARG001
    logits = np.sort(normal_logits(n, 1.5, 9))[::-1]
    return logits, np.arange(n)


def gap_of(index: Given, k: int) -> float:
    """The gap that this head has."""
    head, tail = index.order[:k], index.order[k:]
    return float(index.logits[tail].max() - index.logits[head].min())


@pytest.mark.parametrize("shape", [near_worst, flat, gaussian])
@pytest.mark.parametrize(
    ("n", "rel_err", "delta", "gap"),
    [(2000, 0.5, 0.1, 0.0), (2000, 1.0, 0.05, 0.0), (2000, 0.6, 0.2, 1.0), (20_000, 0.25, 0.1, 0.5)],
)
def test_the_partition_budget_holds(shape, n: int, rel_err: float, delta: float, gap: float) -> None:
    k = partition_budget(n, rel_err, delta, gap=gap)
    assert k < n // 2
    index = Given(*shape(n, k, gap))
    assert gap_of(index, k) <= gap + 1e-6
    method = UniformTail(rel_err=rel_err, delta=delta, gap=gap)
    assert method.budget(n, expectation=False) == (k, k)
    assert failures(index, method, rel_err) <= delta


def failures(index: Given, method: UniformTail, rel_err: float, times: int = 1500) -> float:
    """Share of replications with Z off by more than rel_err."""
    log_z = np.log(np.exp(index.logits).sum())
    estimates = index.copies(times).log_partition(method=method, rng=10).value
    return float((np.abs(np.expm1(estimates - log_z)) > rel_err).mean())


@pytest.mark.parametrize(("n", "rel_err", "delta", "gap"), [(2000, 0.5, 0.1, 0.0), (20_000, 0.25, 0.1, 0.5)])
def test_a_tenth_of_the_partition_budget_fails(n: int, rel_err: float, delta: float, gap: float) -> None:
    k = partition_budget(n, rel_err, delta, gap=gap) // 10
    assert failures(Given(*near_worst(n, k, gap, 3.0)), UniformTail(k, k), rel_err) > delta


def test_an_understated_gap_breaks_the_partition_budget() -> None:
    k = partition_budget(20_000, 0.5, 0.1, gap=0.0)
    logits, order = near_worst(20_000, k, 3.0)  # the head lies 3 below the ceiling, and the budget was not told
    assert failures(Given(logits, order), UniformTail(rel_err=0.5, delta=0.1), 0.5) > 0.1


def signs(n: int, k: int) -> Floats:
    """f = +1 or -1, so that the tail matters most."""
    values = np.random.default_rng(11).choice([-1.0, 1.0], size=n)
    values[:k] = 1.0
    return values


def wrong_expectations(index: Given, method: UniformTail, f: Floats, rel_err: float, times: int = 600) -> float:
    """Share of replications with E[f] off by more than rel_err max |f|, the worst component of f."""
    weights = np.exp(index.logits)
    truth = weights @ f / weights.sum()
    estimates = index.copies(times).expectation(lambda ids: f[ids], method=method, rng=12).value
    return float((np.abs(estimates - truth) > rel_err * np.abs(f).max()).mean(axis=0).max())


@pytest.mark.parametrize("shape", [near_worst, flat, gaussian])
@pytest.mark.parametrize(("rel_err", "delta", "gap"), [(0.3, 0.1, 0.0), (0.5, 0.2, 0.5)])
def test_the_expectation_budget_holds(shape, rel_err: float, delta: float, gap: float) -> None:
    n = 2500
    k = expectation_budget(n, rel_err, delta, gap=gap)
    assert k < n
    index = Given(*shape(n, k, gap))
    assert gap_of(index, k) <= gap + 1e-6
    method = UniformTail(rel_err=rel_err, delta=delta, gap=gap)
    assert method.budget(n, expectation=True) == (k, k)
    scalar = signs(n, k // 2)
    vector = np.stack([scalar, np.roll(scalar, 7), np.linspace(-1, 1, n)], axis=1)
    assert wrong_expectations(index, method, scalar, rel_err) <= delta
    assert wrong_expectations(index, method, vector, rel_err) <= delta


def test_a_thirtieth_of_the_expectation_budget_fails() -> None:
    n, rel_err, delta = 2000, 0.2, 0.1
    k = expectation_budget(n, rel_err, delta) // 30
    index = Given(np.zeros(n), np.arange(n))
    f = signs(n, 0)
    assert wrong_expectations(index, UniformTail(k, k), f, rel_err) > delta
    assert wrong_expectations(index, UniformTail(k, k), np.stack([f, -f], axis=1), rel_err) > delta
