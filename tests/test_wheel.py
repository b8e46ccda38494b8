"""The wheel works alone: installed in an empty environment, used outside the repository.

`make test` builds the wheel and fills the environment beforehand; nothing is installed here. Kernels run as plain
NumPy, which compiles nothing: other tests hold the compiled ones equal to these.
"""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

import lazygumbel as lg

ROOT = Path(__file__).parent.parent
ALONE = ROOT / ".venv-wheel" / "bin"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ALONE.parent / ".installed").exists(), reason="NO WHEEL: it was not tested; `make test` builds it"
    ),
]
ASK = """
import json, sys
from urllib.request import urlopen
from lazygumbel.client import Client
page = urlopen(sys.argv[1]).read().decode()
with Client(sys.argv[1]) as client:
    drawn = client.sample(7, temperature=0.5, size=3, seed=0)
    print(json.dumps({"ids": list(drawn.ids), "label": drawn.label, "page": "<html" in page}))
"""


def surroundings(folder: Path) -> dict[str, str]:
    """Nothing of this process's environment is passed on."""
    return {"PATH": os.defpath, "HOME": str(folder), "NUMBA_DISABLE_JIT": "1"}


def run(folder: Path, *command: str) -> str:
    """What a command of the empty environment prints."""
    asked = [ALONE / command[0], *command[1:]]
    ran = subprocess.run(asked, cwd=folder, env=surroundings(folder), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def built(name: str) -> ZipFile:
    (wheel,) = (ROOT / "dist").glob(f"{name}-*.whl")
    return ZipFile(wheel)


def metadata(name: str) -> Message:
    with built(name) as wheel:
        (path,) = (held for held in wheel.namelist() if held.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(wheel.read(path).decode())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that the command line built from an .npy file."""
    folder = tmp_path_factory.mktemp("alone")
    np.save(folder / "rows.npy", np.random.default_rng(0).standard_normal((500, 8), dtype=np.float32))
    said = run(folder, "lazygumbel", "build", "rows.npy", "model", "--index", "partition", "--seed", "0")
    assert "partition" in said
    return folder / "model"


@pytest.fixture
def address(model: Path) -> Iterator[str]:
    """Of a service over the model."""
    command, here = [ALONE / "lazygumbel", "serve", "model", "--port", "0"], surroundings(model.parent)
    with subprocess.Popen(command, cwd=model.parent, env=here, stdout=-1, stderr=-3, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+:\d+/", process.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            process.kill()


def test_the_wheel_holds_the_package_and_nothing_else() -> None:
    sources = ROOT / "src"
    package = {
        str(path.relative_to(sources))
        for path in (sources / "lazygumbel").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with built("lazygumbel") as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        size = sum(one.file_size for one in wheel.infolist())
    assert held == package
    assert {"lazygumbel/py.typed", "lazygumbel/serve/page/index.html"} <= held
    assert size < 2_000_000


def test_versions_agree() -> None:
    """Of the package, its metadata, the evaluation that the extra brings, and the citation."""
    library, evaluation = metadata("lazygumbel"), metadata("lazygumbel_evaluation")
    wanted = lg.__version__
    assert (library["Version"], evaluation["Version"]) == (wanted, wanted)
    extras = [needed for needed in library.get_all("Requires-Dist", []) if "extra == 'evaluation'" in needed]
    assert [needed.split(";")[0].strip() for needed in extras] == [f"lazygumbel-evaluation=={wanted}"]
    assert f"\nversion: {wanted}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_metadata_name_the_versions_of_python_that_are_tested() -> None:
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert matrix is not None
    tested = re.findall(r"\d\.\d+", matrix[1])
    classified = metadata("lazygumbel").get_all("Classifier", [])
    assert [c.rsplit(" ", 1)[1] for c in classified if re.search(r":: 3\.\d+$", c)] == tested
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == f">={tested[0]}"


def test_nothing_of_the_repository_is_in_the_environment(tmp_path: Path) -> None:
    found = run(tmp_path, "python", "-c", "import lazygumbel; print(lazygumbel.__file__)")
    assert Path(found.strip()).is_relative_to(ALONE.parent)
    look = "from importlib.util import find_spec; print([n for n in {} if find_spec(n)])"
    absent = ["lazygumbel_evaluation", "tests", "pytest", "torch", "matplotlib", "ray"]
    assert run(tmp_path, "python", "-c", look.format(absent)).strip() == "[]"


def test_the_example_of_the_readme_prints_what_is_shown(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "example.py").write_text(found[1], encoding="utf-8")
    assert run(tmp_path, "python", "-X", "utf8", "example.py") == found[2]


def test_the_command_line_runs(model: Path) -> None:
    assert run(model.parent, "lazygumbel", "--version").split()[-1] == lg.__version__
    question = ["sample", "model", "3", "--row", "7", "--temperature", "0.5", "--seed", "0", "--json"]
    drawn = json.loads(run(model.parent, "lazygumbel", *question))
    assert len(drawn["ids"]) == 3 and drawn["label"] == "bounded"


def test_the_service_answers_and_has_its_page(model: Path, address: str) -> None:
    answer = json.loads(run(model.parent, "python", "-c", ASK, address))
    assert len(answer["ids"]) == 3 and answer["label"] == "bounded" and answer["page"]
