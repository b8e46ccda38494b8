"""Appendix: the cost of sampling with that of building, and after how many draws building has paid."""

from typing import Any

import numpy as np

from lazygumbel.paper import figure_2
from lazygumbel.paper.bench import Bench
from lazygumbel.paper.protocols import PROTOCOLS, Protocol, printed
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.paper.wording import duration, times
from lazygumbel.progress import Task

__all__ = ["expected_seconds", "pays_after", "run"]

_PAPER_PAYS = 8_600
_DRAWS = 10_000
"""The paper's amortised cost is that of building and this many draws."""
_METHODS = {name: figure_2.LABELS[name] for name in ("paper", "ours")}


def expected_seconds(bench: Bench) -> float:
    """Those of Figure 2, whose times it uses, if they were not measured."""
    return 0.5 if bench.has(f"figure-2-{bench.n}") else figure_2.expected_seconds(bench)


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
    pays = {protocol: {name: _pays(whole, protocol, name) for name in _METHODS} for protocol in PROTOCOLS}
    return Section(
        "amortised",
        "Appendix: amortised cost",
        "The cost of building is added to that of drawing, with the times of Figure 2. Our index is built in "
        f"{duration(whole['build']['ours'])}, the paper's in {duration(whole['build']['paper'])}; nothing else is "
        "prepared for either.",
        [verdict for protocol in PROTOCOLS for verdict in _verdicts(whole, protocol)],
        [_table(whole, protocol) for protocol in PROTOCOLS],
        [figure for protocol in PROTOCOLS for figure in _figures(measured, protocol)],
        {"pays_after": pays, "sizes": measured},
    )


def _pays(m: dict[str, Any], protocol: Protocol, name: str) -> float | None:
    return pays_after(m["build"][name], m["seconds"][protocol][name], m["seconds"][protocol]["exact"])


def _cost(m: dict[str, Any], protocol: Protocol, name: str, draws: float = _DRAWS) -> float:
    """Seconds of so many draws, building included."""
    return m["build"].get(name, 0.0) + draws * m["seconds"][protocol][name]


def _verdicts(whole: dict[str, Any], protocol: Protocol) -> list[Verdict]:
    pays = _pays(whole, protocol, "ours")
    speedup = _cost(whole, protocol, "exact") / _cost(whole, protocol, "ours")
    return [
        Verdict(
            f"Building has paid after so many draws, {PROTOCOLS[protocol]}",
            printed(protocol, "about 8,600"),
            _count(pays),
            pays is not None and pays <= _PAPER_PAYS,
        ),
        Verdict(
            f"Speed-up over {_DRAWS:,} draws, building included, {PROTOCOLS[protocol]}",
            None,
            times(speedup),
            speedup > 1,
        ),
    ]


def _table(whole: dict[str, Any], protocol: Protocol) -> Table:
    brute = _cost(whole, protocol, "exact")
    return Table(
        f"All rows, {PROTOCOLS[protocol]}",
        ["", "building", "one draw", "pays after", f"{_DRAWS:,} draws", "speed-up"],
        [
            ["brute force", None, duration(whole["seconds"][protocol]["exact"]), None, duration(brute), times(1.0)],
            *(
                [
                    label,
                    duration(whole["build"][name]),
                    duration(whole["seconds"][protocol][name]),
                    _count(_pays(whole, protocol, name)),
                    duration(_cost(whole, protocol, name)),
                    times(brute / _cost(whole, protocol, name)),
                ]
                for name, label in _METHODS.items()
            ),
        ],
    )


def _figures(measured: list[dict[str, Any]], protocol: Protocol) -> list[Figure]:
    counts: list[float] = np.geomspace(100, 1e6, 25).tolist()
    labels, whole = {"exact": "brute force"} | _METHODS, measured[-1]
    rows = [float(m["n"]) for m in measured]
    return [
        Figure(
            f"amortised-{protocol}",
            f"Cost of building and drawing, {PROTOCOLS[protocol]}",
            "draws",
            "seconds",
            [
                Curve(label, counts, [_cost(whole, protocol, name, count) for count in counts])
                for name, label in labels.items()
            ],
            x_log=True,
            y_log=True,
            caption="Over all rows, reckoned from the measured times of building and of one draw.",
        ),
        Figure(
            f"amortised-rows-{protocol}",
            f"Cost of building and {_DRAWS:,} draws, {PROTOCOLS[protocol]}",
            "rows",
            "seconds",
            [Curve(label, rows, [_cost(m, protocol, name) for m in measured]) for name, label in labels.items()],
            x_log=True,
            y_log=True,
        ),
    ]


def _count(draws: float | None) -> str:
    return "never" if draws is None else f"{draws:,.0f}"
