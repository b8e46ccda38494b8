"""`read`: rows from files other people write; the format follows from the suffix of the file's name."""

from os import PathLike
from pathlib import Path

from lazygumbel.datasets.opening import FilePath, existing, naming
from lazygumbel.datasets.tables import NamesColumn, read_parquet
from lazygumbel.datasets.tensors import read_hdf5, read_safetensors
from lazygumbel.datasets.text import read_text
from lazygumbel.datasets.vecs import map_vectors
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.rows.features import Features, Source

__all__ = ["read", "rows_of", "unit_rows"]


def read(
    path: FilePath,
    *,
    column: str | None = None,
    key: str | None = None,
    names: NamesColumn = None,
    progress: ShowProgress = None,
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
    path = existing(path)
    tensors, tables = (".hdf5", ".h5", ".safetensors"), (".parquet",)
    options = (("key", key, tensors), ("column", column, tables), ("names", names, tables))
    for option, value, suffixes in options:
        if value is not None and path.suffix not in suffixes:
            raise ValueError(f"{option} is for {', '.join(suffixes)} files; leave it out for {path}")
    if path.suffix == ".npy":
        return Features.of(path)
    shown = choose(progress)
    with naming(path):
        match path.suffix:
            case ".fvecs" | ".bvecs":
                return map_vectors(path, shown)
            case ".vec" | ".txt":
                return read_text(path, shown)
            case ".hdf5" | ".h5":
                return read_hdf5(path, "train" if key is None else key, shown)
            case ".safetensors":
                return read_safetensors(path, key, shown)
            case ".parquet":
                return read_parquet(path, column, names, shown)
            case _:
                readable = ".npy, .fvecs, .bvecs, .vec, .txt, .hdf5, .h5, .safetensors and .parquet"
                raise ValueError(f"the suffix {path.suffix!r} is not one that can be read: {readable}")


def rows_of(source: Source | Features, progress: ShowProgress = None) -> Features:
    """What a model is built over: an (n, d) array, the path of a file that `read` knows, or `Features` as they are."""
    return read(source, progress=progress) if isinstance(source, str | PathLike) else Features.of(source)


def unit_rows(path: FilePath, *, progress: ShowProgress = None) -> Features:
    """The rows of a file, scaled to length one in memory: sentence embeddings kept as int8, or SIFT."""
    features = read(path, progress=progress)
    with naming(Path(path)):
        return features.unit_norm()
