"""Figure 2: time of one draw against the number of rows."""

from typing import Any

import numpy as np

from lazygumbel.methods import Bounded, Sampler
from lazygumbel.model import LogLinear
from lazygumbel.progress import Task
from lazygumbel.rows.features import Features
from lazygumbel_evaluation.harness import baseline, brute_force
from lazygumbel_evaluation.harness.bench import Bench, build_model
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.section import Curve, Figure, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import key, label
from lazygumbel_evaluation.report.wording import duration, instead_of, times

__all__ = ["COMPARED", "expected_seconds", "labels", "measure", "methods", "run", "sizes"]

COMPARED = ("ours", "paper")
"""With what is exact."""
_PAPER_SPEEDUP = 5.0
"""The paper: "up to 5x" on all of ImageNet."""


def methods(n: int) -> dict[str, Sampler]:
    """What draws from n rows."""
    return {"exact": brute_force.DENSE, "ours": Bounded(), "paper": baseline.root(n)}


def labels() -> dict[str, str]:
    """What they are called; what is exact is brute force at its quickest, whichever way that is."""
    return {name: label(method) for name, method in methods(1).items()} | {"exact": brute_force.QUICKEST}


def expected_seconds(bench: Bench) -> float:
    """Both indexes are built for every subset; three samplers are timed at every size."""
    rows = sum(sizes(bench)) / bench.n
    asked = len(bench.protocols) * bench.budget.thetas * bench.budget.passes
    return rows * (3.5 * bench.build_seconds + 2 * asked * bench.rough_seconds["exact"]) + 4 * len(sizes(bench))


def sizes(bench: Bench) -> list[int]:
    """Numbers of rows, evenly spaced in logarithm; the last is all of them."""
    least = min(bench.budget.smallest, bench.n)
    return np.unique(np.geomspace(least, bench.n, bench.budget.sizes).round().astype(np.int64)).tolist()


def measure(bench: Bench, size: int) -> dict[str, Any]:
    """Over a random subset of this many rows: seconds of one draw by protocol and sampler, and of building.

    Measured once.
    """

    def make() -> dict[str, Any]:
        rng = bench.rng(f"figure-2 {size}")
        if size == bench.n:
            (ours, build), (paper, paper_build) = (bench.model, bench.build_seconds), bench.paper_index
        else:
            rows = Features.of(bench.features.gather(np.sort(rng.choice(bench.n, size, replace=False))))
            ours, build = build_model(rows, bench.seed, like=bench.like)
            paper, paper_build = baseline.build_index(rows)
        asked = methods(size)
        calls = {
            "ours": bench.drawing(ours, asked["ours"], rng),
            "paper": bench.drawing(LogLinear(paper), asked["paper"], rng),
        }
        thetas = {protocol: bench.thetas(protocol)[: bench.budget.thetas] for protocol in bench.protocols}
        thetas["row"] = ours.features.gather(rng.choice(size, bench.budget.thetas, replace=False))  # of the subset
        variants = brute_force.samplers(ours, np.concatenate(list(thetas.values())), bench.temperature, rng)
        taken = {protocol: bench.compare(variants, calls, some) for protocol, some in thetas.items()}
        seconds = {
            protocol: {name: float(np.median(one.by_argument)) for name, one in clocked.items()}
            for protocol, clocked in taken.items()
        }
        return {"n": size, "seconds": seconds, "build": {"ours": build, "paper": paper_build}}

    return bench.store.once(f"figure-2-{size}", make)


def run(bench: Bench, task: Task) -> Section:
    """Time three samplers over subsets."""
    measured: list[dict[str, Any]] = []
    for size in sizes(bench):
        measured.append(measure(bench, size))
        task.advance(size / sum(sizes(bench)))
    n = [m["n"] for m in measured]
    return Section(
        "figure-2",
        "Figure 2: time of one draw",
        f"One draw at one theta, for random subsets of {n[0]:,} to {n[-1]:,} rows. Thetas are "
        f"{instead_of(bench.budget.thetas, 10_000)} that are in no subset and, as in the paper, as many random "
        f"rows of the subset; the time of each is the median of {bench.budget.passes} calls, and the median over "
        "thetas is shown. Building is not included. Samplers take turns on the clock. Brute force is the quickest of "
        "several ways to score all rows in float32 and to draw, with one thread of BLAS or with all. "
        "FixedCutoff is the paper's Algorithm 2: it takes its head of sqrt(n) rows from a FAISS inverted file of "
        "4 sqrt(n) lists. Both indexes are built anew for every subset.",
        [
            verdict
            for protocol, called in bench.protocols.items()
            for name in COMPARED
            for verdict in _verdicts(protocol, called, name, labels()[name], measured)
        ],
        [_table(protocol, called, measured) for protocol, called in bench.protocols.items()],
        [
            *(_times(protocol, called, bench.n, measured) for protocol, called in bench.protocols.items()),
            _speedups(bench, measured),
        ],
        {"sizes": measured},
    )


def _speedup(m: dict[str, Any], protocol: Protocol, name: str) -> float:
    return m["seconds"][protocol]["exact"] / m["seconds"][protocol][name]


def _verdicts(protocol: Protocol, called: str, name: str, method: str, measured: list[dict[str, Any]]) -> list[Verdict]:
    first, last = (_speedup(m, protocol, name) for m in (measured[0], measured[-1]))
    return [
        Verdict(
            "A draw over all rows is at least 5 times as fast as brute force",
            method,
            "up to 5x",
            times(last),
            last >= _PAPER_SPEEDUP,
            called,
        ),
        Verdict(
            "The speed-up grows with the number of rows",
            method,
            "linear in log n",
            f"{times(first)} to {times(last)}",
            last > first,
            called,
        ),
    ]


def _table(protocol: Protocol, called: str, measured: list[dict[str, Any]]) -> Table:
    return Table(
        f"Time of one draw, {called}",
        ["rows", *labels().values(), *(f"speed-up of {labels()[name]}" for name in COMPARED)],
        [
            [
                m["n"],
                *(duration(m["seconds"][protocol][name]) for name in labels()),
                *(times(_speedup(m, protocol, name)) for name in COMPARED),
            ]
            for m in measured
        ],
    )


def _times(protocol: Protocol, called: str, size: int, measured: list[dict[str, Any]]) -> Figure:
    n = [float(m["n"]) for m in measured]
    return Figure(
        f"figure-2-{protocol}",
        f"Time of one draw against the number of rows, {called}",
        "rows",
        "milliseconds",
        [
            Curve(labels()[name], n, [1e3 * m["seconds"][protocol][name] for m in measured], key(method))
            for name, method in methods(size).items()
        ],
        x_log=True,
        y_log=True,
        caption="Without the time of building.",
    )


def _speedups(bench: Bench, measured: list[dict[str, Any]]) -> Figure:
    n, asked = [float(m["n"]) for m in measured], methods(bench.n)
    return Figure(
        "figure-2-speedup",
        "Speed-up over brute force",
        "rows",
        "times faster than brute force",
        [
            Curve(
                f"{labels()[name]}, {called}",
                n,
                [_speedup(m, protocol, name) for m in measured],
                key(asked[name]),
                faint=protocol == "row",
            )
            for protocol, called in bench.protocols.items()
            for name in COMPARED
        ],
        x_log=True,
        y_log=True,
    )
