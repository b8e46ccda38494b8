"""Indexes: structures built once over the rows that find the largest inner products."""

from lazygumbel.indexes.base import Index, SavedIndex
from lazygumbel.indexes.exact import ExactIndex

__all__ = ["ExactIndex", "Index", "SavedIndex"]
