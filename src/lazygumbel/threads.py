"""One small thread pool: parallelism is the caller's, over blocks of queries; compiled kernels release the lock."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from os import cpu_count
from typing import Any, TypeVar

__all__ = ["map_threads"]

R = TypeVar("R")


def map_threads(function: Callable[..., R], *columns: Iterable[Any]) -> Iterator[R]:
    """`map`, on the pool's threads; results in order."""
    return _pool().map(function, *columns)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(cpu_count() or 1, 8), thread_name_prefix="lazygumbel")
