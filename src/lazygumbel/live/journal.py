"""A log of changes beside a saved model: each is on disk before the call that makes it returns.

A record is a mark, the length and the checksum of its content, its number, and a checksum of all that; then the
content: ids that lose their rows, ids that get some, these rows, and names. Numbers run from 1 without a gap. What a
crash leaves at the end is no record, and is dropped; a bad record with a good one behind it is damage, and is refused.
"""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import reduce
from pathlib import Path
from struct import Struct, error
from typing import IO, Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from lazygumbel._support.locking import only_writer
from lazygumbel._support.persist import changes_file, read_config
from lazygumbel.live.rows import Change
from lazygumbel.live.segment import Segment
from lazygumbel.live.standard import Standard

__all__ = ["Log", "packed_size", "read_changes"]

_MARK = b"\x89LGc"
_HEAD = Struct("<4sQIQI")
"""Mark, length and checksum of the content, number, and checksum of these."""
_COUNTS = Struct("<QQQQ")
"""Ids removed, ids that get rows, length of a row, bytes of names."""


def _packed(change: Change, number: int) -> bytes:
    names = b"" if change.names is None else json.dumps(change.names).encode()
    content = (
        _COUNTS.pack(len(change.removed), len(change.ids), change.rows.shape[1], len(names)),
        np.ascontiguousarray(change.removed, dtype="<i8").data,
        np.ascontiguousarray(change.ids, dtype="<i8").data,
        np.ascontiguousarray(change.rows, dtype="<f4").data,
        names,
    )
    length = sum(memoryview(piece).nbytes for piece in content)
    head = _HEAD.pack(_MARK, length, reduce(lambda total, piece: crc32(piece, total), content, 0), number, 0)[:-4]
    return b"".join((head, crc32(head).to_bytes(4, "little"), *content))  # the only copy


def packed_size(change: Change) -> int:
    """Bytes that a change takes in a log."""
    return len(_packed(change, 1))


def _unpacked(content: bytes) -> Change:
    removed, ids, d, names = _COUNTS.unpack_from(content)
    start = _COUNTS.size
    pieces: list[npt.NDArray[Any]] = []
    for count, kind in ((removed, "<i8"), (ids, "<i8"), (ids * d, "<f4")):
        pieces.append(np.frombuffer(content, kind, count, start))
        start += pieces[-1].nbytes
    if start + names != len(content):
        raise ValueError("its content has another length than it says")
    rows = np.array(pieces[2], dtype=np.float32).reshape(ids, d)
    called = json.loads(content[start:]) if names else None
    return Change(pieces[0].astype(np.int64), pieces[1].astype(np.int64), rows, called)


class _Header(NamedTuple):
    """Of a record."""

    number: int
    first: int
    """Where its content begins,"""
    last: int
    """and ends, if all of it is there."""
    content_sum: int

    @classmethod
    def at(cls, log: bytes, start: int) -> "_Header | None":
        """None if there is none."""
        try:
            mark, length, content_sum, number, head_sum = _HEAD.unpack_from(log, start)
        except error:
            return None
        first = start + _HEAD.size
        whole = mark == _MARK and crc32(log[start : first - 4]) == head_sum
        return cls(number, first, first + length, content_sum) if whole else None

    def content(self, log: bytes) -> bytes | None:
        """None if it is torn or damaged."""
        found = log[self.first : self.last]
        return found if self.last <= len(log) and crc32(found) == self.content_sum else None


def read_changes(path: Path, data: str) -> tuple[list[Change], int]:
    """The changes to the rows of a data folder, and the length of the log that they take; a torn end is left out."""
    file = changes_file(path, data)
    try:
        log = file.read_bytes()
    except FileNotFoundError:
        return [], 0
    changes: list[Change] = []
    end = 0
    head = _Header.at(log, end)
    while head is not None and head.number == len(changes) + 1 and (content := head.content(log)) is not None:
        try:
            changes.append(_unpacked(content))
        except (ValueError, error) as wrong:
            raise ValueError(f"{file}: record {len(changes) + 1} cannot be read ({wrong})") from None
        end = head.last
        head = _Header.at(log, end)
    later = log.find(_MARK, end if head is None else head.last)  # what it holds may look like records
    while later >= 0:
        found = _Header.at(log, later)
        if found is not None and found.number > len(changes) and found.content(log) is not None:
            raise ValueError(
                f"{file}: record {len(changes) + 1} is damaged, but record {found.number} is not; restore the file, or "
                "cut it off at byte "
                f"{end} to lose what came after"
            )
        later = log.find(_MARK, later + 1)
    return changes, end


class Log:
    """The log of a model folder, open for writing: nobody else can write to the folder meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.save: Callable[[Segment, int, Standard | None], None] | None = None
        """Writes a model to the folder."""
        self._stack = ExitStack()
        self._stream: IO[bytes] | None = None
        self._data = ""
        self._end = self._number = 0
        self._process = os.getpid()
        read_config(path)  # nothing is locked where there is no model
        self._stack.enter_context(only_writer(path))

    def open(self, data: str, end: int, number: int) -> None:
        """Go on after so many records; what is behind them was never finished, and is cut off."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None  # if anything fails below, nothing more is taken
        stream = changes_file(self.path, data).open("ab")
        os.ftruncate(stream.fileno(), end)
        os.fsync(stream.fileno())
        _flush_folder(self.path)
        self._stream, self._data, self._end, self._number = stream, data, end, number

    def append(self, change: Change) -> None:
        """On disk when this returns; nothing has happened when it fails."""
        stream, record = self._own(), _packed(change, self._number + 1)
        try:
            stream.write(record)
            stream.flush()
            os.fsync(stream.fileno())
            self._end, self._number = self._end + len(record), self._number + 1
        except BaseException:
            self._undo()
            raise

    def compacted(self, segment: Segment, size: int, built: Standard | None) -> None:
        """All rows are in this segment: it takes the place of the folder's data, to which no log belongs yet."""
        self._own()
        assert self.save is not None
        try:
            self.save(segment, size, built)
        finally:  # what fails after the new data is in place must not leave us writing to the log of the old
            data = str(read_config(self.path)["data"])
            if data != self._data:
                self.open(data, 0, 0)

    def close(self) -> None:
        """Let others write."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._stack.close()

    def _own(self) -> IO[bytes]:
        """Where to write, which only the process may that opened the log: a fork of it would write there too."""
        if self._stream is None or self._process != os.getpid():
            raise ValueError(
                "the model was closed, or opened by the process that this one was forked from; open it again with "
                "LogLinear.load(path, mode='r+')"
            )
        return self._stream

    def _undo(self) -> None:
        """Take back what was written of a record; a log where that fails takes no more of them."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        with suppress(OSError):
            stream.close()  # may write what is left in its buffer
        with suppress(OSError):
            os.truncate(stream.name, self._end)
            self._stream = Path(stream.name).open("ab")  # noqa: SIM115  # kept open, as the one before
            os.fsync(self._stream.fileno())


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
