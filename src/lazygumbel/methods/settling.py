"""From a scan to a race: rows that would be proposed again and again are scored, and race by their logits."""

from math import exp2, log

from lazygumbel import kernels
from lazygumbel.kernels.types import REFERENCE, Outlook, Run

__all__ = ["LN2", "set_reference", "settle"]

LN2 = log(2.0)
_HEAVY, _LOOSE = 8.0, 8.0
"""A row that is proposed so many times for a draw costs more than to score it; and how far the sum of all ceilings may
be taken to lie above Z: what is expected of Z does not know of rows that are excluded."""


def set_reference(run: Run, outlook: Outlook) -> float:
    """Turn the weights of a scan into rates, in units of exp2(reference); returns in these what Z is expected to be."""
    run.race.state[REFERENCE] = run.ceilings.shift
    expected = outlook.expected
    if run.ceilings.power != 1.0:
        expected = kernels.temper(run, outlook.low)
    return exp2(min(expected - float(run.race.state[REFERENCE]), 1000.0))


def settle(run: Run, outlook: Outlook, size: int = 1) -> bool:
    """Score every row that would be proposed again and again for so many draws; False if there are too many."""
    heavy = max(_HEAVY / max(size, 1), 1.0)
    least = min(set_reference(run, outlook), float(run.race.sums.sum()) / _LOOSE)
    return kernels.refine(run, least * heavy, True)
