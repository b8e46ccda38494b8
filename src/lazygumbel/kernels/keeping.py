"""Compiled code that is kept on disk belongs to the sources of all kernels.

Numba looks at the file of a kernel alone. Its parts lie in others, and so does the layout of what is packed: old code
would read memory that is laid out otherwise.
"""

import os
from hashlib import sha256
from pathlib import Path

__all__ = ["STAMP", "drop_stale"]

STAMP = "lazygumbel-kernels.sha256"


def drop_stale(folder: Path) -> None:
    """Drop what other sources than these have left in the folder of compiled code."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_bytes() == digest.encode():
        return
    for index in folder.glob("*.nbi"):
        index.unlink(missing_ok=True)
    written = folder / f"{STAMP}.{os.getpid()}"
    written.write_bytes(digest.encode())
    written.replace(stamp)
