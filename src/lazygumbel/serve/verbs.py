"""The verbs: what each takes, how it is asked of a `Distribution`, and how one answer to many is divided again.

Arrays of a batch are divided along the axis of the thetas: the last of ids drawn independently and of `log_prob`, the
first of everything else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.distribution import Distribution
from lazygumbel.results import Draws, Estimate, OrderedDraws, TopK
from lazygumbel.serve import wire
from lazygumbel.serve.audit import audit
from lazygumbel.serve.questions import Question, Settings
from lazygumbel.serve.served import Served

__all__ = ["VERBS", "Asked", "Found", "Verb"]

Where = int | slice
Exclude = npt.NDArray[np.int64] | list[npt.NDArray[np.int64]] | None


class Asked(NamedTuple):
    """One call of the library: the distribution of one theta, or of the thetas of several questions."""

    dist: Distribution
    settings: Settings
    exclude: Exclude
    ids: npt.NDArray[np.int64] | None
    rng: np.random.Generator
    first: Question
    """The only question, for verbs that are asked alone."""


class Found(NamedTuple):
    """What came back."""

    result: Any
    log_prob: Estimate | None = None


@dataclass(frozen=True)
class Verb:
    """One route."""

    name: str
    summary: str
    takes: tuple[str, ...]
    ask: Callable[[Asked], Found]
    part: Callable[[Found, Where], Found]
    """The answer of some of the thetas."""
    show: Callable[[Found, Served], dict[str, Any]]
    example: dict[str, Any]
    random: bool = True
    """Whether the answer depends on a seed."""

    def joins(self, question: Question) -> bool:
        """Whether a question may be asked in one call with others of equal settings.

        One with a seed may not: its draws must not depend on who else was there. Nor one whose answer would: a top k
        without some rows is as long as the shortest of the call.
        """
        if self.part is _alone or question.of is not None:
            return False
        return question.exclude is None if not self.random else question.seed is None


def _sample(asked: Asked) -> Found:
    dist, settings = asked.dist, asked.settings
    drawn = dist.sample(settings.size, method=settings.method, rng=asked.rng, exclude=asked.exclude)
    log_prob = dist.log_prob(drawn.ids, rng=asked.rng, exclude=asked.exclude) if settings.log_prob else None
    return Found(drawn, log_prob)


def _sample_without_replacement(asked: Asked) -> Found:
    dist, settings = asked.dist, asked.settings
    drawn = dist.sample_without_replacement(settings.size, method=settings.method, rng=asked.rng, exclude=asked.exclude)
    if not settings.log_prob:
        return Found(drawn)
    log_z = dist.log_partition(rng=asked.rng, exclude=asked.exclude)
    value = np.minimum(drawn.logits - log_z.value, 0.0)
    stderr = np.broadcast_to(log_z.stderr, value.shape)
    return Found(drawn, Estimate(value, stderr, log_z.rows, log_z.labels, bound=log_z.bound))


def _estimate(method_name: str) -> Callable[[Asked], Found]:
    def ask(asked: Asked) -> Found:
        settings = asked.settings
        before = () if asked.ids is None else (asked.ids,)
        return Found(
            getattr(asked.dist, method_name)(
                *before, rel_err=settings.rel_err, method=settings.method, rng=asked.rng, exclude=asked.exclude
            )
        )

    return ask


def _expectation(asked: Asked) -> Found:
    settings = asked.settings
    return Found(
        asked.dist.expectation(
            asked.first.of, rel_err=settings.rel_err, method=settings.method, rng=asked.rng, exclude=asked.exclude
        )
    )


def _top_k(asked: Asked) -> Found:
    return Found(asked.dist.top_k(asked.settings.k, exclude=asked.exclude))


def _part_draws(found: Found, at: Where) -> Found:
    drawn: Draws = found.result
    part = Draws(
        drawn.ids[..., at],
        drawn.values[..., at],
        drawn.rows[at, ...],
        drawn.labels[at, ...],
        drawn.bound[at, ...],
        drawn.violations[at, ...],
    )
    return Found(part, None if found.log_prob is None else _divide(found.log_prob, (..., at), at))


def _part_ordered(found: Found, at: Where) -> Found:
    drawn: OrderedDraws = found.result
    part = OrderedDraws(
        drawn.ids[..., at],
        drawn.logits[..., at],
        drawn.values[..., at],
        drawn.threshold[at, ...],
        drawn.rows[at, ...],
        drawn.labels[at, ...],
        drawn.bound[at, ...],
    )
    return Found(part, None if found.log_prob is None else _divide(found.log_prob, (..., at), at))


def _part_top_k(found: Found, at: Where) -> Found:
    top: TopK = found.result
    bound = top.bound[at, ...]
    return Found(TopK(top.ids[at, ...], top.scores[at, ...], top.rows[at, ...], top.exact, top.k, bound))


def _part_first(found: Found, at: Where) -> Found:
    return Found(_divide(found.result, (at, ...), at))


def _part_last(found: Found, at: Where) -> Found:
    return Found(_divide(found.result, (..., at), at))


def _alone(found: Found, _: Where) -> Found:
    return found


def _divide(estimate: Estimate, values: tuple[Any, ...], at: Where) -> Estimate:
    return Estimate(
        estimate.value[values],
        estimate.stderr[values],
        estimate.rows[at, ...],
        estimate.labels[at, ...],
        bound=estimate.bound[at, ...],
    )


def _show_estimate(found: Found, _: Served) -> dict[str, Any]:
    return wire.of_estimate(found.result)


_SUM = ("theta", "temperature", "exclude", "seed", "method", "rel_err")
_DRAW = ("theta", "temperature", "size", "exclude", "seed", "method", "delta", "log_prob")
_RIVER: dict[str, Any] = {"theta": "river", "temperature": 0.05}

_ALL = (
    Verb(
        "sample",
        "Independent samples: ids of shape (size,) + batch shape.",
        _DRAW,
        _sample,
        _part_draws,
        lambda found, served: wire.of_draws(found.result, served, found.log_prob),
        _RIVER | {"size": 5, "seed": 0},
    ),
    Verb(
        "sample-without-replacement",
        "Distinct rows in the order of drawing: ids of shape batch shape + (size,).",
        _DRAW,
        _sample_without_replacement,
        _part_ordered,
        lambda found, served: wire.of_ordered(found.result, served, found.log_prob),
        _RIVER | {"size": 5, "seed": 0, "exclude": ["river"]},
    ),
    Verb("log-partition", "log Z.", _SUM, _estimate("log_partition"), _part_first, _show_estimate, _RIVER),
    Verb(
        "log-prob",
        "log Pr of rows: ids of shape sample shape + batch shape; null for rows that are excluded.",
        (*_SUM, "ids"),
        _estimate("log_prob"),
        _part_last,
        _show_estimate,
        _RIVER | {"ids": ["creek", "lake"]},
    ),
    Verb("entropy", "-E[log Pr] in nats.", _SUM, _estimate("entropy"), _part_first, _show_estimate, _RIVER),
    Verb(
        "expectation",
        "E[phi], shape batch shape + (d,); or the expectation of a function that is zero but at a few rows.",
        (*_SUM, "of"),
        _expectation,
        _part_first,
        _show_estimate,
        _RIVER | {"of": {"ids": ["creek", "lake"], "values": [1.0, 1.0]}},
    ),
    Verb(
        "top-k",
        "The rows with the largest inner products: ids of shape batch shape + (k,).",
        ("theta", "k", "exclude"),
        _top_k,
        _part_top_k,
        lambda found, served: wire.of_top_k(found.result, served),
        {"theta": "king - man + woman", "k": 5},
        random=False,
    ),
    Verb(
        "audit",
        "One exact pass: the true log Z, probabilities and ranks, and how far draws are from them.",
        ("theta", "temperature", "exclude", "ids"),
        lambda asked: Found(audit(asked.first)),
        _alone,
        lambda found, _: found.result,
        _RIVER | {"ids": ["creek", "lake"]},
        random=False,
    ),
)
VERBS: dict[str, Verb] = {verb.name: verb for verb in _ALL}
