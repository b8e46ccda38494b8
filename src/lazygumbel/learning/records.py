"""What a fit records on its way and returns, or raises with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats, Ints

__all__ = ["Diverged", "Fit", "History", "Interrupted", "Record"]


class Record(NamedTuple):
    """What is known at a checkpoint."""

    iteration: int
    log_likelihood: float
    """Exact: the (weighted) mean over the rows to be learnt, without the penalty."""
    gradient_norm: float
    """Of the gradient as the method estimates it here."""
    rows: int
    """How many rows the steps up to here have scored."""
    seconds: float
    """Time that the steps up to here took."""
    theta: Floats


@dataclass(frozen=True, eq=False)
class History:
    """The records of all checkpoints but for their thetas, an array for each column."""

    iteration: Ints
    log_likelihood: Floats
    gradient_norm: Floats
    rows: Ints
    seconds: Floats

    @classmethod
    def of(cls, records: Sequence[Record]) -> "History":
        """The columns of some records, read-only."""
        history = cls(
            np.array([record.iteration for record in records], dtype=np.int64),
            np.array([record.log_likelihood for record in records], dtype=np.float64),
            np.array([record.gradient_norm for record in records], dtype=np.float64),
            np.array([record.rows for record in records], dtype=np.int64),
            np.array([record.seconds for record in records], dtype=np.float64),
        )
        for column in vars(history).values():
            column.flags.writeable = False
        return history

    def __len__(self) -> int:
        return len(self.iteration)


@dataclass(frozen=True, eq=False)
class Fit:
    """What was learnt: theta (d,), its exact log-likelihood, the checkpoints, and the rows that all steps scored."""

    theta: Floats
    log_likelihood: float
    history: History
    rows: int


class Diverged(ArithmeticError):
    """Steps were too long. `fit` ends at the last checkpoint that was still good."""

    def __init__(self, message: str, fit: Fit) -> None:
        super().__init__(message)
        self.fit = fit


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. `fit` holds the theta after the last whole step, and so does the checkpoint file."""

    def __init__(self, message: str, fit: Fit) -> None:
        super().__init__(message)
        self.fit = fit
