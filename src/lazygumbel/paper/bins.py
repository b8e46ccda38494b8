"""Appendix, Figure 8: draws of two thetas, counted in the top 10, 100, 1,000, ..., against the true probabilities."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.methods import Exhaustive, Stratified
from lazygumbel.paper.bench import Bench
from lazygumbel.paper.looks import count_ranks
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.paper.wording import instead_of, name_of
from lazygumbel.progress import Task

__all__ = ["chi_square_p", "expected_seconds", "run"]

Floats = npt.NDArray[np.float64]

_PAPER_DRAWS = 50_000
_SIMULATED = 9_999
_LEVEL = 1e-3
"""A p-value below this is taken as a difference; ours has two chances."""


def expected_seconds(bench: Bench) -> float:
    """Two thetas, each draw of ours a look of its own."""
    return 0.5 + 2 * bench.look_seconds * bench.budget.draws


def chi_square_p(counts: npt.NDArray[np.int64], masses: Floats, rng: np.random.Generator) -> float:
    """p-value of counts against probabilities: the rank of their chi-square statistic among simulated ones."""
    draws = int(counts.sum())
    expected = draws * masses
    simulated = rng.multinomial(draws, masses / masses.sum(), size=_SIMULATED)
    statistic = ((np.vstack([counts, simulated]) - expected) ** 2 / expected).sum(axis=1)
    return float((1 + np.count_nonzero(statistic[1:] >= statistic[0])) / (1 + _SIMULATED))


def run(bench: Bench, task: Task) -> Section:
    """Count draws at the theta with the most, and at that with the least, probability in its ten best rows."""
    oracle, draws = bench.oracle, bench.budget.draws
    ranked = np.argsort(oracle.masses[:, 0])
    chosen = [int(ranked[-1]), int(ranked[0])]
    rng = bench.rng("bins")
    found: list[dict[str, Any]] = []
    for t in chosen:
        exact = count_ranks(bench, t, draws, Exhaustive(), rng)
        ours = count_ranks(bench, t, draws, Stratified(), rng, apart=True)
        p = {name: chi_square_p(c, oracle.masses[t], rng) for name, c in (("exact", exact), ("ours", ours))}
        name = name_of(bench.features, int(bench.theta_ids[t]))
        found.append(
            {"theta": name, "true": oracle.masses[t].tolist(), "exact": exact.tolist(), "ours": ours.tolist(), "p": p}
        )
        task.advance(0.5)
    return Section(
        "bins",
        "Appendix: draws against true probabilities",
        f"{instead_of(draws, _PAPER_DRAWS)} draws at each of two thetas: of {len(bench.thetas)} random rows, those "
        "with the most and with the least probability in their ten best rows. Draws are counted by the rank of the "
        "row: 1 to 10, 11 to 100, and so on. Every draw of ours is a look of its own. A p-value is the chance of "
        "counts at least as far from the true probabilities, from simulated draws.",
        [
            Verdict(
                f"Draws of ours follow the softmax at {f['theta']}",
                "closely matches",
                f"p = {f['p']['ours']:.3g} (exact draws {f['p']['exact']:.3g})",
                f["p"]["ours"] > _LEVEL,
            )
            for f in found
        ],
        [_table(f, oracle.edges.tolist(), draws) for f in found],
        [_figure(i, f, oracle.edges.tolist(), draws) for i, f in enumerate(found, 1)],
        {"thetas": found, "edges": oracle.edges.tolist()},
    )


def _table(found: dict[str, Any], edges: list[int], draws: int) -> Table:
    firsts = [1, *(e + 1 for e in edges[:-1])]
    return Table(
        f"theta: {found['theta']}",
        ["ranks", "true probability", "exact draws", "ours"],
        [
            [f"{first:,} to {last:,}", f"{p:.4f}", f"{a / draws:.4f}", f"{b / draws:.4f}"]
            for first, last, p, a, b in zip(firsts, edges, found["true"], found["exact"], found["ours"], strict=True)
        ],
    )


def _figure(number: int, found: dict[str, Any], edges: list[int], draws: int) -> Figure:
    x = [float(e) for e in edges]
    shares = {"exact draws": found["exact"], "ours": found["ours"]}
    return Figure(
        f"bins-{number}",
        f"Draws by rank, theta: {found['theta']}",
        "rank of the row, up to",
        "share of the draws",
        [
            Curve("true probability", x, found["true"], "bars"),
            *(Curve(label, x, [c / draws for c in counts], "bars") for label, counts in shares.items()),
        ],
        caption=f"{draws:,} draws each.",
    )
