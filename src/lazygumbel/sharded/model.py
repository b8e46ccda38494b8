"""`ShardedModel`: split on disk, connected to where shards run, asked as one model."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy.typing as npt

from lazygumbel.checks import check_count, check_ids, check_number
from lazygumbel.progress import ShowProgress
from lazygumbel.sharded.distribution import ShardedDistribution
from lazygumbel.sharded.features import ShardedFeatures
from lazygumbel.sharded.manifest import Manifest
from lazygumbel.sharded.requests import Engine, Health, Replies, Requests, ShardError
from lazygumbel.sharded.rows import RowSource, rows_of
from lazygumbel.sharded.script import Ranges
from lazygumbel.sharded.splitting import MakeIndex, share_out
from lazygumbel.sharded.threads import ThreadsEngine

__all__ = ["ShardedModel"]


class ShardedModel:
    """The model Pr(i) proportional to exp(theta . phi_i / temperature), its rows shared out over shards.

    Ids are those of the unsplit model. Equal seeds give equal draws for the same shards, whatever the engine.
    """

    def __init__(self, manifest: Manifest, engine: Engine, *, missing: Literal["raise", "partial"]) -> None:
        self._manifest, self._engine, self._missing = manifest, engine, missing
        self._ranges = Ranges(manifest)
        self.features = ShardedFeatures(manifest, self._ranges, self._ask_all)
        """The rows phi, which stay where they are: `n`, `d`, `gather`, names."""

    @classmethod
    def split(
        cls,
        model: RowSource,
        out: str | PathLike[str],
        *,
        shards: int | Sequence[int] = 8,
        index: MakeIndex | None = None,
        rng: int | None = None,
        progress: ShowProgress = None,
    ) -> None:
        """Write the rows of a model, or of the folder that holds one, as shards: each an ordinary model of its own.

        Consecutive ids stay together; `shards` is their number, or the rows of each. One shard at a time is in memory.
        Indexes are built anew, by `index` or as `LogLinear.build` chooses; a calibration is not taken over. When a
        call is interrupted, the same call goes on where it was.
        """
        share_out(rows_of(model), Path(out), shards, index=index, rng=rng, progress=progress)

    @classmethod
    def build(
        cls,
        source: RowSource,
        out: str | PathLike[str],
        *,
        shards: int | Sequence[int] = 8,
        index: MakeIndex | None = None,
        rng: int | None = None,
        progress: ShowProgress = None,
    ) -> None:
        """Build shards over rows that need not fit in memory: a memory-mapped array, a file, or a list of files.

        As `split`; of files, one at a time is open, and all but `.npy`, `.fvecs` and `.bvecs` are read into memory.
        """
        share_out(rows_of(source), Path(out), shards, index=index, rng=rng, progress=progress)

    @classmethod
    def connect(
        cls,
        path: str | PathLike[str],
        *,
        engine: Literal["ray", "threads"] = "ray",
        address: str | None = None,
        replicas: int = 1,
        deadline: float = 10.0,
        missing: Literal["raise", "partial"] = "raise",
        cpus: float = 1.0,
        startup: float = 60.0,
    ) -> Self:
        """Open shards: in this process, or on the Ray cluster at `address` (by default one on this machine).

        A call takes at most `deadline` seconds. Shards that have not answered by then are an error that names them, or
        with `missing="partial"` left out: the result says so in `coverage`, and is heuristic. On Ray each shard has
        `replicas` workers, for which `cpus` are reserved each; they have `startup` seconds to start and to compile.
        """
        if missing not in ("raise", "partial"):
            raise ValueError(f'missing must be "raise" or "partial", not {missing!r}')
        if engine not in ("ray", "threads"):
            raise ValueError(f'engine must be "ray" or "threads", not {engine!r}')
        manifest, folder = Manifest.read(Path(path)), Path(path)
        seconds = check_number(deadline, "deadline", above=0.0)
        check_count(replicas, "replicas")
        check_number(cpus, "cpus", least=0.0)
        check_number(startup, "startup", least=0.0)
        if engine == "threads":
            if replicas != 1 or address is not None:
                raise ValueError('replicas and address are for engine="ray"; threads share one process')
            return cls(manifest, ThreadsEngine(folder, manifest, deadline=seconds), missing=missing)
        from lazygumbel.sharded.ray import RayEngine  # here, as the rest of the package needs no Ray

        started = RayEngine(
            folder,
            manifest,
            address=address,
            replicas=replicas,
            deadline=seconds,
            cpus=cpus,
            startup=startup,
        )
        return cls(manifest, started, missing=missing)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._manifest.n

    @property
    def d(self) -> int:
        """Length of a row."""
        return self._manifest.d

    def __repr__(self) -> str:
        return f"ShardedModel(n={self.n:,}, d={self.d}, shards={len(self._manifest.shards)})"

    def __call__(self, theta: npt.ArrayLike, *, temperature: float = 1.0) -> ShardedDistribution:
        """The distribution at theta, shape (d,) or (B, d): logits are theta . phi / temperature."""
        return ShardedDistribution(self._ask, self._ranges, theta, temperature, d=self.d)

    def names(self, ids: npt.ArrayLike) -> list[str]:
        """The names of the rows with these ids, flattened."""
        return self.features.names_of(check_ids(ids, "ids", self.n).reshape(-1))

    def find(self, name: str) -> int:
        """The smallest id whose name is `name`; `ValueError` when there is none."""
        return self.features.find(name)

    def health(self) -> list[Health]:
        """One record a worker: where it runs, what it has open, how often it was restarted, what went wrong."""
        return self._engine.health()

    def close(self) -> None:
        """End the workers of this connection."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, requests: Requests) -> Replies:
        replies = self._engine.ask(requests)
        if replies.lost and self._missing == "raise":
            raise ShardError(replies.lost)
        return replies

    def _ask_all(self, requests: Requests) -> Replies:
        """As `_ask`, for answers that cannot be partial."""
        replies = self._engine.ask(requests)
        if replies.lost:
            raise ShardError(replies.lost)
        return replies
