"""What a notebook shows of an object: a small table in HTML."""

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table"]


def html_table(title: str, lines: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """A table under a title; whatever is in it is text."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><caption>{escape(title)}</caption>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
