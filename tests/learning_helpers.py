"""A small model to be fitted, and what is known of its optimum."""

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.optimize import minimize

import lazygumbel as lg
from statistics_helpers import clustered_rows

N, D, CLUSTERS = 3_000, 8, 40
SHORT = {"iterations": 300, "halve_every": 100, "learning_rate": 10.0}
"""Ends within 0.000001 nats of the optimum when gradients are exact."""
LENGTH = {"iterations": 120, "halve_every": 40}


def rows() -> np.ndarray:
    return clustered_rows(N, D, CLUSTERS, seed=5)


IDS = np.argsort(-(rows() @ rows()[7]))[:64:4]
"""Related rows whose mean lies well inside the hull of all, so that the optimum is finite: at a norm of 14."""


@cache
def model() -> lg.LogLinear:
    index = lg.PartitionIndex.build(lg.Features.of(rows(), names=[f"row{i}" for i in range(N)]), cells=64, rng=0)
    return lg.LogLinear.build(index.features, index=index, rng=0)


def log_likelihood(theta: np.ndarray, weights: np.ndarray | None = None, temperature: float = 1.0) -> float:
    """By the definition, in float64."""
    logits = rows().astype(np.float64) @ theta / temperature
    log_z = logits.max() + np.log(np.exp(logits - logits.max()).sum())
    return float(np.average(logits[IDS], weights=weights) - log_z)


def gradient(objective: Callable[[np.ndarray], float], theta: np.ndarray) -> np.ndarray:
    """Central differences."""
    steps = 1e-5 * np.eye(D)
    return np.array([objective(theta + e) - objective(theta - e) for e in steps]) / 2e-5


@cache
def optimum() -> float:
    return -minimize(lambda theta: -log_likelihood(theta), np.zeros(D), method="BFGS").fun
