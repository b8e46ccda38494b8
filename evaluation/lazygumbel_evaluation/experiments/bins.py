"""Appendix, Figure 8: draws of two thetas of either kind, counted by rank, against the true probabilities."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats
from lazygumbel.methods import Bounded
from lazygumbel.progress import Task
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.brute_force import DENSE
from lazygumbel_evaluation.harness.ranks import SHARED, count_ranks
from lazygumbel_evaluation.harness.ranks import expected_seconds as seconds_of_draws
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.section import Curve, Figure, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import SOFTMAX, key, label
from lazygumbel_evaluation.report.wording import instead_of

__all__ = ["chi_square_p", "expected_seconds", "run"]


_PAPER_DRAWS = 50_000
_SIMULATED = 9_999
_LEVEL = 1e-3
"""A p-value below this is taken as a difference; ours has four chances."""


def expected_seconds(bench: Bench) -> float:
    """Two samplers at two thetas of either kind."""
    return 0.5 + 2 * len(bench.protocols) * seconds_of_draws(bench, bench.budget.draws)


def chi_square_p(counts: npt.NDArray[np.int64], masses: Floats, rng: np.random.Generator) -> float:
    """p-value of counts against probabilities: the rank of their chi-square statistic among simulated ones."""
    draws = int(counts.sum())
    expected = draws * masses
    simulated = rng.multinomial(draws, masses / masses.sum(), size=_SIMULATED)
    statistic = ((np.vstack([counts, simulated]) - expected) ** 2 / expected).sum(axis=1)
    return float((1 + np.count_nonzero(statistic[1:] >= statistic[0])) / (1 + _SIMULATED))


def run(bench: Bench, task: Task) -> Section:
    """Count draws at the theta with the most, and at that with the least, probability in its ten best rows."""
    found = [counted for protocol in bench.protocols for counted in _count(bench, protocol, task)]
    edges, draws = bench.oracle("row").edges.tolist(), bench.budget.draws
    return Section(
        "bins",
        "Appendix: draws against true probabilities",
        f"{instead_of(draws, _PAPER_DRAWS)} draws at each of four thetas: of {len(bench.thetas('row'))} that are not "
        "rows, and of as many rows of the index, those with the most and with the least probability in their ten best "
        "rows. Draws are counted by the rank of the row: 1 to 10, 11 to 100, and so on. Draws of Bounded are asked for "
        f"{SHARED} at a time: they share a scan of the codes, and each runs a race of its own. A p-value is the chance "
        "of counts at least as far from the true probabilities, from simulated draws.",
        [
            Verdict(
                f"Draws follow the softmax at the {f['shape']} theta",
                label(Bounded()),
                "closely matches",
                f"{f['theta']}: p = {f['p']['ours']:.3g} ({f['p']['exact']:.3g} of brute force)",
                f["p"]["ours"] > _LEVEL,
                bench.protocols[f["protocol"]],
            )
            for f in found
        ],
        [_table(f, bench.protocols[f["protocol"]], edges, draws) for f in found],
        [_figure(i, f, bench.protocols[f["protocol"]], edges, draws) for i, f in enumerate(found, 1)],
        {"thetas": found, "edges": edges},
    )


def _count(bench: Bench, protocol: Protocol, task: Task) -> list[dict[str, Any]]:
    oracle, draws = bench.oracle(protocol), bench.budget.draws
    rng, names = bench.rng(f"bins {protocol}"), bench.theta_names(protocol)
    ranked = np.argsort(oracle.masses[:, 0])
    found: list[dict[str, Any]] = []
    for shape, t in (("most peaked", int(ranked[-1])), ("flattest", int(ranked[0]))):
        exact, ours = (count_ranks(bench, protocol, oracle, t, draws, m, rng) for m in (DENSE, Bounded()))
        p = {name: chi_square_p(c, oracle.masses[t], rng) for name, c in (("exact", exact), ("ours", ours))}
        counts = {"true": oracle.masses[t].tolist(), "exact": exact.tolist(), "ours": ours.tolist()}
        found.append({"protocol": protocol, "shape": shape, "theta": names[t], **counts, "p": p})
        task.advance(0.5 / len(bench.protocols))
    return found


def _table(found: dict[str, Any], called: str, edges: list[int], draws: int) -> Table:
    firsts = [1, *(e + 1 for e in edges[:-1])]
    return Table(
        f"The {found['shape']} theta, {found['theta']}: {called}",
        ["ranks", "true probability", label(DENSE), label(Bounded())],
        [
            [f"{first:,} to {last:,}", f"{p:.4f}", f"{a / draws:.4f}", f"{b / draws:.4f}"]
            for first, last, p, a, b in zip(firsts, edges, found["true"], found["exact"], found["ours"], strict=True)
        ],
    )


def _figure(number: int, found: dict[str, Any], called: str, edges: list[int], draws: int) -> Figure:
    x = [float(e) for e in edges]
    shares = ((DENSE, found["exact"]), (Bounded(), found["ours"]))
    return Figure(
        f"bins-{number}",
        f"Draws by rank, the {found['shape']} theta, {found['theta']}: {called}",
        "rank of the row, up to",
        "share of the draws",
        [
            Curve("true probability", x, found["true"], SOFTMAX, "bars"),
            *(Curve(label(method), x, [c / draws for c in counts], key(method), "bars") for method, counts in shares),
        ],
        caption=f"{draws:,} draws each.",
    )
