"""Rows chosen for sums: two from each stratum of equal weight, with probability in proportion to their ceilings."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.kernels.batches import Sample, SampleEstimate
from lazygumbel.kernels.codes import largest_weight, level_of
from lazygumbel.kernels.contest import enter, open_race, run_of, set_reference
from lazygumbel.kernels.decorators import exact_kernel, helper, maker, part
from lazygumbel.kernels.numbers import uniform
from lazygumbel.kernels.packed import read_race, read_stored
from lazygumbel.kernels.prefetch import prefetch
from lazygumbel.kernels.race import (
    add_up,
    block_rate,
    chunk_at,
    make_certain,
    position_of,
    rate_at,
    refine,
    row_at,
    score,
    sum_chunk,
)
from lazygumbel.kernels.sharing import ARGUMENT, SAMPLE, close_mailbox, open_mailbox, post_sample, sample_on
from lazygumbel.kernels.types import (
    BLOCK,
    BYTES,
    CHUNK,
    COUNT,
    FIXED_POINT,
    FULL,
    GROUP,
    MAILBOX,
    MASS,
    REFERENCE,
    SHORT,
    Asked,
    Outlook,
    Run,
)

__all__ = ["estimate_from_sample", "sample_strata", "sample_theta", "sample_to", "sample_upper", "score_wide"]

_AHEAD, _BLOCKS_AHEAD = 64, 8
"""Rows, and ceilings of blocks, that are prefetched before they are needed."""
_LARGEST = 18.0
_PILOT, _LEAST = 64, 256.0
"""Rows of a first sample, which tells whether the codes are worth what they claim, and rows to sample at least."""
_OFTEN, _MOST = 128.0, 0.7
"""A row of more than one over the first of what is left to chance would be sampled twice, or more often: it is scored.
If that leaves less than the second, as a share, others are such rows now."""
_SMALL, _TOO_LOW = 0.1, 3.0
"""Share of the error asked for that a row may weigh and be left to chance, and standard deviations that its estimate
may be too low then."""
_FAR_OFF = 2.0
"""How much larger the variance of the pilot is then, at least."""
_ASSURED, _ROOM = 0.6, 1.25
"""A group is as wide as its widest row, so that the law of the codes asks for too much. What it asks for at least, as a
share, where a pilot finds less; and times what that found."""
_LEAST_MASS = 2.0**-60
"""In units of what all rows were expected to weigh: where the rows that hold the mass are excluded, the weights of what
is left are cut off, or vanish."""


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
    chunk, chunks, blocks = chunk_at(race, _place(seed, first, stratum)), race.ends.shape[0], race.weights.shape[0]
    entered, block, heavy, start = -1, 0, 0, 0.0
    for chosen in range(first, last):
        place = _place(seed, chosen, stratum)
        while chunk < chunks - 1 and race.ends[chunk] <= place:
            chunk += 1
        if chunk != entered:
            entered, block, start = chunk, CHUNK * chunk, race.ends[chunk - 1] if chunk > 0 else 0.0
            heavy = block
        while block < min(CHUNK * (chunk + 1), blocks) - 1 and place >= start + race.weights[block]:
            start += race.weights[block]
            heavy = block if race.weights[block] > 0.0 else heavy
            block += 1
        if race.weights[block] > 0.0:  # by rounding, a place may lie beyond the last
            heavy = block
        positions[chosen], sample.ratios[chosen] = heavy, max(place - start, 0.0)


@helper
def _deviation(run: Run, block: int, group: int) -> float:
    """Standard deviation, in nats, of what the rows of a group are known by: of codes with the rounding of tables.
    Bytes err in no particular direction, nearly: twice as much as that comes to."""
    level, place, deviations = level_of(run, block), (BLOCK // GROUP) * block + group, run.ceilings.deviations
    if level == BYTES:
        step = np.float64(run.rows.steps[min(run.sketch.firsts[place], run.rows.steps.shape[0] - 1), 0])
        return float(2.0 * run.rows.error * step * run.theta.norm / max(run.theta.turned, 1e-300) * deviations[0])
    width = deviations[0] * np.float64(run.sketch.widths[level - SHORT, place])
    rounding = (deviations[1] if level == SHORT else deviations[2]) * _gain(run, run.sketch.cells[place])
    return np.sqrt(width * width + rounding * rounding)


@helper
def _gain(run: Run, cell: int) -> float:
    """As large as those of a cell are: at most twice this, by the power of two that they are in units of."""
    return 2.0 / np.float64(1 << (run.ceilings.rights[cell] + 2))


@part
def sample_strata(run: Run, seed: np.uint64, first: int, last: int, sample: Sample) -> None:
    race, positions, ratios, per_weight = run.race, sample.positions, sample.ratios, 1.0
    _choose_blocks(run, seed, first, last, sample)
    for k in range(first, last):
        prefetch(race.ceilings, positions[min(k + _BLOCKS_AHEAD, last - 1)])
        block = positions[k]
        if run.ceilings.power != 1.0:  # a block may weigh more than its rows
            per_weight = block_rate(run, block) / race.weights[block]
        lane = row_at(run, block, ratios[k] * per_weight)
        sample.deviations[k] = _deviation(run, block, lane // GROUP)
        positions[k], ratios[k] = position_of(run.sketch, block, lane), rate_at(run, block, lane) / per_weight
        prefetch(run.rows.rows, positions[k])
        if k >= first + _AHEAD:
            sample.logits[k - _AHEAD] = score(run, positions[k - _AHEAD])
    for k in range(max(first, last - _AHEAD), last):
        sample.logits[k] = score(run, positions[k])
    for k in range(first, last):
        ratios[k] = np.exp2(sample.logits[k] - race.state[REFERENCE]) / ratios[k]


@part
def score_wide(run: Run, widest: tuple[float, float], least: float) -> bool:
    race, sketch, ceilings = run.race, run.sketch, run.ceilings
    add_up(race)
    least *= race.ends[-1]
    for cell in range(ceilings.levels.shape[0]):
        # A block with rows of two cells may be looked at more closely than this one asks for.
        if ceilings.levels[cell] == BYTES or not (
            (ceilings.levels[cell] == FULL or _narrow(run, cell, 0, widest[0])) and _narrow(run, cell, 1, widest[1])
        ):
            for place in range(sketch.starts[cell], sketch.starts[cell + 1]):
                block = place // 2
                deviation, most = _deviation(run, block, place % 2), widest[int(level_of(run, block) > SHORT)]
                small = least * np.exp(-_TOO_LOW * deviation)
                if deviation > most and not _score_group(run, block, place % 2, small):
                    return False
    add_up(race)
    return True


@helper
def _narrow(run: Run, cell: int, part: int, most: float) -> bool:
    """Whether no row of a cell is known worse than this by a part of its codes."""
    deviations = run.ceilings.deviations
    width = deviations[0] * np.float64(run.sketch.largest[part, cell])
    rounding = deviations[1 + part] * _gain(run, cell)
    return bool(width * width + rounding * rounding <= most * most)


@helper
def _score_group(run: Run, block: int, group: int, least: float) -> bool:
    """Score the rows of a group that weigh more than this; False if there is no more room."""
    if largest_weight(run, block) <= least:
        return True
    for lane in range(GROUP * group, GROUP * (group + 1)):
        if rate_at(run, block, lane) > least and not make_certain(run, block, lane):
            return False
    run.race.weights[block] = block_rate(run, block)
    sum_chunk(run, block // CHUNK)
    return True


@helper
def _score_often(run: Run, least: float) -> float:
    """Score rows that would be sampled again and again, as long as they make much of what is left to chance and that
    weighs more than this beside what does not; what is left."""
    race, rest, before = run.race, run.race.ends[-1], np.inf
    room = race.positions.shape[0] - _OFTEN
    while 0.0 < rest < _MOST * before and rest >= least * race.state[MASS] and race.state[COUNT] < room:
        refine(run, rest / _OFTEN, False)
        rest, before = race.ends[-1], rest
    return float(rest)


@part
def estimate_from_sample(ratios: Floats, deviations: Vectors) -> tuple[float, ...]:
    """What `SampleEstimate` has, without names: see `boxing`."""
    total, squares, expected, weighted, pairs, fourth = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    m = ratios.shape[0]
    for k in range(m):
        deviation = min(np.float64(deviations[k]), _LARGEST)
        total += ratios[k]
        squares += ratios[k] * ratios[k]
        excess = np.expm1(deviation * deviation)
        expected += excess
        weighted += ratios[k] * excess
    for k in range(0, m - 1, 2):
        between = (ratios[k] - ratios[k + 1]) ** 2
        pairs += between
        fourth += between * between
    if total == 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    if fourth > 0.0:
        # Where a few pairs make the variance it is as uncertain as with so few: about what the
        # quantiles of Student's law are wider, and a little more, because such differences are skewed.
        freedom = max(3.0 * pairs / fourth * pairs, 2.0)
        pairs *= (1.0 + 2.0 / freedom + 2.0 / (freedom * freedom)) ** 2
    moment = (1.0 + weighted / total) * (1.0 + FIXED_POINT)
    allowed = np.sqrt(moment * moment - 1.0)
    return total / m, m * squares / total**2 - 1.0, pairs / m**2, allowed, expected / m


@part
def _upper(sample: Sample) -> int:
    """Where the second half of a sample begins, between two strata."""
    return 2 * (sample.positions.shape[0] // 4)


@part
def sample_upper(run: Run, mailbox: Ints) -> None:
    """What a helper does."""
    sample = sample_on(mailbox)
    sample_strata(run, np.uint64(mailbox[ARGUMENT]), _upper(sample), sample.positions.shape[0], sample)


@part
def _sample_shared(run: Run, seed: np.uint64, sample: Sample, mailbox: Ints) -> None:
    """All of a sample, with whoever joins at the mailbox: in halves also without, for the same rows to the last bit."""
    shared, half = mailbox.shape[0] == MAILBOX, _upper(sample)
    if shared:
        post_sample(sample, seed, mailbox)
        open_mailbox(run, mailbox, SAMPLE)
    sample_strata(run, seed, np.int64(0), half, sample)
    if not (shared and close_mailbox(mailbox)):
        sample_strata(run, seed, half, sample.positions.shape[0], sample)


@maker
def sample_to(
    run: Run,
    rules: tuple[float, float, tuple[float, float]],
    seeds: npt.NDArray[np.uint64],
    mailbox: Ints,
) -> tuple[Any, ...]:
    """A sample, without names: see `boxing`."""
    rel_err, most, widest = rules
    nothing = _allocate(np.int64(0))
    if not score_wide(run, widest, _SMALL * rel_err):
        return nothing
    race = run.race
    rest = _score_often(run, _SMALL * rel_err)
    if not 0.0 < rest < np.inf:
        return nothing
    pilot = Sample(*_allocate(np.int64(_PILOT)))
    sample_strata(run, seeds[1], np.int64(0), pilot.positions.shape[0], pilot)
    found = SampleEstimate(*estimate_from_sample(pilot.ratios, pilot.deviations))
    total = race.state[MASS] + rest * found.mean
    if not _LEAST_MASS < total < np.inf:
        return nothing
    variance, by_law = found.relative_variance, found.expected
    if variance <= _FAR_OFF * by_law:
        variance = min(max(_ROOM * variance, _ASSURED * by_law), by_law)
    wanted = variance * (rest * found.mean / total / rel_err) ** 2
    if not wanted <= most:
        return nothing
    count = 2 * int(np.ceil(max(wanted, _LEAST) / 2.0))
    sample = _allocate(count)
    _sample_shared(run, seeds[2], Sample(*sample), mailbox)
    return sample


@maker
def _allocate(count: int) -> tuple[Any, ...]:
    return np.empty(count, dtype=np.int64), np.empty(count), np.empty(count), np.empty(count, dtype=np.float32)


@exact_kernel
def sample_theta(
    stored_words: Ints,
    asked: Asked,
    theta: tuple[Vectors, Ints],
    seeds: npt.NDArray[np.uint64],
    race_words: Ints,
    mailbox: Ints,
    rules: tuple[float, float, tuple[float, float]],
) -> tuple[Any, Any, float]:
    """What `Sampled` has, without names: see `boxing`."""
    stored, race = read_stored(stored_words), read_race(race_words)
    open_race(stored, theta[1], race)
    facts, ceilings, outlook = enter(stored, asked, theta[0], seeds[0], race, mailbox)
    run = run_of(stored, facts, ceilings, race)
    set_reference(run, Outlook(*outlook))
    # At another temperature weights are too coarse to sample by.
    sample = sample_to(run, rules, seeds, mailbox) if run.ceilings.power == 1.0 else _allocate(np.int64(0))
    return sample, estimate_from_sample(sample[2], sample[3]), run.theta.norm
