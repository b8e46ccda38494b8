"""What a folder of shards holds: one `manifest.json`, which is the commit point, and one saved model a shard.

    shards/
      manifest.json      rows, ids and version of every shard
      shard-000/         an ordinary model, as `LogLinear.save` writes it
      shard-001/
      plan.json          only while a split is under way: what it was asked, so that it can be resumed

The manifest speaks of the rows that were built. Changes are in the shards alone: each has a log of its own (see
`lazygumbel.live`), and gives its own ids to rows that are added, from which ids of the model follow (see `places`).
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from lazygumbel._support.persist import replacing

__all__ = ["MANIFEST", "NO_FILES", "PLAN", "Manifest", "Shard", "folder_of", "read_json", "write_json"]

MANIFEST, PLAN = "manifest.json", "plan.json"
_FORMAT, _VERSION = "lazygumbel-shards", 1
NO_FILES = "none"
"""The version of a shard that never had rows."""


@dataclass(frozen=True)
class Shard:
    """One shard. It was built over the rows with the global ids `start` to `stop`, the second not included."""

    shard: int
    start: int
    stop: int
    version: str | None
    """Of its files (see `versions`); None for a shard that has none, as it never had rows."""
    compacting: bool = False
    """Its files are being replaced, or written for the first time: whoever writes next finds which ones there are."""

    @property
    def rows(self) -> int:
        """How many rows it was built over."""
        return self.stop - self.start

    @property
    def files(self) -> str:
        """The version of its files, as requests name it."""
        return self.version or NO_FILES


@dataclass(frozen=True)
class Manifest:
    """The shards of a model, in the order of their ids, which they share out without gaps."""

    n: int
    """Rows that were built."""
    d: int
    max_norm: float
    """The largest norm of these rows."""
    named: bool
    """Whether rows have names."""
    shards: tuple[Shard, ...]

    def asked(self, *, writes: bool) -> list[Shard]:
        """Those that can have rows while somebody is connected: one without files gets some from who writes alone."""
        return [shard for shard in self.shards if writes or shard.version is not None]

    def write(self, path: Path) -> None:
        """Put it in the folder `path`, atomically."""
        facts = {
            "format": _FORMAT,
            "version": _VERSION,
            "n": self.n,
            "d": self.d,
            "max_norm": self.max_norm,
            "named": self.named,
            "shards": [asdict(shard) | {"rows": shard.rows, "folder": folder_of(shard.shard)} for shard in self.shards],
        }
        write_json(path / MANIFEST, facts)

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """The manifest of the folder `path`, checked."""
        if not (path / MANIFEST).is_file():
            unfinished = (path / PLAN).is_file()
            cure = "call split or build again to finish it" if unfinished else "make one with ShardedModel.split"
            raise ValueError(f"path: {path} holds no {MANIFEST}, so it is no sharded model yet; {cure}")
        facts = read_json(path / MANIFEST)
        if facts.get("format") != _FORMAT:
            raise ValueError(f"path: {path / MANIFEST} was not written by lazygumbel")
        if facts.get("version") != _VERSION:
            raise ValueError(
                f"path: {path / MANIFEST} has format version {facts.get('version')}; this release reads {_VERSION}"
            )
        try:
            shards = tuple(
                Shard(s["shard"], s["start"], s["stop"], s["version"], s.get("compacting", False))
                for s in facts["shards"]
            )
            found = cls(facts["n"], facts["d"], facts["max_norm"], facts["named"], shards)
            _check_ranges(found)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path: {path / MANIFEST} was cut short or edited ({error})") from None
        return found


def folder_of(shard: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{shard:03d}"


def read_json(file: Path) -> dict[str, Any]:
    """The facts in a file, which must be an object of JSON."""
    try:
        loaded: object = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"path: {file} is not valid JSON ({error}); truncated or overwritten") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"path: {file} was not written by lazygumbel")
    return cast("dict[str, Any]", loaded)


def write_json(file: Path, facts: dict[str, Any]) -> None:
    """Replace a file by these facts, atomically."""
    with replacing(file) as stream:
        stream.write((json.dumps(facts, indent=2) + "\n").encode())


def _check_ranges(manifest: Manifest) -> None:
    at = 0
    for place, shard in enumerate(manifest.shards):
        if (shard.shard, shard.start) != (place, at) or shard.stop < at:
            raise ValueError(f"shard {place} does not follow on row {at}")
        at = shard.stop
    if at != manifest.n or not at:
        raise ValueError(f"shards hold {at} rows, but n is {manifest.n}")
