"""`LogLinear`: rows with an index over them, built once, saved, loaded, asked again and again."""

from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from lazygumbel import datasets
from lazygumbel.audit import Audit, audit
from lazygumbel.calibrate import calibrate
from lazygumbel.checks import check_number
from lazygumbel.distribution import Distribution, Exclude
from lazygumbel.features import Features, Source
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex, SavedIndex
from lazygumbel.indexes.partition import Calibration
from lazygumbel.methods import Query, Sampler
from lazygumbel.methods.defaults import default_sampler
from lazygumbel.persist import Reader, read_config, reading, writing
from lazygumbel.progress import ShowProgress, choose

__all__ = ["LogLinear", "describe"]

_KINDS: dict[str, type[SavedIndex]] = {cls.kind: cls for cls in (ExactIndex, FaissIndex, LSHIndex, PartitionIndex)}
_STAND_INS, _LEAST_THETAS = 1000, 20
"""Rows that stand in for thetas, and how few thetas are too few."""
_EXACT_BELOW = 50_000
"""Below this many rows one pass over all of them is as quick as any index."""


class LogLinear:
    """The model Pr(i) proportional to exp(theta . phi_i / temperature), for any theta."""

    def __init__(self, index: Index) -> None:
        if not isinstance(index, Index):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            cure = "LogLinear.load opens a saved model, LogLinear.build takes rows"
            raise ValueError(f"index must be an index, not {type(index).__name__}: {cure}")
        self.index = index

    def __repr__(self) -> str:
        return f"LogLinear({self.index!r})"

    @property
    def features(self) -> Features:
        """The rows phi."""
        return self.index.features

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
        generator = np.random.default_rng(rng)
        if index is not None:
            _check_same_rows(rows, index)
        elif rows.n < _EXACT_BELOW:
            index = ExactIndex.build(rows, progress=progress)
        else:
            index = PartitionIndex.build(rows, rng=generator, progress=progress)
        return cls(index)

    def __call__(self, theta: npt.ArrayLike, *, temperature: float = 1.0) -> Distribution:
        """The distribution at theta, shape (d,) or (B, d): logits are theta . phi / temperature."""
        return Distribution(self.index, theta, temperature)

    def audit(
        self,
        thetas: npt.ArrayLike,
        *,
        temperature: float = 1.0,
        method: Sampler | None = None,
        exclude: Exclude = None,
    ) -> Audit:
        """Measured accuracy of a sampler at these thetas: needs all logits, O(n d) a theta. Print the result."""
        query = self(thetas, temperature=temperature).query(exclude)
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
        index, own = self.index, None
        check_number(tv, "tv", above=0.0, below=1.0)
        if not isinstance(index, PartitionIndex):
            raise ValueError(f"calibrate needs a PartitionIndex, not {type(index).__name__}; build with index=...")
        if thetas is None:
            own = np.random.default_rng(rng).choice(self.features.n, min(_STAND_INS, self.features.n), replace=False)
            thetas = self.features.gather(own)
        query = Query.of(index, thetas, temperature)
        if query.size < _LEAST_THETAS:
            raise ValueError(f"thetas has {query.size} rows; at least {_LEAST_THETAS} are needed to fit and to judge")
        found = calibrate(index, query, own, tv, choose(progress))
        self.index = index.calibrated(found if found.accepted else None)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a folder, atomically: a crash leaves the old model there, or none."""
        index: Any = self.index
        if not isinstance(index, tuple(_KINDS.values())):
            raise ValueError(f"index: {type(index).__name__} cannot be saved; only lazygumbel's own indexes can")
        with writing(Path(path)) as writer:
            self.features.save(writer)
            index.save(writer)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Open a saved model; rows stay on disk, memory-mapped, and are read as they are needed.

        What can be told at a look is checked: a folder that was damaged, edited or made by hand is a `ValueError`.
        """
        return cls(reading(Path(path), _load_index))


def _load_index(reader: Reader) -> Index:
    kind = reader.config["index"].get("kind")
    reader.demand(
        isinstance(kind, str) and kind in _KINDS, f"holds an index of unknown kind {kind!r}; upgrade lazygumbel"
    )
    return _KINDS[kind].load(reader, Features.load(reader))


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What `config.json` says of a saved model; no array is read."""
    config = read_config(Path(path))
    files: dict[str, dict[str, Any]] = config["files"]
    return {
        "path": str(path),
        "version": config["version"],
        "n": config["n"],
        "d": config["d"],
        "dtype": config.get("dtype"),
        "index": config["index"],
        "bytes": sum(int(facts["bytes"]) for facts in files.values()),
        "names": "names.npy" in files,
    }


def _check_same_rows(rows: Features, index: Index) -> None:
    """Refuse an index over other rows: the shapes, and some rows, are compared."""
    held = index.features
    if (held.n, held.d) != (rows.n, rows.d):
        raise ValueError(f"index was built over {held.n} x {held.d} features, but features is {rows.n} x {rows.d}")
    sample = np.random.default_rng(0).integers(rows.n, size=64)
    if not np.array_equal(held.gather(sample), rows.gather(sample)):
        raise ValueError("index was built over other features: the rows differ")
