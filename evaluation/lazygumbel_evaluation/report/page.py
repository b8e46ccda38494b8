"""The report of a run: one HTML file that needs nothing else, and the figures as PNG.

No script, no font, no picture is fetched; light or dark is the reader's setting. Every number of a section is in the
page: verdicts and tables in sight, raw numbers and the points of figures (of long curves, some) folded away.
"""

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from lazygumbel._support.persist import replacing
from lazygumbel_evaluation.report.draw import Drawing, draw
from lazygumbel_evaluation.report.section import Cell, Curve, Figure, Section, Table, Verdict
from lazygumbel_evaluation.report.wording import number

__all__ = ["headline", "write_report"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names become file names and anchors."""
_MOST_POINTS = 200
"""Of a longer curve, the table beneath the figure lists about so many points."""
_NOTHING = "–"  # noqa: RUF001  # a dash is meant
_SHORT, _MANY = 44, 40
"""Up to so many characters are kept on one line; a table of more rows scrolls within its box."""
_FIRST = ("data", "n", "d", "temperature")
_COLUMNS = ["claim", "method", "thetas", "paper", "this run", "holds"]


def write_report(out: Path, header: dict[str, Any], sections: list[Section]) -> Path:
    """Write `out/report.html` and `out/figures/NAME.png`; returns the path of the report.

    Everything is drawn before anything is written, and each file is replaced whole: a failure leaves the old report.
    """
    if not sections:
        raise ValueError("sections: there is nothing to report")
    figures = [figure for section in sections for figure in section.figures]
    _check_names("section", [section.name for section in sections])
    _check_names("figure", [figure.name for figure in figures])
    drawings = {figure.name: draw(figure) for figure in figures}
    page = _page(header, sections, drawings)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        with replacing(out / "figures" / f"{name}.png") as stream:
            stream.write(drawing.png)
    with replacing(out / "report.html") as stream:
        stream.write(page.encode())
    return out / "report.html"


def headline(sections: list[Section]) -> Table:
    """Every claim: what the paper printed, what this run measured, and whether it holds."""
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    rows: list[list[Cell]] = [
        [v.claim, v.method, v.thetas, _NOTHING if v.paper is None else v.paper, v.measured, "yes" if v.holds else "no"]
        for v in verdicts
    ]
    return Table(f"{_score(verdicts)} in this run", _COLUMNS, rows, printed_columns=[3])


def _score(verdicts: list[Verdict]) -> str:
    holding = sum(verdict.holds for verdict in verdicts)
    return f"{holding} of {len(verdicts)} {'claim holds' if len(verdicts) == 1 else 'claims hold'}"


def _check_names(kind: str, names: list[str]) -> None:
    for name, times in Counter(names).items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{kind} {name!r}: a name is letters, digits, dots, dashes and underscores")
        if times > 1:
            raise ValueError(f"{kind} {name!r}: {times} of them have this name")


# The page


def _page(header: dict[str, Any], sections: list[Section], drawings: dict[str, Drawing]) -> str:
    on_data = f" on {escape(str(header['data']))}" if "data" in header else ""
    ordered = {key: header[key] for key in _FIRST if key in header} | header
    facts = "".join(
        f"<div><dt>{_words(key)}</dt><dd>{_cell(value)}</dd></div>"
        for key, value in ordered.items()
        if value is not None
    )
    contents = "".join(
        f'<li><a href="#{section.name}">{escape(section.title)}</a>{_tally(section.verdicts)}</li>'
        for section in sections
    )
    claims = [(verdict, section.name) for section in sections for verdict in section.verdicts]
    verdicts = f"<h2>{headline(sections).title}</h2>{_scores(sections)}{_verdicts(claims)}" if claims else ""
    return f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>The paper&rsquo;s evaluation, run again{on_data}</title>
<style>
{files(__package__ or "").joinpath("page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<h1>The paper&rsquo;s evaluation, run again</h1>
<p>{_PAPER}</p>
<dl class="facts">{facts}</dl>
</header>
<main>
<section aria-label="Verdicts">{verdicts}
<p class="key">{_KEY}</p></section>
<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>
{"".join(_section(section, drawings) for section in sections)}</main>
</body>
</html>
"""


_PAPER = (
    "S. Mussmann, D. Levy and S. Ermon: <cite>Fast Amortized Inference and Learning in Log-linear Models with Randomly "
    "Perturbed Nearest Neighbor Search</cite>. UAI 2017."
)
_KEY = (
    '<span class="paper">Tinted</span>: what the paper prints, from its own data and machine, every theta a row; '
    f"{_NOTHING} where it prints nothing. Everything else was measured in this run. A claim is about the method named "
    "with it, and a bound is compared with a bound. a ± b is a mean and the standard deviation over thetas."
)


def _section(section: Section, drawings: dict[str, Drawing]) -> str:
    paragraphs = "".join(f"<p>{_prose(part)}</p>" for part in re.split(r"\n\s*\n", section.text.strip()) if part)
    parts = [
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{paragraphs}',
        _verdicts([(verdict, None) for verdict in section.verdicts]) if section.verdicts else "",
        *(_table(table) for table in section.tables),
        *(_figure(figure, drawings[figure.name]) for figure in section.figures),
        _facts(section.facts) if section.facts else "",
        "</section>\n",
    ]
    return "\n".join(part for part in parts if part)


def _verdicts(claims: Sequence[tuple[Verdict, str | None]]) -> str:
    """A table with the kinds of thetas side by side; it turns into a list where it is too narrow for its columns.

    Roles keep it a table there.
    """
    kinds = list(dict.fromkeys(verdict.thetas for verdict, _ in claims if verdict.thetas)) or ["This run"]
    head = "".join(f'<th role="columnheader" scope="col">{escape(title)}</th>' for title in ("Claim", "Paper", *kinds))
    grouped: dict[tuple[str, str, str | None], dict[str, Verdict]] = {}
    links = {verdict.claim: section for verdict, section in claims}
    for verdict, _ in claims:
        grouped.setdefault((verdict.claim, verdict.method, verdict.paper), {})[verdict.thetas] = verdict
    rows = ""
    for (claim, method, paper), found in grouped.items():
        said = _prose(claim)
        said = f'<a href="#{links[claim]}">{said}</a>' if links[claim] else said
        cells = "".join(_judged(kind, found.get(kind)) for kind in kinds)
        if "" in found:
            cells = _judged("This run", found[""], span=len(kinds))
        rows += (
            f'<tr role="row"><th role="rowheader" scope="row">{said}<span class="method">{_prose(method)}</span></th>'
            f'<td role="cell" data-title="Paper" class="paper">{_cell(paper)}</td>{cells}</tr>\n'
        )
    return (
        f'<table role="table" class="verdicts"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}</tbody></table>'
    )


def _judged(kind: str, verdict: Verdict | None, span: int = 1) -> str:
    """What was measured, and whether the claim holds."""
    wide = f' colspan="{span}"' if span > 1 else ""
    start = f'<td role="cell"{wide} data-title="{escape(kind)}">'
    if verdict is None:
        return f"{start}{_NOTHING}</td>"
    mark = '<span class="holds">✓ holds</span>' if verdict.holds else '<span class="fails">✗ fails</span>'
    return f"{start}{mark} {_cell(verdict.measured)}</td>"


def _scores(sections: list[Section]) -> str:
    """How many claims hold, method by method."""
    by_method: dict[str, list[Verdict]] = {}
    for verdict in (verdict for section in sections for verdict in section.verdicts):
        by_method.setdefault(verdict.method, []).append(verdict)
    scores = (f"{_prose(method)} {sum(v.holds for v in some)} of {len(some)}" for method, some in by_method.items())
    return f"<p>By method: {'; '.join(scores)}.</p>"


def _tally(verdicts: list[Verdict]) -> str:
    if not verdicts:
        return ""
    state = "holds" if all(verdict.holds for verdict in verdicts) else "fails"
    return f' <span class="{state}">{_score(verdicts)}</span>'


def _table(table: Table) -> str:
    return (
        f'<figure class="table"><figcaption><strong>{_prose(table.title)}</strong></figcaption>{_box(table)}</figure>'
    )


def _box(table: Table) -> str:
    """A table in a box of its own, which scrolls where it is too wide or too long."""
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(f"table {table.title!r}: {len(row)} cells in a row, under {len(table.columns)} columns")
    columns = range(len(table.columns))
    marks = [_mark([row[c] for row in table.rows], printed=c in table.printed_columns) for c in columns]
    head = "".join(
        f'<th scope="col"{mark}>{_prose(title)}</th>' for mark, title in zip(marks, table.columns, strict=True)
    )
    rows = ""
    for r, row in enumerate(table.rows):
        cells = "".join(f"<td{mark}>{_cell(cell)}</td>" for mark, cell in zip(marks, row, strict=True))
        rows += f"<tr{_PRINTED if r in table.printed_rows else ''}>{cells}</tr>\n"
    size = "box long" if len(table.rows) > _MANY else "box"
    return (
        f'<div class="{size}" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>"
    )


_PRINTED = ' class="paper"'


def _mark(cells: list[Cell], *, printed: bool) -> str:
    """How a column looks: the paper's numbers on their own ground, numbers beneath each other, short words unbroken."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    short = all(len(text) <= _SHORT for text in texts)
    kinds = {"paper": printed, "number": not texts, "short": bool(texts) and short}
    held = " ".join(kind for kind, is_one in kinds.items() if is_one)
    return f' class="{held}"' if held else ""


def _figure(figure: Figure, drawing: Drawing) -> str:
    caption = " ".join(part for part in (figure.caption, drawing.note) if part)
    said = escape(" ".join(f"{figure.title}. {figure.caption}".split()))
    picture = b64encode(drawing.png).decode()
    return (
        f'<figure><img class="plot" alt="{said}" src="data:image/png;base64,{picture}">'
        f"<figcaption>{_prose(caption)}</figcaption>{_points(figure)}</figure>"
    )


def _points(figure: Figure) -> str:
    """The points of a figure as a table, folded away."""
    columns = ["curve", figure.x_label, figure.y_label]
    rows: list[list[Cell]] = []
    thinned = False
    for curve in figure.curves:
        every = -(-len(curve.y) // _MOST_POINTS) or 1
        thinned |= every > 1
        rows += [[curve.label, x, y] for x, y in _listed(curve)[::every]]
    table = _box(Table(f"Points: {figure.title}", columns, rows))
    note = "<p>Of long curves only some points; all are in <code>results.json</code>.</p>" if thinned else ""
    return f"<details><summary>Points: {_prose(figure.title)}</summary>{note}{table}</details>"


def _listed(curve: Curve) -> list[tuple[float | None, float]]:
    return [(None, curve.y[0])] if curve.kind == "level" else list(zip(curve.x, curve.y, strict=True))


def _facts(facts: dict[str, Any]) -> str:
    held = "".join(
        f"<dt>{_words(key)}</dt><dd><code>{escape(json.dumps(value, ensure_ascii=False))}</code></dd>"
        for key, value in facts.items()
    )
    return f'<details><summary>Raw numbers</summary><dl class="raw">{held}</dl></details>'


# Words and numbers


def _prose(text: str) -> str:
    """Plain text for the page; what stands between backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _words(key: str) -> str:
    return escape(key.replace("_", " "))


def _cell(value: object) -> str:
    """Numbers are shown in short and held in full."""
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f'<data value="{value!r}">{number(value)}</data>'
    if isinstance(value, dict):
        held = cast("dict[str, object]", value).items()
        return ", ".join(f"{_words(key)} {_cell(fact)}" for key, fact in held)
    return _prose(str(value))
