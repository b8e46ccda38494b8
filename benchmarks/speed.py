"""Speed and accuracy against brute force, on thetas that are not rows of the index: the bars of the library.

    python benchmarks/speed.py [--photos PATH] [--sentences PATH] [--glove] [--head PATH --hidden PATH]
                               [--json PATH] [--quick]

Of photos, sentences and GloVe 4,000 rows are held out of the index, and some of these are the thetas; the head of a
language model is asked with hidden states at temperature one. Contenders of a task take turns in one process, each on
all cores; brute force is the quickest of several variants in float32. Times are medians over thetas. Total variation is
exact, by brute force, theta by theta. Files are `.npy`; rows of integers are scaled to unit norm. Needs the extra
`data` for GloVe.
"""

import argparse
import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import lazygumbel as lg
from common import BruteForce, clock_together, held_bytes
from lazygumbel import datasets

HELD_OUT = 4_000
BARS: dict[str, dict[str, float]] = {
    "photos": {"draw": 35, "batch": 4, "log Z": 20, "exact draw": 2.5, "top 10": 20, "further draw": 10},
    "glove": {"draw": 14, "batch": 3, "log Z": 8, "exact draw": 2, "top 10": 8, "further draw": 30},
    "sentences": {"draw": 50, "batch": 6, "log Z": 20, "exact draw": 2.5, "top 10": 30, "further draw": 10},
    "head": {"draw": 18, "batch": 6, "log Z": 6, "exact draw": 2.5, "top 10": 10, "further draw": 200},
}
"""Times brute force; of a further draw of the same theta, microseconds at most."""
CALIBRATED_BARS: dict[str, dict[str, float]] = {
    "photos": {"draw": 200, "batch": 30, "draw, theta a row": 150},
    "glove": {"draw": 35, "batch": 8, "draw, theta a row": 30},
    "sentences": {"draw": 50, "batch": 6, "draw, theta a row": 60},
    "head": {"draw": 18, "batch": 6},
}
"""The same after `calibrate`; where that does not pay, as by default."""
SAFE = 40.0
"""Logits up to this size need no shift: the quickest variants of brute force make none."""


class Budget(NamedTuple):
    """How much is measured."""

    thetas: int = 400
    timed: int = 60
    """Of these, how many slow contenders are timed on."""
    batch: int = 1024
    rows: int | None = None


QUICK = Budget(40, 5, 32, 20_000)


class Data(NamedTuple):
    """Rows, thetas that are not among them, and a temperature."""

    name: str
    rows: np.ndarray
    thetas: np.ndarray
    temperature: float
    like: np.ndarray | None = None
    """Other thetas over temperature, by which codes are sized; without, rows stand in for them."""

    @classmethod
    def held_out(cls, name: str, rows: np.ndarray, budget: Budget) -> "Data":
        """Unit rows, some of them held out as thetas."""
        order = np.random.default_rng(7).permutation(len(rows))[: budget.rows and budget.rows + HELD_OUT]
        unit = np.asarray(rows[np.sort(order)], dtype=np.float32)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        chosen = np.random.default_rng(8).permutation(len(unit))
        return cls(name, np.ascontiguousarray(unit[chosen[HELD_OUT:]]), unit[chosen[:HELD_OUT]], 0.05)


@dataclass
class Report:
    """What was measured on one set of rows."""

    data: str
    figures: dict[str, Any] = field(default_factory=dict)

    def bars(self) -> Iterator[tuple[str, float, float, bool]]:
        """Work, what is wanted, what was measured, and whether that will do."""
        accurate = self.figures["tv mean"] <= 1e-4 and self.figures["tv max"] <= 1e-2
        for work, wanted in BARS[self.data].items():
            found = self.figures[work]
            right = {"draw": accurate, "batch": accurate, "top 10": self.figures["recall"] >= 0.999}.get(work, True)
            if work == "log Z":
                right = self.figures["log Z rms"] <= 0.01 and 0.93 <= self.figures["coverage"] <= 0.97
            yield work, wanted, found, right and (found <= wanted if work == "further draw" else found >= wanted)
        after = self.figures["after calibrate"]
        for work, wanted in CALIBRATED_BARS[self.data].items():
            right = max(after["tv mean"], after.get("tv mean, theta a row", 0.0)) <= 2.5e-4
            yield f"{work}, calibrated", wanted, after[work], right and after[work] >= wanted


def measure(data: Data, budget: Budget) -> Report:
    """All figures of one set of rows."""
    report = Report(data.name)
    figures = report.figures
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    index = lg.PartitionIndex.build(data.rows, rng=0, thetas=data.like)
    figures["build seconds"] = perf_counter() - start
    figures["peak memory"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / data.rows.nbytes
    model = lg.LogLinear(index)
    figures["index"] = repr(index)
    figures["memory"] = held_bytes(index) / data.rows.nbytes
    thetas = data.thetas[: budget.thetas]
    _time(data, model, thetas, budget, figures)
    _judge(data, model, thetas, figures)
    figures["after calibrate"] = _calibrated(data, model, budget, figures)
    return report


def _time(data: Data, model: lg.LogLinear, thetas: np.ndarray, budget: Budget, figures: dict[str, Any]) -> None:
    rng, temperature = np.random.default_rng(1), data.temperature
    at = partial(model, temperature=temperature)
    dense, few = lg.Exhaustive(by_bytes=False), thetas[: budget.timed]
    safe = float(np.linalg.norm(thetas, axis=1).max()) * model.features.max_norm / temperature < SAFE
    brute = BruteForce(model.features, temperature) if safe else None
    draws: dict[str, Callable[[Any], Any]] = {"dense": lambda theta: at(theta).sample(1, method=dense, rng=rng)}
    sums: dict[str, Callable[[Any], Any]] = {"dense": lambda theta: at(theta).log_partition(method=dense)}
    if brute is not None:
        for name, draw in brute.samplers().items():
            draws[name] = partial(lambda draw, theta: draw(theta, rng), draw)
        for columns in (False, True):
            sums[f"by columns {columns}"] = partial(brute.log_partition, by_columns=columns)
    quickest = {name: one[0] for name, one in clock_together({n: (c, few[:5]) for n, c in draws.items()}).items()}
    best = min(quickest, key=lambda name: quickest[name])
    summed = {name: one[0] for name, one in clock_together({n: (c, few[:5]) for n, c in sums.items()}).items()}
    best_sum = min(summed, key=lambda name: summed[name])
    found = clock_together(
        {
            "brute force": (draws[best], few),
            "brute log Z": (sums[best_sum], few),
            "draw": (lambda theta: at(theta).sample(1, rng=rng), thetas),
            "exact draw": (lambda theta: at(theta).sample(1, method=lg.Exhaustive(), rng=rng), few),
            "log Z": (lambda theta: at(theta).log_partition(rng=rng), thetas),
            "top 10": (lambda theta: at(theta).top_k(10), thetas),
        }
    )
    seconds = {name: one[0] for name, one in found.items()}
    figures |= {"brute force": best, "ms": {name: 1e3 * value for name, value in seconds.items()}}
    for work in ("draw", "exact draw", "top 10"):
        figures[work] = seconds["brute force"] / seconds[work]
    figures["log Z"] = seconds["brute log Z"] / seconds["log Z"]
    figures["rows a draw"] = float(np.mean([int(one.rows) for one in found["draw"][1]]))
    figures["rows a log Z"] = float(np.mean([int(one.rows) for one in found["log Z"][1]]))
    many = clock_together(
        {str(size): (lambda theta, s=size: at(theta).sample(s, rng=rng), thetas) for size in (1, 101)}
    )
    figures["further draw"] = 1e4 * (many["101"][0] - many["1"][0])
    batch = np.resize(data.thetas, (budget.batch, data.thetas.shape[1]))
    together: dict[str, Callable[[Any], Any]] = {
        "ours": lambda some: at(some).sample(1, rng=rng),
        "dense": lambda some: at(some).sample(1, method=dense, rng=rng),
    }
    if brute is not None:
        together["products"] = lambda some: brute.sample_batch(some, rng)
    timed = {name: one[0] for name, one in clock_together({n: (c, [batch]) for n, c in together.items()}).items()}
    figures["brute batch seconds"] = min(value for name, value in timed.items() if name != "ours")
    figures["batch"] = figures["brute batch seconds"] / timed["ours"]
    figures["ms"]["batch, a theta"] = 1e3 * timed["ours"] / budget.batch
    figures["build, in brute-force samples"] = figures["build seconds"] / seconds["brute force"]


def _judge(data: Data, model: lg.LogLinear, thetas: np.ndarray, figures: dict[str, Any]) -> None:
    """Exact total variation, errors of log Z, recall: on the thetas that were timed."""
    audit = model.audit(thetas, temperature=data.temperature)
    figures |= {"tv mean": audit.miss.mean(), "tv 95%": np.quantile(audit.miss, 0.95), "tv max": audit.miss.max()}
    figures["labels"] = {label: int((audit.labels == label).sum()) for label in np.unique(audit.labels)}
    dist = model(thetas, temperature=data.temperature)
    true = dist.log_partition(method=lg.Exhaustive()).value
    found = dist.log_partition(rng=3)
    z = (found.value - true) / np.maximum(found.stderr, 1e-12)
    figures |= {
        "log Z rms": float(np.sqrt(np.mean((found.value - true) ** 2))),
        "coverage": float((np.abs(z) < 1.96).mean()),
        "beyond 4 standard errors": float((np.abs(z) > 4).mean()),
    }
    exact = lg.ExactIndex(model.features).top_k(thetas, 10).ids
    ids = dist.top_k(10).ids
    figures["recall"] = float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, ids, strict=True)]))


def _calibrated(data: Data, model: lg.LogLinear, budget: Budget, figures: dict[str, Any]) -> dict[str, Any]:
    """Draws after `calibrate` on other thetas of the same kind; and by the protocol of the paper: thetas are rows."""
    half, temperature = len(data.thetas) // 2, data.temperature
    start, found = perf_counter(), model.calibrate(data.thetas[half:][: 2 * budget.thetas], temperature=temperature)
    after: dict[str, Any] = {"calibration": str(found), "seconds": perf_counter() - start}
    thetas, brute = data.thetas[: budget.thetas], figures["ms"]["brute force"] / 1e3
    rng, at = np.random.default_rng(5), partial(model, temperature=temperature)
    batch = np.resize(data.thetas[:half], (budget.batch, data.thetas.shape[1]))
    seconds = clock_together(
        {
            "draw": (lambda theta: at(theta).sample(1, rng=rng), thetas),
            "batch": (lambda some: at(some).sample(1, rng=rng), [batch]),
        }
    )
    after |= {"draw": brute / seconds["draw"][0], "batch": figures["brute batch seconds"] / seconds["batch"][0]}
    audit = model.audit(thetas, temperature=temperature)
    after |= {"tv mean": audit.miss.mean(), "tv 95%": np.quantile(audit.miss, 0.95), "tv max": audit.miss.max()}
    after["labels"] = {label: int((audit.labels == label).sum()) for label in np.unique(audit.labels)}
    if data.like is None:  # thetas are of the kind of rows
        stand_ins = np.random.default_rng(2).integers(len(data.rows), size=3 * budget.thetas)
        rows, fitted = data.rows[stand_ins[: budget.thetas]], data.rows[stand_ins[budget.thetas :]]
        after["calibration, theta a row"] = str(model.calibrate(fitted, temperature=temperature))
        seconds = clock_together({"draw": (lambda theta: at(theta).sample(1, rng=rng), rows)})
        audit = model.audit(rows, temperature=temperature)
        after["draw, theta a row"] = brute / seconds["draw"][0]
        after |= {"tv mean, theta a row": audit.miss.mean(), "tv max, theta a row": audit.miss.max()}
    return after


def _sets(arguments: argparse.Namespace, budget: Budget) -> Iterator[Data]:
    if arguments.photos:
        yield Data.held_out("photos", np.load(arguments.photos, mmap_mode="r"), budget)
    if arguments.glove:
        glove = datasets.glove()
        yield Data.held_out("glove", glove.gather(np.arange(glove.n)), budget)
    if arguments.sentences:
        yield Data.held_out("sentences", np.load(arguments.sentences, mmap_mode="r"), budget)
    if arguments.head:
        hidden = np.load(arguments.hidden).astype(np.float32)
        hidden = hidden[np.random.default_rng(7).permutation(len(hidden))]
        rows = np.load(arguments.head)[: budget.rows]
        yield Data("head", rows, hidden, 1.0, hidden[len(hidden) // 2 :])


def _show(name: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            _show(f"{name}: {key}", one)
    else:
        print(f"  {name:40} {value:.4g}" if isinstance(value, float) else f"  {name:40} {value}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("photos", "sentences", "head", "hidden", "json"):
        parser.add_argument(f"--{name}", type=Path)
    for name in ("glove", "quick"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    budget, written = QUICK if arguments.quick else Budget(), {}
    lg.warm_up()
    for data in _sets(arguments, budget):
        report = measure(data, budget)
        written[data.name] = report.figures
        print(f"\n{data.name}, {len(data.rows):,} x {data.rows.shape[1]}")
        for name, value in report.figures.items():
            _show(name, value)
        for work, wanted, found, met in report.bars():
            print(f"  bar {work:30} wanted {wanted:6g}  measured {found:8.3g}  {'yes' if met else 'NO'}", flush=True)
        if arguments.json:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(written, indent=1, default=float))


if __name__ == "__main__":
    main()
