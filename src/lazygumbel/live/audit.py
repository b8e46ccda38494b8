"""The audit of a race over several parts: it is one race over all of their rows."""

from typing import cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats
from lazygumbel.distribution import Exclude, exclusions
from lazygumbel.guarantees.audit import Audit, race_distance
from lazygumbel.live.segment import Segment
from lazygumbel.live.snapshot import Snapshot
from lazygumbel.methods import Query, Raced, Sampler
from lazygumbel.methods.defaults import default_sampler

__all__ = ["audit_parts", "check_raced", "raced"]


def audit_parts(
    snapshot: Snapshot, thetas: npt.ArrayLike, temperature: float, method: Sampler | None, exclude: Exclude = None
) -> Audit:
    """Total variation distance of draws from the softmax over all rows, with the ceilings of each part."""
    check_raced(method, "model.settled()")
    batch = np.atleast_2d(np.asarray(thetas))
    drawn = snapshot(batch, temperature).sample(1, method=method, rng=0, exclude=exclude)
    left_out = None if exclude is None else exclusions(exclude, batch.shape[:1], snapshot.size)
    logits: list[list[Floats]] = [[] for _ in batch]
    ceilings: list[list[Floats]] = [[] for _ in batch]
    for part in snapshot.parts:
        for b, (mine, limits) in enumerate(raced(part, batch, temperature, method)):
            left = slice(None) if left_out is None else ~np.isin(part.ids[part.kept], left_out[b])
            logits[b].append(mine[left])
            ceilings[b].append(limits[left])
    joined = [(np.concatenate(a), np.concatenate(c)) for a, c in zip(logits, ceilings, strict=True)]
    distance = np.array([race_distance(*pair) for pair in joined])
    violations = np.array([int((mine > limits).sum()) for mine, limits in joined], dtype=np.int64)
    return Audit.of_race(repr(method or "the default of each part"), temperature, distance, drawn, violations)


def check_raced(method: Sampler | None, cure: str) -> None:
    """Refuse methods whose audit needs all rows at once."""
    if not (method is None or isinstance(method, Raced)):
        raise ValueError(
            f"method: {method!r} cannot be audited while the rows of the model lie in several parts; audit {cure}, or "
            "Bounded and Exhaustive"
        )


def raced(
    part: Segment, thetas: npt.NDArray[np.generic], temperature: float, method: Sampler | None
) -> list[tuple[Floats, Floats]]:
    """Logits and ceilings of the rows of a part for each theta; ceilings are infinite where every row is scored."""
    query = Query.of(part.shown, thetas, temperature)
    chosen = cast("Raced", part.method(method) or default_sampler(part.shown))  # of both indexes all defaults are
    labels = chosen.sample(query, 1, np.random.default_rng(0)).labels
    found: list[tuple[Floats, Floats]] = []
    for b in range(query.size):
        one = query.at(slice(b, b + 1))
        by_place = np.empty(len(part.ids))
        for block in one.dense():
            by_place[block.ids] = block.logits[0]
        limits = np.full(len(part.ids), np.inf)
        if labels[b] != "exact":
            limits = chosen.ceilings(one, b)
        found.append((by_place[part.kept], limits[part.kept]))
    return found
