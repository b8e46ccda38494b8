"""One small thread pool: parallelism is the caller's, over blocks of queries; compiled kernels release the lock."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cache
from os import cpu_count
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["map_threads", "one_blas_thread", "together"]

R = TypeVar("R")

_CORES = cpu_count() or 1


def map_threads(function: Callable[..., R], *columns: Iterable[Any]) -> Iterator[R]:
    """`map`, on the pool's threads; results in order."""
    return _pool().map(function, *columns)


def together(task: Callable[[], object]) -> None:
    """Run a task that shares out its own work, and waits for all of it, here and in one other thread.

    Whether that thread comes in time makes no difference but in speed, so nothing is waited for here. What it costs is
    to wake it: less than a tenth of a millisecond.
    """
    if _CORES > 1:
        _helper().put(task)
    task()


def one_blas_thread() -> AbstractContextManager[object]:
    """Within, a matrix product takes one thread: where the pool's threads make many, more would get in their way."""
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_CORES, 8), thread_name_prefix="lazygumbel")


@cache
def _helper() -> "SimpleQueue[Callable[[], object]]":
    """Tasks of a thread that is there for `together`; where one fails, whoever asked finds out in its own thread."""
    tasks: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def help_out() -> None:
        while True:
            with suppress(Exception):
                tasks.get()()

    Thread(target=help_out, name="lazygumbel-helper", daemon=True).start()
    return tasks


def _forget_threads() -> None:
    _pool.cache_clear()
    _helper.cache_clear()


if hasattr(os, "register_at_fork"):  # threads stay behind when a process forks
    os.register_at_fork(after_in_child=_forget_threads)
