"""`engine="ray"`: a worker process for each shard (or several), spread over the machines of a Ray cluster.

Workers are given a path and nothing else, so that Ray can start them anew anywhere; they memory-map the files, which
every machine must see under the same path. A request can be asked again: it is, of the same worker when Ray has
restarted it or of another one of the shard, until the deadline.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lazygumbel._support.extras import require
from lazygumbel._support.threads import set_threads
from lazygumbel.sharded.cluster import first_line, join
from lazygumbel.sharded.manifest import Manifest, folder_of
from lazygumbel.sharded.requests import Known, Lost, Outcome, Replies, Request, Requests, Versions
from lazygumbel.sharded.worker import ShardWorker

__all__ = ["RayEngine"]

_PAUSE = 0.1
"""Seconds before a worker that went away is asked again."""
_TOGETHER = 0.05
"""Seconds for which all answers are fetched in one call, which is quicker; then whatever comes is looked at first."""
_HEDGE = 0.25
"""Share of the deadline after which another worker of the shard is asked as well."""
_AT_ONCE = 4
"""Calls that a worker takes on at once: a slow one must not hold up the next, nor a question after its health."""


class RayWorker:
    """A `ShardWorker` as an actor, which has as many threads as cores were reserved for it."""

    def __init__(self, folder: str, *, writes: bool, filled: bool, threads: int | None) -> None:
        if threads is not None:
            set_threads(threads)
        self._worker = ShardWorker(folder, _node, writes=writes, filled=filled)

    def answer(self, asked: tuple[tuple[Request, ...], str | None]) -> Outcome:
        """What came of requests to the rows of a version; in one argument, as Ray packs each by itself."""
        return self._worker.answer(*asked)

    def warm_up(self) -> Outcome:
        """Comes as soon as its files are open and its kernels compiled."""
        return self._worker.warm_up()


@dataclass(eq=False, kw_only=True)
class _Slot(Known):
    """One worker."""

    replica: int
    actor: Any


class RayEngine:
    """Shards on a Ray cluster: the one at `address`, the one this process has joined, or one of its own."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        *,
        address: str | None,
        replicas: int,
        deadline: float,
        cpus: float,
        startup: float,
        writes: bool = False,
    ) -> None:
        self._ray: Any = require("ray", extra="ray")
        self._deadline = deadline
        shards = manifest.asked(writes=writes)
        self._joined = join(self._ray, address, cpus * len(shards) * replicas)
        actor = self._ray.remote(RayWorker).options(
            num_cpus=cpus, max_restarts=-1, max_concurrency=_AT_ONCE, scheduling_strategy="SPREAD"
        )
        threads = max(1, int(cpus)) if cpus else None
        self._slots: dict[int, list[_Slot]] = {shard.shard: [] for shard in shards}
        for replica in range(replicas):
            # Ray goes round the machines: turned by one, the workers of a shard are on different ones.
            turned = shards[replica % len(shards) :] + shards[: replica % len(shards)]
            for shard in turned:
                folder = str(path.resolve() / folder_of(shard.shard))
                handle = actor.remote(folder, writes=writes, filled=shard.version is not None, threads=threads)
                self._slots[shard.shard].append(_Slot(shard=shard.shard, replica=replica, actor=handle))
        self._hear({slot.actor.warm_up.remote(): slot for slot in self._all()}, startup)

    def ask(self, requests: Requests, versions: Versions, deadline: float | None = None) -> Replies:
        """One wait for all shards; what fails is asked again until the deadline."""
        slots = {shard: self._slots[shard] for shard in requests}
        seconds = self._deadline if deadline is None else deadline
        return _FanOut(self._ray, slots, requests, versions, seconds).run()

    def health(self, versions: Versions) -> list[Known]:
        """What is known of each worker; each is asked, and those that do not answer in time say so."""
        asked = {slot.actor.answer.remote(((), versions[slot.shard])): slot for slot in self._all()}
        self._hear(asked, self._deadline)
        return list(self._all())

    def close(self) -> None:
        """End the workers; leave the cluster if it was joined for them."""
        if self._ray.is_initialized():
            for slot in self._all():
                self._ray.kill(slot.actor)
            if self._joined:
                self._ray.shutdown()
        self._slots = {}

    def _all(self) -> list[_Slot]:
        return [slot for shard in self._slots.values() for slot in shard]

    def _hear(self, calls: dict[Any, _Slot], seconds: float) -> None:
        """Take note of how every worker fares."""
        ready, late = self._ray.wait(list(calls), num_returns=len(calls), timeout=seconds)
        for call in ready:
            try:
                calls[call].heard(self._ray.get(call))
            except self._ray.exceptions.RayError as error:
                calls[call].error = first_line(error)
        for call in late:
            calls[call].error = f"no answer within {seconds:g} s"


class _FanOut:
    """One round of questions. A shard may be asked several times; the first answer counts."""

    def __init__(
        self, ray: Any, slots: dict[int, list[_Slot]], requests: Requests, versions: Versions, deadline: float
    ) -> None:
        self._ray, self._slots, self._requests, self._deadline = ray, slots, requests, deadline
        self._versions = versions
        self._until = time.monotonic() + deadline
        self._calls: dict[Any, _Slot] = {}
        self._due: list[tuple[float, int, int]] = []
        """When to ask which shard, and which of its workers."""
        self._refused: dict[int, set[int]] = {shard: set() for shard in slots}
        """Workers that have other files, which no retry will change."""
        self._replies = Replies()

    def run(self) -> Replies:
        """All answers, or those until the deadline."""
        now = time.monotonic()
        self._due = [(now, shard, 0) for shard in self._slots]
        self._launch(now)
        self._fetch_all()
        while self._open() and (now := time.monotonic()) < self._until:
            self._launch(now)
            pause = min([self._until, *(when for when, _, _ in self._due)]) - time.monotonic()
            if not self._calls:
                time.sleep(max(pause, 0.0))
                continue
            ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=max(pause, 0.0))
            for call in ready:
                self._fetch(call)
        self._give_up()
        return self._replies

    def _fetch_all(self) -> None:
        """Every answer, if all come soon."""
        calls = list(self._calls)
        try:
            outcomes: list[Outcome] = self._ray.get(calls, timeout=min(_TOGETHER, self._deadline))
        except self._ray.exceptions.RayError:
            return  # one is late, or lost: which one is found out next
        for call, outcome in zip(calls, outcomes, strict=True):
            self._settle(self._calls.pop(call), outcome)

    def _open(self) -> list[int]:
        done = self._replies
        return [shard for shard in self._slots if shard not in done.answers and shard not in done.lost]

    def _launch(self, now: float) -> None:
        waiting = set(self._open())
        ripe = [(shard, replica) for when, shard, replica in self._due if when <= now and shard in waiting]
        self._due = [due for due in self._due if due[0] > now and due[1] in waiting]
        for shard, replica in ripe:
            slots = self._slots[shard]
            slot = slots[replica % len(slots)]
            self._calls[self._asked(slot, shard)] = slot
            if replica + 1 < len(slots):
                self._due.append((now + _HEDGE * self._deadline, shard, replica + 1))

    def _asked(self, slot: _Slot, shard: int) -> Any:
        try:
            return slot.actor.answer.remote((self._requests[shard], self._versions[shard]))
        except TypeError as error:
            why = str(error).strip().splitlines()[0]
            raise ValueError(f"method, f: what is asked must travel to other processes, by pickle: {why}") from None

    def _fetch(self, call: Any) -> None:
        slot = self._calls.pop(call)
        try:
            self._settle(slot, self._ray.get(call))
        except self._ray.exceptions.RayError as error:
            slot.error = first_line(error)
            self._again(slot.shard, slot)

    def _settle(self, slot: _Slot, outcome: Outcome) -> None:
        shard = slot.shard
        slot.heard(outcome)
        if shard in self._replies.answers:
            return
        if outcome.status == "invalid":
            self._cancel(list(self._calls))
            raise ValueError(outcome.error)
        if outcome.status == "answered":
            self._replies.answers[shard] = outcome.results
            return
        if outcome.status == "refused":
            self._refused[shard].add(slot.replica)
        if len(self._refused[shard]) == len(self._slots[shard]):
            self._replies.lost[shard] = Lost(shard, outcome.error)
            self._replies.refused.add(shard)
        else:
            self._again(shard, slot)

    def _again(self, shard: int, slot: _Slot) -> None:
        self._due.append((time.monotonic() + _PAUSE, shard, slot.replica + 1))

    def _give_up(self) -> None:
        for shard in self._open():
            said = "; ".join(slot.error for slot in self._slots[shard] if slot.error)
            reason = f"no answer within {self._deadline:g} s" + (f" ({said})" if said else "")
            for slot in self._slots[shard]:
                slot.error = slot.error or reason
            self._replies.lost[shard] = Lost(shard, reason)
        self._cancel(list(self._calls))

    def _cancel(self, calls: Sequence[Any]) -> None:
        """What has not begun need not begin; what has begun goes on, unheard."""
        for call in calls:
            self._ray.cancel(call, recursive=False)


@cache
def _node() -> str:
    ray: Any = require("ray", extra="ray")
    return str(ray.get_runtime_context().get_node_id())
