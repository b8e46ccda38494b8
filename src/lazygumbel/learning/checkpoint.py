"""A run on disk, written so that what was there before is lost only once the new file is whole."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lazygumbel._support.persist import replacing
from lazygumbel.learning.anchored import Anchored
from lazygumbel.learning.ascent import Ascent, Problem, State
from lazygumbel.learning.records import History, Record

__all__ = ["Checkpoint", "check_file"]

_FORMAT, _VERSION = "lazygumbel-fit", 1


@dataclass(frozen=True)
class Checkpoint:
    """A run on disk: an .npz without pickled objects, replaced as a whole."""

    path: Path
    settings: dict[str, Any]

    def check(self, *, resume: bool) -> None:
        """Refuse what cannot be written, and not to overwrite anything but a checkpoint."""
        check_file(self.path, "checkpoint")
        if self.path.exists():
            self._read()
        elif resume:
            raise ValueError(f"resume: there is no file {self.path} to go on from")

    def save(self, ascent: Ascent) -> None:
        """Write the run as it is after its last whole step."""
        state, records = ascent.state, ascent.records
        facts = {
            "format": _FORMAT,
            "version": _VERSION,
            "iteration": state.iteration,
            "rows": state.rows,
            "seconds": state.seconds,
            "rng": list(ascent.seed),
            "anchored": None if state.anchor is None else state.anchor.iteration,
            "settings": self.settings,
        }
        with replacing(self.path) as stream:
            np.savez(
                stream,
                allow_pickle=False,
                facts=np.array(json.dumps(facts)),
                theta=state.theta,
                recorded=records[-1].theta if records else state.theta,
                anchor=state.theta if state.anchor is None else state.anchor.theta,
                **vars(History.of(records)),
            )

    def load(self, problem: Problem) -> Ascent:
        """The run as it was saved; that of another problem is refused."""
        facts, arrays = self._read()
        saved: dict[str, Any] = facts.get("settings", {})
        for name, value in self.settings.items():
            if saved.get(name) != value:
                raise ValueError(
                    f"resume: {self.path} was written with another {name} ({saved.get(name)}, not {value})"
                )
        columns: list[list[Any]] = [arrays[name].tolist() for name in History.__dataclass_fields__]
        records = tuple(Record._make((*at, arrays["recorded"])) for at in zip(*columns, strict=True))
        anchor, at = None, facts["anchored"]
        if isinstance(problem.method, Anchored) and at is not None:  # not kept: the same seed gives it again
            anchor = problem.drop(arrays["anchor"], problem.method, at, facts["rng"])
        state = State(facts["iteration"], arrays["theta"], facts["rows"], facts["seconds"], anchor)
        return Ascent(problem, facts["rng"], state, records)

    def _read(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        try:
            with np.load(self.path, allow_pickle=False) as held:
                arrays = dict(held)
            facts: Any = json.loads(str(arrays.pop("facts")))
            kind, version = facts["format"], facts["version"]
        except (ValueError, EOFError, KeyError, TypeError, AttributeError, BadZipFile):
            kind, version, facts, arrays = None, 0, {}, {}
        if kind != _FORMAT:
            raise ValueError(f"checkpoint: {self.path} is no checkpoint of a fit; choose another path")
        if not isinstance(version, int) or version > _VERSION:
            raise ValueError(
                f"checkpoint: {self.path} has format version {version}, newer than the {_VERSION} this release reads; "
                "upgrade with: pip install --upgrade lazygumbel"
            )
        return facts, arrays


def check_file(path: Path, name: str) -> None:
    """Refuse a path at which no file can be put."""
    if path.is_dir():
        raise ValueError(f"{name}: {path} is a folder; give the path of a file")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{name}: there is no folder {path.absolute().parent}")
