"""`Batcher`: one thread that asks the library. Questions that came while it was busy are its next batch.

There is no timer: a lone question is asked at once, and under load a batch is what arrived during the one before.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from threading import Condition, Thread
from typing import NamedTuple

from lazygumbel.serve.asking import Answer, ask, groups
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.metrics import Metrics
from lazygumbel.serve.questions import Question

__all__ = ["Batcher", "Busy", "TooLate"]


class Busy(Exception):
    """As many questions wait as may."""


class TooLate(Exception):
    """A question waited longer than it may."""


class _Waiting(NamedTuple):
    question: Question
    answer: "asyncio.Future[Answer]"
    until: float


class Batcher:
    """Answers questions in the order of coming, on a thread of its own."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._waiting: deque[_Waiting] = deque()
        self._woken = Condition()
        self._stopping = False
        self._thread = Thread(target=self._run, name="lazygumbel-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin; to be called within the event loop that will ask."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether questions are answered."""
        return self._thread.is_alive() and not self._stopping

    async def ask(self, question: Question) -> Answer:
        """The answer; `Busy` when too many wait already, `TooLate` when it took too long."""
        loop, seconds = asyncio.get_running_loop(), self._limits.seconds
        answer: asyncio.Future[Answer] = loop.create_future()
        with self._woken:
            if len(self._waiting) >= self._limits.queue or not self.running:
                raise Busy
            self._waiting.append(_Waiting(question, answer, time.monotonic() + seconds))
            self._woken.notify()
        timer = loop.call_later(seconds, _settle, [(answer, TooLate())])
        try:
            return await answer
        finally:
            timer.cancel()

    @property
    def waiting(self) -> int:
        """How many questions wait."""
        return len(self._waiting)

    async def stop(self) -> None:
        """Answer what was accepted, then end the thread."""
        with self._woken:
            self._stopping = True
            self._woken.notify()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while batch := self._next_batch():
            by_question = {id(waiting.question): waiting for waiting in batch}
            for group in groups([waiting.question for waiting in batch]):
                self._answer([by_question[id(question)] for question in group])

    def _next_batch(self) -> list[_Waiting]:
        """What waits, up to the limit; empty when the engine is to end."""
        with self._woken:
            while not self._waiting and not self._stopping:
                self._woken.wait()
            batch, thetas = list[_Waiting](), 0
            while self._waiting and (not batch or thetas + self._waiting[0].question.size <= self._limits.batch):
                batch.append(self._waiting.popleft())
                thetas += batch[-1].question.size
            return batch

    def _answer(self, group: Sequence[_Waiting]) -> None:
        begun = time.monotonic()
        # Nobody waits for what is too late, or was given up.
        asked = [waiting for waiting in group if begun < waiting.until and not waiting.answer.cancelled()]
        if not asked:
            return
        answers = ask([waiting.question for waiting in asked])
        self._metrics.engine.observe(time.monotonic() - begun)
        self._metrics.batch.observe(sum(waiting.question.size for waiting in asked))
        assert self._loop is not None
        found = [(waiting.answer, answer) for waiting, answer in zip(asked, answers, strict=True)]
        self._loop.call_soon_threadsafe(_settle, found)


def _settle(found: Sequence[tuple["asyncio.Future[Answer]", Answer | Exception]]) -> None:
    """Give each its answer, unless it no longer waits; on the event loop."""
    for future, answer in found:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
