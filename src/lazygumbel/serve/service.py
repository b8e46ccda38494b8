"""`Service`: the rows of the moment, the engine that is asked about them, and the thread that replaces them."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from lazygumbel.serve import logs
from lazygumbel.serve.asking import Answer
from lazygumbel.serve.changes import ChangeRequest
from lazygumbel.serve.engine import Batcher, Busy
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.metrics import Metrics
from lazygumbel.serve.questions import Question
from lazygumbel.serve.served import Folder, Opened
from lazygumbel.serve.turns import Closed

__all__ = ["Service"]


class Made(NamedTuple):
    """What came of a change."""

    ids: list[int]
    """That it was about."""
    n: int
    """Rows after it."""
    version: str


class Service:
    """What all routes share. Questions hold the rows that they were read for, so that none is dropped by a change."""

    def __init__(self, opened: Opened, *, limits: Limits, folder: Folder | None) -> None:
        self.served, self._writer = opened
        self.live = opened.writer is not None
        """Whether rows may change."""
        self.limits, self.metrics = limits, Metrics()
        self._engine = Batcher(limits, self.metrics)
        self._folder = folder
        self._changing = ThreadPoolExecutor(1, thread_name_prefix="lazygumbel-writer")
        self._changes = 0
        self.metrics.model_rows.set(self.served.model.features.n)
        self.metrics.queue.set_function(lambda: self._engine.waiting)
        self._accepted = self._answered = 0

    def start(self) -> None:
        """Begin to answer; within the event loop."""
        self._engine.start()
        logs.event("started", rows=self.served.model.features.n, version=self.served.version, live=self.live)

    async def stop(self) -> None:
        """Answer what was accepted, then end."""
        await self._engine.stop()
        await asyncio.to_thread(self._changing.shutdown)
        for model in (self._writer, self.served.model):
            if model is not None and self._folder is not None:
                model.close()
        logs.event("stopped", accepted=self._accepted, answered=self._answered)

    @property
    def ready(self) -> bool:
        """Whether questions are answered."""
        return self._engine.running

    async def ask(self, question: Question) -> Answer:
        """The engine's answer, counted."""
        self._accepted += 1
        try:
            answer = await self._engine.ask(question)
        finally:
            self._answered += 1  # an error is an answer too
        self.metrics.count_answer(question.settings.verb, answer)
        return answer

    async def change(self, change: ChangeRequest) -> "Made":
        """Make a change, durable where the model is.

        Changes are made one after the other, none is given up once it was accepted, and questions that come after the
        answer are asked of the rows after it.
        """
        if self._changes >= self.limits.queue or not self.ready:
            raise Busy
        self._changes += 1
        self._accepted += 1
        try:
            return await asyncio.wrap_future(self._changing.submit(self._change, change))
        finally:
            self._changes -= 1
            self._answered += 1

    @property
    def can_reload(self) -> bool:
        """Whether there is a folder to load again."""
        return self._folder is not None

    async def reload(self) -> bool:
        """Load the model's folder again and go over to it; False, and the old model stays, where that fails."""
        return await asyncio.wrap_future(self._changing.submit(self._reload))

    def reload_soon(self) -> None:
        """The same, without waiting for it; on any thread."""
        self._changing.submit(self._reload)

    def _change(self, change: ChangeRequest) -> "Made":
        if self._writer is None:
            raise Closed
        with self._turn():
            ids = change.make(self._writer)
            gone = ids[:0] if change.kind == "add" else ids
            came = ids[:0] if change.kind == "remove" else ids
            served = self.served = self.served.after(self._writer, gone, came, change.names)
            self.metrics.count_change(change.kind, len(ids), served.model.features.n)
            return Made(ids.tolist(), served.model.features.n, served.version)

    def _turn(self) -> AbstractContextManager[None]:
        """Within, nobody asks a model that keeps no old rows."""
        turns = self.served.turns
        return nullcontext() if turns is None else turns.changing()

    def _reload(self) -> bool:
        if self._folder is None:
            return False
        try:
            with self._turn():
                self.served, self._writer = self._open_again(self._folder)
        except (ValueError, OSError) as error:
            self.metrics.reloads.labels("failed").inc()
            logs.event("reload failed", level=logging.ERROR, reason=str(error))
            return False
        self.metrics.reloads.labels("loaded").inc()
        self.metrics.model_rows.set(self.served.model.features.n)
        logs.event("reloaded", rows=self.served.model.features.n, version=self.served.version)
        return True

    def _open_again(self, folder: Folder) -> Opened:
        """A folder has one writer: whatever else is wrong is found before the old one lets go of it."""
        turns = self.served.turns
        if self._writer is not None:
            folder.check()
            self._writer.close()
            self._writer = None
            if turns is not None:
                turns.now = None
        opened = folder.open()
        if turns is None:
            return opened
        served = opened.served if opened.served.turns is None else opened.served._replace(turns=turns)
        turns.now = served  # for questions that wait, too
        return Opened(served, opened.writer)
