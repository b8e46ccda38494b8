"""Shards built by workers of a Ray cluster: each by itself, so that none needs the memory of more than one."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from lazygumbel._support.extras import require
from lazygumbel.sharded.cluster import first_line, join
from lazygumbel.sharded.requests import Lost, ShardError
from lazygumbel.sharded.rows import RowSource, are_paths, open_rows
from lazygumbel.sharded.splitting import Builder, Job, build_shard

__all__ = ["by_ray"]

_TRIES = 3
"""Of a shard whose worker, or machine, is lost."""


def by_ray(source: RowSource, address: str | None) -> Builder:
    """Has the workers of a cluster build shards, as many at once as it has processors."""
    ray: Any = require("ray", extra="ray")
    paths = _paths(source)

    def build(jobs: Sequence[Job]) -> Iterator[Job]:
        joined = join(ray, address, 0)
        waiting: dict[Any, Job] = {}
        try:
            remote = ray.remote(_build).options(num_cpus=1, max_retries=_TRIES)
            waiting = {remote.remote(paths, job): job for job in jobs}
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(done)
                try:
                    ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise ValueError(f"shard {job.shard}: {error.cause}") from None
                except ray.exceptions.RayError as error:
                    raise ShardError({job.shard: Lost(job.shard, first_line(error))}) from None
                yield job
        finally:
            for call in waiting:
                ray.cancel(call, force=True)
            if joined:
                ray.shutdown()

    return build


def _build(paths: str | list[str], job: Job) -> None:
    build_shard(open_rows(paths), job)


def _paths(source: RowSource) -> str | list[str]:
    """Where workers find the rows; every machine must see them there."""
    if isinstance(source, str | PathLike):
        return str(Path(source).resolve())
    if are_paths(source):
        return [str(Path(path).resolve()) for path in cast("list[str]", source)]
    raise ValueError(
        f"source: workers of a cluster open files themselves, so give the path of a model or of a file, or a list of "
        f"those, not {type(cast('object', source)).__name__}; numpy.save writes an array to one"
    )
