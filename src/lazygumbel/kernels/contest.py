"""From thetas to draws: prepare, scan, look closely at what is heavy, race."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.codes import prepare, scan
from lazygumbel.kernels.decorators import exact_kernel, part
from lazygumbel.kernels.packed import read_race, read_stored
from lazygumbel.kernels.race import add_up, draw, heaviest_chunk, refine, take_out, temper
from lazygumbel.kernels.sharing import scan_shared
from lazygumbel.kernels.types import (
    BLOCK,
    REFERENCE,
    SCORED,
    VIOLATIONS,
    Asked,
    Batch,
    Ceilings,
    Found,
    Outlook,
    Race,
    Run,
    Stored,
    Theta,
)

__all__ = ["enter", "open_race", "race_thetas", "run_of", "set_reference", "settle"]

_HEAVY, _LOOSE = 8.0, 8.0
"""A row that is proposed so many times for a draw costs more than to score it; and how far the sum of all ceilings may
be taken to lie above Z: what is expected of Z does not know of rows that are excluded."""
_HOT = 2.0**120
"""A weight that may have been cut off."""
_RANGE = 140.0
"""Powers of two that a scan can tell apart above a lower bound of log Z."""
_LN2 = np.log(2.0)
_Ints = npt.NDArray[np.int64]


@part
def open_race(stored: Stored, excluded: npt.NDArray[np.int64], race: Race) -> None:
    count = race.changed[0]
    if count < 0:
        for block in range(stored.alive.shape[0]):
            race.alive[block] = stored.alive[block]
    for k in range(1, count + 1):
        race.alive[race.changed[k]] = stored.alive[race.changed[k]]
    race.changed[0] = 0
    for slot in excluded:
        take_out(race, slot // BLOCK, slot % BLOCK)
    race.state[:] = 0.0


@part
def run_of(stored: Stored, theta: Any, ceilings: Any, race: Race) -> Run:
    return Run(stored.sketch, stored.rows, Theta(*theta), Ceilings(*ceilings), race)


@part
def enter(
    stored: Stored, asked: Asked, vector: npt.NDArray[np.float32], seed: np.uint64, race: Race, desk: _Ints
) -> tuple[Any, Any, Any]:
    """Theta, ceilings and outlook, without names: see `boxing`."""
    theta, ceilings, facts = prepare(stored.coded, vector, asked, 1.0, seed)
    scan_shared(run_of(stored, theta, ceilings, race), desk)
    outlook = Outlook(*facts)
    tempered = (outlook.high - outlook.low) / _RANGE
    if tempered > 1.0 and race.sums[heaviest_chunk(race)] > _HOT:
        theta, ceilings, facts = prepare(stored.coded, vector, asked, tempered, seed)
        scan(run_of(stored, theta, ceilings, race), np.int64(0), race.sums.shape[0])
    return theta, ceilings, facts


@part
def set_reference(run: Run, outlook: Outlook) -> float:
    run.race.state[REFERENCE] = run.ceilings.shift
    expected = outlook.expected
    if run.ceilings.power != 1.0:
        expected = temper(run, outlook.low)
    return np.exp2(min(expected - run.race.state[REFERENCE], 1000.0))


@part
def settle(run: Run, outlook: Outlook, size: int) -> bool:
    expected = set_reference(run, outlook)
    add_up(run.race)
    least = min(expected, run.race.ends[-1] / _LOOSE)
    return refine(run, least * max(_HEAVY / max(size, 1), 1.0), True)


@exact_kernel
def race_thetas(
    stored_words: _Ints,
    asked: Asked,
    batch: Batch,
    part: tuple[int, int],
    race_words: _Ints,
    desk: _Ints,
    rules: tuple[int, bool],
    found: Found,
) -> None:
    """Of packed tuples: see `boxing`. So `sample_theta` and `top_theta`."""
    stored, race = read_stored(stored_words), read_race(race_words)
    for b in range(part[0], part[1]):
        one, wanted = _asked_of(asked, batch, b), batch.wanted[b]
        open_race(stored, batch.excluded[(batch.ends[b - 1] if b > 0 else 0) : batch.ends[b]], race)
        theta, ceilings, facts = enter(stored, one, batch.thetas[b], batch.seeds[b, 0], race, desk)
        outlook, run, drawn, time = Outlook(*facts), run_of(stored, theta, ceilings, race), 0, 0.0
        positions, values = found.positions[b, :wanted], found.values[b, :wanted]
        if settle(run, outlook, wanted):
            drawn, time = draw(run, batch.seeds[b, 1], rules, positions, values)
        found.drawn[b], found.far[b] = drawn, outlook.far
        found.passed[b] = (np.log(time) if time > 0.0 else -np.inf) - race.state[REFERENCE] * _LN2
        found.rows[b], found.violations[b] = int(race.state[SCORED]), int(race.state[VIOLATIONS])


@part
def _asked_of(asked: Asked, batch: Batch, b: int) -> Asked:
    first = batch.quantiles[b, 0]
    return Asked(
        asked.scale,
        (first, batch.quantiles[b, 1]),
        asked.rounding,
        asked.far,
        asked.order,
        first * asked.slope,
        asked.curvature,
        asked.widest,
        asked.limits,
        asked.known,
    )
