"""`.fvecs` and `.bvecs`, the files of the TEXMEX corpora: memory-mapped."""

from pathlib import Path

import numpy as np

from lazygumbel.datasets.opening import BLOCK_BYTES
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["map_vectors"]


def map_vectors(path: Path, progress: Progress) -> Features:
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
    step = max(1, BLOCK_BYTES // width)
    with progress.task("checking row lengths", len(records)) as task:
        for start in range(0, len(records), step):
            lengths = records["d"][start : start + step]
            wrong = np.flatnonzero(lengths != d)
            if len(wrong):
                raise ValueError(f"row {start + wrong[0]} has length {lengths[wrong[0]]}, but row 0 has {d}")
            task.advance(len(lengths))
    return Features.of(records["row"])
