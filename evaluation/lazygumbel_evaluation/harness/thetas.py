"""Which vectors serve as thetas: the user's own or rows held out of the index; and rows of it, as in the paper.

A theta that is a row has one row, itself, that often outweighs all others; thetas of use are seldom rows. So both are
measured, and those that are not rows come first.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lazygumbel.rows.features import Features

__all__ = ["MOST_THETAS", "Protocol", "Thetas", "choose", "hold_out", "protocols"]

Protocol = Literal["held-out", "given", "row"]
_CALLED: dict[Protocol, str] = {
    "held-out": "held-out thetas",
    "given": "given thetas",
    "row": "theta a row (the paper's protocol)",
}
MOST_THETAS = 100
"""As many as any experiment has: so many rows are held out."""


@dataclass(frozen=True, eq=False)
class Thetas:
    """Thetas that are in no index."""

    rows: npt.NDArray[np.float32]
    """(T, d)."""
    names: npt.NDArray[np.str_]
    """What each is called, (T,)."""
    held_out: npt.NDArray[np.int64]
    """Where they were in the data, (T,); empty if they were not."""


def protocols(*, given: bool) -> dict[Protocol, str]:
    """What the two protocols of a run are called, in the order in which they are shown."""
    leading: Protocol = "given" if given else "held-out"
    return {leading: _CALLED[leading], "row": _CALLED["row"]}


def hold_out(features: Features, rng: np.random.Generator) -> tuple[Features, Thetas]:
    """All rows but `MOST_THETAS` random ones, numbered anew, and those."""
    ids = rng.choice(features.n, MOST_THETAS, replace=False)
    kept = np.delete(np.arange(features.n), ids)
    names = None if features.names is None else [features.names[i] for i in kept.tolist()]
    return Features.of(features.gather(kept), names=names), Thetas(
        features.gather(ids), _called(features, ids, "row"), ids
    )


def choose(features: Features, rng: np.random.Generator) -> Thetas:
    """Thetas of the user's: all of them, or `MOST_THETAS` random ones."""
    ids = np.sort(rng.choice(features.n, min(features.n, MOST_THETAS), replace=False))
    return Thetas(features.gather(ids), _called(features, ids, "theta"), np.empty(0, np.int64))


def _called(features: Features, ids: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.str_]:
    names = features.names
    return np.array([f"{kind} {i}" if names is None else names[i] for i in ids.tolist()])
