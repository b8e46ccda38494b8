"""The audit of a race over all shards: each tells of its own rows what the distance over all of them needs.

Draws are of the softmax whose logits are cut at their ceilings. A row below its ceiling is drawn too often, if at all,
so that the total variation distance is a sum over the others: these few travel, and two sums over all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.guarantees.audit import Audit
from lazygumbel.live import check_raced, raced
from lazygumbel.methods import Sampler
from lazygumbel.methods.draw import log_sum_exp
from lazygumbel.model import LogLinear
from lazygumbel.results import Draws
from lazygumbel.rows.exclusions import Exclude, exclusions
from lazygumbel.sharded.places import ShardPlaces
from lazygumbel.sharded.requests import Request

__all__ = ["ShardAudit", "audit_of", "audit_shard", "check_raced", "left_out"]


@dataclass(frozen=True, eq=False)
class ShardAudit:
    """Of the rows of a shard at one theta."""

    log_z: float
    log_cut: float
    """The same with logits cut at their ceilings."""
    logits: Floats
    """That exceed their ceilings."""
    ceilings: Floats


def audit_shard(model: LogLinear, request: Request) -> list[ShardAudit]:
    """What a shard tells for each theta."""
    assert request.thetas is not None
    method: Sampler | None = request.arguments["method"]
    exclude: list[Ints] | None = request.arguments["exclude"]
    parts = [raced(part, request.thetas, request.temperature, method) for part in model.parts]
    ids = np.concatenate([part.ids[part.kept] for part in model.parts])
    found: list[ShardAudit] = []
    for b, of_theta in enumerate(zip(*parts, strict=True)):
        logits, ceilings = (np.concatenate(values) for values in zip(*of_theta, strict=True))
        if exclude is not None:
            left = ~np.isin(ids, exclude[b])
            logits, ceilings = logits[left], ceilings[left]
        over = logits > ceilings
        cut = log_sum_exp(np.minimum(logits, ceilings))
        found.append(ShardAudit(log_sum_exp(logits), cut, logits[over], ceilings[over]))
    return found


def left_out(places: ShardPlaces, exclude: Exclude, thetas: int) -> list[list[Ints] | None]:
    """For each shard its own ids of the rows that are excluded, theta by theta; checked when draws were asked for."""
    if exclude is None:
        return [None] * len(places.shards)
    found = [places.find(ids) for ids in exclusions(exclude, (thetas,), places.size)]
    return [[own[place == p] for place, own in found] for p in range(len(places.shards))]


def audit_of(shards: Sequence[Sequence[ShardAudit]], drawn: Draws, temperature: float, method: Sampler | None) -> Audit:
    """The audit of what all shards told, with labels and bounds of draws (B,)."""
    size = len(drawn.labels)
    distance, violations = np.zeros(size), np.zeros(size, dtype=np.int64)
    for b in range(size):
        told = [shard[b] for shard in shards]
        log_z = log_sum_exp(np.array([one.log_z for one in told]))
        log_cut = log_sum_exp(np.array([one.log_cut for one in told]))
        logits = np.concatenate([one.logits for one in told])
        ceilings = np.concatenate([one.ceilings for one in told])
        distance[b] = np.maximum(np.exp(logits - log_z) - np.exp(ceilings - log_cut), 0.0).sum()
        violations[b] = len(logits)
    return Audit.of_race(repr(method or "the default of each shard"), temperature, distance, drawn, violations)
