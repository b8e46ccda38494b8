"""The house: short files, few parameters, and a docstring for everything public."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import lazygumbel as lg

TESTS = Path(__file__).parent
SRC = TESTS.parent / "src" / "lazygumbel"
FILES = sorted(SRC.rglob("*.py"))
LONGEST, PARAMETERS = 400, 8
LONG = {"kernels/reference.py": 900, "kernels/race.py": 450}
"""The specification of all kernels side by side, and a file of the engine that waits to be divided."""
KNOBS = {"learning/fit.py:fit": 17, "walking.py:walk": 9, "sharded/model.py:ShardedModel.connect": 9}
"""What users set by name, each with a default."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(file: Path) -> str:
    return file.relative_to(SRC).as_posix()


def functions(file: Path) -> Iterator[tuple[str, Function]]:
    """All functions of a file, by the names of what they stand in."""

    def walk(node: ast.AST, within: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield f"{within}{child.name}", child
            inner = f"{within}{child.name}." if isinstance(child, Function | ast.ClassDef) else within
            yield from walk(child, inner)

    return walk(ast.parse(file.read_text(encoding="utf-8")), f"{name_of(file)}:")


def parameters(function: Function) -> int:
    """How many there are to give: not `self`, nor what commands are given by name on the command line."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def is_command(function: Function) -> bool:
    """A command's options are typed by people, one at a time."""
    return any("command" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_are_short(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").count("\n")
    assert lines <= LONG.get(name_of(file), LONGEST)


def test_files_of_tests_are_short() -> None:
    lines = {file.name: file.read_text(encoding="utf-8").count("\n") for file in TESTS.rglob("*.py")}
    assert len(lines) > 80 and {name: count for name, count in lines.items() if count >= 500} == {}


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_functions_take_few_parameters(file: Path) -> None:
    many = {name: parameters(function) for name, function in functions(file) if not is_command(function)}
    assert {name: count for name, count in many.items() if count > KNOBS.get(name, PARAMETERS)} == {}


FEW = {"forms.py:keys", "_support/threads.py:_controller", "indexes/partition/codebook.py:codebook"}
"""Functions of what there are a few of: kinds of answers, of BLAS, of codes."""


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_caches_are_bounded(file: Path) -> None:
    """Of what users ask, a relative error say, there is no end."""
    unbounded = {
        name
        for name, function in functions(file)
        if any(ast.unparse(decorator) in ("cache", "lru_cache(None)") for decorator in function.decorator_list)
    }
    assert {name for name, function in functions(file) if name in unbounded and parameters(function)} <= FEW


def test_a_class_has_a_name_of_its_own() -> None:
    """But for the forms that answers have in JSON, which bear the names of the answers."""
    files = [file for file in FILES if name_of(file) != "forms.py"]
    nodes = [(node, name_of(file)) for file in files for node in ast.parse(file.read_text(encoding="utf-8")).body]
    found = [(node.name.lstrip("_"), file) for node, file in nodes if isinstance(node, ast.ClassDef)]
    counted = Counter(name for name, _ in found)
    assert len(found) > 150 and [one for one in found if counted[one[0]] > 1] == []


# What a compiled kernel does is said once, by its twin in the reference.
SPEAKING = [file for file in FILES if file.parent.name != "kernels" or file.name == "reference.py"]


@pytest.mark.parametrize("file", SPEAKING, ids=name_of)
def test_everything_public_has_a_docstring(file: Path) -> None:
    module = ast.parse(file.read_text(encoding="utf-8"))
    listed = [node for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    public = {
        ast.literal_eval(element)
        for node in listed
        if "__all__" in ast.unparse(node).split("=")[0] and isinstance(node.value, ast.List)
        for element in node.value.elts
    }
    held = [node for node in module.body if isinstance(node, Function | ast.ClassDef) and node.name in public]
    methods = [
        child
        for node in held
        if isinstance(node, ast.ClassDef)
        for child in node.body
        if isinstance(child, Function) and not child.name.startswith("_")
    ]
    # Of overloads the last one speaks, of a property what gets it.
    silent = ("overload", ".setter")
    spoken = [
        node for node in (*held, *methods) if not any(ast.unparse(d).endswith(silent) for d in node.decorator_list)
    ]
    assert ast.get_docstring(module), "the module has none"
    assert [node.name for node in spoken if ast.get_docstring(node) is None] == []


def test_to_import_the_library_loads_little_more_than_numpy() -> None:
    """What is public comes with its first use, by its own name or by that of its room."""
    script = """
import sys, lazygumbel as lg
print(*sorted(name for name in sys.modules if name.startswith("lazygumbel.")))
lg.LogLinear.build
print([name for name in ("numba", "faiss", "typer", "rich", "torch", "pyarrow", "scipy") if name in sys.modules])
print(lg.datasets.read.__module__, lg.LogLinear.__module__, lg.walk.__module__)
"""
    found = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    own, heavy, used = found.stdout.splitlines()
    assert {name.split(".")[1] for name in own.split()} == {"_support"} and heavy == "[]"
    assert used == "lazygumbel.datasets.files lazygumbel.model lazygumbel.walking"


def test_the_door_has_what_it_names_and_nothing_else() -> None:
    assert [name for name in lg.__all__ if not hasattr(lg, name)] == [] and set(lg.__all__) <= set(dir(lg))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = lg.nonsense  # pyright: ignore[reportAttributeAccessIssue]
