"""`.vec` and `.txt`: word vectors as text, a word and its values on each line."""

from collections.abc import Callable
from pathlib import Path
from re import compile as regex
from typing import BinaryIO

import numpy as np

from lazygumbel._support.arrays import Vectors
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["read_text"]

_NUMBER = regex(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def read_text(path: Path, progress: Progress, keep: Callable[[str], bool] | None = None) -> Features:
    """Rows whose word passes `keep`. Memory is taken for all rows but only touched for those kept."""
    words: list[str] = []
    size = path.stat().st_size
    with path.open("rb") as file, progress.task("reading words", size) as task:
        n, d, promised = _text_shape(file, size)
        rows = np.empty((n, d), dtype=np.float32)
        seen = done = 0
        for number, raw in enumerate(file, 2 if promised else 1):
            done += len(raw)
            if not number % 1000:
                task.advance(done)
                done = 0
            line = raw.rstrip(b" \r\n")  # fastText ends its lines with a space
            if not line:
                continue
            word, values = _split_line(line, d, number)
            if seen == n:
                raise ValueError(f"line {number} comes after the {n} rows that line 1 promises")
            seen += 1
            if keep is None or keep(word):
                _parse_values(values, rows[len(words)], number)
                words.append(word)
        task.advance(done)
    if promised and seen < n:
        raise ValueError(f"line 1 promises {n} rows, but there are {seen}: truncated?")
    if not words:
        raise ValueError("no word is made of letters only")
    return Features.of(rows[: len(words)], names=words)


def _text_shape(file: BinaryIO, size: int) -> tuple[int, int, bool]:
    """n, d and whether the first line promises them; `file` is left at the first row.

    Without a promise n is the number of lines: counting is cheap beside parsing and saves growing the array.
    More rows than the bytes can hold (a digit and a space for each value) are refused, or not counted.
    """
    first = file.readline().rstrip(b" \r\n").split(b" ")
    if len(first) == 2 and all(part.isdigit() for part in first):
        n, d = int(first[0]), int(first[1])
        if n < 1 or d < 1 or 2 * n * d > size:
            raise ValueError(f"line 1 promises {n} rows of {d} values, which {size} bytes cannot hold")
        return n, d, True
    if len(first) < 2:
        raise ValueError('line 1 must be "n d", or a word and its values, separated by spaces')
    file.seek(0)
    n = 1 + sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    file.seek(0)
    d = len(first) - 1
    return min(n, size // (2 * d) + 1), d, False


def _split_line(line: bytes, d: int, number: int) -> tuple[str, list[bytes]]:
    # From the right: a word may hold spaces, a value may not.
    word, *values = line.rsplit(b" ", d)
    if len(values) < d:
        raise ValueError(f"line {number} has {len(values)} values instead of {d}")
    if b" " in word and _NUMBER.fullmatch(word.rpartition(b" ")[2]):
        cure = "if its word ends in a number, write the spaces in it as underscores"
        raise ValueError(f"line {number} has more than {d} values ({cure})")
    return word.decode("utf-8", "replace"), values


def _parse_values(values: list[bytes], row: Vectors, number: int) -> None:
    try:
        with np.errstate(over="ignore"):  # what overflows float32 is refused by Features, with its row
            row[:] = values
    except ValueError as error:
        raise ValueError(f"line {number} holds a value that is not a number ({error})") from error
