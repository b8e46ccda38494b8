"""One small pool of threads for blocks of queries, and a helper for a single one; compiled kernels release the lock."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cache
from os import cpu_count
from threading import Lock, Thread
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

__all__ = ["RING", "Task", "alone", "map_threads", "one_blas_thread", "together"]

R = TypeVar("R")
Task = Callable[[npt.NDArray[np.int64], int], object]
"""Called with a bell, a count, and with RING by its caller or else how many rings are its own: see `kernels.weigh`."""
RING = -1

_CORES = cpu_count() or 1
_UNHEARD = np.zeros(1, dtype=np.int64)
"""A bell that nobody listens to."""


def map_threads(function: Callable[..., R], *columns: Iterable[Any]) -> Iterator[R]:
    """`map`, on the pool's threads; results in order."""
    return _pool().map(function, *columns)


def alone(task: Task) -> None:
    """Run a task that could be shared in this thread."""
    task(_UNHEARD, RING)


def together(task: Task) -> None:
    """Run a task that shares out its own work, and waits for all of it, here and in one other thread.

    Whether that thread comes in time makes no difference but in speed, so nothing is waited for here.
    """
    if _CORES == 1:
        alone(task)
    else:
        helper = _helper()
        helper.offer(task)
        task(helper.bell, RING)


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
def _helper() -> "_Helper":
    return _Helper()


class _Helper:
    """A thread that joins in the tasks of others.

    To wake a thread takes longer than many a task. So after each this one stays awake a little, without the
    interpreter's lock, and listens for a bell, which the next task rings when its caller has let go of the lock too.
    """

    def __init__(self) -> None:
        self.bell = np.zeros(1, dtype=np.int64)
        self._state, self._wake = Lock(), Lock()
        self._wake.acquire()
        self._asleep = False
        self._offered: tuple[Task, int] | None = None
        Thread(target=self._help_out, name="lazygumbel-helper", daemon=True).start()

    def offer(self, task: Task) -> None:
        """Have a task done here as well, in place of one that was offered before and is not begun."""
        with self._state:
            self._offered = task, int(self.bell[0]) + 1
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._wake.release()

    def _help_out(self) -> None:
        while True:
            with self._state:
                offered, self._offered = self._offered, None
                self._asleep = offered is None
            if offered is None:
                self._wake.acquire()
                continue
            task, rings = offered
            with suppress(Exception):  # its caller meets the same one
                task(self.bell, rings)


def _forget_threads() -> None:
    _pool.cache_clear()
    _helper.cache_clear()


if hasattr(os, "register_at_fork"):  # threads stay behind when a process forks
    os.register_at_fork(after_in_child=_forget_threads)
