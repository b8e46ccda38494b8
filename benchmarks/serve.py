"""Load on `lazygumbel serve` over loopback: requests a second, latencies, batches, and the overhead of a lone request.

    python benchmarks/serve.py                       # the word vectors, 32 connections, 10 s
    python benchmarks/serve.py --mixed --seconds 600  # all verbs, and the memory of the server

The server is a process of its own; so is the client, on the same machine: both are paid for by the same cores.
"""

import argparse
import asyncio
import base64
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from urllib.request import urlopen

import numpy as np

import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.client import Client

TEMPERATURE = 0.05
THETAS = 256


@contextmanager
def serving(path: Path) -> Iterator[tuple[int, int]]:
    """A server on a free port: the port, and the id of its process."""
    command = [sys.executable, "-c", "from lazygumbel.cli import main; main()", "serve", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = re.search(r":(\d+)/", server.stdout.readline())
        assert found is not None, "the server did not start"
        try:
            yield int(found[1]), server.pid
        finally:
            server.terminate()
            server.wait(60)


def request(verb: str, body: dict[str, object]) -> bytes:
    """The bytes of one request on a connection that is kept open."""
    text = json.dumps(body).encode()
    head = f"POST /v1/{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(text)}\r\n\r\n".encode() + text


async def connection(port: int, requests: Iterator[bytes], until: float, seconds: list[float]) -> int:
    """Ask on one connection until it is time; the number of answers that were not 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    errors = 0
    while time.perf_counter() < until:
        begun = time.perf_counter()
        writer.write(next(requests))
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - begun)
        errors += not head.startswith(b"HTTP/1.1 200")
    writer.close()
    return errors


async def load(port: int, requests: list[bytes], connections: int, seconds: float) -> tuple[list[float], int]:
    """Latencies in seconds, and errors."""
    until, latencies, endless = time.perf_counter() + seconds, list[float](), cycle(requests)
    errors = await asyncio.gather(*(connection(port, endless, until, latencies) for _ in range(connections)))
    return latencies, sum(errors)


def mean_batch(port: int) -> float:
    """Thetas of a call of the library, on average so far."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    count, total = (
        float(re.search(rf"^lazygumbel_batch_thetas_{key} (\S+)", text, re.M)[1]) for key in ("count", "sum")
    )
    return total / max(count, 1.0)


def resident(pid: int) -> float:
    """Memory of a process in MiB."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) / 1024 if found else float("nan")


def lone_overhead(model: lg.LogLinear, port: int, thetas: np.ndarray) -> tuple[float, float]:
    """Median seconds of a draw by the library, and over HTTP, one at a time."""
    with Client(f"http://127.0.0.1:{port}") as client:
        kinds = (
            lambda theta: model(theta, temperature=TEMPERATURE).sample(rng=0),
            lambda theta: client.sample(theta, temperature=TEMPERATURE, seed=0),
        )
        taken = [list[float](), list[float]()]
        for theta in thetas:  # taking turns, so that both see the same machine
            for times, kind in zip(taken, kinds, strict=True):
                begun = time.perf_counter()
                kind(theta)
                times.append(time.perf_counter() - begun)
    return float(np.median(taken[0])), float(np.median(taken[1]))


def bodies(thetas: np.ndarray, *, mixed: bool) -> list[bytes]:
    """One draw a request, theta in base64; or all verbs in turn."""
    settings: list[tuple[str, dict[str, object]]] = [("sample", {})]
    if mixed:
        settings += [("sample-without-replacement", {"size": 5}), ("log-partition", {}), ("entropy", {})]
        settings += [("log-prob", {"ids": [1, 2]}), ("expectation", {}), ("sample", {"seed": 1, "size": 3})]
    found = [
        request(verb, {"theta": {"float32": base64.b64encode(theta.tobytes()).decode()}, "temperature": 0.05, **given})
        for theta, (verb, given) in zip(thetas, cycle(settings), strict=False)
    ]
    return found + [request("top-k", {"theta": int(i)}) for i in range(THETAS // 8 if mixed else 0)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a saved model; by default the word vectors are built")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--mixed", action="store_true", help="all verbs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.model or Path(folder) / "model"
        if given.model is None:
            lg.LogLinear.build(datasets.glove(), rng=0).save(path)
        model = lg.LogLinear.load(path)
        thetas = model.features.gather(np.random.default_rng(0).integers(model.features.n, size=THETAS))
        with serving(path) as (port, pid):
            asyncio.run(load(port, bodies(thetas, mixed=given.mixed), given.connections, 1.0))
            library, http = lone_overhead(model, port, thetas)
            print(f"one draw: library {library * 1e3:.2f} ms, HTTP {http * 1e3:.2f} ms (median)")
            before = resident(pid)
            latencies, errors = asyncio.run(
                load(port, bodies(thetas, mixed=given.mixed), given.connections, given.seconds)
            )
            p50, p99 = np.quantile(latencies, [0.5, 0.99]) * 1e3
            print(
                f"{len(latencies) / given.seconds:,.0f} requests/s on {given.connections} connections, {errors} errors"
            )
            print(f"latency p50 {p50:.1f} ms, p99 {p99:.1f} ms; {mean_batch(port):.1f} thetas a call")
            print(f"memory {before:,.0f} MiB before, {resident(pid):,.0f} MiB after")


if __name__ == "__main__":
    main()
