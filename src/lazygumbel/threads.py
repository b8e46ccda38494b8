"""One small thread pool: parallelism is the caller's, over blocks of queries; compiled kernels release the lock."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from os import cpu_count
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["map_threads", "one_blas_thread", "share"]

R = TypeVar("R")


def map_threads(function: Callable[..., R], *columns: Iterable[Any]) -> Iterator[R]:
    """`map`, on the pool's threads; results in order."""
    return _pool().map(function, *columns)


def share(function: Callable[[int, int], R], parts: int) -> list[R]:
    """`function(part, parts)` for every part: the first in this thread, which saves a wait, others in the pool."""
    others = [_pool().submit(function, part, parts) for part in range(1, parts)]
    return [function(0, parts), *(other.result() for other in others)]


def one_blas_thread() -> AbstractContextManager[object]:
    """Within, a matrix product takes one thread: where the pool's threads make many, more would get in their way."""
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(cpu_count() or 1, 8), thread_name_prefix="lazygumbel")
