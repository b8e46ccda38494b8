"""Shards: what a fan-out costs on Ray, how soon a killed worker is made up for, and rows that never are in memory.

    python benchmarks/sharded.py                              # all steps, on the bars: 10 million x 64 rows, 8 shards
    python benchmarks/sharded.py --rows 200000 --small 20000  # a quick look
    python benchmarks/sharded.py --only build --folder big    # step by step
    python benchmarks/sharded.py --only ask --folder big

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
STEPS = ("fan-out", "build", "ask")
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


def medians(asks: dict[str, Callable[[int], object]], times: int) -> dict[str, float]:
    """Milliseconds of each; they take turns, so that whatever else the machine does is in all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in asks}
    for ask in asks.values():
        ask(0)
    for seed in range(times):
        for name, ask in asks.items():
            begun = time.perf_counter()
            ask(seed)
            seconds[name].append(time.perf_counter() - begun)
    return {name: 1e3 * statistics.median(of_one) for name, of_one in seconds.items()}


def fan_out(path: Path, d: int, times: int) -> dict[str, float]:
    """Medians of one draw and of a batch, on both engines; and the time after a worker is killed."""
    thetas = unit_rows(1_024, d, seed=99)
    found: dict[str, float] = {}
    with ShardedModel.connect(path, engine="threads", deadline=60) as here, ShardedModel.connect(path) as there:
        for what, theta, count in (("one draw", thetas[0], times), ("1,024 thetas", thetas, 9)):
            local, remote = here(theta, temperature=TEMPERATURE), there(theta, temperature=TEMPERATURE)
            asks: dict[str, Callable[[int], object]] = {
                "threads": lambda seed, dist=local: dist.sample(rng=seed),
                "ray": lambda seed, dist=remote: dist.sample(rng=seed),
            }
            found |= {f"{what}, {name}, ms": median for name, median in medians(asks, count).items()}
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


def apart(step: str, folder: Path, rows: int, d: int, shards: int) -> dict[str, float]:
    """A step in a process of its own, of which the peak of memory is reported."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--rows", str(rows), "--d", str(d)]
    done = subprocess.run([*command, "--shards", str(shards)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def peak() -> float:
    """The most memory that this process ever had, in GiB; pages of files that it looked at are in it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def build(folder: Path, rows: int, d: int, shards: int) -> dict[str, float]:
    """Rows made up file by file, and shards built of the files one after the other."""
    paths = write_files(folder, rows, d)
    begun = time.perf_counter()
    ShardedModel.build(paths, folder / "shards", shards=shards, rng=0)
    seconds = time.perf_counter() - begun
    for path in paths:
        path.unlink()
    return {"building, s": seconds, "peak of building, GiB (at most 4)": peak()}


def ask(folder: Path, d: int) -> dict[str, float]:
    """Draws and log Z over all shards, by threads."""
    theta = unit_rows(1, d, seed=99)[0]
    with ShardedModel.connect(folder / "shards", engine="threads", deadline=600) as model:
        dist = model(theta, temperature=TEMPERATURE)
        took = medians({"draw": lambda seed: dist.sample(rng=seed), "Z": lambda seed: dist.log_partition(rng=seed)}, 9)
        label, drawn = dist.log_partition(rng=0).label, dist.sample(rng=0)
        assert (label, drawn.label, drawn.coverage) == ("bounded", "bounded", 1.0), (label, drawn.label)
    return {"one draw, ms": took["draw"], "log Z, ms": took["Z"], "peak of asking, GiB (at most 4)": peak()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows that are built from files")
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--small", type=int, default=300_000, help="rows of the model of 3 shards that is asked")
    parser.add_argument("--times", type=int, default=200, help="single draws")
    parser.add_argument("--only", choices=STEPS, nargs="+", default=STEPS, help="some of the steps")
    parser.add_argument("--folder", type=Path, help="keep the large shards here, so that a later call can ask them")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        of_step = ask(given.folder, given.d) if given.step == "ask" else build(given.folder, *_size(given))
        print(json.dumps(of_step))
        return
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as held:
        if "fan-out" in given.only:
            ShardedModel.build(unit_rows(given.small, given.d, seed=0), Path(held) / "three", shards=3, rng=0)
            found[f"3 shards of {given.small:,} rows"] = fan_out(Path(held) / "three", given.d, given.times)
        title = f"{given.shards} shards of {given.rows:,} x {given.d} rows"
        for step in ("build", "ask"):
            if step in given.only:
                numbers = apart(step, given.folder or Path(held), *_size(given))
                found[title] = found.get(title, {}) | numbers
    for title, numbers in found.items():
        print(title, *(f"  {name:45} {value:10.2f}" for name, value in numbers.items()), sep="\n")
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=2) + "\n")


def _size(given: argparse.Namespace) -> tuple[int, int, int]:
    return given.rows, given.d, given.shards


if __name__ == "__main__":
    main()
