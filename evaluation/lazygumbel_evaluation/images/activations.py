"""`imagenet`: features of images as the paper makes them from the activations of a residual network.

Activation maps are averaged over space, reduced by a PCA and scaled to length one. The files are read twice, once for
the covariance and once to project, so that neither the maps nor their averages are ever held at once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats
from lazygumbel._support.checks import check_count
from lazygumbel.datasets.opening import BLOCK_BYTES, FilePath, naming
from lazygumbel.progress import Progress, ShowProgress, choose
from lazygumbel.rows.features import Features

__all__ = ["imagenet"]


class _File(NamedTuple):
    path: Path
    images: int
    single: bool
    """Whether the file holds one image and no axis to count them."""


class _Axes(NamedTuple):
    mean: Floats
    """The average image, (channels,)."""
    basis: Floats
    """The directions of largest variance, (channels, d)."""


def imagenet(folder: FilePath, *, d: int = 256, progress: ShowProgress = None) -> Features:
    """Rows of length one, (n, d), from the `.npy` files of a folder, in the order of their names.

    A file holds the map of one image, (7, 7, 2048), or of several, (m, 7, 7, 2048): any square map and any number of
    channels, which may also come first, as in (m, 2048, 7, 7). Maps averaged already, (2048,) or (m, 2048), do as
    well. A row is named by its file without the suffix, followed in files of several by a colon and its place there.
    """
    d, progress = check_count(d, "d"), choose(progress)
    files, channels = _scan(Path(folder), progress)
    n = sum(file.images for file in files)
    if d > min(channels, n - 1):
        raise ValueError(f"d is {d}, but {n} images of {channels} channels have at most {min(channels, n - 1)} axes")
    axes = _principal_axes(files, channels, d, progress)
    names = list(_names(files))
    rows = np.empty((n, d), dtype=np.float32)
    start = 0
    with progress.task("projecting images", n) as task:
        for block in _averages(files, channels):
            projected = (block - axes.mean) @ axes.basis
            norms = np.linalg.norm(projected, axis=1, keepdims=True)
            lost = np.flatnonzero(norms <= 1e-12 * np.linalg.norm(axes.mean))
            if len(lost):
                raise ValueError(f"folder: {names[start + lost[0]]} is the average image, which has no direction")
            rows[start : start + len(block)] = projected / norms
            start += len(block)
            task.advance(len(block))
    return Features.of(rows, names=names)


def _scan(folder: Path, progress: Progress) -> tuple[list[_File], int]:
    """The files and their number of channels, from the headers alone: bad files are refused before any work."""
    if not folder.is_dir():
        raise ValueError(f"folder: there is no folder {folder}")
    paths = sorted(folder.glob("*.npy"))
    if not paths:
        raise ValueError(f"folder: {folder} holds no .npy files")
    files: list[_File] = []
    channels = 0
    with progress.task("checking files", len(paths)) as task:
        for path in paths:
            with naming(path, "folder"):
                array = _map_npy(path)
                maps = _maps(array)
                channels = channels or maps.shape[-1]
                if maps.shape[-1] != channels:
                    raise ValueError(f"{maps.shape[-1]} channels, but {paths[0].name} has {channels}")
            files.append(_File(path, len(maps), single=array.ndim in (1, 3)))
            task.advance(1)
    return files, channels


def _map_npy(path: Path) -> npt.NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except TokenError as error:  # from a header that is no Python
        raise ValueError(str(error)) from error


def _maps(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view of the activations of a file as (images, height, width, channels)."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise ValueError(f"activations may be float16, float32 or float64, not {array.dtype}")
    if 0 in array.shape:
        raise ValueError(f"there are no activations in shape {array.shape}")
    match array.shape:
        case (_,):
            return array[None, None, None, :]
        case (_, _):
            return array[:, None, None, :]
        case (*_, a, b, c) if len(array.shape) <= 4 and (a == b) != (b == c):
            maps = array if array.ndim == 4 else array[None]
            return maps if a == b else np.moveaxis(maps, 1, 3)
        case shape:
            raise ValueError(
                f"shape {shape} is none of (7, 7, 2048), (m, 7, 7, 2048), (2048, 7, 7), (m, 2048, 7, 7), (2048,) and "
                "(m, 2048), for any square map that is told from the channels"
            )


def _averages(files: Sequence[_File], channels: int) -> Iterator[Floats]:
    """Averages over space of all images in order, as blocks that are overwritten when the next is asked for.

    A block runs across files: there may be one image in each, and products of single rows are slow.
    """
    block = np.empty((max(1, BLOCK_BYTES // (8 * channels)), channels))
    filled = 0
    for file in files:
        with naming(file.path, "folder"):
            maps = _maps(_map_npy(file.path))
        start = 0
        while start < file.images:
            stop = min(start + len(block) - filled, file.images)
            part = block[filled : filled + stop - start]
            with np.errstate(over="ignore", invalid="ignore"):  # refused by name below
                np.mean(maps[start:stop], axis=(1, 2), dtype=np.float64, out=part)
            bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
            if len(bad):
                raise ValueError(f"folder: {file.path}: NaN or infinity in image {start + bad[0]}")
            filled += len(part)
            start = stop
            if filled == len(block):
                yield block
                filled = 0
    if filled:
        yield block[:filled]


def _principal_axes(files: Sequence[_File], channels: int, d: int, progress: Progress) -> _Axes:
    n = sum(file.images for file in files)
    origin = np.zeros(channels)
    total, products = np.zeros(channels), np.zeros((channels, channels))
    with progress.task("covariance of the channels", n) as task:
        for number, block in enumerate(_averages(files, channels)):
            if number == 0:
                origin = block.mean(axis=0)  # close to the mean, so that its square does not drown the variances
            shifted = block - origin
            total += shifted.sum(axis=0)
            products += shifted.T @ shifted
            task.advance(len(block))
    offset = total / n
    mean = origin + offset
    values, vectors = np.linalg.eigh(products / n - np.outer(offset, offset))
    # What rounding leaves of a variance of zero: that of the sums, or of the averages themselves.
    precision = float(np.finfo(np.float64).eps)
    rank = int(np.sum(values > channels * precision * max(values[-1], precision * float(mean @ mean))))
    if d > rank:
        raise ValueError(f"d is {d}, but the images differ in {rank} directions only")
    basis = vectors[:, ::-1][:, :d]
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(d)]
    return _Axes(mean, basis * np.sign(largest))  # an axis has no sign of its own: the largest entry is positive


def _names(files: Sequence[_File]) -> Iterator[str]:
    for file in files:
        if file.single:
            yield file.path.stem
        else:
            yield from (f"{file.path.stem}:{i}" for i in range(file.images))
