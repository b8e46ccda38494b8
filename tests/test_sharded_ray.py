"""Shards on a real Ray cluster of several raylets on this machine, and the drill: processes and nodes are killed.

Every answer must be that of the same shards in this process, number for number, or an error that names the shard.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lazygumbel import Features, Keyed, LogLinear, get_threads
from lazygumbel.sharded import Health, ShardedModel, ShardError
from lazygumbel.sharded.manifest import folder_of
from serve_helpers import serving
from statistics_helpers import make_rows

ray = pytest.importorskip("ray", exc_type=ImportError)
pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own

N, D = 1_500, 8
ROWS = 3 * make_rows(N, D, varied=True, seed=2)
THETAS = make_rows(6, D, seed=9)
SETTINGS = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 2,
    "worker_niceness": 0,
}
"""A node that is gone is noticed after one second, not after thirteen; workers do not give way to other tests."""
STORE = 78 * 2**20


class Cluster:
    """A head without processors and nodes with one each."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster as Raylets

        head = {"num_cpus": 0, "_system_config": SETTINGS, "object_store_memory": STORE, "include_dashboard": False}
        self._raylets = Raylets(initialize_head=True, head_node_args=head)
        self._nodes = [self._raylets.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(nodes)]
        self.address: str = self._raylets.address

    def join(self) -> None:
        self._nodes.append(self._raylets.add_node(num_cpus=1, object_store_memory=STORE))

    def kill(self, worker: Health) -> None:
        """Kill a worker's node, and the worker, which Ray's own way to remove a node leaves alive."""
        (node,) = (node for node in self._nodes if node.node_id == worker.node)
        self._nodes.remove(node)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        self._raylets.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        ray.shutdown()
        self._raylets.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # loopback alone
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_DEDUP_LOGS", "0")
        started = Cluster(4)
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
        yield started
        started.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shards") / "out"
    named = LogLinear.build(Features.of(ROWS, names=[f"row {i}" for i in range(N)]))
    ShardedModel.split(named, out, shards=[700, 300, 500], rng=0)
    return out


@pytest.fixture(scope="module")
def reference(folder: Path) -> ShardedModel:
    return ShardedModel.connect(folder, engine="threads", deadline=60)


@pytest.fixture(scope="module")
def model(cluster: Cluster, folder: Path) -> Iterator[ShardedModel]:
    """Three shards on four nodes: one to spare."""
    with ShardedModel.connect(folder, engine="ray", address=cluster.address, deadline=8) as connected:
        yield connected


def assert_right(model: ShardedModel, reference: ShardedModel, seed: int = 0) -> None:
    mine, theirs = model(THETAS).sample(40, rng=seed), reference(THETAS).sample(40, rng=seed)
    np.testing.assert_array_equal(mine.ids, theirs.ids)
    assert mine.coverage == 1.0 and mine.label == "exact"


def kill_soon(pid: int | None, *, after: float) -> threading.Thread:
    """Stop a process now, so that it answers nothing, and kill it while it is being waited for."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(after, os.kill, (pid, signal.SIGKILL))
    killer.start()
    return killer


def test_the_command_line_asks_shards_on_a_cluster(cluster: Cluster, folder: Path, reference: ShardedModel) -> None:
    """In a process of its own, as a user would, and first, while the nodes have their cores free."""
    asked = ["sample", str(folder), "20", "--name", "row 7", "--seed", "5", "--json", "--ray", cluster.address]
    code = f"from lazygumbel.cli import main; import sys; sys.argv[1:] = {asked!r}; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ids"] == reference(ROWS[7]).sample(20, rng=5).ids.tolist()


def writer_of(shard: Path) -> int:
    """The process that has a shard open to change it."""
    with pytest.raises(ValueError, match="is being written by process") as refused:
        LogLinear.load(shard, mode="r+")
    (pid,) = re.findall(r"process (\d+)", str(refused.value))
    return int(pid)


def test_the_service_changes_rows_on_a_cluster(cluster: Cluster, folder: Path, tmp_path: Path) -> None:
    """A worker killed between changes, too: what was answered is on disk, and the next answer knows of it."""
    served = tmp_path / "served"
    shutil.copytree(folder, served)
    with serving(served, "--live", "--ray", cluster.address) as server, server.client() as client:
        before = client.info()
        added = client.add(2 * ROWS[:2], ["brook", "pond"])
        assert added.ids == [N + 1, N + 4]  # shard 1 has the fewest rows
        os.kill(writer_of(served / folder_of(1)), signal.SIGKILL)
        replaced, removed = client.replace(["brook"], ROWS[9:10]), client.remove(["pond", 0, 800])
        assert len({before.version, added.version, replaced.version, removed.version}) == 4
        with ShardedModel.connect(served, engine="threads") as disk:
            assert disk.n == removed.n == N - 1 and disk.version == removed.version
            drawn = client.sample(THETAS[0], size=40, seed=3)
            assert drawn.ids == disk(THETAS[0]).sample(40, rng=3).ids.tolist() and drawn.version == disk.version
            np.testing.assert_array_equal(disk.features.gather([N + 1]), ROWS[9:10])
        assert server.stop() == 0
    with ShardedModel.connect(served, engine="threads", mode="r+") as after:  # the service let go of the shards
        assert after.version == removed.version


OWN = """
import os
import numpy as np
from lazygumbel.sharded import ShardedModel
with ShardedModel.connect({folder!r}) as model:
    drawn = model(np.array({theta})).sample(20, rng=5)
    nice = {{os.getpriority(os.PRIO_PROCESS, record.pid) for record in model.health()}}
    assert nice == {{os.getpriority(os.PRIO_PROCESS, 0)}}, nice  # workers do not give way to others
    print(drawn.ids.tolist())
import ray
assert not ray.is_initialized()
"""


def test_without_an_address_a_cluster_is_started_on_this_machine(folder: Path, reference: ShardedModel) -> None:
    code = OWN.format(folder=str(folder), theta=THETAS[0].tolist())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == reference(THETAS[0]).sample(20, rng=5).ids.tolist()


def test_every_verb_answers_as_shards_in_this_process_do(model: ShardedModel, reference: ShardedModel) -> None:
    assert_right(model, reference)
    for theta in (THETAS, THETAS[0]):
        mine, theirs = model(theta, temperature=0.5), reference(theta, temperature=0.5)
        for exclude in (None, np.arange(650, 1_100)):
            for verb in ("log_partition", "expectation", "entropy"):
                found, expected = getattr(mine, verb)(exclude=exclude), getattr(theirs, verb)(exclude=exclude)
                np.testing.assert_array_equal(found.value, expected.value)
            ids = mine.sample_without_replacement(9, rng=2, exclude=exclude).ids
            np.testing.assert_array_equal(ids, theirs.sample_without_replacement(9, rng=2, exclude=exclude).ids)
            np.testing.assert_array_equal(mine.top_k(400, exclude=exclude).ids, theirs.top_k(400, exclude=exclude).ids)
            np.testing.assert_array_equal(mine.mode(exclude=exclude).ids, theirs.mode(exclude=exclude).ids)
        keyed = mine.sample(9, method=Keyed(), rng=2).ids
        np.testing.assert_array_equal(
            keyed, LogLinear.build(ROWS)(theta, temperature=0.5).sample(9, method=Keyed(), rng=2).ids
        )
        asked = np.zeros((3, *theta.shape[:-1]), dtype=np.int64) + 1_499
        np.testing.assert_array_equal(mine.log_prob(asked).value, theirs.log_prob(asked).value)
    np.testing.assert_array_equal(model.features.gather([3, 1_499]), ROWS[[3, 1_499]])
    assert model.names([800, 3]) == ["row 800", "row 3"] and model.find("row 1200") == 1_200
    with pytest.raises(ValueError, match="cannot do this"):
        model(THETAS).sample(1, method=object())  # type: ignore[arg-type]


def test_functions_travel_to_workers_and_their_faults_come_back(model: ShardedModel, reference: ShardedModel) -> None:
    by_id, lock, began = np.random.default_rng(0).standard_normal(N), threading.Lock(), time.monotonic()
    found, expected = (each(THETAS).expectation(lambda ids: by_id[ids]).value for each in (model, reference))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="f: it raised IndexError"):
        model(THETAS).expectation(lambda ids: by_id[ids + N])
    with pytest.raises(ValueError, match="method, f: what is asked must travel to other processes"):
        model(THETAS).expectation(lambda ids: [lock.locked() for _ in ids])
    assert time.monotonic() - began < 5  # none of them was asked again until the deadline
    assert model.features.beginning_with("ROW 149", 3).tolist() == [149, 1_490, 1_491]
    audit = model.audit(THETAS, exclude=[3])
    np.testing.assert_array_equal(audit.miss, reference.audit(THETAS, exclude=[3]).miss)


def threads_of(model: ShardedModel) -> list[int]:
    slots = model._shards._engine._all()  # type: ignore[attr-defined]
    return ray.get([slot.actor.__ray_call__.remote(lambda _: get_threads()) for slot in slots])


def test_each_worker_has_as_many_threads_as_cores_are_reserved_for_it(model: ShardedModel) -> None:
    assert threads_of(model) == [1, 1, 1]


def test_shards_are_spread_over_nodes(model: ShardedModel) -> None:
    records = model.health()
    assert [(r.shard, r.rows, r.restarts, r.last_error) for r in records] == [
        (0, 700, 0, None),
        (1, 300, 0, None),
        (2, 500, 0, None),
    ]
    assert len({record.node for record in records}) == 3
    assert len({record.pid for record in records} | {os.getpid()}) == 4


def test_a_worker_killed_during_a_batch_is_replaced(model: ShardedModel, reference: ShardedModel) -> None:
    before = model.health()[1]
    killer = kill_soon(before.pid, after=0.3)
    began = time.monotonic()
    assert_right(model, reference, seed=1)
    assert 0.3 < time.monotonic() - began < 8
    killer.join()
    after = model.health()[1]
    assert after.pid != before.pid and after.restarts == before.restarts + 1


def test_a_stopped_worker_misses_the_deadline_and_is_named(cluster: Cluster, folder: Path) -> None:
    with ShardedModel.connect(
        folder, engine="ray", address=cluster.address, deadline=1.0, cpus=0.0, missing="partial"
    ) as model:
        assert threads_of(model) == [get_threads()] * 3  # where none are reserved
        stopped = model.health()[2].pid or 0
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(ShardError, match=r"^shard 2: no answer within 1 s$"):
            model(THETAS).mode()  # which cannot be partial
        estimate = model(THETAS).log_partition()
        assert estimate.coverage == pytest.approx(1_000 / N) and estimate.label == "heuristic"
        truth = np.log(np.exp(ROWS[:1_000].astype(np.float64) @ THETAS.T).sum(axis=0))
        np.testing.assert_allclose(estimate.value, truth, rtol=1e-5)
        os.kill(stopped, signal.SIGCONT)
        time.sleep(0.2)
        assert model(THETAS).log_partition().coverage == 1.0
        assert model.health()[2].last_error is None


def test_another_worker_of_the_shard_answers_for_one_that_hangs(
    cluster: Cluster, folder: Path, reference: ShardedModel
) -> None:
    with ShardedModel.connect(folder, address=cluster.address, deadline=6, replicas=2, cpus=0.0) as model:
        assert_right(model, reference)
        records = model.health()
        assert [record.shard for record in records] == [0, 0, 1, 1, 2, 2]
        assert len({record.pid for record in records}) == 6
        hanging = records[0].pid
        os.kill(hanging or 0, signal.SIGSTOP)
        assert_right(model, reference, seed=3)
        os.kill(hanging or 0, signal.SIGKILL)


def test_a_shard_that_comes_back_with_other_files_is_refused(
    cluster: Cluster, folder: Path, tmp_path: Path, reference: ShardedModel
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with ShardedModel.connect(copy, address=cluster.address, deadline=10, cpus=0.0) as model:
        LogLinear.build(ROWS[700:1_000] * 2).save(copy / "shard-001")
        assert_right(model, reference, seed=4)  # the worker has the old files open
        os.kill(model.health()[1].pid or 0, signal.SIGKILL)
        with pytest.raises(ShardError, match=r"^shard 1: .* holds version \w+, but version \w+ was expected"):
            model(THETAS).sample(1)
        shutil.rmtree(copy / "shard-001")
        shutil.copytree(folder / "shard-001", copy / "shard-001")
        assert_right(model, reference, seed=5)


def test_shards_built_by_workers_are_those_built_here(cluster: Cluster, tmp_path: Path) -> None:
    files: list[Path] = []
    for i, part in enumerate(np.split(ROWS, [400, 900])):
        files.append(tmp_path / f"rows-{i}.npy")
        np.save(files[-1], part)
    ShardedModel.build(files, tmp_path / "here", shards=[600, 0, 900], rng=5)
    bad = ROWS[900:].copy()
    bad[7, 1] = np.nan
    np.save(files[2], bad)
    with pytest.raises(ValueError, match=r"shard 2: .* NaN"):
        ShardedModel.build(files, tmp_path / "bad", shards=[600, 0, 900], rng=5, engine="ray", address=cluster.address)
    np.save(files[2], ROWS[900:])
    ShardedModel.build(files, tmp_path / "there", shards=[600, 0, 900], rng=5, engine="ray", address=cluster.address)
    here, there = (ShardedModel.connect(tmp_path / name, engine="threads") for name in ("here", "there"))
    with here, there:
        assert_right(there, here)
    with pytest.raises(ValueError, match="source: workers of a cluster open files themselves"):
        ShardedModel.build(ROWS, tmp_path / "array", engine="ray")


def test_changes_survive_killed_workers_and_are_made_once(cluster: Cluster, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with ShardedModel.connect(copy, address=cluster.address, deadline=10, cpus=0.0, mode="r+") as model:
        ids = model.add(2 * ROWS[:40], [f"new {i}" for i in range(40)])
        np.testing.assert_array_equal(ids, N + 3 * np.arange(40) + 1)  # shard 1 has the fewest rows
        before = model.health()
        killers = [kill_soon(before[shard].pid, after=after) for shard, after in ((1, 0.3), (2, 0.6))]
        model.remove([10, 800, ids[3], 1_200])  # shard 0 makes its part while the others are killed
        for killer in killers:
            killer.join()
        model.replace([11, 801], ROWS[[20, 21]])
        assert [record.restarts for record in model.health()] == [0, 1, 1] and model.n == N + 36
        with pytest.raises(ValueError, match="ids holds 800, but no row has this id"):
            model.remove([800])
        with ShardedModel.connect(copy, engine="threads") as reader:  # from what is on disk
            assert_right(model, reader)
            np.testing.assert_array_equal(model.features.gather([11, ids[5]]), [ROWS[20], 2 * ROWS[5]])
            model.compact()
            os.kill(model.health()[1].pid or 0, signal.SIGKILL)
            value, expected = model(THETAS).log_partition().value, reader(THETAS).log_partition().value
            np.testing.assert_allclose(value, expected, rtol=1e-6)
        with ShardedModel.connect(copy, engine="threads") as later:
            assert_right(model, later, seed=1)
            assert model.find("new 7") == ids[7] and model.names([ids[8]]) == ["new 8"]
        with pytest.raises(ValueError, match="is being written by process"):
            ShardedModel.connect(copy, engine="threads", mode="r+")


def test_a_shard_that_was_built_empty_gets_the_first_rows_and_may_lose_them(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ShardedModel.split(ROWS[:200], out, shards=[200, 0], rng=0)
    with ShardedModel.connect(out, address=cluster.address, deadline=60, cpus=0.0, mode="r+") as model:
        ids = model.add(2 * ROWS[200:230])
        assert [record.rows for record in model.health()] == [200, 30] and model.n == 230
        with ShardedModel.connect(out, engine="threads") as reader:  # from what is on disk
            assert_right(model, reader)
        best = model(THETAS[0]).top_k(230).ids
        assert sorted(best.tolist()) == [*range(200), *ids.tolist()]
        model.remove(ids)
        assert [record.rows for record in model.health()] == [200, 0]
        assert not np.isin(model(THETAS[0]).sample(500, rng=0).ids, ids).any()


def test_nodes_are_killed_and_one_joins(cluster: Cluster, model: ShardedModel, reference: ShardedModel) -> None:
    before = model.health()[1]
    cluster.kill(before)  # there is a spare
    assert_right(model, reference, seed=6)
    after = model.health()[1]
    assert after.pid != before.pid and after.node != before.node

    cluster.kill(after)  # there is none
    with pytest.raises(ShardError, match=r"^shard 1: no answer within 8 s") as caught:
        model(THETAS).sample(1)
    assert [lost.shard for lost in caught.value.lost] == [1]
    assert model.names([3]) == ["row 3"]  # of a shard that is there

    cluster.join()
    assert_right(model, reference, seed=7)
    joined = model.health()[1]
    assert joined.node not in (before.node, after.node) and joined.last_error is None
