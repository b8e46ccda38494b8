"""Indexes: structures built once over the rows that find the largest inner products."""

from lazygumbel.indexes.base import Index, SavedIndex
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.indexes.faiss import FaissIndex
from lazygumbel.indexes.lsh import LSHIndex
from lazygumbel.indexes.partition import PartitionIndex

__all__ = ["ExactIndex", "FaissIndex", "Index", "LSHIndex", "PartitionIndex", "SavedIndex"]
