"""HDF5, safetensors and Parquet: written by their own tools, read back, and compared value by value."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from dataset_helpers import ROWS, WORDS, Recorder, all_rows, save
from lazygumbel import datasets

h5py = pytest.importorskip("h5py")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
safetensors_numpy = pytest.importorskip("safetensors.numpy")


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
