"""From thetas to draws: prepare, scan, look closely at what is heavy, race."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.claims import count_up
from lazygumbel.kernels.codes import prepare, scan
from lazygumbel.kernels.decorators import exact_kernel, part
from lazygumbel.kernels.race import add_up, draw, heaviest_chunk, refine, take_out, temper
from lazygumbel.kernels.types import (
    BLOCK,
    OVER,
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

__all__ = ["assist", "enter", "open_race", "race_thetas", "set_reference", "settle"]

_HEAVY, _LOOSE = 8.0, 8.0
"""A row that is proposed so many times for a draw costs more than to score it; and how far the sum of all ceilings may
be taken to lie above Z: what is expected of Z does not know of rows that are excluded."""
_HOT = 2.0**120
"""A weight that may have been cut off."""
_RANGE = 140.0
"""Powers of two that a scan can tell apart above a lower bound of log Z."""
_CLAIMED, _DONE = range(2)
"""Of a scan that two threads share: how many pieces are claimed, and how many are done."""
_LN2 = np.log(2.0)
_PIECE = 8
"""Chunks that are claimed together."""
_LINGER = 50_000
"""Looks, about half a millisecond, that an assistant takes at whether the race is over. To go back to the interpreter
before would have two threads ask for its lock at the same moment, which costs a tenth of a millisecond."""


@exact_kernel
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
def _run_of(stored: Stored, theta: Any, ceilings: Any, race: Race) -> Run:
    return Run(stored.sketch, stored.rows, Theta(*theta), Ceilings(*ceilings), race)


@part
def _scan_claimed(run: Run, claims: npt.NDArray[np.int64], upwards: bool) -> None:
    """Scan chunks until all are claimed. Nothing here can fail, so that whoever waits for a claimed chunk gets it.

    One thread goes upwards, the other downwards, so that either mostly writes what it wrote for the last theta: memory
    that another processor wrote takes longer to get than a scan.
    """
    chunks = run.race.sums.shape[0]
    pieces, mine = -(-chunks // _PIECE), 0
    while count_up(claims, _CLAIMED, 1) < pieces:
        first = _PIECE * (mine if upwards else pieces - 1 - mine)
        scan(run, first, min(first + _PIECE, chunks))
        count_up(claims, _DONE, 1)
        mine += 1


@exact_kernel
def assist(
    stored: Stored,
    asked: Asked,
    vector: npt.NDArray[np.float32],
    seed: np.uint64,
    race: Race,
    claims: npt.NDArray[np.int64],
) -> None:
    theta, ceilings, _ = prepare(stored.coded, vector, asked, 1.0, seed)
    _scan_claimed(_run_of(stored, theta, ceilings, race), claims, False)
    for _ in range(_LINGER):
        if count_up(claims, OVER, 0) > 0:
            break


@exact_kernel
def assist_theta(stored: Stored, asked: Asked, batch: Batch, race: Race, claims: npt.NDArray[np.int64]) -> None:
    assist(stored, _asked_of(asked, batch, 0), batch.thetas[0], batch.seeds[0, 0], race, claims)


@exact_kernel
def enter(
    stored: Stored,
    asked: Asked,
    vector: npt.NDArray[np.float32],
    seed: np.uint64,
    race: Race,
    claims: npt.NDArray[np.int64],
) -> tuple[Any, Any, Any]:
    """Theta, ceilings and outlook, without names: see `boxing`."""
    theta, ceilings, facts = prepare(stored.coded, vector, asked, 1.0, seed)
    _scan_claimed(_run_of(stored, theta, ceilings, race), claims, True)
    while count_up(claims, _DONE, 0) < -(-race.sums.shape[0] // _PIECE):
        pass  # the other thread is at its last chunks: some microseconds
    outlook = Outlook(*facts)
    tempered = (outlook.high - outlook.low) / _RANGE
    if tempered > 1.0 and race.sums[heaviest_chunk(race)] > _HOT:
        theta, ceilings, facts = prepare(stored.coded, vector, asked, tempered, seed)
        scan(_run_of(stored, theta, ceilings, race), np.int64(0), race.sums.shape[0])
    return theta, ceilings, facts


@exact_kernel
def set_reference(run: Run, outlook: Outlook) -> float:
    run.race.state[REFERENCE] = run.ceilings.shift
    expected = outlook.expected
    if run.ceilings.power != 1.0:
        expected = temper(run, outlook.low)
    return np.exp2(min(expected - run.race.state[REFERENCE], 1000.0))


@exact_kernel
def settle(run: Run, outlook: Outlook, size: int) -> bool:
    expected = set_reference(run, outlook)
    add_up(run.race)
    least = min(expected, run.race.ends[-1] / _LOOSE)
    return refine(run, least * max(_HEAVY / max(size, 1), 1.0), True)


@exact_kernel
def race_thetas(
    stored: Stored,
    asked: Asked,
    batch: Batch,
    part: tuple[int, int],
    race: Race,
    claims: npt.NDArray[np.int64],
    rules: tuple[int, bool],
    found: Found,
) -> None:
    for b in range(part[0], part[1]):
        one, wanted = _asked_of(asked, batch, b), batch.wanted[b]
        if b > part[0]:  # the first was made ready; not after the last, for an assistant that wakes late
            open_race(stored, batch.excluded[batch.ends[b - 1] : batch.ends[b]], race)
            claims[:] = 0
        theta, ceilings, facts = enter(stored, one, batch.thetas[b], batch.seeds[b, 0], race, claims)
        outlook, run, drawn, time = Outlook(*facts), _run_of(stored, theta, ceilings, race), 0, 0.0
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
