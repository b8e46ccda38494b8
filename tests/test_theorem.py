"""The law of the sketch's error, by simulation over rotations: for every row and theta, whatever the code."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from lazygumbel import Features, PartitionIndex, kernels
from lazygumbel.indexes.partition.codebook import COORDINATES, codebook, relative_error
from lazygumbel.indexes.partition.index import code_rows
from lazygumbel.indexes.partition.law import error_quantile, error_tail
from lazygumbel.indexes.partition.sketch import Coder, haar_rotation

ROTATIONS = 200


@pytest.mark.parametrize("d", [2, 3, 4, 8, 50, 128, 4096])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0, 2.0, 3.5, 4.5])
def test_the_tail_is_that_of_a_coordinate_on_the_sphere(d: int, quantile: float) -> None:
    x = quantile / np.sqrt(d - 1)
    if d == 2:
        expected = 0.5 if x < 1 else 0.0
    else:
        expected = stats.beta.sf((1 + x) / 2, (d - 2) / 2, (d - 2) / 2) if x < 1 else 0.0
    np.testing.assert_allclose(error_tail(quantile, d), expected, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 8, 50, 128, 4096])
@pytest.mark.parametrize("delta", [1e-2, 1e-4, 1e-8])
def test_the_quantile_is_exceeded_with_probability_delta_at_most(d: int, delta: float) -> None:
    quantile = error_quantile(delta, d)
    assert error_tail(quantile, d) <= delta
    assert quantile == 2.0 or error_tail(quantile * 0.999, d) > delta  # and no larger than it has to be


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_codebooks_have_the_error_that_costs_are_reckoned_with(coordinates: int) -> None:
    rotated = np.random.default_rng(1).normal(size=(50_000, coordinates))
    words = codebook(coordinates).astype(np.float64)
    nearest = words[(rotated @ words.T - (words**2).sum(axis=1) / 2).argmax(axis=1)]
    distortion = np.square(rotated - nearest).mean()
    np.testing.assert_allclose(np.sqrt(distortion / (1 - distortion)), relative_error(coordinates), rtol=0.03)


class Placed(NamedTuple):
    """Residuals and thetas that a code might find hard, (m, d) each."""

    residuals: np.ndarray
    thetas: np.ndarray

    @classmethod
    def adversarially(cls, d: int) -> "Placed":
        """Along the axes and the diagonal, all at once or nearly so, sparse, tiny, huge; thetas along or across."""
        rng = np.random.default_rng(d)
        axis, diagonal = np.eye(d)[0], np.ones(d) / np.sqrt(d)
        close = axis + 1e-3 * rng.normal(size=d)
        sparse = np.where(np.arange(d) < 2, 1.0, 0.0)
        rows = np.array([axis, diagonal, close, sparse, rng.normal(size=d), 1e-3 * axis, 1e3 * diagonal])
        thetas = np.array([diagonal, axis, rng.normal(size=d), diagonal, axis - diagonal, diagonal, 1e2 * axis])
        return cls(rows.astype(np.float32), thetas.astype(np.float32))


def errors(placed: Placed, coder: Coder) -> tuple[np.ndarray, np.ndarray]:
    """y - estimate, and the width times |theta without its part along the row| / sqrt(d - 1), of each pair, (m,)."""
    residuals, thetas = (array.astype(np.float64) for array in placed)
    d = residuals.shape[1]
    codes, gains, widths = coder.encode(placed.residuals)
    width = coder.codebook.shape[1]
    words = coder.codebook.astype(np.float64)[codes].reshape(len(codes), -1)[:, : -(-d // width) * width][:, :d]
    estimate = gains * np.einsum("md,md->m", words, thetas @ coder.rotation.T.astype(np.float64))
    norms = np.linalg.norm(residuals, axis=1)
    along = np.einsum("md,md->m", residuals, thetas) / norms
    across = np.sqrt(np.maximum((thetas**2).sum(axis=1) - along**2, 0.0))
    return norms * along - estimate, widths * across / np.sqrt(d - 1)


@pytest.mark.parametrize("coordinates", [1, 2, 4, 8])
@pytest.mark.parametrize("d", [3, 8, 50, 128])
def test_the_error_has_its_exact_law(d: int, coordinates: int) -> None:
    """Over rotations, for adversarial rows: Kolmogorov, and the rate at which ceilings are too low."""
    placed, rng = Placed.adversarially(d), np.random.default_rng(10 * d + coordinates)
    found = []
    for _ in range(ROTATIONS):
        error, deviation = errors(placed, Coder(haar_rotation(d, rng), codebook(coordinates)))
        found.append(error / deviation)
    standardised = np.array(found)
    law = stats.beta((d - 2) / 2, (d - 2) / 2, loc=-np.sqrt(d - 1), scale=2 * np.sqrt(d - 1))
    for column in standardised.T:
        assert stats.kstest(column, law.cdf).pvalue > 1e-4
    for delta in (0.02, 0.1):
        quantile = np.sqrt(d - 1) * (2 * stats.beta.isf(delta, (d - 2) / 2, (d - 2) / 2) - 1)
        exceeded = (standardised > quantile).sum()
        assert stats.binom.sf(exceeded - 1, standardised.size, delta) > 1e-4


@pytest.mark.parametrize("coordinates", [1, 2, 4])
def test_a_rotation_that_is_aligned_with_the_data_breaks_the_law(coordinates: int) -> None:
    """The control: the same test with a fixed rotation, and rows that its code is blind to."""
    d = 50
    identity = Coder(np.eye(d, dtype=np.float32), codebook(coordinates))
    rng = np.random.default_rng(0)
    residuals = np.abs(rng.normal(size=(ROTATIONS, d))).astype(np.float32)  # all on one side of every coordinate
    codes, _, _ = identity.encode(residuals)
    words = identity.codebook[codes].reshape(ROTATIONS, -1)[:, :d].astype(np.float64)
    exact = residuals.astype(np.float64)
    off = exact / np.linalg.norm(exact, axis=1, keepdims=True) - words / np.linalg.norm(words, axis=1, keepdims=True)
    error, deviation = errors(Placed(residuals, off.astype(np.float32)), identity)
    law = stats.beta((d - 2) / 2, (d - 2) / 2, loc=-np.sqrt(d - 1), scale=2 * np.sqrt(d - 1))
    assert stats.kstest(error / deviation, law.cdf).pvalue < 1e-6
    assert (error / deviation > error_quantile(0.01, d)).mean() > 0.1


@pytest.mark.parametrize(("d", "coordinates"), [(3, 1), (3, 2), (8, 1), (8, 4), (50, 2), (50, 8)])
def test_ceilings_are_too_low_with_probability_delta_at_most(d: int, coordinates: int) -> None:
    """End to end, over rotations: rounding of lookup tables and of float32 included."""
    delta, rng = 0.019, np.random.default_rng(d)
    rows = np.concatenate([rng.normal(size=(60, d)), np.eye(d), 1e-3 * np.eye(d), np.ones((3, d))]).astype(np.float32)
    theta = rng.normal(size=d).astype(np.float32)
    logits = rows.astype(np.float64) @ theta.astype(np.float64)
    features, cell_of = Features.of(rows), np.arange(len(rows)) % 2
    means = np.stack([rows[cell_of == c].mean(axis=0) for c in (0, 1)])
    too_low, trials = np.zeros(len(rows)), 400
    for seed in range(trials):
        coder = Coder(haar_rotation(d, rng), codebook(coordinates))
        index = PartitionIndex(*code_rows(features, means, cell_of, coder))
        run, _ = index.enter(theta, 1.0, delta=delta, seed=seed)
        ceilings = np.full(len(rows), np.nan)
        run.race.state[2] = run.ceilings.shift
        kernels.all_ceilings(run, ceilings)
        too_low[index.order] += logits[index.order] > ceilings * np.log(2.0)
    assert stats.binom.sf(too_low.max() - 1, trials, delta) > 1e-4 / len(rows)
    assert too_low.sum() <= delta * trials * len(rows)


def test_rotations_are_rotations_and_uniform() -> None:
    rng = np.random.default_rng(0)
    found = np.array([haar_rotation(5, rng).astype(np.float64) for _ in range(2000)])
    np.testing.assert_allclose(found @ found.transpose(0, 2, 1), np.broadcast_to(np.eye(5), found.shape), atol=1e-6)
    entries = stats.beta(2, 2, loc=-1, scale=2)  # of a uniform point on the sphere in 5 dimensions
    assert stats.kstest(found[:, 0, 0], entries.cdf).pvalue > 1e-3
    assert stats.kstest(found[:, 4, 4], entries.cdf).pvalue > 1e-3
    assert stats.kstest(np.abs(found[:, 4, 4]), entries.cdf).pvalue < 1e-6  # without signs of its own it would fail
