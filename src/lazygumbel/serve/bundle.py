"""The files of the page, as they lie in the package."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

__all__ = ["File", "read_bundle"]

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """One file, with a tag that changes when it does."""

    body: bytes
    media_type: str
    tag: str


def read_bundle() -> dict[str, File]:
    """All files, by name."""
    found: dict[str, File] = {}
    for entry in files("lazygumbel.serve").joinpath("page").iterdir():
        media_type = _MEDIA.get(f".{entry.name.rpartition('.')[2]}")
        if media_type is not None:
            body = entry.read_bytes()
            found[entry.name] = File(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found
