"""Runs that nobody made, for the report: one as it should be, one with everything that could spoil a page."""

from typing import Any

import numpy as np

from lazygumbel_evaluation.report.section import Curve, Figure, Section, Table, Verdict

HEADER: dict[str, Any] = {
    "data": "glove.6B.50d (FAKE RUN: no number here was measured)",
    "n": 400_000,
    "d": 50,
    "temperature": 0.05,
    "machine": {"processor": "a make-believe processor at 2.1 GHz", "cores": 2},
    "versions": {"python": "3.11.2", "numpy": "2.4.0", "faiss": "1.14.1"},
    "seed": 0,
    "started": "2017-08-11 09:00 UTC",
    "seconds": 1234.5,
}


FASTER = "One sample is drawn faster than by brute force"


def fake_run() -> list[Section]:
    """Sections as a run would give them; every number of `ours` is made up."""
    sizes = [10_000.0, 40_000.0, 160_000.0, 400_000.0]
    steps = np.arange(0, 5_001, 10, dtype=float)
    climb = -3.17 - 6.0 * np.exp(-steps / 400)
    return [
        Section(
            "table-1",
            "Table 1: speed and accuracy of sampling",
            "Fake. A thousand thetas are drawn uniformly from the rows; for each, one sample is drawn by `Bounded` "
            "and one by brute force.\n\nThe bound on the total variation distance is in closed form, so that it needs "
            "no samples; its mean and standard deviation over 100 thetas are given.",
            [
                Verdict(FASTER, "Bounded (ours)", "4.65x", "71.3x (fake)", True, "held-out thetas"),
                Verdict(FASTER, "Bounded (ours)", "4.65x", "80x (fake)", True, "theta a row"),
                Verdict(
                    "The bound on the total variation is of the order of 10⁻⁴",
                    "Bounded (ours)",
                    "(2.5 ± 1.4)e-4",
                    "1.2e-4",
                    True,
                ),
                Verdict(
                    "A chi-square test finds no difference from the softmax", "Bounded (ours)", None, "p = 0.41", True
                ),
            ],
            [
                Table(
                    "Sampling, one theta at a time",
                    ["rows", "speed-up", "paper", "total variation", "rows scored", "median time"],
                    [
                        ["Paper, ImageNet", 4.65, 4.65, 2.5e-4, None, None],
                        ["GloVe, `Bounded`", 71.3, None, 1.234e-4, 1_234, "0.09 ms"],
                        ["GloVe, `FixedCutoff`", 4.4, 4.17, 4.8e-4, 24_000, "1.2 ms"],
                        ["GloVe, brute force", 1.0, None, 0.0, 400_000, "6.4 ms"],
                    ],
                    printed_rows=[0],
                    printed_columns=[2],
                )
            ],
            facts={"thetas": 1_000, "times": [0.00009, 0.00012, 0.0064], "method": {"miss": 2.5e-4}},
        ),
        Section(
            "figure-2",
            "Figure 2: time of one sample against the number of rows",
            "Fake. Subsets of the rows, each with its own index.",
            [
                Verdict(
                    "The speed-up grows with the number of rows", "Bounded (ours)", "1 to 5x", "3 to 71x (fake)", True
                )
            ],
            figures=[
                Figure(
                    "sampling-speed",
                    "Time of one sample",
                    "rows n",
                    "milliseconds",
                    [
                        Curve("brute force", sizes, [0.16, 0.66, 2.6, 6.41], "Exhaustive"),
                        Curve("Bounded", sizes, [0.05, 0.061, 0.075, 0.09], "Bounded"),
                        Curve("FixedCutoff (Algorithm 2)", sizes, [0.3, 0.55, 0.9, 1.4], "FixedCutoff"),
                    ],
                    x_log=True,
                    y_log=True,
                    caption="Median over 200 thetas, without the time to build the index.",
                )
            ],
        ),
        Section(
            "figure-4",
            "Figure 4: partition function, error against time",
            "Fake. Each point is one choice of budgets.",
            [
                Verdict(
                    "Less than 1% error faster than by the exact sum", "Bounded (ours)", "about 10x", "22x (fake)", True
                ),
                Verdict(
                    "The top rows alone cannot reach 1% error within the time of the exact sum, whatever their number",
                    "TopKOnly (no tail)",
                    "not below 15% (perturb-and-MAP with t = 64)",
                    "0.8% error in 0.9 of the time: it can, on these rows",
                    False,
                ),
            ],
            figures=[
                Figure(
                    "partition-speed",
                    "Error of the partition function against time",
                    "relative error of Z",
                    "milliseconds",
                    [
                        Curve("Bounded", [0.1, 0.03, 0.01, 0.003], [0.05, 0.12, 0.4, 1.1], "Bounded"),
                        Curve(
                            "UniformTail (Algorithm 3)", [0.3, 0.1, 0.04, 0.015], [0.4, 0.9, 2.1, 4.4], "UniformTail"
                        ),
                        Curve("top k only", [0.6, 0.4, 0.25, 0.12], [0.3, 0.7, 1.5, 3.9], "TopKOnly", "points"),
                        Curve("exact sum", [], [6.4], "Exhaustive", "level"),
                    ],
                    x_log=True,
                    y_log=True,
                    caption="Means over 100 thetas.",
                )
            ],
        ),
        Section(
            "table-2",
            "Table 2 and Figure 5: learning",
            "Fake. Gradient ascent on the likelihood of sixteen rows: 5,000 iterations at learning rate 10, halved "
            "every 1,000.",
            [
                Verdict(
                    "The log-likelihood is that of the exact gradient",
                    "Bounded (ours)",
                    "-3.175 for -3.170",
                    "-3.171",
                    True,
                )
            ],
            [
                Table(
                    "Learning",
                    ["method", "log-likelihood", "paper: log-likelihood", "speed-up", "paper: speed-up"],
                    [
                        ["exact gradient", -3.1701, -3.17, 1.0, 1.0],
                        ["top k only", -4.1234, -4.062, 30.2, 22.7],
                        ["Bounded", -3.1712, -3.175, 15.1, 9.6],
                    ],
                )
            ],
            [
                Figure(
                    "learning",
                    "Learning curves",
                    "iteration",
                    "log-likelihood",
                    [
                        Curve("exact gradient", steps.tolist(), climb.tolist(), "Exhaustive"),
                        Curve("Bounded", steps.tolist(), (climb + 0.003).tolist(), "Bounded"),
                        Curve(
                            "top k only",
                            steps.tolist(),
                            (climb - 0.9 * (1 - np.exp(-steps / 300))).tolist(),
                            "TopKOnly",
                        ),
                    ],
                )
            ],
        ),
        Section(
            "figure-7",
            "Figure 7: how often the top rows are drawn",
            "Fake. 50,000 draws for one theta.",
            figures=[
                Figure(
                    "accuracy",
                    "Draws among the most probable rows",
                    "the most probable rows",
                    "share of the draws",
                    [
                        Curve(
                            "softmax", [10.0, 100.0, 1e3, 1e4, 1e5], [0.051, 0.18, 0.44, 0.77, 0.95], "softmax", "bars"
                        ),
                        Curve(
                            "Bounded",
                            [10.0, 100.0, 1e3, 1e4, 1e5],
                            [0.052, 0.178, 0.441, 0.77, 0.95],
                            "Bounded",
                            "bars",
                        ),
                        Curve(
                            "top 100 only", [10.0, 100.0, 1e3, 1e4, 1e5], [0.29, 1.0, 1.0, 1.0, 1.0], "TopKOnly", "bars"
                        ),
                    ],
                    x_log=True,
                    caption="Exact sampling and ours are told apart by chance alone.",
                )
            ],
        ),
    ]


HOSTILE = """<script>alert(1)</script> "><img src=x onerror=alert(1)> ' </style></svg> --> &amp; $x^2$ ${y} {z}"""
LONG = "a label that goes on and on, far beyond what fits into a legend or a line of text on any screen, " * 3


def awkward_run() -> list[Section]:
    """What could spoil a page: hostile, long, foreign and unbroken texts, a huge table, points that cannot be drawn."""
    inf, nan = float("inf"), float("nan")
    figure = Figure(
        "awkward",
        f"Title {HOSTILE}",
        f"x τ ≤ 语 {HOSTILE}",
        "y " + LONG,
        [
            Curve(LONG, [1.0, 10.0, 100.0, 1000.0], [0.125, -3.0, nan, 64.0], "Bounded"),
            Curve(HOSTILE, [1.0, 0.0, 100.0, 1000.0], [7.0, 8.0, 9.0, inf], "TopKOnly", "points"),
            Curve("_τ ≤ 10⁻⁴ 语言 ✓ " + "W" * 80, [], [12.375], "Exhaustive", "level"),
            Curve("nothing left", [1.0], [0.0], "Frozen"),
            Curve("the same", [2.0], [3.0], "LazyGumbel", "points"),
            Curve("the same", [4.0], [5.0], "LazyGumbel", "points"),
        ],
        x_log=True,
        y_log=True,
        caption=HOSTILE,
    )
    huge = Table(
        "Huge " + HOSTILE, [f"column {c}" for c in range(14)], [[i + 0.5 * c for c in range(14)] for i in range(300)]
    )
    words = Table(
        "Words",
        ["name", "paper", "the paper's method", "holds"],
        [["W" * 120, None, 1.5, True], [HOSTILE, "-", nan, False], ["naïve 语言, as printed", 3, inf, None]],
    )
    verdicts = [
        Verdict(HOSTILE, HOSTILE, None, "W" * 90, False),
        Verdict("W" * 150, LONG, LONG, LONG, True),
        Verdict("Zero is a number", "Bounded (ours)", "0", "0", True),
    ]
    facts = {"hostile <b>": HOSTILE, "numbers": [1.0625, nan, {"deep": 7_654_321}], "long": list(range(2_000))}
    return [
        Section(
            "awkward-1", f"Awkward {HOSTILE}", f"{HOSTILE}\n\n{'W' * 200}", verdicts, [huge, words], [figure], facts
        ),
        Section("bare", "Nothing but words", "`code` and one lone ` backtick."),
    ]


def small_run(name: str = "small", y: float = 2.0) -> list[Section]:
    figure = Figure(name, "Small", "x", "y", [Curve("one", [1.0, 2.0], [1.0, y], "Bounded")])
    return [Section("one", "One", "Text.", [Verdict("It holds", "Bounded (ours)", None, "yes", True)], [], [figure])]
