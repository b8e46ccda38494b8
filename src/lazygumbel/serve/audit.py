"""The truth about one theta: every row is scored, once, and what is otherwise estimated is known."""

from typing import Any

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.guarantees.audit import Audit
from lazygumbel.methods import Exhaustive
from lazygumbel.results import numbers
from lazygumbel.serve.questions import Question
from lazygumbel.serve.served import Served

__all__ = ["audit"]

_POINTS = 160
"""Of the curve of probability by rank, evenly spaced in log rank."""
_HEADS = (1, 10, 100, 1000)


def audit(question: Question, served: Served) -> dict[str, Any]:
    """True log Z, entropy, probabilities and ranks at one theta, and the measured accuracy of the default draws."""
    if question.size != 1:
        raise ValueError(f"theta: one theta is audited at a time, not {question.size}")
    model, temperature = served.model, question.settings.temperature
    theta, exclude = question.thetas.vectors[0], None if question.exclude is None else question.exclude[0]
    everything = model.ids
    dist = model(theta, temperature=temperature)
    exact = dist.log_prob(everything, method=Exhaustive(), exclude=exclude)
    log_z = dist.log_partition(method=Exhaustive(), exclude=exclude)
    log_prob: Floats = exact.value
    falling = -np.sort(-log_prob[np.isfinite(log_prob)])
    mass = np.cumsum(np.exp(falling))
    ids = np.empty(0, dtype=np.int64) if question.ids is None else question.ids
    asked = log_prob[np.searchsorted(everything, ids)]
    return {
        "ids": ids.tolist(),
        "names": served.names_of(ids),
        "log_prob": numbers(asked),
        "rank": _ranks(falling, asked),
        "log_partition": float(log_z.value),
        "entropy": float(-(np.exp(falling) * falling).sum()),
        "curve": _curve(falling),
        "mass": {str(k): float(min(mass[min(k, len(mass)) - 1], 1.0)) for k in _HEADS},
        **_accuracy(model.audit(theta, temperature=temperature, exclude=exclude)),
        "rows": model.features.n,
    }


def _ranks(falling: Floats, log_prob: Floats) -> list[int | None]:
    """From 1; rows that tie share the better rank; None for rows that are excluded."""
    ranks = np.searchsorted(-falling, -log_prob, side="left") + 1
    return [int(rank) if finite else None for rank, finite in zip(ranks, np.isfinite(log_prob), strict=True)]


def _curve(falling: Floats) -> dict[str, Any]:
    ranks = np.unique(np.geomspace(1, len(falling), _POINTS).round().astype(np.int64))
    return {"rank": ranks.tolist(), "log_prob": falling[ranks - 1].tolist()}


def _accuracy(found: Audit) -> dict[str, Any]:
    return {
        "method": found.method,
        "total_variation": float(found.miss[0]),
        "bound": numbers(found.bound[0, ...]),
        "violations": int(found.violations[0]),
        "label": str(found.labels[0]),
        "reason": str(found.reasons[0]),
    }
