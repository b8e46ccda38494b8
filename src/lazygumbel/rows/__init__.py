"""Rows: the matrix, their names, and which of them are left out."""

from lazygumbel.rows.features import Features
from lazygumbel.rows.names import Names

__all__ = ["Features", "Names"]
