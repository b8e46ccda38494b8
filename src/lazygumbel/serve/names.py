"""Rows by what people call them: an id, a name, the beginning of a name, or a sum such as `king - man + woman`."""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from copy import copy
from threading import Lock
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.model import LogLinear
from lazygumbel.sharded import ShardedModel

__all__ = ["Directory", "NameTable"]


_OPERATOR = re.compile(r"\s+([+-])\s+")
_BY_ID = re.compile(r"#([0-9]{1,18})")
_MOST_TERMS = 32
_LAST = chr(0x10FFFF)
_SPARE = 4096
"""Rows that came and are gone, whose names are kept before they are looked for."""


class NameTable:
    """All names that rows have, or had a while ago. Ids are not given again, nor do they change their names: which of
    them are there is a matter of the moment, `number`."""

    def __init__(self, ids: Ints, names: Iterable[str], size: int) -> None:
        self._size = size
        """Ids that were given; those that come are not below it."""
        self._first: dict[str, int] = {}
        self._others: dict[str, list[int]] = {}
        self._new: dict[str, list[int]] = {}
        """Ids of rows that came, by their names."""
        self._gone: dict[int, int] = {}
        self._passing = 0
        """Of these, rows that had come."""
        self._later: list[tuple[str, int]] = []
        self._sorting = Lock()
        held = list(names)
        for i, name in zip(ids.tolist(), held, strict=True):
            if self._first.setdefault(name, i) != i:
                self._others.setdefault(name, []).append(i)
        keys = [name.casefold() for name in held]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._keys, self._ids = [keys[i] for i in order], ids[order]

    def after(self, gone: Ints, came: Ints, names: Iterable[str], number: int) -> "NameTable":
        """For whoever asks from this moment on: rows are gone, and others came, with ascending ids."""
        self._gone.update(dict.fromkeys(gone.tolist(), number))
        self._passing += int(np.count_nonzero(gone >= self._size))
        with self._sorting:
            for i, name in zip(came.tolist(), names, strict=True):
                self._new.setdefault(name, []).append(i)
                insort(self._later, (name.casefold(), i))
        return self._without_passed() if 2 * self._passing > len(self._later) + _SPARE else self

    def is_there(self, row: int, number: int, size: int) -> bool:
        """Whether a row is there at a moment at which `size` ids were given."""
        return row < size and self._gone.get(row, number + 1) > number

    def find(self, name: str) -> Iterator[int]:
        """All rows that have this name, or had it, by id."""
        if name in self._first:
            yield self._first[name]
            yield from self._others.get(name, ())
        yield from self._new.get(name, ())

    def beginning_with(self, prefix: str, most: int) -> Ints:
        """Rows whose names begin so, whatever their case: those of an equal name, then at least `most`, by id."""
        key = prefix.casefold()
        start, equal, stop = (bisect_left(self._keys, key + end) for end in ("", "\0", _LAST))
        with self._sorting:
            first, past, last = (bisect_left(self._later, (key + end,)) for end in ("", "\0", _LAST))
            later = [row for _, row in self._later[first:last]]
        most += len(self._gone)
        longer = self._ids[equal:stop]
        if len(longer) > most:
            longer = np.partition(longer, most - 1)[:most]
        new = np.array(later, dtype=np.int64)
        pieces = ((self._ids[start:equal], new[: past - first]), (longer, new[past - first :]))
        return np.concatenate([np.sort(np.concatenate(piece)) for piece in pieces])

    def _without_passed(self) -> "NameTable":
        """Less what came and is gone, of which there would be ever more. Who asked before keeps the table of before."""
        other, gone = copy(self), self._gone
        other._later = [(key, row) for key, row in self._later if row not in gone]
        left = ((name, [row for row in rows if row not in gone]) for name, rows in self._new.items())
        other._new = {name: rows for name, rows in left if rows}
        other._gone = {row: number for row, number in gone.items() if row < self._size}
        other._passing, other._sorting = 0, Lock()
        return other


class Directory:
    """Finds the rows of a model at one moment; `table` is None where there are no names, or where shards look."""

    def __init__(self, model: LogLinear | ShardedModel, table: NameTable | None, number: int = 0) -> None:
        self._model, self.table, self.number = model, table, number
        self._features, self._size = model.features, model.size

    @classmethod
    def of(cls, model: LogLinear | ShardedModel) -> "Directory":
        """With all names of a model read, unless it is in shards: there may be more than fit here."""
        names = model.features.names if isinstance(model, LogLinear) else None
        return cls(model, None if names is None else NameTable(model.ids, names, model.size))

    def find(self, name: str) -> int:
        """The id of a row by its name, or by `#` and its id."""
        by_id = _BY_ID.fullmatch(name)
        if by_id is not None:
            return int(self.check([int(by_id[1])], "#id")[0])
        if self._features.names is None:
            raise ValueError(f"the rows of this model have no names; write #id for a row by its id, not {name!r}")
        found = self._named(name)
        if found is None:
            raise ValueError(f"no row is named {name!r}")
        return found

    def check(self, rows: Any, name: str) -> Ints:
        """The same ids, if there are such rows."""
        return self._model.check_ids(rows, name)

    def vector(self, expression: str) -> Vectors:
        """The row of a name, or rows added and subtracted: names and `#id`s with ` + ` and ` - ` between them."""
        whole = self._named(expression)  # which may hold blanks and signs
        if whole is not None:
            return self._features.gather(np.array(whole))
        parts = _OPERATOR.split(expression.strip())
        if len(parts) > 2 * _MOST_TERMS:
            raise ValueError(f"theta has more than {_MOST_TERMS} terms; send its numbers instead")
        ids = [self.find(part) for part in parts[::2]]
        signs = np.array([1.0, *(1.0 if sign == "+" else -1.0 for sign in parts[1::2])])
        return (signs @ self._features.gather(np.array(ids)).astype(np.float64)).astype(np.float32)

    def beginning_with(self, prefix: str, limit: int) -> Ints:
        """Ids of rows whose names begin so, whatever their case: an equal name first, then by id."""
        if self._features.names is None:
            raise ValueError("prefix: the rows of this model have no names")
        if self.table is None:
            assert isinstance(self._model, ShardedModel)
            return self._model.features.beginning_with(prefix, limit)
        found = self.table.beginning_with(prefix, limit).tolist()
        there = [row for row in found if self.table.is_there(row, self.number, self._size)]
        return np.array(there[:limit], dtype=np.int64)

    def _named(self, name: str) -> int | None:
        """The first row of just this name, if there is one."""
        if self.table is not None:
            there = (row for row in self.table.find(name) if self.table.is_there(row, self.number, self._size))
            return next(there, None)
        if not isinstance(self._model, ShardedModel) or not self._model.features.named:
            return None
        try:
            return self._model.find(name)
        except ValueError:
            return None
