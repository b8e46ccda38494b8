"""Rows that change behind the service: answers of the library to the same changes, durable before they are answered."""

import base64
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import lazygumbel as lg
from lazygumbel.cli import app
from lazygumbel.client import Client, ServiceError
from lazygumbel.serve import create_app
from lazygumbel.serve.served import Served
from serve_helpers import TEMPERATURE, D, N, Server, named_model, send, serving
from statistics_helpers import make_rows, probabilities_of

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def live() -> Iterator[Server]:
    with serving(named_model(), "--live") as running:
        yield running


def metric(server: Server, name: str) -> float:
    lines = send(server, "GET", "/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_changes_are_those_of_the_library_and_so_are_the_answers_after_them() -> None:
    """Every verb, with the same seed, over a model that was changed in the same way."""
    twin, new = named_model().snapshot(), make_rows(4, D, seed=21)
    with serving(named_model(), "--live") as server, server.client() as client:
        first = client.info()
        added = client.add(new[:3], ["brook", "pond", "river"])
        assert (added.ids, added.n) == ([N, N + 1, N + 2], N + 3)
        assert twin.add(new[:3], ["brook", "pond", "river"]).tolist() == added.ids
        replaced = client.replace(["lake", N], new[2:])
        twin.replace([1, N], new[2:])
        removed = client.remove(["river", "pond"])  # of two rivers the first
        twin.remove([0, N + 1])
        assert (removed.ids, removed.n) == ([0, N + 1], N + 1)
        assert len({first.version, added.version, replaced.version, removed.version}) == 4
        dist = twin(new[0], temperature=TEMPERATURE)
        drawn = client.sample(new[0], temperature=TEMPERATURE, size=5, seed=3, exclude=["brook"])
        assert drawn.ids == dist.sample(5, rng=3, exclude=[N]).ids.tolist()
        assert drawn.version == removed.version
        assert client.top_k(new[0], k=6).ids == dist.top_k(6).ids.tolist()
        assert client.log_partition(new[0], temperature=TEMPERATURE, seed=1).value == dist.log_partition(rng=1).value
        values = {N: 1.0, 5: 2.0}
        found = client.expectation(new[0], values, temperature=TEMPERATURE, seed=2)
        by_id = np.zeros(N + 3)
        by_id[list(values)] = list(values.values())
        assert found.value == dist.expectation(lambda ids: by_id[ids], rng=2).value
        info = client.info()
        assert (info.n, info.live, info.version) == (N + 1, True, removed.version)


def test_an_audit_after_changes_tells_the_truth() -> None:
    model = named_model().snapshot()
    added = model.add(make_rows(2, D, seed=3), ["brook", "pond"])
    model.remove([3, 4])
    with TestClient(create_app(model, hosts=None)) as client:
        body = {"theta": "river", "temperature": TEMPERATURE, "ids": ["brook", "lake", 9], "exclude": [9]}
        found = client.post("/v1/audit", json=body).json()
    rows, ids = model.features.gather(model.ids), model.ids
    exact = probabilities_of(rows, rows[0], TEMPERATURE, exclude=np.flatnonzero(ids == 9))
    by_id = dict(zip(ids.tolist(), exact.tolist(), strict=True))
    np.testing.assert_allclose(np.exp(found["log_prob"][:2]), [by_id[int(added[0])], by_id[1]], rtol=1e-4)
    assert found["log_prob"][2] is None
    assert (found["rows"], found["label"]) == (N, "bounded")
    assert 0 <= found["total_variation"] < 1e-3


@pytest.mark.parametrize("form", ["numbers", "array", "base64", "bytes"])
def test_rows_come_in_every_form(live: Server, form: str) -> None:
    rows, name = make_rows(2, D, seed=ord(form[0])), f"form-{form}"
    encoded = {"float32": base64.b64encode(rows.tobytes()).decode(), "shape": [2, D]}
    with live.client() as client:
        if form == "bytes":
            kind = "application/octet-stream"
            reply = send(live, "POST", f"/v1/add?names={name},other", rows.tobytes(), Content_Type=kind)
            ids = reply.json["ids"]
            path = f"/v1/replace?ids={ids[1]},{name}"
            assert send(live, "POST", path, rows.tobytes(), Content_Type=kind).json["ids"] == ids[::-1]
            rows = rows[::-1]
        elif form == "base64":
            ids = send(live, "POST", "/v1/add", {"rows": encoded, "names": [name, "other"]}).json["ids"]
        else:
            ids = client.add(rows.tolist() if form == "numbers" else rows, [name, "other"]).ids
        assert client.find(name).ids == ids[:1]
        found = np.array(client.rows(ids, vectors=True).vectors, dtype=np.float32)
        np.testing.assert_array_equal(found, rows)


def test_names_of_rows_that_came_and_went_are_not_kept() -> None:
    """Else the memory of a service would grow with every row that was ever there."""
    model = lg.LogLinear.build(lg.Features.of(make_rows(5, 4), names=["a", "b", "c", "brook", "a"]))
    served = Served.of(model, "1")
    first, largest = served, 0

    def changed(served: Served, gone: Any, came: Any, names: list[str] | None) -> Served:
        return served.after(model, np.array(gone, dtype=np.int64), np.array(came, dtype=np.int64), names)

    model.remove([1])
    served = changed(served, [1], [], None)
    rows, names = make_rows(2_000, 4), ["brook", "x"] * 1_000
    for _ in range(10):
        ids = model.add(rows, names)
        served = changed(served, [], ids, names)
        before = served
        model.remove(ids[2:])
        served = changed(served, ids[2:], [], None)
        assert served.directory.table is not None
        largest = max(largest, len(served.directory.table._later) + len(served.directory.table._gone))
        assert served.directory.find("brook") == 3 and served.directory.find("a") == 0
        assert before.directory.beginning_with("x", 2_000).tolist()[-1] == ids[-1]  # asked before they went
    held = served.directory.beginning_with("x", 100).tolist()
    assert held == [int(i) for i in model.ids if i > 5 and (i - 5) % 2_000 == 1] and len(held) == 10
    assert largest < 20_000 < 2 * 10 * 2_000
    for directory, there in ((first.directory, True), (served.directory, False)):
        assert (directory.beginning_with("b", 9).tolist()[:1] == [1]) == there
    with pytest.raises(ValueError, match="no row is named 'b'"):
        served.directory.find("b")


def test_a_change_is_not_asked_for_twice_where_a_connection_breaks() -> None:
    """Nobody knows then whether it was made; a question may be asked again."""
    asked = list[bytes]()
    info = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{"status": "ready"}'
    info = info.replace(b"18", str(len(info.partition(b"\r\n\r\n")[2])).encode())

    def answer(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while head := connection.recv(65_536):
                    asked.append(head.split(b" HTTP")[0])
                    if b"/ready" not in head:
                        break  # it was read, and perhaps made
                    connection.sendall(info)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=answer, args=(listening,))
        thread.start()
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}", retries=0) as client:
            assert client.ready()
            with pytest.raises((ConnectionError, HTTPException)):
                client.add([[0.0]])
            assert client.ready()
            with pytest.raises((ConnectionError, HTTPException)):
                client.top_k("river")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(30)
    assert asked.count(b"POST /v1/add") == 1 and asked.count(b"POST /v1/top-k") == 2


def test_names_follow_the_rows(live: Server) -> None:
    rows = make_rows(3, D, seed=5)
    with live.client() as client:
        ids = client.add(rows, ["zebra", "Zebu", "zebra"]).ids
        assert client.complete("ZEB").ids == ids
        assert client.complete("zebra").ids == [ids[0], ids[2]]
        client.remove([ids[0]])
        assert client.find("zebra").ids == [ids[2]]
        assert client.complete("zeb", limit=1).ids == [ids[1]]
        client.remove(["zebra"])
        with pytest.raises(ServiceError, match="no row is named 'zebra'"):
            client.find("zebra")
        with pytest.raises(ServiceError, match=f"ids holds {ids[0]}, but the row with this id was removed"):
            client.rows(ids[:1])
        with pytest.raises(ServiceError, match="was removed"):
            client.sample("lake", exclude=ids[:1])
        np.testing.assert_array_equal(client.complete("zeb").ids, [ids[1]])


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("add", {}, "add needs rows"),
        ("add", {"rows": [[0.0] * D]}, "the rows of this model have names"),
        ("add", {"rows": [[0.0] * D], "names": "a"}, "names must be a list"),
        ("add", {"rows": [[0.0] * D], "names": ["a", "b"]}, "names has 2 entries, but rows has 1 rows"),
        ("add", {"rows": [[0.0] * D], "names": [3]}, "names must be strings"),
        ("add", {"rows": [0.0] * D, "names": ["a"]}, f"rows must have shape (m, {D}), not ({D},)"),
        ("add", {"rows": [[0.0, 1.0]], "names": ["a"]}, f"rows must have shape (m, {D}), not (1, 2)"),
        ("add", {"rows": [[0.0] * D, [1e300] * D], "names": ["a", "b"]}, "rows[1] holds NaN, infinity or a value"),
        ("add", {"rows": [["1"] * D], "names": ["a"]}, "rows must be a list of lists of numbers"),
        ("add", {"rows": [[True] * D], "names": ["a"]}, "rows must be a list of lists of numbers"),
        ("add", {"rows": [], "names": []}, "add needs at least one row"),
        ("add", {"rows": 3, "names": ["a"]}, "rows must be a list of lists of numbers"),
        ("add", {"rows": {"float32": "!"}, "names": ["a"]}, "rows: float32 is not valid base64"),
        ("add", {"rows": {"float32": "AAAA"}, "names": ["a"]}, "one row is 64 bytes"),
        ("add", {"rows": [[0.0] * D], "ids": [1]}, "add takes no 'ids'; it takes rows, names"),
        ("remove", {}, "remove needs ids"),
        ("remove", {"ids": []}, "remove needs at least one row"),
        ("remove", {"ids": [10**9]}, "row ids run from 0 to"),
        ("remove", {"ids": ["nobody"]}, "no row is named 'nobody'"),
        ("remove", {"ids": [7, 7]}, "ids holds 7 more than once"),
        ("remove", {"ids": 7}, "ids must be a list"),
        ("replace", {"ids": [7], "rows": [[0.0] * D] * 2}, "rows has 2 rows, but ids has 1"),
        ("replace", {"ids": [7]}, "replace needs rows"),
    ],
)
def test_bad_changes_are_refused_in_the_words_of_the_library(live: Server, kind: str, body: Any, message: str) -> None:
    with live.client() as client:
        before = client.info().version
        reply = send(live, "POST", f"/v1/{kind}", body)
        assert (reply.status, message in reply.json["error"]) == (422, True), reply.body
        assert client.info().version == before


def test_a_read_only_service_takes_no_changes_and_says_why(live: Server) -> None:
    with TestClient(create_app(named_model(), hosts=None)) as client:
        for kind in ("add", "remove", "replace"):
            reply = client.post(f"/v1/{kind}", json={"ids": [1]})
            assert reply.status_code == 403
            assert "read-only" in reply.json()["error"] and "--live" in reply.json()["error"]
            assert send(live, "GET", f"/v1/{kind}").status == 405
        assert not client.get("/v1/info").json()["live"]
    octets = send(live, "POST", "/v1/remove", b"\0\0\0\0", Content_Type="application/octet-stream")
    assert octets.status == 415


def test_changes_are_counted_and_logged_without_their_rows(live: Server) -> None:
    counted = ('lazygumbel_changes_total{kind="add"}', 'lazygumbel_rows_changed_total{kind="add"}')
    before = [metric(live, name) for name in counted]
    with live.client() as client:
        n = client.add(make_rows(3, D, seed=8), ["a-secret", "b-secret", "c-secret"]).n
    assert [metric(live, name) for name in counted] == [before[0] + 1, before[1] + 3]
    assert metric(live, "lazygumbel_model_rows") == n
    line = next(line for line in reversed(live.log_lines()) if line.get("path") == "/v1/add")
    assert (line["status"], line["changed"]) == (200, 3)
    assert "secret" not in live.log.read_text()


def test_what_was_answered_is_there_after_a_kill_and_has_the_same_version(tmp_path: Path) -> None:
    folder, row = tmp_path / "model", make_rows(1, D, seed=4)
    named_model().save(folder)
    with serving(folder, "--live") as server, server.client() as client:
        client.remove(["river"])
        last = client.add(row, ["brook"])
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
    np.testing.assert_array_equal(lg.LogLinear.load(folder).features.gather([N]), row)
    with TestClient(create_app(folder, hosts=None)) as again:  # a folder with a log of changes, read-only
        info = again.get("/v1/info").json()
        assert (info["version"], info["n"]) == (last.version, N)
        asked = {"theta": "brook", "temperature": TEMPERATURE, "size": 3, "seed": 0}
        drawn = again.post("/v1/sample", json=asked).json()
        expected = lg.LogLinear.load(folder)(row[0], temperature=TEMPERATURE).sample(3, rng=0)
        assert drawn["ids"] == expected.ids.tolist()


def test_a_folder_has_one_writer_which_can_load_it_again(tmp_path: Path) -> None:
    folder, token = tmp_path / "model", tmp_path / "token"
    named_model().save(folder)
    token.write_text(TOKEN)
    with serving(folder, "--live", "--token-file", str(token)) as server, server.client(token=TOKEN) as client:
        assert send(server, "POST", "/v1/remove", {"ids": [1]}).status == 401
        other = CliRunner().invoke(app, ["serve", str(folder), "--live", "--port", "0"])
        assert other.exit_code == 2 and len(other.output.splitlines()) == 1
        before = client.remove(["lake"])
        assert client.reload() == before.version == client.info().version
        after = client.add(make_rows(1, D, seed=4), ["brook"])
        assert (after.ids, after.n) == ([N], N)
        (folder / "config.json").rename(tmp_path / "config.json")
        with pytest.raises(ServiceError, match="the old one stays"):
            client.reload()
        assert client.info().version == after.version
        (tmp_path / "config.json").rename(folder / "config.json")
        assert client.remove(["brook"]).n == N - 1  # still the writer
        assert server.stop() == 0
    with lg.LogLinear.load(folder, mode="r+") as model:
        assert model.features.n == N - 1


def test_a_change_that_cannot_be_written_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named_model().save(tmp_path / "model")
    with TestClient(create_app(tmp_path / "model", live=True, hosts=None)) as client:

        def full(_: int) -> None:
            raise OSError(28, "No space left on device", str(tmp_path))

        with monkeypatch.context() as patched:
            patched.setattr("lazygumbel.live.journal.os.fsync", full)
            refused = client.post("/v1/remove", json={"ids": [1]})
        assert refused.status_code == 503
        assert "was not made" in refused.json()["error"] and str(tmp_path) not in refused.text
        assert client.get("/v1/info").json()["n"] == N
        assert client.post("/v1/remove", json={"ids": [1]}).json()["n"] == N - 1


def test_no_removed_row_is_answered_after_its_removal_was(live: Server) -> None:
    """Rows come and go under readers: a request does not see what was gone when it was made."""
    gone, faults, asked = set[int](), list[Exception](), list[int]()
    changing, stop = Lock(), Event()
    theta = named_model().features.gather(np.array(0))

    def read(verb: str) -> None:
        with live.client() as client:
            while not stop.is_set():
                with changing:
                    before = set(gone)
                many = {"temperature": 0.05, "size": 20} if verb == "sample" else {"k": 20}
                asked.append(len(before & set(getattr(client, verb)(theta, **many).ids)))

    def change(seed: int) -> None:
        with live.client() as client:
            while not stop.is_set():
                rows = theta + 0.05 * make_rows(4, D, seed=seed)  # more probable than others
                ids = client.add(rows, ["new"] * 4).ids
                client.replace(ids[:1], rows[1:2])
                client.remove(ids[:3])
                with changing:
                    gone.update(ids[:3])

    def run(work: Callable[[Any], None], given: object) -> None:
        try:
            work(given)
        except Exception as error:  # told below
            faults.append(error)

    work = [(read, "sample"), (read, "sample"), (read, "top_k"), (change, 1), (change, 2)]
    threads = [Thread(target=run, args=one) for one in work]
    for thread in threads:
        thread.start()
    time.sleep(4.0)
    with live.client() as client:
        seen = set(client.top_k(theta, k=50).ids)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(gone) > 30 and len(asked) > 30
    assert sum(asked) == 0
    assert any(i >= N for i in seen)  # the control: new rows are among those that are answered


def test_rows_that_are_no_numbers_are_refused_before_they_are_sent() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(ValueError, match="rows must be"):
        client.add(object())  # type: ignore[arg-type]
