"""Shards: what a fan-out costs on Ray, how soon a killed worker is made up for, and rows that never are in memory.

    python benchmarks/sharded.py                            # all three, on the bars: 10 million x 64 rows, 8 shards
    python benchmarks/sharded.py --rows 200000 --small 20000  # a quick look

Ray runs on this machine, a process a shard: what is compared is the way there and back, not the work.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lazygumbel.sharded import ShardedModel

TEMPERATURE = 0.1
BLOCK = 250_000
"""Rows made up, and written, at a time."""


def unit_rows(rows: int, d: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal((rows, d), dtype=np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def write_files(folder: Path, rows: int, d: int) -> list[Path]:
    """Files of a block each."""
    paths: list[Path] = []
    for seed, start in enumerate(range(0, rows, BLOCK)):
        paths.append(folder / f"rows-{seed:04d}.npy")
        np.save(paths[-1], unit_rows(min(BLOCK, rows - start), d, seed))
    return paths


def median_seconds(ask: Callable[[int], object], times: int) -> float:
    ask(0)
    seconds: list[float] = []
    for seed in range(times):
        begun = time.perf_counter()
        ask(seed)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def fan_out(path: Path, d: int, times: int) -> dict[str, float]:
    """Medians of one draw and of a batch, on both engines; and the time after a worker is killed."""
    thetas = unit_rows(1_024, d, seed=99)
    found: dict[str, float] = {}
    with ShardedModel.connect(path, engine="threads", deadline=60) as here, ShardedModel.connect(path) as there:
        for name, model in (("threads", here), ("ray", there)):
            one, many = model(thetas[0], temperature=TEMPERATURE), model(thetas, temperature=TEMPERATURE)
            found[f"one draw, {name}, ms"] = 1e3 * median_seconds(lambda seed, a=one: a.sample(rng=seed), times)
            found[f"1,024 thetas, {name}, ms"] = 1e3 * median_seconds(lambda seed, a=many: a.sample(rng=seed), 9)
        found["overhead of one draw, ms (at most 5)"] = found["one draw, ray, ms"] - found["one draw, threads, ms"]
        ratio = found["1,024 thetas, ray, ms"] / found["1,024 thetas, threads, ms"]
        found["overhead of 1,024 thetas, % (at most 15)"] = 100 * (ratio - 1)
        found["after a kill during a batch, s (at most 10)"] = after_kill(here, there, thetas)
    return found


def after_kill(here: ShardedModel, there: ShardedModel, thetas: np.ndarray) -> float:
    """Seconds until the right answer when a worker is stopped before a batch and killed during it."""
    expected = here(thetas, temperature=TEMPERATURE).sample(5, rng=1).ids
    pid = there.health()[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    begun = time.perf_counter()
    drawn = there(thetas, temperature=TEMPERATURE).sample(5, rng=1).ids
    seconds = time.perf_counter() - begun
    assert np.array_equal(drawn, expected) and there.health()[1].pid != pid
    return seconds


def build(folder: Path, rows: int, d: int, shards: int) -> dict[str, float]:
    """Made up, built and asked in a process of its own, whose peak of memory is reported."""
    command = [sys.executable, __file__, "--build-in", str(folder), "--rows", str(rows), "--d", str(d)]
    done = subprocess.run([*command, "--shards", str(shards)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def build_here(folder: Path, rows: int, d: int, shards: int) -> dict[str, float]:
    paths = write_files(folder, rows, d)
    begun = time.perf_counter()
    ShardedModel.build(paths, folder / "shards", shards=shards, rng=0)
    built = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    theta = unit_rows(1, d, seed=99)[0]
    with ShardedModel.connect(folder / "shards", engine="threads", deadline=600) as model:
        dist = model(theta, temperature=TEMPERATURE)
        one = 1e3 * median_seconds(lambda seed: dist.sample(rng=seed), 9)
        label = dist.log_partition(rng=0).label
    print(f"log Z is {label}", file=sys.stderr)
    return {"building, s": built - begun, "peak of building, GiB (at most 4)": peak, "one draw, ms": one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows that are built from files")
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--small", type=int, default=300_000, help="rows of the model of 3 shards that is asked")
    parser.add_argument("--times", type=int, default=200, help="single draws")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--build-in", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build_in is not None:
        print(json.dumps(build_here(given.build_in, given.rows, given.d, given.shards)))
        return
    with tempfile.TemporaryDirectory() as folder:
        ShardedModel.build(unit_rows(given.small, given.d, seed=0), Path(folder) / "three", shards=3, rng=0)
        found = {f"3 shards of {given.small:,} rows": fan_out(Path(folder) / "three", given.d, given.times)}
        title = f"{given.shards} shards of {given.rows:,} x {given.d} rows"
        found[title] = build(Path(folder), given.rows, given.d, given.shards)
    for title, numbers in found.items():
        print(title, *(f"  {name:45} {value:10.2f}" for name, value in numbers.items()), sep="\n")
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
