"""The law of the sketch's error, by simulation over rotations: for every row and theta, whatever the code."""

from collections.abc import Iterator
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
import pytest
from scipy import integrate, stats

from kernel_helpers import stretched
from lazygumbel import Bounded, Features, LogLinear, PartitionIndex, kernels
from lazygumbel._support.threads import one_blas_thread
from lazygumbel.indexes.partition.build import Assigned, code_rows
from lazygumbel.indexes.partition.codebook import COORDINATES, codebook, distortion, relative_error
from lazygumbel.indexes.partition.law import LEAST_QUANTILE, error_quantile, error_tail
from lazygumbel.indexes.partition.sketch import Coder, haar_rotation
from lazygumbel.kernels.types import DEVIATIONS as GRID
from lazygumbel.kernels.types import FULL, SHORT, Asked, Run

ROTATIONS = 200
PAIRS = (1, 1), (2, 4), (6, 3), (8, 8), (16, 16), (24, 24)
DEVIATIONS = 0.05, 0.5, 2.0, 8.0


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Matrices are so small that a second thread only waits for the first."""
    with one_blas_thread():
        yield


def law_of(d: int) -> stats.rv_continuous:
    """Of the standardised error: sqrt(d - 1) times a coordinate of a random point on the sphere in d - 1 dimensions."""
    return stats.beta((d - 2) / 2, (d - 2) / 2, loc=-np.sqrt(d - 1), scale=2 * np.sqrt(d - 1))


@pytest.mark.parametrize("d", [2, 3, 4, 8, 50, 128, 4096])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0, 2.0, 3.5, 4.5])
def test_the_tail_is_that_of_a_coordinate_on_the_sphere(d: int, quantile: float) -> None:
    x = quantile / np.sqrt(d - 1)
    if d == 2:
        expected = 0.5 if x < 1 else 0.0
    else:
        expected = stats.beta.sf((1 + x) / 2, (d - 2) / 2, (d - 2) / 2) if x < 1 else 0.0
    np.testing.assert_allclose(error_tail(quantile, d), expected, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("d", [2, 3, 4, 8, 50, 128, 4096])
@pytest.mark.parametrize("quantile", [0.0, 1.0, 2.0, 3.5])
@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_the_loss_of_mass_is_the_mean_that_it_claims_to_be(d: int, quantile: float, deviation: float) -> None:
    largest = sqrt(d - 1)

    def lost(x: float) -> float:
        return -np.expm1(-deviation * max(x - quantile, 0.0))

    if d == 2:
        expected = lost(1.0) / 2
    elif quantile >= largest:
        expected = 0.0
    else:  # by angles, in which the density has no poles
        norm = integrate.quad(lambda a: np.cos(a) ** (d - 3), -np.pi / 2, np.pi / 2, points=[0.0], epsabs=0)[0]
        high = min(np.pi / 2, np.arcsin(quantile / largest) + 40 / sqrt(d))
        mass = integrate.quad(
            lambda a: np.cos(a) ** (d - 3) * lost(largest * np.sin(a)), np.arcsin(quantile / largest), high, epsabs=0
        )[0]
        expected = mass / norm
    found = error_tail(quantile, d, deviation)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-300)
    assert found <= error_tail(quantile, d)  # less than all of it is lost


@pytest.mark.parametrize("d", [1, 2, 3, 4, 8, 50, 128, 4096])
@pytest.mark.parametrize("delta", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("deviation", [*DEVIATIONS, inf])
def test_the_quantile_loses_delta_at_most(d: int, delta: float, deviation: float) -> None:
    quantile = error_quantile(delta, d, deviation)
    assert error_tail(quantile, d, deviation) <= delta and LEAST_QUANTILE <= quantile <= error_quantile(delta, d)
    # And no larger than it has to be.
    assert quantile == LEAST_QUANTILE or error_tail(quantile * 0.999, d, deviation) > delta


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_codebooks_have_the_error_that_costs_are_reckoned_with(coordinates: int) -> None:
    rotated = np.random.default_rng(1).normal(size=(20_000, coordinates))
    words = codebook(coordinates).astype(np.float64)
    nearest = words[(rotated @ words.T - (words**2).sum(axis=1) / 2).argmax(axis=1)]
    left = float(np.square(rotated - nearest).mean())
    np.testing.assert_allclose(relative_error(left), relative_error(distortion(coordinates)), rtol=0.03)
    others = [relative_error(distortion(c)) for c in COORDINATES if c != coordinates]
    assert not np.isclose(relative_error(left), others, rtol=0.03).any()  # a control


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


def words_of(coder: Coder, codes: np.ndarray) -> np.ndarray:
    """The codewords of rows, end to end, by the first part of their codes and by all, (2, m, d)."""
    d, (first, _) = len(coder.turn_rows), coder.parts
    parts = []
    for words, held in ((coder.first, codes[:, :first]), (coder.second, codes[:, first:])):
        runs = -(-d // words.shape[1])
        parts.append(words.astype(np.float64)[held[:, :runs]].reshape(len(codes), -1)[:, :d])
    return np.cumsum(parts, axis=0)


def errors(placed: Placed, coder: Coder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each pair, by the first part of codes and by all, (2, m): y - estimate; its standard deviation by the law,
    exactly, nan where the code was of no use; and that by the widths of the sketch."""
    # What follows is in the coordinates of codes; there inner products are what they were.
    turns = coder.turn_rows.astype(np.float64), coder.turn_thetas.astype(np.float64)
    residuals, thetas = (array.astype(np.float64) @ turn.T for array, turn in zip(placed, turns, strict=True))
    plain = np.einsum("md,md->m", *(array.astype(np.float64) for array in placed))
    lengths = np.linalg.norm(residuals, axis=1) * np.linalg.norm(thetas, axis=1)
    assert (np.abs(plain - np.einsum("md,md->m", residuals, thetas)) < 1e-5 * lengths).all()
    d = residuals.shape[1]
    encoded, longest = coder.encode(placed.residuals)
    words, gains, widths = words_of(coder, encoded.codes), encoded.gains.T, encoded.widths.T.astype(np.float64)
    assert np.linalg.norm(words, axis=2).max() <= longest * (1 + 1e-6)
    estimate = gains * np.einsum("pmd,md->pm", words, thetas)
    norms = np.linalg.norm(residuals, axis=1)
    rotated = residuals / norms[:, None]
    cosines = np.einsum("pmd,md->pm", words, rotated)
    sines = np.linalg.norm(words - cosines[:, :, None] * rotated, axis=2)
    along = np.einsum("md,md->m", residuals, thetas) / norms
    across = np.linalg.norm(thetas - (along / norms)[:, None] * residuals, axis=1) / np.sqrt(d - 1)
    exact = norms * sines / cosines * across
    return norms * along - estimate, np.where(gains > 0, exact, np.nan), widths * across


@pytest.mark.parametrize("coordinates", PAIRS)
@pytest.mark.parametrize("d", [3, 8, 50, 128])
def test_the_error_has_its_exact_law(d: int, coordinates: tuple[int, int]) -> None:
    """Over rotations, for adversarial rows, by the first part of codes and by all: Kolmogorov; the rate at which
    ceilings are too low; and what is lost of the mass of a row. In the basis of the rows, and in others."""
    placed, rng, law = Placed.adversarially(d), np.random.default_rng(10 * d + coordinates[0]), law_of(d)
    basis = np.eye(d) if coordinates == PAIRS[0] else stretched(d)
    found = [errors(placed, Coder.of(basis, coordinates, rng)) for _ in range(ROTATIONS)]
    error, exact, claimed = np.stack(found, axis=1)
    assert (claimed[~np.isnan(exact)] >= exact[~np.isnan(exact)]).all()
    for part in range(2):
        useful = ~np.isnan(exact[:, part])
        assert useful.mean() > 0.9
        for row in range(len(placed.residuals)):
            column = (error[:, part, row] / exact[:, part, row])[useful[:, row]]
            assert stats.kstest(column, law.cdf).pvalue > 1e-4
            assert stats.kstest(2 * column + 0.5, law.cdf).pvalue < 1e-4  # a control
        standardised = error[:, part] / claimed[:, part]
        for delta in (0.02, 0.1):
            exceeded = (standardised > law.isf(delta)).sum()
            assert stats.binom.sf(exceeded - 1, standardised.size, delta) > 1e-4
        for deviation in (0.5, 2.0):
            for quantile in (0.0, 1.0):
                lost = -np.expm1(-deviation * np.maximum(standardised - quantile, 0.0))
                stderr = lost.std() / np.sqrt(lost.size)
                assert lost.mean() < error_tail(quantile, d, deviation) + 4 * stderr
                assert lost.mean() > error_tail(quantile + 0.5, d, deviation) + 4 * stderr  # a control


@pytest.mark.parametrize("coordinates", [(1, 1), (2, 4), (6, 3)])
@pytest.mark.parametrize("part", [0, 1])
def test_a_rotation_that_is_aligned_with_the_data_breaks_the_law(coordinates: tuple[int, int], part: int) -> None:
    """The control: the same test with a fixed rotation, and thetas along what its code leaves over."""
    d = 50
    rng = np.random.default_rng(0)
    nothing = np.eye(d, dtype=np.float32)
    aligned = Coder.of(np.eye(d), coordinates, rng)._replace(turn_rows=nothing, turn_thetas=nothing)
    residuals = np.abs(rng.normal(size=(ROTATIONS, d))).astype(np.float32)  # all on one side of every coordinate
    words, exact = words_of(aligned, aligned.encode(residuals)[0].codes)[part], residuals.astype(np.float64)
    off = exact / np.linalg.norm(exact, axis=1, keepdims=True) - words / np.linalg.norm(words, axis=1, keepdims=True)
    error, deviation, _ = errors(Placed(residuals, off.astype(np.float32)), aligned)
    standardised = (error / deviation)[part]
    assert stats.kstest(standardised, law_of(d).cdf).pvalue < 1e-6
    assert (standardised > error_quantile(0.01, d)).mean() > 0.1


class Scene(NamedTuple):
    """Rows of two cells and a theta, coded anew with each rotation."""

    rows: np.ndarray
    theta: np.ndarray

    @classmethod
    def of(cls, d: int) -> "Scene":
        rng = np.random.default_rng(d)
        some = rng.normal(size=(60, d)), np.eye(d), 1e-3 * np.eye(d), np.ones((3, d)), 5 * rng.normal(size=(5, d))
        return cls(np.concatenate(some).astype(np.float32), rng.normal(size=d).astype(np.float32))

    @property
    def logits(self) -> np.ndarray:
        return self.rows.astype(np.float64) @ self.theta.astype(np.float64)

    def index(self, coordinates: tuple[int, int], rng: np.random.Generator) -> PartitionIndex:
        cell_of = np.arange(len(self.rows)) % 2
        means = np.stack([self.rows[cell_of == c].mean(axis=0) for c in (0, 1)])
        coder = Coder.of(stretched(self.rows.shape[1]), coordinates, rng)
        return PartitionIndex(*code_rows(Assigned(Features.of(self.rows), means, cell_of), coder, rng))


def ceilings_of(index: PartitionIndex, theta: np.ndarray, asked: Asked, level: int, seed: int) -> np.ndarray:
    """Of all rows, by id, in nats; scanned at a higher temperature if the ceilings of this one are out of range."""
    limits = (-inf, inf, inf) if level == SHORT else (-inf, -inf, inf)
    asked, number = asked._replace(limits=limits), np.uint64(seed)
    _, _, outlook = kernels.prepare(index._coded, theta, asked, 1.0, number)
    power = max(1.0, (outlook.high - outlook.low) / 100.0)
    facts, ceilings, outlook = kernels.prepare(index._coded, theta, asked, power, number)
    assert set(ceilings.levels.tolist()) == {level}
    with index.workspace() as race:
        kernels.open_race(index.stored, np.empty(0, dtype=np.int64), race)
    run = Run(index.coding.sketch, index.rows, facts, ceilings, race)
    kernels.scan(run, 0, len(run.race.sums))
    kernels.set_reference(run, outlook)
    by_position, found = np.empty((2, index.features.n))
    by_position.fill(np.inf)  # stays where a row weighs less than 2^-1000 of the best: rates are nothing there
    kernels.all_ceilings(run, by_position)
    found[index.order] = by_position * np.log(2.0)
    return found


@pytest.mark.parametrize("level", [SHORT, FULL])
@pytest.mark.parametrize(
    ("d", "coordinates"),
    [(3, (1, 1)), (3, (2, 4)), (8, (6, 3)), (8, (8, 8)), (50, (2, 4)), (50, (8, 8)), (50, (24, 24)), (128, (16, 16))],
)
def test_ceilings_by_codes_are_too_low_with_the_probability_of_their_quantile_at_most(
    d: int, coordinates: tuple[int, int], level: int
) -> None:
    """Over rotations and tables: rounding of tables, of fixed point and of float32 included."""
    scene, rng, trials, delta = Scene.of(d), np.random.default_rng(d), 150, 0.019
    spread = relative_error(distortion(coordinates[0]) * (distortion(coordinates[1]) if level == FULL else 1.0))
    norm = float(np.linalg.norm(scene.theta.astype(np.float64)))
    temperature = 0.5 * norm * spread  # errors of a few nats
    too_low, too_low_without, lost = np.zeros((3, len(scene.rows)))
    logits = scene.logits / temperature
    scale, rounding = float(1 / (np.log(2.0) * temperature)), sqrt(-log(0.1 * delta) / 6)
    allowed = 0.0
    for seed in range(trials):
        index = scene.index(coordinates, rng)
        turned = float(np.linalg.norm(index.coder.turn_thetas @ scene.theta))
        deviation = turned / temperature / sqrt(d - 1) * index.widest[level - SHORT]
        quantile = error_quantile(0.9 * delta, d, deviation)
        allowed = max(allowed, error_tail(quantile, d) + 0.1 * delta)
        limits, everything = (inf, inf, inf), np.array([[-inf] * 3, [inf] * 3])
        asked = Asked(scale, np.full(GRID, quantile), rounding, 0.0, 0.0, 0.0, 0.0, (inf, inf), limits, everything)
        ceilings = ceilings_of(index, scene.theta, asked, level, seed)
        too_low += logits > ceilings
        lost += -np.expm1(np.minimum(ceilings - logits, 0.0))
        without = asked._replace(quantiles=np.zeros(GRID), rounding=0.0)
        too_low_without += logits > ceilings_of(index, scene.theta, without, level, seed)
    assert stats.binom.sf(too_low.max() - 1, trials, allowed) > 1e-4 / len(scene.rows)
    assert too_low.sum() <= allowed * trials * len(scene.rows)
    assert lost.sum() <= delta * trials * len(scene.rows)
    # A control, where errors are not lost in the rounding of a scan at so high a temperature.
    assert spread < 0.05 or too_low_without.sum() > 2 * allowed * trials * len(scene.rows)


@pytest.mark.parametrize(("d", "coordinates"), [(3, (1, 1)), (3, (2, 4)), (8, (6, 3)), (50, (2, 4)), (50, (8, 8))])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_what_is_lost_of_z_is_delta_at_most(d: int, coordinates: tuple[int, int], temperature: float) -> None:
    """End to end, over rotations: the ceilings that draws have, of whatever levels they choose."""
    scene, rng, trials, method = Scene.of(d), np.random.default_rng(d), 150, Bounded(delta=0.019)
    logits = scene.logits / temperature
    weights = np.exp(logits - np.logaddexp.reduce(logits))
    lost, too_low = np.zeros(trials), np.zeros(len(scene.rows))
    for seed in range(trials):
        index = scene.index(coordinates, rng)
        ceilings = method.ceilings(LogLinear(index)(scene.theta, temperature=temperature)._query_all, seed)
        lost[seed] = weights @ -np.expm1(np.minimum(ceilings - logits, 0.0))
        too_low += logits > ceilings
    assert lost.mean() <= method.delta
    allowed = error_tail(LEAST_QUANTILE, d) + 0.1 * method.delta
    assert stats.binom.sf(too_low.max() - 1, trials, allowed) > 1e-4 / len(scene.rows)


def test_rotations_are_rotations_and_uniform() -> None:
    rng = np.random.default_rng(0)
    found = np.array([haar_rotation(5, rng).astype(np.float64) for _ in range(2000)])
    np.testing.assert_allclose(found @ found.transpose(0, 2, 1), np.broadcast_to(np.eye(5), found.shape), atol=1e-6)
    entries = stats.beta(2, 2, loc=-1, scale=2)  # of a uniform point on the sphere in 5 dimensions
    assert stats.kstest(found[:, 0, 0], entries.cdf).pvalue > 1e-3
    assert stats.kstest(found[:, 4, 4], entries.cdf).pvalue > 1e-3
    assert stats.kstest(np.abs(found[:, 4, 4]), entries.cdf).pvalue < 1e-6  # without signs of its own it would fail
