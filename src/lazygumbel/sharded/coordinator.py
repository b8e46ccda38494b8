"""`Coordinator`: what a connection knows of its shards, and how it keeps that true while rows change.

Every request says in which version of its rows a shard is to answer, and a shard in another one refuses. So an answer
is of one version of every shard, the one that the connection knows. A change that was not heard of again is made by the
next call, before it asks anything: shards tell by the version whether it was made already.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Literal, TypeVar

import numpy as np

from lazygumbel._support.locking import only_writer
from lazygumbel.sharded.manifest import NO_FILES, Manifest, folder_of
from lazygumbel.sharded.places import ShardPlaces
from lazygumbel.sharded.requests import Engine, Health, Lost, Replies, Request, Requests, ShardError, Standing
from lazygumbel.sharded.versions import files_of, other_version

__all__ = ["Coordinator", "Overtaken"]

T = TypeVar("T")

_TRIES = 10
"""Of a question that changes overtake, before they have to wait for it."""
_DOUBT = "; its part of the change is made before the next call of this connection is answered, if it was not"


class Overtaken(Exception):  # a signal, not an error
    """Rows have changed since a question was put."""


class Coordinator:
    """All questions and changes of one connection. One that writes keeps other writers away until it is closed."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        start: Callable[[], Engine],
        *,
        missing: Literal["raise", "partial"],
        writes: bool,
    ) -> None:
        self.path, self.writes, self.named, self._missing = path, writes, manifest.named, missing
        self.changing = RLock()
        """Held by who changes rows."""
        self._manifest = manifest
        self._standings = {
            shard.shard: Standing(shard.files, shard.rows, shard.rows, manifest.max_norm, 0, None, None)
            for shard in manifest.asked(writes=writes)
        }
        self._unknown = set(self._standings)
        """Shards that must say how they stand."""
        self._pending: dict[int, Request] = {}
        """Changes that were not heard of again."""
        self.known = ShardPlaces(manifest, self._standings, {})
        """The rows that there are, as far as is known."""
        self._closing = ExitStack()
        if writes:
            self._closing.enter_context(only_writer(path))
        with ExitStack() as unless_done:
            unless_done.callback(self._closing.close)
            self._engine = start()
            self._closing.callback(self._engine.close)
            self._settle()
            self._unmark(set(self._standings) - self._unknown)
            unless_done.pop_all()

    def now(self) -> ShardPlaces:
        """The rows that there are; shards of which that cannot be said are lost."""
        if self._pending or self._unknown:
            with self.changing:
                return self._settle()
        return self.known

    def steady(self, ask: Callable[[ShardPlaces], T]) -> T:
        """What a function of places returns, for one version of all shards."""
        for _ in range(_TRIES):
            try:
                return ask(self.now())
            except Overtaken:
                continue
        with self.changing:
            return ask(self.now())

    def send(self, places: ShardPlaces, requests: Requests, *, whole: bool = False) -> Replies:
        """One fan-out; `whole` if no shard may be missing."""
        asked = {shard: mine for shard, mine in requests.items() if shard not in places.lost}
        replies = self._engine.ask(asked, places.versions(asked))
        if replies.refused and self._moved(places, replies.refused):
            raise Overtaken
        replies.lost.update({shard: places.lost[shard] for shard in requests if shard in places.lost})
        if replies.lost and (whole or self._missing == "raise"):
            raise ShardError(replies.lost)
        return replies

    def change(self, requests: Mapping[int, Request]) -> ShardPlaces:
        """Have shards, none of which is lost, change their rows; by who holds `changing`."""
        first = {shard for shard in requests if self._standings[shard].version == NO_FILES}
        if first:
            self._mark(first, compacting=True)
        self._pending |= requests
        places = self._settle()
        lost = {shard: Lost(shard, places.lost[shard].reason + _DOUBT) for shard in requests if shard in places.lost}
        if lost:
            raise ShardError(lost)
        return places

    def compact(self, *, rebuild: bool, deadline: float) -> None:
        """Have shards that have changed put their rows under one index."""
        with self.changing:
            places = self.now()
            # One that has lost all rows keeps its files until it has some again.
            todo = {one.number: one.standing for one in places.filled if rebuild or one.standing.changes}
            if not todo or places.lost:
                if places.lost:
                    raise ShardError(places.lost)
                return
            self._mark(set(todo), compacting=True)
            request = Request("compact", {"rebuild": rebuild})
            self._unknown |= set(todo)
            replies = self._engine.ask(dict.fromkeys(todo, (request,)), places.versions(todo), deadline)
            for shard, (standing,) in replies.answers.items():
                self._adopt(shard, standing)
            places = self._settle()
            left = {s for s, before in todo.items() if self._standings[s].version == before.version}
            self._unmark(set(todo) - left - self._unknown)
            if left | set(places.lost):
                raise ShardError({s: replies.lost.get(s) or Lost(s, "not compacted") for s in left | set(places.lost)})

    def health(self) -> list[Health]:
        """One record a worker, and one for each shard that has none."""
        counts = {holding.number: holding.count for holding in self.known.shards}
        asked = self._engine.health({shard: standing.version for shard, standing in self._standings.items()})
        found = [known.health(counts[known.shard]) for known in asked]
        unasked = (shard.shard for shard in self._manifest.shards if shard.shard not in counts)
        found += [Health(shard, None, None, 0, None, 0, None) for shard in unasked]
        return sorted(found, key=lambda record: record.shard)

    def close(self) -> None:
        """End the workers, and let others write."""
        self._closing.close()

    def _moved(self, places: ShardPlaces, refused: set[int]) -> bool:
        """Whether shards refused what was asked because their rows have changed since, by this connection."""
        if not self.writes:
            return False
        with self.changing:  # a change that is under way is published when it is over
            self._unknown |= {shard for shard in refused if self._manifest.shards[shard].compacting}
            return self.known is not places or bool(self._unknown)

    def _settle(self) -> ShardPlaces:
        """Ask shards how they stand, and for changes that were not heard of; publish what is known."""
        asked = {shard: (Request("stand", {}),) for shard in self._unknown - set(self._pending)}
        asked |= {shard: (request,) for shard, request in self._pending.items()}
        versions = {shard: self._standings[shard].version if shard in self._pending else None for shard in asked}
        try:
            replies = self._engine.ask(asked, versions)
        except ValueError:  # one of them cannot be made; of the others nothing was heard
            self._unknown |= set(self._pending)
            self._pending = {}
            raise
        for shard, (standing,) in replies.answers.items():
            wrong = self._adopt(shard, standing)
            if wrong is not None:
                replies.lost[shard] = wrong
        self.known = ShardPlaces(self._manifest, self._standings, replies.lost)
        return self.known

    def _adopt(self, shard: int, standing: Standing) -> Lost | None:
        """Take note of how a shard stands; what is wrong if it holds files that nobody expects."""
        known, held = self._standings[shard], self._manifest.shards[shard]
        files = files_of(standing.version)
        if files != held.files:
            if not (held.compacting and self.writes and not standing.changes):
                found = other_version(self.path / folder_of(shard), standing.version, held.files)
                cure = "; a compaction was interrupted: connect once with mode='r+'" if held.compacting else ""
                return Lost(shard, found + cure)
            self._mark({shard}, compacting=False, version=files)
        request = self._pending.pop(shard, None)
        self._unknown.discard(shard)
        dead = known.dead if standing.dead is None else standing.dead
        if request is not None and request.verb == "remove":
            dead = np.union1d(request.arguments["ids"], [] if dead is None else dead).astype(np.int64)
        self._standings[shard] = replace(standing, dead=dead)
        return None

    def _mark(self, shards: set[int], *, compacting: bool, version: str | None = None) -> None:
        """Note in the manifest what happens to the files of shards."""
        changed = tuple(
            replace(shard, compacting=compacting, version=version or shard.version) if shard.shard in shards else shard
            for shard in self._manifest.shards
        )
        self._manifest = replace(self._manifest, shards=changed)
        self._manifest.write(self.path)

    def _unmark(self, shards: set[int]) -> None:
        marked = {shard for shard in shards if self._manifest.shards[shard].compacting}
        if marked and self.writes:
            self._mark(marked, compacting=False)
