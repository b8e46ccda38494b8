"""The service under load: right in distribution whoever asks at once, full, stopped, and given another model."""

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.client import Client, ServiceError
from lazygumbel.serve.asking import Answer, ask, groups
from lazygumbel.serve.engine import Batcher, Busy, TooLate
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.metrics import Metrics
from lazygumbel.serve.questions import Question, read_json
from lazygumbel.serve.served import Served
from lazygumbel.serve.verbs import VERBS
from serve_helpers import NAMES, TEMPERATURE, D, N, Server, named_model, send, serving
from statistics_helpers import chi_square_p, probabilities_of

CLIENTS, SECONDS = 64, 20.0
THETAS = ("river", "lake", "river + lake")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(named_model()) as running:
        yield running


@pytest.fixture(scope="module")
def served() -> Served:
    return Served.of(named_model(), "1")


def question(served: Served, verb: str = "sample", **given: Any) -> Question:
    return read_json(verb, VERBS[verb].takes, given, served, Limits())


def exact(theta: str) -> np.ndarray:
    gather = named_model().features.gather
    vector = sum(gather(np.array(NAMES.index(name))) for name in theta.split(" + "))
    return probabilities_of(gather(np.arange(N)), vector, TEMPERATURE)


def run_clients(count: int, one: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def metric(server: Server, name: str) -> float:
    lines = send(server, "GET", "/metrics").body.decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


def test_64_clients_at_once_get_draws_of_the_right_distribution(server: Server) -> None:
    """No error, chi square over all answers for each theta, calls that were shared, and health that answers."""
    until, waited = time.monotonic() + SECONDS, list[float]()

    def one(number: int) -> list[int]:
        found: list[int] = []
        with server.client() as client:
            while time.monotonic() < until:
                seed = None if number % 4 else int(len(found) * CLIENTS + number)
                found += client.sample(THETAS[number % 3], temperature=TEMPERATURE, size=8, seed=seed).ids
        return found

    def look() -> None:
        while time.monotonic() < until:
            begun = time.monotonic()
            assert send(server, "GET", "/health").status == send(server, "GET", "/ready").status == 200
            waited.append(time.monotonic() - begun)
            time.sleep(0.1)

    looking = Thread(target=look)
    looking.start()
    found = run_clients(CLIENTS, one)
    looking.join()
    for i, theta in enumerate(THETAS):
        drawn = np.concatenate(found[i::3])
        assert chi_square_p(drawn, exact(theta)) > 1e-4
        assert chi_square_p(drawn, exact(THETAS[i - 1])) < 1e-9  # of another theta it is not
    assert metric(server, "lazygumbel_batch_thetas_sum") > 2 * metric(server, "lazygumbel_batch_thetas_count")
    assert len(waited) > SECONDS and max(waited) < 2.0


def test_a_seed_gives_the_same_draws_alone_and_in_a_crowd(server: Server) -> None:
    with server.client() as client:
        alone = [client.sample("river", temperature=1.0, size=3, seed=seed).ids for seed in range(20)]
    stop = Event()

    def crowd(_: int) -> None:
        with server.client() as client:
            while not stop.is_set():
                client.sample("lake", size=3)

    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(crowd, i) for i in range(8)]
        with server.client() as client:
            among = [client.sample("river", temperature=1.0, size=3, seed=seed).ids for seed in range(20)]
        stop.set()
        for other in others:
            other.result()
    assert among == alone


def test_questions_without_a_seed_share_a_call_and_get_their_own_answers(served: Served) -> None:
    """Groups are of equal settings; each answer is divided out in the shape that its request has."""
    asked = [
        question(served, theta="river", temperature=1e-3),
        question(served, theta=["lake", "creek"], temperature=1e-3),
    ]
    asked += [question(served, theta="lake", temperature=1e-3, exclude=["lake", "creek"])]
    others = [question(served, theta="lake"), question(served, theta="lake", temperature=1e-3, seed=0)]
    found = groups([*asked, *others])
    assert found == [asked, others[:1], others[1:]]
    answers = [json.loads(answer.body) for answer in ask(asked) if isinstance(answer, Answer)]
    # So cold that a row draws itself, unless it is left out.
    assert answers[0]["ids"] == [0]
    assert answers[1]["ids"] == [[1, 2]]
    assert answers[2]["ids"][0] not in (1, 2)
    assert [answer["seed"] for answer in answers] == [None, None, None]
    assert [np.shape(answer["rows"]) for answer in answers] == [(), (2,), ()]


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("log-partition", {"method": "exhaustive"}),
        ("entropy", {"method": "exhaustive"}),
        ("expectation", {"method": "exhaustive"}),
        ("log-prob", {"method": "exhaustive", "ids": [3]}),
        ("top-k", {"k": 3}),
    ],
)
def test_shared_answers_are_those_that_each_would_have_got(served: Served, verb: str, given: dict[str, Any]) -> None:
    names = ["river", "lake", "creek"]
    asked = [question(served, verb, theta=name, **given) for name in names]
    assert groups(asked) == [asked]
    for together, name in zip(ask(asked), names, strict=True):
        (alone,) = ask([question(served, verb, theta=name, **given)])
        assert isinstance(together, Answer) and isinstance(alone, Answer)
        a, b = json.loads(together.body), json.loads(alone.body)
        assert a.keys() == b.keys()
        for key in ("value", "scores", "ids"):
            if key in a:
                np.testing.assert_allclose(a[key], b[key], rtol=1e-5, atol=1e-7)
    assert together.together == 3 and alone.together == 1


def test_a_fault_of_one_is_not_a_fault_of_the_others(served: Served) -> None:
    many = question(served, "sample-without-replacement", theta="river", size=N - 1)
    too_many = question(served, "sample-without-replacement", theta="river", size=N - 1, exclude=[0, 1, 2])
    assert groups([many, too_many]) == [[many, too_many]]
    good, bad = ask([many, too_many])
    assert isinstance(good, Answer)
    assert isinstance(bad, ValueError) and "only 1997 rows can be drawn" in str(bad)


def test_a_full_queue_refuses_and_a_late_answer_is_not_awaited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    go = Event()

    def held(asked: list[Question]) -> list[Answer | Exception]:
        go.wait(30)
        return ask(asked)

    monkeypatch.setattr("lazygumbel.serve.engine.ask", held)

    async def scenario() -> None:
        engine = Batcher(Limits(queue=2, seconds=0.3), Metrics())
        engine.start()
        first = asyncio.create_task(engine.ask(question(served, theta="river")))
        await asyncio.sleep(0.1)  # the engine took it, and is busy
        waiting = [asyncio.create_task(engine.ask(question(served, theta="river"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await engine.ask(question(served, theta="river"))
        for task in (first, *waiting):
            with pytest.raises(TooLate):
                await task
        go.set()
        while engine.waiting:  # those that nobody waits for are passed over
            await asyncio.sleep(0.01)
        again = await engine.ask(question(served, theta="river"))
        assert again.rows > 0
        await engine.stop()
        assert not engine.running

    asyncio.run(scenario())


def test_a_full_queue_is_429_with_retry_after_and_the_client_comes_again() -> None:
    with serving(named_model(), "--max-queue", "1", "--max-batch", "1") as server:
        body: dict[str, Any] = {"theta": ["river"] * 200, "size": 500}
        statuses = Counter[int]()

        def one(number: int) -> None:
            if number % 2:
                with server.client(retries=20) as client:
                    assert np.shape(client.sample(body["theta"], size=500).ids) == (500, 200)
                return
            reply = send(server, "POST", "/v1/sample", body)
            statuses[reply.status] += 1
            assert reply.status == 200 or reply.headers["retry-after"] == "1"

        run_clients(8, one)
        assert 429 in statuses and set(statuses) <= {200, 429}
        refused = [line for line in server.log_lines() if line.get("status") == 429]
        assert len(refused) > statuses[429]  # clients were refused too, and came again


def test_an_answer_that_takes_too_long_is_503_with_retry_after() -> None:
    with serving(named_model(), "--timeout", "0.01") as server:
        reply = send(server, "POST", "/v1/sample", {"theta": ["river"] * 1_000, "size": 200})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "took longer than this service allows" in reply.json["error"]
        assert send(server, "GET", "/ready").status == 200


def test_sigterm_under_load_loses_nothing_that_was_accepted() -> None:
    """Questions and changes: each that was accepted is answered, and rows that were added are in the folder."""
    with serving(named_model(), "--live") as server:
        begun, answered, broken = Event(), Counter[int](), Counter[int]()

        def one(number: int) -> None:
            # Each ends when the service does: a connection refused, or closed before the answer to a request that was
            # never read.
            with suppress(ConnectionError, HTTPException), server.client(retries=0) as client:
                while True:
                    try:
                        if number:
                            client.sample("river", size=50)
                        else:
                            client.add([[0.0] * D], ["new"])
                    except ServiceError as refused:
                        broken[refused.status] += 1
                        return
                    answered[number] += 1
                    if answered[number] == 3:
                        begun.set()

        threads = [Thread(target=one, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        assert begun.wait(30)
        time.sleep(0.3)
        assert server.stop() == 0
        for thread in threads:
            thread.join(30)
        last = server.log_lines()[-1]
        assert last["event"] == "stopped"
        assert last["accepted"] == last["answered"] == answered.total() > 16
        assert not broken
        assert lg.LogLinear.load(server.folder).features.n == N + answered[0] > N


def test_a_reload_by_signal_under_load_drops_no_request() -> None:
    with serving(named_model()) as server:
        stop, versions = Event(), Counter[str]()

        def one(_: int) -> None:
            with server.client(retries=0) as client:
                while not stop.is_set():
                    versions[client.sample("river", size=2).version] += 1

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(one, i) for i in range(8)]
            with server.client() as client:
                before = client.info().version
                named_model(seed=2).save(server.folder)
                os.kill(server.process.pid, signal.SIGHUP)
                deadline = time.monotonic() + 30
                while client.info().version == before and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(0.2)
                stop.set()
                for done in running:
                    done.result()
                assert set(versions) == {before, client.info().version}
                drawn = client.sample("river", temperature=TEMPERATURE, size=4, seed=0)
        theta = named_model(seed=2).features.gather(np.array(0))
        assert drawn.ids == named_model(seed=2)(theta, temperature=TEMPERATURE).sample(4, rng=0).ids.tolist()
        assert [line["event"] for line in server.log_lines() if line["event"] != "request"] == ["started", "reloaded"]


def test_a_connection_that_was_closed_meanwhile_is_opened_again(server: Server) -> None:
    with Client(server.url) as client:
        client.sample("river")
        assert client._connection.sock is not None
        client._connection.sock.shutdown(socket.SHUT_RDWR)
        assert client.sample("river", seed=0).seed == 0
