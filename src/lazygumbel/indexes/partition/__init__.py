"""`PartitionIndex`: cells, codes and bytes over rows that are stored cell by cell. The default for large n."""

from lazygumbel.indexes.partition.index import PartitionIndex

__all__ = ["PartitionIndex"]
