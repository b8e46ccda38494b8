"""How far the rows have moved from those that the index was built over, and what it costs."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel.indexes import PartitionIndex
from lazygumbel.indexes.partition.kmeans import assign_cells
from lazygumbel.live.rows import Live
from lazygumbel.progress import Silent
from lazygumbel.rows.features import Features

__all__ = ["Drift", "drift_of"]

_SAMPLE = 20_000
"""New rows by which drift is judged."""
_PART = 0.1
"""Of the time of a draw, that every part beyond the first adds: an estimate."""
_COMPACT_FROM, _REBUILD_FROM = 1.1, 1.2


@dataclass(frozen=True)
class Drift:
    """What has changed since the build, or since the last `compact`."""

    rows: int
    ids: int
    """Ids given so far."""
    parts: int
    added: int
    removed: int
    dead_share: float
    """Of the rows that are stored."""
    residuals: float
    """Root mean squared residual of new rows over that of the build; 1 without cells or new rows."""
    largest_cell: float
    """Share of the rows in the largest cell over that at the build."""
    scan: float
    """Estimated time of a draw, in units of that after `compact`."""
    cells: float
    """And after that, in units of that after `compact(rebuild=True)`."""
    advice: str
    calibration: str | None
    """What has become of it; None without one."""

    def facts(self) -> dict[str, Any]:
        """For tables and JSON."""
        return asdict(self)


def drift_of(live: Live) -> Drift:
    """Measured on a snapshot; nothing is decided."""
    snapshot = live.snapshot
    stored = sum(len(part.ids) for part in snapshot.parts)
    residuals, largest = _residuals(live)
    scan = stored / snapshot.n * (1 + _PART * (len(snapshot.parts) - 1))
    share = 1 - sum(part.count for part in snapshot.parts if part.ids is live.base.ids) / snapshot.n
    # Codes of longer residuals are as much wider; rows of a cell that grew are told apart less well.
    cells = 1 + share * max(residuals - 1, 0.0) + 0.1 * max(largest - 2, 0.0)
    advice = "nothing to gain"
    if cells > _REBUILD_FROM:
        advice = f"compact(rebuild=True) would make draws about {1 - 1 / (scan * cells):.0%} quicker"
    elif scan > _COMPACT_FROM:
        advice = f"compact() would make draws about {1 - 1 / scan:.0%} quicker"
    return Drift(
        snapshot.n,
        snapshot.size,
        len(snapshot.parts),
        live.added,
        live.removed,
        1 - snapshot.n / stored,
        residuals,
        largest,
        scan,
        cells,
        advice,
        _calibration(live),
    )


def _calibration(live: Live) -> str | None:
    """How much has changed since it was made, and whether draws still follow it."""
    base = next((part for part in live.snapshot.parts if part.ids is live.base.ids), live.base)
    index = base.index
    measured = len(base.ids)
    if isinstance(index, PartitionIndex) and index.calibration is not None:
        return f"holds: {live.added:,} rows were added to the {measured:,} that it was made on, which only dilutes it"
    if base.set_aside is None:
        return None
    gone, target = measured - base.count, base.set_aside.tv
    return (
        f"set aside: {gone:,} of the {measured:,} rows that it was made on were removed ({gone / measured:.2%}) and "
        f"{live.added:,} added, so that its target, a mean total variation of {target:g}, is no longer assured. Draws "
        "are bounded; compact() and calibrate() again"
    )


def _residuals(live: Live) -> tuple[float, float]:
    """Of new rows against those of the build, and the growth of the largest cell."""
    index = live.base.index
    new = [part for part in live.snapshot.parts if part.ids is not live.base.ids]
    if not isinstance(index, PartitionIndex) or not new:
        return 1.0, 1.0
    counts = np.diff(index.partition.offsets).astype(np.float64)
    built = float(index.partition.variances @ counts / counts.sum())
    rng, total = np.random.default_rng(0), sum(part.count for part in new)
    some: list[npt.NDArray[np.float32]] = []
    for part in new:
        take = min(part.count, max(1, _SAMPLE * part.count // total))
        some.append(part.index.features.gather(np.sort(rng.choice(part.kept, take, replace=False))))
    rows, means = np.concatenate(some), index.partition.means
    cell_of = assign_cells(Features(rows), means, Silent())
    mean_square = float(np.square(rows - means[cell_of], dtype=np.float64).sum(axis=1).mean())
    held = sum(part.count for part in live.snapshot.parts if part.ids is live.base.ids)
    grown = counts / counts.sum() * held + np.bincount(cell_of, minlength=len(means)) * (total / len(rows))
    largest = float(grown.max() / grown.sum() / (counts.max() / counts.sum()))
    return float(np.sqrt(mean_square / max(built, 1e-30))), largest
