"""How shards are looked at: as they are at each question, or as they were at one moment."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from lazygumbel.sharded.coordinator import Coordinator, Overtaken
from lazygumbel.sharded.places import ShardPlaces
from lazygumbel.sharded.requests import Replies, Requests

__all__ = ["Pinned", "View"]

T = TypeVar("T")


class View(Protocol):
    """Where questions go."""

    @property
    def known(self) -> ShardPlaces:
        """The rows that questions are about, as far as is known."""
        ...

    def steady(self, ask: Callable[[ShardPlaces], T], /) -> T:
        """What a function of places returns, for one version of all shards."""
        ...

    def send(self, places: ShardPlaces, requests: Requests, *, whole: bool = False) -> Replies:
        """One fan-out; `whole` if no shard may be missing."""
        ...


class Pinned:
    """The rows of one moment, for as long as they do not change: shards keep no old ones."""

    def __init__(self, shards: Coordinator) -> None:
        self._shards, self.known = shards, shards.now()
        """The rows of that moment."""

    def steady(self, ask: Callable[[ShardPlaces], T], /) -> T:
        """As of that moment, or `ValueError`."""
        try:
            return ask(self.known)
        except Overtaken:
            raise ValueError(
                "the rows of the model were changed meanwhile, by this connection, and shards keep no old versions; "
                "begin again, and change rows when it is done"
            ) from None

    def send(self, places: ShardPlaces, requests: Requests, *, whole: bool = False) -> Replies:
        """One fan-out."""
        return self._shards.send(places, requests, whole=whole)
