"""A helper: one more thread, in compiled code, with which the scan of a theta alone is shared.

It is called before there is anything to do, so that it is awake when the theta is prepared, and it never asks for the
interpreter's lock. It stays awake for a moment, because thetas often come one after the other, and to wake it takes
longer than to prepare one. One thread at a time is helped; others that ask meanwhile scan alone. Nobody waits for a
helper who does not come.
"""

import os
from contextlib import suppress
from functools import cache
from threading import Lock, Thread

import numpy as np

from lazygumbel import kernels
from lazygumbel._support.arrays import Ints
from lazygumbel.kernels.types import AWAKE, CALLS, MAILBOX

__all__ = ["call_helper", "let_go"]


_NOBODY: Ints = np.empty(0, dtype=np.int64)


class _Helper:
    def __init__(self) -> None:
        self.mailbox: Ints = np.zeros(MAILBOX, dtype=np.int64)
        self.lock = Lock()
        # First it is called in vain: a process that forks while another thread compiles cannot compile any more.
        asleep, waker = os.pipe()
        os.close(waker)
        kernels.run_helper(asleep, self.mailbox)
        os.close(asleep)
        asleep, self._waker = self.pipe = os.pipe()
        os.set_blocking(self._waker, False)
        Thread(target=kernels.run_helper, args=(asleep, self.mailbox), name="lazygumbel-helper", daemon=True).start()

    def call(self) -> None:
        self.mailbox[CALLS] += 1
        if not self.mailbox[AWAKE]:
            with suppress(BlockingIOError):  # it was called thousands of times, and has not come yet
                os.write(self._waker, b"!")


def call_helper(shared: bool) -> Ints:
    """The mailbox at which the helper is awaited until `let_go`; one for nobody if it is not to share, or helps another
    thread."""
    helper = _helper() if shared else None
    if helper is None or not helper.lock.acquire(blocking=False):
        return _NOBODY
    helper.call()
    return helper.mailbox


def let_go(mailbox: Ints) -> None:
    """The helper is not awaited any more."""
    if len(mailbox):
        _helper().lock.release()


@cache
def _helper() -> _Helper:
    return _Helper()


def _forget() -> None:
    """A thread stays behind when a process forks; its pipe is not for two."""
    if _helper.cache_info().currsize:
        for end in _helper().pipe:
            os.close(end)
    _helper.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
