"""Appendix: relative error of exact draws and of ours over 30 thetas, and whether they differ."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats
from lazygumbel.methods import Bounded, Sampler, TopKOnly
from lazygumbel.progress import Task
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.brute_force import DENSE
from lazygumbel_evaluation.harness.ranks import SHARED, count_ranks
from lazygumbel_evaluation.harness.ranks import expected_seconds as seconds_of_draws
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.section import Curve, Figure, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import key, label
from lazygumbel_evaluation.report.wording import instead_of, mean_sd, plain

__all__ = ["errors_of", "expected_seconds", "paired_p", "run"]


_PAPER_THETAS, _PAPER_DRAWS = 30, 50_000
_FLIPS = 9_999
_LEVEL = 0.01
_LEAST = 10
"""Draws that an event must expect: the relative error of a rarer one says nothing."""
_EVENTS = {"tops": "top 10, top 100, ...", "groups": "ranks 1 to 10, 11 to 100, ..."}


class _Found(NamedTuple):
    errors: dict[str, dict[str, Floats]]
    """By event and sampler, one a theta."""
    p: dict[str, dict[str, float]]
    """By event and sampler: p-values against exact draws."""


def expected_seconds(bench: Bench) -> float:
    """Three samplers at every theta."""
    return len(bench.protocols) * bench.budget.error_thetas * seconds_of_draws(bench, bench.budget.error_draws)


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
    cut = TopKOnly(int(np.ceil(np.sqrt(bench.n))))
    methods: dict[str, Sampler] = {"exact": DENSE, "ours": Bounded(), "cut": cut}
    labels = {"exact": label(DENSE), "ours": label(Bounded()), "cut": label(cut, "k")}
    found = {protocol: _measure(bench, protocol, methods, task) for protocol in bench.protocols}
    return Section(
        "relative-error",
        "Appendix: relative error of draws",
        f"{instead_of(bench.budget.error_draws, _PAPER_DRAWS)} draws at each of "
        f"{instead_of(bench.budget.error_thetas, _PAPER_THETAS)} thetas, those that are not rows and then rows of the "
        "index. The error of a theta is the mean of |share drawn - probability| / probability over events: that a draw "
        "is in the top 10, the top 100, and so on, as in the paper; and, which is harder, that its rank is 1 to 10, "
        f"11 to 100, and so on. Events that expect fewer than {_LEAST} draws are left out. Errors of Bounded and of "
        "exact draws are compared theta by theta, by a permutation test of the signs of their differences, which finds "
        f"one where there is none in {_LEVEL:.0%} of all runs. The softmax cut off after the top {cut.k:,} rows goes "
        f"through the same test, to show that it can tell. Draws of Bounded are asked for {SHARED} at a time: they "
        "share a scan of the codes, and each runs a race of its own.",
        [_verdict(called, labels["ours"], found[protocol]) for protocol, called in bench.protocols.items()],
        [_table(called, found[protocol], labels) for protocol, called in bench.protocols.items()],
        [
            _figure(protocol, called, found[protocol].errors["tops"], methods)
            for protocol, called in bench.protocols.items()
        ],
        {protocol: {"errors": plain(f.errors), "p": f.p} for protocol, f in found.items()},
    )


def _measure(bench: Bench, protocol: Protocol, methods: dict[str, Sampler], task: Task) -> _Found:
    oracle, thetas = bench.oracle(protocol), bench.budget.error_thetas
    rng = bench.rng(f"relative-error {protocol}")
    errors = {event: {name: np.empty(thetas) for name in methods} for event in _EVENTS}
    for t in range(thetas):
        for name, method in methods.items():
            counted = count_ranks(bench, protocol, oracle, t, bench.budget.error_draws, method, rng)
            for event, error in errors_of(counted, oracle.masses[t]).items():
                errors[event][name][t] = error
        task.advance(1 / thetas / len(bench.protocols))
    others = [name for name in methods if name != "exact"]
    p = {event: {name: paired_p(e[name] - e["exact"], rng) for name in others} for event, e in errors.items()}
    return _Found(errors, p)


def _verdict(called: str, method: str, found: _Found) -> Verdict:
    errors, p = found.errors["tops"], found.p["tops"]["ours"]
    return Verdict(
        "Errors do not differ significantly from those of exact draws",
        method,
        "not significantly different",
        f"p = {p:.2g}: {errors['ours'].mean():.3g} against {errors['exact'].mean():.3g}",
        p > _LEVEL,
        called,
    )


def _table(called: str, found: _Found, labels: dict[str, str]) -> Table:
    return Table(
        f"Relative error, mean ± standard deviation over thetas, and p-value against exact draws, {called}",
        ["", *(title for event in _EVENTS.values() for title in (event, "p-value"))],
        [
            [
                said,
                *(text for event in _EVENTS for text in _cells(found.errors[event][name], found.p[event].get(name))),
            ]
            for name, said in labels.items()
        ],
    )


def _cells(errors: Floats, p: float | None) -> tuple[str, str | None]:
    return mean_sd(errors), None if p is None else f"{p:.2g}"


def _figure(protocol: Protocol, called: str, errors: dict[str, Floats], methods: dict[str, Sampler]) -> Figure:
    order = np.argsort(errors["exact"])
    ranks = np.arange(1.0, len(order) + 1).tolist()
    return Figure(
        f"relative-error-{protocol}",
        f"Relative error of the draws, theta by theta, {called}",
        "theta, in the order of the error of exact draws",
        "relative error",
        [
            Curve(label(methods[name]), ranks, errors[name][order].tolist(), key(methods[name]), "points")
            for name in ("exact", "ours")
        ],
        caption="Of the events top 10, top 100, and so on.",
    )
