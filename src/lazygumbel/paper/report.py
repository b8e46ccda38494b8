"""The report of a run: one HTML file that needs nothing else, and the figures as PNG.

No script, no font, no picture is fetched; light or dark is the reader's setting. Every number of a section is in the
page: verdicts and tables in sight, raw numbers and the points of figures (of long curves, some) folded away.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, cast

from lazygumbel.paper.draw import INKS, Drawing, draw, number
from lazygumbel.paper.section import Curve, Figure, Section, Table, Verdict
from lazygumbel.persist import replacing

__all__ = ["headline", "write_report"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names become file names and anchors."""
_PRINTED = re.compile(r"(^|, )(the )?paper\b(?!['’]s)|\bprinted\b", re.IGNORECASE)  # noqa: RUF001  # either apostrophe
"""Says of a column, or by its first cell of a row, that it holds numbers of the paper: "paper", "ImageNet, as printed".

Not "the paper's method": that was run here.
"""
_MOST_POINTS = 200
"""Of a longer curve, the table beneath the figure lists about so many points."""
_NOTHING = "–"  # noqa: RUF001  # a dash is meant
_SHORT, _MANY = 20, 40
"""Up to so many characters are kept on one line; a table of more rows scrolls within its box."""
_FIRST = ("data", "n", "d", "temperature")
_COLUMNS = ["claim", "paper", "ours", "holds"]


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
    rows: list[list[str | float | int | None]] = [
        [v.claim, _NOTHING if v.paper is None else v.paper, v.ours, "yes" if v.holds else "no"] for v in verdicts
    ]
    return Table(f"{_score(verdicts)} in this run", _COLUMNS, rows)


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
    facts = "".join(f"<div><dt>{_words(key)}</dt><dd>{_cell(value)}</dd></div>" for key, value in ordered.items())
    contents = "".join(
        f'<li><a href="#{section.name}">{escape(section.title)}</a>{_tally(section.verdicts)}</li>'
        for section in sections
    )
    claims = [(verdict, section.name) for section in sections for verdict in section.verdicts]
    verdicts = f"<h2>{headline(sections).title}</h2>{_verdicts(claims)}" if claims else ""
    return f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>The paper&rsquo;s evaluation, run again{on_data}</title>
<style>{_css()}</style>
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
    '<span class="paper">Tinted</span>: what the paper prints, from its own data and machine; '
    f"{_NOTHING} where it prints nothing. Everything else was measured in this run."
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
    """A table that turns into a list where it is too narrow for four columns; roles keep it a table there."""
    titles = ["Claim", "Paper", "This run", "Verdict"]
    head = "".join(f'<th role="columnheader" scope="col">{title}</th>' for title in titles)
    rows = ""
    for verdict, section in claims:
        claim = _prose(verdict.claim)
        said = f'<a href="#{section}">{claim}</a>' if section else claim
        holds = '<td role="cell" class="holds">✓ holds' if verdict.holds else '<td role="cell" class="fails">✗ fails'
        rows += (
            f'<tr role="row"><th role="rowheader" scope="row">{said}</th>'
            f'<td role="cell" data-title="Paper" class="paper">{_cell(verdict.paper)}</td>'
            f'<td role="cell" data-title="This run">{_cell(verdict.ours)}</td>{holds}</td></tr>\n'
        )
    return (
        f'<table role="table" class="verdicts"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}</tbody></table>'
    )


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
    marks = [_mark(title, [row[c] for row in table.rows]) for c, title in enumerate(table.columns)]
    head = "".join(
        f'<th scope="col"{mark}>{_prose(title)}</th>' for mark, title in zip(marks, table.columns, strict=True)
    )
    rows = ""
    for row in table.rows:
        cells = "".join(f"<td{mark}>{_cell(cell)}</td>" for mark, cell in zip(marks, row, strict=True))
        rows += f"<tr{_printed(row)}>{cells}</tr>\n"
    size = "box long" if len(table.rows) > _MANY else "box"
    return (
        f'<div class="{size}" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>"
    )


def _printed(row: Sequence[object]) -> str:
    return ' class="paper"' if row and isinstance(row[0], str) and _PRINTED.search(row[0]) else ""


def _mark(title: str, cells: list[str | float | int | None]) -> str:
    """How a column looks: the paper's numbers on their own ground, numbers beneath each other, short words unbroken."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    short = all(len(text) <= _SHORT for text in texts)
    kinds = {"paper": bool(_PRINTED.search(title)), "number": not texts, "short": bool(texts) and short}
    held = " ".join(kind for kind, is_one in kinds.items() if is_one)
    return f' class="{held}"' if held else ""


def _figure(figure: Figure, drawing: Drawing) -> str:
    legend = "".join(f"<li>{swatch} {escape(label)}</li>" for swatch, label in drawing.legend)
    caption = " ".join(part for part in (figure.caption, drawing.note) if part)
    return (
        f'<figure>{drawing.svg}<ul class="legend">{legend}</ul>'
        f"<figcaption><strong>{_prose(figure.title)}.</strong> {_prose(caption)}</figcaption>{_points(figure)}</figure>"
    )


def _points(figure: Figure) -> str:
    """The points of a figure as a table, folded away."""
    columns = ["curve", figure.x_label, figure.y_label]
    rows: list[list[str | float | int | None]] = []
    thinned = False
    for curve in figure.curves:
        every = -(-len(curve.y) // _MOST_POINTS) or 1
        thinned |= every > 1
        rows += [[curve.label, x, y] for x, y in _listed(curve)[::every]]
    table = _box(Table(f"Points: {figure.title}", columns, rows))
    note = "<p>Of long curves only some points; all are in <code>results.json</code>.</p>" if thinned else ""
    return f"<details><summary>Points</summary>{note}{table}</details>"


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


# Looks

_PALETTE = {
    "ground": ("#fdfdfc", "#16181b"),
    "ink": ("#1d2024", "#e3e5e8"),
    "soft": ("#5a6068", "#a3a9b1"),
    "line": ("#dfe1e4", "#363a41"),
    "shade": ("#c9ccd1", "#4a4f58"),
    "link": ("#00598f", "#86c8f4"),
    "paper": ("#f4efe1", "#322d1f"),
    "holds": ("#0a6638", "#74d69d"),
    "fails": ("#ad231b", "#ff958b"),
}
"""Colours by CSS variable, light and dark; those of figures are `draw.INKS`."""


def _css() -> str:
    light, dark = (
        "".join(f"--{name}: {pair[i]}; " for name, pair in (_PALETTE | INKS).items()).strip() for i in range(2)
    )
    # Paper is white: only a screen is dark.
    return f"""
:root {{ color-scheme: light dark; {light} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
{_CSS}"""


_CSS = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { max-width: 48rem; margin: 0 auto; padding: 2.5rem 1rem 5rem; overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  color: var(--ink); background: var(--ground); }
h1 { font-size: 1.75rem; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; margin: 0 0 0.5rem; }
h2 { font-size: 1.25rem; line-height: 1.3; font-weight: 650; margin: 0 0 0.75rem; }
p { margin: 0 0 1rem; }
a { color: var(--link); text-decoration: underline 1px var(--line); text-underline-offset: 0.2em; }
a:hover { text-decoration-color: currentcolor; }
code { font: 0.9em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
main > * { margin-top: 2.75rem; }
main > section[id] { border-top: 1px solid var(--line); padding-top: 2.25rem; }
header > p, .key, figcaption, summary, .raw { color: var(--soft); }
.key, figcaption, summary, .legend, .facts, .raw, table { font-size: 0.875rem; line-height: 1.45; }
.facts { display: flex; flex-wrap: wrap; gap: 0.75rem 2.25rem;
  margin: 1.5rem 0 0; padding: 1rem 0; border: solid var(--line); border-width: 1px 0; }
.facts dt { color: var(--soft); }
dd { margin: 0; }
nav ol { margin: 0; padding-left: 1.5rem; }
nav li { margin-bottom: 0.25rem; }
nav span { font-size: 0.875rem; margin-left: 0.35rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 0.75rem; border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; color: var(--soft); vertical-align: bottom; background: var(--ground); }
.paper { background: var(--paper); }
.key .paper { padding: 0.1rem 0.35rem; }
.number { text-align: right; }
td.number, td.short { white-space: nowrap; }
.holds { color: var(--holds); }
.fails { color: var(--fails); }
td.holds, td.fails { white-space: nowrap; font-weight: 600; }
.verdicts { width: 100%; table-layout: fixed; margin-bottom: 1rem; }
.verdicts th:nth-child(1) { width: 42%; }
.verdicts th:nth-child(4) { width: 6rem; }
.verdicts tbody th { font-weight: 400; }
.verdicts th:first-child { padding-left: 0; }
figure { margin: 1.75rem 0; }
figure > figcaption:first-child { margin-bottom: 0.5rem; }
figcaption strong { color: var(--ink); font-weight: 600; }
.box { overflow: auto; max-width: 100%; border-top: 1px solid var(--line);
  overflow-wrap: break-word;
  /* A shadow at the edge beyond which there is more; at the end it is covered by what scrolls along. */
  background: linear-gradient(to right, var(--ground) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--ground) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 0.8rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 0.8rem 100% no-repeat scroll; }
.long { max-height: 34rem; }
.box table { min-width: 100%; }
.box th, .box td { max-width: min(24rem, 65vw); }
.box td:first-child:not(.number) { min-width: 7rem; }
.box thead th { position: sticky; top: 0; }
.box thead .paper { background: var(--paper); }
.plot { display: block; width: 100%; height: auto; max-width: 36rem; margin: 0 auto; }
.plot * { stroke-linejoin: round; stroke-linecap: butt; }
.legend { list-style: none; display: flex; flex-wrap: wrap; justify-content: center; gap: 0.25rem 1.5rem;
  margin: 0.75rem auto; padding: 0; max-width: 40rem; }
.legend li { display: flex; gap: 0.5rem; align-items: baseline; }
.swatch { flex: none; width: 34px; height: 12px; overflow: visible; }
details { margin-top: 0.75rem; }
summary { cursor: pointer; width: fit-content; }
details[open] > summary { margin-bottom: 0.5rem; }
.raw { margin: 0; max-height: 34rem; overflow: auto; }
.raw dd { margin: 0 0 0.5rem; }
@media (max-width: 40rem) {
  body { padding-top: 1.5rem; }
  .verdicts, .verdicts tbody, .verdicts tr, .verdicts tbody th, .verdicts td { display: block; width: auto; }
  .verdicts thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .verdicts tr { padding: 0.75rem 0; border-bottom: 1px solid var(--line); }
  .verdicts tbody th, .verdicts td { padding: 0.15rem 0; border: 0; }
  .verdicts tbody th:nth-child(1) { width: auto; }
  .verdicts .paper { width: fit-content; margin-left: -0.4rem; padding: 0.15rem 0.4rem; }
  .verdicts td[data-title]::before { content: attr(data-title) ": "; color: var(--soft); }
}
@media screen and (min-width: 64rem) {
  /* A table may be wider than the column; its title may not make it so. */
  .table { width: fit-content; min-width: 100%; max-width: 62rem; margin-left: 50%; translate: -50%; }
  .table figcaption { width: 0; min-width: 100%; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  .box { max-height: none; overflow: visible; background: none; }
  .box thead th { position: static; }
  details:not([open]) { display: none; }
  h2 { break-after: avoid; }
  tr, .plot, .legend { break-inside: avoid; }
  .paper { print-color-adjust: exact; }
}
"""
