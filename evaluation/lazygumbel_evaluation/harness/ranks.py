"""Many draws of one theta, counted by the rank of the row drawn."""

import numpy as np
import numpy.typing as npt

from lazygumbel.methods import Bounded, Sampler
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.oracle import Oracle
from lazygumbel_evaluation.harness.thetas import Protocol

__all__ = ["SHARED", "count_ranks", "expected_seconds"]

SHARED = 100
"""Draws of `Bounded` that are asked for at once. They share a scan of the codes, but each runs a race of its own: few
enough that the races stay quicker than a dense pass, which would be exact and prove nothing."""
_AT_ONCE = 10_000


def count_ranks(
    bench: Bench, protocol: Protocol, oracle: Oracle, t: int, draws: int, method: Sampler, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """How many of `draws` at theta t fall into each group of ranks of the oracle, (J,)."""
    theta, counts = bench.thetas(protocol)[t], np.zeros(len(oracle.edges), dtype=np.int64)
    dist = bench.model(theta, temperature=bench.temperature)
    at_once = SHARED if isinstance(method, Bounded) else _AT_ONCE
    for start in range(0, draws, at_once):
        drawn = dist.sample(min(at_once, draws - start), method=method, rng=rng).ids
        groups = oracle.groups(t, bench.features.score(drawn, theta))
        counts += np.bincount(groups, minlength=len(counts))
    return counts


def expected_seconds(bench: Bench, draws: int) -> float:
    """Of so many draws at one theta, exact and ours."""
    return 15 * bench.rough_seconds["exact"] + bench.rough_seconds["ours"] * draws / SHARED
