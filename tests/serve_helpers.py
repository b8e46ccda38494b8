"""A real `lazygumbel serve` on loopback, and a small model for it."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import lazygumbel as lg
from lazygumbel.client import Client
from statistics_helpers import make_rows

__all__ = ["NAMES", "TEMPERATURE", "D", "N", "Reply", "Server", "named_model", "send", "serving"]

N, D, TEMPERATURE = 2_000, 16, 0.2
NAMES = ["river", "lake", "creek", "well-known", "new york", "a + b", "Zürich", *(f"word{i}" for i in range(7, N))]
_COMMAND = [sys.executable, "-c", "from lazygumbel.cli import main; main()", "serve"]


@cache
def named_model(seed: int = 1) -> lg.LogLinear:
    """2,000 rows of length one with names, over a `PartitionIndex`."""
    features = lg.Features.of(make_rows(N, D, seed=seed), names=NAMES)
    return lg.LogLinear(lg.PartitionIndex.build(features, cells=40, rng=0))


class Server(NamedTuple):
    """A running service."""

    process: "subprocess.Popen[str]"
    port: int
    folder: Path
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def log_lines(self) -> list[dict[str, Any]]:
        """What it wrote to standard error: every line is JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def stop(self) -> int:
        """Terminate it; its exit code."""
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def serving(model: lg.LogLinear | Path, *options: str) -> Iterator[Server]:
    """The command on a free port, over a model, which is saved for it, or a folder."""
    with tempfile.TemporaryDirectory() as held:
        folder, log = model if isinstance(model, Path) else Path(held) / "model", Path(held) / "log"
        if isinstance(model, lg.LogLinear):
            model.save(folder)
        command = [*_COMMAND, str(folder), "--port", "0", *options]
        with log.open("w") as errors, subprocess.Popen(command, stdout=-1, stderr=errors, text=True) as process:
            try:
                assert process.stdout is not None
                found = re.search(r"http://\S+:(\d+)/", process.stdout.readline())
                assert found is not None, log.read_text()
                yield Server(process, int(found[1]), folder, log)
            finally:
                process.kill()


class Reply(NamedTuple):
    """Status, headers in lower case, and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send(
    server: Server, method: str, path: str, body: bytes | str | dict[str, Any] | None = None, **headers: str
) -> Reply:
    """One request as it is, on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    if isinstance(body, dict):
        body = json.dumps(body)
    kinds = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body, kinds | {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()
