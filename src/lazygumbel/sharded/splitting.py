"""Rows shared out over folders: shard by shard, each finished by itself, so that what was interrupted can go on."""

import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lazygumbel.checks import check_count
from lazygumbel.features import Features
from lazygumbel.indexes import Index
from lazygumbel.model import LogLinear
from lazygumbel.persist import read_config
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.sharded.manifest import MANIFEST, PLAN, Manifest, Shard, folder_of, read_json, version_of, write_json
from lazygumbel.sharded.rows import Rows

__all__ = ["MakeIndex", "share_out"]

MakeIndex = Callable[[Features], Index]
"""Makes the index of a shard from its rows."""


@dataclass(frozen=True)
class _Plan:
    """What a split was asked. One that goes on must have been asked the same."""

    fingerprint: str
    bounds: list[int]
    """Where the ids of each shard start, and the number of all rows."""
    entropy: int
    """Of which the seeds of all shards follow."""

    @property
    def shards(self) -> int:
        return len(self.bounds) - 1


def share_out(
    rows: Rows,
    out: Path,
    shards: int | Sequence[int],
    *,
    index: MakeIndex | None,
    rng: int | None,
    progress: ShowProgress,
) -> Manifest:
    """Write the shards and their manifest; shards that an interrupted call finished are kept."""
    plan = _plan(rows, out, _bounds(rows.n, shards), rng)
    made: list[Shard] = []
    with choose(progress).task("building shards", rows.n) as task:
        for shard, (start, stop) in enumerate(pairwise(plan.bounds)):
            folder = out / folder_of(shard)
            if stop == start:
                made.append(Shard(shard, start, stop, None))
                continue
            if not _finished(folder, stop - start, rows.d):
                _build(rows.take(start, stop), folder, plan, shard, index)
            made.append(Shard(shard, start, stop, version_of(folder)))
            task.advance(stop - start)
    norms = [float(read_config(out / folder_of(s.shard))["max_norm"]) for s in made if s.rows]
    manifest = Manifest(rows.n, rows.d, max(norms), rows.named, tuple(made))
    manifest.write(out)
    (out / PLAN).unlink()
    return manifest


def _build(rows: Features, folder: Path, plan: _Plan, shard: int, index: MakeIndex | None) -> None:
    if folder.exists():
        shutil.rmtree(folder)  # what an interrupted call left
    seeds = np.random.SeedSequence(plan.entropy).spawn(plan.shards)
    made = None if index is None else index(rows)
    rng = np.random.default_rng(seeds[shard])
    LogLinear.build(rows, index=made, rng=rng, progress=False).save(folder)  # one bar, for all shards


def _bounds(n: int, shards: int | Sequence[int]) -> list[int]:
    """Where shards start and end: as equal as can be, or of the sizes given."""
    if isinstance(shards, int | np.integer):
        count = check_count(shards, "shards")
        if count > n:
            raise ValueError(f"shards is {count}, but there are only {n} rows; give at most one shard a row")
        return [n * s // count for s in range(count + 1)]
    sizes = [check_count(size, "shards", least=0) for size in shards]
    if sum(sizes) != n:
        raise ValueError(f"shards gives sizes that sum to {sum(sizes)}, but there are {n} rows")
    return [0, *np.cumsum(sizes).tolist()]


def _plan(rows: Rows, out: Path, bounds: list[int], rng: int | None) -> _Plan:
    """The plan to follow: the one that was interrupted, or a new one."""
    _check_out(out)
    asked = _Plan(rows.fingerprint(), bounds, secrets.randbits(64) if rng is None else check_count(rng, "rng", least=0))
    if (out / MANIFEST).exists():
        raise ValueError(f"out: {out} holds a sharded model already; choose another folder or remove it first")
    if (out / PLAN).exists():
        held = _read_plan(out / PLAN)
        if (held.fingerprint, held.bounds) != (asked.fingerprint, asked.bounds):
            raise ValueError(f"out: {out} holds an unfinished split of other rows or sizes; choose another folder")
        if rng is not None and held.entropy != asked.entropy:
            raise ValueError(f"rng: {out} holds an unfinished split with another rng; choose another folder")
        return held
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / PLAN, asdict(asked))
    return asked


def _read_plan(file: Path) -> _Plan:
    facts: dict[str, Any] = read_json(file)
    try:
        return _Plan(facts["fingerprint"], facts["bounds"], facts["entropy"])
    except KeyError as error:
        raise ValueError(f"out: {file} lacks {error}; it was edited: choose another folder") from None


def _check_out(out: Path) -> None:
    """Refuse to write into a folder that holds something else."""
    if not out.exists() or (out / PLAN).exists() or (out / MANIFEST).exists():
        return
    if not out.is_dir():
        raise ValueError(f"out: {out} is a file; shards are written as a folder")
    foreign = next(out.iterdir(), None)
    if foreign is not None:
        raise ValueError(f"out: {out} holds {foreign.name!r}; choose an empty folder")


def _finished(folder: Path, rows: int, d: int) -> bool:
    """Whether a shard was saved to the end: its `config.json` is written last."""
    try:
        config = read_config(folder)
    except ValueError:
        return False
    return (config["n"], config["d"]) == (rows, d)
