"""Figures drawn by matplotlib as PNG: for the page, and to stand alone. The same figure gives the same bytes."""

import math
import textwrap
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel._support.extras import require
from lazygumbel_evaluation.report.section import Curve, Figure, Kind
from lazygumbel_evaluation.report.styles import STYLES, Style
from lazygumbel_evaluation.report.wording import number

__all__ = ["Drawing", "draw"]

_INK, _GRID = "#33373d", "#e3e5e8"
_WIDTH, _HEIGHT = 5.6, 3.5
"""Inches of the axes. Narrow, so that the words are still legible when a telephone shows the whole width."""
_FAINT = 0.45
_MOST_MARKERS = 12
_STYLE = {
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "grid.color": _GRID,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


@dataclass(frozen=True)
class Drawing:
    """A figure drawn."""

    png: bytes
    """With title and legend, on white."""
    note: str
    """What could not be drawn, for the caption; empty if everything was."""


def draw(figure: Figure) -> Drawing:
    """Draw a figure; one without a point to draw is refused."""
    require("matplotlib", extra="plots")
    series, note = _read(figure)
    png = BytesIO()
    with _styled():
        # As large as its words need: a PNG cannot wrap them as a page does.
        _labelled(figure, series).savefig(
            png, format="png", dpi=200, facecolor="white", bbox_inches="tight", metadata={"Software": None}
        )
    return Drawing(png.getvalue(), note)


# What is to be drawn


@dataclass(frozen=True)
class _Series:
    """A curve with the points that can be drawn, and how it looks."""

    label: str
    kind: Kind
    x: Floats
    y: Floats
    style: Style
    alpha: float


def _read(figure: Figure) -> tuple[list[_Series], str]:
    """The series that have points, and a sentence about the points left out."""
    series: list[_Series] = []
    left_out: list[str] = []
    for curve in figure.curves:
        if curve.method not in STYLES:
            known = ", ".join(STYLES)
            raise ValueError(f"figure {figure.name!r}: curve {curve.label!r} is of {curve.method!r}, not of {known}")
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
            if curve.kind == "line":
                x, y = np.where(keep, x, np.nan), np.where(keep, y, np.nan)  # a gap, not a line across it
            else:
                x, y = x[keep], y[keep]
            series.append(_Series(label, curve.kind, x, y, STYLES[curve.method], _FAINT if curve.faint else 1.0))
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
        # A label in a script that the font lacks shows boxes; the page says it in the reader's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def _labelled(figure: Figure, series: list[_Series]) -> Any:
    """A matplotlib figure with title above and legend below, as tall as they need."""
    title = textwrap.fill(figure.title, 52)
    longest = max(len(s.label) for s in series)
    columns = 3 if longest <= 14 else 2 if longest <= 26 else 1
    wrapped = [textwrap.fill(s.label, 54) for s in series]
    lines = sum(label.count("\n") + 1 for label in wrapped) / columns + title.count("\n") + 2
    sheets: Any = require("matplotlib.figure", extra="plots")
    sheet = sheets.Figure(figsize=(_WIDTH, _HEIGHT + 0.22 * lines), layout="constrained")
    handles = _plot(sheet.add_subplot(), figure, series)
    sheet.suptitle(title, fontsize="large")
    sheet.legend(handles, wrapped, loc="outside lower center", ncols=columns)
    return sheet


def _plot(axes: Any, figure: Figure, series: list[_Series]) -> list[Any]:
    """Draw the series; a handle of each for a legend."""
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
        look: dict[str, Any] = {"color": s.style.colour, "alpha": s.alpha}
        if s.kind == "bars":
            width = 0.8 / len(bars)
            left = s.x + width * (sum(h.kind == "bars" for h in series[: len(handles)]) - len(bars) / 2)
            handles.append(axes.bar(left, s.y - base, 0.9 * width, base, align="edge", clip_on=False, **look))
        elif s.kind == "level":
            handles.append(axes.axhline(s.y[0], linestyle=":", **look))
        else:
            handles += axes.plot(s.x, s.y, clip_on=False, **look, **_line(s, len(handles), len(series)))
    if bars and figure.y_log:
        axes.set_ylim(bottom=base)
    _ticks(axes.yaxis, log=figure.y_log)
    if not _grouped(figure):
        _ticks(axes.xaxis, log=figure.x_log)
    return handles


def _line(s: _Series, place: int, places: int) -> dict[str, Any]:
    """Dashes and markers of a line or of points; on long lines the markers of one are between those of others."""
    if s.kind == "points":
        return {"marker": s.style.marker, "linestyle": "none"}
    # A point between two gaps is seen by its marker alone.
    all_marked = len(s.x) <= _MOST_MARKERS or bool(np.isnan(s.y).any())
    every = 1 if all_marked else max(places, math.ceil(len(s.x) / _MOST_MARKERS))
    dashes = (0, s.style.dashes) if s.style.dashes else "-"
    return {"marker": s.style.marker, "markevery": (place * every // places, every), "linestyle": dashes}


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
