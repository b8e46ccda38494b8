"""Section 4.4 of the paper: gradient ascent on the likelihood of sixteen rows that belong together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Ints
from lazygumbel.indexes import ExactIndex
from lazygumbel.learning import Anchored, Diverged, fit
from lazygumbel.methods import Estimator
from lazygumbel.model import LogLinear
from lazygumbel.progress import Progress
from lazygumbel.rows.features import Features

__all__ = ["RATE", "Climb", "training_set"]


_WATERS = (
    *("river", "lake", "sea", "ocean", "stream", "creek", "pond", "bay"),
    *("lagoon", "canal", "reservoir", "estuary", "gulf", "marsh", "waterfall", "brook"),
)
"""The paper's sixteen images show water."""
RATE = 10.0
_HALVINGS = 5
"""The paper's learning rate for rows of length one, halved after every fifth of the iterations."""
_SHOWN = 10
_TICK = 1e-9
"""Of a climb that diverged at once: times are divided by."""
_CURVE = ("iteration", "log_likelihood", "rows", "seconds")


def training_set(features: Features, row: int) -> tuple[Ints, str | None]:
    """Ids of sixteen words about water and what they are; without such names, of a row and its nearest, and None."""
    if features.names is not None:
        try:
            return np.array([features.names.find(word) for word in _WATERS]), "sixteen words about water"
        except ValueError:
            pass  # other names: nothing is known about what they mean
    return ExactIndex(features).top_k(features.gather(row), len(_WATERS)).ids, None


@dataclass(frozen=True, eq=False)
class Climb:
    """The problem: rows that are to become likely, in so many iterations of the paper's procedure."""

    ids: Ints
    iterations: int

    def by(
        self,
        model: LogLinear,
        method: Anchored | Estimator,
        *,
        rng: np.random.Generator | int,
        checkpoint: Path | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Climb with the gradients of one method: what was reached, at which cost, and the curve."""
        try:
            found = fit(
                model,
                self.ids,
                method=method,
                learning_rate=RATE / self._mean_square(model),
                halve_every=max(1, self.iterations // _HALVINGS),
                iterations=self.iterations,
                checkpoint=checkpoint,
                resume=checkpoint is not None and checkpoint.exists(),
                rng=rng,
                progress=progress,
            )
            ended = ""
        except Diverged as error:
            found, ended = error.fit, str(error)
        history = found.history
        steps = max(1, int(history.iteration[-1]))
        nearest = LogLinear(ExactIndex(model.features))(found.theta).top_k(_SHOWN, exclude=self.ids)
        return {
            "log_likelihood": found.log_likelihood,
            "steps": steps,
            "seconds_a_step": max(float(history.seconds[-1]), _TICK) / steps,
            "rows_a_step": found.rows / steps,
            "norm": float(np.linalg.norm(found.theta)),
            "ended": ended,
            "curve": {name: getattr(history, name) for name in _CURVE},
            "best": nearest.ids,
        }

    def _mean_square(self, model: LogLinear) -> float:
        """Of the norms: at the rate for length one over this, rows of other lengths climb as if they had it."""
        rows = model.features.gather(self.ids).astype(np.float64)
        return float((rows**2).sum(axis=1).mean())
