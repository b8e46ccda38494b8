"""The version of a shard's rows: of its saved files, and of every change in its log since.

Two workers that hold the same version hold the same rows. A version is written as the digest of `config.json` (which
names the sizes, the digests and the random folder of the files), and once there are changes `+`, their number and a
digest of the log that holds them.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazygumbel._support.persist import changes_file, read_config
from lazygumbel.live import packed_size, read_changes
from lazygumbel.live.rows import Change

__all__ = ["Version", "digest_of", "files_of", "other_version"]


def digest_of(folder: Path) -> str:
    """The version of the files that are saved in a folder now, without what has changed since."""
    return hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:16]


def files_of(version: str) -> str:
    """The part of a version that speaks of files."""
    return version.partition("+")[0]


def other_version(folder: Path, found: str, expected: str) -> str:
    """What is said of a shard that holds another version."""
    return (
        f"{folder} holds version {found}, but version {expected} was expected; restore its files, or connect again "
        "if they are right"
    )


@dataclass(frozen=True, eq=False)
class Version:
    """That of a folder, with what is needed to follow its log."""

    files: str
    changes: int
    log: Path
    end: int
    """Length of the log, torn end left out."""
    digest: Any
    """Of the log so far."""

    @classmethod
    def read(cls, folder: Path, *, less: int = 0) -> "tuple[Version, list[Change]]":
        """What a folder holds now, and the changes in its log; `less` leaves out the last of those."""
        files, data = digest_of(folder), str(read_config(folder)["data"])
        changes, end = read_changes(folder, data)
        log = changes_file(folder, data)
        kept = changes[: len(changes) - less]
        end -= sum(packed_size(change) for change in changes[len(kept) :])
        content = log.read_bytes()[:end] if end else b""
        return cls(files, len(kept), log, end, hashlib.sha256(content)), changes

    def grown(self) -> "Version":
        """With the one record that was appended since."""
        with self.log.open("rb") as stream:
            stream.seek(self.end)
            record = stream.read()
        digest = self.digest.copy()
        digest.update(record)
        return Version(self.files, self.changes + 1, self.log, self.end + len(record), digest)

    def __str__(self) -> str:
        return f"{self.files}+{self.changes}-{self.digest.hexdigest()[:16]}" if self.changes else self.files
