"""How many threads, and one small pool of them for blocks of rows and for thetas.

Compiled kernels release the interpreter's lock. The number is that of the cores this process may use, unless
`set_threads` or the environment variable LAZYGUMBEL_THREADS says otherwise.
"""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from lazygumbel._support.checks import check_count

__all__ = ["capped_faiss", "get_threads", "map_threads", "one_blas_thread", "set_threads", "submit"]

R = TypeVar("R")

_VARIABLE = "LAZYGUMBEL_THREADS"
_WAITING = "OMP_WAIT_POLICY"
_GROUPS = Path("/sys/fs/cgroup")


def set_threads(n: int | None) -> None:
    """Use at most n threads in this process from now on: for builds, scans and batches, and within FAISS.

    NumPy's matrix products are limited likewise, also those outside of lazygumbel. Answers do not depend on it. None is
    the default: as many as there are cores that this process may use. NumPy counts these itself, but for the limits of
    a control group, which are set for it.
    """
    _limit.choose(None if n is None else check_count(n, "n"))
    _pool.cache_clear()  # its threads end when they have done what was asked of them


def get_threads() -> int:
    """How many threads are used at most."""
    return _limit.chosen or _usable_cores()


def map_threads(function: Callable[..., R], *columns: Iterable[Any]) -> Iterator[R]:
    """`map`, on the pool's threads; results in order."""
    return map(function, *columns) if get_threads() == 1 else _pool().map(function, *columns)


def submit(function: Callable[..., R], *arguments: Any) -> "Future[R]":
    """Have a function called on one of the pool's threads; at once on this one if it is the only one."""
    if get_threads() > 1:
        return _pool().submit(function, *arguments)
    done: Future[R] = Future()
    done.set_result(function(*arguments))
    return done


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


@contextmanager
def capped_faiss() -> Generator[Any]:
    """FAISS, which within takes no more threads than `get_threads` when it is called from this one."""
    faiss = _import_faiss()
    before: int = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(min(before, get_threads()))
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


@cache
def _import_faiss() -> Any:
    """FAISS with OpenMP threads that sleep while they wait: by default they spin, and where they share a core with
    somebody else's work, each step waits for a thread that is not running, and takes many times as long."""
    if "faiss" in sys.modules or _WAITING in os.environ:
        return import_module("faiss")
    os.environ[_WAITING] = "PASSIVE"  # read once, when the library is loaded
    try:
        return import_module("faiss")
    finally:
        del os.environ[_WAITING]


class _BlasLimit:
    def __init__(self, chosen: int | None = None) -> None:
        self.chosen = chosen
        """What the user has set."""
        self._lock = Lock()
        self._within = 0
        self._inner: Any = None
        self._outer: Any = None

    def choose(self, chosen: int | None) -> None:
        with self._lock:
            self.chosen = chosen
            if not self._within:
                self._apply()

    def enter(self) -> None:
        with self._lock:
            self._within += 1
            if self._within == 1:
                self._inner = _blas().limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                self._inner.restore_original_limits()
                self._apply()

    def _apply(self) -> None:
        """Limit BLAS to what was chosen, or lift that limit."""
        if self._outer is not None:
            self._outer.restore_original_limits()
            self._outer = None
        most = self.chosen or _limit_of_group()
        if most is not None:
            self._outer = _blas().limit(limits=most, user_api="blas")


_limit = _BlasLimit()
_WITH_BLAS = "faiss", "scipy.linalg", "sklearn", "torch"
"""Modules that bring a BLAS of their own, some time after NumPy's."""


def _blas() -> ThreadpoolController:
    return _controller(tuple(name in sys.modules for name in _WITH_BLAS))


@cache
def _controller(loaded: tuple[bool, ...]) -> ThreadpoolController:  # noqa: ARG001  # looked for anew when there are more
    return ThreadpoolController()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(get_threads(), thread_name_prefix="lazygumbel")


@cache
def _usable_cores() -> int:
    return _limit_of_group() or _own_cores()


def _own_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _limit_of_group() -> int | None:
    """How many of them the control group allows, if that is less."""
    cores = _own_cores()
    allowed = max(1, int(min([cores, *_quotas()])))
    return allowed if allowed < cores else None


def _quotas() -> list[float]:
    """Limits of the control groups of this process, in cores: of its own and of those around it, where it has any."""
    found: list[float] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        unified = not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        root = _GROUPS if unified else _GROUPS / "cpu"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if unified:
                words = _read(folder / "cpu.max").split()
            else:
                words = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
            if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
                found.append(int(words[0]) / int(words[1]))
            if folder == root:
                break
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _forget_threads() -> None:
    global _limit
    _limit = _BlasLimit(_limit.chosen)
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):  # threads stay behind when a process forks
    os.register_at_fork(after_in_child=_forget_threads)

if _VARIABLE in os.environ:
    if not os.environ[_VARIABLE].isdigit() or int(os.environ[_VARIABLE]) < 1:
        raise ValueError(f"{_VARIABLE} must be a whole number of at least 1, not {os.environ[_VARIABLE]!r}")
    set_threads(int(os.environ[_VARIABLE]))
elif _limit_of_group() is not None:
    set_threads(None)
