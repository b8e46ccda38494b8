"""Appendix: the cost of sampling with that of building, and after how many draws building has paid."""

from typing import Any

import numpy as np

from lazygumbel.progress import Task
from lazygumbel_evaluation.experiments import figure_2
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.section import Cell, Curve, Figure, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import key
from lazygumbel_evaluation.report.wording import duration, times

__all__ = ["expected_seconds", "pays_after", "run"]

_PAPER_PAYS = 8_600
_DRAWS = 10_000
"""The paper's amortised cost is that of building and this many draws."""


def expected_seconds(bench: Bench) -> float:  # noqa: ARG001  # every experiment is asked
    """Without the times of Figure 2, which it reuses."""
    return 0.5


def pays_after(build: float, draw: float, exact: float) -> float | None:
    """Draws after which building and drawing cost less than brute force; None for never."""
    return build / (exact - draw) if exact > draw else None


def run(bench: Bench, task: Task) -> Section:
    """From the times of Figure 2, which are measured if they were not."""
    sizes = figure_2.sizes(bench)
    measured: list[dict[str, Any]] = []
    for size in sizes:
        measured.append(figure_2.measure(bench, size))
        task.advance(size / sum(sizes))
    whole = measured[-1]
    labels = figure_2.labels()
    pays = {
        protocol: {name: _pays(whole, protocol, name) for name in figure_2.COMPARED} for protocol in bench.protocols
    }
    return Section(
        "amortised",
        "Appendix: amortised cost",
        "The cost of building is added to that of drawing, with the times of Figure 2. The index of "
        f"{labels['ours']} is built in {duration(whole['build']['ours'])}, that of {labels['paper']} in "
        f"{duration(whole['build']['paper'])}; nothing else is prepared for either.",
        [
            verdict
            for protocol, called in bench.protocols.items()
            for name in figure_2.COMPARED
            for verdict in _verdicts(whole, protocol, called, name, labels[name])
        ],
        [_table(whole, protocol, called, labels) for protocol, called in bench.protocols.items()],
        [
            figure
            for protocol, called in bench.protocols.items()
            for figure in _figures(measured, protocol, called, bench.n)
        ],
        {"pays_after": pays, "sizes": measured},
    )


def _pays(m: dict[str, Any], protocol: Protocol, name: str) -> float | None:
    return pays_after(m["build"][name], m["seconds"][protocol][name], m["seconds"][protocol]["exact"])


def _cost(m: dict[str, Any], protocol: Protocol, name: str, draws: float = _DRAWS) -> float:
    """Seconds of so many draws, building included."""
    return m["build"].get(name, 0.0) + draws * m["seconds"][protocol][name]


def _verdicts(whole: dict[str, Any], protocol: Protocol, called: str, name: str, method: str) -> list[Verdict]:
    pays = _pays(whole, protocol, name)
    speedup = _cost(whole, protocol, "exact") / _cost(whole, protocol, name)
    return [
        Verdict(
            f"Building has paid after at most {_PAPER_PAYS:,} draws",
            method,
            f"about {_PAPER_PAYS:,}",
            _count(pays),
            pays is not None and pays <= _PAPER_PAYS,
            called,
        ),
        Verdict(
            f"{_DRAWS:,} draws are faster than by brute force, building included",
            method,
            None,
            times(speedup),
            speedup > 1,
            called,
        ),
    ]


def _table(whole: dict[str, Any], protocol: Protocol, called: str, labels: dict[str, str]) -> Table:
    brute = _cost(whole, protocol, "exact")

    def row(name: str) -> list[Cell]:
        built, cost = name in whole["build"], _cost(whole, protocol, name)
        return [
            labels[name],
            duration(whole["build"][name]) if built else None,
            duration(whole["seconds"][protocol][name]),
            _count(_pays(whole, protocol, name)) if built else None,
            duration(cost),
            times(brute / cost),
        ]

    return Table(
        f"All rows, {called}",
        ["", "building", "one draw", "pays after", f"{_DRAWS:,} draws", "speed-up"],
        [row(name) for name in labels],
    )


def _figures(measured: list[dict[str, Any]], protocol: Protocol, called: str, n: int) -> list[Figure]:
    counts: list[float] = np.geomspace(100, 1e6, 25).tolist()
    methods, labels, whole = figure_2.methods(n), figure_2.labels(), measured[-1]
    rows = [float(m["n"]) for m in measured]
    return [
        Figure(
            f"amortised-{protocol}",
            f"Cost of building and drawing, {called}",
            "draws",
            "seconds",
            [
                Curve(labels[name], counts, [_cost(whole, protocol, name, count) for count in counts], key(method))
                for name, method in methods.items()
            ],
            x_log=True,
            y_log=True,
            caption="Over all rows, reckoned from the measured times of building and of one draw.",
        ),
        Figure(
            f"amortised-rows-{protocol}",
            f"Cost of building and {_DRAWS:,} draws, {called}",
            "rows",
            "seconds",
            [
                Curve(labels[name], rows, [_cost(m, protocol, name) for m in measured], key(method))
                for name, method in methods.items()
            ],
            x_log=True,
            y_log=True,
        ),
    ]


def _count(draws: float | None) -> str:
    return "never" if draws is None else f"{draws:,.0f}"
