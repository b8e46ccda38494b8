"""What every reader does first: find the file, put its name into errors, pick a part of it."""

from collections.abc import Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

__all__ = ["BLOCK_BYTES", "FilePath", "check_promise", "existing", "naming", "pick"]

FilePath = str | PathLike[str]

BLOCK_BYTES = 64 * 2**20
"""How much of a file is read at a time."""
_LARGEST_RATIO = 100
"""Of rows in memory to their file. Vectors that mean something are compressed to a half, at best to a tenth."""


def existing(path: FilePath, argument: str = "path") -> Path:
    """The path of a file, which must be there."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{argument}: there is no file {path}")
    return path


@contextmanager
def naming(path: Path, argument: str = "path") -> Generator[None]:
    """Whatever is wrong with the contents of a file becomes a `ValueError` that names the argument and the file."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, LookupError) as error:  # what libraries raise on bad files
        raise ValueError(f"{argument}: {path}: {error}") from error


def check_promise(path: Path, values: int) -> None:
    """Refuse a file that promises far more values than it has bytes: to keep them in memory would take all of it."""
    promised, size = 4 * values, path.stat().st_size
    if promised > _LARGEST_RATIO * size + BLOCK_BYTES:
        raise ValueError(
            f"it promises {promised / 2**20:,.0f} MiB of rows in {size:,} bytes; if that is right, save them as .npy"
        )


def pick(wanted: str | None, found: list[str], what: str, option: str) -> str:
    """The one wanted; when none is, the only one found."""
    if wanted is None and len(found) == 1:
        return found[0]
    if wanted in found:
        return wanted
    problem = f"there are {len(found)} {what}" if wanted is None else f"{wanted!r} is not among the {what}"
    shown = ", ".join(map(repr, found[:10])) + (f" and {len(found) - 10} more" if len(found) > 10 else "")
    raise ValueError(f"{problem}; choose with {option}= one of: {shown or '(none)'}")
