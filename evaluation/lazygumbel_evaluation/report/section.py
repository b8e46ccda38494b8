"""What an experiment hands to the report: plain data, the same in `results.json` and in memory.

A figure is described, not drawn, so that a saved run can be drawn again in other colours or formats. What a number is,
whose it is and which method it is about are data too: nothing is read out of a title.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

__all__ = ["Cell", "Curve", "Figure", "Kind", "Section", "Table", "Verdict"]

Kind = Literal["line", "points", "bars", "level"]
"""line: joined points. points: scattered. bars: grouped by x. level: one horizontal line at y[0]."""
Cell = str | float | int | None


@dataclass(frozen=True)
class Curve:
    """One series of a figure."""

    label: str
    x: list[float]
    y: list[float]
    method: str
    """A key of `styles.STYLES`: how it looks."""
    kind: Kind = "line"
    faint: bool = False
    """Paler than others of the same method: the second of two protocols."""


@dataclass(frozen=True)
class Figure:
    """A plot with labelled axes."""

    name: str
    """Stem of the file it is saved as."""
    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    x_log: bool = False
    y_log: bool = False
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers under named columns."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    printed_rows: list[int] = field(default_factory=list[int])
    """Which rows hold numbers of the paper's, by their places."""
    printed_columns: list[int] = field(default_factory=list[int])
    """Which columns do."""


@dataclass(frozen=True)
class Verdict:
    """One claim about one method: what the paper printed (None: nothing), what this run measured, whether it holds."""

    claim: str
    method: str
    """What the method is called that was measured."""
    paper: str | None
    measured: str
    holds: bool
    thetas: str = ""
    """What the thetas are called, where a claim is judged on several kinds."""


@dataclass(frozen=True)
class Section:
    """One experiment of the paper, done."""

    name: str
    """As `--only` takes it: "table-1", "figure-4"."""
    title: str
    text: str
    """What was done, in a few sentences."""
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    tables: list[Table] = field(default_factory=list[Table])
    figures: list[Figure] = field(default_factory=list[Figure])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """Raw numbers behind the above."""

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return asdict(self)

    @classmethod
    def from_json(cls, held: dict[str, Any]) -> Self:
        """What `as_json` gave."""
        figures = [Figure(**f | {"curves": [Curve(**c) for c in f["curves"]]}) for f in held["figures"]]
        tables = [Table(**t) for t in held["tables"]]
        verdicts = [Verdict(**v) for v in held["verdicts"]]
        return cls(held["name"], held["title"], held["text"], verdicts, tables, figures, held["facts"])
