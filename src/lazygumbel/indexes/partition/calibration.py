"""What was measured of one ceiling a cell: how high it has to be, and for which thetas."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.kernels.types import Outlook

__all__ = ["Calibration", "features_of"]


@dataclass(frozen=True)
class Calibration:
    """Cells expected to be far below Z have one ceiling, `far` standard deviations above the mean logit of their rows.

    `low` and `high` are the ranges of |theta| / temperature, of the best cell's score and of `pooled_sd`,
    both over |theta|, that were calibrated on.
    """

    far: float
    low: tuple[float, float, float]
    high: tuple[float, float, float]
    tv: float
    """What the mean total variation distance was to be at most."""
    mean: float
    """Of thetas that were left out of the fit; likewise the largest, and a bound of the mean that holds at 95%."""
    largest: float
    upper: float
    thetas: int
    """How many were left out."""
    speed_up: float
    """Of a draw, over one by all codes."""

    @cached_property
    def known(self) -> Floats:
        """Both ranges, as kernels take them, (2, 3)."""
        return np.array([self.low, self.high])

    @property
    def accepted(self) -> bool:
        """Whether draws by it meet the target, and are quicker."""
        return self.upper <= self.tv and self.speed_up > 1.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Calibration":
        """What `to_dict` gave."""
        ranges: dict[str, Any] = {name: tuple(map(float, saved[name])) for name in ("low", "high")}
        return cls(**(saved | ranges))

    def __str__(self) -> str:
        found = f"mean total variation {self.mean:.2g}, largest {self.largest:.2g} on {self.thetas} thetas left out"
        if self.upper > self.tv:
            return f"not accepted: {found}; the mean may be {self.upper:.2g}, above the {self.tv:.2g} asked for"
        if self.speed_up <= 1.0:
            return f"not accepted: {found}, but draws are no quicker ({self.speed_up:.2f} times)"
        return f"accepted: {found}, at most {self.upper:.2g} in the mean; draws are {self.speed_up:.1f} times as quick"


def features_of(scale: float, norm: float, outlook: Outlook) -> tuple[float, float, float]:
    """What thetas are told apart by."""
    return scale, outlook.best / max(norm, 1e-30), outlook.pooled_sd / max(norm, 1e-30)
