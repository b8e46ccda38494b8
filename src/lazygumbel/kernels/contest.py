"""From thetas to draws: prepare, scan, look closely at what is heavy, race."""

from typing import Any

import numpy as np

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.kernels.batches import DRAWN, FAR, LOOKED_AT, TOO_LOW, Batch, Found, Wanted
from lazygumbel.kernels.codes import prepare, prepare_projected, scan
from lazygumbel.kernels.decorators import exact_kernel, maker, part
from lazygumbel.kernels.packed import read_race, read_run, read_stored, read_workspaces, write_run
from lazygumbel.kernels.projecting import project
from lazygumbel.kernels.race import add_up, draw, heaviest_chunk, refine, take_out, temper
from lazygumbel.kernels.sharing import scan_shared
from lazygumbel.kernels.types import (
    BLOCK,
    LN2,
    REFERENCE,
    SCORED,
    VIOLATIONS,
    Asked,
    Ceilings,
    Coded,
    Outlook,
    Race,
    Run,
    Stored,
    Theta,
    Workspaces,
)

__all__ = ["enter", "enter_projected", "open_race", "race_thetas", "run_of", "set_reference", "settle"]

_HEAVY, _LOOSE = 8.0, 8.0
"""A row that is proposed so many times for a draw costs more than to score it; and how far the sum of all ceilings may
be taken to lie above Z: what is expected of Z does not know of rows that are excluded."""
_HOT = 2.0**120
"""A weight that may have been cut off."""
_RANGE = 140.0
"""Powers of two that a scan can tell apart above a lower bound of log Z."""


@part
def open_race(stored: Stored, excluded: Ints, race: Race) -> None:
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


@maker
def run_of(stored: Stored, theta: Any, ceilings: Any, race: Race) -> Run:
    return Run(stored.sketch, stored.rows, Theta(*theta), Ceilings(*ceilings), race)


@part
def _out_of_range(outlook: Outlook, race: Race) -> bool:
    return bool((outlook.high - outlook.low) / _RANGE > 1.0 and race.sums[heaviest_chunk(race)] > _HOT)


@maker
def _enter_tempered(
    stored: Stored, asked: Asked, vector: Vectors, seed: np.uint64, race: Race, outlook: Outlook
) -> tuple[Any, Any, Any]:
    theta, ceilings, facts = prepare(stored.coded, vector, asked, (outlook.high - outlook.low) / _RANGE, seed)
    scan(run_of(stored, theta, ceilings, race), np.int64(0), race.sums.shape[0])
    return theta, ceilings, facts


@maker
def enter(
    stored: Stored, asked: Asked, vector: Vectors, seed: np.uint64, race: Race, mailbox: Ints
) -> tuple[Any, Any, Any]:
    """Theta, ceilings and outlook, without names: see `boxing`."""
    found = project(stored.coded, vector, np.empty(0, dtype=np.float32))
    return enter_projected(stored, asked, vector, seed, race, mailbox, found)


@maker
def enter_projected(
    stored: Stored, asked: Asked, vector: Vectors, seed: np.uint64, race: Race, mailbox: Ints, found: Any
) -> tuple[Any, Any, Any]:
    """The same, of what `project` has found."""
    theta, ceilings, facts = prepare_projected(stored.coded, vector, asked, 1.0, seed, found)
    scan_shared(run_of(stored, theta, ceilings, race), mailbox)
    if _out_of_range(Outlook(*facts), race):
        theta, ceilings, facts = _enter_tempered(stored, asked, vector, seed, race, Outlook(*facts))
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


@maker
def _hold(workspaces: Workspaces, g: int, theta: Any, ceilings: Any, outlook: Any) -> tuple[Any, Any]:
    """Theta and ceilings with arrays that last."""
    held = Theta(*theta), Ceilings(*ceilings)
    workspaces.laid_out[g], workspaces.steps[g], workspaces.cells[g] = held[0].laid_out, held[0].steps, held[0].cells
    workspaces.tables[g], workspaces.scores[g], workspaces.levels[g] = held[1].tables, held[1].scores, held[1].levels
    workspaces.rights[g], workspaces.far[g] = held[1].rights, held[1].far
    for k, fact in enumerate(outlook[:5]):
        workspaces.facts[g, k] = fact
    workspaces.facts[g, 5] = outlook[5]
    kept = workspaces.tables[g], workspaces.scores[g], workspaces.levels[g], workspaces.rights[g], workspaces.far[g]
    return (workspaces.laid_out[g], workspaces.steps[g], workspaces.cells[g], *theta[3:]), (*kept, *ceilings[5:])


@part
def _scan_together(workspaces: Workspaces, count: int) -> None:
    """Codes are read from memory once for all thetas: a chunk of them is scanned for one after the other."""
    for chunk in range(read_run(workspaces.runs[0]).race.sums.shape[0]):
        for g in range(count):
            scan(read_run(workspaces.runs[g]), chunk, chunk + 1)


@exact_kernel
def race_thetas(
    stored: Ints,
    asked: Asked,
    batch: Batch,
    thetas: tuple[int, int],
    workspaces: Ints,
    mailbox: Ints,
    wanted: Wanted,
    found: Found,
) -> int:
    """Of packed tuples: see `boxing`. So `sample_theta` and `top_theta`."""
    undone = 0
    build = read_stored(stored[0]).coded
    shared = stored.shape[0] > 1 and build.cells_of_build.shape[0] == 0
    known = np.empty((thetas[1] - thetas[0], build.projection.shape[0] - build.axes if shared else 0), dtype=np.float32)
    for p in range(stored.shape[0]):
        held, mine = read_stored(stored[p]), read_workspaces(workspaces[p])
        together = mine.races.shape[0]
        for first in range(thetas[0], thetas[1], together):
            count = min(together, thetas[1] - first)
            for g in range(count):
                b, race = first + g, read_race(mine.races[g])
                open_race(held, _excluded(batch, b), race)
                one = _prepare(held.coded, asked, batch, (p, b), known[b - thetas[0]])
                theta, ceilings = _hold(mine, g, one[0], one[1], one[2])
                write_run(mine.runs[g], run_of(held, theta, ceilings, race))
            if count == 1:
                scan_shared(read_run(mine.runs[0]), mailbox)
            else:
                _scan_together(mine, count)
            for g in range(count):
                facts = mine.facts[g]
                outlook = Outlook(facts[0], facts[1], facts[2], facts[3], facts[4], facts[5] > 0.0)
                run = read_run(mine.runs[g])
                undone += _race_theta(held, asked, batch, (p, first + g), run, outlook, wanted, found)
    return undone


@maker
def _excluded(batch: Batch, b: int) -> Ints:
    if batch.ends.shape[0] == 0:
        return batch.excluded
    return batch.excluded[(batch.ends[b - 1] if b > 0 else 0) : batch.ends[b]]


@maker
def _prepare(coded: Coded, asked: Asked, batch: Batch, at: tuple[int, int], known: Vectors) -> tuple[Any, Any, Any]:
    """The first part leaves in `known` what others need not compute again."""
    vector, d = batch.thetas[at[1]], coded.d
    found = project(coded, vector, known if at[0] > 0 else known[:0])
    if at[0] == 0 and known.shape[0] > 0:
        known[:d], known[d:] = found[1][:d], found[1][d + coded.axes :]
    return prepare_projected(coded, vector, asked, 1.0, batch.seeds[at[0], at[1], 0], found)


@maker
def _race_theta(
    stored: Stored,
    asked: Asked,
    batch: Batch,
    at: tuple[int, int],
    run: Run,
    outlook: Outlook,
    wanted: Wanted,
    found: Found,
) -> bool:
    """Whether it was broken off."""
    p, b = at
    race, size, drawn, time = run.race, wanted.size, 0, 0.0
    if wanted.distinct:
        size = min(size, wanted.live - _excluded(batch, b).shape[0])
        found.values[p, b, size:] = -np.inf
    if _out_of_range(outlook, race):
        theta, ceilings, facts = _enter_tempered(stored, asked, batch.thetas[b], batch.seeds[p, b, 0], race, outlook)
        run, outlook = run_of(stored, theta, ceilings, race), Outlook(*facts)
    positions, values = found.positions[p, b, :size], found.values[p, b, :size]
    if settle(run, outlook, size):
        drawn, time = draw(run, batch.seeds[p, b, 1], (wanted.patience, wanted.distinct), positions, values)
    found.passed[p, b] = (np.log(time) if time > 0.0 else -np.inf) - race.state[REFERENCE] * LN2
    found.counts[DRAWN, p, b], found.counts[FAR, p, b] = drawn, outlook.far
    found.counts[LOOKED_AT, p, b], found.counts[TOO_LOW, p, b] = int(race.state[SCORED]), int(race.state[VIOLATIONS])
    return drawn < size
