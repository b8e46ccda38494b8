"""Rows shared out over folders: shard by shard, each finished by itself, so that what was interrupted can go on."""

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lazygumbel._support.checks import check_count
from lazygumbel._support.persist import read_config
from lazygumbel.indexes import Index
from lazygumbel.model import LogLinear
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.rows.features import Features
from lazygumbel.sharded.manifest import MANIFEST, PLAN, Manifest, Shard, folder_of, read_json, write_json
from lazygumbel.sharded.rows import OpenedRows
from lazygumbel.sharded.versions import digest_of

__all__ = ["Builder", "Job", "MakeIndex", "build_shard", "share_out"]

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


@dataclass(frozen=True, eq=False)
class Job:
    """A shard to build: the rows with the ids `start` to `stop`."""

    shard: int
    start: int
    stop: int
    folder: str
    seed: np.random.SeedSequence
    index: MakeIndex | None


Builder = Callable[[Sequence[Job]], Iterable[Job]]
"""Builds shards; gives each back when it is finished."""


def build_shard(rows: OpenedRows, job: Job) -> None:
    """Build one shard from rows that hold those of all."""
    folder = Path(job.folder)
    if folder.exists():
        shutil.rmtree(folder)  # what an interrupted call left
    mine = rows.take(job.start, job.stop)
    made = None if job.index is None else job.index(mine)
    rng = np.random.default_rng(job.seed)
    LogLinear.build(mine, index=made, rng=rng, progress=False).save(folder)  # one bar, for all shards


def share_out(
    rows: OpenedRows,
    out: Path,
    shards: int | Sequence[int],
    *,
    index: MakeIndex | None,
    rng: int | None,
    progress: ShowProgress,
    builder: Builder | None = None,
) -> Manifest:
    """Write the shards and their manifest; shards that an interrupted call finished are kept."""
    plan = _plan(rows, out, _bounds(rows.n, shards), rng)
    seeds = np.random.SeedSequence(plan.entropy).spawn(plan.shards)
    ranges = list(pairwise(plan.bounds))
    jobs: list[Job] = []
    for shard, (start, stop) in enumerate(ranges):
        folder = out.resolve() / folder_of(shard)
        if stop > start and not _finished(folder, stop - start, rows.d):
            jobs.append(Job(shard, start, stop, str(folder), seeds[shard], index))
    with choose(progress).task("building shards", rows.n) as task:
        task.advance(rows.n - sum(job.stop - job.start for job in jobs))
        for job in _here(rows, jobs) if builder is None else builder(jobs):
            task.advance(job.stop - job.start)
    folders = [out / folder_of(shard) if stop > start else None for shard, (start, stop) in enumerate(ranges)]
    made = [
        Shard(shard, start, stop, None if folder is None else digest_of(folder))
        for shard, ((start, stop), folder) in enumerate(zip(ranges, folders, strict=True))
    ]
    norms = [float(read_config(folder)["max_norm"]) for folder in folders if folder is not None]
    manifest = Manifest(rows.n, rows.d, max(norms), rows.named, tuple(made))
    manifest.write(out)
    (out / PLAN).unlink()
    return manifest


def _here(rows: OpenedRows, jobs: Sequence[Job]) -> Iterator[Job]:
    """One after another, in this process."""
    for job in jobs:
        build_shard(rows, job)
        yield job


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


def _plan(rows: OpenedRows, out: Path, bounds: list[int], rng: int | None) -> _Plan:
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
