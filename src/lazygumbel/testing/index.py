"""A conformance kit for indexes, third-party ones included: `check_index(index)` compares *values* with brute force."""

import numpy as np

from lazygumbel._support.arrays import Vectors
from lazygumbel.indexes import ExactIndex, Index
from lazygumbel.results import TopK
from lazygumbel.rows.features import Features

__all__ = ["check_index"]


def check_index(index: Index, *, recall: float = 0.5, queries: int = 20, rng: np.random.Generator | int = 0) -> None:
    """Raise `AssertionError` unless `index` keeps the contract of `lazygumbel.indexes.Index` over its own features.

    Checked for queries drawn from the rows, at random, and zero: shapes and types for (d,), (1, d), (B, d) and (0, d);
    k from 1 to beyond n; ids distinct and in range; scores equal to the true inner products; best first, ties by
    smaller id; one call for a batch equal to single calls; `rows` within bounds; `exact` true only of the true top k;
    bad input refused by name. At k = 10, queries drawn from the rows must find on average at least the share `recall`
    of the true top 10.
    """
    generator = np.random.default_rng(rng)
    features = index.features
    rows = features.gather(generator.integers(features.n, size=queries))
    noise = generator.normal(size=(queries, features.d)).astype(np.float32)
    batch = np.concatenate([rows, noise, np.zeros((1, features.d), np.float32)])
    oracle = ExactIndex(features)
    for k in sorted({1, 2, 10, features.n // 2 + 1, features.n, features.n + 7}):
        few = batch if k <= 10 else batch[:: max(1, len(batch) // 4)]
        found, truth = index.top_k(few, k), oracle.top_k(few, k)
        _check_values(found, features, few, k)
        _check_claim(found, truth)
        _check_singles(index, few[:3], k)
    _check_shapes(index, batch)
    _check_refusals(index)
    found, truth = index.top_k(rows, 10), oracle.top_k(rows, 10)
    share = np.mean([np.isin(t, f).mean() for t, f in zip(truth.ids, found.ids, strict=True)])
    _demand(bool(share >= recall), f"recall at 10 is {share:.2f}, below {recall}")


def _check_values(found: TopK, features: Features, batch: Vectors, k: int) -> None:
    width = min(k, features.n)
    _demand(found.ids.shape == (len(batch), width), f"ids have shape {found.ids.shape}, not {(len(batch), width)}")
    _demand(found.scores.shape == found.ids.shape, "scores and ids differ in shape")
    _demand(found.k == k, f"k is reported as {found.k}, not {k}")
    _demand(found.ids.dtype == np.int64, f"ids are {found.ids.dtype}, not int64")
    _demand(bool(((found.ids >= 0) & (found.ids < features.n)).all()), "an id is out of range")
    _demand(all(len(np.unique(ids)) == width for ids in found.ids), "ids of one query repeat")
    for ids, scores, query in zip(found.ids, found.scores, batch, strict=True):
        gathered = features.gather(ids).astype(np.float64)
        scale = np.linalg.norm(gathered, axis=1) * np.linalg.norm(query)
        error = np.abs(gathered @ query.astype(np.float64) - scores)
        _demand(bool((error <= 1e-5 * scale + 1e-30).all()), "scores are not the raw inner products")
        _demand(bool((np.diff(scores) <= 0).all()), "scores are not sorted, best first")
        ties = np.diff(scores) == 0
        _demand(bool((np.diff(ids)[ties] > 0).all()), "ties are not ordered by smaller id")
    _demand(found.rows.shape == (len(batch),), f"rows have shape {found.rows.shape}, not {(len(batch),)}")
    _demand(bool((found.rows >= width).all()), "fewer rows are reported as scored than were returned")
    _demand(bool((found.rows <= features.n).all()), "more rows are reported as scored than there are")


def _check_claim(found: TopK, truth: TopK) -> None:
    if found.exact or bool((found.rows == truth.rows).all()):
        _demand(np.array_equal(found.ids, truth.ids), "claims to have seen every row, but misses the true top k")


def _check_singles(index: Index, batch: Vectors, k: int) -> None:
    together = index.top_k(batch, k)
    for b, query in enumerate(batch):
        alone = index.top_k(query, k)
        same = np.array_equal(alone.ids, together.ids[b]) and np.array_equal(alone.scores, together.scores[b])
        _demand(same, "a batch and a single query give different answers")


def _check_shapes(index: Index, batch: Vectors) -> None:
    for queries, shape in ((batch[0], ()), (batch[:1], (1,)), (batch[:0], (0,)), (batch[0].astype(np.float64), ())):
        found = index.top_k(queries, 1)
        _demand(found.ids.shape == (*shape, 1), f"queries of shape {queries.shape} give ids of {found.ids.shape}")
        _demand(found.rows.shape == shape, f"queries of shape {queries.shape} give rows of {found.rows.shape}")


def _check_refusals(index: Index) -> None:
    good = np.zeros(index.features.d, np.float32)
    bad = good.copy()
    bad[0] = np.nan
    cases: list[tuple[Vectors, int, str]] = [
        (good, 0, "k"),
        (bad, 1, "queries"),
        (np.zeros(index.features.d + 1, np.float32), 1, "queries"),
        (np.zeros((1, 1, index.features.d), np.float32), 1, "queries"),
    ]
    for queries, k, name in cases:
        try:
            index.top_k(queries, k)
        except ValueError as error:
            _demand(name in str(error), f"the error for bad {name} does not name it: {error}")
        else:
            raise AssertionError(f"bad {name} was not refused")


def _demand(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
