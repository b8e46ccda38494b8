"""Models on disk: a folder of plain data files and one `config.json`, which is the commit point.

    model/
      config.json                format, version, shapes, sizes and digests
      data-1f3a9c0e5b7d2468/     the files that this config.json names

Saving writes a new data folder, flushes it, and only then replaces `config.json`, which the file system does
atomically. A crash at any byte leaves the old model, or none; what it leaves behind is swept by the next save. One
writer at a time.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

__all__ = ["Reader", "Writer", "check_target", "read_config", "replacing", "writing"]

FORMAT = "lazygumbel-model"
VERSION = 7
_CONFIG = "config.json"
_DATA = re.compile(r"data-[0-9a-f]{16}")
"""What may be swept: narrow enough not to take a user's `data-raw` or `data-20240131` for a leftover."""
_SMALL = 16 * 2**20
"""Files up to this size carry a digest, checked on load; of larger ones only the size is checked."""


class Writer:
    """Collects the files and the settings of a model that is being saved."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config: dict[str, Any] = {}

    def array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write one array as `name.npy`. Not by `np.save`, whose `tofile` swallows Ctrl-C."""
        if array.dtype.hasobject:
            raise ValueError(f"{name}: Object arrays cannot be saved")
        held = np.asarray(array, order="C")
        with (self._folder / f"{name}.npy").open("xb") as stream:
            np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(held))
            stream.write(held.reshape(-1).view(np.uint8).data)

    def file(self, name: str) -> Path:
        """The path at which the caller writes a file of its own format."""
        return self._folder / name


class Reader:
    """Opens a saved model: checks what is there, then hands out memory-mapped arrays."""

    def __init__(self, path: Path) -> None:
        self.config = read_config(path)
        self._path = path
        self._folder = path / str(self.config["data"])
        files: dict[str, dict[str, Any]] = self.config["files"]
        for name, facts in files.items():
            self._check(self._folder / name, facts)

    def array(self, name: str) -> npt.NDArray[Any]:
        """The array saved as `name`, memory-mapped and read-only."""
        mapped = np.load(self.file(f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        return np.asarray(mapped)  # still mapped; compiled code is slow to recognise NumPy's class for it

    def has(self, name: str) -> bool:
        """Whether an array of this name was saved."""
        return f"{name}.npy" in self.config["files"]

    def file(self, name: str) -> Path:
        """The path of a saved file."""
        if name not in self.config["files"]:
            raise ValueError(f"{self._path}: the model has no file {name}; its config.json does not fit its index")
        return self._folder / name

    def _check(self, file: Path, facts: dict[str, Any]) -> None:
        if not file.is_file():
            raise ValueError(f"{self._path}: {file.name} is missing; copy the model again or build it anew")
        size = file.stat().st_size
        if size != facts["bytes"]:
            raise ValueError(
                f"{self._path}: {file.name} has {size:,} bytes instead of {facts['bytes']:,}: truncated or "
                "overwritten; copy the model again or build it anew"
            )
        if "sha256" in facts and _digest(file) != facts["sha256"]:
            raise ValueError(
                f"{self._path}: {file.name} is damaged (its digest differs); copy the model again or build it anew"
            )


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a saved model, without touching its arrays."""
    file = path / _CONFIG
    if not path.exists():
        raise ValueError(f"{path}: there is no such folder")
    if not file.is_file():
        raise ValueError(
            f"{path}: no model here ({_CONFIG} is missing); was a save interrupted, or is this another folder?"
        )
    try:
        loaded: object = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {_CONFIG} is not valid JSON ({error}); truncated or overwritten") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: {_CONFIG} was not written by lazygumbel")
    config = cast("dict[str, Any]", loaded)
    if config.get("format") != FORMAT:
        raise ValueError(f"{path}: {_CONFIG} was not written by lazygumbel (format {config.get('format')!r})")
    if not isinstance(config.get("version"), int) or config["version"] > VERSION:
        raise ValueError(
            f"{path}: saved in format version {config.get('version')}, newer than the {VERSION} this release reads; "
            "upgrade with: pip install --upgrade lazygumbel"
        )
    if config["version"] < VERSION:
        raise ValueError(
            f"{path}: saved in format version {config['version']}, which this release no longer reads; build "
            "it anew with LogLinear.build (or lazygumbel build)"
        )
    missing = [key for key in ("data", "files", "n", "d", "index") if key not in config]
    if missing:
        raise ValueError(f"{path}: {_CONFIG} lacks {', '.join(missing)}; it was cut short or edited")
    return config


@contextmanager
def writing(path: Path) -> Generator[Writer]:
    """Write a model: nothing is visible at `path` until the block ends, and nothing at all if it fails."""
    check_target(path)
    created = not path.exists()
    folder = path / f"data-{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True)
        writer = Writer(folder)
        yield writer
        files = sorted(folder.iterdir())
        for file in files:
            _flush(file)
        _flush(folder)
        config = {
            "format": FORMAT,
            "version": VERSION,
            **writer.config,
            "data": folder.name,
            "files": {file.name: _facts(file) for file in files},
        }
        draft = folder / _CONFIG
        draft.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        _flush(draft)
        os.replace(draft, path / _CONFIG)
        _flush(path)
        _sweep(path, keep=folder.name)
    except BaseException:
        # Ctrl-C may arrive at any line, also just after the commit: what is left then is the model, and nothing else.
        if _committed(path, folder.name):
            _sweep(path, keep=folder.name)
        else:
            shutil.rmtree(path if created else folder, ignore_errors=True)
        raise


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A stream to a new file that takes the place of `path` when the block ends, and leaves no trace if it fails."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def check_target(path: Path) -> None:
    """Refuse to write into a folder that holds something else."""
    if not path.exists():
        return
    if not path.is_dir():
        raise ValueError(f"path: {path} is a file; a model is saved as a folder")
    foreign = [p.name for p in path.iterdir() if p.name != _CONFIG and not _DATA.fullmatch(p.name)]
    if foreign:
        raise ValueError(f"path: {path} holds {foreign[0]!r}, which is not part of a model; choose an empty folder")
    if (path / _CONFIG).exists() and '"lazygumbel-model"' not in (path / _CONFIG).read_text(errors="replace"):
        raise ValueError(f"path: {path} holds a {_CONFIG} of another program; choose an empty folder")


def _committed(path: Path, folder: str) -> bool:
    config = path / _CONFIG
    return config.exists() and f'"data": "{folder}"' in config.read_text(encoding="utf-8", errors="replace")


def _facts(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    return {"bytes": size, "sha256": _digest(file)} if size <= _SMALL else {"bytes": size}


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(path: Path, keep: str) -> None:
    leftovers: Iterable[Path] = [p for p in path.iterdir() if _DATA.fullmatch(p.name) and p.name != keep]
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
