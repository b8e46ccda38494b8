"""`.parquet`: a column of vectors, and perhaps one of names."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lazygumbel._support.extras import require
from lazygumbel.datasets.opening import check_promise, pick
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["NamesColumn", "read_parquet"]

NamesColumn = str | Literal[False] | None
"""The column of a table that names its rows; `False` for no names, `None` for the only column of strings."""

_BATCH_ROWS = 4096


def read_parquet(path: Path, column: str | None, names: NamesColumn, progress: Progress) -> Features:
    """Rows of a Parquet file: a column of lists of numbers, with a column of names if there is one."""
    parquet: Any = require("pyarrow.parquet", extra="data")
    with parquet.ParquetFile(path) as file:
        column, names = _pick_columns(file.schema_arrow, column, names)
        columns = [column] if names is None else [column, names]
        n: int = file.metadata.num_rows
        check_promise(path, _values(file, column))
        rows = np.empty((n, 0), dtype=np.float32)
        words: list[str] = []
        start = 0
        with progress.task("reading rows", n) as task, np.errstate(over="ignore"):
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                vectors = _parquet_vectors(batch.column(column), start, rows.shape[1])
                if start == 0:
                    check_promise(path, n * vectors.shape[1])
                    rows = np.empty((n, vectors.shape[1]), dtype=np.float32)
                rows[start : start + len(vectors)] = vectors
                if names is not None:
                    words += batch.column(names).to_pylist()
                start += len(vectors)
                task.advance(len(vectors))
    return Features.of(rows[:start], names=None if names is None else words)


def _pick_columns(schema: Any, column: str | None, names: NamesColumn) -> tuple[str, str | None]:
    """The column of vectors, and the column of names if there is one."""
    types: Any = require("pyarrow", extra="data").types
    vectors: list[str] = []
    strings: list[str] = []
    for field in schema:
        kind = field.type
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            if types.is_floating(kind.value_type):
                vectors.append(field.name)
        elif types.is_string(kind) or types.is_large_string(kind):
            strings.append(field.name)
    column = pick(column, vectors, "columns of lists of floats", "column")
    if names is False or (names is None and len(strings) != 1):
        return column, None
    return column, pick(names, strings, "columns of strings", "names")


def _parquet_vectors(lists: Any, start: int, d: int) -> npt.NDArray[Any]:
    """A batch of lists as a matrix. `start` is the row of the first; row 0 sets the length d."""
    compute: Any = require("pyarrow.compute", extra="data")
    if lists.null_count:
        raise ValueError(f"row {start + _first_null(lists)} has no vector (null)")
    lengths: npt.NDArray[Any] = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    d = d if start else int(lengths[0])
    wrong = np.flatnonzero(lengths != d)
    if len(wrong):
        raise ValueError(f"row {start + wrong[0]} has {lengths[wrong[0]]} values, but row 0 has {d}")
    values = lists.flatten()
    if values.null_count:
        raise ValueError(f"row {start + _first_null(values) // d} has a missing value (null) in its vector")
    return values.to_numpy(zero_copy_only=False).reshape(len(lists), d)


def _values(file: Any, column: str) -> int:
    """How many values a column of lists is said to have."""
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    chunks = [group.column(c) for group in groups for c in range(group.num_columns)]
    return sum(int(chunk.num_values) for chunk in chunks if chunk.path_in_schema.split(".")[0] == column)


def _first_null(values: Any) -> int:
    return int(values.is_null().to_numpy(zero_copy_only=False).argmax())
