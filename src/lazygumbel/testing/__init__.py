"""Conformance kits for indexes and methods, those of third parties included; both compare *values* with brute force."""

from lazygumbel.testing.index import check_index
from lazygumbel.testing.method import check_method

__all__ = ["check_index", "check_method"]
