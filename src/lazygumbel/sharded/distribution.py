"""`ShardedDistribution`: the verbs of `Distribution` over all shards, with one fan-out a call.

`MergedDistribution` knows how the answers of parts become the answer over their union; `script` has it ask all shards
at the same time. (Where shards have fewer rows left than are drawn of them, and not as many for every theta, there is a
round for each such number.)
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lazygumbel.checks import check_number, check_vectors
from lazygumbel.distribution import Exclude, Rng
from lazygumbel.merged import MergedDistribution
from lazygumbel.methods import Estimator, Normaliser, OrderedSampler, Sampler
from lazygumbel.results import HEURISTIC, Draws, Estimate, Mode, OrderedDraws, TopK
from lazygumbel.sharded.requests import Lost, ShardError
from lazygumbel.sharded.script import Ask, Ranges, Script, StandInPart, Unanswered, each_part

__all__ = ["ShardedDistribution"]

Ints = npt.NDArray[np.int64]
R = TypeVar("R", Draws, OrderedDraws, Estimate, TopK)


class ShardedDistribution:
    """The model at one theta, or at a batch, over all shards; verbs, shapes and labels as of `Distribution`.

    A result says in `coverage` which share of the rows it speaks for; below one its label is heuristic.
    """

    def __init__(self, ask: Ask, ranges: Ranges, theta: npt.ArrayLike, temperature: float, *, d: int) -> None:
        self._send, self._ranges, self._theta = ask, ranges, check_vectors(theta, "theta", d)
        self.batch_shape: tuple[int, ...] = self._theta.shape[:-1]
        self.temperature = check_number(temperature, "temperature", above=0.0)

    def __repr__(self) -> str:
        shown = f"n={self._ranges.size:,}, shards={len(self._ranges.shards)}, batch_shape={self.batch_shape}"
        return f"ShardedDistribution({shown}, temperature={self.temperature:g})"

    def sample(
        self,
        size: int | tuple[int, ...] = 1,
        *,
        method: Sampler | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Draws:
        """Independent samples: `ids` of shape (size,) + batch shape."""
        seed = _seed(rng)
        return self._run(lambda m: m.sample(size, method=method, rng=seed, exclude=exclude))

    def sample_without_replacement(
        self, size: int, *, method: OrderedSampler | None = None, rng: Rng = None, exclude: Exclude = None
    ) -> OrderedDraws:
        """`size` distinct rows in the order of drawing: `ids` of shape (size,) + batch shape."""
        seed = _seed(rng)
        return self._run(lambda m: m.sample_without_replacement(size, method=method, rng=seed, exclude=exclude))

    def log_partition(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | Normaliser | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Z, shape batch shape. `rel_err` asks the default methods for this relative error of Z."""
        seed = _seed(rng)
        return self._run(lambda m: m.log_partition(rel_err=rel_err, method=method, rng=seed, exclude=exclude))

    def expectation(
        self,
        f: None = None,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """The expectation of the features phi, shape batch shape + (d,). Functions of ids are not sent to shards."""
        if f is not None:
            raise ValueError(
                "f: shards average the features only; for a function of ids draw some with "
                "sample_without_replacement and sum weights * f(ids), which estimates its expectation"
            )
        seed = _seed(rng)
        return self._run(lambda m: m.expectation(None, rel_err=rel_err, method=method, rng=seed, exclude=exclude))

    def log_prob(
        self,
        ids: npt.ArrayLike,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """log Pr(ids), for ids of shape sample shape + batch shape; not a number for rows of a missing shard."""
        seed = _seed(rng)
        return self._run(
            lambda m: m.log_prob(ids, rel_err=rel_err, method=method, rng=seed, exclude=exclude),
            lambda m: m.log_partition(rel_err=rel_err, method=method, rng=seed, exclude=exclude),
        )

    def entropy(
        self,
        *,
        rel_err: float | None = None,
        method: Estimator | None = None,
        rng: Rng = None,
        exclude: Exclude = None,
    ) -> Estimate:
        """-E[log Pr(i)] in nats, shape batch shape."""
        seed = _seed(rng)
        return self._run(lambda m: m.entropy(rel_err=rel_err, method=method, rng=seed, exclude=exclude))

    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows (as far as the indexes find them), with raw inner products."""
        return self._run(lambda m: m.top_k(k, exclude=exclude))

    def mode(self, *, exclude: Exclude = None) -> Mode:
        """The most probable row, shape batch shape. A shard that is missing might hold it: then it is an error."""
        best = self._run(lambda m: m.top_k(1, exclude=exclude), whole=True)
        return Mode(best.ids[..., 0], best.scores[..., 0], best.rows, best.bound)

    def _run(
        self,
        verb: Callable[[MergedDistribution], R],
        *also: Callable[[MergedDistribution], object],
        whole: bool = False,
    ) -> R:
        """What a verb returns; what `also` asks goes into the same fan-out. `whole`: no shard may be missing."""
        script = Script()
        parts = [StandInPart(shard, script) for shard in self._ranges.shards]
        d = self._theta.shape[-1]
        merged = MergedDistribution(parts, self._ranges, self._theta, self.temperature, d=d, each=each_part)
        while True:
            for ask in (*also, verb):
                script.turns.clear()
                with suppress(Unanswered):
                    found = ask(merged)
                    if ask is verb:
                        return self._settled(cast("R", found), script.lost)
            script.fetch(self._send)
            if script.lost and whole:
                raise ShardError(script.lost)

    def _settled(self, found: R, lost: dict[int, Lost]) -> R:
        """The result, with what it lacks."""
        if not lost:
            return found
        if not isinstance(found, Estimate) and (found.ids < 0).any():  # too few rows are left to give what was asked
            raise ShardError(lost)
        rows = sum(shard.rows for shard in self._ranges.shards if shard.shard not in lost)
        batch = found.rows.shape
        weaker: dict[str, Any] = {
            "exact": False,
            "labels": np.broadcast_to(HEURISTIC, batch),
            "bound": np.full(batch, np.nan),
            "coverage": rows / self._ranges.size,
        }
        held = {field.name for field in fields(found)}
        return replace(found, **{name: value for name, value in weaker.items() if name in held})


def _seed(rng: Rng) -> int:
    """One number of which all the randomness of a call follows."""
    return int(np.random.default_rng(rng).integers(2**63))
