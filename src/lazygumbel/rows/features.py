"""`Features`: the sole owner of the (n, d) row matrix.

Rows have an *id* (0 to n-1, what users see) and a *position* (where the row is stored). An index may store rows in
an order of its own, cell by cell for instance; everything public speaks ids.

Conversion rule. Storage is float32. bool, 8- and 16-bit integers and float16 convert exactly; float64 rounds to the
nearest float32. Wider integers and every other dtype are refused. Arrays in memory are converted at once, memory-mapped
files block by block as they are read.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from math import isfinite
from os import PathLike
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from lazygumbel import kernels
from lazygumbel._support.arrays import Ints, Mask, Vectors
from lazygumbel._support.checks import check_ids
from lazygumbel._support.persist import Reader, Writer
from lazygumbel._support.threads import map_threads
from lazygumbel.progress import Progress, Silent
from lazygumbel.rows.names import Names

__all__ = ["Block", "Features", "Source"]

Source = npt.ArrayLike | str | PathLike[str]
"""What `Features.of` takes: an array, or the path of a `.npy` file."""

_CONVERTIBLE = tuple(np.dtype(t) for t in ("f2", "f4", "f8", "i1", "u1", "i2", "u2", "?"))
_BLOCK_BYTES = 64 * 2**20
_IDS_AT_ONCE = 2**20
_LOOKED_AT = 4096
"""Rows of a saved model that are checked when it has more than a block of them."""


class Block(NamedTuple):
    """Consecutive stored rows and their ids."""

    ids: Ints
    rows: Vectors


class Features:
    """The rows phi of a log-linear model. Immutable; build one with `Features.of`."""

    def __init__(
        self,
        stored: npt.NDArray[Any],
        *,
        order: Ints | None = None,
        positions: Ints | None = None,
        names: Names | None = None,
        max_norm: float | None = None,
        dead: Mask | None = None,
    ) -> None:
        self.stored = stored
        """The rows in storage order, (n, d); float32 unless they are memory-mapped in another dtype."""
        self.order = order
        """id of each position, or None when rows are stored in the order of their ids."""
        self.positions = positions
        """position of each id: the inverse of `order`."""
        self.names = names
        self.dead = dead
        """Positions whose rows were removed: they are stored, but no pass over the rows sees them; None for none."""
        self.live = self.n if dead is None else self.n - int(np.count_nonzero(dead))
        """Number of rows that were not removed."""
        self._max_norm = max_norm  # known once all rows were read and found finite

    @classmethod
    def of(cls, source: "Source | Features", *, names: Iterable[str] | None = None) -> "Features":
        """Features from an array, or from a `.npy` file, which is memory-mapped and not loaded.

        Arrays are checked for NaN and infinity here; memory-mapped files when an index is built over them.
        A float32 array is not copied: do not change it afterwards.
        """
        if isinstance(source, Features):
            return source.plain() if names is None else source.plain()._named(names)
        if isinstance(source, np.ma.MaskedArray):
            raise ValueError("features is a masked array; give an array without a mask, features.filled(...) for one")
        array = _map_npy(Path(source)) if isinstance(source, str | PathLike) else np.asanyarray(source)
        _check_matrix(array)
        mapped = isinstance(array, np.memmap)
        if not mapped:
            with np.errstate(over="ignore"):  # what overflows float32 is refused by name below
                array = np.ascontiguousarray(array, dtype=np.float32)
        array = array.view()
        array.flags.writeable = False
        features = cls(array)
        if names is not None:
            features = features._named(names)
        if not mapped:
            features.check_finite()
        return features

    def plain(self) -> "Features":
        """The rows, if they can be indexed: their ids run from 0 to n - 1."""
        return self

    @property
    def size(self) -> int:
        """Ids are below this number."""
        return self.n

    @property
    def at_hand(self) -> bool:
        """Whether all rows lie in one array as they are computed with, so that none need be copied."""
        return self.stored.dtype == np.float32 and self.stored.flags.c_contiguous

    @property
    def n(self) -> int:
        """Number of rows; also of those that were removed, while they are stored."""
        return self.stored.shape[0]

    @property
    def d(self) -> int:
        """Length of a row."""
        return self.stored.shape[1]

    def __repr__(self) -> str:
        return f"Features(n={self.n:,}, d={self.d}, {self.stored.dtype})"

    def gather(self, ids: npt.ArrayLike) -> Vectors:
        """The rows with these ids, shape ids.shape + (d,), a copy."""
        return self.stored[self.locate(check_ids(ids, "ids", self.n))].astype(np.float32, copy=False)

    def score(self, ids: Ints, queries: Vectors, owner: Ints | None = None) -> Vectors:
        """Inner products phi[ids[j]] . queries[owner[j]], shape (m,); with one query (d,), no owner is needed.

        A row and a query give the same bits wherever the row is stored and however many are asked for at once.
        """
        if owner is None:
            owner = np.zeros(len(ids), dtype=np.int64)
        return self._score(self.locate(ids), queries, owner)

    def score_at(self, positions: Ints, query: Vectors) -> Vectors:
        """Inner products of the rows at these positions with one query, (m,): the same bits as `score`."""
        return self._score(positions, query, np.zeros(len(positions), dtype=np.int64))

    def _score(self, positions: Ints, queries: Vectors, owner: Ints) -> Vectors:
        rows = self.stored
        if rows.dtype != np.float32 or not rows.flags.c_contiguous:
            rows, positions = rows[positions].astype(np.float32), np.arange(len(positions))
        # Strided queries would be summed in another order by the compiled kernel.
        return kernels.gather_dot(rows, positions, np.ascontiguousarray(np.atleast_2d(queries)), owner)

    def locate(self, ids: Ints) -> Ints:
        """Positions of ids."""
        return ids if self.positions is None else np.asarray(self.positions[ids])

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """All rows that were not removed, in storage order, as float32, a bounded number at a time."""
        step = rows or max(1, _BLOCK_BYTES // (4 * self.d))
        for start in range(0, self.n, step):
            stop = min(start + step, self.n)
            ids = np.arange(start, stop) if self.order is None else self.order[start:stop]
            with np.errstate(over="ignore"):  # `check_finite` refuses by name what overflows float32
                block = np.ascontiguousarray(self.stored[start:stop], dtype=np.float32)
            if self.dead is not None and self.dead[start:stop].any():
                kept = ~self.dead[start:stop]
                ids, block = ids[kept], block[kept]
            if len(ids):
                yield Block(ids, block)

    @property
    def max_norm(self) -> float:
        """The largest norm of a row; read through all rows if that was not done yet."""
        self.check_finite()
        return cast("float", self._max_norm)

    def check_finite(self, progress: Progress | None = None) -> None:
        """Read through all rows once and refuse NaN and infinity, naming the first such row."""
        if self._max_norm is not None:
            return
        largest = 0.0
        with (progress or Silent()).task("checking rows", self.n) as task:
            for ids, rows in self.blocks():
                # A row's squared norm is a plain float32 unless an entry is not finite or it leaves the range of
                # float32: then look closely.
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    squares = np.einsum("nd,nd->n", rows, rows)
                    suspects = np.flatnonzero(~((squares > 1e-30) & (squares < 1e38)))
                bad = suspects[~np.isfinite(rows[suspects]).all(axis=1)]
                if len(bad):
                    raise ValueError(
                        f"features holds NaN, infinity or a value beyond float32 in row {ids[bad].min()}; "
                        "all entries must be finite"
                    )
                squares = squares.astype(np.float64)
                squares[suspects] = np.square(rows[suspects], dtype=np.float64).sum(axis=1)
                largest = max(largest, float(np.sqrt(squares.max())))
                task.advance(len(ids))
        self._max_norm = largest

    def reordered(self, order: Ints, progress: Progress | None = None) -> "Features":
        """The same rows under the same ids, copied as float32 so that position p holds row `order[p]`."""
        stored = np.empty((self.n, self.d), dtype=np.float32)
        positions = np.empty(self.n, dtype=np.int64)
        positions[order] = np.arange(self.n)
        with (progress or Silent()).task("ordering rows", self.n) as task:
            # Reads run through the source, a few blocks at a time: a file larger than memory is not read at random.
            blocks = self.blocks(max(1, _BLOCK_BYTES // (32 * self.d)))

            def put(ids: Ints, rows: Vectors) -> int:
                stored[positions[ids]] = rows
                return len(ids)

            while some := list(islice(blocks, 8)):
                for count in map_threads(put, *zip(*some, strict=True)):
                    task.advance(count)
        stored.flags.writeable = False
        return Features(stored, order=order, positions=positions, names=self.names, max_norm=self._max_norm)

    def save(self, writer: Writer) -> None:
        """Write rows, where they are stored, and names."""
        writer.config.update(n=self.n, d=self.d, dtype=str(self.stored.dtype), max_norm=self.max_norm)
        writer.array("rows", self.stored)
        if self.order is not None and self.positions is not None:
            writer.array("order", self.order)
            writer.array("positions", self.positions)
        if self.names is not None:
            self.names.save(writer)

    @classmethod
    def load(cls, reader: Reader) -> "Features":
        """What `save` wrote, memory-mapped. Ids and positions are checked, and of the rows so many that it is quick."""
        n: int = reader.config["n"]
        max_norm: Any = reader.config.get("max_norm")
        stored = reader.array("rows", shape=(n, reader.config["d"]))
        reader.demand(_is_convertible(stored.dtype), f"rows.npy holds {stored.dtype}")
        reader.demand(str(stored.dtype) == reader.config.get("dtype"), "rows.npy is not of the dtype in config.json")
        reader.demand(isinstance(max_norm, float) and isfinite(max_norm), "max_norm in config.json is not a number")
        order = positions = None
        if reader.has("order"):
            order, positions = (reader.array(name, np.int64, (n,)) for name in ("order", "positions"))
            reader.demand(_are_inverse(order, positions), "order.npy and positions.npy are not inverse to each other")
        names = Names.load(reader, n) if reader.has("names") else None
        reader.demand(_fits(stored, max_norm), "rows.npy is not finite, or max_norm in config.json is not its largest")
        return cls(stored, order=order, positions=positions, names=names, max_norm=max_norm)

    def without(self, ids: Ints) -> "Features":
        """The same rows, of which these ones were removed; nothing is copied but what says so."""
        dead = np.zeros(self.n, dtype=np.bool_) if self.dead is None else self.dead.copy()
        dead[self.locate(ids)] = True
        return self._but(dead=dead)

    def unit_norm(self) -> "Features":
        """The rows scaled to length one, in memory. A row of zeros is refused by name."""
        stored = np.empty((self.n, self.d), dtype=np.float32)
        self.check_finite()
        start = 0
        for ids, rows in self.blocks():
            norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
            if not norms.all():
                raise ValueError(f"features cannot be scaled to unit norm: row {ids[norms == 0][0]} is all zeros")
            stored[start : start + len(ids)] = rows / norms[:, None]
            start += len(ids)
        stored.flags.writeable = False
        return Features(stored, order=self.order, positions=self.positions, names=self.names)

    def _named(self, names: Iterable[str]) -> "Features":
        if isinstance(names, str):
            raise ValueError("names must be a sequence of strings, one for each row, not one string")
        packed = names if isinstance(names, Names) else Names.of(names)
        if len(packed) != self.n:
            raise ValueError(f"names has {len(packed)} entries, but features has {self.n} rows")
        return self._but(names=packed)

    def _but(self, **changed: Any) -> "Features":
        """The same rows, of which something else is known."""
        names = ("order", "positions", "names", "dead")
        known: dict[str, Any] = {name: getattr(self, name) for name in names} | {"max_norm": self._max_norm}
        return Features(self.stored, **(known | changed))


def _map_npy(path: Path) -> npt.NDArray[Any]:
    if path.suffix != ".npy":
        raise ValueError(f"features: {path} is not a .npy file; read other formats with lazygumbel.datasets.read")
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"features: there is no file {path}") from None
    except (ValueError, TokenError) as error:
        raise ValueError(f"features: {path} is not a readable .npy file ({error})") from None


def _is_convertible(dtype: np.dtype[Any]) -> bool:
    return dtype.newbyteorder("=") in _CONVERTIBLE


def _are_inverse(order: Ints, positions: Ints) -> bool:
    """Whether each is a permutation, and the other its inverse."""
    n = len(order)
    if order.min() < 0 or order.max() >= n:
        return False
    blocks = range(0, n, _IDS_AT_ONCE)
    return all(
        np.array_equal(positions[order[a : a + _IDS_AT_ONCE]], np.arange(a, min(a + _IDS_AT_ONCE, n))) for a in blocks
    )


def _fits(stored: npt.NDArray[Any], max_norm: float) -> bool:
    """Whether rows are finite and of this largest norm: all of them if they are few, else some, evenly spaced."""
    few = stored.nbytes <= _BLOCK_BYTES
    some = stored if few else stored[:: -(-len(stored) // _LOOKED_AT)]
    norms = np.sqrt(np.einsum("nd,nd->n", some, some, dtype=np.float64))
    largest, slack = float(norms.max()), 1 + 1e-5
    limit = largest * slack if few else float(np.finfo(np.float32).max) * stored.shape[1]
    return isfinite(largest) and largest <= max_norm * slack and max_norm <= limit


def _check_matrix(array: npt.NDArray[Any]) -> None:
    if array.dtype.hasobject:
        raise ValueError("features must be an (n, d) array of numbers, the path of a file, or Features")
    if not _is_convertible(array.dtype):
        raise ValueError(
            f"features has dtype {array.dtype}; it may be float16, float32, float64, bool or 8/16-bit integers "
            "(convert wider integers with .astype(np.float32))"
        )
    if array.ndim != 2:
        raise ValueError(f"features must be a matrix of shape (n, d), not of shape {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"features has no rows or no columns: shape {array.shape}")
