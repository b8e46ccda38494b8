"""Table 1: how much faster a draw is, and how far its distribution is from the softmax."""

from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from lazygumbel._support.arrays import Vectors
from lazygumbel.methods import Bounded, Sampler
from lazygumbel.model import LogLinear
from lazygumbel.progress import Task
from lazygumbel.results import Labels
from lazygumbel_evaluation.harness import baseline, brute_force
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.section import Cell, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import label
from lazygumbel_evaluation.report.wording import duration, instead_of, mean_sd, tail_of, times

__all__ = ["expected_seconds", "run"]


_PAPER = {"ImageNet": (4.65, 2.5e-4, 1.4e-4), "Word Embeddings": (4.17, 4.8e-4, 2.2e-4)}
"""Speed-up, mean and standard deviation of the bound, as printed."""
_AUDIT = 8
"""What auditing one theta costs, in exact draws: the paper's bound is searched for over its threshold."""


class _Contender(NamedTuple):
    label: str
    model: LogLinear
    method: Sampler
    claimed: bool = True
    """Whether claims are made about it."""


def expected_seconds(bench: Bench) -> float:
    """Timing, and auditing the paper's method twice."""
    asked = len(bench.protocols) * bench.rough_seconds["exact"] * bench.budget.thetas
    return asked * (4 * bench.budget.passes + 3 * _AUDIT) + 4


def run(bench: Bench, task: Task) -> Section:
    """Time and audit the paper's method and ours at the same thetas."""
    ours, root, theorem = Bounded(), baseline.root(bench.n), baseline.by_theorem()
    contenders = [
        _Contender(label(ours), bench.model, ours),
        _Contender(label(root, "k"), bench.paper_model, root),
        _Contender(label(theorem, "delta"), bench.paper_model, theorem, claimed=False),
    ]
    found: dict[str, Any] = {protocol: _compare(bench, protocol, contenders, task) for protocol in bench.protocols}
    return Section(
        "table-1",
        "Table 1: speed-up and total variation of sampling",
        f"One draw at each of {instead_of(bench.budget.thetas, 100)} thetas, first those that are not rows and then "
        "rows of the index, as in the paper. The speed-up is the median time of brute force at its quickest over that "
        "of the method; samplers take turns on the clock. The distance of the draws from the softmax is computed from "
        "all logits, theta by theta. For Bounded it is the total variation distance itself, given its index; for "
        "FixedCutoff, the probability that the true winner is never scored, which the distance does not exceed. The "
        f"bound is what theory allows: for Bounded, delta = {ours.delta:g} whatever rows and theta, in the mean over "
        "the random rotation that its index is built with; for FixedCutoff the paper's bound, computed for each theta "
        "from all logits and optimised over its threshold x. FixedCutoff is the paper's Algorithm 2 with heads from a "
        f"FAISS inverted file: with k = l = sqrt(n), and with k = l by its theorem at a failure of delta = "
        f"{theorem.delta:g}.",
        [
            verdict
            for protocol, called in bench.protocols.items()
            for verdict in _verdicts(called, contenders, found[protocol]["methods"])
        ],
        [
            *(_table(called, found[protocol], bench.n) for protocol, called in bench.protocols.items()),
            _batches(bench, found),
            Table(
                "As printed by the paper, theta a row",
                ["", "speed-up", "bound"],
                [[name, times(speedup), f"{bound:.2g} ± {sd:.2g}"] for name, (speedup, bound, sd) in _PAPER.items()],
                printed_rows=list(range(len(_PAPER))),
            ),
        ],
        [],
        found,
    )


def _compare(bench: Bench, protocol: Protocol, contenders: list[_Contender], task: Task) -> dict[str, Any]:
    thetas, rng = bench.thetas(protocol)[: bench.budget.thetas], bench.rng(f"table-1 {protocol}")
    variants = brute_force.samplers(bench.model, thetas, bench.temperature, rng)
    calls = {one.label: bench.drawing(one.model, one.method, rng) for one in contenders}
    clocked = bench.compare(variants, calls, thetas)
    seconds = {name: one.by_argument for name, one in clocked.items()}
    methods: dict[str, dict[str, Any]] = {}
    for one in contenders:
        measured = _audit(bench, one, thetas, rng)
        taken = {
            "speedup": float(np.median(seconds["exact"]) / np.median(seconds[one.label])),
            "speedups": (seconds["exact"] / seconds[one.label]).tolist(),
            "seconds": seconds[one.label].tolist(),
        }
        methods[one.label] = taken | measured
        task.advance(1 / len(contenders) / len(bench.protocols))
    return {
        "exact_seconds": seconds["exact"].tolist(),
        "methods": methods,
        "batch_seconds": _batch_seconds(bench, thetas, rng),
    }


def _audit(bench: Bench, one: _Contender, thetas: Vectors, rng: np.random.Generator) -> dict[str, Any]:
    rows = one.model(thetas, temperature=bench.temperature).sample(1, method=one.method, rng=rng).rows
    audit = one.model.audit(thetas, temperature=bench.temperature, method=one.method)
    return {
        "rows": float(rows.mean()),
        "distance": audit.miss.tolist(),
        "bound": audit.bound.tolist(),
        "labels": _counts(audit.labels),
        "ceilings_too_low": audit.violations.tolist(),
    }


def _counts(labels: Labels) -> dict[str, int]:
    """How many thetas have each label."""
    found, counts = np.unique(labels, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _batch_seconds(bench: Bench, thetas: Vectors, rng: np.random.Generator) -> dict[str, float]:
    """Seconds a theta when all thetas are asked together."""
    variants = brute_force.batch_samplers(bench.model, thetas, bench.temperature, rng)
    clocked = bench.compare(variants, {"ours": bench.drawing(bench.model, Bounded(), rng)}, thetas[None])
    return {name: one.median / len(thetas) for name, one in clocked.items()}


def _verdicts(called: str, contenders: list[_Contender], methods: dict[str, dict[str, Any]]) -> list[Verdict]:
    least, bound, _ = _PAPER["ImageNet"]
    found: list[Verdict] = []
    for one in (one for one in contenders if one.claimed):
        m, said = methods[one.label], label(one.method)
        bounds, (mean, most, largest) = m["bound"], tail_of(m["distance"])
        found += [
            Verdict(
                f"A draw is at least {least} times as fast as brute force",
                said,
                "; ".join(f"{name} {times(speedup)}" for name, (speedup, _, _) in _PAPER.items()),
                times(m["speedup"]),
                m["speedup"] >= least,
                called,
            ),
            Verdict(
                f"The bound on the total variation, mean over thetas, is at most {bound:g}",
                said,
                "; ".join(f"{name} {b:.2g} ± {sd:.2g}" for name, (_, b, sd) in _PAPER.items()),
                mean_sd(bounds),
                fmean(bounds) <= bound,
                called,
            ),
            Verdict(
                "No theta is farther from the softmax than its bound",
                said,
                None,
                f"distance: mean {mean}, 95% {most}, max {largest}",
                all(d <= b for d, b in zip(m["distance"], bounds, strict=True)),
                called,
            ),
        ]
    return found


def _table(called: str, found: dict[str, Any], n: int) -> Table:
    brute = median(found["exact_seconds"])
    return Table(
        f"This run, {called}",
        [
            "",
            "speed-up",
            "time",
            *("distance: mean", "95%", "max"),
            "bound (mean ± sd)",
            "rows scored",
            "labels",
        ],
        [
            [brute_force.QUICKEST, times(1.0), duration(brute), "0", "0", "0", "0", n, "exact"],
            *(_row(name, m) for name, m in found["methods"].items()),
        ],
    )


def _row(name: str, m: dict[str, Any]) -> list[Cell]:
    return [
        name,
        times(m["speedup"]),
        duration(median(m["seconds"])),
        *tail_of(m["distance"]),
        mean_sd(m["bound"]),
        round(m["rows"]),
        ", ".join(f"{count} {label}" for label, count in m["labels"].items()),
    ]


def _batches(bench: Bench, found: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for protocol, called in bench.protocols.items():
        taken = found[protocol]["batch_seconds"]
        cells = (duration(taken["exact"]), duration(taken["ours"]), times(taken["exact"] / taken["ours"]))
        rows.append([called, bench.budget.thetas, *cells])
    columns = ["", "thetas", f"{brute_force.QUICKEST}, each", f"{label(Bounded())}, each", "speed-up"]
    return Table("All thetas at once", columns, rows)
