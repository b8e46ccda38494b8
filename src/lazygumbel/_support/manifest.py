"""`config.json`, the commit point of a saved model: settings that are checked before anything they name is opened."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, cast

__all__ = ["CHANGES", "CONFIG", "DATA", "FORMAT", "VERSION", "is_saved", "read_config", "seal"]

CONFIG = "config.json"
FORMAT = "lazygumbel-model"
VERSION = 8
DATA = re.compile(r"data-[0-9a-f]{16}")
"""What may be swept: narrow enough not to take a user's `data-raw` or `data-20240131` for a leftover."""
CHANGES = re.compile(r"changes-[0-9a-f]{16}\.log")
"""Logs of what has happened to the rows of a data folder since."""
_FILE = re.compile(r"[A-Za-z0-9_]+\.[a-z]+")
"""Names of files: none leads out of its folder."""
_LARGEST = 16 * 2**20
"""Bytes; a few kilobytes are usual."""


def is_saved(path: Path) -> bool:
    """Whether a model was saved here to the end."""
    return (path / CONFIG).is_file()


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a saved model, without touching its arrays."""
    file = path / CONFIG
    if not path.exists():
        raise ValueError(f"{path}: there is no such folder")
    if not file.is_file():
        raise ValueError(
            f"{path}: no model here ({CONFIG} is missing); was a save interrupted, or is this another folder?"
        )
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{path}: {CONFIG} is too large to be one; it was not written by lazygumbel")
    try:
        loaded: object = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {CONFIG} is not valid JSON ({error}); truncated or overwritten") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: {CONFIG} was not written by lazygumbel")
    config = cast("dict[str, Any]", loaded)
    if config.get("format") != FORMAT:
        raise ValueError(f"{path}: {CONFIG} was not written by lazygumbel (format {config.get('format')!r})")
    if type(config.get("version")) is not int or config["version"] > VERSION:
        raise ValueError(
            f"{path}: saved in format version {config.get('version')}, newer than the {VERSION} this release reads; "
            "upgrade with: pip install --upgrade lazygumbel"
        )
    if config["version"] < VERSION:
        raise ValueError(
            f"{path}: saved in format version {config['version']}, which this release no longer reads; build "
            "it anew with LogLinear.build (or lazygumbel build)"
        )
    missing = [key for key in ("data", "files", "n", "d", "index", "digest") if key not in config]
    if missing:
        raise ValueError(f"{path}: {CONFIG} lacks {', '.join(missing)}; it was cut short or edited")
    wrong = _first_wrong(config)
    if wrong is not None:
        raise ValueError(f"{path}: {CONFIG} has a {wrong} that no model has; it was edited")
    if config["digest"] != seal(config):
        raise ValueError(f"{path}: {CONFIG} was edited (its digest differs); build the model anew")
    return config


def _first_wrong(config: dict[str, Any]) -> str | None:
    """The first setting that is not of the kind a save writes: a name that leads elsewhere, a number that is none."""
    if not (isinstance(config["data"], str) and DATA.fullmatch(config["data"])):
        return "data"
    files: object = config["files"]
    if not isinstance(files, dict):
        return "files"
    for name, facts in cast("dict[str, Any]", files).items():
        if not (_FILE.fullmatch(name) and isinstance(facts, dict)):
            return "files"
        held = cast("dict[str, Any]", facts)
        if type(held.get("bytes")) is not int or not isinstance(held.get("sha256", ""), str):
            return "files"
    for key in ("n", "d"):
        if type(config[key]) is not int or config[key] < 1:
            return key
    return None if isinstance(config["index"], dict) else "index"


def seal(config: dict[str, Any]) -> str:
    """A digest of all other settings. Of damage and careless edits it tells; who means it can compute it, too."""
    others = {key: value for key, value in config.items() if key != "digest"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()
