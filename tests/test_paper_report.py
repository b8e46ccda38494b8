"""The report of a run: every number is in it, nothing else is needed, and nothing in it can be taken for markup."""

import functools
import json
import os
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from io import BytesIO
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from typer.testing import CliRunner

from lazygumbel.cli import app
from lazygumbel.paper import draw as drawing_module
from lazygumbel.paper import report as report_module
from lazygumbel.paper.draw import INKS, draw, number
from lazygumbel.paper.report import headline, write_report
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict

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
                Verdict("One sample is drawn faster than by brute force", "4.65x", "71.3x (fake)", True),
                Verdict("The bound on the total variation is of the order of 10⁻⁴", "(2.5 ± 1.4)e-4", "1.2e-4", True),
                Verdict("A chi-square test finds no difference from the softmax", None, "p = 0.41", True),
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
                )
            ],
            facts={"thetas": 1_000, "times": [0.00009, 0.00012, 0.0064], "method": {"miss": 2.5e-4}},
        ),
        Section(
            "figure-2",
            "Figure 2: time of one sample against the number of rows",
            "Fake. Subsets of the rows, each with its own index.",
            [Verdict("The speed-up grows with the number of rows", "1 to 5x", "3 to 71x (fake)", True)],
            figures=[
                Figure(
                    "sampling-speed",
                    "Time of one sample",
                    "rows n",
                    "milliseconds",
                    [
                        Curve("brute force", sizes, [0.16, 0.66, 2.6, 6.41]),
                        Curve("Bounded", sizes, [0.05, 0.061, 0.075, 0.09]),
                        Curve("FixedCutoff (Algorithm 2)", sizes, [0.3, 0.55, 0.9, 1.4]),
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
                Verdict("Less than 1% error faster than by the exact sum", "about 10x", "22x (fake)", True),
                Verdict(
                    "The top rows alone cannot reach 1% error within the time of the exact sum, whatever their number",
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
                        Curve("Bounded", [0.1, 0.03, 0.01, 0.003], [0.05, 0.12, 0.4, 1.1]),
                        Curve("UniformTail (Algorithm 3)", [0.3, 0.1, 0.04, 0.015], [0.4, 0.9, 2.1, 4.4]),
                        Curve("top k only", [0.6, 0.4, 0.25, 0.12], [0.3, 0.7, 1.5, 3.9], "points"),
                        Curve("exact sum", [], [6.4], "level"),
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
            [Verdict("The log-likelihood is that of the exact gradient", "-3.175 for -3.170", "-3.171", True)],
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
                        Curve("exact gradient", steps.tolist(), climb.tolist()),
                        Curve("Bounded", steps.tolist(), (climb + 0.003).tolist()),
                        Curve("top k only", steps.tolist(), (climb - 0.9 * (1 - np.exp(-steps / 300))).tolist()),
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
                        Curve("softmax", [10.0, 100.0, 1e3, 1e4, 1e5], [0.051, 0.18, 0.44, 0.77, 0.95], "bars"),
                        Curve("Bounded", [10.0, 100.0, 1e3, 1e4, 1e5], [0.052, 0.178, 0.441, 0.77, 0.95], "bars"),
                        Curve("top 100 only", [10.0, 100.0, 1e3, 1e4, 1e5], [0.29, 1.0, 1.0, 1.0, 1.0], "bars"),
                    ],
                    x_log=True,
                    caption="Exact sampling and ours are told apart by chance alone.",
                )
            ],
        ),
    ]


HOSTILE = """<script>alert(1)</script> "><img src=x onerror=alert(1)> ' </style></svg> --> &amp; $x^2$ ${y} {z}"""
TIMES = "\N{MULTIPLICATION SIGN}"
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
            Curve(LONG, [1.0, 10.0, 100.0, 1000.0], [0.125, -3.0, nan, 64.0]),
            Curve(HOSTILE, [1.0, 0.0, 100.0, 1000.0], [7.0, 8.0, 9.0, inf], "points"),
            Curve("_τ ≤ 10⁻⁴ 语言 ✓ " + "W" * 80, [], [12.375], "level"),
            Curve("nothing left", [1.0], [0.0]),
            Curve("the same", [2.0], [3.0], "points"),
            Curve("the same", [4.0], [5.0], "points"),
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
        Verdict(HOSTILE, None, "W" * 90, False),
        Verdict("W" * 150, LONG, LONG, True),
        Verdict("Zero is a number", "0", "0", True),
    ]
    facts = {"hostile <b>": HOSTILE, "numbers": [1.0625, nan, {"deep": 7_654_321}], "long": list(range(2_000))}
    return [
        Section(
            "awkward-1", f"Awkward {HOSTILE}", f"{HOSTILE}\n\n{'W' * 200}", verdicts, [huge, words], [figure], facts
        ),
        Section("bare", "Nothing but words", "`code` and one lone ` backtick."),
    ]


class Page(HTMLParser):
    """What a page holds; refuses elements that are not closed in the order in which they were opened."""

    VOID = ("meta", "br", "hr", "img", "link")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def numbers(self) -> set[str]:
        return {str(attributes["value"]) for tag, attributes in self.elements if tag == "data"}

    def all(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.elements if attribute in attributes]


@dataclass(frozen=True)
class Written:
    """A run, where its report is, and what is in it."""

    sections: list[Section]
    path: Path
    text: str
    page: Page


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], list[Section]]], Written]:
    """Reports of runs, each written once."""

    @functools.cache
    def report(run: Callable[[], list[Section]]) -> Written:
        sections = run()
        path = write_report(tmp_path_factory.mktemp("report"), HEADER, sections)
        text = path.read_text(encoding="utf-8")
        return Written(sections, path, text, Page(text))

    return report


@pytest.fixture(params=[fake_run, awkward_run], ids=["fake", "awkward"])
def written(request: pytest.FixtureRequest, reports: Callable[..., Written]) -> Written:
    return reports(request.param)


def small_run(name: str = "small", y: float = 2.0) -> list[Section]:
    figure = Figure(name, "Small", "x", "y", [Curve("one", [1.0, 2.0], [1.0, y])])
    return [Section("one", "One", "Text.", [Verdict("It holds", None, "yes", True)], [], [figure])]


def every_number(sections: list[Section]) -> set[str]:
    """Those of the header, of tables and of figures, as Python writes them."""
    values: list[Any] = [*HEADER.values(), HEADER["machine"]["cores"]]
    for section in sections:
        values += [cell for table in section.tables for row in table.rows for cell in row]
        for figure in section.figures:
            for curve in figure.curves:
                every = -(-len(curve.y) // 200)
                values += curve.y[::every] + ([] if curve.kind == "level" else curve.x[::every])
    return {repr(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)}


def every_text(sections: list[Section]) -> list[str]:
    texts: list[object] = [
        HEADER["data"],
        HEADER["started"],
        "a make-believe processor at 2.1 GHz, cores 2",
        "faiss 1.14.1",
    ]
    for section in sections:
        texts += [section.title, *section.text.split("\n\n")]
        texts += [text for v in section.verdicts for text in (v.claim, v.paper, v.ours) if text is not None]
        texts += [text for table in section.tables for text in (table.title, *table.columns)]
        texts += [cell for table in section.tables for row in table.rows for cell in row if isinstance(cell, str)]
        texts += [text for figure in section.figures for text in (figure.title, figure.x_label, figure.y_label)]
        texts += [figure.caption for figure in section.figures]
        texts += [curve.label for figure in section.figures for curve in figure.curves]
    return [" ".join(str(text).split()) for text in texts]


class TestPage:
    def test_every_number_is_held_in_full(self, written: Written) -> None:
        expected = every_number(written.sections)
        assert len(expected) > 100
        assert expected <= written.page.numbers
        assert repr(0.123456) not in written.page.numbers  # control

    def test_numbers_are_in_sight(self, written: Written) -> None:
        for value in every_number(written.sections):
            assert number(float(value) if "." in value or not value.isdigit() else int(value)) in written.page.text
        for section in written.sections:
            for value in section.facts.values():
                assert " ".join(json.dumps(value, ensure_ascii=False).split()) in written.page.text

    def test_every_text_is_there(self, written: Written) -> None:
        for text in every_text(written.sections):
            assert re.sub("`([^`]+)`", r"\1", text) in written.page.text
        assert "text that is not there" not in written.page.text  # control

    def test_anchors_are_unique_and_lead_somewhere(self, written: Written) -> None:
        ids = written.page.all("id")
        assert len(ids) == len(set(ids))
        links = written.page.all("href")
        assert len(links) > 20 and {link.removeprefix("#") for link in links} <= set(ids)
        assert {f"#{section.name}" for section in written.sections} <= set(links)

    def test_nothing_is_fetched_and_nothing_runs(self, written: Written) -> None:
        tags = {tag for tag, _ in written.page.elements}
        assert not tags & {
            "script",
            "link",
            "img",
            "image",
            "iframe",
            "object",
            "embed",
            "base",
            "form",
            "foreignobject",
        }
        attributes = {name for _, held in written.page.elements for name in held}
        assert not attributes & {"src", "srcset", "action", "xlink:href", "background", "poster"}
        assert not {name for name in attributes if name.startswith("on")}
        assert all(link.startswith("#") for link in written.page.all("href"))
        styles = written.text[written.text.index("<style>") : written.text.index("</style>")]
        for outside in ("@import", "url(", "http:", "https:", "@font-face"):
            assert outside not in styles
            assert not any(outside in style for style in written.page.all("style"))
        assert "http" not in written.text

    def test_figures_say_what_they_show(self, written: Written) -> None:
        plots = [held for tag, held in written.page.elements if tag == "svg" and held.get("class") == "plot"]
        figures = [figure for section in written.sections for figure in section.figures]
        assert len(plots) == len(figures) > 0
        for plot, figure in zip(plots, figures, strict=True):
            assert plot["role"] == "img"
            assert plot["aria-label"] == " ".join(f"{figure.title}. {figure.caption}".split())

    def test_nothing_is_wider_than_the_page(self, written: Written) -> None:
        """Plots scale, tables scroll in boxes of their own, and the lists of verdicts wrap."""
        assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [
            held for tag, held in written.page.elements if tag == "meta"
        ]
        plots = [held for tag, held in written.page.elements if tag == "svg" and held.get("class") == "plot"]
        assert plots and all("viewbox" in held and "width" not in held for held in plots)
        assert ".plot { display: block; width: 100%; height: auto;" in written.text
        boxed = re.findall(r'<div class="box[^>]*><table>', written.text)
        verdicts = written.text.count('<table role="table" class="verdicts">')
        assert boxed and verdicts and len(boxed) + verdicts == written.text.count("<table")
        assert ".box { overflow: auto; max-width: 100%;" in written.text
        assert ".verdicts { width: 100%; table-layout: fixed;" in written.text

    def test_colours_follow_the_setting_of_the_reader(self, written: Written) -> None:
        light, dark = re.findall(r":root {([^}]*)}", written.text)
        assert written.text.index(dark) > written.text.index("@media screen and (prefers-color-scheme: dark)")
        for name, pair in (report_module._PALETTE | INKS).items():
            assert f"--{name}: {pair[0]};" in light and f"--{name}: {pair[1]};" in dark
        plots = re.findall(r'<svg class="plot".*?</svg>', written.text, re.DOTALL)
        assert plots and all("var(--plot-1)" in plot and "var(--plot-ink)" in plot for plot in plots)
        assert not any(re.search("#[0-9a-fA-F]{6}", plot) for plot in plots), "a colour that does not follow"

    def test_the_papers_numbers_are_marked(self) -> None:
        titles = ["method", "paper", "speed, paper", "as printed", "the paper's method", "newspaper"]
        rows = [["ours", 1, 2, 3, 4, 5], ["ImageNet, as printed by the paper", 1, 2, 3, 4, 5]]
        table = report_module._box(Table("T", titles, rows))
        page = Page(table)
        marked = [held.get("class") == "paper number" for tag, held in page.elements if tag == "th"]
        assert marked == [False, True, True, True, False, False]
        assert [held.get("class") for tag, held in page.elements if tag == "tr"] == [None, None, "paper"]

    def test_the_parser_refuses_what_is_not_nested(self) -> None:
        for bad in ("<p><b></p></b>", "<div>", "</div>", "<svg><g></svg>"):
            with pytest.raises(AssertionError):
                Page(bad)

    def test_png_of_every_figure(self, written: Written) -> None:
        figures = [figure for section in written.sections for figure in section.figures]
        files = sorted((written.path.parent / "figures").iterdir())
        assert [file.name for file in files] == sorted(f"{figure.name}.png" for figure in figures)
        for file in files:
            content = file.read_bytes()
            assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82")
            width, height = struct.unpack(">II", content[16:24])
            picture = matplotlib.image.imread(BytesIO(content))
            assert picture.shape[:2] == (height, width) and width > 800 and height > 500
            assert picture[..., :3].std() > 0.05
            edges = (picture[:2], picture[-2:], picture[:, :2], picture[:, -2:])
            assert all((edge[..., :3] == 1).all() for edge in edges), "something is cut off"


class TestWriting:
    def test_the_same_run_gives_the_same_bytes(self, tmp_path: Path) -> None:
        before = dict(matplotlib.rcParams)
        write_report(tmp_path / "a", HEADER, small_run())
        assert dict(matplotlib.rcParams) == before
        with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "red", "svg.fonttype": "none"}):
            write_report(tmp_path / "b", HEADER, small_run())
        for name in ("report.html", "figures/small.png"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        # Control: another number gives other bytes.
        write_report(tmp_path / "b", HEADER, small_run(y=2.5))
        for name in ("report.html", "figures/small.png"):
            assert (tmp_path / "a" / name).read_bytes() != (tmp_path / "b" / name).read_bytes()

    @pytest.mark.parametrize("failing", ["draw", "fsync", "replace"])
    def test_a_failure_leaves_the_old_report(
        self, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_report(tmp_path, HEADER, small_run())
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        original: Callable[..., Any] = getattr(report_module if failing == "draw" else os, failing)

        def fail(*arguments: Any) -> Any:
            if failing == "fsync" or failing == "draw" or str(arguments[1]).endswith("report.html"):
                raise OSError("the disk is full")
            return original(*arguments)

        monkeypatch.setattr(report_module if failing == "draw" else os, failing, fail)
        with pytest.raises(OSError, match="the disk is full"):
            write_report(tmp_path, HEADER, small_run(y=3.0))
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert after.keys() == before.keys()
        assert after[tmp_path / "report.html"] == before[tmp_path / "report.html"]
        monkeypatch.undo()
        write_report(tmp_path, HEADER, small_run(y=3.0))
        assert (tmp_path / "report.html").read_bytes() != before[tmp_path / "report.html"]

    @pytest.mark.parametrize(
        ("sections", "said"),
        [
            ([], "sections"),
            (small_run("../outside"), "figure '../outside'"),
            (small_run(""), "figure ''"),
            (small_run() + small_run(), "section 'one': 2 of them"),
            ([*small_run(), replace(small_run()[0], name="two")], "figure 'small': 2 of them"),
            ([replace(small_run()[0], name="a b")], "section 'a b'"),
            ([replace(small_run()[0], tables=[Table("T", ["a"], [[1, 2]])])], "table 'T': 2 cells"),
        ],
    )
    def test_what_cannot_be_reported_is_refused(self, sections: list[Section], said: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=re.escape(said)):
            write_report(tmp_path / "out", HEADER, sections)
        assert not (tmp_path / "out").exists()

    def test_headline(self) -> None:
        table = headline(fake_run())
        assert table.title == "6 of 7 claims hold in this run"
        assert table.columns == ["claim", "paper", "ours", "holds"]
        assert table.rows[0] == ["One sample is drawn faster than by brute force", "4.65x", "71.3x (fake)", "yes"]
        assert table.rows[2][1] == report_module._NOTHING and [row[3] for row in table.rows].count("no") == 1
        assert headline(small_run()).title == "1 of 1 claim holds in this run"

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (0, "0"),
            (-0.0, "0"),
            (400_000, "400,000"),
            (1234.5678, "1,235"),
            (-3.17049, "-3.17"),
            (0.05, "0.05"),
            (2.5e-4, f"2.5{TIMES}10⁻⁴"),
            (1e-4, "10⁻⁴"),
            (-1e-10, "-10⁻¹⁰"),
            (1.5e12, f"1.5{TIMES}10¹²"),
            (float("nan"), "nan"),
            (float("-inf"), "-inf"),
        ],
    )
    def test_numbers_in_short(self, value: float, shown: str) -> None:
        assert number(value) == shown


def plot(*curves: Curve, **settings: Any) -> Figure:
    return Figure("plot", "Title", "x", "y", list(curves), **settings)


LINE = Curve("line", [1.0, 2.0, 3.0], [1.0, 4.0, 9.0])


class TestDraw:
    def test_points_that_cannot_be_drawn_are_counted(self) -> None:
        drawing = draw(awkward_run()[0].figures[0])
        note = drawing.note.replace(LONG, "LONG").replace(HOSTILE, "HOSTILE")
        assert note == (
            "Points not drawn, because they are not finite or not positive on a logarithmic axis: "
            "2 of 4 of “LONG”, 2 of 4 of “HOSTILE”, 1 of 1 of “nothing left”."
        )
        assert [label for _, label in drawing.legend].count("the same") == 2
        assert "nothing left" not in [label for _, label in drawing.legend]
        # On linear axes all but the infinite ones are drawn.
        linear = draw(replace(awkward_run()[0].figures[0], x_log=False, y_log=False)).note
        assert "1 of 4 of" in linear and "logarithmic" not in linear and "nothing left" not in linear
        assert draw(plot(LINE)).note == ""

    @pytest.mark.parametrize(
        "figure",
        [
            plot(),
            plot(Curve("empty", [], [])),
            plot(Curve("level", [], [1.0], "level")),
            plot(Curve("nan", [1.0], [float("nan")])),
            plot(Curve("zero", [1.0], [0.0]), y_log=True),
            plot(Curve("zero", [0.0], [1.0], "points"), x_log=True),
        ],
    )
    def test_an_empty_figure_is_refused(self, figure: Figure) -> None:
        with pytest.raises(ValueError, match="figure 'plot': no curve has a point to draw"):
            draw(figure)

    def test_a_curve_must_have_as_many_x_as_y(self) -> None:
        with pytest.raises(ValueError, match="curve 'odd' has 1 x and 2 y"):
            draw(plot(LINE, Curve("odd", [1.0], [1.0, 2.0])))
        with pytest.raises(ValueError, match="level 'none' has no y"):
            draw(plot(LINE, Curve("none", [], [], "level")))

    def test_curves_differ_in_more_than_colour(self) -> None:
        curves = [replace(LINE, label=f"line {i}") for i in range(12)]
        looks = [swatch for swatch, _ in draw(plot(*curves)).legend]
        assert len(set(looks)) == 12
        for name in INKS:
            looks = [look.replace(f"var(--{name})", "") for look in looks]
        assert len(set(looks)) == 12

    @pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
    @pytest.mark.parametrize("eye", ["full", "protan", "deutan", "tritan"])
    def test_colours_can_be_told_apart(self, scheme: int, eye: str) -> None:
        series = [pair[scheme] for name, pair in INKS.items() if name[-1].isdigit()]
        ground = report_module._PALETTE["ground"][scheme]
        assert min(contrast(colour, ground) for colour in series) >= 3.0
        assert min(distance(a, b, eye) for a, b in combinations(series[:4], 2)) > 20
        assert min(distance(a, b, eye) for a, b in combinations(series, 2)) > 15
        # Control: a pair that many cannot tell apart.
        assert distance("#b0703c", "#7d8a2e", "deutan") < 15 < distance("#b0703c", "#7d8a2e", "full")

    def test_bars_stand_side_by_side_in_groups(self) -> None:
        groups = [10.0, 100.0, 1000.0]
        figure = plot(
            Curve("a", groups, [1.0, 2.0, 3.0], "bars"),
            Curve("level", [], [0.004], "level"),
            Curve("b", groups[1:], [0.05, 3.0], "bars"),
            x_log=True,
            y_log=True,
        )
        axes = sheet_of(figure).axes[0]
        spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
        assert len(spans) == 5
        assert all(right < left for (_, right), (left, _) in pairwise(spans))
        assert [round(left + 0.4) for left, _ in spans] == [0, 1, 1, 2, 2]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "100", "1,000"]
        # From the foot of a logarithmic axis to the value.
        foot = axes.get_ylim()[0]
        assert 0 < foot < 0.004
        assert sorted(bar.get_y() + bar.get_height() for bar in axes.patches) == pytest.approx([0.05, 1, 2, 3, 3])
        assert {bar.get_y() for bar in axes.patches} == {foot}

    def test_a_line_has_a_gap_where_a_point_is_missing(self) -> None:
        curve = Curve("line", [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, float("nan"), 4.0])
        (line,) = sheet_of(plot(curve)).axes[0].lines
        assert np.array_equal(np.isnan(line.get_ydata()), [False, False, True, False])

    def test_markers_of_long_lines_are_between_each_other(self) -> None:
        x = np.arange(21.0).tolist()
        lines = sheet_of(plot(*(Curve(f"line {i}", x, x) for i in range(4)))).axes[0].lines
        marked = [set(range(first, 21, every)) for first, every in (line.get_markevery() for line in lines)]
        assert all(len(places) >= 5 for places in marked)
        assert all(a.isdisjoint(b) for a, b in combinations(marked, 2))

    def test_a_level_is_a_line_across_with_its_value(self) -> None:
        figure = plot(LINE, Curve("level", [], [12.5], "level"))
        axes = sheet_of(figure).axes[0]
        assert any(list(line.get_ydata()) == [12.5, 12.5] for line in axes.lines)
        assert axes.get_ylim()[1] >= 12.5
        assert [label for _, label in draw(figure).legend] == ["line", "level (12.5)"]

    @pytest.mark.parametrize("curves", [1, 4, 9])
    def test_the_legend_covers_nothing(self, curves: int) -> None:
        figure = plot(*(replace(LINE, label=LONG[: 20 * i + 5]) for i in range(curves)))
        assert not covers(sheet_of(figure))
        # Control: a legend inside the axes does.
        inside = sheet_of(figure)
        inside.legends.clear()
        inside.axes[0].legend(["one"])
        inside.legends.append(inside.axes[0].get_legend())
        assert covers(inside)

    @pytest.mark.parametrize(
        ("y", "log", "labels"),
        [
            ([0.0, 400_000.0], False, ["0", "100,000", "200,000", "300,000", "400,000"]),
            ([-3.1751, -3.1701], False, ["-3.175", "-3.174", "-3.173", "-3.172", "-3.171", "-3.170"]),
            ([1e-9, 5e-9], False, ["10⁻⁹", *(f"{i}{TIMES}10⁻⁹" for i in range(2, 6))]),
            ([1e-6, 1.0], True, ["10⁻⁶", "10⁻⁵", "10⁻⁴", "0.001", "0.01", "0.1", "1"]),
            ([0.02, 0.4], True, ["0.02", "0.05", "0.1", "0.2"]),
        ],
    )
    def test_ticks_are_plain_numbers(self, y: list[float], log: bool, labels: list[str]) -> None:
        axes = sheet_of(plot(Curve("line", [1.0, 2.0], y), y_log=log)).axes[0]
        low, high = axes.get_ylim()
        inside = [tick.label1.get_text() for tick in axes.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        assert inside == labels

    def test_matplotlib_is_asked_for_at_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ImportError, match=r"pip install 'lazygumbel\[plots\]'"):
            draw(plot(LINE))


def sheet_of(figure: Figure) -> Any:
    """The matplotlib figure behind the PNG, laid out."""
    with drawing_module._styled():
        sheet = drawing_module._labelled(figure, drawing_module._read(figure)[0])
        sheet.savefig(BytesIO(), format="png")
    return sheet


def covers(sheet: Any) -> bool:
    """Whether the legend overlaps the axes, their labels or the title."""
    legend, axes = sheet.legends[0].get_window_extent(), sheet.axes[0]
    title = sheet.get_suptitle() and sheet._suptitle.get_window_extent()
    boxes = (axes.get_window_extent(), axes.xaxis.get_tightbbox(), axes.yaxis.get_tightbbox(), title)
    return any(legend.overlaps(box) for box in boxes)


SEEN = {
    "full": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear RGB as it is seen (Machado, Oliveira and Fernandes, 2009, full severity)."""


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """As WCAG defines it."""
    low, high = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(colour))) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def distance(a: str, b: str, eye: str) -> float:
    """Euclidean distance in CIELAB of two colours as an eye sees them."""

    def lab(colour: str) -> np.ndarray:
        xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(
            np.asarray(SEEN[eye]) @ linear(colour), 0, 1
        )
        f = np.cbrt(xyz / [0.9505, 1.0, 1.089])  # the branch for near-black is not needed here
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    return float(np.linalg.norm(lab(a) - lab(b)))


class TestCommand:
    """`lazygumbel paper`, over a stand-in for the experiments."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def run(out: Path, **settings: Any) -> SimpleNamespace:
            asked.append({"out": out, **settings})
            return SimpleNamespace(header=HEADER, sections=[*small_run(), replace(fake_run()[0], tables=[])])

        module = ModuleType("lazygumbel.paper.run")
        module.__dict__["run"] = run
        monkeypatch.setitem(sys.modules, "lazygumbel.paper.run", module)
        return asked

    def test_it_runs_and_reports(self, asked: list[dict[str, Any]], tmp_path: Path) -> None:
        options = ["--only", "figure-2", "--only", "table-1", "--seed", "3", "--quick", "--data", "synthetic"]
        result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path), *options])
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        (settings,) = asked
        assert settings.pop("progress") is not None
        expected = {"out": tmp_path, "data": "synthetic", "quick": True, "only": ["figure-2", "table-1"], "seed": 3}
        assert settings == expected
        lines = result.stdout.splitlines()
        assert lines[0].split() == ["claim", "paper", "ours", "holds"]
        assert re.split(" {2,}", lines[2].rstrip()) == [
            "One sample is drawn faster than by brute force",
            "4.65x",
            "71.3x (fake)",
            "yes",
        ]
        assert lines[-1] == f"4 of 4 claims hold in this run: {tmp_path / 'report.html'}"
        assert (tmp_path / "report.html").exists() and (tmp_path / "figures" / "small.png").exists()

    def test_json(self, asked: list[dict[str, Any]], tmp_path: Path) -> None:
        result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path), "--json"])
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert told["report"] == str(tmp_path / "report.html") and told["header"] == HEADER
        assert told["claims"][0] == {
            "experiment": "one",
            "claim": "It holds",
            "paper": None,
            "ours": "yes",
            "holds": True,
        }
        assert not asked[0]["only"] and asked[0]["data"] == "glove" and asked[0]["quick"] is False

    def test_without_matplotlib_nothing_is_run(
        self, asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "out")])
        assert result.exit_code == 2 and "pip install 'lazygumbel[plots]'" in result.stderr
        assert not asked

    def test_an_unknown_experiment_is_refused(self, tmp_path: Path) -> None:
        from lazygumbel.paper.run import EXPERIMENTS

        result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "out"), "--only", "figure-9"])
        assert result.exit_code == 2 and result.stdout == ""
        assert "figure-9" in result.stderr and ", ".join(EXPERIMENTS) in result.stderr
        assert len(result.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()
