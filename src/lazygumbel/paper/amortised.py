"""Appendix: the cost of sampling with that of building, and after how many draws building has paid."""

from typing import Any

import numpy as np

from lazygumbel.paper import figure_2
from lazygumbel.paper.bench import Bench
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.paper.wording import duration, times
from lazygumbel.progress import Task

__all__ = ["expected_seconds", "pays_after", "run"]

_PAPER_PAYS = 8_600
_DRAWS = 10_000
"""The paper's amortised cost is that of building and this many draws."""


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
    methods = {"paper": "the paper's method, its index", "ours": "Stratified (ours), index and calibration"}
    pays = {name: pays_after(whole[f"{name}_build"], whole[name], whole["exact"]) for name in methods}
    costs = {name: [m[f"{name}_build"] + _DRAWS * m[name] for m in measured] for name in methods}
    brute = [_DRAWS * m["exact"] for m in measured]
    counts = np.geomspace(100, 1e6, 25)
    rows = [float(m["n"]) for m in measured]
    return Section(
        "amortised",
        "Appendix: amortised cost",
        f"The cost of building is added to that of drawing, with the times of Figure 2. Ours is built in "
        f"{duration(whole['ours_build'])}, calibration included, the paper's index in "
        f"{duration(whole['paper_build'])}. One draw takes {duration(whole['exact'])} by brute force, "
        f"{duration(whole['paper'])} by the paper's method and {duration(whole['ours'])} by ours.",
        [
            Verdict(
                "Building has paid after so many draws",
                "about 8,600",
                _count(pays["ours"]),
                pays["ours"] is not None and pays["ours"] <= _PAPER_PAYS,
            ),
            Verdict(
                f"Speed-up over {_DRAWS:,} draws, building included",
                None,
                times(brute[-1] / costs["ours"][-1]),
                brute[-1] > costs["ours"][-1],
            ),
        ],
        [
            Table(
                "All rows",
                ["", "building", "one draw", "pays after", f"{_DRAWS:,} draws", "speed-up"],
                [
                    ["brute force", None, duration(whole["exact"]), None, duration(brute[-1]), times(1.0)],
                    *(
                        [
                            label,
                            duration(whole[f"{name}_build"]),
                            duration(whole[name]),
                            _count(pays[name]),
                            duration(costs[name][-1]),
                            times(brute[-1] / costs[name][-1]),
                        ]
                        for name, label in methods.items()
                    ),
                ],
            )
        ],
        [
            Figure(
                "amortised",
                "Cost of building and drawing",
                "draws",
                "seconds",
                [
                    Curve("brute force", counts.tolist(), (counts * whole["exact"]).tolist()),
                    *(
                        Curve(label, counts.tolist(), (whole[f"{name}_build"] + counts * whole[name]).tolist())
                        for name, label in methods.items()
                    ),
                ],
                x_log=True,
                y_log=True,
                caption="Over all rows, reckoned from the measured times of building and of one draw.",
            ),
            Figure(
                "amortised-rows",
                f"Cost of building and {_DRAWS:,} draws",
                "rows",
                "seconds",
                [
                    Curve("brute force", rows, brute),
                    *(Curve(label, rows, costs[name]) for name, label in methods.items()),
                ],
                x_log=True,
                y_log=True,
            ),
        ],
        {"pays_after": pays, "sizes": measured},
    )


def _count(draws: float | None) -> str:
    return "never" if draws is None else f"{draws:,.0f}"
