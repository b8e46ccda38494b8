"""The one clock: contenders take turns, so that what else the machine does meets them all alike."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel._support.threads import one_blas_thread

__all__ = ["BY_TIME", "Clocked", "Contender", "Pace", "best_of", "take_turns"]

_WARM_UP, _AWAKE = 3, 0.02
"""Calls that compile; and seconds of calls after a rest until a processor is as quick as it was before."""


class Contender(NamedTuple):
    """A call with one argument, and the arguments it is timed on."""

    call: Callable[[Any], Any]
    arguments: Sequence[Any] | npt.NDArray[Any]
    one_thread: bool = False
    """Of BLAS: where the machine is busy, the threads of a product wait for each other."""


class Pace(NamedTuple):
    """How long a turn is, and when it is enough."""

    passes: int | None = None
    """A turn is one pass over all arguments, and there are so many; None: turns go by time."""
    rest_seconds: float = 0.2
    """Before a turn: the threads of BLAS stay busy for a tenth of a second after a product."""
    turn_seconds: float = 0.25
    least_seconds: float = 0.75
    """By time, until every argument was met and the calls of each contender took this long."""


BY_TIME = Pace()


@dataclass(frozen=True, eq=False)
class Clocked:
    """What a contender did."""

    seconds: npt.NDArray[np.float64]
    """Of every call, in order: the arguments over and over."""
    answers: list[Any]
    """Of the first calls: of all passes or, by time, of the first."""
    arguments: int

    @property
    def median(self) -> float:
        """Of all calls."""
        return float(np.median(self.seconds))

    @property
    def by_argument(self) -> npt.NDArray[np.float64]:
        """For each argument the median of its calls, (A,)."""
        return np.array([np.median(self.seconds[i :: self.arguments]) for i in range(self.arguments)])


def take_turns(contenders: Mapping[str, Contender], pace: Pace = BY_TIME) -> dict[str, Clocked]:
    """Time all contenders; the first calls of each, which compile, and those soon after a rest are not timed."""
    for one in contenders.values():
        for some in one.arguments[:_WARM_UP]:
            one.call(some)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    answers: dict[str, list[Any]] = {name: [] for name in contenders}
    while any(_wants(pace, len(one.arguments), seconds[name]) for name, one in contenders.items()):
        for name, one in contenders.items():
            with one_blas_thread() if one.one_thread else nullcontext():
                _turn(one, pace, seconds[name], answers[name])
    return {
        name: Clocked(np.array(seconds[name]), answers[name], len(one.arguments)) for name, one in contenders.items()
    }


def best_of(clocked: Sequence[Clocked]) -> Clocked:
    """Contenders that do the same as one: at every argument the quickest counts."""
    return Clocked(np.min([one.by_argument for one in clocked], axis=0), clocked[0].answers, clocked[0].arguments)


def _wants(pace: Pace, arguments: int, seconds: list[float]) -> bool:
    if pace.passes is not None:
        return len(seconds) < pace.passes * arguments
    return len(seconds) < arguments or sum(seconds) < pace.least_seconds


def _turn(one: Contender, pace: Pace, seconds: list[float], answers: list[Any]) -> None:
    call, arguments = one.call, one.arguments
    sleep(pace.rest_seconds)
    awake = perf_counter() + _AWAKE
    while True:
        call(arguments[0])
        if perf_counter() >= awake:
            break
    kept, last = (pace.passes or 1) * len(arguments), len(seconds) + len(arguments)
    end = perf_counter() + pace.turn_seconds
    while len(seconds) < last if pace.passes is not None else perf_counter() < end:
        some = arguments[len(seconds) % len(arguments)]
        start = perf_counter()
        answer = call(some)
        seconds.append(perf_counter() - start)
        if len(answers) < kept:
            answers.append(answer)
