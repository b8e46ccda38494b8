"""A small model folder, written and read."""

from pathlib import Path

import numpy as np

from lazygumbel._support.persist import Reader, read_config, writing


def save(path: Path, value: int, size: int = 100) -> None:
    """A model whose arrays hold one constant."""
    with writing(path) as writer:
        writer.config.update(n=value, d=1, index={"kind": "exact"})
        writer.array("first", np.full(size, value, dtype=np.float64))
        writer.file("notes.bin").write_bytes(bytes([value]) * 10)
        writer.array("second", np.full(size, value, dtype=np.int64))


def saved(path: Path) -> int | None:
    """The constant of the model at `path`, checked to be complete and whole; None when there is none."""
    if not (path / "config.json").exists():
        return None
    reader = Reader(path)
    value = reader.config["n"]
    for name in ("first", "second"):
        assert (reader.array(name) == value).all(), f"{name} does not belong to model {value}"
    if "notes.bin" in reader.config["files"]:
        assert reader.file("notes.bin").read_bytes() == bytes([value]) * 10
    return value


def entries(path: Path) -> set[str]:
    return {p.name for p in path.iterdir()} if path.exists() else set()


def data(path: Path) -> Path:
    return path / read_config(path)["data"]


def is_tidy(path: Path) -> bool:
    return entries(path) == {"config.json", data(path).name}
