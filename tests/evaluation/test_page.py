"""The report of a run: every number is in it, nothing else is needed, and nothing in it can be taken for markup."""

import functools
import json
import os
import re
import struct
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import pytest
from report_samples import HEADER, awkward_run, fake_run, small_run

from lazygumbel_evaluation.report import page as page_module
from lazygumbel_evaluation.report.page import headline, write_report
from lazygumbel_evaluation.report.section import Section, Table
from lazygumbel_evaluation.report.wording import number

TIMES = "\N{MULTIPLICATION SIGN}"


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
        texts += [
            text for v in section.verdicts for text in (v.claim, v.method, v.paper, v.measured) if text is not None
        ]
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
        assert len(links) >= 5 and {link.removeprefix("#") for link in links} <= set(ids)
        assert {f"#{section.name}" for section in written.sections} <= set(links)

    def test_nothing_is_fetched_and_nothing_runs(self, written: Written) -> None:
        tags = {tag for tag, _ in written.page.elements}
        assert not tags & {
            "script",
            "link",
            "image",
            "iframe",
            "object",
            "embed",
            "base",
            "form",
            "foreignobject",
        }
        attributes = {name for _, held in written.page.elements for name in held}
        assert not attributes & {"srcset", "action", "xlink:href", "background", "poster"}
        assert not {name for name in attributes if name.startswith("on")}
        assert all(link.startswith("#") for link in written.page.all("href"))
        assert all(source.startswith("data:image/png;base64,") for source in written.page.all("src"))
        styles = written.text[written.text.index("<style>") : written.text.index("</style>")]
        for outside in ("@import", "url(", "http:", "https:", "@font-face"):
            assert outside not in styles
            assert not any(outside in style for style in written.page.all("style"))
        assert "http" not in re.sub('src="[^"]*"', "", written.text)

    def test_figures_are_in_the_page_and_say_what_they_show(self, written: Written) -> None:
        plots = [held for tag, held in written.page.elements if tag == "img"]
        figures = [figure for section in written.sections for figure in section.figures]
        assert len(plots) == len(figures) > 0
        for plot, figure in zip(plots, figures, strict=True):
            assert plot["class"] == "plot" and plot["alt"] == " ".join(f"{figure.title}. {figure.caption}".split())
            held = b64decode(str(plot["src"]).partition(",")[2])
            assert held == (written.path.parent / "figures" / f"{figure.name}.png").read_bytes()

    def test_nothing_is_wider_than_the_page(self, written: Written) -> None:
        """Plots scale, tables scroll in boxes of their own, and the lists of verdicts wrap."""
        assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [
            held for tag, held in written.page.elements if tag == "meta"
        ]
        assert ".plot { display: block; width: 100%; height: auto;" in written.text
        boxed = re.findall(r'<div class="box[^>]*><table>', written.text)
        verdicts = written.text.count('<table role="table" class="verdicts">')
        assert boxed and verdicts and len(boxed) + verdicts == written.text.count("<table")
        assert ".box { overflow: auto; max-width: 100%;" in written.text
        assert ".verdicts { width: 100%; table-layout: fixed;" in written.text

    def test_colours_follow_the_setting_of_the_reader(self, written: Written) -> None:
        light, dark = (re.findall(r"--(\w+): (#\w+);", part) for part in re.findall(r":root {([^}]*)}", written.text))
        assert written.text.index(dark[0][1]) > written.text.index("@media screen and (prefers-color-scheme: dark)")
        assert [name for name, _ in light] == [name for name, _ in dark]
        assert set(re.findall(r"var\(--(\w+)\)", written.text)) == {name for name, _ in light}
        assert all(a != b for (_, a), (_, b) in zip(light, dark, strict=True))

    def test_the_papers_numbers_are_marked_where_the_table_says_so(self) -> None:
        """Whatever the titles say."""
        titles, rows = ["method", "paper", "as printed", "ours"], [["paper", 1, 2, 3], ["ours", 1, 2, 3]]
        page = Page(page_module._box(Table("T", titles, rows, printed_rows=[1], printed_columns=[3])))
        marked = [held.get("class") == "paper number" for tag, held in page.elements if tag == "th"]
        assert marked == [False, False, False, True]
        assert [held.get("class") for tag, held in page.elements if tag == "tr"] == [None, None, "paper"]

    def test_kinds_of_thetas_stand_side_by_side(self, reports: Callable[..., Written]) -> None:
        text = reports(fake_run).text
        (row,) = (line for line in text.splitlines() if "71.3x" in line and "<a " in line)
        assert row.index("✓ holds</span> 71.3x (fake)") < row.index("✓ holds</span> 80x (fake)")
        assert row.count("<td") == 3 and 'colspan="2"' in text, "a claim without kinds has the width of both"

    def test_claims_are_counted_by_method(self, reports: Callable[..., Written]) -> None:
        text = reports(fake_run).page.text
        assert "By method: Bounded (ours) 7 of 7; TopKOnly (no tail) 0 of 1." in text
        assert "a ± b is a mean and the standard deviation over thetas" in text

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
        with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "red", "lines.linewidth": 9.0}):
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
        original: Callable[..., Any] = getattr(page_module if failing == "draw" else os, failing)

        def fail(*arguments: Any) -> Any:
            if failing == "fsync" or failing == "draw" or str(arguments[1]).endswith("report.html"):
                raise OSError("the disk is full")
            return original(*arguments)

        monkeypatch.setattr(page_module if failing == "draw" else os, failing, fail)
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
        assert table.title == "7 of 8 claims hold in this run"
        assert table.columns == [
            "claim",
            "method",
            "thetas",
            "paper",
            "this run",
            "holds",
        ] and table.printed_columns == [3]
        assert table.rows[0][1:] == ["Bounded (ours)", "held-out thetas", "4.65x", "71.3x (fake)", "yes"]
        assert table.rows[3][3] == page_module._NOTHING and [row[5] for row in table.rows].count("no") == 1
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
