"""Figure 2: time of one draw against the number of rows."""

from typing import Any

import numpy as np

from lazygumbel.features import Features
from lazygumbel.methods import Bounded, Sampler
from lazygumbel.model import LogLinear
from lazygumbel.paper import baseline
from lazygumbel.paper.bench import BRUTE_FORCE, Bench, build_model
from lazygumbel.paper.protocols import PROTOCOLS, Protocol, printed
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.paper.wording import duration, instead_of, times
from lazygumbel.progress import Task

__all__ = ["LABELS", "expected_seconds", "measure", "run", "sizes"]

LABELS = {"exact": "brute force", "paper": "the paper's method", "ours": "Bounded (ours)"}
_PAPER_SPEEDUP = 5.0
"""The paper: "up to 5x" on all of ImageNet."""


def expected_seconds(bench: Bench) -> float:
    """Both indexes are built for every subset; three samplers are timed at every size."""
    rows = sum(sizes(bench)) / bench.n
    asked = len(PROTOCOLS) * bench.budget.thetas * bench.budget.repeats
    return rows * (3.5 * bench.build_seconds + 1.5 * asked * bench.exact_seconds)


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
            (ours, build), (paper, paper_build) = build_model(rows, bench.seed), baseline.build_index(rows)
        taken: dict[str, dict[str, float]] = {}
        for protocol in PROTOCOLS:
            thetas = bench.thetas(protocol)[: bench.budget.thetas]
            if protocol == "row":  # of the subset
                thetas = ours.features.gather(rng.choice(size, len(thetas), replace=False))
            asked: dict[str, tuple[LogLinear, Sampler]] = {
                "exact": (ours, BRUTE_FORCE),
                "paper": (LogLinear(paper), baseline.root(size)),
                "ours": (ours, Bounded()),
            }
            taken[protocol] = {
                name: float(bench.sampling_seconds(model, thetas, method, rng).mean())
                for name, (model, method) in asked.items()
            }
        return {"n": size, "seconds": taken, "build": {"ours": build, "paper": paper_build}}

    return bench.once(f"figure-2-{size}", make)


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
        f"{instead_of(bench.budget.thetas, 10_000)} rows that are in no subset and, as in the paper, as many random "
        f"rows of the subset; the time of each is the median of {bench.budget.repeats} calls, and the mean over thetas "
        "is shown. Building is not included. Brute force is one matrix-vector product in float32 and an inverse CDF, "
        "with one thread or with all, whichever is quicker. "
        "The paper's method takes its head of sqrt(n) rows from a FAISS inverted file of 4 sqrt(n) lists. Both indexes "
        "are built anew for every subset.",
        [verdict for protocol in PROTOCOLS for verdict in _verdicts(protocol, measured)],
        [_table(protocol, measured) for protocol in PROTOCOLS],
        [*(_times(protocol, measured) for protocol in PROTOCOLS), _speedups(measured)],
        {"sizes": measured},
    )


def _speedup(m: dict[str, Any], protocol: Protocol, name: str) -> float:
    return m["seconds"][protocol]["exact"] / m["seconds"][protocol][name]


def _verdicts(protocol: Protocol, measured: list[dict[str, Any]]) -> list[Verdict]:
    first, last = (_speedup(m, protocol, "ours") for m in (measured[0], measured[-1]))
    return [
        Verdict(
            f"Speed-up of one draw over all rows, {PROTOCOLS[protocol]}",
            printed(protocol, "up to 5x"),
            times(last),
            last >= _PAPER_SPEEDUP,
        ),
        Verdict(
            f"The speed-up grows with the number of rows, {PROTOCOLS[protocol]}",
            printed(protocol, "linear in log n"),
            f"{times(first)} to {times(last)}",
            last > first,
        ),
    ]


def _table(protocol: Protocol, measured: list[dict[str, Any]]) -> Table:
    return Table(
        f"Time of one draw, {PROTOCOLS[protocol]}",
        ["rows", *LABELS.values(), "speed-up of the paper's method", "speed-up of ours"],
        [
            [
                m["n"],
                *(duration(m["seconds"][protocol][name]) for name in LABELS),
                *(times(_speedup(m, protocol, name)) for name in ("paper", "ours")),
            ]
            for m in measured
        ],
    )


def _times(protocol: Protocol, measured: list[dict[str, Any]]) -> Figure:
    n = [float(m["n"]) for m in measured]
    return Figure(
        f"figure-2-{protocol}",
        f"Time of one draw against the number of rows, {PROTOCOLS[protocol]}",
        "rows",
        "milliseconds",
        [Curve(label, n, [1e3 * m["seconds"][protocol][name] for m in measured]) for name, label in LABELS.items()],
        x_log=True,
        y_log=True,
        caption="Without the time of building.",
    )


def _speedups(measured: list[dict[str, Any]]) -> Figure:
    n = [float(m["n"]) for m in measured]
    return Figure(
        "figure-2-speedup",
        "Speed-up over brute force",
        "rows",
        "times faster than brute force",
        [
            Curve(f"{LABELS[name]}, {called}", n, [_speedup(m, protocol, name) for m in measured])
            for protocol, called in PROTOCOLS.items()
            for name in ("ours", "paper")
        ],
        x_log=True,
        y_log=True,
    )
