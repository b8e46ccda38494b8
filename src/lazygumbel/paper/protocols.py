"""Which vectors serve as thetas: rows that were held out of the index, or rows that are in it, as in the paper.

A theta that is a row has one row, itself, that often outweighs all others; thetas of use are seldom rows. So both are
measured, and those that are not rows come first.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lazygumbel.features import Features

__all__ = ["HELD_OUT", "PROTOCOLS", "HeldOut", "Protocol", "hold_out", "printed"]

Protocol = Literal["held-out", "row"]
PROTOCOLS: dict[Protocol, str] = {"held-out": "held-out thetas", "row": "theta a row (the paper's protocol)"}
"""What each is called in the report, in the order in which they are shown."""
HELD_OUT = 100
"""Rows that are held out: as many as any experiment has thetas."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that are in no index."""

    ids: npt.NDArray[np.int64]
    """Where they were in the data, (T,)."""
    rows: npt.NDArray[np.float32]
    """(T, d)."""
    names: npt.NDArray[np.str_]
    """What each is called, (T,)."""


def hold_out(features: Features, rng: np.random.Generator) -> tuple[Features, HeldOut]:
    """All rows but `HELD_OUT` random ones, numbered anew, and those."""
    ids = rng.choice(features.n, HELD_OUT, replace=False)
    kept = np.delete(np.arange(features.n), ids)
    given = features.names
    names = None if given is None else [given[i] for i in kept.tolist()]
    called: list[str] = [f"row {i}" if given is None else given[i] for i in ids.tolist()]
    return Features.of(features.gather(kept), names=names), HeldOut(ids, features.gather(ids), np.array(called))


def printed(protocol: Protocol, text: str) -> str:
    """A number of the paper's beside one of this run: where thetas are held out, the two are not of a kind."""
    return text if protocol == "row" else f"{text} (theta a row)"
