"""The coordinates of codes: the same model, better codes for thetas unlike rows."""

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.indexes.partition.basis import LARGEST_STRETCH, choose_basis
from statistics_helpers import chi_square_p, make_rows

D = 32


def unlike(seed, n=6_000):
    """Rows that vary most where thetas are shortest, with thetas to fit by and others."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(D, D)))
    spread = np.geomspace(1, 0.02, D)
    rows = (rng.normal(size=(n, D)) * spread) @ turned
    thetas = (rng.normal(size=(2_000, D)) * spread[::-1] * 40) @ turned
    return rows, thetas[::2], thetas[1::2]


def product(rows, thetas):
    """What the errors of codes are proportional to, squared."""
    return float((thetas**2).sum(axis=1).mean() * (rows**2).sum(axis=1).mean())


def test_errors_of_codes_get_as_small_as_any_basis_makes_them():
    rows, fitted, thetas = unlike(1)
    basis = choose_basis(rows, fitted)
    before, after = product(rows, thetas), product(rows @ np.linalg.inv(basis), thetas @ basis)
    left, right = np.linalg.cholesky(thetas.T @ thetas / len(thetas)), rows / len(rows) ** 0.5
    least = np.linalg.svd(right @ left, compute_uv=False).sum() ** 2  # by Cauchy and Schwarz, over all bases
    assert least * 0.999 < after < 1.3 * least < before / 5
    # Where rows and thetas are alike in all directions there is nothing to gain, and next to nothing is lost.
    rng = np.random.default_rng(2)
    same = rng.normal(size=(5_000, D)), rng.normal(size=(500, D))
    nothing = choose_basis(*same)
    assert product(same[0] @ np.linalg.inv(nothing), same[1] @ nothing) == pytest.approx(product(*same), rel=0.03)


@pytest.mark.parametrize("thetas", [np.zeros((3, D)), np.ones((1, D)), 1e30 * np.eye(D)[:2], 1e-30 * np.eye(D)])
@pytest.mark.parametrize("rows", [np.zeros((5, D)), np.eye(D)[:1] * 1e20, np.geomspace(1e-12, 1e12, D) * np.eye(D)])
def test_a_basis_is_symmetric_and_stretches_no_vector_too_much(rows, thetas):
    basis = choose_basis(rows, thetas)
    values = np.linalg.eigvalsh(basis)
    np.testing.assert_allclose(basis, basis.T, atol=1e-9 * values.max())
    assert 0 < values.max() <= LARGEST_STRETCH * values.min() * (1 + 1e-9)
    assert basis.shape == (D, D) and np.isfinite(basis).all()


def test_draws_are_of_the_rows_as_they_are_and_codes_tell_more():
    rows, fitted, thetas = (array.astype(np.float32) for array in unlike(3))
    build = lg.PartitionIndex.build
    plain = build(rows, coordinates=(4, 4), rng=0)
    index = build(rows, coordinates=(4, 4), thetas=fitted, rng=0)
    theta = thetas[0]
    logits = rows.astype(np.float64) @ theta
    exact = np.exp(logits - logits.max())
    exact /= exact.sum()
    drawn = lg.LogLinear(index)(theta).sample(50_000, rng=0)
    assert drawn.label == "bounded" and chi_square_p(drawn.ids, exact) > 1e-3
    mean = lg.LogLinear(index)(theta).expectation(rel_err=0.002, rng=0)
    assert (np.abs(mean.value - exact @ rows) < 5 * mean.stderr + 1e-6).all()
    # What a code leaves open of a logit, by the same number of bits.
    before, after = (
        one.typical_width * np.linalg.norm(thetas @ one.coder.turn_thetas.T, axis=1).mean() for one in (plain, index)
    )
    assert after < before / 2, (before, after)
    # Thetas that it was not made for have more left open, and the same law.
    other = make_rows(1, D, seed=4)[0] * np.float32(3)
    exact = np.exp(rows.astype(np.float64) @ other)
    drawn = lg.LogLinear(index)(other).sample(50_000, rng=1)
    assert drawn.label == "bounded" and chi_square_p(drawn.ids, exact / exact.sum()) > 1e-3
