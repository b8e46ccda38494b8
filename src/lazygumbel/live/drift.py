"""How far the rows have moved from those that the index was built over, and what it costs."""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from lazygumbel.indexes import PartitionIndex
from lazygumbel.live.rows import Live

__all__ = ["Drift", "drift_of"]

_PART = 0.1
"""Of the time of a draw, that every part beyond the first adds: an estimate."""
_COMPACT_FROM, _REBUILD_FROM = 1.1, 1.2


@dataclass(frozen=True)
class Drift:
    """What has changed since the build, or since the last `compact`; and since cells were trained."""

    rows: int
    ids: int
    """Ids given so far."""
    parts: int
    added: int
    """Since the last `compact`."""
    removed: int
    dead_share: float
    """Of the rows that are stored."""
    residuals: float
    """Root mean squared residual of the rows that came since cells were trained over that of the rows that they were
    trained on; 1 without cells or such rows."""
    largest_cell: float
    """Share of the rows in the largest cell over that when cells were trained."""
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
    share, residuals, largest = _drifted(live)
    scan = stored / snapshot.n * (1 + _PART * (len(snapshot.parts) - 1))
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


def _drifted(live: Live) -> tuple[float, float, float]:
    """The share of rows that came since cells were trained, their residuals against those of the build, and the growth
    of the largest cell."""
    built, snapshot = live.built, live.snapshot
    if built is None:
        return 0.0, 1.0, 1.0
    now, largest = built.among(live.base, snapshot.parts)
    residuals = sqrt(now.spread / max(now.variance, 1e-30)) if now.came else 1.0
    return now.came / snapshot.n, residuals, largest / built.largest


def _calibration(live: Live) -> str | None:
    """How much has changed since it was made, and whether draws still follow it."""
    base = next((part for part in live.snapshot.parts if part.ids is live.base.ids), live.base)
    index = base.index
    measured = len(base.ids)
    if isinstance(index, PartitionIndex) and index.calibration is not None:
        words = f"holds: {live.added:,} rows were added to the {measured:,} that it was made on"
        return f"{words}; draws of these are bounded"
    if base.set_aside is None:
        return None
    gone, target = measured - base.count, base.set_aside.tv
    return (
        f"set aside: {gone:,} of the {measured:,} rows that it was made on were removed ({gone / measured:.2%}) and "
        f"{live.added:,} added, so that its target, a mean total variation of {target:g}, is no longer assured. Draws "
        "are bounded; compact() and calibrate() again"
    )
