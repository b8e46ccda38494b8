"""Building, saving and loading a `LogLinear`."""

import json
from dataclasses import replace
from mmap import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from index_helpers import BUILDS
from lazygumbel import (
    ExactIndex,
    Exhaustive,
    Features,
    FixedCutoff,
    Index,
    LazyGumbel,
    LogLinear,
    LSHIndex,
    PartitionIndex,
    TopK,
    UniformTail,
)
from lazygumbel._support.manifest import seal
from lazygumbel.model import describe
from lazygumbel.testing import check_index
from statistics_helpers import make_rows

# Building


def test_few_rows_are_indexed_exactly_and_many_by_cells() -> None:
    rows = make_rows(50_000, 4, seed=1)
    few, many = LogLinear.build(rows[:-1]), LogLinear.build(rows, rng=0)
    assert isinstance(few.index, ExactIndex) and few.features.n == 49_999
    assert isinstance(many.index, PartitionIndex) and many.features.n == 50_000


def test_every_source_gives_the_same_model(tmp_path: Path) -> None:
    rows = make_rows(40, 3, seed=2)
    np.save(tmp_path / "rows.npy", rows)
    text = "\n".join(" ".join([f"w{i}", *(repr(float(v)) for v in row)]) for i, row in enumerate(rows))
    (tmp_path / "rows.vec").write_text(f"40 3\n{text}\n")
    sources = (rows, rows.astype(np.float64), rows.tolist(), Features.of(rows), tmp_path / "rows.npy",
               str(tmp_path / "rows.npy"), tmp_path / "rows.vec")  # fmt: skip
    for source in sources:
        model = LogLinear.build(source)
        np.testing.assert_array_equal(model.features.gather(np.arange(40)), rows)
        assert model(np.ones(3)).mode().ids == (rows @ np.ones(3)).argmax()
    named = LogLinear.build(tmp_path / "rows.vec").features.names
    assert named is not None and named.find("w7") == 7


def test_an_index_over_the_same_rows_is_taken_and_another_refused() -> None:
    rows = make_rows(200, 4, seed=3)
    for build in BUILDS.values():
        index = build(Features.of(rows))
        assert LogLinear.build(rows, index=index).index is index
    index = ExactIndex.build(Features.of(rows))
    for other in (rows[:-1], make_rows(200, 5, seed=3), make_rows(200, 4, seed=4), -rows):
        with pytest.raises(ValueError, match="index was built over"):
            LogLinear.build(other, index=index)


@pytest.mark.parametrize(
    "source", [np.ones(3), np.ones((0, 3)), np.ones((3, 0)), np.full((2, 2), np.nan), "no.npy", "x.zip"]
)
def test_bad_rows_are_refused(source) -> None:
    with pytest.raises(ValueError, match=r"features|no\.npy|x\.zip"):
        LogLinear.build(source)


# Saving and loading


@pytest.mark.parametrize("name", list(BUILDS))
def test_a_saved_model_is_the_same_model(name: str, tmp_path: Path) -> None:
    rows = make_rows(300, 5, varied=True, seed=5)
    features = Features.of(rows, names=[f"row {i} é" for i in range(300)])
    model = LogLinear(BUILDS[name](features))
    model.save(tmp_path / "model")
    loaded = LogLinear.load(tmp_path / "model")
    assert type(loaded.index) is type(model.index)
    assert isinstance(loaded.features.stored.base, mmap) and not loaded.features.stored.flags.writeable
    np.testing.assert_array_equal(loaded.features.gather(np.arange(300)), rows)
    assert loaded.features.names is not None and list(loaded.features.names) == list(features.names or [])
    thetas = 3 * make_rows(6, 5, seed=6)
    for k in (1, 10, 300):
        before, after = model.index.top_k(thetas, k), loaded.index.top_k(thetas, k)
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.scores.view(np.uint32), after.scores.view(np.uint32))
        np.testing.assert_array_equal(before.rows, after.rows)
        assert before.exact == after.exact
    one, other = model(thetas, temperature=0.3), loaded(thetas, temperature=0.3)
    for method in (None, Exhaustive(), LazyGumbel(), FixedCutoff()):
        np.testing.assert_array_equal(
            one.sample(20, method=method, rng=7).ids, other.sample(20, method=method, rng=7).ids
        )
    for method in (None, UniformTail()):
        np.testing.assert_array_equal(
            one.log_partition(method=method, rng=8).value, other.log_partition(method=method, rng=8).value
        )
    # Saved again from the memory map, over itself and elsewhere.
    loaded.save(tmp_path / "model")
    loaded.save(tmp_path / "copy")
    np.testing.assert_array_equal(LogLinear.load(tmp_path / "copy").index.top_k(thetas, 10).ids, one.top_k(10).ids)
    np.testing.assert_array_equal(LogLinear.load(tmp_path / "model").index.top_k(thetas, 10).ids, one.top_k(10).ids)


def test_all_arrays_of_a_loaded_model_are_mapped(tmp_path: Path) -> None:
    features = Features.of(make_rows(100, 3, seed=9))
    LogLinear(PartitionIndex.build(features, cells=5, rng=0)).save(tmp_path / "partition")
    loaded = LogLinear.load(tmp_path / "partition")
    assert isinstance(loaded.index, PartitionIndex)
    index = loaded.index
    for array in (
        loaded.features.order,
        loaded.features.positions,
        *index.partition,
        *index.coder,
        *index.coding.sketch[:3],
        index.coding.exponents,
        *index.bytes[:2],
    ):
        assert isinstance(array.base, mmap)
    LogLinear(LSHIndex.build(features, tables=4, rng=0)).save(tmp_path / "lsh")
    loaded = LogLinear.load(tmp_path / "lsh")
    assert isinstance(loaded.index, LSHIndex)
    for array in (loaded.index.codes, loaded.index.order, loaded.index.projections):
        assert isinstance(array.base, mmap)


def test_describe_reads_no_array(tmp_path: Path) -> None:
    features = Features.of(make_rows(100, 3, seed=9), names=map(str, range(100)))
    LogLinear(PartitionIndex.build(features, cells=5, coordinates=(4, 4), rng=0)).save(tmp_path / "model")
    sizes = sum(file.stat().st_size for file in tmp_path.glob("model/data-*/*"))
    for file in tmp_path.glob("model/data-*/*"):
        file.unlink()
    facts = describe(tmp_path / "model")
    assert (facts["n"], facts["d"], facts["dtype"], facts["names"]) == (100, 3, "float32", True)
    assert facts["index"] == {"kind": "partition", "cells": 5, "coordinates": [4, 4], "calibration": None}
    assert facts["bytes"] == sizes and facts["path"] == str(tmp_path / "model") and facts["version"] == 8
    LogLinear.build(make_rows(10, 2)).save(tmp_path / "plain")
    assert describe(tmp_path / "plain")["names"] is False
    with pytest.raises(ValueError, match="no such folder"):
        describe(tmp_path / "nowhere")


def test_a_model_of_an_older_format_is_refused_with_the_cure(tmp_path: Path) -> None:
    LogLinear.build(make_rows(10, 2)).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"version": 4}))
    for ask in (LogLinear.load, describe):
        with pytest.raises(
            ValueError, match=r"format version 4, which .* no longer reads; build it anew with LogLinear"
        ):
            ask(tmp_path / "model")
    LogLinear.build(make_rows(10, 2)).save(tmp_path / "model")  # which is how it is done
    assert LogLinear.load(tmp_path / "model").features.n == 10


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    LogLinear.build(make_rows(10, 2)).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    facts = json.loads(config.read_text())
    facts["index"]["kind"] = "quantum"
    config.write_text(json.dumps(facts | {"digest": seal(facts)}))
    with pytest.raises(ValueError, match=r"unknown kind 'quantum'.*upgrade"):
        LogLinear.load(tmp_path / "model")
    facts["index"]["kind"], facts["n"] = "exact", 11
    config.write_text(json.dumps(facts | {"digest": seal(facts)}))
    with pytest.raises(ValueError, match=r"shape \(10, 2\)"):
        LogLinear.load(tmp_path / "model")


def test_the_index_of_a_third_party_serves_but_cannot_be_saved(tmp_path: Path) -> None:
    class Foreign:
        def __init__(self, features: Features) -> None:
            self.features = features

        def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
            return replace(ExactIndex(self.features).top_k(queries, k), exact=False)

    index = Foreign(Features.of(make_rows(100, 3)))
    assert isinstance(index, Index)
    check_index(index)
    model = LogLinear.build(make_rows(100, 3), index=index)
    assert model(np.ones(3)).sample(3, rng=0).label == "heuristic"
    with pytest.raises(ValueError, match="Foreign cannot be saved"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
