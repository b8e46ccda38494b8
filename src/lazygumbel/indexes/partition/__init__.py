"""`PartitionIndex`: cells, codes and bytes over rows that are stored cell by cell. The default for large n."""

from lazygumbel.indexes.partition.calibration import Calibration
from lazygumbel.indexes.partition.index import Entered, PartitionIndex

__all__ = ["Calibration", "Entered", "PartitionIndex"]
