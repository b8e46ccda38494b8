"""Side by side: dense NumPy and torch, FAISS top k + softmax, DEANN-style sums, the paper's method, and this library.

    python benchmarks/comparison.py [--photos PATH] [--sentences PATH] [--glove] [--quick] [--json PATH] [--keep DIR]

On every set of rows all contenders take turns in one process, each on all cores, one theta a call; then in batches.
Thetas are rows held out of the index. Total variation is exact, theta by theta. `--json` keeps what was measured, set
by set; `--keep` the graphs of HNSW, which take longest to build, with their times. Then
`python benchmarks/pages.py` writes tables and figure of docs/comparison.md from it. Needs the extras
`data`, `plots` and `torch`.
"""

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch

import lazygumbel as lg
from common import held_bytes
from comparison_page import WRITTEN
from lazygumbel import datasets
from lazygumbel_evaluation.harness.clock import Clocked, Contender, Pace, take_turns
from rivals import Deann, DenseNumpy, DenseTorch, Paper, TopKSoftmax, build_hnsw
from speed import Budget, Data

FULL, QUICK = Budget(100, 20, 128), Budget(20, 5, 32, 20_000)
FITTED, HEADS, SEARCH = 400, (100, 1_000), 200
PACE = Pace(passes=3, rest_seconds=0.1)
"""The quickest of three calls counts for each theta: other work on the machine slows long calls most."""
DEANN = 1_000, 5_000
"""Near rows, and others, for log Z."""


class Ours:
    """One method of the library over one index."""

    def __init__(self, name: str, model: lg.LogLinear, temperature: float, seconds: float, method: Any) -> None:
        self.name, self.build_seconds, self.bytes = f"lazygumbel, {name}", seconds, held_bytes(model.index)
        self._model, self._method, self._temperature = model, method, temperature

    def draw(self, theta: np.ndarray, rng: np.random.Generator) -> int:
        return int(self.draw_batch(theta[None], rng)[0])

    def draw_batch(self, thetas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._model(thetas, temperature=self._temperature).sample(method=self._method, rng=rng).ids[0]

    def log_partition(self, theta: np.ndarray, rng: np.random.Generator) -> float:
        dist = self._model(theta, temperature=self._temperature)
        return float(dist.log_partition(method=self._method, rng=rng).value)

    def distances(self, thetas: np.ndarray) -> np.ndarray:
        """By the closed form of the race."""
        return self._model.audit(thetas, temperature=self._temperature, method=self._method).miss


class Field(NamedTuple):
    """Who takes part on a set of rows."""

    rivals: list[Any]
    ours: list[Ours]
    deann: Deann
    note: str
    """What came of the calibration."""


def gather(data: Data, keep: Path | None) -> Field:
    """Build everybody, one after the other."""
    features, temperature = lg.Features.of(data.rows), data.temperature
    few = data.thetas[:5]
    paper = Paper(features, temperature)
    hnsw, seconds = build_hnsw(data.rows, SEARCH, keep and keep / f"{data.name}-{len(data.rows)}.faiss")
    rivals = [DenseNumpy(features, few, temperature), DenseTorch(data.rows, few, temperature)]
    rivals += [TopKSoftmax("FAISS IVF", paper.index, paper.build_seconds, k, temperature) for k in HEADS]
    rivals += [TopKSoftmax("FAISS HNSW", hnsw, seconds, k, temperature) for k in HEADS]
    start = perf_counter()
    index = lg.PartitionIndex.build(data.rows, rng=0)
    built = perf_counter() - start
    ours = [Ours("exact", lg.LogLinear(index), temperature, built, lg.Exhaustive())]
    ours.append(Ours("default", lg.LogLinear(index), temperature, built, lg.Bounded()))
    tuned, start = lg.LogLinear(index), perf_counter()
    found = tuned.calibrate(data.thetas[len(data.thetas) // 2 :][:FITTED], temperature=temperature, rng=0)
    if found.accepted:
        ours.append(Ours("calibrated", tuned, temperature, built + perf_counter() - start, lg.Calibrated()))
    deann = Deann(hnsw, seconds, data.rows, *DEANN, temperature)
    return Field([*rivals, paper], ours, deann, str(found))


def measure(data: Data, budget: Budget, keep: Path | None) -> dict[str, Any]:
    """Everything about one set of rows, as plain numbers."""
    field = gather(data, keep)
    drawing, rng = [*field.rivals, *field.ours], np.random.default_rng(1)
    thetas, few = data.thetas[: budget.thetas], data.thetas[: budget.timed]
    batch = np.resize(data.thetas[: len(data.thetas) // 2], (budget.batch, data.rows.shape[1]))
    slow = {"dense NumPy", "dense torch", "the paper's, over IVF"}

    def clock(calls: dict[str, Callable[..., Any]], arguments: Any = None) -> dict[str, float]:
        asked = {
            name: Contender(partial(_ask, call, rng), arguments or (few if name in slow else thetas))
            for name, call in calls.items()
        }
        return {name: 1e3 * _settled(clocked) for name, clocked in take_turns(asked, PACE).items()}

    one, many = clock({c.name: c.draw for c in drawing}), clock({c.name: c.draw_batch for c in drawing}, [batch])
    summing = [*field.rivals, field.deann, *field.ours[:2]]
    sums = clock({c.name: c.log_partition for c in summing})
    distances, errors = judge(data, thetas, field, rng)
    return {
        "n": len(data.rows),
        "d": data.rows.shape[1],
        "thetas": len(thetas),
        "batch": budget.batch,
        "calibration": field.note,
        "draws": {
            c.name: {
                "ms": one[c.name],
                "batch ms": many[c.name] / budget.batch,
                "tv": _spread(distances[c.name]),
                "memory": c.bytes / data.rows.nbytes,
                "build": c.build_seconds,
            }
            for c in drawing
        },
        "sums": {
            c.name: {"ms": sums[c.name], "error": _spread(np.abs(errors[c.name])), "memory": c.bytes / data.rows.nbytes}
            for c in summing
        },
    }


def judge(
    data: Data, thetas: np.ndarray, field: Field, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Distances of draws and errors of log Z, theta by theta, from the probabilities of all rows in float64."""
    summing = [*field.rivals, field.deann, *field.ours[:2]]
    distances = {c.name: np.empty(len(thetas)) for c in field.rivals}
    errors = {c.name: np.empty(len(thetas)) for c in summing}
    for i, theta in enumerate(thetas):
        logits = (data.rows @ theta).astype(np.float64) / data.temperature
        top = logits.max()
        log_z = top + np.log(np.exp(logits - top).sum())
        probabilities = np.exp(logits - log_z)
        for c in field.rivals:
            distances[c.name][i] = c.distance(theta, probabilities)
        for c in summing:
            errors[c.name][i] = c.log_partition(theta, rng) - log_z
    return distances | {c.name: c.distances(thetas) for c in field.ours}, errors


def _ask(call: Callable[..., Any], rng: np.random.Generator, argument: np.ndarray) -> Any:
    return call(argument, rng)


def _settled(clocked: Clocked) -> float:
    """The median over thetas of the quickest call of each."""
    return float(np.median(clocked.seconds.reshape(-1, clocked.arguments).min(axis=0)))


def _spread(values: np.ndarray) -> list[float]:
    """Mean, 95% and maximum."""
    return [float(values.mean()), float(np.quantile(values, 0.95)), float(values.max())]


def main() -> None:
    """Measure what was asked for, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("photos", "sentences", "keep"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--json", type=Path, default=WRITTEN)
    for name in ("glove", "quick"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args()
    budget = QUICK if given.quick else FULL
    lg.warm_up()
    for name in ("photos", "sentences", "glove"):
        if not getattr(given, name):
            continue
        glove = datasets.glove() if name == "glove" else None
        rows = glove.gather(np.arange(glove.n)) if glove else np.load(getattr(given, name), mmap_mode="r")
        found = measure(Data.held_out(name, rows, budget), budget, given.keep)
        print(json.dumps({name: found}, indent=1), flush=True)
        held = json.loads(given.json.read_text()) if given.json.exists() else {}
        held["run"] = {"cores": os.cpu_count(), "NumPy": np.__version__, "torch": torch.__version__}
        held["run"] |= {"FAISS": faiss.__version__, "lazygumbel": lg.__version__, "quick": given.quick}
        given.json.write_text(json.dumps(held | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
