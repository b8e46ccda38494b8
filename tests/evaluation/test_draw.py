"""Figures: looks follow the method, nothing is covered or left out in silence, ticks are plain numbers."""

import sys
from dataclasses import replace
from io import BytesIO
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from report_samples import HOSTILE, LONG, awkward_run

from lazygumbel_evaluation.report import draw as drawing_module
from lazygumbel_evaluation.report.draw import draw
from lazygumbel_evaluation.report.section import Curve, Figure
from lazygumbel_evaluation.report.styles import STYLES

TIMES = "\N{MULTIPLICATION SIGN}"


def plot(*curves: Curve, **settings: Any) -> Figure:
    return Figure("plot", "Title", "x", "y", list(curves), **settings)


LINE = Curve("line", [1.0, 2.0, 3.0], [1.0, 4.0, 9.0], "Bounded")


class TestDraw:
    def test_points_that_cannot_be_drawn_are_counted(self) -> None:
        drawing = draw(awkward_run()[0].figures[0])
        note = drawing.note.replace(LONG, "LONG").replace(HOSTILE, "HOSTILE")
        assert note == (
            "Points not drawn, because they are not finite or not positive on a logarithmic axis: "
            "2 of 4 of “LONG”, 2 of 4 of “HOSTILE”, 1 of 1 of “nothing left”."
        )
        shown = [text.get_text() for text in sheet_of(awkward_run()[0].figures[0]).legends[0].get_texts()]
        assert shown.count("the same") == 2 and "nothing left" not in shown
        # On linear axes all but the infinite ones are drawn.
        linear = draw(replace(awkward_run()[0].figures[0], x_log=False, y_log=False)).note
        assert "1 of 4 of" in linear and "logarithmic" not in linear and "nothing left" not in linear
        assert draw(plot(LINE)).note == ""

    @pytest.mark.parametrize(
        "figure",
        [
            plot(),
            plot(Curve("empty", [], [], "Bounded")),
            plot(Curve("level", [], [1.0], "Bounded", "level")),
            plot(Curve("nan", [1.0], [float("nan")], "Bounded")),
            plot(Curve("zero", [1.0], [0.0], "Bounded"), y_log=True),
            plot(Curve("zero", [0.0], [1.0], "Bounded", "points"), x_log=True),
        ],
    )
    def test_an_empty_figure_is_refused(self, figure: Figure) -> None:
        with pytest.raises(ValueError, match="figure 'plot': no curve has a point to draw"):
            draw(figure)

    def test_a_curve_must_have_as_many_x_as_y(self) -> None:
        with pytest.raises(ValueError, match="curve 'odd' has 1 x and 2 y"):
            draw(plot(LINE, Curve("odd", [1.0], [1.0, 2.0], "Bounded")))
        with pytest.raises(ValueError, match="level 'none' has no y"):
            draw(plot(LINE, Curve("none", [], [], "Bounded", "level")))

    def test_looks_follow_the_method_not_the_place(self) -> None:
        methods = ["Bounded", "Exhaustive", "FixedCutoff", "TopKOnly", "Frozen"]
        for order in (methods, methods[::-1], methods[2:]):
            lines = sheet_of(plot(*(replace(LINE, label=m, method=m) for m in order))).axes[0].lines
            looks = [(line.get_color(), line.get_marker()) for line in lines]
            assert looks == [(STYLES[method].colour, STYLES[method].marker) for method in order]
        bars = sheet_of(plot(*(replace(LINE, kind="bars", method=m) for m in ("softmax", "Bounded")))).axes[0].patches
        assert len({bar.get_facecolor() for bar in bars}) == 2
        faint = sheet_of(plot(LINE, replace(LINE, faint=True))).axes[0].lines
        assert faint[0].get_color() == faint[1].get_color() and faint[0].get_alpha() > 2 * faint[1].get_alpha()

    def test_a_curve_of_no_method_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match=r"^figure 'plot': curve 'line' is of 'Bonded', not of Exhaustive, Bounded"
        ):
            draw(plot(replace(LINE, method="Bonded")))

    def test_methods_differ_in_more_than_colour(self) -> None:
        assert len({(style.marker, style.dashes) for style in STYLES.values()}) == len(STYLES)

    @pytest.mark.parametrize("eye", ["full", "protan", "deutan", "tritan"])
    def test_colours_can_be_told_apart(self, eye: str) -> None:
        """Of methods that meet in a figure; the two of the paper are one colour, and never meet."""
        met = ["Exhaustive", "Bounded", "UniformTail", "TopKOnly", "Frozen"]
        colours = [STYLES[method].colour for method in met]
        assert min(contrast(colour, "#ffffff") for colour in colours) >= 3.0
        assert min(distance(a, b, eye) for a, b in combinations(colours, 2)) > 20
        # Control: a pair that many cannot tell apart.
        assert distance("#b0703c", "#7d8a2e", "deutan") < 15 < distance("#b0703c", "#7d8a2e", "full")

    def test_bars_stand_side_by_side_in_groups(self) -> None:
        groups = [10.0, 100.0, 1000.0]
        figure = plot(
            Curve("a", groups, [1.0, 2.0, 3.0], "Bounded", "bars"),
            Curve("level", [], [0.004], "Bounded", "level"),
            Curve("b", groups[1:], [0.05, 3.0], "Bounded", "bars"),
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
        curve = Curve("line", [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, float("nan"), 4.0], "Bounded")
        (line,) = sheet_of(plot(curve)).axes[0].lines
        assert np.array_equal(np.isnan(line.get_ydata()), [False, False, True, False])

    def test_markers_of_long_lines_are_between_each_other(self) -> None:
        x = np.arange(21.0).tolist()
        lines = sheet_of(plot(*(Curve(f"line {i}", x, x, "Bounded") for i in range(4)))).axes[0].lines
        marked = [set(range(first, 21, every)) for first, every in (line.get_markevery() for line in lines)]
        assert all(len(places) >= 5 for places in marked)
        assert all(a.isdisjoint(b) for a, b in combinations(marked, 2))

    def test_a_level_is_a_line_across_with_its_value(self) -> None:
        figure = plot(LINE, Curve("level", [], [12.5], "Bounded", "level"))
        axes = sheet_of(figure).axes[0]
        assert any(list(line.get_ydata()) == [12.5, 12.5] for line in axes.lines)
        assert axes.get_ylim()[1] >= 12.5
        assert [text.get_text() for text in sheet_of(figure).legends[0].get_texts()] == ["line", "level (12.5)"]

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
        axes = sheet_of(plot(Curve("line", [1.0, 2.0], y, "Bounded"), y_log=log)).axes[0]
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
