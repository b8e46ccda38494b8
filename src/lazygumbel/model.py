"""`LogLinear`: rows with an index over them, built once, saved, loaded, asked again and again, and changed."""

import warnings
from collections.abc import Iterable
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import datasets
from lazygumbel._support.arrays import Ints
from lazygumbel._support.checks import check_ids, check_number
from lazygumbel._support.notebook import html_table
from lazygumbel._support.persist import read_config, writing
from lazygumbel.distribution import Distribution, Exclude
from lazygumbel.guarantees.audit import Audit, audit
from lazygumbel.guarantees.calibrate import calibrate
from lazygumbel.indexes import ExactIndex, Index, PartitionIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.live import (
    Drift,
    Live,
    LiveDistribution,
    LiveFeatures,
    LiveNames,
    Log,
    Segment,
    Snapshot,
    audit_parts,
    drift_of,
    first_segment,
    read_changes,
)
from lazygumbel.live.saved import load_base, read_whole, write_model
from lazygumbel.live.standard import Standard
from lazygumbel.methods import Query, Sampler
from lazygumbel.methods.defaults import default_estimator, default_index, default_sampler
from lazygumbel.progress import ShowProgress, Silent, choose
from lazygumbel.rows.features import Features, Source

__all__ = ["LogLinear", "describe"]

_STAND_INS, _LEAST_THETAS = 1000, 20
"""Rows that stand in for thetas, and how few thetas are too few."""


class LogLinear:
    """The model Pr(i) proportional to exp(theta . phi_i / temperature), for any theta."""

    _is_shard = False
    """Whether its last row may go, as other shards hold more."""

    def __init__(self, index: Index) -> None:
        self._index = _checked(index)
        self._live: Live | None = None
        self._log: Log | None = None
        self._loses_changes = False
        """Whether it was loaded from a folder in which changes are not kept, which was not said yet."""
        self._first_change = Lock()
        self._features: tuple[Snapshot, Features] | None = None
        self._settled: tuple[Snapshot, LogLinear] | None = None

    @property
    def index(self) -> Index:
        """The index over all rows; a model whose rows have changed has none that knows their ids."""
        if self._live is None:
            return self._index
        plain = self._live.snapshot.plain
        if plain is None:
            raise ValueError("index: the rows of this model have changed, and lie in several; take model.settled()")
        return plain.index

    @index.setter
    def index(self, index: Index) -> None:
        if self._live is not None:
            raise ValueError("index: this model has rows that change; build another one")
        self._index = index

    @property
    def index_type(self) -> type[Index]:
        """The kind of index that the model was built with; rows that came later may lie under others."""
        return type(self._index)

    @property
    def features(self) -> Features:
        """The rows phi."""
        if self._live is None:
            return self._index.features
        snapshot = self._live.snapshot
        if snapshot.plain is not None:
            return snapshot.plain.index.features
        held = self._features
        if held is None or held[0] is not snapshot:
            self._features = held = snapshot, LiveFeatures(snapshot)
        return held[1]

    @property
    def ids(self) -> Ints:
        """The ids of all rows, ascending: 0 to n - 1 until rows are removed."""
        return np.arange(self._index.features.n) if self._live is None else self._live.snapshot.ids

    @property
    def size(self) -> int:
        """How many ids were given so far, from 0 on; those of removed rows are not given again."""
        return self._index.features.n if self._live is None else self._live.snapshot.size

    @property
    def parts(self) -> tuple[Segment, ...]:
        """What the rows lie in, each with an index of its own: one part until rows change."""
        return self._made_live(None, self.size).snapshot.parts if self._live is None else self._live.snapshot.parts

    def check_ids(self, ids: npt.ArrayLike, name: str = "ids") -> Ints:
        """Ids of rows, any shape, as int64; those of removed rows are refused."""
        if self._live is None:
            return check_ids(ids, name, self._index.features.n)
        return self._live.snapshot.locate(ids, name)[0]

    def __repr__(self) -> str:
        if self._live is None:
            return f"LogLinear({self._index!r})"
        now, kept = self._live.snapshot, "in memory only" if self._log is None else f"logged in {self._log.path}"
        return f"LogLinear(n={now.n:,}, d={now.d}, {len(now.parts)} parts, changes {kept})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        names = self.features.names
        facts = (
            ("rows", f"{self.features.n:,} of length {self.features.d}"),
            ("names", "none" if names is None else f"{', '.join(islice(names, 3))}, ..."),
            ("index", repr(self._index)),
            ("draws", repr(default_sampler(self._index))),
            ("sums", repr(default_estimator(self._index))),
        )
        return html_table(repr(self), facts)

    @classmethod
    def build(
        cls,
        features: Source | Features,
        *,
        index: Index | None = None,
        rng: np.random.Generator | int | None = None,
        progress: ShowProgress = None,
    ) -> Self:
        """A model over an (n, d) array, the path of a file that `datasets.read` knows, or `Features`.

        `index` is one that was built over the same rows; by default an `ExactIndex` below 50,000 rows and a
        `PartitionIndex` from there on.
        """
        progress = choose(progress)
        rows = datasets.rows_of(features, progress)
        if index is not None:
            _check_same_rows(rows, _checked(index))
        return cls(default_index(rows, np.random.default_rng(rng), progress) if index is None else index)

    def __call__(self, theta: npt.ArrayLike, *, temperature: float = 1.0) -> Distribution | LiveDistribution:
        """The distribution at theta, shape (d,) or (B, d): logits are theta . phi / temperature.

        It is over the rows that there are now, whatever happens to them later.
        """
        if self._live is None:
            return Distribution(self._index, theta, temperature)
        snapshot = self._live.snapshot
        if snapshot.plain is not None:
            return Distribution(snapshot.plain.index, theta, temperature)
        return snapshot(theta, temperature, None if snapshot.tail.names is None else LiveNames(snapshot))

    def add(self, rows: npt.ArrayLike, names: Iterable[str] | None = None) -> Ints:
        """Add rows (m, d), all or none of them, with names if the others have some. Returns their ids.

        Distributions made from now on see them. On disk when this returns, if the model was loaded with `mode="r+"`;
        in memory only otherwise.
        """
        return self._changing().add(rows, names)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove the rows with these ids, all or none of them; the ids are not given again."""
        self._changing().remove(ids, last=self._is_shard)

    def replace(self, ids: npt.ArrayLike, rows: npt.ArrayLike) -> None:
        """Put other rows (m, d) under these ids, which keep their names; all or none of them."""
        self._changing().replace(ids, rows)

    def compact(self, progress: ShowProgress = None, *, rebuild: bool = False) -> None:
        """Put all rows under one index and drop what was removed; ids stay. Others may read meanwhile.

        With `rebuild` cells are trained on the rows that there are, as by a build.
        """
        self._changing().compact(choose(progress), anew=rebuild)

    def drift(self) -> Drift | None:
        """What has changed since the build or the last `compact`, and what that costs; None if nothing ever has."""
        return None if self._live is None else drift_of(self._live)

    def snapshot(self) -> Self:
        """The model as it is now, in memory: later changes of either of the two do not touch the other."""
        other = type(self)(self._index)
        other._live = None if self._live is None else self._live.fork()
        return other

    def settled(self) -> "LogLinear":
        """A model of the rows that there are now, under one index; its ids are places in `ids`."""
        if self._live is None:
            return self
        snapshot, held = self._live.snapshot, self._settled
        if held is None or held[0] is not snapshot:
            segment = self._live.settle(snapshot, Silent())
            self._settled = held = snapshot, LogLinear(segment.index)
        return held[1]

    def close(self) -> None:
        """Let others write to the folder that the model was loaded from with `mode="r+"`."""
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _changing(self) -> Live:
        if self._loses_changes:
            self._loses_changes = False
            words = "changes live in memory only: the model was loaded without mode='r+'; model.save keeps them"
            warnings.warn(words, stacklevel=3)
        with self._first_change:
            if self._live is None:
                self._live = self._made_live(None, self._index.features.n)
            return self._live

    def _made_live(self, ids: Ints | None, size: int, built: Standard | None = None) -> Live:
        index = self._index
        if not isinstance(index, ExactIndex | PartitionIndex):
            raise ValueError(
                f"index: rows under a {type(index).__name__} cannot change; build the model with a PartitionIndex or "
                "an ExactIndex"
            )
        return Live(first_segment(index, ids), size, built)

    def audit(
        self, thetas: npt.ArrayLike, *, temperature: float = 1.0, method: Sampler | None = None, exclude: Exclude = None
    ) -> Audit:
        """Measured accuracy of a sampler at these thetas: needs all logits, O(n d) a theta. Print the result."""
        if self._live is not None and self._live.snapshot.plain is None:
            return audit_parts(self._live.snapshot, thetas, temperature, method, exclude)
        query = Distribution(self.index, thetas, temperature).query(exclude)
        return audit(query, method or default_sampler(self.index))

    def calibrate(
        self,
        thetas: npt.ArrayLike | None = None,
        *,
        temperature: float = 1.0,
        tv: float = 2.5e-4,
        rng: np.random.Generator | int | None = None,
        progress: ShowProgress = None,
    ) -> Calibration:
        """Measure how draws can be made quicker for thetas like these, (B, d), at a mean total variation of `tv`.

        Draws are then `Calibrated` by default, if that was found accurate and quicker: print what is returned. Without
        thetas a thousand rows stand in for them, each left out of its own softmax. Needs all logits, O(n d) a theta.
        """
        live = self._live
        if live is not None and not live.compacted:
            raise ValueError("calibrate: rows have changed since the build; call compact() first")
        index, own = self._index if live is None else live.base.index, None
        check_number(tv, "tv", above=0.0, below=1.0)
        if not isinstance(index, PartitionIndex):
            raise ValueError(f"calibrate needs a PartitionIndex, not {type(index).__name__}; build with index=...")
        if thetas is None:
            n = index.features.n
            own = np.random.default_rng(rng).choice(n, min(_STAND_INS, n), replace=False)
            thetas = index.features.gather(own)
        query = Query.of(index, thetas, temperature)
        if query.size < _LEAST_THETAS:
            raise ValueError(f"thetas has {query.size} rows; at least {_LEAST_THETAS} are needed to fit and to judge")
        found = calibrate(index, query, own, tv, choose(progress))
        calibrated = index.calibrated(found if found.accepted else None)
        if live is None:
            self.index = calibrated
        else:
            live.calibrate(calibrated)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a folder, atomically: a crash leaves the old model there, or none.

        Rows that have changed are put under one index first; ids stay.
        """
        if self._log is not None and self._log.path.resolve() == Path(path).resolve():
            raise ValueError(f"path: the model is open at {path}, where every change is saved already; see compact")
        if self._live is None:
            with writing(Path(path)) as writer:
                write_model(writer, self._index, None, self._index.features.n)
            return
        snapshot = self._live.snapshot
        segment = self._live.settle(snapshot, Silent())
        with writing(Path(path)) as writer:
            write_model(writer, segment.index, segment.ids, snapshot.size, self._live.standard(snapshot))

    @classmethod
    def load(cls, path: str | PathLike[str], mode: Literal["r", "r+"] = "r") -> Self:
        """Open a saved model; rows stay on disk, memory-mapped, and are read as they are needed.

        With `mode="r+"` every change is on disk before the call that makes it returns, and nobody else can write to
        the folder until `close`. Otherwise changes live in memory only, of which the first warns.
        """
        folder = Path(path)
        if mode not in ("r", "r+"):
            raise ValueError(f"mode must be 'r' or 'r+', not {mode!r}")
        log = Log(folder) if mode == "r+" else None
        try:
            found = read_whole(folder, load_base)
            over, ids, size, built = found.base
            model = cls(over)
            if found.changes or ids is not None or built is not None or log is not None:
                model._live = model._made_live(ids, size, built)
                for number, change in enumerate(found.changes, 1):
                    try:
                        model._live.replay(change)
                    except ValueError as wrong:
                        raise ValueError(
                            f"{folder}: change {number} of its log is not of this model ({wrong})"
                        ) from None
                if not (model.features.n or cls._is_shard):
                    raise ValueError(f"path: {folder} is a shard that has lost all of its rows; ask its ShardedModel")
                if log is not None:
                    log.open(found.data, found.end, len(found.changes))
                    log.save = partial(_save_compacted, folder)
                    model._live.journal = model._log = log
            model._loses_changes = log is None
        except BaseException:
            if log is not None:
                log.close()
            raise
        return model


def _save_compacted(folder: Path, segment: Segment, size: int, built: Standard | None) -> None:
    with writing(folder, held=True) as writer:
        write_model(writer, segment.index, segment.ids, size, built)


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What `config.json` and the log of changes say of a saved model; no array is read."""
    config = read_config(Path(path))
    changes, _ = read_changes(Path(path), str(config["data"]))
    changed = sum(len(change.removed) + len(change.ids) for change in changes)
    live = sum(len(change.ids) - len(change.removed) for change in changes)
    files: dict[str, dict[str, Any]] = config["files"]
    return {
        "path": str(path),
        "version": config["version"],
        "n": config["n"] + live,
        "d": config["d"],
        "dtype": config.get("dtype"),
        "index": config["index"],
        "bytes": sum(int(facts["bytes"]) for facts in files.values()),
        "names": "names.npy" in files,
        "changes": changed,
    }


def _checked(index: Index) -> Index:
    if not isinstance(index, Index):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        cure = "LogLinear.load opens a saved model, LogLinear.build takes rows"
        raise ValueError(f"index must be an index, not {type(index).__name__}: {cure}")
    return index


def _check_same_rows(rows: Features, index: Index) -> None:
    """Refuse an index over other rows: the shapes, and some rows, are compared."""
    held = index.features
    if (held.n, held.d) != (rows.n, rows.d):
        raise ValueError(f"index was built over {held.n} x {held.d} features, but features is {rows.n} x {rows.d}")
    sample = np.random.default_rng(0).integers(rows.n, size=64)
    if not np.array_equal(held.gather(sample), rows.gather(sample)):
        raise ValueError("index was built over other features: the rows differ")
