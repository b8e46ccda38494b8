"""What a saved model consists of: rows, their index, their ids where some were removed, and the log of changes."""

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from lazygumbel._support.arrays import Ints
from lazygumbel._support.persist import Reader, Writer, read_config
from lazygumbel.indexes import ExactIndex, FaissIndex, Index, LSHIndex, PartitionIndex, SavedIndex
from lazygumbel.live.journal import read_changes
from lazygumbel.live.rows import Change
from lazygumbel.live.standard import Standard
from lazygumbel.rows.features import Features

__all__ = ["Base", "Whole", "load_base", "read_whole", "write_model"]


_KINDS: dict[str, type[SavedIndex]] = {cls.kind: cls for cls in (ExactIndex, FaissIndex, LSHIndex, PartitionIndex)}
_TRIES = 100
"""To read a model that is compacted again and again."""


class Base(NamedTuple):
    """What a data folder holds."""

    over: Index
    ids: Ints | None
    """Of each row, ascending; None if they are 0 to n - 1."""
    size: int
    """Ids that were given."""
    built: Standard | None
    """What drift is measured against, if rows came since cells were trained."""


class Whole(NamedTuple):
    """A data folder, and what has happened since."""

    base: Base
    data: str
    """Its name."""
    changes: list[Change]
    end: int
    """Length of the log that holds them."""


def write_model(writer: Writer, index: Index, ids: Ints | None, size: int, built: Standard | None = None) -> None:
    """Rows, names and index; ids unless they are 0 to n - 1; and what drift is measured against if there is some."""
    held: Any = index
    if not isinstance(held, tuple(_KINDS.values())):
        raise ValueError(f"index: {type(index).__name__} cannot be saved; only lazygumbel's own indexes can")
    features = index.features
    features.save(writer)
    if ids is not None and (size != features.n or not np.array_equal(ids, np.arange(features.n))):
        writer.config["ids_given"] = size
        writer.array("ids", ids)
    if built is not None and built.came:
        writer.config["built"] = built._asdict()
    held.save(writer)


def read_whole(path: Path, load: Callable[[Reader], Base]) -> Whole:
    """A model with its changes, as they were at one moment: tried again when it was compacted meanwhile."""
    for _ in range(_TRIES):
        config = read_config(path)
        try:
            base = load(Reader(path))
            changes, end = read_changes(path, str(config["data"]))
        except (ValueError, OSError):
            if read_config(path)["data"] == config["data"]:
                raise
            continue
        if read_config(path)["data"] == config["data"]:
            return Whole(base, str(config["data"]), changes, end)
    raise ValueError(f"{path}: another process saves here so often that nothing can be read; try again later")


def load_base(reader: Reader) -> Base:
    """What `write_model` wrote."""
    kind = reader.config["index"].get("kind")
    known = isinstance(kind, str) and kind in _KINDS
    reader.demand(known, f"holds an index of unknown kind {kind!r}; upgrade lazygumbel")
    index = _KINDS[kind].load(reader, Features.load(reader))
    n, built = index.features.n, _built(reader, index)
    if not reader.has("ids"):
        return Base(index, None, n, built)
    ids, size = reader.array("ids", np.int64, (n,)), reader.config.get("ids_given")
    right = type(size) is int and ids[0] >= 0 and ids[-1] < size and bool((ids[1:] > ids[:-1]).all())
    reader.demand(right, f"ids.npy does not hold the ids of {n} rows; copy the model again")
    return Base(index, np.array(ids), int(size or 0), built)


def _built(reader: Reader, index: Index) -> Standard | None:
    held: Any = reader.config.get("built")
    if held is None:
        return None
    facts = cast("dict[str, Any]", held) if isinstance(held, dict) else {}
    sane = all(type(value) is float and isfinite(value) and value >= 0 for value in facts.values())
    right = set(facts) == set(Standard._fields) and sane and facts["largest"] > 0
    reader.demand(right and isinstance(index, PartitionIndex), "built in config.json is not what a save writes")
    return Standard(**facts)
