"""Write what the README and the pages print today: every block of text that follows one of Python, or a command.

    python docs/refresh.py [PAGE ...]

Needs the extra `data`, and runs the examples on the word vectors; tests run the same blocks on a few random rows.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lazygumbel import datasets

_TEXT = "glove.6B.50d.txt"
ROOT = Path(__file__).resolve().parent.parent
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def refreshed(page: Path) -> str:
    """The page with what its examples print."""
    names: dict[str, object] = {"__name__": "page"}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block[1], str(page), "exec"), names)
        if block[2] is None:
            return block[0]
        return f"```python\n{block[1]}```{block[2]}{printed.getvalue()}```"

    pattern = re.compile(r"^```python\n(.*?)^```$(?:(\n+```text\n).*?^```$)?", re.MULTILINE | re.DOTALL)
    return CONSOLE.sub(_commands, pattern.sub(run, page.read_text(encoding="utf-8")))


def _commands(block: re.Match[str]) -> str:
    shown: list[str] = []
    for line in re.findall(r"^\$ .*$", block[1], re.MULTILINE):
        command = [sys.executable, "-c", "from lazygumbel.cli import main; main()", *shlex.split(line)[2:]]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        shown += [line, *(text.rstrip() for text in ran.stdout.splitlines())]
    return "```console\n" + "\n".join(shown) + "\n```"


def _write_text() -> None:
    """The word vectors as they are published: a word and its numbers a line."""
    words = datasets.glove()
    names = words.names
    with Path(_TEXT).open("w", encoding="utf-8") as file:
        for ids, rows in words.blocks(10_000):
            for i, row in zip(ids.tolist(), rows.tolist(), strict=True):
                print(names[i] if names else i, *(f"{x:.5f}" for x in row), file=file)


def main() -> None:
    """Refresh the pages named, or all of them."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    pages = [Path(name).resolve() for name in sys.argv[1:]] or every
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        if any(_TEXT in page.read_text(encoding="utf-8") for page in pages):
            _write_text()
        for page in pages:
            page.write_text(refreshed(page), encoding="utf-8")


if __name__ == "__main__":
    main()
