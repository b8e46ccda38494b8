"""Compiled kernels against the NumPy reference: whole races, parts, helpers."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep

import numpy as np
import pytest
from scipy.stats import chisquare

from kernel_helpers import NOBODY, Case, case, copy_of, nobody, race_of, some
from lazygumbel.kernels import compiled, reference, sharing, top
from lazygumbel.kernels.batches import DRAWN, FAR, LOOKED_AT, TOO_LOW, Batch, Few, Fired, Found, Wanted
from lazygumbel.kernels.decorators import door
from lazygumbel.kernels.types import (
    BLOCK,
    BYTES,
    CALLS,
    FULL,
    MAILBOX,
    PACKED,
    SHORT,
    Asked,
    Race,
    Workspaces,
)

_STATE = 1
"""The entry of a mailbox that is zero while it is closed."""


def batch_of(held: Case, count: int, size: int) -> tuple[Asked, Batch, Found]:
    """Thetas of several lengths, for which other rows are excluded."""
    rng, index = np.random.default_rng(1), held.index
    thetas = (rng.normal(size=(count, held.d)) * rng.lognormal(size=(count, 1))).astype(np.float32)
    slots = [index.layout.slots(np.arange(b % 4)) for b in range(count)]
    return (
        index.asked(held.temperature, delta=1e-4, size=size),
        Batch(
            thetas,
            rng.integers(2**63, size=(1, count, 3)).astype(np.uint64),
            np.concatenate(slots),
            np.cumsum([len(some) for some in slots]),
        ),
        Found.allocate(1, count, size),
    )


def same(found: Found, expected: Found) -> None:
    """But for rounding."""
    np.testing.assert_array_equal(found.positions, expected.positions)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-3)
    for count in (DRAWN, TOO_LOW, FAR):
        np.testing.assert_array_equal(found.counts[count], expected.counts[count])
    assert np.abs(found.counts[LOOKED_AT] - expected.counts[LOOKED_AT]).max() <= 1


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("d", [3, 33])
def test_race_thetas(d: int, distinct: bool, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    held = case(d, (2, 2), 0.5, FULL)
    asked, batch, found = batch_of(held, 12, 5)
    expected, index, wanted = Found.allocate(1, 12, 5), held.index, Wanted(5, distinct, held.n, 10**6)
    monkeypatch.setattr("lazygumbel.indexes.partition.index._CACHED", 0 if together else 2**40)
    for first, last in ((5, 12), (0, 5)):  # in whatever order
        workspaces, races = index.take_workspaces(last - first)
        assert (len(races) > 1) == together
        assert (
            compiled.race_thetas([index.stored], asked, batch, (first, last), [workspaces], NOBODY, wanted, found) == 0
        )
    assert reference.race_thetas([index.stored], asked, batch, (0, 12), [workspaces], NOBODY, wanted, expected) == 0
    same(found, expected)
    for b in range(12):
        assert not np.isin(found.positions[0, b], np.arange(b % 4)).any()


def test_parts_are_raced_as_each_alone() -> None:
    held = [case(33, (2, 2), 0.5, FULL), case(33, (2, 2), 0.5, BYTES)]
    indexes, wanted = [one.index for one in held], Wanted(4, False, 4000, 10**6)
    asked, one, _ = batch_of(held[0], 6, 4)
    batch = one._replace(
        seeds=np.concatenate([one.seeds, one.seeds + np.uint64(1)]), excluded=one.excluded[:0], ends=one.ends[:0]
    )
    found, expected = Found.allocate(2, 6, 4), Found.allocate(2, 6, 4)
    stored = [index.stored for index in indexes]
    races = [Race.allocate(one) for one in stored]  # of which workspaces only know the addresses
    workspaces = [
        Workspaces.of([race], one.cells, one.coder.parts[1], 33) for race, one in zip(races, indexes, strict=True)
    ]
    for race, room in zip(races, workspaces, strict=True):
        compiled.pack_race(race)
        room.races[0] = race.words
        reference.pack_workspaces(room)
        assert not room.words.any()
        compiled.pack_workspaces(room)
        assert room.words.any()
    compiled.race_thetas(stored, asked, batch, (0, 6), workspaces, NOBODY, wanted, found)
    reference.race_thetas(stored, asked, batch, (0, 6), workspaces, NOBODY, wanted, expected)
    same(found, expected)
    for p in range(2):
        alone, mine = Found.allocate(1, 6, 4), slice(p, p + 1)
        each = batch._replace(seeds=batch.seeds[mine])
        compiled.race_thetas(stored[mine], asked, each, (0, 6), workspaces[mine], NOBODY, wanted, alone)
        np.testing.assert_array_equal(found.values[p], alone.values[0])
        np.testing.assert_array_equal(found.positions[p], alone.positions[0])


def test_parts_in_cells_of_the_first_are_raced_as_if_they_were_not() -> None:
    held = case(33, (2, 2), 0.5, FULL)
    index, wanted = held.index, Wanted(4, False, 4000, 10**6)
    asked, one, _ = batch_of(held, 3, 4)
    twice = np.concatenate([one.seeds, one.seeds])
    batch = one._replace(seeds=twice, excluded=one.excluded[:0], ends=one.ends[:0])
    wrong = np.roll(np.arange(index.cells), 1)
    results = []
    for other in (index, index.in_cells_of(np.arange(index.cells)), index.in_cells_of(wrong)):
        found, taken = Found.allocate(2, 3, 4), [index.take_workspaces(1), other.take_workspaces(1)]
        workspaces = [workspace for workspace, _ in taken]
        compiled.race_thetas([index.stored, other.stored], asked, batch, (0, 3), workspaces, NOBODY, wanted, found)
        np.testing.assert_array_equal(found.values[0], results[0].values[0] if results else found.values[1])
        results.append(found)
    np.testing.assert_array_equal(results[1].values, results[0].values)
    assert (results[2].values[1] != results[0].values[1]).any()  # a control: other cells


def few_of(held: Case, thetas: np.ndarray, count: int) -> Few:
    """Some rows without an index, of which the third, and so on, are dead."""
    rows = np.random.default_rng(3).normal(size=(count, held.d)).astype(np.float32)
    seeds = np.arange(len(thetas), dtype=np.uint64)
    return Few(rows, np.arange(count) % 3 == 2, thetas, 1 / held.temperature, seeds)


def few_drawn(few: Few, twin, size: int) -> Found:
    """So many draws of every theta, as the second part."""
    count = len(few.thetas)
    found = Found.allocate(2, count, size)
    for thetas in ((count // 2, count), (0, count // 2)):  # in whatever order
        twin.draw_few(few, thetas, found)
    assert not found.counts[DRAWN, 0].any() and (found.counts[DRAWN, 1] == size).all()
    assert (found.counts[LOOKED_AT, 1] == len(few.rows)).all()
    return found


def test_draw_few_equals_the_reference() -> None:
    held = case(33, (2, 2), 0.5, FULL)
    few = few_of(held, batch_of(held, 6, 4)[1].thetas, 50)
    found, expected = (few_drawn(few, twin, 4) for twin in (compiled, reference))
    np.testing.assert_array_equal(found.positions[1], expected.positions[1])
    np.testing.assert_allclose(found.values[1], expected.values[1], rtol=1e-4, atol=1e-3)
    assert len(np.unique(found.positions[1])) > 2


def test_find_first() -> None:
    rng, found = np.random.default_rng(0), Found.allocate(3, 5, 4)
    found.positions[:], found.values[:] = rng.integers(100, size=(3, 5, 4)), rng.normal(size=(3, 5, 4))
    found.counts[:] = rng.integers(9, size=found.counts.shape)
    found.counts[DRAWN] = 4
    found.counts[DRAWN, 1, 2] = 3
    fired, expected = Fired.allocate(5, 4), Fired.allocate(5, 4)
    compiled.find_first(found, fired)
    reference.find_first(found, expected)
    for mine, theirs in zip(fired, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert fired.undone.tolist() == [False, False, True, False, False] and len(np.unique(fired.parts)) == 3


def test_draw_few_draws_from_the_softmax_of_the_rows_that_are_not_dead() -> None:
    held = case(3, (2, 2), 0.5, FULL)
    few = few_of(held, np.ones((1, 3), dtype=np.float32), 20)
    found = few_drawn(few, compiled, 40_000)
    places, values = found.positions[1], found.values[1]
    weights = np.exp(few.rows.astype(np.float64).sum(axis=1) * few.scale)
    counts = np.bincount(places[0], minlength=20)
    assert not counts[few.dead].any()
    left = np.where(few.dead, 0.0, weights)[~few.dead]
    assert chisquare(counts[~few.dead], 40_000 * left / left.sum()).pvalue > 1e-3
    flat = left**0.9  # a control: another temperature
    assert chisquare(counts[~few.dead], 40_000 * flat / flat.sum()).pvalue < 1e-6
    mean = values.mean() - np.log(left.sum())  # Gumbel
    assert abs(mean - np.euler_gamma) < 5 * np.pi / np.sqrt(6 * 40_000)


def test_a_race_that_is_broken_off_has_too_few_draws() -> None:
    held = case(33, (2, 2), 0.5, FULL)
    asked, batch, found = batch_of(held, 2, 4)
    (workspaces, _), wanted = held.index.take_workspaces(2), Wanted(4, False, held.n, 0)
    assert compiled.race_thetas([held.index.stored], asked, batch, (0, 2), [workspaces], NOBODY, wanted, found) == 2
    assert (found.counts[DRAWN] < 4).all()


@contextmanager
def helper_at(mailbox: np.ndarray) -> Iterator[Callable[[], None]]:
    """A thread that helps whenever it is called, until the end."""
    asleep, waker = os.pipe()
    os.close(waker)
    compiled.run_helper(asleep, mailbox)  # returns at once; from now on it is compiled
    os.close(asleep)
    asleep, waker = os.pipe()
    thread = Thread(target=compiled.run_helper, args=(asleep, mailbox))
    thread.start()

    def call() -> None:
        mailbox[CALLS] += 1
        os.write(waker, b"!")

    try:
        yield call
    finally:
        os.close(waker)
        thread.join(timeout=60)
        os.close(asleep)
        assert not thread.is_alive()


@pytest.mark.parametrize("held", [case(33, (4, 3), 0.5, SHORT, FULL), case(40, (6, 3), 0.001, BYTES)])
def test_enter(held: Case) -> None:
    """Also at a mailbox to which nobody comes, and where ceilings are out of range at first."""
    index, asked, found, powers = held.index, held.asked(), [], []
    for enter, mailbox in (
        (compiled.enter, NOBODY),
        (compiled.enter, np.zeros(MAILBOX, int)),
        (reference.enter, NOBODY),
    ):
        race = race_of(index, some)
        _, ceilings, _ = enter(index.stored, asked, held.theta, np.uint64(5), race, mailbox)
        found.append(race)
        powers.append(ceilings.power)
    alone, awaited, twin = found
    for name in ("ceilings", "weights", "sums"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(awaited, name))
    np.testing.assert_allclose(twin.sums, alone.sums, rtol=2e-2)
    np.testing.assert_allclose(powers, powers[0], rtol=1e-6)
    assert (powers[0] > 1.0) == (held.temperature < 0.01)


def test_a_helper_does_what_its_mailbox_holds() -> None:
    """All of it, if nobody else does."""
    held, mailbox, own = case(33, (4, 3), 0.5, SHORT, FULL), *np.zeros((2, MAILBOX), dtype=np.int64)
    run, _ = held.scanned(some)
    twin, alone = copy_of(run), copy_of(run)
    compiled.pack_race(twin.race)
    for one in (mailbox, own):
        one[sharing.ARGUMENT] = 10
        one.view(np.float64)[sharing.ARGUMENT + 1 : sharing.ARGUMENT + 3] = -np.inf, np.inf
    door(top.find_upper)(alone, own)
    open_mailbox = door(sharing.open_mailbox)
    with helper_at(mailbox) as call:
        for work in (sharing.SCAN, sharing.BEST):
            if work == sharing.SCAN:
                twin.race.weights[:], twin.race.sums[:], twin.race.ceilings[:] = 0.0, 0.0, 0
            open_mailbox(twin, mailbox, work)
            deadline = monotonic() + 60
            while mailbox[_STATE] and monotonic() < deadline:
                call()  # again: it may have lost patience before this thread came to open the mailbox
                sleep(0.01)
            expected = run if work == sharing.SCAN else alone
            for name in ("ceilings", "weights", "sums", "positions", "masses"):
                np.testing.assert_array_equal(getattr(twin.race, name), getattr(expected.race, name))
    assert mailbox[sharing.ANSWER] == own[sharing.ANSWER] > 0


def test_a_helper_who_comes_late_touches_nothing() -> None:
    mailbox = np.zeros(MAILBOX, dtype=np.int64)
    mailbox[8:] = -1  # no addresses: to read a run from here would end the process
    with helper_at(mailbox) as call:
        for _ in range(20):
            call()


def test_what_is_packed_is_read_back() -> None:
    """By kernels that take words: their answers are of the tuples that were packed last."""
    held = case(33, (4, 3), 0.5, SHORT, FULL)
    stored, race = held.index.stored, race_of(held.index, nobody)
    fewer = stored._replace(alive=np.zeros_like(stored.alive), words=np.zeros(PACKED, dtype=np.int64))
    fewer.alive.flags.writeable = False
    compiled.pack_stored(fewer)
    for packed, expected in ((fewer, 0), (stored, stored.alive)):
        race.changed[0] = -1
        compiled.open_race(packed, nobody, race)
        np.testing.assert_array_equal(race.alive, expected)
    other = Race(*(array.copy() for array in race))
    compiled.pack_race(other)
    compiled.open_race(stored, np.arange(BLOCK), other)
    assert other.alive[0] == 0 and race.alive[0] == stored.alive[0]
