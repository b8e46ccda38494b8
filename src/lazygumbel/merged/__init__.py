"""One distribution over several disjoint sets of rows: segments of live rows, shards."""

from lazygumbel.merged.distribution import MergedDistribution

__all__ = ["MergedDistribution"]
