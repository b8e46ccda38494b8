"""Rows that come and go: immutable segments, snapshots of them, and the one writer that replaces the snapshot."""

from lazygumbel.live.audit import audit_parts, check_raced, raced
from lazygumbel.live.drawing import LiveDistribution
from lazygumbel.live.drift import Drift, drift_of
from lazygumbel.live.features import LiveFeatures, LiveNames
from lazygumbel.live.journal import Log, packed_size, read_changes
from lazygumbel.live.rows import Live, first_segment
from lazygumbel.live.segment import Segment
from lazygumbel.live.snapshot import Snapshot

__all__ = [
    "Drift",
    "Live",
    "LiveDistribution",
    "LiveFeatures",
    "LiveNames",
    "Log",
    "Segment",
    "Snapshot",
    "audit_parts",
    "check_raced",
    "drift_of",
    "first_segment",
    "packed_size",
    "raced",
    "read_changes",
]
