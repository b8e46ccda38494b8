"""A verb of `MergedDistribution`, run before its answers are there: what it would ask of which shard, and replay.

The verb is run with stand-ins for its parts. Each question that has no answer yet is noted; all that were noted go to
the shards in one fan-out, and the verb is run again. A verb asks the same questions in the same order each time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel.results import Draws, Estimate, OrderedDraws, TopK
from lazygumbel.sharded.places import Holding
from lazygumbel.sharded.requests import Lost, Replies, Request, Requests, ShardError, Verb

__all__ = ["Ask", "Script", "StandInPart", "Unanswered", "each_part"]

T = TypeVar("T")

Ask = Callable[[Requests], Replies]
"""One fan-out; raises when shards are lost and must not be."""


class _Key(NamedTuple):
    """One question of a verb: the how-manieth of its kind that it asks a shard."""

    shard: int
    verb: Verb
    turn: int


class Unanswered(Exception):  # a signal, not an error
    """A verb needs answers that are not there yet."""


class _Missing(Exception):  # a signal, not an error
    """A verb needs answers that will not come."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(str(lost))
        self.lost = lost


@dataclass(eq=False)
class Script:
    """What was asked and answered in one call of a verb."""

    answers: dict[_Key, Any] = field(default_factory=dict[_Key, Any])
    wanted: dict[_Key, Request] = field(default_factory=dict[_Key, Request])
    lost: dict[int, Lost] = field(default_factory=dict[int, Lost])
    turns: dict[tuple[int, Verb], int] = field(default_factory=dict[tuple[int, Verb], int])

    def answer(self, shard: int, request: Request) -> Any:
        """The answer, if it is there."""
        turn = self.turns.get((shard, request.verb), 0)
        self.turns[shard, request.verb] = turn + 1
        key = _Key(shard, request.verb, turn)
        if shard in self.lost:
            raise _Missing(self.lost[shard])
        if key not in self.answers:
            self.wanted[key] = replace(request, arguments=_seeded(request.arguments, turn))
            raise Unanswered
        return self.answers[key]

    def fetch(self, ask: Ask) -> None:
        """Have everything that is wanted answered, in one fan-out."""
        keys: dict[int, list[_Key]] = {}
        for key in self.wanted:
            keys.setdefault(key.shard, []).append(key)
        replies = ask({shard: tuple(self.wanted[key] for key in asked) for shard, asked in keys.items()})
        for shard, results in replies.answers.items():
            self.answers.update(zip(keys[shard], results, strict=True))
        self.lost.update(replies.lost)
        self.wanted.clear()


@dataclass(frozen=True, eq=False)
class _Blamed:
    """A function of the caller's, whose faults are told to the caller: asked again it would fail again."""

    f: Callable[[Ints], Any]

    def __call__(self, ids: Ints) -> Any:
        try:
            return self.f(ids)
        except Exception as error:
            raise ValueError(f"f: it raised {type(error).__name__}: {error}") from None


@dataclass(frozen=True, eq=False)
class _StandIn:
    """What a part answers at some thetas, asked of the shard by way of the script."""

    shard: int
    thetas: Vectors
    temperature: float
    script: Script

    def sample(self, size: int, **given: Any) -> Draws:
        return self._ask("sample", size=size, **given)

    def sample_without_replacement(self, size: int, **given: Any) -> OrderedDraws:
        return self._ask("sample_without_replacement", size=size, **given)

    def log_partition(self, **given: Any) -> Estimate:
        return self._ask("log_partition", **given)

    def expectation(self, f: Callable[[Ints], Any] | None, **given: Any) -> Estimate:
        return self._ask("expectation", f=None if f is None else _Blamed(f), **given)

    def mean_logit(self, **given: Any) -> Estimate:
        return self._ask("mean_logit", **given)

    def top_k(self, k: int, **given: Any) -> TopK:
        return self._ask("top_k", k=k, **given)

    def logits(self, ids: Ints) -> Floats:
        try:
            return self._ask("logits", ids=ids)
        except _Missing:  # the other shards still know theirs
            return np.full(ids.shape, np.nan)

    def _ask(self, verb: Verb, **given: Any) -> Any:
        return self.script.answer(self.shard, Request(verb, given, self.thetas, self.temperature))


class _Ids:
    """The ids of a shard's rows, without a table of them."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def __len__(self) -> int:
        return self._holding.standing.given

    def __getitem__(self, own: Ints) -> Ints:
        return self._holding.ids_of(own)


@dataclass(frozen=True, eq=False)
class StandInPart:
    """A shard as a part of a `MergedDistribution`, which asks by way of the script."""

    holding: Holding
    script: Script

    @property
    def ids(self) -> Ints:
        """Of its rows."""
        return cast("Ints", _Ids(self.holding))

    @property
    def count(self) -> int:
        """How many rows it has."""
        return self.holding.count

    def __call__(self, theta: Vectors, *, temperature: float) -> _StandIn:
        return _StandIn(self.holding.number, theta, temperature, self.script)


def each_part(function: Callable[[int], T], parts: Iterable[int]) -> Iterator[T]:
    """Ask every part, so that all that is wanted is known; then say that it is. Missing parts answer None."""
    found: list[Any] = []
    lost: dict[int, Lost] = {}
    unanswered = False
    for part in parts:
        try:
            found.append(function(part))
        except Unanswered:
            unanswered = True
        except _Missing as missing:
            lost[missing.lost.shard] = missing.lost
            found.append(None)
    if unanswered:
        raise Unanswered
    if lost and all(one is None for one in found):  # others that answered had no row to offer
        raise ShardError(lost)
    return iter(cast("Sequence[T]", found))


def _seeded(given: Mapping[str, Any], turn: int) -> dict[str, Any]:
    """The same with a seed, of which a shard draws the same numbers however often it is asked."""
    made_of: Any = given["rng"].bit_generator.seed_seq if "rng" in given else None
    if made_of is None:
        return dict(given)
    seed = np.random.SeedSequence(made_of.entropy, spawn_key=(*made_of.spawn_key, turn))
    return dict(given) | {"rng": seed}
