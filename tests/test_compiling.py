"""Kernels where they cannot be kept on disk, or must not be compiled: slower, and the same answers."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from lazygumbel.kernels.keeping import STAMP
from lazygumbel.kernels.telling import LINE

ANSWERS = """
import numpy as np
import lazygumbel as lg
from lazygumbel import kernels

rows = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
"""

SCORES = """
ids, query = np.arange(5), rows[0]
print(lg.Features.of(rows).score(ids, query).tolist(), kernels.gather_dot.__module__)
"""

EVERYTHING = """
model = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))
dist = model(rows[:2], temperature=0.5)
print(dist.sample(3, rng=0).ids.tolist(), dist.top_k(3).ids.tolist(), np.round(dist.log_partition(rng=0).value, 4))
print(dist.sample_without_replacement(3, rng=0).ids.tolist(), np.round(dist.expectation(rng=0).value[:, 0], 4))
model.add(rows[:3]), model.remove([0, 7])
print(model(rows[1]).sample(3, rng=0).ids.tolist(), np.round(model(rows[1]).log_partition(rng=0).value, 4))
for _ in range(2):  # also where there is nothing new
    model.compact()
print(model(rows[1]).sample(3, rng=0).ids.tolist(), np.round(model(rows[1]).log_partition(rng=0).value, 4))
model.remove([1]), model.compact()
print(model(rows[1]).top_k(3).ids.tolist())
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | environment
    return subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, env=environment)


def test_without_a_place_for_compiled_code_it_is_compiled_anew_with_one_warning():
    """As on a read-only installation whose user has no home."""
    nowhere = "from numba.core.caching import CacheImpl\nCacheImpl._locator_classes = []\n"
    found, usual = run(nowhere + ANSWERS + SCORES), run(ANSWERS + SCORES)
    assert found.returncode == usual.returncode == 0, found.stderr
    assert found.stdout == usual.stdout and "kernels.scoring" in usual.stdout
    assert found.stderr.count("UserWarning: compiled code cannot be kept") == 1 and not usual.stderr


@pytest.mark.parametrize("script", [SCORES, EVERYTHING], ids=["scores", "everything"])
def test_with_numbas_compiler_off_the_reference_answers(script: str):
    found, usual = run(ANSWERS + script, NUMBA_DISABLE_JIT="1"), run(ANSWERS + script)
    assert found.returncode == usual.returncode == 0, found.stderr
    if script == EVERYTHING:
        assert found.stdout == usual.stdout
    else:
        assert "kernels.reference" in found.stdout


def test_a_terminal_is_told_of_compilation_that_takes_long(tmp_path: Path):
    """Not of what is kept, and not through a pipe."""
    eager = "from lazygumbel.kernels import telling\ntelling._PATIENCE = 0.01\n"
    terminal = "import sys\nsys.stderr.isatty = lambda: True\n"
    cold, warm, piped = (
        run(start + eager + ANSWERS + SCORES, NUMBA_CACHE_DIR=str(tmp_path / cache))
        for start, cache in ((terminal, "one"), (terminal, "one"), ("", "two"))
    )
    assert cold.returncode == warm.returncode == piped.returncode == 0, cold.stderr
    assert cold.stderr == LINE and not warm.stderr and not piped.stderr


def test_compiled_code_of_other_sources_is_not_used(tmp_path: Path):
    """Numba itself would only look at the file in which a kernel stands."""

    def indexes() -> dict[Path, int]:
        found = run(ANSWERS + SCORES, NUMBA_CACHE_DIR=str(tmp_path))
        assert found.returncode == 0 and not found.stderr, found.stderr
        return {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbi")}

    first, second = indexes(), indexes()
    assert first and first == second
    (stamp,) = tmp_path.rglob(STAMP)
    right = stamp.read_text()
    stamp.write_text("of another version")
    third = indexes()
    assert set(third) == set(first) and all(third[file] > first[file] for file in first)
    assert stamp.read_text() == right


FROZEN = """
from lazygumbel.kernels import contest, strata, top

model = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))
kernels = contest.race_thetas, strata.sample_theta, top.top_theta
for theta in (rows[0].copy(), rows[:2].copy()):
    counts = []
    for writeable in (True, False):
        theta.flags.writeable = writeable
        dist = model(theta)
        dist.sample(rng=0), dist.log_partition(rng=0), dist.top_k(2), dist.sample_without_replacement(2, rng=0)
        counts.append([len(kernel.signatures) for kernel in kernels])
    print(counts[0] == counts[1] and min(counts[0]) > 0)
"""


def test_thetas_that_cannot_be_written_take_the_code_of_others():
    """As those from base64 do: else the first of them would wait for seconds while the same kernels compile again."""
    found = run(ANSWERS + FROZEN)
    assert found.returncode == 0 and found.stdout == "True\nTrue\n", found.stdout + found.stderr


WARM = """
from importlib import import_module
from pkgutil import iter_modules

rooms = [import_module(f"lazygumbel.kernels.{room.name}") for room in iter_modules(kernels.__path__)]

def compiled():
    kept = (kernel for room in rooms for kernel in vars(room).values() if hasattr(kernel, "signatures"))
    return sum(len(kernel.signatures) for kernel in kept)

def ask(model):
    for theta in (rows[0], rows[:40]):
        for temperature in (0.05, 20.0):
            dist = model(theta, temperature=temperature)
            dist.sample(3, rng=0), dist.log_partition(rng=0), dist.expectation(rng=0), dist.entropy(rng=0), dist.mode()
            dist.sample_without_replacement(3, rng=0), dist.sample(rng=0, exclude=[1] if theta.ndim < 2 else [[1]] * 40)
            dist.truncated(top_k=20, top_p=0.9, rng=0).sample(2, rng=0), dist.sample(method=lg.Exhaustive(), rng=0)

before = compiled()
lg.warm_up()
after = compiled()
model = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))
ask(model)
model.add(rows[:3]), model.remove([0, 7])
ask(model)
model.compact()
ask(model), ask(lg.LogLinear.build(rows))
print(after > before, compiled() - after)
"""


def test_nothing_is_left_to_compile_after_warming_up():
    found = run(ANSWERS + WARM)
    assert found.returncode == 0 and found.stdout == "True 0\n", found.stdout + found.stderr
