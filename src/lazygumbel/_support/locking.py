"""One writer of a folder at a time: a lock file that is let go when its process ends, however it ends."""

import fcntl
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO
from weakref import WeakSet

__all__ = ["LOCK", "only_writer"]

LOCK = "writer.lock"
"""Its name. It is in the folder while somebody writes there; one that a crash left behind locks nothing."""
_SHOWN = 200
_held: WeakSet[IO[bytes]] = WeakSet()
"""Of this process."""


@contextmanager
def only_writer(folder: Path) -> Generator[None]:
    """Be the only writer of a folder, which exists; `ValueError` if there is one already, which says who it is."""
    try:
        stream = _acquire(folder)
        try:
            yield
        finally:
            _release(stream, folder)
    except BaseException:
        _discard(folder)  # Ctrl-C may arrive between any two lines, with the file made and nobody to remove it
        raise


def _discard(folder: Path) -> None:
    """Remove a lock file that nobody holds."""
    with suppress(OSError), (folder / LOCK).open("r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(stream, folder):
            (folder / LOCK).unlink(missing_ok=True)


def _acquire(folder: Path) -> IO[bytes]:
    while True:
        stream = (folder / LOCK).open("a+b")
        try:
            _lock(stream, folder)
            if _is_current(stream, folder):
                stream.truncate(0)
                stream.write(_who().encode())
                stream.flush()
                _held.add(stream)
                return stream
        except BaseException:
            _release(stream, folder)
            raise
        stream.close()  # what was locked has been removed meanwhile


def _release(stream: IO[bytes], folder: Path) -> None:
    """Remove the lock file if it is ours, before it is let go; Ctrl-C may have come before it was."""
    if stream.closed:  # it is that of the process that this one was forked from
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(stream, folder):
            (folder / LOCK).unlink(missing_ok=True)
    except OSError:  # it is somebody else's
        pass
    finally:
        stream.close()


def _leave_to_parent() -> None:
    """A lock is shared with whoever is forked, and would outlast its process."""
    for stream in _held:
        stream.close()


os.register_at_fork(after_in_child=_leave_to_parent)


def _lock(stream: IO[bytes], folder: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.seek(0)
        words = stream.read(_SHOWN).decode("utf-8", "replace")
        holder = "".join(c for c in words if c.isprintable()) or "another process"
        raise ValueError(f"path: {folder} is being written by {holder}; wait for it or choose another folder") from None
    except OSError:  # a file system without locks, where one writer at a time is up to the user
        return


def _is_current(stream: IO[bytes], folder: Path) -> bool:
    """Whether the file that was locked is still the lock file."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(folder / LOCK))
    except FileNotFoundError:
        return False


def _who() -> str:
    now = datetime.now().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {now}"
