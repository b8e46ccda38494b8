"""Names of a shard's rows by how they begin, whatever their case."""

import re
from collections.abc import Iterable
from itertools import islice

import numpy as np

from lazygumbel._support.arrays import Ints

__all__ = ["Beginnings"]


class Beginnings:
    """All names in one text, each after a sign that ends them: a search passes over millions in some milliseconds, and
    finds the smaller ids first. Sorted names would be quicker, and take many times the memory."""

    def __init__(self, ids: Ints, names: Iterable[str]) -> None:
        folded = [_folded(name) for name in names]
        self._ids, self._text = ids, "\0" + "\0".join(folded) + "\0"
        self._starts = np.cumsum([0, *(len(name) + 1 for name in folded[:-1])])

    def find(self, prefix: str, most: int) -> tuple[Ints, Ints]:
        """At most so many ids of rows that are named just so, and of those whose names go on, each ascending."""
        key = re.escape("\0" + _folded(prefix))
        return self._matches(f"{key}(?=\0)", most), self._matches(f"{key}(?!\0)", most)

    def _matches(self, pattern: str, most: int) -> Ints:
        found = (match.start() for match in re.finditer(pattern, self._text))
        # The sign that ends the text begins no name.
        starts = islice((at for at in found if at < len(self._text) - 1), most)
        return self._ids[np.searchsorted(self._starts, np.fromiter(starts, dtype=np.int64))]


def _folded(name: str) -> str:
    """Without the sign between names, which no name is looked for by."""
    return name.casefold().replace("\0", " ")
