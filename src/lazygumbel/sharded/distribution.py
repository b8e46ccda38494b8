"""`ShardedDistribution`: the verbs of `Distribution` over all shards, with one fan-out a call.

`MergedDistribution` knows how the answers of parts become the answer over their union; `script` has it ask all shards
at the same time. (Where shards have fewer rows left than are drawn of them, and not as many for every theta, there is a
round for each such number.)
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_number, check_vectors
from lazygumbel.merged import MergedDistribution
from lazygumbel.methods import Keyed, OrderedSampler, Sampler
from lazygumbel.results import Draws, Estimate, Mode, Naming, OrderedDraws, Reason, Result, TopK
from lazygumbel.rows.exclusions import Exclude
from lazygumbel.sharded.places import ShardPlaces
from lazygumbel.sharded.requests import Lost, ShardError
from lazygumbel.sharded.script import Script, StandInPart, Unanswered, each_part
from lazygumbel.sharded.view import View
from lazygumbel.verbs import Rng, SumOptions, Verbs

__all__ = ["ShardedDistribution"]

T = TypeVar("T")


class ShardedDistribution(Verbs):
    """The model at one theta, or at a batch, over all shards; verbs, shapes and labels as of `Distribution`.

    Each verb sees the rows that there are when it is called. A result says in `coverage` which share of them it speaks
    for; below one its label is heuristic, and log-probabilities of rows of a missing shard are not a number. Functions
    of ids are called where the shards are: on Ray they travel.
    """

    def __init__(
        self, view: View, theta: npt.ArrayLike, temperature: float, *, d: int, naming: Naming | None = None
    ) -> None:
        self._view, self._theta = view, check_vectors(theta, "theta", d)
        self.batch_shape: tuple[int, ...] = self._theta.shape[:-1]
        self.temperature = check_number(temperature, "temperature", above=0.0)
        self._naming = naming

    def __repr__(self) -> str:
        return f"ShardedDistribution(batch_shape={self.batch_shape}, temperature={self.temperature:g})"

    def _sample(self, size: int | tuple[int, ...], method: Sampler | None, rng: Rng, exclude: Exclude) -> Draws:
        seed = _seed(rng)
        chosen = _keyed(method, seed)
        return self._run(lambda m: m.sample(size, method=chosen, rng=seed, exclude=exclude))

    def sample_without_replacement(
        self, size: int, *, method: OrderedSampler | None = None, rng: Rng = None, exclude: Exclude = None
    ) -> OrderedDraws:
        """`size` distinct rows in the order of drawing: `ids` of shape (size,) + batch shape."""
        seed = _seed(rng)
        chosen = _keyed(method, seed)
        return self._run(lambda m: m.sample_without_replacement(size, method=chosen, rng=seed, exclude=exclude))

    def _log_partition(self, options: SumOptions) -> Estimate:
        given = _settle_seed(options)
        return self._run(lambda m: m.log_partition(**given))

    def _expectation(self, f: Callable[[Ints], npt.ArrayLike] | None, options: SumOptions) -> Estimate:
        given = _settle_seed(options)
        return self._run(lambda m: m.expectation(f, **given))

    def _mean_logit(self, options: SumOptions) -> Estimate:
        given = _settle_seed(options)
        return self._run(lambda m: m.mean_logit(**given))

    def _log_prob(self, ids: npt.ArrayLike, options: SumOptions) -> Estimate:
        given = _settle_seed(options)
        return self._run(lambda m: m.log_prob(ids, **given), lambda m: m.log_partition(**given))

    def _log_prob_ordered(self, ids: npt.ArrayLike, options: SumOptions) -> Estimate:
        given = _settle_seed(options)
        return self._run(lambda m: m.log_prob_ordered(ids, **given), whole=True)

    def logits(self, ids: npt.ArrayLike, *, exclude: Exclude = None) -> Floats:
        """theta . phi / temperature of ids of shape sample shape + batch shape; not a number of a missing shard."""
        return self._run(lambda m: m.logits(ids, exclude=exclude))

    def top_k(self, k: int, *, exclude: Exclude = None) -> TopK:
        """The k most probable rows (as far as the indexes find them), with raw inner products."""
        return self._run(lambda m: m.top_k(k, exclude=exclude))

    def truncated(self, **_: object) -> NoReturn:
        """Refused: where the mass of top-p ends is found by looking at longer and longer lists, a fan-out each."""
        raise ValueError(
            "top_k, top_p, min_p: shards cannot be truncated; draw from what top_k(k) gives, or truncate an unsplit "
            "LogLinear"
        )

    def mode(self, *, exclude: Exclude = None) -> Mode:
        """The most probable row, shape batch shape. A shard that is missing might hold it: then it is an error."""
        return self._run(lambda m: m.top_k(1, exclude=exclude), whole=True).first

    def _run(
        self,
        verb: Callable[[MergedDistribution], T],
        *also: Callable[[MergedDistribution], object],
        whole: bool = False,
    ) -> T:
        """What a verb returns; what `also` asks goes into the same fan-out. `whole`: no shard may be missing."""
        return self._view.steady(lambda places: self._run_at(places, verb, also, whole=whole))

    def _run_at(
        self,
        places: ShardPlaces,
        verb: Callable[[MergedDistribution], T],
        also: Sequence[Callable[[MergedDistribution], object]],
        *,
        whole: bool,
    ) -> T:
        script = Script()
        parts = [StandInPart(holding, script) for holding in places.shards]
        merged = MergedDistribution(
            parts, places, self._theta, self.temperature, d=places.d, each=each_part, naming=self._naming
        )
        while True:
            for ask in (*also, verb):
                script.turns.clear()
                with suppress(Unanswered):
                    found = ask(merged)
                    if ask is verb:
                        return cast("T", _settled(found, script.lost, places) if isinstance(found, Result) else found)
            script.fetch(lambda requests: self._view.send(places, requests, whole=whole))


def _settled(found: Any, lost: dict[int, Lost], places: ShardPlaces) -> Any:
    """The result, with what it lacks."""
    if not lost:
        return found
    if not isinstance(found, Estimate) and (found.ids < 0).any():  # too few rows are left to give what was asked
        raise ShardError(lost)
    rows = sum(holding.count for holding in places.shards if holding.number not in lost)
    batch = found.rows.shape
    weaker: dict[str, Any] = {
        "exact": False,
        "grounds": np.full(batch, Reason.SHARD_MISSING.code, dtype=np.int8),
        "bound": np.full(batch, np.nan),
        "coverage": rows / places.n,
    }
    held = {field.name for field in fields(found)}
    return replace(found, **{name: value for name, value in weaker.items() if name in held})


def _keyed(method: Any, seed: int) -> Any:
    """With the seed that an unsplit model would draw, if it is a method that has one."""
    return replace(method, seed=seed) if isinstance(method, Keyed) and method.seed is None else method


def _settle_seed(options: SumOptions) -> dict[str, Any]:
    """The same by name; a verb that is run again asks for the same."""
    return options._replace(rng=_seed(options.rng))._asdict()


def _seed(rng: Rng) -> int:
    """One number of which all the randomness of a call follows."""
    return int(np.random.default_rng(rng).integers(2**63))
