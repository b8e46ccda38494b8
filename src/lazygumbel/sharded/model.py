"""`ShardedModel`: split on disk, connected to where shards run, asked as one model."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel._support.checks import check_count, check_number, check_vectors
from lazygumbel.guarantees.audit import Audit
from lazygumbel.indexes import Index
from lazygumbel.methods import Sampler
from lazygumbel.progress import ShowProgress
from lazygumbel.rows.exclusions import Exclude
from lazygumbel.sharded.auditing import audit_of, check_raced, left_out
from lazygumbel.sharded.changing import add, remove, replace
from lazygumbel.sharded.coordinator import Coordinator
from lazygumbel.sharded.distribution import ShardedDistribution
from lazygumbel.sharded.features import ShardedFeatures
from lazygumbel.sharded.manifest import Manifest
from lazygumbel.sharded.places import ShardPlaces
from lazygumbel.sharded.requests import Engine, Health, Request
from lazygumbel.sharded.rows import RowSource, open_rows
from lazygumbel.sharded.splitting import MakeIndex, share_out
from lazygumbel.sharded.threads import ThreadsEngine
from lazygumbel.sharded.view import Pinned, View

__all__ = ["ShardedModel"]


class ShardedModel:
    """The model Pr(i) proportional to exp(theta . phi_i / temperature), its rows shared out over shards.

    Ids are those of the unsplit model; rows that are added get others. Equal seeds give equal draws for the same
    shards, whatever the engine.
    """

    def __init__(self, shards: Coordinator, *, named: bool, view: View | None = None) -> None:
        self._shards, self._view = shards, view or shards
        self.features = ShardedFeatures(self._view, named=named)
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
        share_out(open_rows(model), Path(out), shards, index=index, rng=rng, progress=progress)

    @classmethod
    def build(
        cls,
        source: RowSource,
        out: str | PathLike[str],
        *,
        shards: int | Sequence[int] = 8,
        index: MakeIndex | None = None,
        rng: int | None = None,
        engine: Literal["ray"] | None = None,
        address: str | None = None,
        progress: ShowProgress = None,
    ) -> None:
        """Build shards over rows that need not fit in memory: a memory-mapped array, a file, or a list of files.

        As `split`; of files, one at a time is open, and all but `.npy`, `.fvecs` and `.bvecs` are read into memory.
        With `engine="ray"` workers of the cluster at `address` (by default one on this machine) build a shard each, the
        same as here; they need paths, which every machine must see.
        """
        if engine not in (None, "ray") or (engine is None and address is not None):
            raise ValueError(f"engine must be 'ray', or None without an address, not {engine!r}")
        builder = None
        if engine == "ray":
            from lazygumbel.sharded.building import by_ray  # here, as the rest of the package needs no Ray

            builder = by_ray(source, address)
        share_out(open_rows(source), Path(out), shards, index=index, rng=rng, progress=progress, builder=builder)

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
        mode: Literal["r", "r+"] = "r",
    ) -> Self:
        """Open shards: in this process, or on the Ray cluster at `address` (by default one on this machine).

        A call takes at most `deadline` seconds. Shards that have not answered by then are an error that names them, or
        with `missing="partial"` left out: the result says so in `coverage`, and is heuristic. On Ray each shard has
        `replicas` workers, for which `cpus` are reserved each; they have `startup` seconds to start and to compile.

        With `mode="r+"` rows can be changed: every change is on disk before the call that makes it returns, and nobody
        else can write until `close`. Otherwise the rows are those of the moment of connecting.
        """
        if missing not in ("raise", "partial"):
            raise ValueError(f'missing must be "raise" or "partial", not {missing!r}')
        if engine not in ("ray", "threads"):
            raise ValueError(f'engine must be "ray" or "threads", not {engine!r}')
        if mode not in ("r", "r+"):
            raise ValueError(f"mode must be 'r' or 'r+', not {mode!r}")
        manifest, folder, writes = Manifest.read(Path(path)), Path(path), mode == "r+"
        seconds = check_number(deadline, "deadline", above=0.0)
        check_count(replicas, "replicas")
        check_number(cpus, "cpus", least=0.0)
        check_number(startup, "startup", least=0.0)
        if engine == "threads" and (replicas != 1 or address is not None):
            raise ValueError('replicas and address are for engine="ray"; threads share one process')
        if writes and replicas != 1:
            raise ValueError(
                f"replicas is {replicas}, but with mode='r+' each shard has one worker, which writes; give replicas=1 "
                "here, and connect readers with more of them without mode='r+'"
            )

        def start() -> Engine:
            if engine == "threads":
                return ThreadsEngine(folder, manifest, deadline=seconds, writes=writes)
            from lazygumbel.sharded.ray import RayEngine  # here, as the rest of the package needs no Ray

            return RayEngine(
                folder,
                manifest,
                address=address,
                replicas=replicas,
                deadline=seconds,
                cpus=cpus,
                startup=startup,
                writes=writes,
            )

        return cls(Coordinator(folder, manifest, start, missing=missing, writes=writes), named=manifest.named)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._view.known.n

    @property
    def d(self) -> int:
        """Length of a row."""
        return self._view.known.d

    @property
    def size(self) -> int:
        """One more than the largest id that was given; ids of added rows leave gaps."""
        return self._view.known.size

    @property
    def ids(self) -> Ints:
        """The ids of all rows, ascending: 0 to n - 1 until rows change."""
        return self._view.known.ids

    @property
    def version(self) -> str:
        """Which rows it has: another after each change, and the same wherever the same shards are opened."""
        return self._view.known.version

    @property
    def index_type(self) -> type[Index] | None:
        """The kind of index of every shard; None where they differ."""
        return self._view.known.index_type

    @property
    def writes(self) -> bool:
        """Whether rows can be changed."""
        return self._shards.writes

    def check_ids(self, ids: npt.ArrayLike, name: str = "ids") -> Ints:
        """Ids of rows, any shape, as int64; those of removed rows are refused."""
        return self._view.known.locate(ids, name)[0]

    def snapshot(self) -> "ShardedModel":
        """The model as it is now; refuses to answer once this connection has changed rows."""
        return ShardedModel(self._shards, named=self.features.named, view=Pinned(self._shards))

    def __repr__(self) -> str:
        places = self._view.known
        return f"ShardedModel(n={places.n:,}, d={places.d}, shards={len(places.shards)})"

    def __call__(self, theta: npt.ArrayLike, *, temperature: float = 1.0) -> ShardedDistribution:
        """The distribution at theta, shape (d,) or (B, d): logits are theta . phi / temperature."""
        return ShardedDistribution(self._view, theta, temperature, d=self.d, naming=self.features.names)

    def names(self, ids: npt.ArrayLike) -> list[str]:
        """The names of the rows with these ids, flattened."""
        return self.features.names_of(ids)

    def find(self, name: str) -> int:
        """The smallest id whose name is `name`; `ValueError` when there is none."""
        return self.features.find(name)

    def add(self, rows: npt.ArrayLike, names: Iterable[str] | None = None) -> Ints:
        """Add rows (m, d), all or none of them, to the shard that has the fewest. Returns their ids.

        With names if the others have some. Questions asked from now on see them. Needs `mode="r+"`.
        """
        return add(self._changing(), rows, names)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove the rows with these ids; the ids are not given again. Needs `mode="r+"`.

        What is wrong is found before any of them is removed; one row of the model must be left. A shard that does not
        answer then is a `ShardError`; its part is made up for by the next call of this connection.
        """
        remove(self._changing(), ids)

    def replace(self, ids: npt.ArrayLike, rows: npt.ArrayLike) -> None:
        """Put other rows (m, d) under these ids, which keep their names; see `remove`."""
        replace(self._changing(), ids, rows)

    def compact(self, *, rebuild: bool = False, deadline: float = 3600.0) -> None:
        """Have each shard that has changed put its rows under one index, and drop what was removed; ids stay.

        With `rebuild` cells are trained on the rows that there are. Others may ask meanwhile.
        """
        self._changing().compact(rebuild=rebuild, deadline=check_number(deadline, "deadline", above=0.0))

    def audit(
        self, thetas: npt.ArrayLike, *, temperature: float = 1.0, method: Sampler | None = None, exclude: Exclude = None
    ) -> Audit:
        """Measured accuracy of a sampler at these thetas: needs all logits, O(n d) a theta. Print the result.

        Of the default method of each shard, of `Bounded` and of `Exhaustive`.
        """
        check_raced(method, "an unsplit model")
        batch = np.atleast_2d(check_vectors(thetas, "thetas", self.d))
        drawn = self(batch, temperature=temperature).sample(1, method=method, rng=0, exclude=exclude)

        def ask(places: ShardPlaces) -> Audit:
            asked = {
                holding.number: (Request("audit", {"method": method, "exclude": out}, batch, temperature),)
                for holding, out in zip(places.shards, left_out(places, exclude, len(batch)), strict=True)
                if holding.count
            }
            told = self._view.send(places, asked, whole=True).answers
            return audit_of([answers[0] for answers in told.values()], drawn, temperature, method)

        return self._view.steady(ask)

    def calibrate(self, *_: object, **__: object) -> NoReturn:
        """Refused: what is measured on the rows of one shard does not hold of all rows."""
        raise ValueError(
            "calibrate: shards cannot be calibrated, since the error of a draw over all rows is not known to any of "
            "them; draws over shards are bounded without, or calibrate an unsplit LogLinear"
        )

    def health(self) -> list[Health]:
        """One record a worker: where it runs, what it has open, how often it was restarted, what went wrong."""
        return self._shards.health()

    def close(self) -> None:
        """End the workers of this connection, and let others write."""
        self._shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _changing(self) -> Coordinator:
        if not self.writes:
            raise ValueError("the shards are open to be read; connect with mode='r+' to change their rows")
        return self._shards
