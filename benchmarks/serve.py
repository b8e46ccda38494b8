"""Load on `lazygumbel serve` over loopback: requests a second, latencies, batches, and what HTTP adds to a draw.

    python benchmarks/serve.py                # the word vectors: 1 to 64 connections, and a lone request
    python benchmarks/serve.py --mixed 600    # all verbs under changes of rows, and the memory of the server

The server is a process of its own; so is the client, on the same machine: both are paid for by the same cores.
`--json` keeps what was measured; `python benchmarks/serve_figure.py` draws it.
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
from itertools import chain, cycle
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.client import Client

WRITTEN = Path(__file__).parent.parent / "docs" / "service.json"
TEMPERATURE = 0.05
THETAS = 256
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
CHANGED = 8
"""Rows of a change under mixed load."""
SHOWN = 10
"""Errors, at the most, that are printed."""
SAMPLED = 5.0
"""Seconds between two looks at the memory."""


@contextmanager
def serving(path: Path, *options: str) -> Iterator[tuple[int, int]]:
    """A server on a free port: the port, and the id of its process."""
    command = [sys.executable, "-c", "from lazygumbel.cli import main; main()", "serve", str(path), "--port", "0"]
    with subprocess.Popen([*command, *options], stdout=-1, stderr=subprocess.DEVNULL, text=True) as server:
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


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes
) -> tuple[str | None, bytes]:
    """What was wrong, if a request was not answered with 200, and the answer."""
    writer.write(asked)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    answer = await reader.readexactly(int(length[1]))
    if head.startswith(b"HTTP/1.1 200"):
        return None, answer
    return f"{asked.split(maxsplit=2)[1].decode()}: {head.splitlines()[0].decode()} {answer[:300].decode()}", answer


async def connection(port: int, requests: Iterator[bytes], until: float, seconds: list[float]) -> list[str]:
    """Ask on one connection until it is time; what was wrong with answers that were not 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    errors = list[str]()
    while time.perf_counter() < until:
        begun = time.perf_counter()
        wrong, _ = await exchange(reader, writer, next(requests))
        seconds.append(time.perf_counter() - begun)
        errors += [] if wrong is None else [wrong]
    writer.close()
    return errors


async def load(port: int, requests: list[bytes], connections: int, seconds: float) -> tuple[list[float], list[str]]:
    """Latencies in seconds, and errors."""
    until, latencies, endless = time.perf_counter() + seconds, list[float](), cycle(requests)
    errors = await asyncio.gather(*(connection(port, endless, until, latencies) for _ in range(connections)))
    return latencies, list(chain.from_iterable(errors))


async def change(port: int, d: int, until: float) -> tuple[int, list[str]]:
    """Add rows, replace some, remove all, again and again: the number of changes, and errors."""
    rng, changes, errors = np.random.default_rng(1), 0, list[str]()
    while time.perf_counter() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)  # one that idles is closed after a while
        rows = (rng.standard_normal((CHANGED, d)) / np.sqrt(d)).astype(np.float32).tolist()
        wrong, answer = await exchange(reader, writer, request("add", {"rows": rows, "names": ["new"] * CHANGED}))
        ids, found = json.loads(answer).get("ids", []), [wrong]
        for asked in (request("replace", {"ids": ids[:2], "rows": rows[2:4]}), request("remove", {"ids": ids})):
            found.append((await exchange(reader, writer, asked))[0])
        errors += [wrong for wrong in found if wrong is not None]
        changes += 3
        writer.close()
        await asyncio.sleep(0.05)
    return changes, errors


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


def lone_overhead(model: lg.LogLinear, port: int, thetas: np.ndarray) -> dict[str, float]:
    """Median milliseconds of a draw by the library, and over HTTP, one at a time."""
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
    return {"library_ms": float(np.median(taken[0])) * 1e3, "http_ms": float(np.median(taken[1])) * 1e3}


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


def facts(latencies: list[float], seconds: float, errors: list[str]) -> dict[str, Any]:
    """Of one load; what was wrong is printed."""
    for wrong in errors[:SHOWN]:
        print(wrong)
    p50, p99 = (np.quantile(latencies, [0.5, 0.99]) * 1e3).tolist()
    return {"requests_per_second": len(latencies) / seconds, "p50_ms": p50, "p99_ms": p99, "errors": len(errors)}


def measure_load(path: Path, model: lg.LogLinear, thetas: np.ndarray, seconds: float) -> dict[str, Any]:
    """One draw a request, on more and more connections; and one request at a time."""
    asked, found = bodies(thetas, mixed=False), list[dict[str, Any]]()
    with serving(path) as (port, _):
        asyncio.run(load(port, asked, 8, 1.0))
        lone = lone_overhead(model, port, thetas)
        print(lone)
        for connections in CONNECTIONS:
            latencies, errors = asyncio.run(load(port, asked, connections, seconds))
            found.append({"connections": connections, **facts(latencies, seconds, errors)})
            print(found[-1], flush=True)
        return {"lone": lone, "load": found, "thetas_a_call": mean_batch(port)}


def measure_mixed(path: Path, d: int, thetas: np.ndarray, seconds: float) -> dict[str, Any]:
    """All verbs on 8 connections while rows come and go; the memory of the server every few seconds."""

    async def run(port: int, pid: int) -> dict[str, Any]:
        begun, until = time.perf_counter(), time.perf_counter() + seconds
        memory = list[tuple[float, float]]()

        async def watch() -> None:
            while time.perf_counter() < until:
                memory.append((round(time.perf_counter() - begun, 1), round(resident(pid), 1)))
                await asyncio.sleep(SAMPLED)

        (latencies, errors), (changes, wrong), _ = await asyncio.gather(
            load(port, bodies(thetas, mixed=True), 8, seconds), change(port, d, until), watch()
        )
        later = [mib for at, mib in memory if at >= min(60.0, seconds / 2)]
        found = facts(latencies, seconds, errors + wrong) | {"seconds": seconds, "changes": changes}
        return found | {"growth_after_a_minute": later[-1] / later[0] - 1, "memory_mib": memory[::6]}

    with serving(path, "--live") as (port, pid):
        return asyncio.run(run(port, pid))


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a saved model; by default the word vectors are built")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of connections")
    parser.add_argument("--mixed", type=float, help="seconds of all verbs and changes of rows, in place of draws")
    parser.add_argument("--machine", default="", help="what is said of the machine beside the figures")
    parser.add_argument("--json", type=Path, default=WRITTEN)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"  # a copy: rows of it may change
        model = lg.LogLinear.load(given.model) if given.model else lg.LogLinear.build(datasets.glove(), rng=0)
        model.save(path)
        features = model.features
        thetas = features.gather(np.random.default_rng(0).integers(features.n, size=THETAS))
        found = (
            {"mixed": measure_mixed(path, features.d, thetas, given.mixed) | {"machine": given.machine}}
            if given.mixed
            else {"draws": measure_load(path, model, thetas, given.seconds) | {"machine": given.machine}}
        )
    print(json.dumps({key: {k: v for k, v in held.items() if k != "memory_mib"} for key, held in found.items()}))
    held = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
    given.json.write_text(json.dumps(held | found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
