"""The command as users run it: quiet pipes, progress on a terminal, Ctrl-C."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
from cli_helpers import ESCAPE, ROWS, D, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, and a model of them."""
    path = tmp_path_factory.mktemp("cli")
    np.save(path / "rows.npy", np.random.default_rng(0).normal(size=(ROWS, D)).astype(np.float32))
    run("build", path / "rows.npy", path / "exact", "--index", "exact")
    return path


class Started:
    """A command in a process of its own, its standard error on a terminal, its standard output in a pipe."""

    def __init__(self, *arguments: object) -> None:
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from lazygumbel.cli import main; main()", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
            # Whoever runs these tests in the background may ignore Ctrl-C, which is handed on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Until the terminal shows this."""
        while text not in self.shown:
            assert self._read(60), f"{text!r} never came: {self.shown!r}"

    def finish(self) -> tuple[int, str]:
        """Exit code and standard output."""
        while self._read(60):  # until the other end closes; a terminal that nobody reads would stop the process
            pass
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out.decode()

    def _read(self, seconds: float) -> bool:
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # Linux: the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._terminal)


class TestProcesses:
    """The command as users run it."""

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("sample", "x", "--temperature", "abc"), "--temperature"),
            (("nosuch",), "nosuch"),
            (("sample",), "model"),
            (("info", "x", "--nosuch"), "--nosuch"),
        ],
    )
    def test_unusable_words_end_in_one_line(self, words: tuple[str, ...], said: str) -> None:
        command = [sys.executable, "-c", "from lazygumbel.cli import main; main()", *words]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert len(ran.stderr.splitlines()) == 1 and said in ran.stderr

    def test_the_version_and_the_module(self) -> None:
        for command in ([Path(sys.executable).with_name("lazygumbel")], [sys.executable, "-m", "lazygumbel"]):
            told = subprocess.run([*command, "--version"], capture_output=True, text=True)
            assert (told.returncode, told.stdout, told.stderr) == (0, f"lazygumbel {lg.__version__}\n", "")
        assert "log-prob" in subprocess.run([*command, "--help"], capture_output=True, text=True).stdout

    def test_no_words_at_all_show_the_help(self) -> None:
        command = [sys.executable, "-c", "from lazygumbel.cli import main; main()"]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0 and "log-partition" in ran.stdout

    @pytest.fixture
    def large(self, tmp_path: Path) -> Path:
        """Rows that take a few seconds to build over."""
        rows = np.random.default_rng(0).standard_normal((60_000, 64), dtype=np.float32)
        np.save(tmp_path / "large.npy", rows)
        return tmp_path / "large.npy"

    @pytest.fixture
    def start(self) -> Iterator[type[Started]]:
        made: list[Started] = []

        class Noted(Started):
            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments)
                made.append(self)

        yield Noted
        for one in made:
            one.close()

    def call(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """The installed command, everything in pipes."""
        command = Path(sys.executable).parent / "lazygumbel"
        return subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, timeout=60)

    def test_pipes_hold_no_bars_and_no_escape_codes(self, folder: Path, tmp_path: Path) -> None:
        built = self.call("build", folder / "rows.npy", tmp_path / "model", "--index", "partition")
        assert (built.returncode, built.stderr) == (0, "")
        drawn = self.call("sample", tmp_path / "model", 3, "--row", 0)
        assert (drawn.returncode, drawn.stderr) == (0, "")
        assert ESCAPE not in built.stdout + drawn.stdout
        assert len(drawn.stdout.splitlines()) == 5

    def test_bad_input_is_one_line_and_exit_code_2(self, tmp_path: Path) -> None:
        ended = self.call("info", tmp_path / "absent")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == f"lazygumbel: {tmp_path / 'absent'}: there is no such folder\n"

    def test_a_reader_that_has_enough_is_no_error(self, folder: Path) -> None:
        command = Path(sys.executable).parent / "lazygumbel"
        arguments = [command, "sample", folder / "exact", "200000", "--row", "0", "--json"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""

    def test_a_terminal_shows_progress(self, folder: Path, tmp_path: Path, start: type[Started]) -> None:
        started = start("build", folder / "rows.npy", tmp_path / "model", "--index", "partition", "--json")
        code, out = started.finish()
        assert code == 0 and json.loads(out)["n"] == ROWS
        for stage in ("training cells", "assigning rows to cells", "ordering rows", f"{ROWS}/{ROWS}"):
            assert stage in started.shown
        assert ESCAPE in started.shown

    @pytest.mark.parametrize(
        ("index", "stage"),
        [("partition", "training cells"), ("lsh", "hashing rows"), ("HNSW32", "building FAISS HNSW32")],
    )
    def test_interrupting_a_build_leaves_nothing(
        self, large: Path, tmp_path: Path, start: type[Started], index: str, stage: str
    ) -> None:
        started = start("build", large, tmp_path / "model", "--index", index)
        started.wait_for(stage)
        started.process.send_signal(signal.SIGINT)
        code, out = started.finish()
        assert (code, out) == (130, "")
        assert "lazygumbel: interrupted" in started.shown and "Traceback" not in started.shown
        assert [p.name for p in tmp_path.iterdir()] == ["large.npy"]

    def test_interrupting_a_save_keeps_the_old_model_or_the_new_one(
        self, folder: Path, large: Path, tmp_path: Path, start: type[Started]
    ) -> None:
        target = tmp_path / "model"
        shutil.copytree(folder / "exact", target)
        before = {p.name for p in target.iterdir()}
        started = start("build", large, target, "--index", "exact")
        deadline = time.monotonic() + 60
        while {p.name for p in target.iterdir()} == before and time.monotonic() < deadline:
            time.sleep(0.001)
        started.process.send_signal(signal.SIGINT)
        code, _ = started.finish()
        assert code in (0, 130, -signal.SIGINT)  # the last: all was done when it came
        assert len(list(target.iterdir())) == 2
        if code == 130:
            assert "lazygumbel: interrupted" in started.shown
        assert lg.LogLinear.load(target).features.n in ((ROWS, 60_000) if code == 130 else (60_000,))
