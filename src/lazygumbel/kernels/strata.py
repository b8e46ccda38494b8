"""Rows chosen for sums: two from each stratum of equal weight, with probability in proportion to their ceilings."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.decorators import exact_kernel
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.race import block_ceilings, chunk_at, position_of, score
from lazygumbel.kernels.types import BLOCK, CHUNK, GROUP, REFERENCE, Run, Sample

__all__ = ["sample_strata", "weigh_sample"]

_AHEAD = 64
"""Rows that are prefetched before they are scored."""


@exact_kernel
def _place(seed: np.uint64, chosen: int, width: float) -> float:
    """Where on the line of all weights the next row is chosen: two places in each stratum, the smaller first."""
    stratum = chosen // 2
    one, other = uniform(seed, 2 * stratum), uniform(seed, 2 * stratum + 1)
    return (stratum + (min(one, other) if chosen % 2 == 0 else max(one, other))) * width


@exact_kernel
def sample_strata(run: Run, seed: np.uint64, first: int, last: int, sample: Sample) -> None:
    race, found, chosen = run.race, run.race.found, first
    positions, ratios = sample.positions, sample.ratios
    stratum = race.ends[-1] / (positions.shape[0] // 2)
    place = _place(seed, first, stratum)
    chunk = chunk_at(race, place)
    end = race.ends[chunk - 1] if chunk > 0 else 0.0
    for block in range(chunk * CHUNK, race.weights.shape[0]):
        start, end = end, end + race.weights[block]
        if place >= end:
            continue
        # One, unless the scan was at another temperature: then a block may weigh more than its rows.
        stretch = block_ceilings(run, block, found) / race.weights[block]
        lane, reached = 0, found[0]
        while chosen < last and place < end:
            while lane < BLOCK - 1 and (place - start) * stretch >= reached:
                lane += 1
                reached += found[lane]
            while found[lane] == 0.0:  # after rounding
                lane -= 1
            positions[chosen], ratios[chosen] = position_of(run.sketch, block, lane), found[lane] / stretch
            sample.widths[chosen] = run.sketch.widths[(BLOCK // GROUP) * block + lane // GROUP]
            chosen += 1
            place = _place(seed, chosen, stratum)
        if chosen == last:
            break
    for k in range(chosen, last):  # after rounding
        positions[k], ratios[k] = positions[chosen - 1], ratios[chosen - 1]
        sample.widths[k] = sample.widths[chosen - 1]
    for k in range(first, last):
        prefetch(run.rows.rows, positions[min(k + _AHEAD, last - 1)])
        sample.logits[k] = score(run, positions[k])
        ratios[k] = np.exp2(sample.logits[k] - race.state[REFERENCE]) / ratios[k]


@exact_kernel
def weigh_sample(
    ratios: npt.NDArray[np.float64], widths: npt.NDArray[np.float32], unit: float, quantile: float
) -> tuple[float, float, float, float]:
    total, squares, expected, up, down, pairs = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    m = ratios.shape[0]
    for k in range(m):
        deviation = min(unit * np.float64(widths[k]), 20.0)
        square = deviation * deviation
        total += ratios[k]
        squares += ratios[k] * ratios[k]
        expected += ratios[k] * np.expm1(square)
        up += ratios[k] * np.exp(square + quantile * deviation)
        down += ratios[k] * np.exp(square - quantile * deviation)
    for k in range(0, m - 1, 2):
        pairs += (ratios[k] - ratios[k + 1]) ** 2
    if total == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    variance = max(m * squares / total**2 - 1.0, expected / total)
    return total / m, variance, pairs / m**2, np.sqrt(max(up / total * (down / total) - 1.0, 0.0))
