"""One shard, opened from its folder by whoever holds it: a thread of this process or an actor on another machine."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from lazygumbel.model import LogLinear
from lazygumbel.sharded.manifest import version_of
from lazygumbel.sharded.requests import Outcome, Request, Verb

__all__ = ["ShardWorker"]


class _OtherVersion(Exception):
    """The files are not those of the manifest."""


class ShardWorker:
    """Answers requests about one shard. Opens it when first asked, so that a worker that starts cannot fail."""

    def __init__(self, folder: str, version: str, node: Callable[[], str]) -> None:
        self._folder, self._version, self._node = Path(folder), version, node
        self._model: LogLinear | None = None
        self._opening = Lock()

    def answer(self, requests: tuple[Request, ...]) -> Outcome:
        """What came of the requests; errors are returned, as they may have to travel."""
        try:
            model = self._open()
        except _OtherVersion as error:
            return self._outcome("refused", error=str(error))
        except (OSError, ValueError) as error:
            return self._outcome("failed", error=f"its files cannot be opened: {error}")
        try:
            return self._outcome("answered", tuple(_perform(model, request) for request in requests))
        except ValueError as error:
            return self._outcome("invalid", error=str(error))
        except Exception as error:  # whatever it is, it must not end the worker; the caller is told
            return self._outcome("failed", error=f"{type(error).__name__}: {error}")

    def warm_up(self) -> Outcome:
        """Ask the shard a little of everything, so that what must be compiled for arrays like its own is."""
        try:
            first = self._open().features.gather(np.zeros(2, dtype=np.int64))
        except (OSError, ValueError, _OtherVersion):
            return self.answer(())  # which says what is wrong
        seed = np.random.SeedSequence(0)
        asked: tuple[tuple[Verb, dict[str, Any]], ...] = (
            ("sample", {"size": 1, "rng": seed}),
            ("sample_without_replacement", {"size": 1, "rng": seed}),
            ("mean_logit", {"rng": seed}),
            ("expectation", {"rng": seed}),
            ("log_partition", {"rng": seed}),
            ("top_k", {"k": 1}),
            ("logits", {"ids": np.zeros((1, 2), dtype=np.int64)}),
        )
        one = tuple(Request(verb, given, first[:1]) for verb, given in asked if verb != "logits")
        return self.answer(one + tuple(Request(verb, given, first) for verb, given in asked))

    def _open(self) -> LogLinear:
        with self._opening:
            if self._model is None:
                self._check()
                model = LogLinear.load(self._folder)
                self._check()  # it may have been saved anew while it was read
                self._model = model
            return self._model

    def _check(self) -> None:
        found = version_of(self._folder)
        if found != self._version:
            raise _OtherVersion(
                f"{self._folder} holds version {found}, but version {self._version} was expected; "
                "restore its files, or connect again once the manifest fits"
            )

    def _outcome(self, status: Any, results: tuple[Any, ...] = (), error: str = "") -> Outcome:
        version = None if self._model is None else self._version
        return Outcome(status, results, error, version, os.getpid(), self._node())


def _perform(model: LogLinear, request: Request) -> Any:
    """What a request asks for."""
    features, given = model.features, request.arguments
    match request.verb:
        case "gather":
            return features.gather(given["ids"])
        case "names":
            return [] if features.names is None else [features.names[i] for i in given["ids"].tolist()]
        case "find":
            try:
                return None if features.names is None else features.names.find(given["name"])
            except ValueError:
                return None
        case _:
            thetas = np.empty((0, features.d), dtype=np.float32) if request.thetas is None else request.thetas
            return getattr(model(thetas, temperature=request.temperature), request.verb)(**given)
