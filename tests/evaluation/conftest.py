"""A whole run of the evaluation on a small file, done once for all tests of the folder."""

from collections.abc import Generator

import faiss
import numpy as np
import pytest
from finished_run import TINY, D, Finished, N, Recorder, source_of

from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.run import run_within


@pytest.fixture(scope="session")
def one_thread() -> Generator[None]:
    """FAISS's threads wait busily: with so few rows they only get into each other's way."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Finished:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("paper")
    file, out, recorder = folder / "clusters.npy", folder / "out", Recorder()
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60, D))[rng.integers(60, size=N)] + 0.7 * rng.normal(size=(N, D))
    np.save(file, rows.astype(np.float32))
    source = source_of(file)
    done = run_within(TINY, out, source, quick=True, progress=recorder)
    return Finished(file, out, done, Bench.open(out, source, TINY), recorder.stages)
