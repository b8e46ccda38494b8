"""Write what the README and the pages print today: every block of text that follows one of Python, or a command.

    python docs/refresh.py [PAGE ...]

Needs the extras `data` and `serve`, and curl; runs the examples on the word vectors, which tests run on a few random
rows. Commands of all pages share a folder: `model` is what docs/cli.md builds, and curl asks a service over a copy.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from lazygumbel import datasets

_TEXT = "glove.6B.50d.txt"
ROOT = Path(__file__).resolve().parent.parent
_LAZYGUMBEL = [sys.executable, "-c", "from lazygumbel.cli import main; main()"]
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
    """Every command of a block, each with what it prints; a line that ends in a backslash goes on in the next."""
    shown: list[str] = []
    for line in re.findall(r"^\$ (?:.*\\\n)*.*$", block[1], re.MULTILINE):
        program, *words = shlex.split(line.removeprefix("$ ").replace("\\\n", ""))
        with _service() if program == "curl" else contextlib.nullcontext("") as address:
            asked = [word.replace("localhost:8000", address) for word in words]
            command = ["curl", "--silent", "--fail"] if program == "curl" else _LAZYGUMBEL
            ran = subprocess.run([*command, *asked], capture_output=True, text=True, check=True)
        shown += [line, *(text.rstrip() for text in ran.stdout.splitlines())]
    return "```console\n" + "\n".join(shown) + "\n```"


@contextlib.contextmanager
def _service() -> Iterator[str]:
    """The address of a live service over a copy of `model`; changes last until the pages are written."""
    if not Path("served").exists():
        shutil.copytree("model", "served")
        datasets.glove().gather(datasets.glove().names.find("creek")).astype("<f4").tofile("brook.f32")
    command = [*_LAZYGUMBEL, "serve", "served", "--live", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://(\S+:\d+)/", process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()


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
    first = ROOT / "docs" / "cli.md"
    every = [first, ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {first})]
    pages = [Path(name).resolve() for name in sys.argv[1:]] or every
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        if any(_TEXT in page.read_text(encoding="utf-8") for page in pages):
            _write_text()
        for page in pages:
            page.write_text(refreshed(page), encoding="utf-8")


if __name__ == "__main__":
    main()
