"""Rows of a file scaled to length one, as the paper takes all its data."""

from pathlib import Path

from lazygumbel.datasets.files import read
from lazygumbel.datasets.opening import FilePath, naming
from lazygumbel.progress import ShowProgress
from lazygumbel.rows.features import Features

__all__ = ["photos", "unit_rows"]


def unit_rows(path: FilePath, *, progress: ShowProgress = None) -> Features:
    """The rows of a file for `read`, scaled to length one in memory: sentence embeddings kept as int8, say."""
    features = read(path, progress=progress)
    with naming(Path(path)):
        return features.unit_norm()


def photos(path: FilePath, *, progress: ShowProgress = None) -> Features:
    """Descriptors of images (a `.npy` of uint8 SIFT rows, or any file for `read`): their `unit_rows`."""
    return unit_rows(path, progress=progress)
