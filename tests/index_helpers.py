"""One build of every kind of index."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lazygumbel import (
    ExactIndex,
    FaissIndex,
    Features,
    Index,
    LSHIndex,
    PartitionIndex,
)

Rows = npt.NDArray[np.float32]
Build = Callable[[Features], Index]


def faiss_of(rows: Rows, index) -> object:
    """A FAISS index that holds these rows."""
    index.add(rows)
    return index


BUILDS: dict[str, Build] = {
    "exact": ExactIndex.build,
    "partition": lambda f: PartitionIndex.build(f, cells=20, rng=0),
    "partition, coarse": lambda f: PartitionIndex.build(f, cells=3, coordinates=(4, 4), rng=0),
    "lsh": lambda f: LSHIndex.build(f, tables=8, rng=0),
    "hnsw": lambda f: FaissIndex.build(f, "HNSW16"),
    "ivf": lambda f: FaissIndex.build(f, "IVF16,Flat", parameters="nprobe=8"),
    "flat": lambda f: FaissIndex.build(f, "Flat"),
}
