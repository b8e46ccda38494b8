"""Rows chosen for sums: two from each stratum of equal weight, with probability in proportion to their ceilings."""

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.codes import level_of
from lazygumbel.kernels.decorators import exact_kernel, helper
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.race import block_rate, chunk_at, make_certain, position_of, rate_at, row_at, score
from lazygumbel.kernels.types import BLOCK, BYTES, CHUNK, FIXED_POINT, GROUP, REFERENCE, SHORT, Run, Sample

__all__ = ["sample_strata", "score_wide", "weigh_sample"]

_AHEAD, _BLOCKS_AHEAD = 64, 8
"""Rows, and ceilings of blocks, that are prefetched before they are needed."""
_LARGEST = 20.0


@helper
def _place(seed: np.uint64, chosen: int, width: float) -> float:
    """Where on the line of all weights the next row is chosen: two places in each stratum, the smaller first."""
    stratum = chosen // 2
    one, other = uniform(seed, 2 * stratum), uniform(seed, 2 * stratum + 1)
    return (stratum + (min(one, other) if chosen % 2 == 0 else max(one, other))) * width


@helper
def _choose_blocks(run: Run, seed: np.uint64, first: int, last: int, sample: Sample) -> None:
    """The block that each place falls into, and how far into it: in `positions` and `ratios` for now."""
    race, positions = run.race, sample.positions
    stratum = race.ends[-1] / (positions.shape[0] // 2)
    place = _place(seed, first, stratum)
    block = CHUNK * chunk_at(race, place)
    start = race.ends[block // CHUNK - 1] if block > 0 else 0.0
    heaviest = block
    for chosen in range(first, last):
        place = _place(seed, chosen, stratum)
        while block < race.weights.shape[0] - 1 and place >= start + race.weights[block]:
            start += race.weights[block]
            block += 1
        if race.weights[block] > 0.0:
            heaviest = block
        positions[chosen], sample.ratios[chosen] = heaviest, max(place - start, 0.0)


@helper
def _width(run: Run, block: int, group: int) -> float:
    """Of the rows of a group, by what their ceilings are known by. Bytes err in no particular direction, nearly; twice
    the width that this comes to."""
    level, place = level_of(run, block), (BLOCK // GROUP) * block + group
    if level == BYTES:
        return (
            2.0
            * run.rows.error
            * np.float64(run.rows.steps[min(run.sketch.firsts[place], run.rows.steps.shape[0] - 1), 0])
        )
    return np.float64(run.sketch.widths[level - SHORT, place])


@exact_kernel
def sample_strata(run: Run, seed: np.uint64, first: int, last: int, sample: Sample) -> None:
    race, positions, ratios, stretch = run.race, sample.positions, sample.ratios, 1.0
    _choose_blocks(run, seed, first, last, sample)
    for k in range(first, last):
        prefetch(race.ceilings, positions[min(k + _BLOCKS_AHEAD, last - 1)])
        block = positions[k]
        if run.ceilings.power != 1.0:  # a block may weigh more than its rows
            stretch = block_rate(run, block) / race.weights[block]
        lane = row_at(run, block, ratios[k] * stretch)
        sample.widths[k] = _width(run, block, lane // GROUP)
        positions[k], ratios[k] = position_of(run.sketch, block, lane), rate_at(run, block, lane) / stretch
        prefetch(run.rows.rows, positions[k])
        if k >= first + _AHEAD:
            sample.logits[k - _AHEAD] = score(run, positions[k - _AHEAD])
    for k in range(max(first, last - _AHEAD), last):
        sample.logits[k] = score(run, positions[k])
    for k in range(first, last):
        ratios[k] = np.exp2(sample.logits[k] - race.state[REFERENCE]) / ratios[k]


@helper
def _expm1(x: float) -> float:
    """e^x - 1 for x up to a few, to some percent: without a call, which would take as long as the scan of a block."""
    return x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))))


@exact_kernel
def score_wide(run: Run, unit: float, widest: float) -> float:
    race, running, expected = run.race, 0.0, 0.0
    for chunk in range(race.sums.shape[0]):
        race.sums[chunk] = 0.0
        for block in range(chunk * CHUNK, min((chunk + 1) * CHUNK, race.weights.shape[0])):
            deviation, certain = 0.0, False
            for group in range(BLOCK // GROUP):
                one = unit * _width(run, block, group)
                if one <= widest:
                    deviation = max(deviation, one)
                    continue
                certain = True
                for lane in range(GROUP * group, GROUP * (group + 1)):
                    if rate_at(run, block, lane) > 0.0 and not make_certain(run, block, lane):
                        return np.inf
            if certain:
                race.weights[block] = block_rate(run, block)
            race.sums[chunk] += race.weights[block]
            expected += race.weights[block] * _expm1(deviation * deviation)
        running += race.sums[chunk]
        race.ends[chunk] = running
    return expected / running if running > 0.0 else 0.0


@exact_kernel
def weigh_sample(
    ratios: npt.NDArray[np.float64], widths: npt.NDArray[np.float32], unit: float
) -> tuple[float, float, float, float]:
    total, squares, expected, pairs, fourth = 0.0, 0.0, 0.0, 0.0, 0.0
    m = ratios.shape[0]
    for k in range(m):
        deviation = min(unit * np.float64(widths[k]), _LARGEST)
        total += ratios[k]
        squares += ratios[k] * ratios[k]
        expected += ratios[k] * np.expm1(deviation * deviation)
    for k in range(0, m - 1, 2):
        between = (ratios[k] - ratios[k + 1]) ** 2
        pairs += between
        fourth += between * between
    if total == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    if fourth > 0.0:
        # Where a few pairs make the variance it is as uncertain as with so few: about what the
        # quantiles of Student's law are wider, and a little more, because such differences are skewed.
        freedom = max(3.0 * pairs / fourth * pairs, 2.0)
        pairs *= (1.0 + 2.0 / freedom + 2.0 / (freedom * freedom)) ** 2
    moment = (1.0 + expected / total) * (1.0 + FIXED_POINT)
    return total / m, m * squares / total**2 - 1.0, pairs / m**2, np.sqrt(moment * moment - 1.0)
