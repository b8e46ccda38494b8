"""Rows coded and stored cell by cell."""

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.threads import map_threads, one_blas_thread
from lazygumbel.indexes.partition.bytes import Bytes
from lazygumbel.indexes.partition.cells import Cells
from lazygumbel.indexes.partition.sketch import Coder, Coding, Encoded, Layout
from lazygumbel.progress import Progress, Silent
from lazygumbel.rows.features import Features

__all__ = ["Assigned", "code_rows", "for_blocks"]

_ROWS_AT_ONCE = 2**13
_SILENT = Silent()


class Assigned(NamedTuple):
    """Rows with the cells they belong to; every cell has rows."""

    features: Features
    means: Vectors
    """(cells, d)"""
    cell_of: Ints
    """By id, (n,)."""


def code_rows(
    assigned: Assigned, coder: Coder, rng: np.random.Generator, progress: Progress = _SILENT
) -> tuple[Features, Cells, Coder, Coding, Bytes]:
    """Rows cell by cell, in a cell by falling width, so that groups have rows of about the same; with their codes."""
    features, means, cell_of = assigned
    n, d = features.n, features.d
    encoded, squares, code_norms = Encoded.empty(n, coder.parts[1]), np.empty(n), [0.0]

    def encode(ids: Ints, rows: Vectors) -> int:
        residuals = rows - means[cell_of[ids]]
        some, longest = coder.encode(residuals)
        for mine, theirs in zip(encoded, some, strict=True):
            mine[ids] = theirs
        code_norms.append(longest)
        squares[ids] = np.einsum("nd,nd->n", residuals, residuals)
        return len(ids)

    for_blocks(features, encode, "sketching rows", progress)
    order = np.lexsort((-encoded.widths[:, 1], cell_of))
    cells = Cells.of(features, means, cell_of, squares, rng)
    coding = Coding.of(Layout.of(cells.offsets), order, encoded, coder.parts, max(code_norms))
    stored = features.reordered(order, progress)
    byte_codes, errors = Bytes.empty(n, d), [0.0]
    cells_in_order = cell_of[order]

    def to_bytes(ids: Ints, rows: Vectors) -> int:
        places = stored.locate(ids)
        errors.append(byte_codes.fill(places, rows - means[cells_in_order[places]]))
        return len(ids)

    for_blocks(stored, to_bytes, "coding rows", progress)
    return stored, cells, coder, coding, byte_codes._replace(error=max(errors))


def for_blocks(features: Features, function: Callable[[Ints, Vectors], int], label: str, progress: Progress) -> None:
    """Call a function with blocks of rows and their ids, on threads; it returns how many it has done."""
    with progress.task(label, features.n) as task:
        blocks = features.blocks(_ROWS_AT_ONCE)
        while some := list(islice(blocks, 8)):  # a few at a time, so that a file is not read whole
            with one_blas_thread():
                for count in map_threads(function, *zip(*some, strict=True)):
                    task.advance(count)
