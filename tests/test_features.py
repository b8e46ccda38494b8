"""`Features` and `Names`: conversion, memory maps, order of storage, and what is refused at the door."""

import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lazygumbel import ExactIndex, FaissIndex, LogLinear, LSHIndex, PartitionIndex
from lazygumbel.rows import features as features_module
from lazygumbel.rows.features import Features
from lazygumbel.rows.names import Names

fixed = settings(derandomize=True, deadline=None, max_examples=80)

EXACT = ("bool", "int8", "uint8", "int16", "uint16", "float16")
ALLOWED = (*EXACT, "float32", "float64")


def every_value(dtype: str) -> np.ndarray:
    """All finite values of an exactly convertible dtype, as a matrix of two columns."""
    if dtype == "bool":
        values = np.array([False, True])
    else:
        size = np.dtype(dtype).itemsize
        values = np.arange(256**size, dtype=f"u{size}").view(dtype)
    values = values[np.isfinite(values)]
    return values.reshape(-1, 2)


def sample(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def on_disk(folder: Path, array: np.ndarray, name: str = "rows") -> Path:
    path = folder / f"{name}.npy"
    np.save(path, array)
    return path


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype == np.float32 and np.array_equal(a.view(np.uint32), b.view(np.uint32))


# Conversion


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("dtype", EXACT)
def test_narrow_types_convert_exactly(dtype: str, mapped: bool, tmp_path: Path):
    given_rows = every_value(dtype)
    features = Features.of(on_disk(tmp_path, given_rows) if mapped else given_rows)
    expected = given_rows.astype(np.float64)
    assert (features.n, features.d) == given_rows.shape
    rows = np.concatenate([block.rows for block in features.blocks(1000)])
    for found in (rows, features.gather(np.arange(features.n))):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.astype(np.float64), expected)
    first = features.score(np.arange(features.n), np.array([1, 0], dtype=np.float32))
    np.testing.assert_array_equal(first.astype(np.float64), expected[:, 0])


@fixed
@given(st.lists(st.floats(-3.4e38, 3.4e38), min_size=1, max_size=8))
def test_float64_rounds_to_the_nearest_float32(values: list[float]):
    for value, found in zip(values, Features.of([values]).stored[0], strict=True):
        error = abs(Fraction(float(found)) - Fraction(value))
        for neighbour in np.nextafter(found, np.array([-np.inf, np.inf], dtype=np.float32)):
            assert not np.isfinite(neighbour) or error <= abs(Fraction(float(neighbour)) - Fraction(value))


def test_a_float32_array_is_shared_and_not_made_read_only():
    rows = sample(5, 3)
    features = Features.of(rows)
    assert np.shares_memory(features.stored, rows)
    assert rows.flags.writeable and not features.stored.flags.writeable
    assert repr(features) == "Features(n=5, d=3, float32)"


def test_strided_arrays_and_lists_of_floats_are_taken():
    rows = sample(6, 8)
    for source in (rows[::2, ::2], np.asfortranarray(rows[::2, ::2]), rows[::2, ::2].tolist()):
        features = Features.of(source)
        assert features.stored.flags.c_contiguous
        np.testing.assert_array_equal(features.stored, rows[::2, ::2])


def test_features_pass_through():
    features = Features.of(sample(3, 2))
    assert Features.of(features) is features
    named = Features.of(features, names=["a", "b", "c"])
    assert named.stored is features.stored and list(named.names or ()) == ["a", "b", "c"]
    assert features.names is None


# Memory-mapped files


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_path_is_mapped_in_its_own_dtype(dtype: str, as_text: bool, tmp_path: Path):
    rows = sample(20, 4) > 0 if dtype == "bool" else np.abs(sample(20, 4) * 40).astype(dtype)
    path = on_disk(tmp_path, rows)
    features = Features.of(str(path) if as_text else path)
    assert isinstance(features.stored, np.memmap)
    assert features.stored.dtype == dtype
    assert not features.stored.flags.writeable
    ids = np.array([[3, 3], [19, 0]])
    np.testing.assert_array_equal(features.gather(ids), rows[ids].astype(np.float32))
    assert features.gather(ids).dtype == np.float32 and type(features.gather(ids)) is np.ndarray
    for block in features.blocks(7):
        assert block.rows.dtype == np.float32
        np.testing.assert_array_equal(block.rows, rows[block.ids].astype(np.float32))


def test_mapping_loads_nothing(tmp_path: Path):
    path = on_disk(tmp_path, np.zeros((2**18, 16), dtype=np.uint8))
    tracemalloc.start()
    try:
        features = Features.of(path)
        mapping = tracemalloc.get_traced_memory()[1]
        for _ in features.blocks(1000):
            pass
        reading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert mapping < 2**18
    assert reading < 2**20


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("row", [0, 11, 29])
def test_a_mapped_file_is_refused_when_it_is_checked(
    value: float, row: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(features_module, "_BLOCK_BYTES", 4 * 3 * 8)  # eight rows a block
    rows = sample(30, 3).astype(np.float64)
    rows[row:, 1] = value
    rows[row, 2] = -value
    features = Features.of(on_disk(tmp_path, rows))
    with pytest.raises(ValueError, match=rf"features holds NaN.* in row {row}; all entries must be finite"):
        features.check_finite()
    moved = features.reordered(np.roll(np.arange(30), 13))
    with pytest.raises(ValueError, match=r"features holds NaN.* in row (\d+)") as caught:
        moved.check_finite()
    assert int(str(caught.value).split(" in row ")[1].split(";")[0]) >= row


def test_large_but_finite_rows_pass(tmp_path: Path):
    rows = np.full((4, 20), 3e38, dtype=np.float32)
    rows[1, ::2] *= -1
    Features.of(rows).check_finite()
    Features.of(on_disk(tmp_path, rows)).check_finite()


# Refusals


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[0.0, 1.0], [np.nan, 1.0]], "NaN.* in row 1; all entries must be finite"),
        ([[0.0, np.inf]], "infinity.* in row 0; all entries must be finite"),
        ([[np.inf, -np.inf]], "infinity.* in row 0; all entries must be finite"),
        ([[0.0], [0.0], [1e39]], "a value beyond float32 in row 2; all entries must be finite"),
        ([1.0, 2.0], r"must be a matrix of shape \(n, d\), not of shape \(2,\)"),
        (np.zeros((2, 2, 2)), r"must be a matrix of shape \(n, d\), not of shape \(2, 2, 2\)"),
        (1.0, r"must be a matrix of shape \(n, d\), not of shape \(\)"),
        (np.zeros((0, 3)), r"no rows or no columns: shape \(0, 3\)"),
        (np.zeros((3, 0)), r"no rows or no columns: shape \(3, 0\)"),
        ([[1, 2]], r"dtype int64; it may be .* \(convert wider integers with \.astype\(np\.float32\)\)"),
        (np.ones((2, 2), np.uint32), r"dtype uint32; it may be .*\.astype\(np\.float32\)"),
        (np.ones((2, 2), np.complex64), "dtype complex64; it may be float16, float32, float64, bool"),
        (np.array([[1.0, None]], dtype=object), "must be an .n, d. array of numbers, the path of a file, or Features"),
        ([["a", "b"]], "dtype <U1; it may be float16, float32, float64, bool"),
        (None, "must be an .n, d. array of numbers, the path of a file, or Features"),
    ],
)
def test_bad_arrays_are_refused(source: object, message: str):
    with pytest.raises(ValueError, match=f"^features .*{message}"):
        Features.of(source)


def test_masks_are_not_lost_silently():
    masked = np.ma.masked_array(np.ones((4, 2)), mask=[[True, False]] * 4)
    with pytest.raises(ValueError, match=r"features is a masked array; .*features\.filled"):
        Features.of(masked)
    model = LogLinear.build(np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"theta is a masked array; .*theta\.filled"):
        model(masked[0])
    with pytest.raises(ValueError, match=r"ids is a masked array"):
        model(np.ones(2)).log_prob(np.ma.masked_array([0, 1], mask=[True, False]))


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">f2", ">i2"])
def test_the_order_of_bytes_does_not_matter(dtype: str, tmp_path: Path):
    rows = np.arange(12).reshape(4, 3)
    np.save(tmp_path / "rows.npy", rows.astype(dtype))
    for source in (rows.astype(dtype), tmp_path / "rows.npy"):
        model = LogLinear.build(source)
        np.testing.assert_array_equal(model.features.gather([3, 1]), rows[[3, 1]])
        model.save(tmp_path / "model")
        found = LogLinear.load(tmp_path / "model")(np.array([1, 0, 0], dtype=">f4")).top_k(2)
        assert found.ids.tolist() == [3, 2] and found.scores.tolist() == [9, 6]


@pytest.mark.parametrize("build", [ExactIndex, ExactIndex.build, PartitionIndex.build, LSHIndex.build, LogLinear.build])
def test_arrays_paths_and_features_are_taken_alike(build, tmp_path: Path):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "rows.vec").write_text("".join(f"w {' '.join(map(str, row))}\n" for row in rows.tolist()))
    for source in (rows, rows.tolist(), tmp_path / "rows.npy", str(tmp_path / "rows.vec"), Features.of(rows)):
        np.testing.assert_array_equal(build(source).features.gather([5, 7]), rows[[5, 7]])
    for wrong in (None, LogLinear.build(rows), object()):
        with pytest.raises(
            ValueError, match=r"features must be an \(n, d\) array of numbers, the path of a file, or F"
        ):
            build(wrong)


def test_faiss_takes_them_alike():
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    built = FaissIndex.build(rows, "HNSW8")
    adopted = FaissIndex.adopt(rows, built.index)
    assert (built.top_k(rows[5], 1).ids == adopted.top_k(rows[5], 1).ids).all()


@pytest.mark.parametrize("wrong", [np.ones((4, 2)), "model", Features.of(np.ones((4, 2))), None])
def test_a_model_over_something_that_is_no_index_is_refused(wrong: object):
    cure = r"index must be an index, not .*LogLinear\.load opens .*LogLinear\.build takes"
    with pytest.raises(ValueError, match=cure):
        LogLinear(wrong)
    if wrong is not None:  # the default
        with pytest.raises(ValueError, match=cure):
            LogLinear.build(sample(50, 4), index=wrong)


def test_bad_files_are_refused(tmp_path: Path):
    whole = on_disk(tmp_path, sample(50, 4)).read_bytes()
    broken = tmp_path / "broken.npy"
    contents = [b"", b"PK\x03\x04 not a zip", b"hello", whole[:5], whole[:60], whole[:200], whole[:-1]]
    contents.append(whole.replace(b"{", b"[", 1))
    contents.append(whole.replace(b"}", b"(", 1))
    contents.append(whole.replace(b"<f4", b"<q9", 1))
    for content in contents:
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=r"^features: .*broken\.npy is not a readable \.npy file"):
            Features.of(broken)
    np.savez(tmp_path / "packed.npz", rows=sample(2, 2))
    (tmp_path / "packed.npz").rename(broken)
    with pytest.raises(ValueError, match=r"broken\.npy is not a readable \.npy file"):
        Features.of(broken)
    with pytest.raises(ValueError, match=r"^features: there is no file .*absent\.npy"):
        Features.of(tmp_path / "absent.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValueError, match=r"^features: there is no file .*folder\.npy"):
        Features.of(tmp_path / "folder.npy")
    (tmp_path / "rows.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"rows\.csv is not a \.npy file; read other formats with lazygumbel\.data"):
        Features.of(str(tmp_path / "rows.csv"))
    for rows in (np.zeros(3, np.float32), np.zeros((0, 3), np.float32), np.zeros((2, 2), np.int64)):
        with pytest.raises(ValueError, match=r"^features .*(matrix|no rows|dtype int64)"):
            Features.of(on_disk(tmp_path, rows))


def test_bad_names_are_refused():
    rows = sample(3, 2)
    for wrong in (["a", "b"], ["a", "b", "c", "d"], []):
        with pytest.raises(ValueError, match=f"^names has {len(wrong)} entries, but features has 3 rows"):
            Features.of(rows, names=wrong)
    with pytest.raises(ValueError, match=r"^names must be strings, but names\[1\] is 7"):
        Features.of(rows, names=["a", 7, "c"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"^names must be strings, but names\[0\] is b'a'"):
        Features.of(rows, names=[b"a", "b", "c"])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("ids", [[-1], [3], [[0, 1], [5, 0]], [0.5], ["a"]])
def test_gather_refuses_what_is_not_an_id(ids: list[object]):
    with pytest.raises(ValueError, match=r"^ids (holds|must hold)"):
        Features.of(sample(3, 2)).gather(ids)


# Order of storage


@st.composite
def permuted(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n, d = draw(st.integers(1, 25)), draw(st.integers(1, 40))
    return sample(n, d, draw(st.integers(0, 99))), np.array(draw(st.permutations(range(n))))


@fixed
@given(permuted(), st.lists(st.integers(0, 10**6), max_size=12), st.integers(1, 40))
def test_reordering_changes_no_answer(case: tuple[np.ndarray, np.ndarray], picks: list[int], step: int):
    rows, order = case
    features = Features.of(rows, names=[f"row {i}" for i in range(len(rows))])
    moved = features.reordered(order)
    np.testing.assert_array_equal(moved.stored, rows[order])
    assert not moved.stored.flags.writeable
    ids = np.array(picks, dtype=np.int64) % len(rows)
    again = moved.reordered(order[::-1])
    for other in (moved, again):
        np.testing.assert_array_equal(other.stored[other.locate(ids)], rows[ids])
        np.testing.assert_array_equal(other.gather(ids), rows[ids])
        np.testing.assert_array_equal(other.gather(ids[:, None]), rows[ids][:, None])
        assert same_bits(other.score(ids, rows[0]), features.score(ids, rows[0]))
        assert other.names is features.names
        for block in other.blocks(step):
            np.testing.assert_array_equal(block.rows, rows[block.ids])


@fixed
@given(permuted(), st.integers(1, 30))
def test_blocks_cover_every_row_once(case: tuple[np.ndarray, np.ndarray], step: int):
    rows, order = case
    features = Features.of(rows)
    for store, expected in ((features, np.arange(len(rows))), (features.reordered(order), order)):
        blocks = list(store.blocks(step))
        assert [len(b.ids) for b in blocks[:-1]] == [step] * (len(blocks) - 1)
        assert 1 <= len(blocks[-1].ids) <= step
        np.testing.assert_array_equal(np.concatenate([b.ids for b in blocks]), expected)
        np.testing.assert_array_equal(np.concatenate([b.rows for b in blocks]), rows[expected])
        assert all(b.rows.dtype == np.float32 and b.ids.dtype == np.int64 for b in blocks)


def test_blocks_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    features = Features.of(sample(10, 6))
    assert len(list(features.blocks())) == 1
    monkeypatch.setattr(features_module, "_BLOCK_BYTES", 4 * 6 * 3 + 5)
    assert [len(b.ids) for b in features.blocks()] == [3, 3, 3, 1]
    monkeypatch.setattr(features_module, "_BLOCK_BYTES", 1)
    assert [len(b.ids) for b in features.blocks()] == [1] * 10


@pytest.mark.parametrize("ids", [2, [1, 1], [], [[0], [4]]])
def test_gather_is_a_copy_of_the_shape_of_its_ids(ids: object):
    features = Features.of(sample(5, 3))
    for other in (features, features.reordered(np.array([4, 2, 0, 1, 3]))):
        found = other.gather(ids)
        assert found.shape == (*np.shape(ids), 3)
        assert not np.shares_memory(found, other.stored)
        found[...] = 0
        np.testing.assert_array_equal(other.gather(ids), features.stored[np.array(ids, dtype=np.int64)])


# Unit norm


def test_unit_norm_keeps_directions_ids_and_names():
    rows = sample(9, 4)
    rows[2], rows[3] = 1e30, [1e-45, 0, 0, 0]
    rows[4] *= 1e-30
    order = np.array([8, 1, 3, 2, 0, 7, 5, 6, 4])
    features = Features.of(rows, names=list("abcdefghi"))
    expected = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    for unit in (features.unit_norm(), features.reordered(order).unit_norm()):
        np.testing.assert_allclose(unit.gather(np.arange(9)), expected, rtol=1e-6)
        assert unit.names is features.names and not unit.stored.flags.writeable
    np.testing.assert_array_equal(features.stored, rows)


def test_unit_norm_over_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(features_module, "_BLOCK_BYTES", 4 * 4 * 3)
    rows = np.arange(1, 41, dtype=np.uint8).reshape(10, 4)
    unit = Features.of(on_disk(tmp_path, rows)).unit_norm()
    np.testing.assert_allclose(unit.stored, rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-6)


def test_unit_norm_refuses_a_row_of_zeros_by_its_id():
    rows = sample(6, 3)
    rows[4] = 0
    features = Features.of(rows)
    for other in (features, features.reordered(np.arange(6)[::-1])):
        with pytest.raises(ValueError, match="features cannot be scaled to unit norm: row 4 is all zeros"):
            other.unit_norm()


# Scores


@pytest.mark.parametrize("d", [1, 2, 7, 8, 16, 31, 50, 128, 300])
def test_a_score_has_the_same_bits_wherever_the_row_is_stored(d: int, tmp_path: Path):
    rng = np.random.default_rng(d)
    rows = sample(64, d, seed=d).astype(np.float16).astype(np.float32)  # representable in every float dtype
    queries = sample(5, 2 * d, seed=d + 1)[:, ::2]
    plain = np.ascontiguousarray(queries)
    ids, owner = rng.integers(0, 64, 200), rng.integers(0, 5, 200)
    features = Features.of(rows)
    expected = features.score(ids, plain, owner)
    sources = {
        "float16": on_disk(tmp_path, rows.astype(np.float16), "half"),
        "float32": on_disk(tmp_path, rows, "single"),
        "float64": on_disk(tmp_path, rows.astype(np.float64), "double"),
        "columns first": on_disk(tmp_path, np.asfortranarray(rows), "fortran"),
    }
    stores = {name: Features.of(path) for name, path in sources.items()}
    stores["reordered"] = features.reordered(rng.permutation(64))
    for name, store in stores.items():
        assert same_bits(store.score(ids, plain, owner), expected), name
        assert same_bits(store.score(ids, np.asfortranarray(queries), owner), expected), name
    assert same_bits(features.score(ids, queries, owner), expected)
    alone = [features.score(ids[j : j + 1], queries[owner[j]]) for j in range(200)]
    assert same_bits(np.concatenate(alone), expected)


@pytest.mark.parametrize("d", [1, 3, 64, 257])
def test_a_score_is_the_inner_product_within_rounding(d: int):
    rows, queries = sample(100, d, seed=d), sample(3, d, seed=d + 1)
    ids, owner = np.random.default_rng(d).integers(0, [[100], [3]], (2, 500))
    found = Features.of(rows).score(ids, queries, owner)
    terms = rows[ids].astype(np.float64) * queries[owner].astype(np.float64)
    bound = d * np.finfo(np.float32).eps * np.abs(terms).sum(axis=1)
    assert found.shape == (500,) and found.dtype == np.float32
    assert (np.abs(found - terms.sum(axis=1)) <= bound).all()
    assert Features.of(rows).score(ids[:0], queries[0]).shape == (0,)


# Names


@fixed
@example(["\ud800", "\udfff\ud800", "\U00010000", "\ud800\udc00", "\0", "", "\ufeff"])  # surrogates are text too
@given(st.lists(st.text(max_size=6), max_size=20))
def test_names_round_trip(names: list[str]):
    packed = Names.of(iter(names))
    copy = Names(packed.text.copy(), packed.offsets.copy())  # what persistence writes and maps again
    for found in (packed, copy):
        assert len(found) == len(names)
        assert list(found) == names
        assert [found[i] for i in range(len(names))] == names
        assert [found.find(name) for name in names] == [names.index(name) for name in names]


def test_find_gives_the_first_of_equal_names_and_names_what_is_missing():
    names = Names.of(["b", "a", "", "a", "b"])
    assert [names.find(name) for name in ("a", "b", "")] == [1, 0, 2]
    with pytest.raises(ValueError, match="no row is named 'c'"):
        names.find("c")
    for i in (-1, 5):
        with pytest.raises(IndexError, match=f"row {i} of 5"):
            names[i]
