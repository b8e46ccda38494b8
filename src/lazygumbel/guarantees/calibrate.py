"""How high the one ceiling of a far cell has to be, measured by brute force on thetas.

Half of the thetas choose: the lowest ceiling whose mean total variation distance may well meet the target. The other
half judge it: accepted only if an upper confidence bound of their mean does, and if draws by it are quicker. The mean
is made by rare thetas, so that the bound counts the worst that was seen several times over.
"""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from time import perf_counter
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel._support.threads import map_threads, one_blas_thread
from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.indexes.partition.calibration import features_of
from lazygumbel.methods import Bounded, Calibrated, Query, Sampler
from lazygumbel.progress import Progress

__all__ = ["calibrate"]


_FAR = tuple(float(far) for far in np.arange(2.0, 10.1, 0.125))
"""Standard deviations that are tried."""
_SAFETY = 0.6
"""Of the target that the thetas which choose must meet, so that those which judge are likely to agree."""
_WORST = 3.0
"""How many more thetas as bad as the worst there may be, at 95%, among as many as were seen: the rule of three."""
_TIMED, _SECONDS = 40, 0.5
_BATCH = 32


class _Measured(NamedTuple):
    """Of some thetas."""

    distance: Floats
    """Total variation distance for each height of ceilings, (thetas, heights)."""
    features: Floats
    """What thetas are told apart by, (thetas, 3)."""


def calibrate(index: PartitionIndex, query: Query, own: Ints | None, tv: float, progress: Progress) -> Calibration:
    """Fit and judge ceilings for far cells on the thetas of a query; `own` are ids to leave out, one for each theta."""
    half = query.size // 2
    measured = _measure(index, query, own, progress)
    chosen = measured.distance[:half]
    possible = [k for k in range(len(_FAR)) if _upper(chosen[:, k]) <= _SAFETY * tv]
    k = possible[0] if possible else len(_FAR) - 1
    judged = measured.distance[half:, k]
    low, high = measured.features.min(axis=0), measured.features.max(axis=0)
    candidate = Calibration(
        _FAR[k],
        (float(low[0]), float(low[1]), float(low[2])),
        (float(high[0]), float(high[1]), float(high[2])),
        tv,
        float(judged.mean()),
        float(judged.max()),
        _upper(judged),
        len(judged),
        1.0,
    )
    with progress.task("timing draws", 1) as task:
        speed_up = _speed_up(index.calibrated(candidate), query)
        task.advance(1)
    return replace(candidate, speed_up=speed_up)


def _upper(distances: Floats) -> float:
    """A bound of the mean at about 95%: two standard errors, and more thetas like the worst."""
    count = len(distances)
    error = float(distances.std(ddof=1)) / sqrt(count)
    return float(distances.mean()) + 2 * error + _WORST * float(distances.max()) / count


def _measure(index: PartitionIndex, query: Query, own: Ints | None, progress: Progress) -> _Measured:
    distance, features = np.empty((query.size, len(_FAR))), np.empty((query.size, 3))
    stored, offsets = index.features.stored, index.partition.offsets
    counts = np.diff(offsets)
    positions = None if own is None else index.features.locate(own)
    with progress.task("measuring thetas", query.size) as task, one_blas_thread():
        for start in range(0, query.size, _BATCH):
            some = range(start, min(start + _BATCH, query.size))
            logits = query.thetas[start : start + len(some)] @ stored.T
            logits /= np.float32(query.temperature)

            def one(b: int, own_logits: Vectors) -> None:
                if positions is not None:
                    own_logits[positions[b]] = -np.inf
                distance[b], features[b] = _distances(index, query, b, own_logits, counts)

            for _ in map_threads(one, some, logits):
                task.advance(1)
    return _Measured(distance, features)


def _distances(
    index: PartitionIndex, query: Query, b: int, logits: Vectors, counts: Ints
) -> tuple[Floats, tuple[float, float, float]]:
    """Mass that far cells lose to ceilings that are too low, for each height; by position."""
    top = logits.max()
    weights = np.exp(logits - top)
    total, out = float(weights.sum(dtype=np.float64)), np.zeros(len(_FAR))
    foresight = index.foresee(query.thetas[b], query.temperature, _FAR[0])
    # Rows above the lowest of all ceilings: for others nothing is lost.
    lowest = np.repeat(foresight.ceilings.astype(np.float32), counts)
    above = np.flatnonzero(logits > lowest)
    cell_of = np.searchsorted(index.partition.offsets, above, side="right") - 1
    for k, far in enumerate(_FAR):
        foresight = index.foresee(query.thetas[b], query.temperature, far)
        ceilings = np.exp(np.minimum(foresight.ceilings - float(top), 80.0))
        ceilings[~foresight.far] = np.inf
        lost = weights[above] - ceilings[cell_of]
        still = lost > 0.0  # higher ceilings are too low for fewer rows, of fewer cells
        out[k], above, cell_of = float(lost[still].sum()) / total, above[still], cell_of[still]
    norm = foresight.norm
    return out, features_of(norm / query.temperature, norm, foresight.outlook)


def _speed_up(index: PartitionIndex, query: Query) -> float:
    """Of draws by the calibration over those by all codes, theta by theta, taking turns."""
    rng, each = np.random.default_rng(0), range(min(_TIMED, query.size))
    queries = [Query.of(index, query.thetas[b], query.temperature) for b in each]

    def seconds(method: Sampler) -> Callable[[Query], float]:
        def timed(one: Query) -> float:
            start = perf_counter()
            method.sample(one, 1, rng)
            return perf_counter() - start

        return timed

    bounded, calibrated = seconds(Bounded()), seconds(Calibrated())
    for timed in (bounded, calibrated):
        timed(queries[0])
    ratios: list[float] = []
    deadline = perf_counter() + _SECONDS
    while len(ratios) < len(queries) or perf_counter() < deadline:
        one = queries[len(ratios) % len(queries)]
        ratios.append(bounded(one) / calibrated(one))
    return float(np.median(ratios))
