"""Models over small `PartitionIndex`es, which take longest to make: built once a session, whoever asks.

And no test depends on chance: where none was given, seeds follow from the name of the test."""

from collections.abc import Callable
from itertools import count
from zlib import crc32

import numpy as np
import pytest

from lazygumbel import LogLinear
from lazygumbel.indexes.partition.cost import Effort
from lazygumbel.kernels.types import DEVIATIONS
from statistics_helpers import partition_model

SLOW = (
    *("cli_processes", "compiling", "interrupts", "live_durable", "persist_killed", "serve_load", "serve_page"),
    *("serve_schema", "sharded_ray", "site"),
)
"""Files of tests that start browsers, clusters, servers and processes to kill: `-m "not slow"` leaves them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem.removeprefix("test_") in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def seeds_that_were_not_given(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generator made without a seed differs from the others of its test, and is the same at every run."""
    name, made, seeded = crc32(request.node.nodeid.encode()), count(), np.random.default_rng
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed=None: seeded([name, next(made)] if seed is None else seed)
    )


@pytest.fixture(scope="session")
def unit_model() -> LogLinear:
    """2,000 rows of length one in 16 dimensions: `make_rows(2_000, 16, seed=1)`."""
    return partition_model(2_000, 16, seed=1, cells=40)


@pytest.fixture(scope="session")
def varied_model() -> LogLinear:
    """2,000 rows of varied lengths in 8 dimensions: `make_rows(2_000, 8, varied=True, seed=2)`."""
    return partition_model(2_000, 8, varied=True, seed=2, cells=40)


@pytest.fixture
def set_quantile(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Put ceilings of draws so many standard deviations above estimates, whatever delta is."""

    def put(quantile: float) -> None:
        monkeypatch.setattr(
            "lazygumbel.indexes.partition.asking.quantile_table", lambda *_: np.full(DEVIATIONS, quantile)
        )

    return put


@pytest.fixture
def codes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings by codes: with so few rows, bytes would be as quick, and hard to get wrong."""
    draws, sums = (Effort(0.0, slope, 0.5, (np.inf, np.inf), (-np.inf, -np.inf, np.inf)) for slope in (1.0, 0.0))
    monkeypatch.setattr("lazygumbel.indexes.partition.asking.for_draws", lambda *_: draws)
    for module in ("sums", "proposals"):
        monkeypatch.setattr(f"lazygumbel.methods.{module}.for_sums", lambda *_: sums)
        monkeypatch.setattr(f"lazygumbel.methods.{module}.WIDEST", (9.0, 9.0))
