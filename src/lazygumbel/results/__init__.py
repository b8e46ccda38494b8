"""What comes back: immutable records that report their work (`rows`), say how far to trust them and why, and merge.

Merging two answers over disjoint sets of rows gives the answer over their union: the larger perturbed value wins a
draw, partition functions add, expectations average by weight, top-k lists interleave. So blocks, threads and shards
are one `functools.reduce`. Merging is associative, up to rounding in the estimates.
"""

from lazygumbel.results.base import Naming, Result, numbers
from lazygumbel.results.draws import Draws
from lazygumbel.results.estimate import Estimate
from lazygumbel.results.frames import make_frame
from lazygumbel.results.moments import Moments
from lazygumbel.results.ordered import OrderedDraws
from lazygumbel.results.reasons import (
    EXACT,
    HEURISTIC,
    Grounds,
    Label,
    Labels,
    Reason,
    grounds,
    grounds_by_bound,
    grounds_of,
    weakest,
)
from lazygumbel.results.top import Mode, TopK

__all__ = [
    "EXACT",
    "HEURISTIC",
    "Draws",
    "Estimate",
    "Grounds",
    "Label",
    "Labels",
    "Mode",
    "Moments",
    "Naming",
    "OrderedDraws",
    "Reason",
    "Result",
    "TopK",
    "grounds",
    "grounds_by_bound",
    "grounds_of",
    "make_frame",
    "numbers",
    "weakest",
]
