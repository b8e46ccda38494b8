"""`Keyed`: every row, with noise that is a function of seed, theta, row and draw. Exact, wherever the rows lie.

Gumbel-max as it is written in textbooks: a Gumbel for each row and draw, where `Exhaustive` takes one for all rows. So
it is slow, O(n) a draw; but no row's noise depends on which other rows lie beside it, nor on the rest of a batch.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count
from lazygumbel.methods.base import Query
from lazygumbel.methods.draw import Candidates, order_draws
from lazygumbel.results import EXACT, Draws, OrderedDraws

__all__ = ["Keyed", "keyed_within"]

Bits = npt.NDArray[np.uint64]

_NOISE_AT_ONCE = 2**20
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class Keyed:
    """Exact draws by brute force: equal seeds give equal draws however rows are shared out over parts and shards.

    `seed` is drawn from `rng` unless it is given.
    """

    seed: int | None = None
    ids: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    """What to call rows of a part: the ids there, of these the ids around it, and so on."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_count(self.seed, "seed", least=0)

    def seeded(self, rng: Any) -> "Keyed":
        """The same with a seed."""
        return self if self.seed is not None else replace(self, seed=int(np.random.default_rng(rng).integers(2**63)))

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> Draws:
        """Exact samples."""
        keys = self.seeded(rng)._keys(query)
        ids = np.zeros((size, query.size), dtype=np.int64)
        values = np.full((size, query.size), -np.inf)
        for block in query.dense():
            step = max(1, _NOISE_AT_ONCE // max(1, len(block.ids)))
            for b, key in enumerate(keys):
                of_rows = self._of_rows(block.ids, key)
                for start in range(0, size, step):
                    draws = np.arange(start, min(size, start + step), dtype=np.uint64)
                    perturbed = block.logits[b] + _gumbels(of_rows + draws[:, None] * _ODD)
                    best = perturbed.argmax(axis=1)
                    found = perturbed[np.arange(len(best)), best]
                    here = slice(start, start + len(best))
                    ids[here, b] = np.where(found > values[here, b], block.ids[best], ids[here, b])
                    values[here, b] = np.maximum(found, values[here, b])
        return Draws(ids, values, np.full(query.size, query.features.n), EXACT)

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> OrderedDraws:
        """The `size` largest of all perturbed logits, in order; exact Plackett-Luce."""
        keys = self.seeded(rng)._keys(query)
        candidates = [Candidates.none() for _ in keys]
        for block in query.dense():
            for b, key in enumerate(keys):
                values = block.logits[b] + _gumbels(self._of_rows(block.ids, key))
                more = Candidates(block.ids, block.logits[b], values)
                candidates[b] = candidates[b].plus(more).largest(size + 1)
        return order_draws(candidates, size, np.full(query.size, query.features.n), EXACT)

    def _keys(self, query: Query) -> list[np.uint64]:
        """One a theta, by its numbers; a theta that comes again in a batch has another."""
        found, times = list[np.uint64](), Counter[bytes]()
        for theta in query.thetas:
            numbers = theta.tobytes()
            digest = hashlib.blake2b(numbers, digest_size=8, salt=times[numbers].to_bytes(8, "little"))
            digest.update(str(self.seed).encode())
            found.append(np.uint64(int.from_bytes(digest.digest(), "little")))
            times[numbers] += 1
        return found

    def _of_rows(self, rows: Ints, key: np.uint64) -> Bits:
        for ids in self.ids:
            rows = ids[rows]
        return _mixed(_mixed(rows.astype(np.uint64) * _ODD) ^ key)


def keyed_within(method: Any, ids: Any) -> Any:
    """The same method, and if it is `Keyed` one for a part whose rows have these ids in the whole."""
    return replace(method, ids=(ids, *method.ids)) if isinstance(method, Keyed) else method


def _gumbels(bits: Bits) -> Floats:
    uniform = ((_mixed(bits) >> np.uint64(11)) + 0.5) * 2.0**-53
    return -np.log(-np.log1p(-uniform))


def _mixed(bits: Bits) -> Bits:
    """Every bit of the result depends on every bit given: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return bits ^ (bits >> np.uint64(31))
