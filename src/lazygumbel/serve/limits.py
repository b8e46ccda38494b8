"""`Limits`: how much one request, one run of the engine and the queue before it may hold."""

from dataclasses import dataclass, fields

from lazygumbel._support.checks import check_count, check_number

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """What a service takes on; beyond it a request is refused with the number that was too large."""

    body: int = 8 * 2**20
    """Bytes of a request."""
    thetas: int = 1024
    """Thetas of a request."""
    size: int = 10_000
    """Draws of a theta, and rows of a top k."""
    answers: int = 200_000
    """Ids, or numbers of an expectation, in one answer."""
    exclude: int = 100_000
    """Ids to leave out, over all thetas of a request."""
    batch: int = 256
    """Thetas that the engine takes from the queue at once."""
    queue: int = 1024
    """Requests that wait; one more is told to come again."""
    seconds: float = 30.0
    """How long a request may wait for its answer."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "seconds":
                check_count(getattr(self, field.name), field.name)
        check_number(self.seconds, "seconds", above=0.0)

    def allow(self, count: int, name: str, what: str) -> int:
        """The same count, or a `ValueError` when it is beyond the limit `name`."""
        most: int = getattr(self, name)
        if count > most:
            raise ValueError(f"{what} is {count:,}, but this service takes at most {most:,}")
        return count
