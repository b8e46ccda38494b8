"""Threads make answers quicker, not other ones; and a process that forks has its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent
from threading import current_thread

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel import threads
from lazygumbel.methods import stratified_sums


@pytest.fixture(scope="module")
def model() -> lg.LogLinear:
    rows = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    features = lg.Features.of(rows)
    return lg.LogLinear.build(features, index=lg.PartitionIndex.build(features, rng=0), rng=0)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every look at one theta is shared; the tasks that were."""
    monkeypatch.setattr(stratified_sums, "_SHARED_FROM", 0)
    tasks: list[object] = []
    monkeypatch.setattr(stratified_sums, "together", lambda task: (tasks.append(task), threads.together(task)))
    return tasks


def answers(model: lg.LogLinear, seed: int) -> tuple[float, ...]:
    dist = model(model.features.gather(np.array([seed]))[0], temperature=0.3)
    log_z, mean = dist.log_partition(rng=seed), dist.expectation(rng=seed)
    return float(log_z.value), float(log_z.stderr), float(log_z.rows), *mean.value.tolist(), *mean.stderr.tolist()


def test_a_shared_look_is_the_same_whoever_does_it(
    model: lg.LogLinear, shared: list[object], monkeypatch: pytest.MonkeyPatch
):
    together = [answers(model, seed) for seed in range(40)]
    assert len(shared) == 80
    monkeypatch.setattr(threads, "_CORES", 1)
    alone = [answers(model, seed) for seed in range(40)]
    assert together == alone
    # Control: the numbers depend on what is random.
    assert answers(model, 0) != answers(model, 1)


def test_many_threads_may_ask_at_once(model: lg.LogLinear, shared: list[object]):
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda seed: answers(model, seed), range(60)))
    assert found == [answers(model, seed) for seed in range(60)]
    assert len(shared) == 240


def wait_until(happened: Callable[[], bool]) -> bool:
    for _ in range(400):
        if happened():
            return True
        time.sleep(0.025)
    return False


def test_a_task_is_done_here_and_by_the_helper(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads, "_CORES", 2)
    calls: list[tuple[str, int]] = []

    def task(bell: np.ndarray, rings: int) -> None:
        calls.append((current_thread().name, rings))
        if rings == threads.RING:
            bell += 1

    for _ in range(5):  # asleep or not
        calls.clear()
        before = int(threads._helper().bell[0])
        threads.together(task)
        assert wait_until(lambda: len(calls) == 2)
        assert sorted(calls) == sorted([(current_thread().name, threads.RING), ("lazygumbel-helper", before + 1)])
    calls.clear()
    monkeypatch.setattr(threads, "_CORES", 1)
    threads.together(task)
    threads.alone(task)
    assert calls == [(current_thread().name, threads.RING)] * 2


def test_a_task_that_fails_tells_its_caller_and_leaves_the_helper_working(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads, "_CORES", 2)

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="no"):
            threads.together(fail)
    done: list[int] = []
    threads._helper().offer(lambda _, rings: done.append(rings))
    assert wait_until(lambda: bool(done))


def test_the_helper_goes_to_sleep_and_is_woken(
    monkeypatch: pytest.MonkeyPatch, model: lg.LogLinear, shared: list[object]
):
    monkeypatch.setattr(threads, "_CORES", 2)
    first = answers(model, 3)
    helper = threads._helper()
    assert wait_until(lambda: helper._asleep)
    rings = int(helper.bell[0])
    assert answers(model, 3) == first
    assert len(shared) == 4 and int(helper.bell[0]) == rings + 2  # both looks of the answers rang


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own():
    """With those of the process it came from, which did not come along, it would wait for ever."""
    script = """
    import os, sys
    import numpy as np
    import lazygumbel as lg
    from lazygumbel import threads
    rows = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    features = lg.Features.of(rows)
    model = lg.LogLinear.build(features, index=lg.PartitionIndex.build(features, rng=0), rng=0)
    before = model(rows[:64]).sample(rng=0).ids
    assert threads._pool.cache_info().currsize == 1
    child = os.fork()
    if not child:
        assert threads._pool.cache_info().currsize == 0
        assert np.array_equal(model(rows[:64]).sample(rng=0).ids, before)
        model(rows[0]).log_partition(rng=0)
        os._exit(7)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert subprocess.run([sys.executable, "-c", dedent(script)], timeout=300, check=False).returncode == 7
