"""Section 4.2.2: random walks over the rows, exact and ours, compared by the rows they visit most."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel.methods import Bounded, Sampler
from lazygumbel.progress import Progress, Task
from lazygumbel.results import Label
from lazygumbel.walking import Walk, walk
from lazygumbel_evaluation.harness.bench import Bench, Within
from lazygumbel_evaluation.harness.brute_force import DENSE
from lazygumbel_evaluation.report.section import Cell, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import label
from lazygumbel_evaluation.report.wording import duration, instead_of, times

__all__ = ["compare", "expected_seconds", "run", "top_size", "verdict"]


_PAPER = {"exact": 0.693, "ours": 0.729, "between": 0.736}
"""Shares of the top 1,000 in common, as printed, for windows of a million steps over ImageNet."""
_PAPER_STEPS = 1_000_000
_TOP = 1_000
_SPACING, _SHOWN = 20, 12
"""Steps between the states that are shown, as in the paper, and how many."""


def expected_seconds(bench: Bench) -> float:
    """Chains of a step are drawn together, which is a little quicker than one by one."""
    budget = bench.budget
    ours = budget.steps + (budget.long_steps if budget.long_steps > budget.steps else 0)
    return 0.8 * budget.chains * (bench.rough_seconds["exact"] * budget.steps + bench.rough_seconds["ours"] * ours)


def compare(exact: Walk, ours: Walk, measure: Callable[[Walk, Walk], float]) -> dict[str, float]:
    """What two walks have in common: both exact, both ours, and one of each (the mean over four pairs)."""
    (a, b), (c, d) = _halves(exact), _halves(ours)
    across = [measure(first, second) for first in (a, b) for second in (c, d)]
    return {"exact": measure(a, b), "ours": measure(c, d), "between": float(np.mean(across))}


def top_size(*paths: Walk) -> int:
    """1,000, or as many rows as every half of the walks has visited."""
    return min(_TOP, *(int(np.count_nonzero(half.counts)) for path in paths for half in _halves(path)))


def run(bench: Bench, task: Task) -> Section:
    """Walk twice with each sampler, from the same starts."""
    budget, cells = bench.budget, _cells(bench)
    exact, exact_seconds = _go(bench, "exact", DENSE, budget.steps, Within(task, 0.9))
    ours, our_seconds = _go(bench, "ours", Bounded(), budget.steps, Within(task, 0.05))
    top, steps = top_size(exact, ours), exact.ids.size
    rows = compare(exact, ours, lambda a, b: a.overlap(b, top))
    visits = compare(exact, ours, lambda a, b: _in_common(cells[a.ids], cells[b.ids]))
    facts: dict[str, Any] = {
        "top": top,
        "shares": rows,
        "visits_by_cell": visits,
        "steps": steps // 2,
        "stayed": {"exact": _stayed(exact), "ours": _stayed(ours)},
        "seconds_a_step": {"exact": exact_seconds / steps, "ours": our_seconds / steps},
    }
    said = label(Bounded())
    labels = {"exact": "two walks, both exact", "ours": f"two walks, both {said}", "between": "one of each"}
    table: list[list[Cell]] = [
        [which, f"{_PAPER[name]:.1%}", f"{rows[name]:.1%}", f"{visits[name]:.1%}"] for name, which in labels.items()
    ]
    if budget.long_steps > budget.steps:
        long, _ = _go(bench, "long", Bounded(), budget.long_steps, Within(task, 0.05))
        first, second = _halves(long)
        share, common = first.overlap(second, top), _in_common(cells[first.ids], cells[second.ids])
        facts["long"] = {"steps": first.ids.size, "share": share, "visits_by_cell": common}
        which = f"both {said}, {first.ids.size:,} steps each"
        table.append([which, f"{_PAPER['ours']:.1%}", f"{share:.1%}", f"{common:.1%}"])
    return Section(
        "walks",
        "Section 4.2.2: random walks",
        "From row j the walk moves to row i with probability proportional to "
        f"exp(phi_i . phi_j / {bench.temperature}): every theta is a row. Two walks with exact draws and two with "
        f"{said}, of {instead_of(steps // 2, _PAPER_STEPS)} steps each, start at the same {budget.chains // 2} random "
        f"rows, a chain at each. Shown is the share of the {top:,} most visited rows that two walks have in common, "
        "and that of their visits, counted by the cells of the index. If draws are right, all pairs of walks are "
        "alike. (The paper takes two windows of one long chain for two walks.) Short walks share less, whatever the "
        "sampler. "
        f"A step took {duration(exact_seconds / steps)} exactly and {duration(our_seconds / steps)} with {said}, all "
        f"chains at once: {times(exact_seconds / our_seconds)} faster. The exact walk stayed where it was in "
        f"{facts['stayed']['exact']:.1%} of the steps, {said} in {facts['stayed']['ours']:.1%}.",
        [verdict(rows, top)],
        [
            Table(
                "In common",
                ["", f"top {_TOP:,}, paper", f"top {top:,} rows, this run", "visits by cell, this run"],
                table,
                printed_columns=[1],
            ),
            Table(f"One chain, every {_SPACING} steps", ["step", label(DENSE), said], _samples(bench, exact, ours)),
        ],
        [],
        facts,
    )


def verdict(shares: dict[str, float], top: int) -> Verdict:
    """Whether the walks of two samplers share as many of their top rows as those of one, but for chance."""
    # Three standard errors of a share of so many rows, were they independent: rows near the edge come and go.
    margin = 3 * np.sqrt(shares["between"] * (1 - shares["between"]) / top)
    return Verdict(
        "Its walks and exact ones share as much as two walks of one kind",
        label(Bounded()),
        "73.6% across, 69.3% exact, 72.9% theirs",
        f"{shares['between']:.1%} across, {shares['exact']:.1%} exact, {shares['ours']:.1%} its own",
        bool(shares["between"] >= (shares["exact"] + shares["ours"]) / 2 - margin),
    )


def _go(bench: Bench, name: str, method: Sampler, steps: int, progress: Within) -> tuple[Walk, float]:
    """A walk, made once, and the seconds it took. The second half of the chains repeats the first."""
    chains = bench.budget.chains
    start = np.tile(bench.rng("walk starts").integers(bench.n, size=chains // 2), 2)

    def make() -> dict[str, npt.NDArray[Any]]:
        def go(count: int, progress: Progress | None) -> Walk:
            return walk(
                bench.model,
                count,
                start=start,
                chains=chains,
                temperature=bench.temperature,
                method=method,
                rng=bench.rng(f"walk {name}"),
                progress=progress,
            )

        go(1, None)  # compiles
        began = perf_counter()
        path = go(steps, progress)
        seconds = np.asarray(perf_counter() - began)
        return {"ids": path.ids, "rows": path.rows, "label": np.asarray(path.label), "seconds": seconds}

    held = bench.store.once_arrays(f"walk-{name}", make)
    path = Walk(held["ids"], start, bench.n, held["rows"], cast("Label", str(held["label"])))
    return path, float(held["seconds"])


def _halves(path: Walk) -> tuple[Walk, Walk]:
    """Two independent walks from the same starts."""
    half = len(path.start) // 2
    first, second = (
        Walk(path.ids[:, part], path.start[part], path.n, path.rows // 2, path.label)
        for part in (slice(0, half), slice(half, 2 * half))
    )
    return first, second


def _cells(bench: Bench) -> Ints:
    """The cell of each row, by id."""
    index = bench.index
    positions = bench.features.locate(np.arange(bench.n))
    return np.repeat(np.arange(index.cells), np.diff(index.layout.offsets))[positions]


def _in_common(first: Ints, second: Ints) -> float:
    """Share of the visits that two walks have in common: the sum over cells of the smaller of their shares."""
    cells = int(max(first.max(), second.max())) + 1
    counts = [np.bincount(visited.reshape(-1), minlength=cells) / visited.size for visited in (first, second)]
    return float(np.minimum(*counts).sum())


def _stayed(path: Walk) -> float:
    before = np.vstack([path.start, path.ids[:-1]])
    return float((before == path.ids).mean())


def _samples(bench: Bench, exact: Walk, ours: Walk) -> list[list[Cell]]:
    steps = range(_SPACING - 1, min(len(exact.ids), _SPACING * _SHOWN), _SPACING)
    return [[t + 1, *(bench.name_of(int(path.ids[t, 0])) for path in (exact, ours))] for t in steps]
