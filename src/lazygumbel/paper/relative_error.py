"""Appendix: relative error of exact draws and of ours over 30 thetas, and whether they differ."""

import numpy as np
import numpy.typing as npt

from lazygumbel.methods import Exhaustive, Stratified, TopKOnly
from lazygumbel.paper.bench import Bench
from lazygumbel.paper.looks import count_ranks
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.paper.wording import instead_of, plain, spread
from lazygumbel.progress import Task

__all__ = ["errors_of", "expected_seconds", "paired_p", "run"]

Floats = npt.NDArray[np.float64]

_PAPER_THETAS, _PAPER_DRAWS = 30, 50_000
_FLIPS = 9_999
_LEVEL = 0.01
_LEAST = 10
"""Draws that an event must expect: the relative error of a rarer one says nothing."""
_EVENTS = {"tops": "top 10, top 100, ...", "groups": "ranks 1 to 10, 11 to 100, ..."}


def expected_seconds(bench: Bench) -> float:
    """Each draw of ours is a look of its own."""
    return bench.budget.error_thetas * (3 * bench.exact_seconds + bench.look_seconds * bench.budget.error_draws)


def errors_of(counts: npt.NDArray[np.int64], masses: Floats) -> dict[str, float]:
    """Mean of |share drawn - probability| / probability over events: the paper's, which nest, and those that do not."""
    draws = int(counts.sum())
    return {
        "tops": _mean_error(np.cumsum(counts)[:-1], draws * np.cumsum(masses)[:-1]),
        "groups": _mean_error(counts, draws * masses),
    }


def _mean_error(counts: npt.NDArray[np.int64], expected: Floats) -> float:
    judged = expected >= _LEAST
    return float((np.abs(counts - expected)[judged] / expected[judged]).mean())


def paired_p(differences: Floats, rng: np.random.Generator) -> float:
    """Two-sided p-value that differences are as likely positive as negative, from random changes of their signs."""
    flips = rng.choice([-1.0, 1.0], size=(_FLIPS, len(differences)))
    as_far = np.abs(flips @ differences) >= abs(differences.sum()) * (1 - 1e-12)
    return float((1 + np.count_nonzero(as_far)) / (1 + _FLIPS))


def run(bench: Bench, task: Task) -> Section:
    """Count draws at 30 thetas in three ways; the third is known to be wrong, and shows that the test can tell."""
    oracle, draws = bench.oracle, bench.budget.error_draws
    thetas = min(bench.budget.error_thetas, len(bench.thetas))
    rng = bench.rng("relative-error")
    cut = TopKOnly(int(np.ceil(np.sqrt(bench.n))))
    errors = {event: {name: np.empty(thetas) for name in ("exact", "ours", "cut")} for event in _EVENTS}
    for t in range(thetas):
        counts = {
            "exact": count_ranks(bench, t, draws, Exhaustive(), rng),
            "ours": count_ranks(bench, t, draws, Stratified(), rng, apart=True),
            "cut": count_ranks(bench, t, draws, cut, rng),
        }
        for name, counted in counts.items():
            for event, error in errors_of(counted, oracle.masses[t]).items():
                errors[event][name][t] = error
        task.advance(1 / thetas)
    p = {event: {name: paired_p(e[name] - e["exact"], rng) for name in ("ours", "cut")} for event, e in errors.items()}
    labels = {"exact": "exact draws", "ours": "Stratified (ours)", "cut": f"top {cut.k:,} only, for contrast"}
    return Section(
        "relative-error",
        "Appendix: relative error of draws",
        f"{instead_of(draws, _PAPER_DRAWS)} draws at each of {instead_of(thetas, _PAPER_THETAS)} random rows as theta. "
        "The error of a theta is the mean of |share drawn - probability| / probability over events: that a draw is in "
        "the top 10, the top 100, and so on, as in the paper; and, which is harder, that its rank is 1 to 10, 11 to "
        f"100, and so on. Events that expect fewer than {_LEAST} draws are left out. Errors of ours and of exact draws "
        "are compared theta by theta, by a permutation test of the signs of their differences. The softmax cut off "
        f"after the top {cut.k:,} rows goes through the same test, to show that it can tell.",
        [_verdict(errors["tops"], p["tops"]["ours"])],
        [
            Table(
                "Relative error, mean and standard deviation over thetas, and p-value against exact draws",
                ["", *(title for event in _EVENTS.values() for title in (event, "p-value"))],
                [
                    [label, *(text for event in _EVENTS for text in _cells(errors[event][name], p[event].get(name)))]
                    for name, label in labels.items()
                ],
            )
        ],
        [_figure(errors["tops"], labels)],
        {"errors": plain(errors), "p": p},
    )


def _verdict(errors: dict[str, Floats], p: float) -> Verdict:
    return Verdict(
        "Errors of ours and of exact draws do not differ significantly",
        "not significantly different",
        f"p = {p:.2g}: {errors['ours'].mean():.3g} against {errors['exact'].mean():.3g}",
        p > _LEVEL,
    )


def _cells(errors: Floats, p: float | None) -> tuple[str, str | None]:
    return spread(errors), None if p is None else f"{p:.2g}"


def _figure(errors: dict[str, Floats], labels: dict[str, str]) -> Figure:
    order = np.argsort(errors["exact"])
    ranks = np.arange(1.0, len(order) + 1).tolist()
    return Figure(
        "relative-error",
        "Relative error of the draws, theta by theta",
        "theta, in the order of the error of exact draws",
        "relative error",
        [Curve(labels[name], ranks, errors[name][order].tolist(), "points") for name in ("exact", "ours")],
        caption="Of the events top 10, top 100, and so on.",
    )
