"""Models whose rows outgrow one machine, or one process: split into shards, asked as one (extra `ray` for clusters)."""

from lazygumbel.sharded.distribution import ShardedDistribution
from lazygumbel.sharded.model import ShardedModel
from lazygumbel.sharded.requests import Health, ShardError

__all__ = ["Health", "ShardError", "ShardedDistribution", "ShardedModel"]
