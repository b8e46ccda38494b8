"""`Service`: the model of the moment, the engine before it, and the reload that replaces one and keeps the other."""

import asyncio
import logging
from threading import Lock

from lazygumbel.serve import logs
from lazygumbel.serve.asking import Answer
from lazygumbel.serve.engine import Engine
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.metrics import Metrics
from lazygumbel.serve.questions import Question
from lazygumbel.serve.served import Loader, Served

__all__ = ["Service"]


class Service:
    """What all routes share. Questions hold the model that they were read for, so that a reload drops none."""

    def __init__(self, served: Served, *, limits: Limits, loader: Loader | None) -> None:
        self.served, self.limits, self.metrics = served, limits, Metrics()
        self._engine = Engine(limits, self.metrics)
        self._loader, self._loading = loader, Lock()
        self.metrics.model_rows.set(served.model.features.n)
        self.metrics.queue.set_function(lambda: self._engine.waiting)
        self._accepted = self._answered = 0

    def start(self) -> None:
        """Begin to answer; within the event loop."""
        self._engine.start()
        logs.event("started", rows=self.served.model.features.n, version=self.served.version)

    async def stop(self) -> None:
        """Answer what was accepted, then end."""
        await self._engine.stop()
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

    @property
    def can_reload(self) -> bool:
        """Whether there is a folder to load again."""
        return self._loader is not None

    async def reload(self) -> bool:
        """Load the model's folder again and go over to it; False, and the old model stays, where that fails."""
        return await asyncio.to_thread(self.reload_now)

    def reload_now(self) -> bool:
        """The same, on the thread that calls; a second call waits for the first."""
        if self._loader is None:
            return False
        with self._loading:
            try:
                served = self._loader()
            except (ValueError, OSError) as error:
                self.metrics.reloads.labels("failed").inc()
                logs.event("reload failed", level=logging.ERROR, reason=str(error))
                return False
            self.served = served
            self.metrics.reloads.labels("loaded").inc()
            self.metrics.model_rows.set(served.model.features.n)
            logs.event("reloaded", rows=served.model.features.n, version=served.version)
            return True
