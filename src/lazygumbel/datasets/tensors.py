"""`.hdf5` and `.safetensors`: one matrix out of a file of several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lazygumbel._support.extras import require
from lazygumbel.datasets.opening import BLOCK_BYTES, check_promise, pick
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["read_hdf5", "read_safetensors"]

_TENSOR_DTYPES = ("F16", "F32", "F64", "I8", "U8", "I16", "U16", "BOOL")


def read_hdf5(path: Path, key: str, progress: Progress) -> Features:
    """Rows of an HDF5 file: the matrix of this name."""
    h5py: Any = require("h5py", extra="data")
    matrices: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim == 2:
            matrices.append(name)

    with h5py.File(path, "r") as file:
        file.visititems(note)
        dataset = file[pick(key, matrices, "matrices", "key")]
        if dataset.external or dataset.is_virtual:
            raise ValueError(
                f"the rows of {dataset.name!r} lie in other files, which are not read; copy them into this"
            )
        check_promise(path, dataset.size)
        return _copy_rows(dataset, dataset.shape, progress)


def read_safetensors(path: Path, key: str | None, progress: Progress) -> Features:
    """Rows of a safetensors file: the matrix of this name, or the only one."""
    safetensors: Any = require("safetensors", extra="data")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors: dict[str, Any] = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # a file, not a dict
            matrices = [name for name, tensor in tensors.items() if len(tensor.get_shape()) == 2]
            tensor = tensors[pick(key, matrices, "matrices", "key")]
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
    step = max(1, BLOCK_BYTES // rows[:1].nbytes)
    with progress.task("reading rows", len(rows)) as task, np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            stop = min(start + step, len(rows))  # safetensors refuses slices past the end
            rows[start:stop] = source[start:stop]
            task.advance(stop - start)
    return Features.of(rows)
