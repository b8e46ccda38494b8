"""`Basis`: other coordinates, the same model, better codes."""

import numpy as np
import pytest

import lazygumbel as lg
from statistics_helpers import chi_square_p, make_rows

D = 32


def unlike(seed, n=6_000):
    """Rows that vary most where thetas are shortest, with thetas to fit by and others."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(D, D)))
    spread = np.geomspace(1, 0.02, D)
    rows = ((rng.normal(size=(n, D)) * spread) @ turned).astype(np.float32)
    thetas = ((rng.normal(size=(2_000, D)) * spread[::-1] * 40) @ turned).astype(np.float32)
    return rows, thetas[::2], thetas[1::2]


def product(rows, thetas):
    """What the errors of codes are proportional to, squared."""
    rows = rows - rows.mean(axis=0)
    return float(
        (thetas.astype(np.float64) ** 2).sum(axis=1).mean() * (rows.astype(np.float64) ** 2).sum(axis=1).mean()
    )


def test_inner_products_stay_and_names_too():
    rows, fitted, thetas = unlike(0)
    basis = lg.Basis.between(rows, fitted)
    names = [f"row {i}" for i in range(len(rows))]
    moved = basis.rows(lg.Features.of(rows, names=names))
    assert moved.names is not None and moved.names[7] == "row 7" and moved.d == basis.d == D
    changed = moved.gather(np.arange(len(rows)))
    logits = basis.thetas(thetas).astype(np.float64) @ changed.T.astype(np.float64)
    exact = thetas.astype(np.float64) @ rows.T.astype(np.float64)
    assert np.abs(logits - exact).max() < 1e-5 * np.linalg.norm(thetas, axis=1).max()
    assert np.array_equal(basis.thetas(thetas[0]), basis.thetas(thetas[:1])[0]) and basis.thetas(thetas[0]).shape == (
        D,
    )
    assert np.allclose(basis.back(changed), rows, atol=1e-4)
    again = lg.Basis(basis.matrix)
    assert np.array_equal(again.thetas(thetas), basis.thetas(thetas)) and repr(again) == "Basis(d=32)"


def test_errors_of_codes_get_as_small_as_any_basis_makes_them():
    rows, fitted, thetas = unlike(1)
    basis = lg.Basis.between(rows, fitted)
    before = product(rows, thetas)
    after = product(basis.rows(rows).stored, basis.thetas(thetas))
    centred = rows.astype(np.float64) - rows.mean(axis=0)
    left, right = np.linalg.cholesky(thetas.T.astype(np.float64) @ thetas / len(thetas)), centred / len(rows) ** 0.5
    least = np.linalg.svd(right @ left, compute_uv=False).sum() ** 2  # by Cauchy and Schwarz, over all bases
    assert least * 0.999 < after < 1.3 * least < before / 5
    # Where rows and thetas are alike in all directions there is nothing to gain, and next to nothing is lost.
    rng = np.random.default_rng(2)
    same = rng.normal(size=(5_000, D)).astype(np.float32), rng.normal(size=(500, D)).astype(np.float32)
    nothing = lg.Basis.between(*same)
    assert product(nothing.rows(same[0]).stored, nothing.thetas(same[1])) == pytest.approx(product(*same), rel=0.03)


def test_the_law_is_that_of_the_rows_and_codes_tell_more():
    rows, fitted, thetas = unlike(3)
    basis = lg.Basis.between(rows, fitted)
    build = lg.PartitionIndex.build
    plain = lg.LogLinear(build(rows, coordinates=(4, 4), thetas=fitted, rng=0))
    model = lg.LogLinear(build(basis.rows(rows), coordinates=(4, 4), thetas=basis.thetas(fitted), rng=0))
    theta = thetas[0]
    logits = rows.astype(np.float64) @ theta
    exact = np.exp(logits - logits.max())
    exact /= exact.sum()
    drawn = model(basis.thetas(theta)).sample(50_000, rng=0)
    assert drawn.label == "bounded" and chi_square_p(drawn.ids, exact) > 1e-3
    assert chi_square_p(model(theta).sample(50_000, rng=0).ids, exact) < 1e-6  # a theta that was forgotten to change
    mean = basis.back(model(basis.thetas(theta)).expectation(method=lg.Exhaustive()).value)
    assert np.allclose(mean, exact @ rows, atol=1e-4)
    # What a code leaves open of a logit, by the same number of bits.
    before, after = (
        one.index.typical_width * np.linalg.norm(some, axis=1).mean()
        for one, some in ((plain, thetas), (model, basis.thetas(thetas)))
    )
    assert after < before / 2, (before, after)


def test_few_thetas_and_degenerate_rows_will_do():
    rows = make_rows(400, 6, seed=1)
    rows[:, 2], rows[:, 4] = 1.0, 0.0  # a column of biases, and one that says nothing
    for thetas in (make_rows(1, 6, seed=2)[0], make_rows(3, 6, seed=3)):
        basis = lg.Basis.between(rows, thetas)
        moved = basis.rows(rows).stored
        assert np.allclose(basis.thetas(thetas) @ moved.T, thetas @ rows.T, atol=1e-4)
    constant = lg.Basis.between(np.ones((5, 6)), make_rows(3, 6, seed=3))
    assert np.isfinite(constant.rows(np.ones((5, 6))).stored).all()


def test_what_cannot_be_is_refused():
    rows = make_rows(50, 4, seed=1)
    with pytest.raises(ValueError, match="thetas has 3 columns"):
        lg.Basis.between(rows, np.ones((5, 3)))
    with pytest.raises(ValueError, match="thetas must not all be zero"):
        lg.Basis.between(rows, np.zeros((5, 4)))
    basis = lg.Basis.between(rows, rows)
    with pytest.raises(ValueError, match="rows has 3 columns, but the basis has d = 4"):
        basis.rows(np.ones((5, 3)))
    with pytest.raises(ValueError, match="thetas has 3 columns"):
        basis.thetas(np.ones(3))
    for matrix, wrong in (
        (np.ones((2, 3)), r"shape \(d, d\)"),
        (np.ones((3, 3)), "inverted"),
        (np.eye(2) * np.nan, "inv"),
    ):
        with pytest.raises(ValueError, match=wrong):
            lg.Basis(matrix)
