"""How far an answer can be trusted, and why: a label for each theta, and the reason for it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats

__all__ = [
    "EXACT",
    "HEURISTIC",
    "Grounds",
    "Label",
    "Labels",
    "Reason",
    "grounds",
    "grounds_by_bound",
    "grounds_of",
    "weakest",
]

Label = Literal["exact", "bounded", "calibrated", "heuristic"]
"""exact: no approximation but rounding. bounded: a theorem bounds the error of this answer. calibrated: the mean error
over thetas like those of a calibration was measured to meet a target. heuristic: none of these."""
Labels = npt.NDArray[np.str_]
"""One a theta."""
Grounds = npt.NDArray[np.int8]
"""One a theta: the code of the reason for its label."""

_LABELS: tuple[Label, ...] = ("exact", "bounded", "calibrated", "heuristic")


class Reason(StrEnum):
    """Why an answer has its label, in a few words. Each belongs to one label.

    They stand in the order of their labels, so that of two reasons the one with the larger code gives the weaker claim.
    """

    label: Label
    code: int

    def __new__(cls, words: str, label: Label) -> "Reason":
        """A string that knows its label, and its place."""
        member = str.__new__(cls, words)
        member._value_, member.label, member.code = words, label, len(cls.__members__)
        return member

    EVERY_ROW = "every row was scored", "exact"
    DENSE_PASS = "dense pass: quicker than a race here", "exact"
    SURE_CEILINGS = "ceilings that cannot be too low", "exact"
    NONE_MISSED = "no row can have been missed", "exact"
    SAYS_EXACT = "exact by its method's word", "exact"
    CEILINGS = "ceilings hold with probability 1 - delta", "bounded"
    UNLIKE = "unlike the thetas of the calibration: a race over all codes", "bounded"
    WEIGHED = "rows sampled by their codes, weighed by what they are", "bounded"
    RARELY_MISSED = "codes miss a row with small probability", "bounded"
    BUDGET = "the paper's budget for this error, over an exact top k", "bounded"
    SAYS_BOUNDED = "bounded by its method's word", "bounded"
    LIKE = "like the thetas of the calibration", "calibrated"
    SAYS_CALIBRATED = "calibrated by its method's word", "calibrated"
    NO_BUDGET = "k and l were chosen without a theorem", "heuristic"
    INDEX = "the index may have missed a row", "heuristic"
    NO_TAIL = "rows outside the top k are left out", "heuristic"
    CUT = "where a truncation cuts was estimated", "heuristic"
    SHARED_NOISE = "all answers share the same noise", "heuristic"
    SHARD_MISSING = "a shard is missing", "heuristic"
    SAYS_HEURISTIC = "its method claims nothing", "heuristic"


REASONS = tuple(Reason)
"""By code."""
LAST_EXACT = Reason.SAYS_EXACT.code
LABEL_OF: Labels = np.array([reason.label for reason in REASONS])
WORDS_OF: Labels = np.array([str(reason) for reason in REASONS])
_OWN = {reason.label: reason.code for reason in REASONS if reason.name.startswith("SAYS_")}

EXACT: Grounds = np.array(Reason.EVERY_ROW.code, dtype=np.int8)
"""For answers by way of every row."""
HEURISTIC: Grounds = np.array(Reason.SAYS_HEURISTIC.code, dtype=np.int8)
"""For methods that claim nothing."""


def grounds(reasons: Iterable[Reason]) -> Grounds:
    """The grounds of a batch, one reason a theta."""
    return np.array([reason.code for reason in reasons], dtype=np.int8)


def grounds_by_bound(bound: Floats, unbounded: Reason) -> Grounds:
    """The grounds of what may have missed rows, by a bound of the probability; not a number where there is none."""
    unsure = np.where(np.isnan(bound), unbounded.code, Reason.RARELY_MISSED.code)
    return np.asarray(np.where(bound == 0.0, Reason.NONE_MISSED.code, unsure), dtype=np.int8)


def grounds_of(labels: Labels) -> Grounds:
    """The grounds of methods that give labels without reasons, in their shape."""
    codes = [_OWN[cast("Label", label)] for label in labels.reshape(-1).tolist()]
    return np.array(codes, dtype=np.int8).reshape(labels.shape)


def weakest(labels: Iterable[str]) -> Label:
    """The weakest of some labels."""
    return _LABELS[max((_LABELS.index(cast("Label", label)) for label in labels), default=0)]
