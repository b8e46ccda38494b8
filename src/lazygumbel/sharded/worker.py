"""One shard, opened from its folder by whoever holds it: a thread of this process or an actor on another machine."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from lazygumbel._support.persist import is_saved
from lazygumbel.indexes import ExactIndex, PartitionIndex
from lazygumbel.live.rows import Change
from lazygumbel.model import LogLinear
from lazygumbel.rows.features import Features
from lazygumbel.sharded.auditing import audit_shard
from lazygumbel.sharded.completing import Beginnings
from lazygumbel.sharded.manifest import NO_FILES
from lazygumbel.sharded.requests import CHANGES, Outcome, Request, Standing, Verb
from lazygumbel.sharded.versions import Version, other_version

__all__ = ["ShardWorker"]

_TRIES = 20
"""To open a shard that another process writes to."""
_SEED = 20170811
"""Of cells for the first rows of a shard."""
_NOTHING = Standing(NO_FILES, 0, 0, 0.0, 0, None, None)
_COMPACTING = Lock()
"""Of the shards of one process one at a time is in memory twice."""


class _ShardModel(LogLinear):
    """A model that may lose its last row."""

    _is_shard = True


class _OtherVersion(Exception):
    """The rows are not those that were asked for."""


class _Unusable(Exception):
    """The files cannot be opened; later they may."""


@dataclass(frozen=True, eq=False)
class _Versioned:
    """Rows that no longer change, with their version: replaced as a pair, so that no answer is of another one."""

    version: Version
    model: _ShardModel

    @cached_property
    def beginnings(self) -> Beginnings | None:
        """Of names, where there are any; made when they are first asked for."""
        names = self.model.features.names
        return None if names is None else Beginnings(self.model.ids, names)


class ShardWorker:
    """Answers requests about one shard. Opens it when first asked, so that a worker that starts cannot fail."""

    def __init__(self, folder: str, node: Callable[[], str], *, writes: bool = False, filled: bool = True) -> None:
        self._folder, self._node, self._writes, self._filled = Path(folder), node, writes, filled
        self._model: _ShardModel | None = None
        """The one that changes, if any does."""
        self._held: _Versioned | None = None
        self._lock = Lock()

    def answer(self, requests: tuple[Request, ...], version: str | None) -> Outcome:
        """What came of requests to the rows of a version, or any; errors are returned, as they may have to travel."""
        try:
            if requests and requests[0].verb in CHANGES:
                return self._outcome("answered", (self._change(requests[0], str(version)),))
            if version in (None, NO_FILES) and self._is_empty():
                return self._outcome("answered", (_NOTHING,) * len(requests))  # which asked nothing but that
            held = self._at(version)
            return self._outcome("answered", tuple(_perform(held, request) for request in requests))
        except _OtherVersion as error:
            return self._outcome("refused", error=str(error))
        except _Unusable as error:
            return self._outcome("failed", error=f"its files cannot be opened: {error}")
        except ValueError as error:
            return self._outcome("invalid", error=str(error))
        except Exception as error:  # whatever it is, it must not end the worker; the caller is told
            return self._outcome("failed", error=f"{type(error).__name__}: {error}")

    def warm_up(self) -> Outcome:
        """Ask the shard a little of everything, so that what must be compiled for arrays like its own is."""
        if self._is_empty():
            return self.answer((), None)
        try:
            features = self._at(None).model.features
            ids = np.repeat(next(iter(features.blocks(1))).ids[:1], 2)
            first = features.gather(ids)
        except (_Unusable, StopIteration):
            return self.answer((), None)  # which says what is wrong
        seed = np.random.SeedSequence(0)
        asked: tuple[tuple[Verb, dict[str, Any]], ...] = (
            ("sample", {"size": 1, "rng": seed}),
            ("sample_without_replacement", {"size": 1, "rng": seed}),
            ("mean_logit", {"rng": seed}),
            ("expectation", {"rng": seed}),
            ("log_partition", {"rng": seed}),
            ("top_k", {"k": 1}),
            ("logits", {"ids": ids[None]}),
        )
        # A flat softmax is answered by other kernels than one with a peak.
        peaked = max(float(first[0] @ first[0]), 1e-30) / 10
        requests = [
            Request(verb, given, thetas, temperature)
            for temperature in (1e6 * peaked, peaked)
            for thetas in (first[:1], first)
            for verb, given in asked
            if verb != "logits" or len(thetas) == 2
        ]
        if self._writes:
            self._try_change()
        return self.answer(tuple(requests), None)

    def close(self) -> None:
        """Let others write."""
        with self._lock:
            self._drop()

    def _try_change(self) -> None:
        """On a copy: what only a model with changes needs is compiled, too."""
        trial = self._at(None).model.snapshot()
        if not trial.features.n:
            return
        row = trial.features.gather(trial.ids[:1])
        trial.add(row, None if trial.features.names is None else [""])
        for thetas in (row[0], np.repeat(row, 2, axis=0)):
            dist = trial(thetas)
            dist.sample(rng=0)
            dist.sample_without_replacement(1, rng=0)
            dist.log_partition(rng=0)
            dist.top_k(1)

    def _is_empty(self) -> bool:
        """Whether it never had rows: then there are no files yet."""
        return not self._filled and not is_saved(self._folder)

    def _at(self, version: str | None) -> _Versioned:
        """The rows of a version. Who only reads may open other files for it; who writes knows what is there."""
        held = self._held
        if held is None or version != str(held.version):
            with self._lock:
                held = self._held
                if held is None or (not self._writes and self._replaced(held, version)):
                    held = self._open()
        if version not in (None, str(held.version)):
            raise _OtherVersion(other_version(self._folder, str(held.version), str(version)))
        return held

    def _open(self) -> _Versioned:
        """Read the files; no other thread does meanwhile."""
        try:
            if self._writes:
                self._model = _ShardModel.load(self._folder, mode="r+")
                held = _Versioned(Version.read(self._folder)[0], self._model.snapshot())
            else:
                held = self._read()
        except (OSError, ValueError) as error:
            self._drop()
            raise _Unusable(str(error)) from None
        self._held = held
        return held

    def _read(self) -> _Versioned:
        for _ in range(_TRIES):
            before, _ = Version.read(self._folder)
            model = _ShardModel.load(self._folder)
            if self._on_disk() == str(before):  # or it was changed while it was read
                return _Versioned(before, model)
        raise ValueError(f"{self._folder} is changed so often that it cannot be read; try again later")

    def _replaced(self, held: _Versioned, version: str | None) -> bool:
        """Whether there are other files than those that are held, which are asked for."""
        found = self._on_disk()
        return found != str(held.version) and version in (None, found)

    def _on_disk(self) -> str:
        try:
            return str(Version.read(self._folder)[0])
        except (OSError, ValueError) as error:
            raise _Unusable(str(error)) from None

    def _change(self, request: Request, version: str) -> Standing:
        """Make a change to the rows of a version, unless that was done before."""
        with self._lock:
            if version == NO_FILES:
                return self._begin(request)
            held = self._held or self._open()
            if str(held.version) != version:
                before, changes = Version.read(self._folder, less=1)
                if str(before) != version or not changes or not _is(changes[-1], request):
                    raise _OtherVersion(other_version(self._folder, str(held.version), version))
                return _standing(held)
            if self._model is None:
                raise ValueError("this worker only reads; connect with mode='r+'")
            try:
                _make(self._model, request)
                now = Version.read(self._folder)[0] if request.verb == "compact" else held.version.grown()
                self._held = _Versioned(now, self._model.snapshot())
            except BaseException as error:
                self._drop()  # what is on disk counts: it is read when next asked
                if isinstance(error, ValueError) and self._on_disk() != version:
                    raise _Unusable(str(error)) from None
                raise
            return _standing(self._held)

    def _begin(self, request: Request) -> Standing:
        """Save the first rows, unless that was done before."""
        given, began = request.arguments, self._is_empty()
        if began:
            rows = Features.of(given["rows"], names=given["names"])
            coded = given["index"] is PartitionIndex
            index = PartitionIndex.build(rows, rng=_SEED) if coded else ExactIndex.build(rows)
            LogLinear(index).save(self._folder)
        held = self._held or self._open()
        first, ids = held.model, np.arange(len(given["rows"]))
        same = not held.version.changes and first.size == len(ids)
        if not (began or (same and np.array_equal(first.features.gather(ids), given["rows"]))):
            raise _OtherVersion(other_version(self._folder, str(held.version), NO_FILES))
        return _standing(held)

    def _drop(self) -> None:
        if self._model is not None:
            self._model.close()
        self._model = self._held = None

    def _outcome(self, status: Any, results: tuple[Any, ...] = (), error: str = "") -> Outcome:
        held = self._held
        version = str(held.version) if held is not None else NO_FILES if self._is_empty() else None
        return Outcome(status, results, error, version, os.getpid(), self._node())


def _make(model: LogLinear, request: Request) -> None:
    given = request.arguments
    match request.verb:
        case "add":
            model.add(given["rows"], given["names"])
        case "remove":
            model.remove(given["ids"])
        case "replace":
            model.replace(given["ids"], given["rows"])
        case _:
            with _COMPACTING:
                model.compact(False, rebuild=given["rebuild"])


def _is(change: Change, request: Request) -> bool:
    """Whether a change is what a request asked for."""
    given = request.arguments
    match request.verb:
        case "add":
            same = not len(change.removed) and change.names == given["names"]
            return same and np.array_equal(change.rows, given["rows"])
        case "remove":
            return not len(change.ids) and np.array_equal(change.removed, given["ids"])
        case "replace":
            return np.array_equal(change.ids, given["ids"]) and np.array_equal(change.rows, given["rows"])
        case _:
            return False


def _standing(held: _Versioned, *, dead: bool = False) -> Standing:
    model, version = held.model, held.version
    features = model.features
    gone = np.setdiff1d(np.arange(model.size), model.ids, assume_unique=True) if dead else None
    return Standing(str(version), features.n, model.size, features.max_norm, version.changes, gone, model.index_type)


def _perform(held: _Versioned, request: Request) -> Any:
    """What a request asks for."""
    model, given = held.model, request.arguments
    features = model.features
    match request.verb:
        case "stand":
            return _standing(held, dead=model.size > features.n)
        case "audit":
            return audit_shard(model, request)
        case "gather":
            return features.gather(given["ids"])
        case "names":
            return [] if features.names is None else [features.names[i] for i in given["ids"].tolist()]
        case "find":
            try:
                return None if features.names is None else features.names.find(given["name"])
            except ValueError:
                return None
        case "complete":
            nothing = np.empty(0, dtype=np.int64)
            found = held.beginnings
            return (nothing, nothing) if found is None else found.find(given["prefix"], given["most"])
        case _:
            thetas = np.empty((0, features.d), dtype=np.float32) if request.thetas is None else request.thetas
            answer: Any = getattr(model(thetas, temperature=request.temperature), request.verb)(**given)
            # All names would travel with it.
            return answer if request.verb == "logits" else replace(answer, naming=None)
