"""One segment of the rows of several parts, under an index like that of the build."""

from collections.abc import Sequence

import numpy as np

from lazygumbel._support.threads import one_blas_thread
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.live.merging import merge_codes
from lazygumbel.live.segment import Segment
from lazygumbel.live.sources import Sources
from lazygumbel.progress import Progress

__all__ = ["merge", "rebuild"]


def merge(parts: Sequence[Segment], base: Segment, rng: np.random.Generator, progress: Progress) -> Segment:
    """In the cells of the build: rows that have codes keep them, the others are encoded."""
    sources = Sources.of(parts)
    if not isinstance(base.index, PartitionIndex):
        features = sources.stored(sources.ranks, progress)
        return Segment(ExactIndex(features), sources.ids, features.names)
    with one_blas_thread():  # several would wait for each other longer than these small products take
        index, cells = merge_codes(sources, base.index, rng, progress)
    return Segment(index, sources.ids, index.features.names, cells=cells)


def rebuild(parts: Sequence[Segment], rng: np.random.Generator, progress: Progress) -> Segment:
    """In cells that are trained on these rows."""
    sources = Sources.of(parts)
    features = sources.stored(sources.ranks, progress)
    return Segment(PartitionIndex.build(features, rng=rng, progress=progress), sources.ids, features.names)
