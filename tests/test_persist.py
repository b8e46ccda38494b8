"""Model folders: what is written is read, damage is refused, faults lose nothing."""

import json
import os
from collections.abc import Callable
from itertools import count
from mmap import mmap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lazygumbel._support import persist
from lazygumbel._support.persist import Reader, read_config, writing
from persist_helpers import data, entries, is_tidy, save, saved

# Round trip


def test_what_is_written_is_read(tmp_path: Path):
    arrays: dict[str, np.ndarray] = {
        "floats": np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32),
        "turned": np.arange(6).reshape(2, 3).T,
        "strided": np.arange(20, dtype=np.uint8)[::3],
        "flags": np.array([[True], [False]]),
        "one": np.array(3.5),
    }
    path = tmp_path / "deep" / "er" / "model"
    with writing(path) as writer:
        writer.config.update(n=7, d=3, index={"kind": "test", "cells": 12}, note="Grüße")
        for name, array in arrays.items():
            writer.array(name, array)
        writer.file("tree.bin").write_bytes(b"\x00\x01")
        writer.file("empty.txt").touch()
    reader = Reader(path)
    for name, array in arrays.items():
        found = reader.array(name)
        assert isinstance(found.base, mmap) and not found.flags.writeable
        assert found.dtype == array.dtype and reader.has(name)
        np.testing.assert_array_equal(found, array)
    assert reader.file("tree.bin").read_bytes() == b"\x00\x01"
    assert reader.file("empty.txt").read_bytes() == b""
    assert not reader.has("absent") and not reader.has("tree.bin")
    assert reader.config["index"] == {"kind": "test", "cells": 12} and reader.config["note"] == "Grüße"
    assert (reader.config["format"], reader.config["version"]) == ("lazygumbel-model", 8)
    assert is_tidy(path)
    for missing in (lambda: reader.array("absent"), lambda: reader.file("absent.npy")):
        with pytest.raises(ValueError, match=r"the model has no file absent\.npy; its config\.json does not fit"):
            missing()


def test_settings_are_read_without_the_arrays(tmp_path: Path):
    save(tmp_path / "model", 1)
    for file in data(tmp_path / "model").iterdir():
        file.unlink()
    assert read_config(tmp_path / "model")["n"] == 1


def test_a_mapped_model_can_be_saved_over_itself(tmp_path: Path):
    path = tmp_path / "model"
    save(path, 5)
    first = Reader(path).array("first")
    with writing(path) as writer:
        writer.config.update(n=5, d=1, index={})
        writer.array("first", first)
        writer.array("second", first)
    assert saved(path) == 5
    assert (first == 5).all()  # a reader of the old model is not disturbed


# Refusals on reading


def config_with(**changes: Any) -> Callable[[Path], Any]:
    def change(path: Path) -> None:
        config = read_config(path) | changes
        config = {key: value for key, value in config.items() if value is not None}
        (path / "config.json").write_text(json.dumps(config))

    return change


def flipped(name: str, at: int) -> Callable[[Path], Any]:
    def flip(path: Path) -> None:
        file = data(path) / name
        content = bytearray(file.read_bytes())
        content[at] ^= 1
        file.write_bytes(content)

    return flip


def cut(name: str) -> Callable[[Path], Any]:
    return lambda path: os.truncate(data(path) / name, (data(path) / name).stat().st_size - 1)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (lambda path: path.rename(path.parent / "elsewhere"), "there is no such folder"),
    "no config": (lambda path: (path / "config.json").unlink(), r"no model here \(config.json is missing\)"),
    "invalid JSON": (lambda path: os.truncate(path / "config.json", 50), "config.json is not valid JSON"),
    "empty config": (lambda path: os.truncate(path / "config.json", 0), "config.json is not valid JSON"),
    "not text": (lambda path: (path / "config.json").write_bytes(b"\xff\xfe{"), "config.json is not valid JSON"),
    "a list": (lambda path: (path / "config.json").write_text("[1]"), "was not written by lazygumbel"),
    "foreign": (lambda path: (path / "config.json").write_text('{"model_type": "bert"}'), r"lazygumbel \(format"),
    "other format": (config_with(format="faiss"), r"was not written by lazygumbel \(format 'faiss'\)"),
    "newer": (config_with(version=9), r"format version 9, newer than the 8 .*: pip install --upgrade lazygumbel"),
    "older": (config_with(version=6), r"format version 6, which this release no longer reads; build it anew with Log"),
    "much older": (config_with(version=1), r"format version 1, which this release no longer reads; build it anew"),
    "no version": (config_with(version=None), "saved in format version None"),
    "no files": (config_with(files=None, d=None), "config.json lacks files, d; it was cut short or edited"),
    "no data folder": (lambda path: data(path).rename(path / "data-0"), "first.npy is missing; copy the model again"),
    "file missing": (lambda path: (data(path) / "notes.bin").unlink(), "notes.bin is missing; copy the model"),
    "array cut": (cut("second.npy"), r"second.npy has 927 bytes instead of 928: truncated .* copy the model"),
    "notes cut": (cut("notes.bin"), r"notes.bin has 9 bytes instead of 10: truncated"),
    "first byte": (flipped("first.npy", 0), r"first.npy is damaged \(its digest differs\); copy the model"),
    "last byte": (flipped("first.npy", -1), r"first.npy is damaged \(its digest differs\)"),
    "notes byte": (flipped("notes.bin", 4), r"notes.bin is damaged \(its digest differs\)"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_by_name(kind: str, tmp_path: Path):
    path = tmp_path / "model"
    save(path, 1)
    assert saved(path) == 1
    damage, message = DAMAGE[kind]
    damage(path)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}"):
        Reader(path)


def test_large_files_are_checked_by_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(persist, "_SMALL", 100)
    path = tmp_path / "model"
    save(path, 1)
    files = read_config(path)["files"]
    assert {name for name, facts in files.items() if "sha256" in facts} == {"notes.bin"}
    flipped("first.npy", -1)(path)
    Reader(path)
    cut("first.npy")(path)
    with pytest.raises(ValueError, match=r"first\.npy has 927 bytes instead of 928"):
        Reader(path)


# Refusals on writing


@pytest.mark.parametrize("name", ["thesis.tex", "data-raw", "data-20240131", "data-", ".git"])
@pytest.mark.parametrize("over", [False, True])
def test_a_folder_that_holds_something_else_is_left_alone(name: str, over: bool, tmp_path: Path):
    path = tmp_path / "model"
    if over:
        save(path, 1)
    (path / name).mkdir(parents=True)
    before = entries(path)
    with pytest.raises(ValueError, match=f"^path: .* holds '{name}', which is not part of a model; choose an empty"):
        save(path, 2)
    assert entries(path) == before and saved(path) == (1 if over else None)


def test_another_programs_config_and_a_file_are_left_alone(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match=r"holds a config\.json of another program; choose an empty folder"):
        save(tmp_path, 1)
    assert entries(tmp_path) == {"config.json"}
    with pytest.raises(ValueError, match=r"config\.json is a file; a model is saved as a folder"):
        save(tmp_path / "config.json", 1)
    assert (tmp_path / "config.json").read_text() == '{"model_type": "bert"}'


# Interruptions


def failing_save(path: Path, error: BaseException) -> None:
    with writing(path) as writer:
        writer.config.update(n=2, d=1, index={})
        writer.array("first", np.zeros(10))
        raise error


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_a_failing_block_leaves_the_old_model_or_nothing(error: BaseException, tmp_path: Path):
    path = tmp_path / "model"
    with pytest.raises(type(error)):
        failing_save(path, error)
    assert not path.exists()
    path.mkdir()
    with pytest.raises(type(error)):
        failing_save(path, error)
    assert entries(path) == set()
    save(path, 1)
    before = entries(path)
    with pytest.raises(type(error)):
        failing_save(path, error)
    assert entries(path) == before and saved(path) == 1


def test_what_cannot_be_written_leaves_the_old_model(tmp_path: Path):
    path = tmp_path / "model"
    save(path, 1)
    with pytest.raises(ValueError, match="Object arrays"), writing(path) as writer:
        writer.array("first", np.array([None]))
    with pytest.raises(TypeError, match="not JSON serializable"), writing(path) as writer:
        writer.config["n"] = np.int64(3)
    assert saved(path) == 1 and is_tidy(path)


def test_saving_again_replaces_the_model_and_sweeps(tmp_path: Path):
    path = tmp_path / "model"
    save(path, 1)
    old = data(path).name
    leftover = path / "data-0123456789abcdef"
    leftover.mkdir()
    (leftover / "first.npy").write_bytes(b"half")
    assert saved(path) == 1  # leftovers do not disturb a reader
    save(path, 2)
    assert saved(path) == 2 and is_tidy(path)
    assert old not in entries(path)


CALLS = [(os, "replace"), (os, "fsync"), (np.lib.format, "write_array_header_1_0")]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["OSError", "KeyboardInterrupt"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("over", [False, True], ids=["new", "over"])
@pytest.mark.parametrize(("module", "name"), CALLS, ids=[name for _, name in CALLS])
def test_a_fault_at_any_call_leaves_a_whole_model_or_none(
    module: ModuleType, name: str, over: bool, late: bool, error: BaseException, tmp_path: Path
):
    for number in count(1):
        path = tmp_path / str(number)
        if over:
            save(path, 1)
        calls: list[str] = []

        def recorded(name: str, call: Callable[..., Any], number: int, calls: list[str]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                fails = number and calls.count(name) == number - 1
                if fails and not late:
                    calls.append("fault")
                    raise error
                result = call(*args, **kwargs)
                calls.append(name)
                if fails:
                    calls.append("fault")
                    raise error
                return result

            return run

        with pytest.MonkeyPatch.context() as patch:
            for owner, function in CALLS:
                faulty = number if (owner, function) == (module, name) else 0
                patch.setattr(owner, function, recorded(function, getattr(owner, function), faulty, calls))
            try:
                save(path, 2)
            except type(error):
                assert "fault" in calls
        if "fault" not in calls:
            assert saved(path) == 2
            break
        if "replace" in calls:  # the commit point was passed
            assert saved(path) == 2
        elif over:
            assert saved(path) == 1 and is_tidy(path)
        else:
            assert not path.exists()
        save(path, 3)
        assert saved(path) == 3 and is_tidy(path)
    assert number == {"replace": 2, "fsync": 7, "write_array_header_1_0": 3}[name]  # every call was made to fail
