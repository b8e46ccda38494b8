"""Model folders under several processes, some of them killed at any moment."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lazygumbel._support import persist
from lazygumbel._support.locking import LOCK
from lazygumbel._support.persist import Reader, writing
from lazygumbel.live.saved import read_whole
from persist_helpers import data, entries, is_tidy, save, saved

# Killed at any moment

SIZE = 2**18  # two arrays of 2 MB

PREPARE = """
import json, sys
from pathlib import Path
from types import ModuleType
import numpy as np

package = sys.modules["lazygumbel"] = ModuleType("lazygumbel")  # an empty one: it starts quicker
package.__path__ = [str(Path(sys.argv[1]).parents[1])]
from lazygumbel._support import persist

path, value, size = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def arrays(value):
    return {"first": np.full(size, float(value)), "second": np.full(size, value)}
"""

CAREFUL = """
def save(value):
    with persist.writing(path) as writer:
        writer.config.update(n=value, d=1, index={})
        for name, array in arrays(value).items():
            writer.array(name, array)
"""

CARELESS = """
def save(value):
    folder = path / "data-0123456789abcdef"
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays(value).items():
        np.save(folder / name, array)
    config = {"format": persist.FORMAT, "version": persist.VERSION, "n": value, "d": 1, "index": {}}
    config["data"] = folder.name
    config["files"] = {file.name: persist._facts(file) for file in folder.iterdir()}
    (path / "config.json").write_text(json.dumps(config | {"digest": persist.seal(config)}))
"""

FOREVER = """
print("ready", flush=True)
sys.stdin.readline()
while True:
    save(value)
    value = 3 - value
"""


# Several processes at once


def test_a_second_writer_is_refused_and_told_who_is_the_first(tmp_path: Path):
    path = tmp_path / "model"
    who = (
        rf"being written by process {os.getpid()} on \S+ since 2\d\d\d-[-0-9: ]+; wait for it or choose another folder"
    )
    for old in (None, 1):
        with writing(path) as writer:
            with pytest.raises(ValueError, match=who):
                save(path, 2)
            assert saved(path) == old
            writer.config.update(n=1, d=1, index={"kind": "exact"})
            for name in ("first", "second"):
                writer.array(name, np.ones(10))
        assert saved(path) == 1 and is_tidy(path)


def test_writers_in_turn_leave_a_whole_model_and_readers_always_find_one(tmp_path: Path):
    """Two processes save over each other without end; what is refused is tried again."""
    path = tmp_path / "model"
    save(path, 1, SIZE)
    patient = CAREFUL.replace("def save", "def save_once") + PATIENT
    read: list[int] = []
    with saver(patient, path, 1) as one, saver(patient, path, 2) as other:
        for process in (one, other):
            assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
        start, turns = time.perf_counter(), 0
        while (spent := time.perf_counter() - start) < 3 or (turns <= 5 and spent < 60):
            read.append(read_whole(path, whole).base)
            turns = sum(a != b for a, b in pairwise(read))
        assert one.poll() is None and other.poll() is None
    assert set(read) == {1, 2} and turns > 5, read
    save(path, 7)
    assert saved(path) == 7 and is_tidy(path)


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path):
    path = tmp_path / "model"
    save(path, 1)
    (path / LOCK).write_text("process 1 on elsewhere since yesterday")
    assert saved(path) == 1
    save(path, 2)
    assert saved(path) == 2 and is_tidy(path)


def whole(reader: Reader) -> int:
    """As `saved`, of arrays that are looked at some time after they were opened."""
    value = reader.config["n"]
    time.sleep(0.01)
    for name in ("first", "second"):
        assert (reader.array(name) == value).all(), f"{name} does not belong to model {value}"
    return value


PATIENT = """
def save(value):
    while True:
        try:
            return save_once(value)
        except ValueError as refusal:
            assert "is being written by" in str(refusal), refusal
"""


@contextmanager
def saver(how: str, path: Path, first: int) -> Iterator[subprocess.Popen[str]]:
    """A process that, once told to go, saves the models 1 and 2 in turn until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE + how + FOREVER, persist.__file__, str(path), str(first), str(SIZE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def kill_after(delay: float, how: str, path: Path, first: int) -> None:
    with saver(how, path, first) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(delay)
        assert process.poll() is None, "the saver ended by itself"


def delays(kills: int, folder: Path) -> list[float]:
    """Moments spread over the first three saves, in random order."""
    started = time.perf_counter()
    for value in (1, 2, 1, 2):
        save(folder, value, SIZE)
    duration = (time.perf_counter() - started) / 4
    rng = np.random.default_rng(3)
    return [3 * duration * x for x in rng.permutation((np.arange(kills) + rng.uniform(size=kills)) / kills)]


def test_killed_over_an_old_model_it_leaves_one_whole_model(tmp_path: Path):
    path = tmp_path / "model"
    save(path, 1, SIZE)
    survivors: set[int | None] = set()
    torn = 0
    for i, delay in enumerate(delays(55, tmp_path / "timing")):
        before = entries(path)
        kill_after(delay, CAREFUL, path, first=1 + i % 2)
        survivors.add(saved(path))
        torn += bool(entries(path) - before - {"config.json", data(path).name})
    assert survivors == {1, 2}
    assert torn >= 10, f"only {torn} kills fell into the writing"
    save(path, 7)
    assert saved(path) == 7 and is_tidy(path)


def test_killed_at_a_new_path_it_leaves_one_whole_model_or_none(tmp_path: Path):
    survivors: set[int | None] = set()
    for i, delay in enumerate(delays(15, tmp_path / "timing")):
        path = tmp_path / str(i)
        kill_after(delay, CAREFUL, path, first=1)
        survivors.add(saved(path))
        save(path, 7)
        assert saved(path) == 7 and is_tidy(path)
    assert {None} < survivors <= {None, 1, 2}


def test_a_careless_writer_is_caught(tmp_path: Path):
    """The control: files written in place are found torn."""
    path = tmp_path / "model"
    save(path, 1, SIZE)
    for i, delay in enumerate(delays(12, tmp_path / "timing")):
        kill_after(delay, CARELESS, path, first=1 + i % 2)
        try:
            saved(path)
        except (ValueError, AssertionError):
            return
    pytest.fail("no kill left a torn model, so the tests above prove nothing")
