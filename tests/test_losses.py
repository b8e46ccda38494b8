"""Losses and gradients in NumPy, from which those of a framework are made."""

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.losses import losses_at
from statistics_helpers import clustered_rows

N, D, TEMPERATURE = 2_000, 8, 0.3


@pytest.mark.parametrize("build", [lg.ExactIndex.build, lg.PartitionIndex.build])
def test_values_and_gradients_are_those_of_the_softmax_over_all_rows(build) -> None:
    rows = clustered_rows(N, D, clusters=20, seed=1)
    thetas, targets = rows[:40] + rows[40:80], np.arange(100, 140)
    logits = thetas.astype(np.float64) @ rows.T.astype(np.float64) / TEMPERATURE
    log_z = np.logaddexp.reduce(logits, axis=1)
    true = log_z - logits[np.arange(40), targets]
    slope = (np.exp(logits - log_z[:, None]) @ rows - rows[targets]) / TEMPERATURE
    model = lg.LogLinear(build(lg.Features.of(rows)))

    def at(method: lg.Exhaustive | lg.Bounded | None, *, gradient: bool):
        return losses_at(model, thetas, targets, TEMPERATURE, method=method, rng=0, gradient=gradient)

    exact = at(lg.Exhaustive(), gradient=True)
    assert np.allclose(exact.values, true, atol=1e-5) and np.allclose(exact.gradient, slope, atol=1e-4)
    assert exact.estimate.label == "exact"
    alone = at(None, gradient=False)
    assert alone.gradient is None and alone.estimate.value.shape == (40,)
    assert (np.abs(alone.values - true) <= 6 * alone.estimate.stderr + 1e-5).all()
    both = at(None, gradient=True)
    assert np.abs(both.values - true).max() < 0.3 and np.abs(both.gradient - slope).max() < 1.0
    assert not np.allclose(exact.gradient, slope + rows[targets], atol=0.1)  # a control
