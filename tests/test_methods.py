"""Every method keeps the contract of `check_method`, the default first; methods that break it are found out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.methods import Query
from lazygumbel.methods.base import Seen
from lazygumbel.results import EXACT, Reason
from lazygumbel.testing import check_method
from lazygumbel.testing.statistics import LIMIT, of_ids

Build = Callable[[lg.Features], lg.Index]


def partition(rows: lg.Features) -> lg.PartitionIndex:
    return lg.PartitionIndex.build(rows, rng=0)


def hnsw(rows: lg.Features) -> lg.Index:
    return lg.FaissIndex.build(rows, "HNSW8")


METHODS: dict[str, tuple[object, Build]] = {
    "bounded": (lg.Bounded(), partition),
    "exhaustive": (lg.Exhaustive(), lg.ExactIndex.build),
    "exhaustive by bytes": (lg.Exhaustive(), partition),
    "keyed": (lg.Keyed(), lg.ExactIndex.build),
    "keyed over codes": (lg.Keyed(), partition),
    "lazy": (lg.LazyGumbel(), lg.ExactIndex.build),
    "lazy over hnsw": (lg.LazyGumbel(k=20), hnsw),
    "fixed cutoff": (lg.FixedCutoff(delta=1e-4), lg.ExactIndex.build),
    "fixed cutoff over codes": (lg.FixedCutoff(), partition),
    "uniform tail": (lg.UniformTail(rel_err=0.2, delta=0.1), lg.ExactIndex.build),
    "uniform tail over hnsw": (lg.UniformTail(k=20), hnsw),
    "top k only": (lg.TopKOnly(20), lg.ExactIndex.build),
    "frozen": (lg.Frozen(20), lg.ExactIndex.build),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_conforms(name: str):
    method, build = METHODS[name]
    check_method(method, build=build)


def test_a_calibrated_method_conforms(monkeypatch: pytest.MonkeyPatch):
    """Over rows on which something can be calibrated; the other cases have too few."""
    monkeypatch.setattr("lazygumbel.guarantees.calibrate._speed_up", lambda *_: 2.0)

    def build(rows: lg.Features) -> lg.Index:
        model = lg.LogLinear(lg.PartitionIndex.build(rows, cells=min(10, rows.n), rng=0))
        thetas = np.random.default_rng(0).normal(size=(60, rows.d))
        found = model.calibrate(thetas, tv=2.5e-4, rng=0)
        index = model.index
        assert isinstance(index, lg.PartitionIndex)
        return index.calibrated(found)

    check_method(lg.Calibrated(), build=build)


@dataclass(frozen=True)
class Broken:
    """Brute force with a fault."""

    fault: str

    def sample(self, query: Query, size: int, rng: np.random.Generator) -> lg.Draws:
        right = lg.Exhaustive()
        match self.fault:
            case "drops the tail":
                return replace(lg.TopKOnly(20).sample(query, size, rng), grounds=EXACT, bound=np.zeros(query.size))
            case "ignores the seed":
                return right.sample(query, size, np.random.default_rng(0))
            case "draws what is excluded":
                nothing = np.empty(0, dtype=np.int64)
                return right.sample(replace(query, excluded=(nothing,) * query.size), size, rng)
            case "has other values":
                drawn = right.sample(query, size, rng)
                return replace(drawn, values=drawn.values + 0.3)
            case "draws the worst row when it is cold":
                drawn = right.sample(query, size, rng)
                if query.temperature < 1 and drawn.ids.size:
                    (block,) = query.dense()
                    drawn.ids[0] = np.where(np.isneginf(block.logits), np.inf, block.logits).argmin(axis=1)
                return drawn
            case "claims a bound that it lacks":
                reason = np.array(Reason.CEILINGS.code, dtype=np.int8)
                return replace(right.sample(query, size, rng), grounds=reason, bound=np.full(query.size, np.nan))
            case "gives all thetas the same numbers":
                drawn = right.sample(query, size, rng)
                same = np.repeat(drawn.ids[:, :1], query.size, axis=1)
                return replace(drawn, ids=np.where(np.isin(same, query.excluded), drawn.ids, same))
            case _:
                return right.sample(query, size, rng)

    def sample_without_replacement(self, query: Query, size: int, rng: np.random.Generator) -> lg.OrderedDraws:
        drawn = lg.Exhaustive().sample_without_replacement(query, size, rng)
        match self.fault:
            case "repeats a row":
                return replace(drawn, ids=np.repeat(drawn.ids[:1], size, axis=0))
            case "has no threshold":
                return replace(drawn, threshold=np.full(query.size, -np.inf))
            case _:
                return drawn

    def moments(self, query: Query, f: Any, rng: np.random.Generator) -> Seen:
        seen = lg.Exhaustive().moments(query, f, rng)
        noise = rng.normal(size=query.size)
        match self.fault:
            case "is biased":
                return seen._replace(moments=replace(seen.moments, total=1.05 * seen.moments.total))
            case "understates its error":
                few = replace(
                    seen.moments,
                    total=seen.moments.total * (1 + 0.1 * noise),
                    var_total=(0.01 * seen.moments.total) ** 2,
                )
                bounded = np.full(query.size, Reason.WEIGHED.code, dtype=np.int8)
                return Seen(few, seen.rows, bounded, np.full(query.size, 0.5))
            case _:
                return seen


FAULTS = {
    "drops the tail": "do not follow the softmax|cannot be",
    "ignores the seed": "another seed gives the same draws",
    "draws what is excluded": "an excluded row was drawn",
    "has other values": "values are not Gumbel",
    "draws the worst row when it is cold": "do not follow the softmax: chi square is inf",
    "claims a bound that it lacks": "labelled bounded has no bound",
    "gives all thetas the same numbers": "do not follow the softmax|the same random numbers",
    "repeats a row": "a row is drawn twice",
    "has no threshold": "the threshold is minus infinity where, and only where",
    "is biased": "is stated",
    "understates its error": "is stated",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_method_that_breaks_the_contract_is_found_out(fault: str):
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        check_method(Broken(fault))


def test_the_same_method_without_a_fault_conforms_and_no_method_does_not():
    check_method(Broken("none"))
    with pytest.raises(AssertionError, match="is no Sampler, OrderedSampler, Estimator or Normaliser"):
        check_method(object())


def test_draws_of_rare_rows_are_not_hidden_by_a_heavy_one():
    law, ids = np.array([1 - 1e-6, 1e-6]), np.zeros(20_000, dtype=np.int64)
    assert of_ids(ids, law) < LIMIT
    ids[5] = 1
    assert of_ids(ids, law) < LIMIT  # one in fifty such samples has it
    ids[:5] = 1
    assert of_ids(ids, law) > LIMIT


def test_too_few_draws_to_tell_a_wrong_law_are_refused():
    with pytest.raises(AssertionError, match="20 draws are too few to tell a wrong law; ask for more"):
        check_method(lg.Exhaustive(), draws=20)
