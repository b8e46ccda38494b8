"""Cost and quality of the default index: build time, peak memory, loading, and the softmax mass that `top_k` finds.

    python benchmarks/build.py [--photos PATH] [--out DIR]

Prints one table for each data set. Times are compared with brute force, one GEMV and a partial sort a query, in the
same run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import lazygumbel as lg
from lazygumbel import datasets

TEMPERATURE = 0.05
QUERIES = 200


def resident() -> float:
    """Resident memory of this process in bytes, file-backed pages left out."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) * 1024


class Peak:
    """The largest resident memory while the block runs, sampled every 5 ms."""

    def __enter__(self) -> "Peak":
        self.value, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.value = max(self.value, resident())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def brute_force_seconds(features: lg.Features, thetas: np.ndarray, k: int) -> float:
    """Median time of one exact top-k query: GEMV, then a partial sort."""
    times = []
    for theta in thetas[:30]:
        start = time.perf_counter()
        scores = features.stored @ theta
        np.argpartition(scores, -k)[-k:]
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def load_facts(path: Path) -> dict[str, float]:
    """Time and memory of loading a saved model, in a fresh process."""
    code = (
        "import sys, time; sys.path.insert(0, 'benchmarks'); import lazygumbel as lg; from build import resident\n"
        f"before = resident(); start = time.perf_counter(); model = lg.LogLinear.load({str(path)!r})\n"
        "print(time.perf_counter() - start, resident() - before)"
    )
    seconds, memory = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return {"load seconds": float(seconds), "load MiB": float(memory) / 2**20}


def measure(name: str, features: lg.Features) -> dict[str, float | str]:
    """All figures of one data set."""
    rng = np.random.default_rng(1)
    thetas = features.gather(rng.integers(features.n, size=QUERIES))
    matrix = 4.0 * features.n * features.d
    brute = brute_force_seconds(features, thetas, 1000)
    start = time.perf_counter()
    with Peak() as peak:
        model = lg.LogLinear(lg.PartitionIndex.build(features, rng=0))
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    model.calibrate(rng=0)
    calibration = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        loading = load_facts(path)
    truth = lg.ExactIndex(features).top_k(thetas, 1000)
    found = model.index.top_k(thetas, 1000)
    start = time.perf_counter()
    for theta in thetas:
        model.index.top_k(theta, 1000)
    query = (time.perf_counter() - start) / QUERIES
    weights = np.exp((truth.scores - truth.scores[:, :1]) / TEMPERATURE)
    mass = [w[np.isin(t, f)].sum() / w.sum() for w, t, f in zip(weights, truth.ids, found.ids, strict=True)]
    return {
        "data": name,
        "n": features.n,
        "d": features.d,
        "cells": model.index.cells if isinstance(model.index, lg.PartitionIndex) else 0,
        "brute-force top-k ms": 1e3 * brute,
        "build seconds": seconds,
        "build in brute-force queries": seconds / brute,
        "peak memory / matrix": peak.value / matrix,
        "calibration seconds": calibration,
        **loading,
        "top-1000 ms": 1e3 * query,
        "rows scored, share of n": float(found.rows.mean()) / features.n,
        "mass found of the true top 1000": float(np.mean(mass)),
        "worst theta": float(np.min(mass)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, help="a .npy file of SIFT descriptors, one a row")
    parser.add_argument("--out", type=Path, default=Path("results/build.json"))
    arguments = parser.parse_args()
    results = []
    if arguments.photos is not None:
        results.append(measure("photos", datasets.photos(arguments.photos)))
    results.append(measure("glove", datasets.glove()))
    for result in results:
        print()
        for key, value in result.items():
            print(f"{key:36}{value if isinstance(value, str) else format(value, ',.4g')}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
