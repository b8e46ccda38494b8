"""Rows in shards behind the service, which change too."""

import os
import shutil
import signal
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from lazygumbel.cli import app
from lazygumbel.client import ServiceError
from lazygumbel.serve import create_app
from lazygumbel.sharded import ShardedModel, ShardError
from lazygumbel.sharded.requests import Lost
from serve_helpers import NAMES, TEMPERATURE, D, N, named_model, serving
from statistics_helpers import make_rows, probabilities_of

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "shards"
    ShardedModel.split(named_model(), folder, shards=3, rng=0)
    return folder


def test_rows_in_shards_are_served(shards: Path) -> None:
    with serving(shards) as server, server.client() as client:
        theta = named_model().features.gather(np.array(1))
        with ShardedModel.connect(shards, engine="threads") as model:
            drawn = client.sample("lake", temperature=TEMPERATURE, size=5, seed=3, exclude=["river"])
            expected = model(theta, temperature=TEMPERATURE).sample(5, rng=3, exclude=[0])
            assert (drawn.ids, drawn.names) == (expected.ids.tolist(), [NAMES[i] for i in drawn.ids])
            ordered = client.sample_without_replacement("lake + creek", 4, seed=1)
            assert len(set(ordered.ids)) == 4
            together = client.top_k(["lake", "a + b"], k=3)
            assert together.ids == model(model.features.gather([1, 5])).top_k(3).ids.tolist()
            found = client.log_prob(5, ["river", 7], temperature=TEMPERATURE, seed=0)
            exact = probabilities_of(named_model().features.gather(np.arange(N)), model.features.gather(5), TEMPERATURE)
            np.testing.assert_allclose(np.exp(found.value), exact[[0, 7]], rtol=0.05)
        info = client.info()
        assert (info.n, info.d, info.names, info.index, info.live) == (N, D, True, "shards", False)
        assert client.rows([3, 0]).names == ["well-known", "river"]
        assert client.complete("word1", limit=4).names == ["word10", "word11", "word12", "word13"]
        assert client.complete("zü").ids == [6]
        assert client.sample("river", delta=1e-3, seed=0).label == "exact"  # small shards are read as a whole
        mean = client.expectation("river", {1: 2.0, 1_999: -1.0}, temperature=TEMPERATURE, seed=0)
        rows = named_model().features.gather(np.arange(N))
        exact = probabilities_of(rows, rows[0], TEMPERATURE)
        assert mean.value == pytest.approx(2 * exact[1] - exact[1_999], rel=0.05)
        audit = client.audit("river", ["lake", 3, 1_999], temperature=TEMPERATURE, exclude=[3])
        exact = probabilities_of(rows, rows[0], TEMPERATURE, exclude=[3])
        np.testing.assert_allclose(np.exp(audit.log_prob), exact[[1, 3, 1_999]], rtol=1e-4)
        order = np.argsort(-exact)
        assert audit.rank == [int(np.flatnonzero(order == i)[0]) + 1 if i != 3 else None for i in (1, 3, 1_999)]
        assert audit.mass["100"] == pytest.approx(np.sort(exact)[-100:].sum(), rel=1e-4)
        assert (audit.rows, audit.label, audit.total_variation) == (N, "exact", 0.0)
        for refused, message in (
            (lambda: client.remove([1]), "read-only"),
            (lambda: client.sample("nobody"), "no row is named 'nobody'"),
        ):
            with pytest.raises(ServiceError, match=message) as error:
                refused()
            assert error.value.status in (403, 422)
        os.kill(server.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + 20
        while "reloaded" not in server.log.read_text() and time.monotonic() < deadline:
            client.sample("lake", seed=0)
        assert client.sample("lake", seed=0).version == info.version
        assert server.stop() == 0


def test_rows_in_shards_change_behind_the_service(shards: Path, tmp_path: Path) -> None:
    """As the library changes them, durable, with one version for the same rows."""
    folder, twin, new = tmp_path / "live", tmp_path / "twin", make_rows(4, D, seed=21)
    shutil.copytree(shards, folder)
    shutil.copytree(shards, twin)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with (
        ShardedModel.connect(twin, engine="threads", mode="r+") as model,
        serving(folder, "--live", "--token-file", str(token)) as server,
        server.client(token=TOKEN) as client,
    ):
        versions = [client.info().version]
        added = client.add(new[:3], ["brook", "pond", "river"])
        assert added.ids == model.add(new[:3], ["brook", "pond", "river"]).tolist() and added.n == N + 3
        versions.append(added.version)
        versions.append(client.replace(["lake", "brook"], new[2:]).version)
        model.replace([1, added.ids[0]], new[2:])
        removed = client.remove(["river", "pond"])  # of two rivers the first
        model.remove([0, added.ids[1]])
        versions.append(removed.version)
        assert (removed.ids, removed.n) == ([0, added.ids[1]], N + 1) and len(set(versions)) == 4
        dist = model(new[0], temperature=TEMPERATURE)
        drawn = client.sample(new[0], temperature=TEMPERATURE, size=5, seed=3, exclude=["brook"])
        assert drawn.ids == dist.sample(5, rng=3, exclude=[added.ids[0]]).ids.tolist()
        assert drawn.version == removed.version == model.version
        assert client.top_k(new[0], k=6).ids == dist.top_k(6).ids.tolist()
        assert client.find("river").ids == [added.ids[2]] and client.complete("BRO").ids == [added.ids[0]]
        for refused, message in (
            (lambda: client.remove(["pond"]), "no row is named 'pond'"),
            (lambda: client.rows([0]), "ids holds 0, but no row has this id"),
            (lambda: client.add(new[:1]), "the rows of this model have names"),
        ):
            with pytest.raises(ServiceError, match=message) as error:
                refused()
            assert error.value.status == 422
        other = CliRunner().invoke(app, ["serve", str(folder), "--live", "--port", "0"])
        assert other.exit_code == 2 and "is being written by process" in other.output
        assert client.reload() == removed.version  # it lets go of the folder, and is its writer again
        assert client.remove(["brook"]).n == N
        (folder / "manifest.json").rename(tmp_path / "manifest.json")
        with pytest.raises(ServiceError, match="the old one stays"):
            client.reload()
        assert client.info().n == N and client.sample(new[0], seed=0).label == "exact"
        (tmp_path / "manifest.json").rename(folder / "manifest.json")
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
    with ShardedModel.connect(folder, engine="threads") as after:
        assert after.n == N and after.find("river") == added.ids[2]


def test_shards_are_asked_and_changed_in_turns(shards: Path, tmp_path: Path) -> None:
    """Rows 0 and 1,999 lie in different shards and are replaced together: every answer is of one version of both."""
    folder = tmp_path / "live"
    shutil.copytree(shards, folder)
    rows = named_model().features.gather(np.array([0, N - 1]))
    theta, moved = rows.sum(axis=0).tolist(), (rows[::-1] * 0.5).tolist()
    seen, faults, stop = list[tuple[str, float]](), list[Exception](), Event()
    right = list[float]()
    for held in (rows, moved):
        phi = named_model().features.gather(np.arange(N)).astype(np.float64)
        phi[[0, N - 1]] = held
        right.append(float(np.log(np.exp(phi @ theta / TEMPERATURE).sum())))
    assert abs(right[0] - right[1]) > 0.01
    with serving(folder, "--live") as server, server.client() as client:

        def ask() -> None:
            try:
                with server.client() as own:
                    while not stop.is_set():
                        found = own.log_partition(theta, temperature=TEMPERATURE, method="exhaustive")
                        seen.append((found.version, float(found.value)))
            except Exception as error:  # told below
                faults.append(error)

        asking = [Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        made = [client.info().version]
        made += [client.replace([0, N - 1], moved if turn % 2 else rows).version for turn in range(40)]
        os.kill(server.process.pid, signal.SIGHUP)  # while they ask
        deadline = time.monotonic() + 20
        while "reloaded" not in server.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        stop.set()
        for thread in asking:
            thread.join()
        assert not faults and "reloaded" in server.log.read_text()
    assert len(set(made)) == 41 and len({version for version, _ in seen}) > 5
    expected = {version: right[turn > 0 and turn % 2 == 0] for turn, version in enumerate(made)}
    assert all(abs(value - expected[version]) < 1e-4 for version, value in seen)


def test_shards_that_are_only_read_are_not_changed(shards: Path) -> None:
    with (
        ShardedModel.connect(shards, engine="threads") as model,
        pytest.raises(ValueError, match=r"live: .* connect with mode='r\+'"),
    ):
        create_app(model, live=True)


def test_a_shard_that_is_lost_is_503_without_its_path(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        ShardedModel.connect(shards, engine="threads") as model,
        TestClient(create_app(model, hosts=None)) as client,
    ):
        assert client.post("/v1/sample", json={"theta": "river"}).status_code == 200

        def broken(*_: Any) -> Any:
            raise ShardError({1: Lost(1, f"gone from {tmp_path}")})

        monkeypatch.setattr("lazygumbel.sharded.threads.ThreadsEngine.ask", broken)
        reply = client.post("/v1/sample", json={"theta": [0.0] * D})
        assert reply.status_code == 503
        assert "some shards do not answer" in reply.json()["error"] and str(tmp_path) not in reply.text
