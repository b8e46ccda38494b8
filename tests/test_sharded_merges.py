"""Answers of shards merge into the answer over all rows, in any order and any grouping, whatever the partition is."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distribution_helpers import Directory
from lazygumbel import Features
from lazygumbel.distribution import Distribution
from lazygumbel.indexes import ExactIndex
from lazygumbel.merged import MergedDistribution
from lazygumbel.merged.scattering import scatter_draws, scatter_estimate, scatter_ordered, scatter_top
from lazygumbel.methods import Exhaustive
from lazygumbel.results import Draws, Estimate, Moments, OrderedDraws, Reason, TopK
from test_results import check_same

Result = Draws | OrderedDraws | Estimate | TopK
K, SEED = 4, 7
NO_THETA = np.empty(0, dtype=np.int64)


class Part:
    """Some rows under an index of their own."""

    def __init__(self, phi: np.ndarray, ids: np.ndarray) -> None:
        self.ids, self.count = ids, len(ids)
        self._rows = ExactIndex.build(Features.of(phi[ids]))

    def __call__(self, theta: np.ndarray, *, temperature: float) -> Distribution:
        return Distribution(self._rows, theta, temperature)


@st.composite
def partitions(draw: st.DrawFn) -> list[np.ndarray]:
    """The ids 0 to n - 1 in 1, 2 or 5 disjoint sets, in no order; of five, one is empty."""
    shards = draw(st.sampled_from([1, 2, 5]))
    sizes = [draw(st.integers(1, 9)) for _ in range(shards)]
    if shards == 5:
        sizes[draw(st.integers(0, 4))] = 0
    ids = np.random.default_rng(draw(st.integers(0, 10**6))).permutation(sum(sizes))
    return [np.sort(part) for part in np.split(ids, np.cumsum(sizes)[:-1])]


def perturbed(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Of every row and theta, by noise of its own: (B, m)."""
    return logits.T[:, ids] + np.random.default_rng(SEED).gumbel(size=logits.T.shape)[:, ids]


def draws(logits: np.ndarray, ids: np.ndarray) -> Draws:
    values, size = perturbed(logits, ids), logits.shape[1]
    best = values.argmax(axis=1)
    labels = np.full(size, "exact", dtype="U10")
    return Draws(ids[best][None], values.max(axis=1)[None], np.full(size, len(ids)), labels)


def ordered(logits: np.ndarray, ids: np.ndarray) -> OrderedDraws:
    """The first K by perturbed logits, filled up where there are fewer."""
    values, size = perturbed(logits, ids), logits.shape[1]
    order, few = np.argsort(-values, axis=1), min(K, len(ids))
    first = np.take_along_axis(values, order, 1)
    threshold = first[:, K] if len(ids) > K else np.full(size, -np.inf)
    chosen = ids[order[:, :few]]
    some = OrderedDraws(
        chosen.T,
        np.take_along_axis(logits.T, chosen, 1).T,
        first[:, :few].T,
        threshold,
        np.full(size, len(ids)),
        np.full(size, "exact", dtype="U10"),
    )
    return scatter_ordered([(np.arange(size), some)], size, K)


def answers(phi: np.ndarray, thetas: np.ndarray, ids: np.ndarray) -> dict[str, Result]:
    """Every kind of result over some rows; over none, what an empty shard adds."""
    logits, size = phi @ thetas.T.astype(np.float64), len(thetas)
    if not len(ids):
        one = answers(phi, thetas[:1], np.arange(1))
        nothing: dict[str, Callable[[Any], Any]] = {
            "draws": lambda found: scatter_draws([(NO_THETA, _none(found, 1))], size, 1),
            "ordered": lambda found: scatter_ordered([(NO_THETA, _none(found, 1))], size, K),
            "top k": lambda found: scatter_top([(NO_THETA, _none(found, 0))], size, K),
            "log partition": lambda found: scatter_estimate([(NO_THETA, _none(found, 0))], size, 1),
            "expectation": lambda found: scatter_estimate([(NO_THETA, _none(found, 0))], size, 1),
        }
        return {kind: make(one[kind]) for kind, make in nothing.items()}
    dist = Part(phi, ids)(thetas, temperature=1.0)
    top = dist.top_k(K)
    by_id = TopK(ids[top.ids], top.scores, top.rows, top.exact, K, top.bound)
    return {
        "draws": draws(logits, ids),
        "ordered": ordered(logits, ids),
        "top k": scatter_top([(np.arange(size), by_id)], size, K),
        "log partition": dist.log_partition(method=Exhaustive()),
        "expectation": dist.expectation(method=Exhaustive()),
    }


def _none(found: Any, axis: int) -> Any:
    """A result for no theta at all."""

    def cut(value: Any, at: int) -> Any:
        return np.take(value, NO_THETA, axis=at) if isinstance(value, np.ndarray) and value.ndim else value

    changed: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, Moments):
            changed[field.name] = _none(value, 0)
        else:
            changed[field.name] = cut(value, axis if field.name in ("ids", "values", "logits") else 0)
    return replace(found, **changed)


def merged(found: Sequence[Result], rng: np.random.Generator) -> Result:
    """In a random order and a random grouping."""
    left: list[Any] = [found[i] for i in rng.permutation(len(found)).tolist()]
    while len(left) > 1:
        at = int(rng.integers(len(left) - 1))
        left[at : at + 2] = [left[at].merge(left[at + 1])]
    return left[0]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(partitions(), st.integers(1, 3), st.integers(0, 10**6))
def test_every_result_merges_in_any_order_and_grouping(parts: list[np.ndarray], thetas: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = sum(len(part) for part in parts)
    phi, at = rng.standard_normal((n, 3)).astype(np.float32), rng.standard_normal((thetas, 3)).astype(np.float32)
    whole = answers(phi, at, np.arange(n))
    of_parts = [answers(phi, at, part) for part in parts]
    for kind, expected in whole.items():
        rtol = 1e-5 if kind in ("log partition", "expectation") else 1e-6
        for _ in range(3):
            check_same(merged([found[kind] for found in of_parts], rng), expected, rtol)
    if len(parts) > 1:  # the control: with a part left out it is another answer
        fewer = merged(
            [found["log partition"] for found, ids in zip(of_parts, parts, strict=True) if len(ids)][1:], rng
        )
        assert not np.allclose(fewer.value, whole["log partition"].value, rtol=1e-6)  # type: ignore[union-attr]


REASONED = tuple(Reason)


def claiming(found: Any, reasons: np.ndarray, bound: np.ndarray, violations: np.ndarray, coverage: float) -> Any:
    """The same answer with other claims. A list of top rows has a label by its bound, and is exact for all thetas."""
    held = {field.name for field in fields(found)}
    if "grounds" not in held:
        return replace(found, exact=bool((bound == 0).all()), bound=bound, coverage=coverage)
    known = np.where([REASONED[code].label == "exact" for code in reasons], 0.0, bound)
    changed = {"grounds": reasons, "bound": known, "violations": violations, "coverage": coverage}
    return replace(found, **{name: value for name, value in changed.items() if name in held})


@settings(derandomize=True, deadline=None, max_examples=60)
@given(partitions(), st.integers(1, 3), st.integers(0, 10**6))
def test_claims_merge_in_any_order_and_grouping(parts: list[np.ndarray], thetas: int, seed: int) -> None:
    """Theta by theta the weakest label with its reason, and the largest bound, unknown if one is; the least coverage,
    and all violations. Of whatever parts claim: also of those that every index and every method may claim."""
    rng = np.random.default_rng(seed)
    n, size = sum(len(part) for part in parts), len(parts)
    phi, at = rng.standard_normal((n, 3)).astype(np.float32), rng.standard_normal((thetas, 3)).astype(np.float32)
    reasons = rng.integers(len(REASONED), size=(size, thetas)).astype(np.int8)
    bounds = rng.choice([0.0, 1e-5, 0.02, np.nan], p=[0.3, 0.3, 0.3, 0.1], size=(size, thetas))
    violations, coverage = rng.integers(5, size=(size, thetas)), rng.choice([0.5, 1.0], size=size)
    claims = list(zip(reasons, bounds, violations, coverage.tolist(), strict=True))
    of_parts = [answers(phi, at, part) for part in parts]
    for kind in of_parts[0]:
        claimed = [claiming(found[kind], *of_one) for found, of_one in zip(of_parts, claims, strict=True)]
        first: Any = merged(claimed, rng)
        for _ in range(3):
            check_same(merged(claimed, rng), first, 1e-5)
        weakest = reasons.max(axis=0)
        exact = np.array([[REASONED[code].label == "exact" for code in of_one] for of_one in reasons])
        largest = (bounds if kind == "top k" else np.where(exact, 0.0, bounds)).max(axis=0)
        np.testing.assert_array_equal(first.bound, largest)
        assert first.coverage == coverage.min()
        if kind == "top k":
            assert first.exact == bool((bounds == 0).all())
        else:
            assert first.reasons.tolist() == [str(REASONED[code]) for code in weakest]
            assert first.labels.tolist() == [REASONED[code].label for code in weakest]
        if kind == "draws":
            np.testing.assert_array_equal(first.violations, violations.sum(axis=0))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(partitions(), st.integers(0, 10**6))
def test_a_distribution_over_any_partition_is_that_over_all_rows(parts: list[np.ndarray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = sum(len(part) for part in parts)
    phi, at = rng.standard_normal((n, 3)).astype(np.float32), rng.standard_normal((2, 3)).astype(np.float32)
    shards = [Part(phi, part) for part in parts if len(part)]
    ours = MergedDistribution(shards, Directory(shards), at, 1.0, d=3)
    whole = Part(phi, np.arange(n))(at, temperature=1.0)
    for verb in ("log_partition", "expectation", "entropy"):
        np.testing.assert_allclose(getattr(ours, verb)().value, getattr(whole, verb)().value, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours.top_k(n).ids, whole.top_k(n).ids)
    np.testing.assert_array_equal(np.sort(ours.sample_without_replacement(n, rng=0).ids, axis=0)[:, 0], np.arange(n))
    assert ours.sample(50, rng=0).ids.max() < n
