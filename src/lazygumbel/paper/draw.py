"""Figures drawn by matplotlib: an SVG that takes its colours from the page, and a PNG that stands alone.

The same figure gives the same bytes, whatever style the user has set. Text is drawn as paths, so that it looks the
same where a font is missing. The SVG holds the axes only: title, caption and legend are words of the page, which wraps
them, and which a reader can select and search.
"""

import math
import re
import textwrap
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.extras import require
from lazygumbel.paper.section import Curve, Figure, Kind

__all__ = ["INKS", "Drawing", "draw", "number"]

INKS = {
    "plot-ink": ("#33373d", "#d5d8dd"),
    "plot-grid": ("#e3e5e8", "#34383f"),
    "plot-1": ("#12539b", "#6a9bf5"),
    "plot-2": ("#d74300", "#f8853a"),
    "plot-3": ("#1d955f", "#52e3a0"),
    "plot-4": ("#7c1f5c", "#f4abd9"),
    "plot-5": ("#9d8c3a", "#f5dc48"),
    "plot-6": ("#777a7c", "#8f8a8a"),
}
"""Colours by CSS variable: on a light page, on a dark one. Series differ in lightness too, for the colour-blind."""

_VARIABLES = {light: f"var(--{name})" for name, (light, _) in INKS.items()}
_SERIES = [name for name in INKS if name[-1].isdigit()]
_DASHES = [(), (5.0, 2.0), (5.0, 1.5, 1.0, 1.5), (2.5, 1.5), (8.0, 2.0, 1.0, 2.0, 1.0, 2.0)]
"""Lengths drawn and left out in turn, in line widths. A later curve is dashed, so that one beneath it can be seen."""
_LEVEL = (1.0, 1.4)
_MARKERS = [
    ("o", "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z"),
    ("s", "M-3-3H3V3H-3z"),
    ("^", "M0-3.8L3.8 3.2H-3.8z"),
    ("D", "M0-4L4 0L0 4L-4 0z"),
    ("v", "M0 3.8L3.8-3.2H-3.8z"),
    ("P", "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2z"),
    ("X", "M0-1.6L2-3.6L3.6-2L1.6 0L3.6 2L2 3.6L0 1.6L-2 3.6L-3.6 2L-1.6 0L-3.6-2L-2-3.6z"),
]
"""Markers as matplotlib names them and, for the legend, as paths around the origin."""
_WIDTH, _HEIGHT = 5.6, 3.5
"""Inches of the axes. Narrow, so that the words are still legible when a telephone shows the whole width."""
_LINE = 1.5
_MOST_MARKERS = 12
_STYLE = {
    "axes.edgecolor": INKS["plot-ink"][0],
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": INKS["plot-ink"][0],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "grid.color": INKS["plot-grid"][0],
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "lines.linewidth": _LINE,
    "lines.markersize": 5.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "lazygumbel",
    "text.color": INKS["plot-ink"][0],
    "text.parse_math": False,
    "xtick.color": INKS["plot-ink"][0],
    "xtick.labelsize": 10.0,
    "ytick.color": INKS["plot-ink"][0],
    "ytick.labelsize": 10.0,
}
_NOISE = (
    "<!--.*?-->",
    "<metadata>.*?</metadata>",
    "<style.*?</style>",  # it would reach the whole page
    "<clipPath.*?</clipPath>",
    ' clip-path="[^"]*"',
    '(?<=<g) id="[^"]*"',
    "<defs>\\s*</defs>",
)
"""What matplotlib writes and a page does not need: nothing is drawn outside the axes."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drawing:
    """A figure drawn."""

    svg: str
    """An `<svg>` element for a page that sets the variables of `INKS`."""
    legend: list[tuple[str, str]]
    """For each curve drawn: a small `<svg>` element, and its label as plain text."""
    note: str
    """What could not be drawn, for the caption; empty if everything was."""
    png: bytes
    """Light, with title and legend."""


def draw(figure: Figure) -> Drawing:
    """Draw `figure` for the page and for a file; a figure without a point to draw is refused."""
    require("matplotlib", extra="plots")
    series, note = _read(figure)
    with _styled():
        svg, png = BytesIO(), BytesIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        _sheet(figure, series)[0].savefig(svg, format="svg", transparent=True, metadata=nothing)
        # As large as its words need: the sheet of a PNG cannot wrap them as a page does.
        paper = {"dpi": 160, "facecolor": "white", "bbox_inches": "tight", "metadata": {"Software": None}}
        _labelled(figure, series).savefig(png, format="png", **paper)
    legend = [(_swatch(s), s.label) for s in series]
    return Drawing(_inline(svg.getvalue().decode(), figure), legend, note, png.getvalue())


def number(value: float) -> str:
    """Four significant digits, all digits of what exceeds a thousand, powers of ten where zeros would be counted."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if not math.isfinite(value) or size == 0 or 1e-3 <= size < 1e9:
        return f"{value:,.0f}" if size >= 1000 else f"{value + 0.0:.4g}"
    mantissa, exponent = f"{value:.3e}".split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    mantissa = mantissa.rstrip("0").rstrip(".")
    return {"1": power, "-1": f"-{power}"}.get(mantissa, f"{mantissa}\N{MULTIPLICATION SIGN}{power}")


# What is to be drawn


@dataclass(frozen=True)
class _Series:
    """A curve with the points that can be drawn, and how it looks."""

    label: str
    kind: Kind
    x: Floats
    y: Floats
    ink: str
    dashes: tuple[float, ...]
    marker: tuple[str, str]

    @property
    def colour(self) -> str:
        return INKS[self.ink][0]


def _read(figure: Figure) -> tuple[list[_Series], str]:
    """The series that have points, and a sentence about the points left out."""
    series: list[_Series] = []
    left_out: list[str] = []
    for i, curve in enumerate(figure.curves):
        x, y = _points(figure, curve)
        keep = np.isfinite(x) & np.isfinite(y)
        if figure.y_log:
            keep &= y > 0
        if figure.x_log and not _grouped(figure) and curve.kind != "level":
            keep &= x > 0
        if not keep.all():
            left_out.append(f"{np.count_nonzero(~keep):,} of {len(keep):,} of “{curve.label}”")
        if keep.any():
            # Level lines say what they are at: the eye cannot read it off the axis.
            label = f"{curve.label} ({number(float(y[0]))})" if curve.kind == "level" else curve.label
            dashes = _LEVEL if curve.kind == "level" else _DASHES[i % len(_DASHES)]
            ink, marker = _SERIES[i % len(_SERIES)], _MARKERS[i % len(_MARKERS)]
            if curve.kind == "line":
                x, y = np.where(keep, x, np.nan), np.where(keep, y, np.nan)  # a gap, not a line across it
            else:
                x, y = x[keep], y[keep]
            series.append(_Series(label, curve.kind, x, y, ink, dashes, marker))
    if all(s.kind == "level" for s in series):
        raise ValueError(
            f"figure {figure.name!r}: no curve has a point to draw; its points must be finite" + _on_log(figure)
        )
    if not left_out:
        return series, ""
    return series, f"Points not drawn, because they are not finite{_on_log(figure, ' or not')}: {', '.join(left_out)}."


def _on_log(figure: Figure, lead: str = " and") -> str:
    return f"{lead} positive on a logarithmic axis" if figure.x_log or figure.y_log else ""


def _points(figure: Figure, curve: Curve) -> tuple[Floats, Floats]:
    y = np.asarray(curve.y, dtype=np.float64)
    if curve.kind == "level":
        if not len(y):
            raise ValueError(f"figure {figure.name!r}: level {curve.label!r} has no y")
        return np.zeros(1), y[:1]
    x = np.asarray(curve.x, dtype=np.float64)
    if len(x) != len(y):
        raise ValueError(f"figure {figure.name!r}: curve {curve.label!r} has {len(x):,} x and {len(y):,} y")
    return x, y


def _grouped(figure: Figure) -> bool:
    """Whether x are names of groups, side by side, not places on a scale."""
    return any(curve.kind == "bars" for curve in figure.curves)


# matplotlib


@contextmanager
def _styled() -> Generator[None]:
    """Our style on matplotlib's own defaults; the user's settings are back afterwards."""
    style: Any = require("matplotlib.style", extra="plots")
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # A label in a script that the font lacks shows boxes in the PNG; the page shows it in the reader's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def _sheet(figure: Figure, series: list[_Series], height: float = _HEIGHT) -> tuple[Any, list[Any]]:
    """A matplotlib figure of the axes alone, and a handle of each series for a legend."""
    sheets: Any = require("matplotlib.figure", extra="plots")
    sheet = sheets.Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = sheet.add_subplot()
    axes.set_xlabel(textwrap.fill(figure.x_label, 48))
    axes.set_ylabel(textwrap.fill(figure.y_label, 34))
    if figure.y_log:
        axes.set_yscale("log")
    if _grouped(figure):
        series = _in_groups(axes, series)
        axes.grid(visible=False, axis="x")
    elif figure.x_log:
        axes.set_xscale("log")
    bars = [s for s in series if s.kind == "bars"]
    # Bars on a logarithmic axis stand on a power of ten beneath everything.
    least = min(float(np.nanmin(s.y)) for s in series)
    base = 10 ** math.floor(math.log10(least) - 0.1) if bars and figure.y_log else 0.0
    handles: list[Any] = []
    # Unclipped: a marker at the edge of the axes is drawn whole.
    for s in series:
        if s.kind == "bars":
            width = 0.8 / len(bars)
            left = s.x + width * (sum(h.kind == "bars" for h in series[: len(handles)]) - len(bars) / 2)
            handles.append(axes.bar(left, s.y - base, 0.9 * width, base, align="edge", color=s.colour, clip_on=False))
        elif s.kind == "level":
            handles.append(axes.axhline(s.y[0], color=s.colour, dashes=s.dashes))
        else:
            handles += axes.plot(s.x, s.y, color=s.colour, clip_on=False, **_look(s, len(handles), len(series)))
    if bars and figure.y_log:
        axes.set_ylim(bottom=base)
    _ticks(axes.yaxis, log=figure.y_log)
    if not _grouped(figure):
        _ticks(axes.xaxis, log=figure.x_log)
    return sheet, handles


def _look(s: _Series, place: int, places: int) -> dict[str, Any]:
    """Dashes and markers of a line or of points; on long lines the markers of one are between those of others."""
    if s.kind == "points":
        return {"marker": s.marker[0], "linestyle": "none"}
    # A point between two gaps is seen by its marker alone.
    all_marked = len(s.x) <= _MOST_MARKERS or bool(np.isnan(s.y).any())
    every = 1 if all_marked else max(places, math.ceil(len(s.x) / _MOST_MARKERS))
    first = place * every // places
    return {"marker": s.marker[0], "markevery": (first, every), "linestyle": (0, s.dashes) if s.dashes else "-"}


def _in_groups(axes: Any, series: list[_Series]) -> list[_Series]:
    """The series at the numbers of their groups, and the axis named by the groups."""
    groups = np.unique(np.concatenate([s.x[np.isfinite(s.x)] for s in series if s.kind != "level"]))
    every = math.ceil(len(groups) / 12)
    axes.set_xticks(np.arange(0, len(groups), every), [number(float(x)) for x in groups[::every]])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    return [replace(s, x=np.searchsorted(groups, s.x).astype(np.float64)) for s in series]


def _ticks(axis: Any, *, log: bool) -> None:
    """Ticks in plain numbers: powers of ten, or 1, 2 and 5 times them where there are few."""
    ticker: Any = require("matplotlib.ticker", extra="plots")
    axis.set_minor_formatter(ticker.NullFormatter())
    if log:
        low, high = axis.get_view_interval()
        few = math.log10(high / low) < 2.5
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=9))
        axis.set_major_formatter(ticker.FuncFormatter(_plainly))
    else:
        axis.set_major_locator(ticker.MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(ticker.FuncFormatter(_by_step(axis)))


def _plainly(value: float, _: int) -> str:
    return number(float(value))


def _by_step(axis: Any) -> Callable[[float, int], str]:
    """Labels with as many decimals as tell neighbouring ticks apart."""

    def label(value: float, _: int) -> str:
        ticks = axis.get_majorticklocs()
        step = float(ticks[1] - ticks[0]) if len(ticks) > 1 else abs(value) or 1.0
        if not 1e-4 <= step < 1e7:
            return number(float(value)) if abs(value) > step / 2 else "0"
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return f"{round(float(value), decimals) + 0.0:,.{decimals}f}"

    return label


def _labelled(figure: Figure, series: list[_Series]) -> Any:
    """A matplotlib figure with title above and legend below, as tall as they need."""
    title = textwrap.fill(figure.title, 52)
    longest = max(len(s.label) for s in series)
    columns = 3 if longest <= 14 else 2 if longest <= 26 else 1
    wrapped = [textwrap.fill(s.label, 54) for s in series]
    lines = sum(label.count("\n") + 1 for label in wrapped) / columns + title.count("\n") + 2
    sheet, handles = _sheet(figure, series, _HEIGHT + 0.22 * lines)
    sheet.suptitle(title, fontsize="large")
    sheet.legend(handles, wrapped, loc="outside lower center", ncols=columns)
    return sheet


# SVG for the page


def _inline(text: str, figure: Figure) -> str:
    """What matplotlib wrote, as an element of a page that may hold others: own ids, colours of the page."""
    view = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    for noise in _NOISE:
        body = re.sub(noise, "", body, flags=re.DOTALL)
    body = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), body)
    body = re.sub(r'(\bid="|href="#)', rf"\1plot-{figure.name}-", body.replace("xlink:href", "href"))
    body = re.sub(r">\s+<", "><", body)
    label = escape(" ".join(f"{figure.title}. {figure.caption}".split()))
    return f'<svg class="plot" role="img" aria-label="{label}" viewBox="{view[1] if view else ""}">{body.strip()}</svg>'


def _swatch(s: _Series) -> str:
    """A curve in small, for the legend."""
    colour = f"var(--{s.ink})"
    marks = ""
    if s.kind in ("line", "level"):
        dashes = " ".join(f"{_LINE * length:.3g}" for length in s.dashes)
        marks += f'<path d="M0 6H34" fill="none" stroke="{colour}" stroke-width="{_LINE}" stroke-dasharray="{dashes}"/>'
    if s.kind in ("line", "points"):
        marks += f'<path d="{s.marker[1]}" transform="translate(17 6)" fill="{colour}"/>'
    if s.kind == "bars":
        marks += f'<path d="M11 0H23V12H11z" fill="{colour}"/>'
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 34 12">{marks}</svg>'
