"""Commands run within this process."""

import json

from typer.testing import CliRunner

from lazygumbel.cli import app

ROWS, D = 2000, 16
ESCAPE = "\x1b"


def run(*arguments: object) -> str:
    """Standard output of a command that must succeed and say nothing else."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert ESCAPE not in result.stdout
    return result.stdout


def run_json(*arguments: object) -> dict:
    """What a command prints with --json, NaN and infinity refused."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(run(*arguments, "--json"), parse_constant=refuse)


def refused(*arguments: object) -> str:
    """The one line on standard error of a command that must end with exit code 2."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("lazygumbel: "), result.stderr
    return lines[0]
