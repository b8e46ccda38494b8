"""Rows by what people call them: an id, a name, the beginning of a name, or a sum such as `king - man + woman`."""

import re
from bisect import bisect_left
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lazygumbel.features import Features

__all__ = ["Directory"]

_OPERATOR = re.compile(r"\s+([+-])\s+")
_BY_ID = re.compile(r"#([0-9]{1,18})")
_MOST_TERMS = 32
_LAST = chr(0x10FFFF)


class Directory:
    """Finds the rows of one model by name. The first use reads all names; `prepare` does so beforehand."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def prepare(self) -> None:
        """Read all names now."""
        if self._features.names is not None and self._features.n:
            self._features.names.find(self._features.names[0])
            _ = self._sorted

    def find(self, name: str) -> int:
        """The id of a row by its name, or by `#` and its id."""
        names = self._features.names
        by_id = _BY_ID.fullmatch(name)
        if by_id is not None:
            return self.check(int(by_id[1]))
        if names is None:
            raise ValueError(f"the rows of this model have no names; write #id for a row by its id, not {name!r}")
        return names.find(name)

    def check(self, row: int) -> int:
        """The same id, if there is such a row."""
        if not 0 <= row < self._features.n:
            raise ValueError(f"there is no row {row}: row ids run from 0 to {self._features.n - 1}")
        return row

    def vector(self, expression: str) -> npt.NDArray[np.float32]:
        """The row of a name, or rows added and subtracted: names and `#id`s with ` + ` and ` - ` between them."""
        whole = self._named(expression)
        if whole is not None:
            return self._features.gather(np.array(whole))
        parts = _OPERATOR.split(expression.strip())
        if len(parts) > 2 * _MOST_TERMS:
            raise ValueError(f"theta has more than {_MOST_TERMS} terms; send its numbers instead")
        ids = [self.find(part) for part in parts[::2]]
        signs = np.array([1.0, *(1.0 if sign == "+" else -1.0 for sign in parts[1::2])])
        return (signs @ self._features.gather(np.array(ids)).astype(np.float64)).astype(np.float32)

    def _named(self, name: str) -> int | None:
        """The id of a row of just this name, which may hold blanks and signs."""
        try:
            return None if self._features.names is None else self._features.names.find(name)
        except ValueError:
            return None

    def beginning_with(self, prefix: str, limit: int) -> npt.NDArray[np.int64]:
        """Ids of rows whose names begin so, whatever their case: an equal name first, then by id."""
        if self._features.names is None:
            raise ValueError("prefix: the rows of this model have no names")
        keys, ids = self._sorted
        key = prefix.casefold()
        start, stop = bisect_left(keys, key), bisect_left(keys, key + _LAST)
        equal = bisect_left(keys, key + "\0", start, stop)
        longer = ids[equal:stop]
        if len(longer) > limit:
            longer = np.partition(longer, limit - 1)[:limit]
        return np.concatenate([np.sort(ids[start:equal]), np.sort(longer)])[:limit]

    @cached_property
    def _sorted(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        keys = [name.casefold() for name in self._features.names or ()]
        ids = sorted(range(len(keys)), key=keys.__getitem__)
        return [keys[i] for i in ids], np.array(ids, dtype=np.int64)
