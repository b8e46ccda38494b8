"""`Served`: the rows that answer at one moment, with their names. A change, or a reload, replaces it as a whole."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.persist import read_config
from lazygumbel.distribution import Distribution
from lazygumbel.indexes import Index
from lazygumbel.model import LogLinear
from lazygumbel.serve.names import Directory
from lazygumbel.serve.turns import Turns
from lazygumbel.sharded import ShardedModel
from lazygumbel.sharded.manifest import MANIFEST, Manifest, folder_of
from lazygumbel.sharded.versions import digest_of

__all__ = ["Folder", "Model", "Opened", "Served", "opened"]

Model = LogLinear | ShardedModel


class Served(NamedTuple):
    """A model that nobody changes, and what tells it from the one before: every answer carries `version`.

    Shards keep no old rows: those that may change are one model throughout, which is asked in turns with its changes.
    """

    model: Model
    directory: Directory
    name: str
    """Of the model as it was saved."""
    changes: int = 0
    """Rows that came or went since."""
    turns: "Turns[Served] | None" = None
    """Of shards that may change."""

    @classmethod
    def of(cls, model: Model, name: str, *, live: bool = False) -> "Served":
        """A model made ready: names are read and every verb is asked once, so that no request pays for it."""
        if isinstance(model, ShardedModel):
            _ask_all(model)
            served = cls(model, Directory.of(model), name, turns=Turns() if live else None)
            if served.turns is not None:
                served.turns.now = served
            return served
        held = model.snapshot()
        _ask_all(held)
        drift = held.drift()
        return cls(held, Directory.of(held), name, 0 if drift is None else drift.added + drift.removed)

    @contextmanager
    def held(self) -> "Generator[Served]":
        """What to ask: within, its rows do not change."""
        if self.turns is None:
            yield self
        else:
            with self.turns.asking() as served:
                yield served

    def after(self, writer: Model, gone: Ints, came: Ints, names: list[str] | None) -> "Served":
        """The model after a change: rows that went, and rows that came under new ids or those of some that went."""
        if isinstance(writer, ShardedModel):
            return self
        table, changes = self.directory.table, self.changes + len(gone) + len(came)
        if table is not None:
            new = came if names is not None else came[:0]  # others keep the names that their ids have
            table = table.after(np.setdiff1d(gone, came), new, names or (), changes)
        held = writer.snapshot()
        return Served(held, Directory(held, table, changes), self.name, changes)

    @property
    def version(self) -> str:
        """Another after each change, and the same for the same rows when the service starts again."""
        if isinstance(self.model, ShardedModel):
            return self.model.version
        return f"{self.name}+{self.changes}" if self.changes else self.name

    @property
    def remote(self) -> bool:
        """Whether looking at a row may take long."""
        return isinstance(self.model, ShardedModel)

    @property
    def index_type(self) -> type[Index] | None:
        """The kind of index; None for shards of several kinds."""
        return self.model.index_type

    def distribution(self, thetas: Vectors, temperature: float) -> Distribution:
        """At one theta or several; of rows in parts or in shards it is another class with the same verbs."""
        return cast("Distribution", self.model(thetas, temperature=temperature))

    def names_of(self, ids: Ints) -> list[str] | None:
        """The names of ids of shape (m,), or None where rows have none."""
        names = self.model.features.names
        return None if names is None else names[ids].tolist()


class Opened(NamedTuple):
    """What is served, and the model that changes are made to, if any may be."""

    served: Served
    writer: Model | None


def opened(model: Model, name: str, *, live: bool) -> Opened:
    """A model made ready, also for changes: the first row that comes must not make a request wait."""
    if not live:
        return Opened(Served.of(model, name), None)
    if isinstance(model, ShardedModel):
        if not model.writes:
            raise ValueError("live: the shards are open to be read; connect with mode='r+' to have their rows changed")
        return Opened(Served.of(model, name, live=True), model)  # workers have tried a change
    trial = model.snapshot()
    row = trial.features.gather(_first_id(trial))
    trial.add(row, None if trial.features.names is None else [""])
    _ask_all(trial)
    return Opened(Served.of(model, name), model)


@dataclass(frozen=True)
class Folder:
    """Where a model is loaded from, and loaded again."""

    path: Path
    live: bool = False
    """Whether rows may change: each change is on disk before it is answered, and nobody else can write here."""
    ray: str | None = None
    """The Ray cluster on which shards are asked; without it they are in this process."""

    def check(self) -> None:
        """`ValueError` or `OSError` where there is no model that can be loaded."""
        if not self._is_sharded:
            LogLinear.load(self.path)
            return
        for shard in Manifest.read(self.path).shards:
            folder = self.path / folder_of(shard.shard)
            if shard.rows and not shard.compacting and digest_of(folder) != shard.version:
                raise ValueError(f"{folder} is of another version than the manifest says")

    def open(self) -> Opened:
        """The model; its version is the name of the data that `config.json` points to, or that of the shards."""
        mode = "r+" if self.live else "r"
        if self._is_sharded:
            engine = "threads" if self.ray is None else "ray"
            shards = ShardedModel.connect(self.path, engine=engine, address=self.ray, mode=mode)
            return opened(shards, shards.version, live=self.live)
        while True:
            data = read_config(self.path)["data"]
            model = LogLinear.load(self.path, mode=mode)
            if read_config(self.path)["data"] == data:  # it was not replaced in between
                return opened(model, str(data).removeprefix("data-"), live=self.live)
            model.close()

    @property
    def _is_sharded(self) -> bool:
        return self.ray is not None or (self.path / MANIFEST).is_file()


def _first_id(model: Model) -> Ints:
    return np.zeros(1, dtype=np.int64) if model.size == model.features.n else model.ids[:1]


def _ask_all(model: Model) -> None:
    """Every verb, of one theta and of a batch."""
    first = _first_id(model)
    for theta in (model.features.gather(first[0]), model.features.gather(first)):
        dist = model(theta)
        dist.sample(rng=0)
        dist.sample_without_replacement(1, rng=0)
        dist.log_prob(np.broadcast_to(first[0], dist.batch_shape), rng=0)
        dist.expectation(rng=0)
        dist.top_k(1)
