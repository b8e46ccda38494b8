"""`Served`: the model that answers at one moment, with what is looked up beside it. A reload replaces it as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lazygumbel.distribution import Distribution
from lazygumbel.features import Features
from lazygumbel.indexes import Index
from lazygumbel.model import LogLinear
from lazygumbel.persist import read_config
from lazygumbel.serve.names import Directory

__all__ = ["Loader", "Model", "Served", "open_folder"]


class Model(Protocol):
    """What the service needs of a model; `LogLinear` is one."""

    @property
    def features(self) -> Features:
        """The rows phi, with their names if they have any."""
        ...

    @property
    def index(self) -> Index:
        """The index over them."""
        ...

    def __call__(self, theta: npt.ArrayLike, *, temperature: float = 1.0) -> Distribution:
        """The distribution at theta, shape (d,) or (B, d)."""
        ...


class Served(NamedTuple):
    """A model, its names, and what tells it from the model before: every answer carries `version`."""

    model: Model
    directory: Directory
    version: str

    @classmethod
    def of(cls, model: Model, version: str) -> "Served":
        """A model made ready: names are read and every verb is asked once, so that no request pays for it."""
        directory = Directory(model.features)
        directory.prepare()
        first = np.zeros(1, dtype=np.int64)
        for theta in (model.features.gather(first[0]), model.features.gather(first)):
            dist = model(theta)
            dist.sample(rng=0)
            dist.sample_without_replacement(1, rng=0)
            dist.log_prob(np.zeros(dist.batch_shape, dtype=np.int64), rng=0)
            dist.expectation(rng=0)
            dist.top_k(1)
        return cls(model, directory, version)

    def names_of(self, ids: npt.NDArray[np.int64]) -> list[str] | None:
        """The names of ids of shape (m,), or None where rows have none."""
        names = self.model.features.names
        return None if names is None else [names[i] for i in ids.tolist()]


Loader = Callable[[], Served]


def open_folder(path: Path) -> Served:
    """The model in a folder; its version is the name of the data that `config.json` points to."""
    while True:
        data = read_config(path)["data"]
        model = LogLinear.load(path)
        if read_config(path)["data"] == data:  # it was not replaced in between
            return Served.of(model, str(data).removeprefix("data-"))
