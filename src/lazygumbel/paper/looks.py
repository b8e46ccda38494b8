"""Many draws of one theta, counted by the rank of the row drawn."""

import numpy as np
import numpy.typing as npt

from lazygumbel.methods import Sampler
from lazygumbel.paper.bench import Bench

__all__ = ["count_ranks"]

_AT_ONCE = 10_000


def count_ranks(
    bench: Bench, t: int, draws: int, method: Sampler, rng: np.random.Generator, *, apart: bool = False
) -> npt.NDArray[np.int64]:
    """How many of `draws` at theta t fall into each group of ranks of the oracle, (J,).

    `apart` asks for every draw by itself: many draws of one theta would otherwise share one dense pass, which is
    cheaper than many looks, and nothing would be learnt about those.
    """
    theta, counts = bench.thetas[t], np.zeros(len(bench.oracle.edges), dtype=np.int64)
    for start in range(0, draws, _AT_ONCE):
        size = min(_AT_ONCE, draws - start)
        if apart:
            copies = np.tile(theta, (size, 1))
            drawn = bench.model(copies, temperature=bench.temperature).sample((), method=method, rng=rng).ids
        else:
            drawn = bench.model(theta, temperature=bench.temperature).sample(size, method=method, rng=rng).ids
        groups = bench.oracle.groups(t, bench.features.score(drawn, theta))
        counts += np.bincount(groups, minlength=len(counts))
    return counts
