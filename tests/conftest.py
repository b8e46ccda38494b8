"""Models over small `PartitionIndex`es, which take longest to make: built once a session, whoever asks."""

import pytest

from lazygumbel import LogLinear
from statistics_helpers import partition_model


@pytest.fixture(scope="session")
def unit_model() -> LogLinear:
    """2,000 rows of length one in 16 dimensions: `make_rows(2_000, 16, seed=1)`."""
    return partition_model(2_000, 16, seed=1, cells=40)


@pytest.fixture(scope="session")
def varied_model() -> LogLinear:
    """2,000 rows of varied lengths in 8 dimensions: `make_rows(2_000, 8, varied=True, seed=2)`."""
    return partition_model(2_000, 8, varied=True, seed=2, cells=40)
