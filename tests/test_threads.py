"""Threads make answers quicker, not other ones; and a process that forks has its own."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent
from threading import current_thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import lazygumbel as lg
from lazygumbel._support import threads
from lazygumbel.indexes.partition import helping
from statistics_helpers import partition_model

N, D = 20_000, 8


@pytest.fixture(scope="module")
def model() -> lg.LogLinear:
    return partition_model(N, D, seed=5, coordinates=(4, 4))


def answers(model: lg.LogLinear, seed: int) -> tuple[float, ...]:
    dist = model(model.features.gather(np.array([seed]))[0], temperature=0.3)
    log_z, mean, drawn = dist.log_partition(rng=seed), dist.expectation(rng=seed), dist.sample(3, rng=seed)
    exact, best = dist.sample(2, method=lg.Exhaustive(), rng=seed), dist.top_k(3)
    assert log_z.label == drawn.label == "bounded"
    return (
        float(log_z.value),
        float(log_z.stderr),
        float(log_z.rows),
        *mean.value.tolist(),
        *drawn.ids.tolist(),
        *drawn.values.tolist(),
        *exact.ids.tolist(),
        *best.ids.tolist(),
    )


def test_a_shared_scan_is_the_same_whoever_does_it(model: lg.LogLinear, monkeypatch: pytest.MonkeyPatch):
    alone = [answers(model, seed) for seed in range(20)]
    monkeypatch.setattr("lazygumbel.indexes.partition.index._SHARED_FROM", 0)
    called, call = [], helping._Helper.call
    monkeypatch.setattr(helping._Helper, "call", lambda helper: (called.append(helper), call(helper)))
    shared = [answers(model, seed) for seed in range(20)]
    assert shared == alone and len(called) == 5 * 20  # a scan for each answer
    # Control: the numbers depend on what is random.
    assert answers(model, 0) != answers(model, 1)


def test_many_threads_may_ask_at_once(model: lg.LogLinear, monkeypatch: pytest.MonkeyPatch):
    """Also when their scans may be shared: the helper helps one of them at a time."""
    for shared_from in (10**9, 0):
        monkeypatch.setattr("lazygumbel.indexes.partition.index._SHARED_FROM", shared_from)
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda seed: answers(model, seed), range(40)))
        assert found == [answers(model, seed) for seed in range(40)]


def test_batches_may_be_asked_for_from_many_threads(model: lg.LogLinear):
    """Each batch spreads over the pool; none waits for a thread that waits for it."""
    thetas = model.features.gather(np.arange(16))
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda seed: model(thetas).sample(2, rng=seed).ids.tolist(), range(24)))
    assert found == [model(thetas).sample(2, rng=seed).ids.tolist() for seed in range(24)]


def test_results_come_in_order_from_the_threads_of_the_pool():
    found = list(threads.map_threads(lambda a, b: (a - b, current_thread().name), range(50), range(0, 100, 2)))
    assert [value for value, _ in found] == [-i for i in range(50)]
    assert all(name.startswith("lazygumbel") for _, name in found)
    assert threads.submit(lambda: current_thread().name).result().startswith("lazygumbel")
    assert list(threads.map_threads(lambda: 1)) == []


def test_what_fails_in_a_thread_is_told_to_its_caller():
    def fail(number: int) -> int:
        if number == 3:
            raise RuntimeError("no")
        return number

    with pytest.raises(RuntimeError, match="no"):
        list(threads.map_threads(fail, range(8)))
    assert list(threads.map_threads(fail, range(3))) == [0, 1, 2]


def test_one_blas_thread_within_and_as_many_as_before_after():
    def counts() -> list[int]:
        return [facts["num_threads"] for facts in threadpool_info() if facts["user_api"] == "blas"]

    np.ones((2, 2)) @ np.ones((2, 2))
    before = counts()
    assert before
    with threads.one_blas_thread():
        assert set(counts()) == {1}
    assert counts() == before
    # Two that overlap: the first to leave must not lift what the second counts on.
    first, second = threads.one_blas_thread(), threads.one_blas_thread()
    for step in (first.__enter__, second.__enter__, lambda: first.__exit__(None, None, None)):
        step()
        assert set(counts()) == {1}
    second.__exit__(None, None, None)
    assert counts() == before


@pytest.fixture
def default_threads():
    yield
    lg.set_threads(None)


def blas_threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {facts["num_threads"] for facts in threadpool_info() if facts["user_api"] == "blas"}


@pytest.mark.usefixtures("default_threads")
def test_one_setting_for_the_pool_for_blas_and_for_faiss():
    before = blas_threads()
    for n in (3, 1):
        lg.set_threads(n)
        assert lg.get_threads() == n and blas_threads() == {n}
        names = set(threads.map_threads(lambda _: (time.sleep(0.02), current_thread().name)[1], range(12)))
        assert len(names) == n
        with threads.one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {n}
        with threads.capped_faiss() as faiss:
            assert faiss.omp_get_max_threads() <= n
    assert names == {current_thread().name}  # with one thread there is no pool
    assert threads.submit(current_thread).result() is current_thread()
    lg.set_threads(None)
    assert blas_threads() == before and lg.get_threads() == threads._usable_cores()
    # Set in the middle of work that needs one thread of BLAS, it holds from its end on.
    with threads.one_blas_thread():
        lg.set_threads(2)
        assert blas_threads() == {1}
    assert blas_threads() == {2}


@pytest.mark.usefixtures("default_threads")
def test_answers_do_not_depend_on_the_number_of_threads(model: lg.LogLinear, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lazygumbel.indexes.partition.index._SHARED_FROM", 0)
    thetas = model.features.gather(np.arange(8))
    found = []
    for n in (1, 2, 5):
        lg.set_threads(n)
        found.append((answers(model, 3), model(thetas).sample(4, rng=1).ids.tolist()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", True])
def test_a_number_of_threads_that_is_none_is_refused(n: object):
    with pytest.raises(ValueError, match="n must be"):
        lg.set_threads(n)  # pyright: ignore[reportArgumentType]


def test_the_environment_sets_the_number_of_threads():
    script = "import lazygumbel as lg; print(lg.get_threads())"

    def run(value: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"LAZYGUMBEL_THREADS": value}
        return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)

    assert run("5").stdout == "5\n"
    for value in ("0", "many", "-1", ""):
        assert f"LAZYGUMBEL_THREADS must be a whole number of at least 1, not '{value}'" in run(value).stderr


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc": "0::/a/b\n", "a/b/cpu.max": "150000 100000", "cpu.max": "max 100000"}, 1.5),
        ({"proc": "0::/a/b\n", "a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ({"proc": "0::/\n", "cpu.max": "50000 100000"}, 0.5),
        (
            {
                "proc": "3:cpu,cpuacct:/a\n0::/\n",
                "cpu/a/cpu.cfs_quota_us": "300000",
                "cpu/a/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
        ({"proc": "3:cpu:/a\n", "cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ({"proc": "nonsense\n", "cpu.max": "1 2 3"}, None),
        ({}, None),
    ],
)
def test_control_groups_are_heeded(files, expected, tmp_path, monkeypatch: pytest.MonkeyPatch):
    proc = files.pop("proc", "")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    read = threads._read
    monkeypatch.setattr(threads, "_GROUPS", tmp_path)
    monkeypatch.setattr(threads, "_read", lambda file: proc if str(file) == "/proc/self/cgroup" else read(file))
    assert min(threads._quotas(), default=None) == expected


def test_what_a_control_group_allows_holds_for_blas_too():
    """NumPy counts cores by affinity alone: with the time of one core it would use them all, and be held up."""
    script = """
    from pathlib import Path
    usual = Path.read_text
    files = {"/proc/self/cgroup": "0::/\\n", "/sys/fs/cgroup/cpu.max": "100000 100000"}
    Path.read_text = lambda path, *rest, **given: files.get(str(path)) or usual(path, *rest, **given)
    import numpy as np
    import lazygumbel as lg
    from threadpoolctl import threadpool_info
    np.ones((2, 2)) @ np.ones((2, 2))
    print(lg.get_threads(), {facts["num_threads"] for facts in threadpool_info() if facts["user_api"] == "blas"})
    """
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True)
    assert done.stdout == "1 {1}\n", done.stderr


def test_threads_of_faiss_sleep_while_they_wait():
    """Where they spin, one busy neighbour made its k-means 60 times as slow. What the user has set is left alone."""
    script = """
    import os
    from importlib import import_module
    from lazygumbel._support import threads
    seen = []
    threads.import_module = lambda name: (seen.append(os.environ.get("OMP_WAIT_POLICY")), import_module(name))[1]
    with threads.capped_faiss() as faiss:
        print(seen, os.environ.get("OMP_WAIT_POLICY"), faiss.__name__)
    """

    def run(**environment: str) -> str:
        given = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"} | environment
        return subprocess.run([sys.executable, "-c", dedent(script)], env=given, capture_output=True, text=True).stdout

    assert run() == "['PASSIVE'] None faiss\n"
    assert run(OMP_WAIT_POLICY="ACTIVE") == "['ACTIVE'] ACTIVE faiss\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity here")
def test_affinity_is_heeded():
    script = "import os; os.sched_setaffinity(0, {0}); import lazygumbel as lg; print(lg.get_threads())"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "1\n"


def test_a_large_batch_takes_little_memory():
    """In a process of its own, since a peak does not come down again."""
    script = """
    import resource
    import numpy as np
    import lazygumbel as lg

    rows = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
    model, thetas, peaks = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0)), rows[:10_000], []
    for some in (thetas[:64], thetas):
        model(some, temperature=4.0).sample(1, rng=0)
        model(some, temperature=4.0).log_partition(rng=0)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(peaks[1] - peaks[0])
    """
    printed = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=True).stdout
    # Each theta has a race of 30 KiB or more while it lasts: for all at once, 300 MiB. The answers take a few.
    assert float(printed) < 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own():
    """With those of the process it came from, which did not come along, it would wait for ever."""
    script = """
    import os, sys
    import numpy as np
    import lazygumbel as lg
    from lazygumbel._support import threads
    from lazygumbel.indexes.partition import helping, index
    index._SHARED_FROM = 0
    rows = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    features = lg.Features.of(rows)
    model = lg.LogLinear.build(features, index=lg.PartitionIndex.build(features, rng=0), rng=0)
    before = model(rows[:64]).sample(rng=0).ids
    model(rows[0]).sample(rng=0)
    assert threads._pool.cache_info().currsize == helping._helper.cache_info().currsize == 1
    child = os.fork()
    if not child:
        assert threads._pool.cache_info().currsize == helping._helper.cache_info().currsize == 0
        assert np.array_equal(model(rows[:64]).sample(rng=0).ids, before)
        model(rows[0]).log_partition(rng=0)
        os._exit(7)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert subprocess.run([sys.executable, "-c", dedent(script)], timeout=300, check=False).returncode == 7


def test_nobody_waits_for_a_helper_who_ran_out_of_memory():
    """Nor is one left behind who works on what is no longer there. In a process of its own, which may hang."""
    script = """
    import threading
    import numpy as np
    import lazygumbel as lg
    from lazygumbel import kernels
    from lazygumbel.indexes.partition import index
    index._SHARED_FROM = 0
    rows = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    dist = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))(rows[0])
    before, usual = dist.top_k(3).ids.tolist(), kernels.top_theta
    kernels.top_theta = lambda stored, asked, vector, k, *rest: usual(stored, asked, vector, 2**46, *rest)
    failed = 0
    for _ in range(50):
        try:
            dist.top_k(3)
        except MemoryError:
            failed += 1
    kernels.top_theta = usual
    after = [dist.top_k(3).ids.tolist() == before for _ in range(50)]
    print(failed, sum(after), [thread.name for thread in threading.enumerate()].count("lazygumbel-helper"))
    """
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("50 50 1\n", "")
