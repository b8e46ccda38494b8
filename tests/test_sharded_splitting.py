"""Rows are shared out over folders: from files, a shard at a time in memory, and on after an interruption."""

import json
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel import Features, LogLinear
from lazygumbel.sharded import ShardedModel
from statistics_helpers import make_rows

N, D = 2_000, 8
ROWS = 3 * make_rows(N, D, varied=True, seed=2)
NAMES, THETAS = [f"row {i}" for i in range(N)], make_rows(5, D, seed=9)


@pytest.fixture(scope="module")
def whole() -> LogLinear:
    return LogLinear.build(Features.of(ROWS, names=NAMES))


def test_many_files_and_memory_maps_make_the_same_shards(tmp_path: Path) -> None:
    paths: list[str] = []
    for i, part in enumerate(np.split(ROWS, [300, 301, 1_500])):
        paths.append(str(tmp_path / f"part-{i}.npy"))
        np.save(paths[-1], part)
    np.save(tmp_path / "all.npy", ROWS)
    sources = [paths, tmp_path / "all.npy", np.load(tmp_path / "all.npy", mmap_mode="r"), ROWS]
    found: list[np.ndarray] = []
    for i, source in enumerate(sources):
        ShardedModel.build(source, tmp_path / f"out-{i}", shards=3, rng=0)
        with ShardedModel.connect(tmp_path / f"out-{i}", engine="threads") as model:
            np.testing.assert_array_equal(model.features.gather(np.arange(N)), ROWS)
            found.append(model(THETAS).sample(20, rng=1).ids)
    assert all((other == found[0]).all() for other in found)


def test_a_split_holds_one_shard_at_a_time_in_memory(tmp_path: Path) -> None:
    """tracemalloc sees what NumPy allocates; a shard is an eighth of the rows."""
    np.save(tmp_path / "rows.npy", np.zeros((200_000, 64), dtype=np.float32))
    LogLinear(lg.ExactIndex.build(tmp_path / "rows.npy")).save(tmp_path / "model")
    for source in (tmp_path / "rows.npy", tmp_path / "model", [tmp_path / "rows.npy"] * 2):
        tracemalloc.start()
        try:
            out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
            ShardedModel.build(source, out, shards=8, index=lg.ExactIndex.build, rng=0)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        megabytes = 51.2 * (len(source) if isinstance(source, list) else 1)
        assert peak / 1e6 < 0.4 * megabytes, source


def test_an_interrupted_split_goes_on_where_it_was(
    whole: LogLinear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.save(tmp_path / "model")
    out, saves = tmp_path / "out", []

    def save(self: LogLinear, path: Path) -> None:
        if len(saves) == 2:
            saves.append("cut")
            raise KeyboardInterrupt
        saves.append(path.name)
        original(self, path)

    original = LogLinear.save
    monkeypatch.setattr(LogLinear, "save", save)
    with pytest.raises(KeyboardInterrupt):
        ShardedModel.split(tmp_path / "model", out, shards=4, rng=0)
    with pytest.raises(ValueError, match="to finish it"):
        ShardedModel.connect(out, engine="threads")
    with pytest.raises(ValueError, match="other rows or sizes"):
        ShardedModel.split(tmp_path / "model", out, shards=5, rng=0)
    ShardedModel.split(tmp_path / "model", out, shards=4, rng=0)
    assert saves == ["shard-000", "shard-001", "cut", "shard-002", "shard-003"]
    assert not (out / "plan.json").exists()
    facts = json.loads((out / "manifest.json").read_text())
    assert [(s["start"], s["stop"]) for s in facts["shards"]] == [(0, 500), (500, 1000), (1000, 1500), (1500, 2000)]
    LogLinear.load(out / "shard-001")  # an ordinary model
    with pytest.raises(ValueError, match="holds a sharded model already"):
        ShardedModel.split(tmp_path / "model", out, shards=4, rng=0)


KILLED = """
import os, signal
from lazygumbel import model
from lazygumbel.sharded import ShardedModel
original, written = model.write_model, []
def write(*given):
    original(*given)
    written.append(1)
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
model.write_model = write
ShardedModel.split({source!r}, {out!r}, shards=4, rng=0)
"""


def test_a_split_that_was_killed_while_it_wrote_a_shard_goes_on_with_that_one(whole: LogLinear, tmp_path: Path) -> None:
    whole.save(tmp_path / "model")
    code = KILLED.format(source=str(tmp_path / "model"), out=str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    finished = [tmp_path / "out" / f"shard-00{s}" / "config.json" for s in (0, 1)]
    before = [file.stat().st_mtime_ns for file in finished]
    assert not (tmp_path / "out" / "shard-002" / "config.json").exists()
    for out in ("out", "anew"):
        ShardedModel.split(tmp_path / "model", tmp_path / out, shards=4, rng=0)
    assert [file.stat().st_mtime_ns for file in finished] == before
    models = [ShardedModel.connect(tmp_path / out, engine="threads") for out in ("out", "anew")]
    resumed, anew = (model(THETAS).sample(50, rng=1).ids for model in models)
    np.testing.assert_array_equal(resumed, anew)
    np.testing.assert_array_equal(models[0].features.gather(np.arange(N)), ROWS)
