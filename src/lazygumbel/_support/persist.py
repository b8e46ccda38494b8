"""Models on disk: a folder of plain data files and one `config.json`, which is the commit point.

    model/
      config.json                format, version, shapes, sizes and digests
      data-1f3a9c0e5b7d2468/     the files that this config.json names
      changes-1f3a9c0e5b7d2468.log   what has happened to these rows since: see `live.journal`

Saving writes a new data folder, flushes it, and only then replaces `config.json`, which the file system does
atomically. A crash at any byte leaves the old model, or none; what it leaves behind is swept by the next save. One
writer at a time: a second one is refused.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.locking import LOCK, only_writer
from lazygumbel._support.manifest import CHANGES, CONFIG, DATA, FORMAT, VERSION, is_saved, read_config, seal

__all__ = [
    "Reader",
    "Writer",
    "changes_file",
    "check_target",
    "is_saved",
    "read_config",
    "replacing",
    "writing",
]

_SMALL = 16 * 2**20
"""Files up to this size carry a digest, checked on load; of larger ones only the size is checked."""
_HEADER = 2**16 + 10
"""Bytes that the header of a `.npy` file may take."""
_ANEW = "copy the model again or build it anew"


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
    """Opens a saved model: checks what is there, then hands out memory-mapped arrays.

    All files are mapped at once, so that what another process saves here meanwhile disturbs nothing. Nothing that a
    file says is trusted: whoever takes an array says what it must be.
    """

    def __init__(self, path: Path) -> None:
        self.config = read_config(path)
        self._path = path
        self._folder = path / str(self.config["data"])
        files: dict[str, dict[str, Any]] = self.config["files"]
        self._mapped = {name: self._map(name, facts["bytes"]) for name, facts in files.items()}
        for name, facts in files.items():
            if "sha256" in facts and hashlib.sha256(self._mapped[name]).hexdigest() != facts["sha256"]:
                self.demand(False, f"{name} is damaged (its digest differs); {_ANEW}")

    def array(
        self, name: str, dtype: npt.DTypeLike | None = None, shape: tuple[int, ...] | None = None
    ) -> npt.NDArray[Any]:
        """The array saved as `name`, memory-mapped and read-only; refused unless it has this dtype and shape."""
        self.file(f"{name}.npy")
        content = self._mapped[f"{name}.npy"]
        try:
            found = _as_array(content)
        except (ValueError, TypeError, SyntaxError, TokenError, EOFError, RecursionError, MemoryError) as error:
            raise ValueError(f"{self._path}: {name}.npy is not an array of plain numbers ({error})") from None
        if dtype is not None:
            wanted = np.dtype(dtype)
            self.demand(found.dtype == wanted, f"{name}.npy holds {found.dtype}, not {wanted}")
        if shape is not None:
            self.demand(found.shape == shape, f"{name}.npy has shape {found.shape}, not {shape}")
        return found

    def has(self, name: str) -> bool:
        """Whether an array of this name was saved."""
        return f"{name}.npy" in self.config["files"]

    def file(self, name: str) -> Path:
        """The path of a saved file."""
        self.demand(
            name in self.config["files"], f"the model has no file {name}; its config.json does not fit its index"
        )
        return self._folder / name

    def demand(self, holds: bool | np.bool_, complaint: str) -> None:
        """Refuse the model unless this holds."""
        if not holds:
            raise ValueError(f"{self._path}: {complaint}")

    def _map(self, name: str, expected: int) -> "mmap | bytes":
        file = self._folder / name
        if not file.is_file():
            self.demand(False, f"{name} is missing; {_ANEW}")
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            complaint = f"{name} has {size:,} bytes instead of {expected:,}: truncated or overwritten; {_ANEW}"
            self.demand(size == expected, complaint)
            return mmap(stream.fileno(), 0, access=ACCESS_READ) if size else b""


def changes_file(path: Path, data: str) -> Path:
    """The log of what has happened to the rows of this data folder; with another folder it means nothing."""
    return path / f"{data.replace('data-', 'changes-')}.log"


@contextmanager
def writing(path: Path, *, held: bool = False) -> Generator[Writer]:
    """Write a model: nothing is visible at `path` until the block ends, and nothing at all if it fails.

    With `held` the caller is the only writer of that folder already.
    """
    check_target(path)
    created = not path.exists()
    folder = path / f"data-{secrets.token_hex(8)}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with nullcontext() if held else only_writer(path), _kept_if_committed(path, folder):
            folder.mkdir()
            writer = Writer(folder)
            yield writer
            _commit(path, folder, writer.config)
            _sweep(path, keep=folder.name)
    except BaseException:
        if created:
            with suppress(OSError):  # there is a model
                path.rmdir()
        raise


@contextmanager
def _kept_if_committed(path: Path, folder: Path) -> Generator[None]:
    """Ctrl-C may arrive at any line, also just after the commit: what is left then is the model, and nothing else."""
    try:
        yield
    except BaseException:
        if _committed(path, folder.name):
            _sweep(path, keep=folder.name)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _commit(path: Path, folder: Path, settings: dict[str, Any]) -> None:
    """Flush what was written, and put the `config.json` that names it in place of the one there."""
    files = sorted(folder.iterdir())
    for file in files:
        _flush(file)
    _flush(folder)
    config = {
        "format": FORMAT,
        "version": VERSION,
        **settings,
        "data": folder.name,
        "files": {file.name: _facts(file) for file in files},
    }
    draft = folder / CONFIG
    draft.write_text(json.dumps(config | {"digest": seal(config)}, indent=2) + "\n", encoding="utf-8")
    _flush(draft)
    os.replace(draft, path / CONFIG)
    _flush(path)


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
    foreign = [p.name for p in path.iterdir() if not _is_ours(p.name)]
    if foreign:
        raise ValueError(f"path: {path} holds {foreign[0]!r}, which is not part of a model; choose an empty folder")
    if (path / CONFIG).exists() and '"lazygumbel-model"' not in (path / CONFIG).read_text(errors="replace"):
        raise ValueError(f"path: {path} holds a {CONFIG} of another program; choose an empty folder")


def _as_array(content: "mmap | bytes") -> npt.NDArray[Any]:
    """The array of a `.npy` file, on its bytes; stored row by row, in the order of bytes of this processor or not."""
    stream = BytesIO(content[:_HEADER])
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"its format is {version}")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biuf" or (by_columns and len(shape) > 1) or stream.tell() % 16:
        raise ValueError(f"its header says {dtype}, {shape}")
    return np.ndarray(shape, dtype, content, stream.tell())


def _is_ours(name: str) -> bool:
    return name in (CONFIG, LOCK) or any(pattern.fullmatch(name) for pattern in (DATA, CHANGES))


def _committed(path: Path, folder: str) -> bool:
    config = path / CONFIG
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
    leftovers: Iterable[Path] = [p for p in path.iterdir() if DATA.fullmatch(p.name) and p.name != keep]
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
    for log in [p for p in path.iterdir() if CHANGES.fullmatch(p.name) and p != changes_file(path, keep)]:
        log.unlink(missing_ok=True)
