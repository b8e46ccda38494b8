"""The service as a process of its own: every route against the library with the same seed, and what it refuses."""

import ast
import base64
import json
import math
import re
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lazygumbel as lg
import lazygumbel.client
from lazygumbel.cli import app
from lazygumbel.client import Client, ServiceError
from serve_helpers import NAMES, TEMPERATURE, D, N, Server, named_model, send, serving
from statistics_helpers import make_rows, probabilities_of

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(named_model()) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with server.client() as opened:
        yield opened


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    exact = lg.LogLinear.build(make_rows(300, 4, seed=5))
    with serving(exact, "--token-file", str(file), "--max-body", "20000", "--max-size", "50") as running:
        yield running


def dist(theta: Any, temperature: float = TEMPERATURE) -> lg.Distribution:
    return named_model()(theta, temperature=temperature)


def row(i: int) -> np.ndarray:
    return named_model().features.gather(np.array(i))


def test_draws_are_those_of_the_library_with_the_same_seed(client: Client) -> None:
    drawn = client.sample("river", temperature=TEMPERATURE, size=5, seed=3, exclude=["river", 9])
    expected = dist(row(0)).sample(5, rng=3, exclude=[0, 9])
    assert drawn.ids == expected.ids.tolist()
    assert drawn.values == expected.values.tolist()
    assert drawn.names == [NAMES[i] for i in drawn.ids]
    assert (drawn.label, drawn.bound, drawn.rows) == (expected.label, float(expected.bound), int(expected.rows))
    assert (drawn.seed, drawn.violations, drawn.labels, drawn.log_prob) == (3, 0, None, None)


def test_another_seed_gives_other_draws(client: Client) -> None:
    """The control of the tests above and below: that seeds are read at all."""
    drawn = [client.sample("river", temperature=5.0, size=5, seed=seed).ids for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_draws_of_a_batch_have_the_shapes_of_the_library(client: Client) -> None:
    thetas = make_rows(3, D, seed=9)
    drawn = client.sample(thetas, temperature=TEMPERATURE, size=2, seed=0, exclude=[[1], [2, 3], []])
    expected = dist(thetas).sample(2, rng=0, exclude=[[1], [2, 3], []])
    assert np.shape(drawn.ids) == (2, 3)
    assert drawn.ids == expected.ids.tolist()
    assert drawn.rows == expected.rows.tolist()
    assert drawn.labels == expected.labels.tolist()


def test_log_probabilities_of_draws_come_from_the_same_generator(client: Client) -> None:
    rng = np.random.default_rng(4)
    expected = dist(row(0)).sample(3, rng=rng)
    log_prob = dist(row(0)).log_prob(expected.ids, rng=rng)
    drawn = client.sample("river", temperature=TEMPERATURE, size=3, seed=4, log_prob=True)
    assert drawn.ids == expected.ids.tolist()
    assert drawn.log_prob == log_prob.value.tolist()
    assert drawn.log_prob_stderr == log_prob.stderr.tolist()
    assert drawn.rows == int(expected.rows + log_prob.rows)


def test_ordered_draws_are_those_of_the_library(client: Client) -> None:
    drawn = client.sample_without_replacement(
        row(5), 4, temperature=TEMPERATURE, seed=1, exclude=["well-known"], log_prob=True
    )
    rng = np.random.default_rng(1)
    expected = dist(row(5)).sample_without_replacement(4, rng=rng, exclude=[3])
    log_z = dist(row(5)).log_partition(rng=rng, exclude=[3])
    assert drawn.ids == expected.ids.tolist()
    assert drawn.logits == expected.logits.tolist()
    assert drawn.threshold == float(expected.threshold)
    np.testing.assert_allclose(drawn.log_prob, expected.logits - log_z.value, rtol=1e-12)


def test_all_rows_drawn_leave_no_threshold() -> None:
    small = lg.LogLinear.build(make_rows(4, 3))
    with serving(small) as server, server.client() as client:
        drawn = client.sample_without_replacement(0, 4, seed=0)
        assert sorted(drawn.ids) == [0, 1, 2, 3]
        assert drawn.threshold == -math.inf
        assert drawn.names is None
        assert (
            client.top_k("#1 + #2", k=9).ids == small(small.features.gather([1, 2]).sum(axis=0)).top_k(9).ids.tolist()
        )
        with pytest.raises(ServiceError, match="have no names"):
            client.sample("river")


@pytest.mark.parametrize("verb", ["log_partition", "entropy", "expectation"])
@pytest.mark.parametrize("batch", [False, True])
def test_estimates_are_those_of_the_library(client: Client, verb: str, batch: bool) -> None:
    theta = make_rows(2, D, seed=3) if batch else row(7)
    found = getattr(client, verb)(theta, temperature=TEMPERATURE, seed=2, rel_err=0.02, exclude=[4])
    expected = getattr(dist(theta), verb)(rng=2, rel_err=0.02, exclude=[4])
    assert found.value == expected.value.tolist()
    assert found.stderr == expected.stderr.tolist()
    assert found.rows == expected.rows.tolist()
    assert found.label == expected.label
    assert found.bound == expected.bound.tolist()


def test_log_probabilities_are_those_of_the_library(client: Client) -> None:
    found = client.log_prob("lake", ["river", 1, "a + b"], temperature=TEMPERATURE, seed=0, exclude=[1])
    expected = dist(row(1)).log_prob([0, 1, 5], rng=0, exclude=[1])
    assert found.value == expected.value.tolist()
    assert found.value[1] == -math.inf
    thetas = make_rows(2, D, seed=3)
    found = client.log_prob(thetas, [[1, 2], [3, 4], [5, 6]], seed=0)
    assert found.value == dist(thetas, 1.0).log_prob([[1, 2], [3, 4], [5, 6]], rng=0).value.tolist()


def test_the_expectation_of_a_function_is_that_of_the_library(client: Client) -> None:
    values = {1: 2.0, 10: -1.0, 0: 0.5}
    found = client.expectation("river", values, temperature=TEMPERATURE, seed=0, method="exhaustive")
    by_id = np.zeros(N)
    by_id[list(values)] = list(values.values())
    expected = dist(row(0)).expectation(lambda ids: by_id[ids], rng=0, method=lg.Exhaustive())
    assert found.value == pytest.approx(float(expected.value), rel=1e-12)
    assert found.label == "exact"


def test_top_k_is_that_of_the_library(client: Client) -> None:
    for exclude in (None, ["river"]):
        found = client.top_k("river + lake - creek", k=6, exclude=exclude)
        theta = row(0) + row(1) - row(2)
        expected = dist(theta).top_k(6, exclude=None if exclude is None else [0])
        assert found.ids == expected.ids.tolist()
        assert found.scores == pytest.approx(expected.scores.tolist())


def test_an_audit_tells_the_truth(client: Client) -> None:
    exact = probabilities_of(named_model().features.gather(np.arange(N)), row(0), TEMPERATURE, exclude=[3])
    found = client.audit("river", ["lake", 3, 77], temperature=TEMPERATURE, exclude=[3])
    np.testing.assert_allclose(np.exp(found.log_prob), exact[[1, 3, 77]], rtol=1e-4)
    order = np.argsort(-exact)
    assert found.rank == [int(np.flatnonzero(order == 1)[0]) + 1, None, int(np.flatnonzero(order == 77)[0]) + 1]
    assert found.entropy == pytest.approx(-(exact[exact > 0] * np.log(exact[exact > 0])).sum(), rel=1e-4)
    assert found.mass["100"] == pytest.approx(np.sort(exact)[-100:].sum(), rel=1e-4)
    np.testing.assert_allclose(
        np.exp(found.curve["log_prob"]), exact[order][np.array(found.curve["rank"]) - 1], rtol=1e-4
    )
    assert 0 <= found.total_variation < 1e-3
    assert found.rows == N


def test_methods_are_chosen_by_name(client: Client) -> None:
    for name, method in {"exhaustive": lg.Exhaustive(), "lazy": lg.LazyGumbel(), "top-k": lg.TopKOnly(100)}.items():
        drawn = client.sample("river", temperature=TEMPERATURE, size=3, seed=0, method=name)
        expected = dist(row(0)).sample(3, method=method, rng=0)
        assert (drawn.ids, drawn.label) == (expected.ids.tolist(), expected.label)
    assert client.sample("river", delta=1e-3, seed=0).bound == pytest.approx(1e-3)
    with pytest.raises(ServiceError, match="delta: the method exhaustive has none") as refused:
        client.sample("river", method="exhaustive", delta=1e-3)
    assert refused.value.status == 422


@pytest.mark.parametrize("form", ["numbers", "base64", "bytes", "array", "float64", "id", "name", "sum"])
def test_every_form_of_theta_gives_the_same_answer(server: Server, client: Client, form: str) -> None:
    theta = row(0)
    expected = dist(theta).sample(4, rng=0).ids.tolist()
    if form == "bytes":
        query = f"/v1/sample?temperature={TEMPERATURE}&size=4&seed=0"
        reply = send(server, "POST", query, theta.tobytes(), Content_Type="application/octet-stream")
        assert reply.json["ids"] == expected
        return
    forms: dict[str, Any] = {
        "numbers": theta.tolist(),
        "base64": theta,
        "array": array("f", theta.tolist()),
        "float64": theta.astype(np.float64),
        "id": 0,
        "name": "river",
        "sum": "#0 + lake - lake",
    }
    assert client.sample(forms[form], temperature=TEMPERATURE, size=4, seed=0).ids == expected


def test_several_thetas_come_as_names_as_numbers_and_as_bytes(server: Server, client: Client) -> None:
    thetas = named_model().features.gather([0, 5])
    expected = dist(thetas).sample(2, rng=0).ids.tolist()
    for theta in (["river", "a + b"], thetas.tolist(), thetas):
        assert client.sample(theta, temperature=TEMPERATURE, size=2, seed=0).ids == expected
    query = f"/v1/sample?temperature={TEMPERATURE}&size=2&seed=0&exclude=&log_prob=false"
    reply = send(server, "POST", query, thetas.tobytes(), Content_Type="application/octet-stream")
    assert reply.json["ids"] == expected
    one = {"theta": {"float32": base64.b64encode(thetas[0].tobytes()).decode(), "shape": [1, D]}, "size": 2}
    assert np.shape(send(server, "POST", "/v1/sample", one).json["ids"]) == (2, 1)


def test_rows_are_found_by_id_by_name_and_by_the_beginning_of_it(client: Client) -> None:
    assert client.find("Zürich").ids == [6]
    assert client.complete("zü").names == ["Zürich"]
    assert client.complete("word1", limit=4).names == ["word10", "word11", "word12", "word13"]
    assert client.complete("word10", limit=2).names == ["word10", "word100"]
    assert client.complete("nothing like it").ids == []
    rows = client.rows([3, 0], vectors=True)
    assert rows.names == ["well-known", "river"]
    np.testing.assert_array_equal(np.array(rows.vectors, dtype=np.float32), named_model().features.gather([3, 0]))
    with pytest.raises(ServiceError, match="no row is named 'nothing'"):
        client.find("nothing")


def test_info_says_what_is_served(server: Server, client: Client) -> None:
    info = client.info()
    assert (info.n, info.d, info.names, info.index) == (N, D, True, "PartitionIndex")
    assert client.ready()
    assert info.version in json.loads((server.folder / "config.json").read_text())["data"]
    assert send(server, "GET", "/health").json == {"status": "alive"}


def test_metrics_count_what_was_answered(server: Server, client: Client) -> None:
    def value(name: str) -> float:
        lines = send(server, "GET", "/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    names = ('lazygumbel_rows_read_total{route="top-k"}', 'lazygumbel_requests_total{route="/v1/top-k",status="200"}')
    before = [value(name) for name in names]
    rows = client.top_k("river").rows
    assert [value(name) for name in names] == [before[0] + rows, before[1] + 1]
    client.sample("river", seed=0)
    assert value('lazygumbel_answers_total{label="bounded",route="sample"}') > 0
    assert value("lazygumbel_batch_thetas_count") > 0
    assert value("lazygumbel_ceiling_violations_total") >= 0
    assert value("lazygumbel_model_rows") == N


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "sample needs theta"),
        ({"theta": [1.0, 2.0]}, "theta has 2 columns, but the features have d = 16"),
        ({"theta": [1e300] * D}, "beyond float32"),
        ({"theta": "nobody"}, "no row is named 'nobody'"),
        ({"theta": "river + nobody"}, "no row is named 'nobody'"),
        ({"theta": N}, "row ids run from 0 to 1999"),
        ({"theta": True}, "theta must be"),
        ({"theta": ["1"] * D}, "no row is named '1'"),
        ({"theta": 0, "temperature": 0}, "temperature must be greater than 0, not 0"),
        ({"theta": 0, "temperature": "1"}, "temperature must be a number"),
        ({"theta": 0, "size": 0}, "size must be at least 1, not 0"),
        ({"theta": 0, "size": 1.5}, "size must be a whole number"),
        ({"theta": 0, "size": 10_001}, "size is 10,001, but this service takes at most 10,000"),
        ({"theta": [[0.0] * D] * 1025}, "at most 1,024"),
        ({"theta": 0, "seed": -1}, "seed must be at least 0"),
        ({"theta": 0, "exclude": [N]}, "row ids run"),
        ({"theta": 0, "exclude": 3}, "exclude must be a list"),
        ({"theta": 0, "method": "magic"}, "method: 'magic' is none of"),
        ({"theta": 0, "method": "uniform-tail"}, "cannot do this"),
        ({"theta": 0, "delta": 0.5}, "delta must be less than"),
        ({"theta": 0, "tempreature": 1}, "sample takes no 'tempreature'"),
        ({"theta": {"float32": "!"}}, "not valid base64"),
        ({"theta": {"float32": "AAAA"}}, "one theta is 64 bytes"),
    ],
)
def test_bad_arguments_are_refused_in_the_words_of_the_library(server: Server, body: Any, message: str) -> None:
    reply = send(server, "POST", "/v1/sample", body)
    assert reply.status == 422
    assert message in reply.json["error"]


def test_two_hundred_malformed_bodies_are_refused_and_none_fails(server: Server) -> None:
    rng = np.random.default_rng(0)
    good = json.dumps({"theta": row(0).tolist(), "temperature": 0.1, "size": 2, "exclude": [1, 2], "seed": 5}).encode()
    strange = [b"", b"{", b"null", b"[]", b"[" * 100_000, b'{"theta": NaN}', b'{"theta": -Infinity}', b"\xff\xfe"]
    strange += [b'{"theta": 1' + b"0" * 5000 + b"}", b'{"theta": 0, "temperature": 1' + b"0" * 400 + b"}"]
    strange += [json.dumps({"theta": value}).encode() for value in (None, {}, [], [[]], [None], [[1], [2, 3]], "", " ")]
    while len(strange) < 200:
        cut = bytearray(good[: rng.integers(1, len(good))])  # never whole
        cut[rng.integers(len(cut))] = rng.integers(256)
        strange.append(bytes(cut))
    verbs = ["sample", "log-partition", "expectation", "log-prob", "top-k", "audit"]
    statuses = [send(server, "POST", f"/v1/{verbs[i % 6]}", body).status for i, body in enumerate(strange)]
    assert len(statuses) == 200
    assert {400, 422} <= set(statuses) <= {400, 422}, statuses
    assert send(server, "POST", "/v1/sample", good).status == 200


def test_what_is_not_asked_for_rightly_gets_its_own_status(server: Server) -> None:
    assert send(server, "GET", "/v1/sample").status == 405
    assert send(server, "GET", "/v1/nothing").status == 404
    assert send(server, "GET", "/page/../app.py").status == 404
    assert send(server, "GET", "/page/%2e%2e%2fapp.py").status == 404
    assert send(server, "POST", "/v1/sample", "theta=0", Content_Type="text/plain").status == 415
    assert send(server, "POST", "/v1/sample?size=3", {"theta": 0}).status == 422
    assert send(server, "GET", "/v1/rows?name=river&prefix=r").status == 422
    many = ",".join(str(i % N) for i in range(10_000))
    assert send(server, "GET", f"/v1/rows?ids={many}").status == 200
    reply = send(server, "GET", f"/v1/rows?ids={many},1")
    assert (reply.status, "at most 10,000" in reply.json["error"]) == (422, True)
    assert send(server, "POST", "/v1/reload", "").status == 404  # only with a token
    assert send(server, "GET", "/v1/info", Host="evil.example").status == 421
    assert send(server, "GET", "/v1/info", Host=f"localhost:{server.port}").status == 200


def test_a_long_body_is_refused(guarded: Server) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    reply = send(guarded, "POST", "/v1/sample", {"theta": [0.0] * 10_000}, **headers)
    assert reply.status == 413
    assert "20,000 bytes" in reply.json["error"]


def test_a_token_is_demanded_where_one_is_set(guarded: Server) -> None:
    for path in ("/v1/info", "/metrics", "/v1/openapi.json", "/v1/rows?ids=1"):
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            reply = send(guarded, "GET", path, **header)
            assert reply.status == 401
            assert reply.headers["www-authenticate"] == "Bearer"
        assert send(guarded, "GET", path, Authorization=f"Bearer {TOKEN}").status == 200
    for path in ("/health", "/ready", "/", "/page/app.js"):
        assert send(guarded, "GET", path).status == 200
    with guarded.client(token=TOKEN) as client:
        assert client.sample([1.0, 2.0, 3.0, 4.0], seed=0).label == "exact"


def test_no_path_no_trace_and_no_vector_leaves_the_service(server: Server, client: Client) -> None:
    """Log lines are JSON, one a request, and hold neither what was asked for nor what was answered."""
    client.sample(row(0), temperature=TEMPERATURE, seed=0)
    send(server, "POST", "/v1/sample", {"theta": "a secret name"})
    send(server, "GET", "/v1/a-secret-path")
    lines = server.log_lines()
    asked = [line for line in lines if line["event"] == "request" and line["path"] == "/v1/sample"]
    assert {"time", "level", "method", "status", "ms"} <= set(asked[-1])
    assert any(line["status"] == 200 and line["rows"] > 0 and line["label"] == "bounded" for line in asked)
    assert not [line for line in lines if line["event"] == "failed"]
    text = server.log.read_text()
    assert "secret" not in text and "river" not in text and str(row(0)[0]) not in text
    reply = send(server, "GET", "/v1/info")
    assert str(server.folder) not in reply.body.decode()
    assert "default-src 'self'" in reply.headers["content-security-policy"]


def test_a_reload_goes_over_to_the_new_model_and_a_bad_one_leaves_the_old(guarded: Server) -> None:
    with guarded.client(token=TOKEN) as client:
        before = client.info()
        other = lg.LogLinear.build(make_rows(400, 6, seed=6))
        other.save(guarded.folder)
        assert client.info() == before
        assert client.reload() == client.info().version != before.version
        assert (client.info().n, client.info().d) == (400, 6)
        assert client.sample(5, seed=0).ids == other(other.features.gather(np.array(5))).sample(rng=0).ids.tolist()
        (guarded.folder / "config.json").write_text("{}")
        with pytest.raises(ServiceError, match="the old one stays") as refused:
            client.reload()
        assert refused.value.status == 409
        assert str(guarded.folder) not in refused.value.message
        assert client.info().n == 400


def test_only_loopback_is_served_without_a_token(tmp_path: Path) -> None:
    named_model().save(tmp_path / "model")
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "model"), "--host", "0.0.0.0", "--port", "0"])
    assert result.exit_code == 2
    assert "give --token-file, or --insecure" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--port", "70000"], "port"), (["--token-file", "nowhere"], "token-file"), (["--max-batch", "0"], "batch")],
)
def test_bad_options_end_in_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    named_model().save(tmp_path / "model")
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "model"), *options])
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_without_the_extra_the_command_names_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith("lazygumbel.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = CliRunner().invoke(app, ["serve", str(tmp_path)])
    assert result.exit_code == 2
    assert "pip install 'lazygumbel[serve]'" in result.output


def test_the_python_on_the_page_of_the_docs_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(block.replace("http://127.0.0.1:8000", server.url), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert printed[2] == "[0, 1]"  # all tie at theta zero


def test_the_client_imports_the_standard_library_alone() -> None:
    client = Path(lazygumbel.client.__file__).parent
    for file in (*client.glob("*.py"), client.parent / "forms.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            found = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in found:
                own = name.startswith(("lazygumbel.client", "lazygumbel.forms"))
                assert own or name.split(".")[0] in sys.stdlib_module_names, name
