"""What goes to a shard and what comes back, the same for every engine; and what an engine is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.indexes import Index

__all__ = [
    "CHANGES",
    "Engine",
    "Health",
    "Known",
    "Lost",
    "Outcome",
    "Replies",
    "Request",
    "Requests",
    "ShardError",
    "Standing",
    "Verb",
    "Versions",
]


Verb = Literal[
    "sample",
    "sample_without_replacement",
    "log_partition",
    "expectation",
    "mean_logit",
    "logits",
    "top_k",
    "gather",
    "names",
    "find",
    "complete",
    "audit",
    "stand",
    "add",
    "remove",
    "replace",
    "compact",
]
"""Verbs of `Distribution` that need a theta, four that ask for rows, and those that ask for a `Standing`."""
CHANGES: tuple[Verb, ...] = ("add", "remove", "replace", "compact")
"""Verbs that change rows; each is asked alone."""


@dataclass(frozen=True, eq=False)
class Request:
    """One question about the rows of a shard, in the shard's own ids; it can be asked again.

    Looks are read-only and seeded. A change comes with the version that it changes, which tells if it was made already.
    """

    verb: Verb
    arguments: Mapping[str, Any]
    thetas: Vectors | None = None
    temperature: float = 1.0


Requests = Mapping[int, tuple[Request, ...]]
"""What each shard is asked in one fan-out."""
Versions = Mapping[int, str | None]
"""In which version of its rows each shard is to answer; None for any."""


@dataclass(frozen=True, eq=False)
class Standing:
    """The rows of a shard in one version."""

    version: str
    """See `versions`."""
    count: int
    """How many there are."""
    given: int
    """How many ids of its own it has given, from 0 on."""
    max_norm: float
    changes: int
    """In its log."""
    dead: Ints | None
    """Its own ids of rows that were removed, ascending; None for as many as before."""
    index_type: type[Index] | None
    """Of the index; None while it is not known."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a worker fared with some requests."""

    status: Literal["answered", "invalid", "refused", "failed"]
    """invalid: the request can never be answered. refused: the files are of another version. failed: worth a retry."""
    results: tuple[Any, ...]
    error: str
    version: str | None
    pid: int
    node: str


@dataclass(frozen=True)
class Lost:
    """A shard that did not answer, and why."""

    shard: int
    reason: str

    def __str__(self) -> str:
        return f"shard {self.shard}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Replies:
    """What came of one fan-out: every shard that was asked either answered or is lost."""

    answers: dict[int, tuple[Any, ...]] = field(default_factory=dict[int, tuple[Any, ...]])
    lost: dict[int, Lost] = field(default_factory=dict[int, Lost])
    refused: set[int] = field(default_factory=set[int])
    """Those of the lost that hold another version."""


@dataclass(frozen=True)
class Health:
    """How one worker of a shard is doing, as far as this connection knows."""

    shard: int
    node: str | None
    """Where it runs; None when it never answered, or when the shard has no worker, as it never had rows."""
    pid: int | None
    rows: int
    version: str | None
    """Of the files that it has open; None when it has none open."""
    restarts: int
    """How often it was found to run as another process than before."""
    last_error: str | None
    """The last thing that went wrong since it last answered."""


@dataclass(eq=False)
class Known:
    """What is known of one worker, whichever process it is at the moment."""

    shard: int
    last: Outcome | None = None
    restarts: int = 0
    error: str | None = None

    def heard(self, outcome: Outcome) -> None:
        """Take note of an outcome."""
        if self.last is not None and (self.last.pid, self.last.node) != (outcome.pid, outcome.node):
            self.restarts += 1
        self.last = outcome
        self.error = outcome.error or None

    def health(self, rows: int) -> Health:
        """As a record, of so many rows."""
        last = self.last
        where = (None, None) if last is None else (last.node, last.pid)
        return Health(self.shard, *where, rows, None if last is None else last.version, self.restarts, self.error)


class ShardError(ConnectionError):
    """Shards that did not answer; `lost` names each and says why."""

    def __init__(self, lost: Mapping[int, Lost]) -> None:
        self.lost = [lost[shard] for shard in sorted(lost)]
        super().__init__("; ".join(map(str, self.lost)))


class Engine(Protocol):
    """Where shards run."""

    def ask(self, requests: Requests, versions: Versions, deadline: float | None = None) -> Replies:
        """One fan-out: every shard is asked at the same time, and again until the deadline where that may help.

        `ValueError` when a request can never be answered.
        """
        ...

    def health(self, versions: Versions) -> list[Known]:
        """What is known of each worker, which is asked in this version."""
        ...

    def close(self) -> None:
        """Let go of what it holds; nothing can be asked afterwards."""
        ...
