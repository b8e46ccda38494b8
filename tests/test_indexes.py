"""Every index keeps the contract, and what breaks it is caught; the cells of a `PartitionIndex`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_helpers import BUILDS, faiss_of
from lazygumbel import (
    ExactIndex,
    FaissIndex,
    Features,
    Index,
    PartitionIndex,
    TopK,
)
from lazygumbel.kernels.types import GROUP
from lazygumbel.testing import check_index
from statistics_helpers import make_rows

fixed = settings(derandomize=True, deadline=None, max_examples=40)


# The contract of indexes


@pytest.mark.parametrize("varied", [False, True], ids=["unit", "varied"])
@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_index_keeps_the_contract(name: str, dtype: type, varied: bool) -> None:
    rows = make_rows(400, 6, varied=varied, seed=10).astype(dtype)
    rows[50:60], rows[7] = rows[3], 0.0  # ties, and a row of zeros
    features = Features.of(rows)
    assert features.stored.dtype == np.float32
    # A partition misses a row with probability below 1e-6.
    check_index(BUILDS[name](features), recall=1.0 if name.startswith("partition") else 0.5)


@pytest.mark.parametrize("name", ["IndexFlatIP", "IndexFlatL2", "IndexHNSWFlat"])
def test_adopted_faiss_indexes_keep_the_contract(name: str) -> None:
    import faiss

    rows = make_rows(400, 6, seed=11)  # of unit norm, so that L2 serves
    made = faiss.IndexHNSWFlat(6, 16) if name == "IndexHNSWFlat" else getattr(faiss, name)(6)
    check_index(FaissIndex.adopt(Features.of(rows), faiss_of(rows, made)))  # type: ignore[arg-type]


class Sabotaged:
    """An exact index that spoils its answers."""

    def __init__(self, index: Index, spoil: Callable[[TopK, bool], TopK]) -> None:
        self.features = index.features
        self.index = index
        self.spoil = spoil

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The right answer, spoilt; `spoil` is told whether one bare vector was asked."""
        return self.spoil(self.index.top_k(queries, k), np.ndim(queries) == 1)


def repeat(found: TopK) -> TopK:
    ids, scores = found.ids.copy(), found.scores.copy()
    if ids.shape[-1] > 1:
        ids[..., 1], scores[..., 1] = ids[..., 0], scores[..., 0]
    return replace(found, ids=ids, scores=scores)


def swap_ties(found: TopK) -> TopK:
    """Ties by larger id."""
    order = np.lexsort((-found.ids, -found.scores), axis=-1)
    return replace(
        found,
        ids=np.take_along_axis(found.ids, order, -1),
        scores=np.take_along_axis(found.scores, order, -1),
    )


SPOILS: dict[str, tuple[Callable[[TopK, bool], TopK], str]] = {
    "wrong scores": (lambda f, _: replace(f, scores=f.scores * np.float32(1.01)), "raw inner products"),
    "distances": (lambda f, _: replace(f, scores=2 - 2 * f.scores), "raw inner products"),
    "unsorted": (lambda f, _: replace(f, ids=f.ids[..., ::-1], scores=f.scores[..., ::-1]), "not sorted"),
    "repeated ids": (lambda f, _: repeat(f), "repeat"),
    "out of range": (lambda f, _: replace(f, ids=f.ids + 10_000), "out of range"),
    "ties": (lambda f, _: swap_ties(f), "ties"),
    "narrow ids": (lambda f, _: replace(f, ids=f.ids.astype(np.int32)), "int64"),
    "fewer than asked": (lambda f, _: replace(f, ids=f.ids[..., :1], scores=f.scores[..., :1]), "shape"),
    "forgets k": (lambda f, _: replace(f, k=f.ids.shape[-1]), "k is reported"),
    "no work": (lambda f, _: replace(f, rows=f.rows * 0), "fewer rows"),
    "too much work": (lambda f, _: replace(f, rows=f.rows * 2), "more rows"),
    "one-row batches lose their axis": (
        lambda f, _: replace(f, ids=f.ids[0], scores=f.scores[0], rows=f.rows[0, ...]) if f.rows.shape == (1,) else f,
        "shape",
    ),
    "bare vectors gain an axis": (
        lambda f, bare: replace(f, ids=f.ids[None], scores=f.scores[None], rows=f.rows[None]) if bare else f,
        "shape|different",
    ),
    "singles differ": (
        lambda f, bare: replace(f, scores=np.nextafter(f.scores, np.float32(9))) if bare else f,
        "different answers",
    ),
}


@pytest.mark.parametrize("name", list(SPOILS))
def test_sabotage_is_caught(name: str) -> None:
    rows = make_rows(120, 5, seed=12)
    rows[50:60] = rows[3]
    index = ExactIndex.build(Features.of(rows))
    check_index(Sabotaged(index, lambda found, _: found))  # the wrapper alone is no offence
    spoil, complaint = SPOILS[name]
    with pytest.raises(AssertionError, match=complaint):
        check_index(Sabotaged(index, spoil))


def test_positions_in_place_of_ids_are_caught() -> None:
    index = PartitionIndex.build(Features.of(make_rows(120, 5, seed=13)), cells=6, rng=0)
    check_index(index)
    positions = index.features.positions
    assert positions is not None
    with pytest.raises(AssertionError, match="raw inner products"):
        check_index(Sabotaged(index, lambda found, _: replace(found, ids=np.asarray(positions)[found.ids])))


def test_a_false_claim_is_caught() -> None:
    index = FaissIndex.build(Features.of(make_rows(400, 6, seed=14)), "IVF40,Flat", parameters="nprobe=1")
    check_index(index, recall=0.1)
    with pytest.raises(AssertionError, match="claims"):
        check_index(Sabotaged(index, lambda found, _: replace(found, exact=True)), recall=0.1)
    with pytest.raises(AssertionError, match="claims"):
        check_index(Sabotaged(index, lambda found, _: replace(found, rows=np.full_like(found.rows, 400))), recall=0.1)
    with pytest.raises(AssertionError, match="recall"):
        check_index(index, recall=0.99)


def test_an_index_that_takes_anything_is_caught() -> None:
    class Careless:
        def __init__(self, features: Features) -> None:
            self.features = features
            self.index = ExactIndex(features)

        def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
            found = self.index.top_k(np.nan_to_num(np.asarray(queries)), max(k, 1))
            return replace(found, k=k)

    with pytest.raises(AssertionError, match="not refused"):
        check_index(Careless(Features.of(make_rows(60, 4, seed=15))))


# FAISS


def test_faiss_indexes_that_cannot_serve_are_refused() -> None:
    import faiss

    rows, varied = make_rows(300, 8, seed=16), make_rows(300, 8, varied=True, seed=16)
    features = Features.of(rows)

    def refuse(features: Features, index: object, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            FaissIndex.adopt(features, index)  # type: ignore[arg-type]

    refuse(Features.of(varied), faiss_of(varied, faiss.IndexFlatL2(8)), "L2")
    refuse(features, faiss_of(rows, faiss.IndexFlat(8, faiss.METRIC_L1)), "metric")
    refuse(features, faiss_of(make_rows(300, 9), faiss.IndexFlatIP(9)), "length 9")
    refuse(features, faiss_of(rows[:-1], faiss.IndexFlatIP(8)), "299")
    refuse(features, faiss_of(make_rows(300, 8, seed=17), faiss.IndexFlatIP(8)), "does not hold these features")
    refuse(features, faiss.IndexFlatIP(8), "0 vectors")
    refuse(features, faiss.IndexBinaryFlat(8), "FAISS index over float vectors")
    refuse(features, "HNSW32", "FAISS index over float vectors")
    renumbered = faiss.IndexIDMap(faiss.IndexFlatIP(8))
    renumbered.add_with_ids(rows, np.arange(300) + 1000)
    refuse(features, renumbered, "ids must be 0 to n-1")
    FaissIndex.adopt(features, faiss_of(rows, faiss.IndexFlatL2(8)))  # unit norms: L2 serves


def test_faiss_strings_that_make_no_index_are_refused() -> None:
    features = Features.of(make_rows(300, 8, seed=16))
    with pytest.raises(ValueError, match="factory"):
        FaissIndex.build(features, "Nonsense12")
    with pytest.raises(ValueError, match="parameters"):
        FaissIndex.build(features, "IVF8,Flat", parameters="nonsense=3")


# Cells and codes


def test_every_source_gives_the_same_index(tmp_path: Path) -> None:
    rows = make_rows(300, 4, varied=True, seed=18)
    np.save(tmp_path / "rows.npy", rows)
    first, *others = (
        PartitionIndex.build(source, cells=7, rng=3)
        for source in (
            rows,
            Features.of(rows),
            rows.astype(np.float64),
            tmp_path / "rows.npy",
            str(tmp_path / "rows.npy"),
        )
    )
    for other in others:
        np.testing.assert_array_equal(first.order, other.order)
        np.testing.assert_array_equal(first.coding.sketch.codes, other.coding.sketch.codes)
        np.testing.assert_array_equal(first.features.stored, other.features.stored)


@fixed
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 60), st.integers(0, 1000), st.booleans())
def test_cells_hold_every_row_once(n: int, d: int, cells: int, seed: int, varied: bool) -> None:
    rows = make_rows(n, d, varied=varied, seed=seed)
    rows[: n // 3] = rows[0]
    index = PartitionIndex.build(Features.of(rows), cells=min(cells, n), rng=seed)
    order, positions, offsets = index.features.order, index.features.positions, index.layout.offsets
    assert order is not None and positions is not None
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    np.testing.assert_array_equal(positions[order], np.arange(n))
    np.testing.assert_array_equal(index.features.stored, rows[order])
    assert offsets[0] == 0 and offsets[-1] == n and (np.diff(offsets) > 0).all()
    assert 1 <= index.cells <= min(cells, n) and max(index.coordinates) <= d
    # Each cell is one range, with its mean.
    cell = np.repeat(np.arange(index.cells), np.diff(offsets))
    stored = index.features.stored.astype(np.float64)
    means = np.stack([stored[cell == c].mean(axis=0) for c in range(index.cells)])
    np.testing.assert_allclose(index.partition.means, means, atol=1e-5)
    # Every row has a slot of its own, in groups of its cell.
    slots = index.layout.slots(np.arange(n))
    assert len(np.unique(slots)) == n and (index.coding.sketch.cells[slots // GROUP] == cell).all()
    np.testing.assert_array_equal(index.coding.sketch.firsts[slots // GROUP] + slots % GROUP, np.arange(n))
    assert sum(int(word).bit_count() for word in index.alive) == n
    # The bytes of a residual are as near as they claim.
    residuals = stored - index.partition.means.astype(np.float64)[cell]
    told = index.bytes.codes * index.bytes.steps[:, None].astype(np.float64)
    assert (np.linalg.norm(residuals - told, axis=1) <= index.bytes.error * index.bytes.steps).all()
    # Rows and thetas are turned alike: inner products stay what they were.
    np.testing.assert_allclose(index.coder.turn_rows.T @ index.coder.turn_thetas, np.eye(d), atol=1e-5)


@pytest.mark.parametrize("norms", [0.0, 0.5, 1.5])
def test_the_top_is_the_true_one(norms: float) -> None:
    rng = np.random.default_rng(18)
    rows = make_rows(1500, 6, seed=18) * np.exp(norms * rng.normal(size=(1500, 1))).astype(np.float32)
    index, exact = PartitionIndex.build(rows, cells=20, coordinates=(4, 4), rng=0), ExactIndex.build(Features.of(rows))
    for scale in (1e-6, 1.0, 7.0, 1e6):
        found, truth = index.top_k(scale * rows, 5), exact.top_k(scale * rows, 5)
        np.testing.assert_array_equal(found.ids, truth.ids)
        assert not found.exact and found.rows.mean() < 1000, "every row was scored"
    # Control: with the codes of other rows, some are missed.
    sketch = index.coding.sketch
    rolled = sketch._replace(codes=np.roll(sketch.codes, 5, axis=2), more=np.roll(sketch.more, 5, axis=2))
    coding = index.coding._replace(sketch=rolled)
    wrong = PartitionIndex(index.features, index.partition, index.coder, coding, index.bytes)
    assert (wrong.top_k(rows, 5).ids != exact.top_k(rows, 5).ids).any(axis=1).mean() > 0.1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"cells": 0}, "cells"),
        ({"cells": 101}, "cells"),
        ({"cells": 2.5}, "cells"),
        ({"cells": "many"}, "cells"),
        ({"coordinates": (0, 1)}, "coordinates must be a pair of 1, 2, 3"),
        ({"coordinates": 4}, "coordinates"),
        ({"coordinates": (2, 2, 2)}, "coordinates"),
        ({"thetas": np.ones((3, 2))}, "thetas has 2 columns"),
        ({"thetas": np.array([[np.nan] * 3])}, "thetas holds NaN"),
        ({"thetas": "many"}, "thetas must hold real numbers"),
    ],
)
def test_bad_cells_are_refused(arguments: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        PartitionIndex.build(Features.of(make_rows(100, 3)), **arguments)  # type: ignore[arg-type]


def test_rows_that_are_not_finite_are_refused_by_number() -> None:
    rows = make_rows(100, 3)
    for bad in (np.nan, np.inf):
        rows[42, 1] = bad
        with pytest.raises(ValueError, match="row 42"):
            PartitionIndex.build(rows)


def test_colder_thetas_get_finer_codes() -> None:
    rows = make_rows(3000, 32, seed=19)
    like = make_rows(50, 32, seed=20)
    hot, warm, cold = (PartitionIndex.build(rows, thetas=s * like, rng=0).coordinates for s in (0.1, 20.0, 100.0))
    plain = PartitionIndex.build(rows, rng=0).coordinates
    assert hot > warm >= cold and hot > plain
    assert PartitionIndex.build(10 * rows, rng=0).coordinates == plain  # the default is relative to the rows


def test_the_rng_of_cells() -> None:
    features = Features.of(make_rows(100, 3))
    for bad in ("seed", -1, 1.5):
        with pytest.raises((TypeError, ValueError)):
            PartitionIndex.build(features, rng=bad)  # type: ignore[arg-type]
    builds = [PartitionIndex.build(features, cells=8, rng=r) for r in (3, np.random.default_rng(3), 4)]
    orders = [b.features.order for b in builds]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(builds[0].coder.turn_rows, builds[2].coder.turn_rows)


def test_an_index_says_what_it_is() -> None:
    index = PartitionIndex.build(make_rows(1500, 6), cells=20, coordinates=(4, 4), rng=0)
    assert repr(index) == f"PartitionIndex(n=1,500, d=6, cells={index.cells}, 48 bits a row, 24 first)"
