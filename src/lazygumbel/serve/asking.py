"""Questions that wait are asked of the library: those that can share a call do, and each gets its own answer."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from lazygumbel.serve import wire
from lazygumbel.serve.questions import Question
from lazygumbel.serve.served import Served
from lazygumbel.serve.verbs import VERBS, Call, VerbResult

__all__ = ["Answer", "ask", "groups"]


class Answer(NamedTuple):
    """The body of a response, and what the metrics count."""

    body: bytes
    label: str
    rows: int
    violations: int
    together: int
    """Thetas of the call that gave it."""


def groups(questions: Iterable[Question]) -> list[list[Question]]:
    """The same questions, those that can share a call together, in the order of coming."""
    found: dict[object, list[Question]] = {}
    for question in questions:
        joins = VERBS[question.settings.verb].joins(question)
        key = (id(question.served), question.settings) if joins else id(question)
        found.setdefault(key, []).append(question)
    return list(found.values())


def ask(group: Sequence[Question]) -> list[Answer | Exception]:
    """One answer for each question of a group, from one call. Where that fails each is asked alone: a fault of one
    is not a fault of the others."""
    try:
        with group[0].served.held() as served:
            return cast("list[Answer | Exception]", _ask(group, served))
    except Exception as error:  # whatever it is, its request gets it, and the engine goes on
        if len(group) == 1:
            return [error]
        return [answer for question in group for answer in ask([question])]


def _ask(group: Sequence[Question], served: Served) -> list[Answer]:
    first = group[0]
    settings, verb = first.settings, VERBS[first.settings.verb]
    alone = len(group) == 1 and first.thetas.single
    thetas = first.thetas.vectors[0] if alone else np.concatenate([q.thetas.vectors for q in group])
    seed = _picked_seed() if first.seed is None else first.seed
    asked = Call(
        served.distribution(thetas, settings.temperature),
        settings,
        _exclude(group, alone=alone),
        _ids(group, alone=alone),
        np.random.default_rng(seed),
        first,
        served,
    )
    found = verb.ask(asked)
    if len(group) == 1:
        return [_answer(first, found.to_dict(), served, first.size, seed)]
    divided = zip(group, _divided(group, found), strict=True)
    return [_answer(question, shown, served, len(thetas), None) for question, shown in divided]


def _divided(group: Sequence[Question], found: VerbResult) -> Iterable[dict[str, Any]]:
    """What each question of a group is answered."""
    if all(question.thetas.single for question in group):
        yield from found.each()
        return
    start = 0
    for question in group:
        stop = start + question.size
        yield found.part(start if question.thetas.single else slice(start, stop)).to_dict()
        start = stop


def _answer(question: Question, shown: dict[str, Any], served: Served, together: int, seed: int | None) -> Answer:
    """`seed` is None where a call was shared: the answer cannot be had again."""
    shown["version"] = served.version
    if VERBS[question.settings.verb].random:
        shown["seed"] = seed
    body = wire.dump(shown)
    return Answer(body, shown["label"], _total(shown["rows"]), _total(shown.get("violations", 0)), together)


def _picked_seed() -> int:
    """As large as every language has whole numbers."""
    return secrets.randbits(53)


def _total(counts: int | list[int]) -> int:
    return counts if isinstance(counts, int) else sum(counts)


def _exclude(group: Sequence[Question], *, alone: bool) -> Any:
    if all(question.exclude is None for question in group):
        return None
    nothing = np.empty(0, dtype=np.int64)
    each = [ids for question in group for ids in question.exclude or (nothing,) * question.size]
    return each[0] if alone else each


def _ids(group: Sequence[Question], *, alone: bool) -> Any:
    columns = [question.ids for question in group if question.ids is not None]
    if not columns or group[0].settings.verb == "audit":
        return None
    return columns[0][..., 0] if alone else np.concatenate(columns, axis=-1)
