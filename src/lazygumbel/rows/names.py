"""Names of rows: an immutable sequence of strings, kept as one block of UTF-8 so that it can be memory-mapped."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel._support.checks import check_ids
from lazygumbel._support.persist import Reader, Writer

__all__ = ["Names"]


class Names:
    """A read-only sequence of row names; `find` gives the id of the first row with a name."""

    def __init__(self, text: npt.NDArray[np.uint8], offsets: Ints) -> None:
        self.text = text
        self.offsets = offsets

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        """Pack strings. Anything that is not a string is refused."""
        encoded: list[bytes] = []
        for i, name in enumerate(names):
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
                raise ValueError(f"names must be strings, but names[{i}] is {name!r}")
            encoded.append(name.encode("utf-8", "surrogatepass"))
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def save(self, writer: Writer) -> None:
        """Write the text and where each name starts."""
        writer.array("names", self.text)
        writer.array("name_offsets", self.offsets)

    @classmethod
    def load(cls, reader: Reader, n: int) -> "Names":
        """What `save` wrote of n names; refused unless every name can be read."""
        text, offsets = reader.array("names", np.uint8), reader.array("name_offsets", np.int64, (n + 1,))
        ends = offsets[0] == 0 and offsets[-1] == text.size and text.ndim == 1
        reader.demand(ends and (np.diff(offsets) >= 0).all(), "name_offsets.npy does not divide names.npy")
        starts = offsets[:-1][offsets[:-1] < text.size]
        whole = bool((text[starts] & 0xC0 != 0x80).all())  # no name starts in the middle of a letter
        try:
            text.tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            whole = False
        reader.demand(whole, "names.npy does not hold names in UTF-8")
        return cls(text, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"Names({shown}{', ...' if len(self) > 3 else ''}; n={len(self):,})"

    @overload
    def __getitem__(self, i: int | np.integer[Any]) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    @overload
    def __getitem__(self, i: Ints | Sequence[int]) -> npt.NDArray[np.object_]: ...
    def __getitem__(self, i: Any) -> str | list[str] | npt.NDArray[np.object_]:
        """The name of a row; a list for a slice, an array of the same shape for an array of ids."""
        if isinstance(i, slice):
            return [self._at(row) for row in range(*i.indices(len(self)))]
        ids = np.asarray(i)
        if ids.ndim == 0:
            return self._at(int(ids))
        found = np.empty(ids.size, dtype=np.object_)
        found[:] = [self._at(row) for row in self._checked(ids).reshape(-1).tolist()]
        return found.reshape(ids.shape)

    def _checked(self, ids: npt.NDArray[Any]) -> Ints:
        return check_ids(ids, "ids", len(self))

    def _at(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self._decode(int(self.offsets[row]), int(self.offsets[row + 1]))

    def __iter__(self) -> Iterator[str]:
        for start, stop in pairwise(self.offsets.tolist()):
            yield self._decode(start, stop)

    def find(self, name: str) -> int:
        """The smallest id whose name is `name`; `ValueError` when there is none."""
        try:
            return self._ids[name]
        except KeyError:
            raise ValueError(f"no row is named {name!r}") from None

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids: dict[str, int] = {}
        for i, name in enumerate(self):
            ids.setdefault(name, i)
        return ids

    def _decode(self, start: int, stop: int) -> str:
        return self.text[start:stop].tobytes().decode("utf-8", "surrogatepass")
