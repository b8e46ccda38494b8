"""Figure 2: time of one draw against the number of rows."""

from typing import Any

import numpy as np

from lazygumbel.features import Features
from lazygumbel.methods import Stratified
from lazygumbel.model import LogLinear
from lazygumbel.paper import baseline
from lazygumbel.paper.bench import Bench, build_model
from lazygumbel.paper.brute_force import BruteForce
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.paper.wording import duration, instead_of, times
from lazygumbel.progress import Task

__all__ = ["LABELS", "expected_seconds", "measure", "run", "sizes"]

LABELS = {"exact": "brute force", "paper": "the paper's method", "ours": "Stratified (ours)"}
_PAPER_SPEEDUP = 5.0
"""The paper: "up to 5x" on all of ImageNet."""


def expected_seconds(bench: Bench) -> float:
    """Both indexes are built for every subset; three samplers are timed at every size."""
    rows = sum(sizes(bench)) / bench.n
    asked = bench.budget.thetas * bench.budget.repeats
    return rows * (bench.build_seconds + 1.5 * asked * bench.exact_seconds)


def sizes(bench: Bench) -> list[int]:
    """Numbers of rows, evenly spaced in logarithm; the last is all of them."""
    least = min(bench.budget.smallest, bench.n)
    return np.unique(np.geomspace(least, bench.n, bench.budget.sizes).round().astype(np.int64)).tolist()


def measure(bench: Bench, size: int) -> dict[str, Any]:
    """Seconds of one draw of each kind, and of building, over a random subset of this many rows; measured once."""

    def make() -> dict[str, Any]:
        rng = bench.rng(f"figure-2 {size}")
        if size == bench.n:
            (ours, build), (paper, paper_build) = (bench.model, bench.build_seconds), bench.paper_index
        else:
            rows = Features.of(bench.features.gather(np.sort(rng.choice(bench.n, size, replace=False))))
            (ours, build), (paper, paper_build) = build_model(rows, bench.seed), baseline.build_index(rows)
        thetas = ours.features.gather(rng.choice(size, min(bench.budget.thetas, size), replace=False))
        asked = {
            "exact": (ours, BruteForce()),
            "paper": (LogLinear(paper), baseline.root(size)),
            "ours": (ours, Stratified()),
        }
        taken = {
            name: float(bench.seconds(model, thetas, lambda dist, m=method: dist.sample(method=m, rng=rng)).mean())
            for name, (model, method) in asked.items()
        }
        return {"n": size, **taken, "ours_build": build, "paper_build": paper_build}

    return bench.once(f"figure-2-{size}", make)


def run(bench: Bench, task: Task) -> Section:
    """Time three samplers over subsets."""
    measured: list[dict[str, Any]] = []
    for size in sizes(bench):
        measured.append(measure(bench, size))
        task.advance(size / sum(sizes(bench)))
    n = [float(m["n"]) for m in measured]
    speedups = {name: [m["exact"] / m[name] for m in measured] for name in ("paper", "ours")}
    last = speedups["ours"][-1]
    return Section(
        "figure-2",
        "Figure 2: time of one draw",
        f"One draw at one theta, for random subsets of {n[0]:,.0f} to {n[-1]:,.0f} rows. Thetas are "
        f"{instead_of(bench.budget.thetas, 10_000)} random rows of the subset; the time of each is the median of "
        f"{bench.budget.repeats} calls, and the mean over thetas is shown. Building is not included. Brute force is "
        "one matrix-vector product in float32 and an inverse CDF. The paper's method takes its head of sqrt(n) rows "
        "from a FAISS inverted file of 4 sqrt(n) lists. Stratified is built and calibrated anew for every subset.",
        [
            Verdict("Speed-up of one draw over all rows", "up to 5x", times(last), last >= _PAPER_SPEEDUP),
            Verdict(
                "The speed-up grows with the number of rows",
                "linear in log n",
                f"{times(speedups['ours'][0])} to {times(last)}",
                last > speedups["ours"][0],
            ),
        ],
        [
            Table(
                "Time of one draw",
                ["rows", *LABELS.values(), "speed-up of the paper's method", "speed-up of ours"],
                [
                    [m["n"], *(duration(m[name]) for name in LABELS), times(paper), times(ours)]
                    for m, paper, ours in zip(measured, speedups["paper"], speedups["ours"], strict=True)
                ],
            )
        ],
        [
            Figure(
                "figure-2",
                "Time of one draw against the number of rows",
                "rows",
                "milliseconds",
                [Curve(label, n, [1e3 * m[name] for m in measured]) for name, label in LABELS.items()],
                x_log=True,
                y_log=True,
                caption="Without the time of building.",
            ),
            Figure(
                "figure-2-speedup",
                "Speed-up over brute force",
                "rows",
                "times faster than brute force",
                [Curve(LABELS[name], n, values) for name, values in speedups.items()],
                x_log=True,
                y_log=True,
            ),
        ],
        {"sizes": measured},
    )
