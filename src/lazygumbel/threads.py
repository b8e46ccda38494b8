"""One small pool of threads for blocks of rows and for thetas; compiled kernels release the interpreter's lock."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["assist", "map_threads", "one_blas_thread", "submit"]

R = TypeVar("R")


def map_threads(function: Callable[..., R], *columns: Iterable[Any]) -> Iterator[R]:
    """`map`, on the pool's threads; results in order."""
    return _pool().map(function, *columns)


def submit(function: Callable[..., R], *arguments: Any) -> "Future[R]":
    """Have a function called on one of the pool's threads."""
    return _pool().submit(function, *arguments)


def assist(function: Callable[..., object], *arguments: Any) -> None:
    """Have a function called on one more thread, without waiting for it: sooner than by the pool, by 20 microseconds.

    What it returns or raises is lost: it is for work that its caller does alone if nobody comes.
    """
    _assistant().put((function, arguments))


@cache
def _assistant() -> "SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]]":
    queue: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def serve() -> None:
        while True:
            function, arguments = queue.get()
            with suppress(Exception):
                function(*arguments)
            del function, arguments  # or the last of them would be kept until the next

    Thread(target=serve, name="lazygumbel-assistant", daemon=True).start()
    return queue


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Within, a matrix product takes one thread: where the pool's threads make many, more would get in their way.

    The limit is of the process. Several threads may be within at once: the first to enter sets it, the last to leave
    restores what was there before.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


class _BlasLimit:
    def __init__(self) -> None:
        self._lock = Lock()
        self._within = 0
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            self._within += 1
            if self._within == 1:
                self._limiter = _blas().limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                self._limiter.restore_original_limits()


_limit = _BlasLimit()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(min(cores, 8), thread_name_prefix="lazygumbel")


def _forget_threads() -> None:
    global _limit
    _limit = _BlasLimit()
    _pool.cache_clear()
    _assistant.cache_clear()


if hasattr(os, "register_at_fork"):  # threads stay behind when a process forks
    os.register_at_fork(after_in_child=_forget_threads)
