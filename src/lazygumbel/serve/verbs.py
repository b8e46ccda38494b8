"""The verbs: what each takes, how it is asked of a `Distribution`, and the form of its answers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from lazygumbel import forms
from lazygumbel._support.arrays import Ints
from lazygumbel.distribution import Distribution
from lazygumbel.results import Estimate, Result, numbers
from lazygumbel.serve.audit import audit
from lazygumbel.serve.questions import Question, Settings
from lazygumbel.serve.served import Served

__all__ = ["VERBS", "Call", "Verb", "VerbResult"]

Exclude = Ints | list[Ints] | None


class Call(NamedTuple):
    """One call of the library: the distribution of one theta, or of the thetas of several questions."""

    dist: Distribution
    settings: Settings
    exclude: Exclude
    ids: Ints | None
    rng: np.random.Generator
    first: Question
    """The only question, for verbs that are asked alone."""
    served: Served
    """What answers."""


class VerbResult(NamedTuple):
    """What came back."""

    result: Any
    """A result, or a dictionary where it is one already."""
    log_prob: Estimate | None = None

    def part(self, thetas: int | slice) -> "VerbResult":
        """The answer of one theta, or of some."""
        return VerbResult(self.result.at(thetas), None if self.log_prob is None else self.log_prob.at(thetas))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        if not isinstance(self.result, Result):
            return self.result
        shown = self.result.to_dict()
        if self.log_prob is not None:
            shown["log_prob"], shown["log_prob_stderr"] = numbers(self.log_prob.value), numbers(self.log_prob.stderr)
            shown["rows"] = (self.result.rows + self.log_prob.rows).tolist()
        return shown

    def each(self) -> list[dict[str, Any]]:
        """The answers of all thetas of a batch, each as if it were the only one: quicker than `part` by `part`."""
        shown, last = self.to_dict(), self.result.thetas_last
        count, by_theta = len(shown["rows"]), self.result.by_theta
        columns: dict[str, list[Any]] = {"label": shown.pop("labels"), "reason": shown.pop("reasons")}
        for key, value in shown.items():
            if isinstance(value, list):
                of_rows = key not in by_theta and (last or key in _OF_DRAWS)
                columns[key] = _by_theta(cast("list[Any]", value)) if of_rows else value
        found = ((key, columns.get(key, [value] * count)) for key, value in shown.items())
        keys, values = zip(*found, strict=True)
        return [dict(zip(keys, one, strict=True)) for one in zip(*values, strict=True)]


_OF_DRAWS = ("log_prob", "log_prob_stderr")


def _by_theta(nested: list[Any]) -> list[Any]:
    """Lists whose last axis is that of the thetas, with it first."""
    if not nested or not isinstance(nested[0], list):
        return nested
    return list(zip(*(_by_theta(inner) for inner in nested), strict=True))


@dataclass(frozen=True)
class Verb:
    """One route."""

    name: str
    summary: str
    takes: tuple[str, ...]
    ask: Callable[[Call], VerbResult]
    form: type[Any]
    """Of its answers."""
    example: dict[str, Any]
    random: bool = True
    """Whether the answer depends on a seed."""

    def joins(self, question: Question) -> bool:
        """Whether a question may be asked in one call with others of equal settings.

        One with a seed may not: its draws must not depend on who else was there. Nor one whose answer would: a top k
        without some rows is as long as the shortest of the call.
        """
        if self.form is forms.Audit or question.of is not None:
            return False
        return question.exclude is None if not self.random else question.seed is None


def _sample(asked: Call) -> VerbResult:
    dist, settings = asked.dist, asked.settings
    drawn = dist.sample(settings.size, method=settings.method, rng=asked.rng, exclude=asked.exclude)
    log_prob = dist.log_prob(drawn.ids, rng=asked.rng, exclude=asked.exclude) if settings.log_prob else None
    return VerbResult(drawn, log_prob)


def _sample_without_replacement(asked: Call) -> VerbResult:
    dist, settings = asked.dist, asked.settings
    drawn = dist.sample_without_replacement(settings.size, method=settings.method, rng=asked.rng, exclude=asked.exclude)
    if not settings.log_prob:
        return VerbResult(drawn)
    log_z = dist.log_partition(rng=asked.rng, exclude=asked.exclude)
    return VerbResult(drawn, replace(log_z.of_logits(drawn.logits, drawn.ids, None), rows=log_z.rows))


def _estimate(method_name: str) -> Callable[[Call], VerbResult]:
    def ask(asked: Call) -> VerbResult:
        settings = asked.settings
        before = () if asked.ids is None else (asked.ids,)
        return VerbResult(
            getattr(asked.dist, method_name)(
                *before, rel_err=settings.rel_err, method=settings.method, rng=asked.rng, exclude=asked.exclude
            )
        )

    return ask


def _expectation(asked: Call) -> VerbResult:
    settings = asked.settings
    return VerbResult(
        asked.dist.expectation(
            asked.first.of, rel_err=settings.rel_err, method=settings.method, rng=asked.rng, exclude=asked.exclude
        )
    )


def _top_k(asked: Call) -> VerbResult:
    return VerbResult(asked.dist.top_k(asked.settings.k, exclude=asked.exclude))


_SUM = ("theta", "temperature", "exclude", "seed", "method", "rel_err")
_DRAW = ("theta", "temperature", "size", "exclude", "seed", "method", "delta", "log_prob")
_RIVER: dict[str, Any] = {"theta": "river", "temperature": 0.05}

_ALL = (
    Verb(
        "sample",
        "Independent samples: ids of shape (size,) + batch shape.",
        _DRAW,
        _sample,
        forms.Draws,
        _RIVER | {"size": 5, "seed": 0},
    ),
    Verb(
        "sample-without-replacement",
        "Distinct rows in the order of drawing: ids of shape batch shape + (size,).",
        _DRAW,
        _sample_without_replacement,
        forms.OrderedDraws,
        _RIVER | {"size": 5, "seed": 0, "exclude": ["river"]},
    ),
    Verb("log-partition", "log Z.", _SUM, _estimate("log_partition"), forms.Estimate, _RIVER),
    Verb(
        "log-prob",
        "log Pr of rows: ids of shape sample shape + batch shape; null for rows that are excluded.",
        (*_SUM, "ids"),
        _estimate("log_prob"),
        forms.Estimate,
        _RIVER | {"ids": ["creek", "lake"]},
    ),
    Verb("entropy", "-E[log Pr] in nats.", _SUM, _estimate("entropy"), forms.Estimate, _RIVER),
    Verb(
        "expectation",
        "E[phi], shape batch shape + (d,); or the expectation of a function that is zero but at a few rows.",
        (*_SUM, "of"),
        _expectation,
        forms.Estimate,
        _RIVER | {"of": {"ids": ["creek", "lake"], "values": [1.0, 1.0]}},
    ),
    Verb(
        "top-k",
        "The rows with the largest inner products: ids of shape batch shape + (k,).",
        ("theta", "k", "exclude"),
        _top_k,
        forms.TopK,
        {"theta": "king - man + woman", "k": 5},
        random=False,
    ),
    Verb(
        "audit",
        "One exact pass: the true log Z, probabilities and ranks, and how far draws are from them.",
        ("theta", "temperature", "exclude", "ids"),
        lambda asked: VerbResult(audit(asked.first, asked.served)),
        forms.Audit,
        _RIVER | {"ids": ["creek", "lake"]},
        random=False,
    ),
)
VERBS: dict[str, Verb] = {verb.name: verb for verb in _ALL}
