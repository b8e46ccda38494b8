"""`fit`: gradients, the optimum, bad input."""

from dataclasses import dataclass

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.learning import Anchored, Diverged
from learning_helpers import IDS, SHORT, D, N, gradient, log_likelihood, model, optimum, rows
from statistics_helpers import make_rows


class TestGradient:
    """The first step is learning_rate times the gradient, so any fit of one step shows it."""

    @pytest.mark.parametrize("method", [lg.Exhaustive(), Anchored()])
    @pytest.mark.parametrize("temperature", [1.0, 0.3])
    @pytest.mark.parametrize("l2", [0.0, 0.7])
    def test_it_is_the_slope_of_the_exact_objective(self, method, temperature, l2):
        theta = np.random.default_rng(1).normal(size=D)
        theta = theta.astype(np.float32).astype(np.float64)  # as the rows see it
        weights = np.random.default_rng(2).random(len(IDS))
        options = {"weights": weights, "temperature": temperature, "l2": l2, "theta0": theta, "method": method}
        found = lg.fit(model(), IDS, iterations=1, learning_rate=0.01, **options)

        def objective(t: np.ndarray) -> float:
            return log_likelihood(t, weights, temperature) - l2 / 2 * t @ t

        slope = (found.theta - theta) / 0.01
        assert np.allclose(slope, gradient(objective, theta), atol=2e-6)
        assert found.history.gradient_norm[0] == pytest.approx(np.linalg.norm(slope), rel=1e-9)
        assert not np.allclose(slope, gradient(log_likelihood, theta), atol=2e-2), "weights and the rest change nothing"

    def test_the_recorded_log_likelihood_is_exact(self):
        weights = np.arange(1, 17)
        options = {"weights": weights, "temperature": 0.5, "l2": 0.1, "method": lg.TopKOnly(50)}
        found = lg.fit(model(), IDS, iterations=20, learning_rate=0.1, **options)
        assert found.log_likelihood == found.history.log_likelihood[-1]
        assert found.log_likelihood == pytest.approx(log_likelihood(found.theta, weights, 0.5), abs=1e-5)
        assert found.history.log_likelihood[0] == pytest.approx(-np.log(N), abs=1e-5)

    def test_weights_are_repetitions(self):
        repeats = np.arange(16) % 3
        weighted = lg.fit(model(), IDS, weights=repeats, method=lg.Exhaustive(), iterations=30)
        repeated = lg.fit(model(), np.repeat(IDS, repeats), method=lg.Exhaustive(), iterations=30)
        assert np.allclose(weighted.theta, repeated.theta, atol=1e-5)
        plain = lg.fit(model(), IDS, method=lg.Exhaustive(), iterations=30)
        assert not np.allclose(weighted.theta, plain.theta, atol=0.1)


class TestOptimum:
    def test_the_penalty_ends_where_it_balances_the_gradient(self):
        found = lg.fit(
            model(), IDS, l2=0.05, temperature=0.5, method=lg.Exhaustive(), learning_rate=1.0, iterations=300
        )
        mean = rows()[IDS].astype(np.float64).mean(axis=0)
        expected = model()(found.theta, temperature=0.5).expectation(method=lg.Exhaustive()).value
        assert np.allclose(found.theta, (mean - expected) / 0.5 / 0.05, atol=1e-4)
        assert np.linalg.norm(found.theta) > 1, "there is nothing to balance"

    @pytest.mark.parametrize(
        ("method", "gap", "share"),
        [
            (lg.Exhaustive(), 1e-6, 1.0),
            (Anchored(), 1e-5, 0.15),
            (Anchored(size=200, reach=1.0), 1e-4, 0.1),
            (lg.Bounded(rel_err=0.05), 0.002, 0.3),
            (lg.UniformTail(k=150, l=600), 0.002, 0.45),
        ],
        ids=str,
    )
    def test_every_method_that_sees_the_tail_gets_there(self, method, gap, share):
        found = lg.fit(model(), IDS, method=method, rng=3, **SHORT)
        assert optimum() - gap < found.log_likelihood < optimum() + 1e-5, "seed 3"
        assert found.rows <= share * N * SHORT["iterations"]

    def test_the_top_rows_alone_do_not(self):
        found = lg.fit(model(), IDS, method=lg.TopKOnly(100), **SHORT)
        assert found.log_likelihood < optimum() - 0.1

    @pytest.mark.parametrize("temperature", [1.0, 0.2])
    def test_the_default(self, temperature):
        rate = SHORT["learning_rate"] * temperature**2
        found = lg.fit(model(), IDS, temperature=temperature, rng=3, **SHORT | {"learning_rate": rate})
        assert optimum() - 1e-5 < found.log_likelihood < optimum() + 1e-5


class TestAnchored:
    def slopes(self, method: Anchored, seeds: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Gradients a given distance from an anchor, one for each seed, and the exact one there."""
        theta = 3.0 * rows()[7].astype(np.float64)
        first = lg.fit(model(), IDS, theta0=theta, iterations=1, learning_rate=1.0).theta - theta
        rate = distance / np.linalg.norm(first)  # the first step leads from the anchor, exactly, to this distance
        options = {"theta0": theta, "iterations": 2, "learning_rate": rate, "halve_every": None}
        found = [lg.fit(model(), IDS, method=method, rng=seed, **options).theta for seed in range(seeds)]
        here = theta + rate * first
        return (np.array(found) - here) / rate, gradient(log_likelihood, here)

    def test_estimates_scatter_about_the_truth(self):
        found, exact = self.slopes(Anchored(size=100), seeds=200, distance=0.5)
        error = found.mean(axis=0) - exact
        assert found.std(axis=0).min() > 1e-4, "nothing was random"
        # The ratio's bias is of the order of one over the size; the mean must be right to well below one run's error.
        assert np.linalg.norm(error) < 0.3 * np.sqrt(found.var(axis=0).sum())

    def test_the_error_falls_with_the_size_and_the_distance(self):
        def error(size: int, distance: float) -> float:
            found, exact = self.slopes(Anchored(size=size), seeds=20, distance=distance)
            return float(np.sqrt(((found - exact) ** 2).sum(axis=1).mean()))

        reference = error(100, 1.0)
        assert error(1600, 1.0) < reference / 3
        assert error(100, 0.1) < reference / 5

    def test_without_reach_every_step_is_exact(self):
        exact = lg.fit(model(), IDS, method=lg.Exhaustive(), iterations=40)
        found = lg.fit(model(), IDS, method=Anchored(size=10, reach=0.0), iterations=40)
        assert np.allclose(found.theta, exact.theta, atol=1e-9) and found.rows == exact.rows

    def test_over_a_partition_an_anchor_scores_few_rows(self):
        """The first steps are long, each with an anchor of its own: of all rows, they would be most of a short run."""
        held = make_rows(60_000, 4, varied=True, seed=3)
        exact, coded = (lg.LogLinear(build(held)) for build in (lg.ExactIndex.build, lg.PartitionIndex.build))
        ids, options = np.arange(16), {"iterations": 12, "learning_rate": 1.0, "l2": 0.1}
        dense = lg.fit(exact, ids, method=Anchored(reach=0.0), **options)
        found = [lg.fit(coded, ids, method=Anchored(reach=0.0), rng=seed, **options) for seed in range(8)]
        assert dense.rows == 12 * 60_000
        assert all(12 * 2_000 <= one.rows < 0.05 * dense.rows for one in found)
        assert all(abs(one.log_likelihood - dense.log_likelihood) < 0.002 for one in found)
        off = np.array([one.theta - dense.theta for one in found])
        assert np.linalg.norm(off.mean(axis=0)) < 3 * np.sqrt(off.var(axis=0, ddof=1).sum() / 8), "seeds 0 to 7"
        assert off.std(axis=0).min() > 0, "nothing was random"

    def test_an_anchor_that_is_never_renewed_does_not_do(self):
        with pytest.raises(Diverged):  # it runs away to rows that the sample lacks
            lg.fit(model(), IDS, method=Anchored(size=50, reach=1e9), rng=0, **SHORT)

    def test_the_reach_is_in_logits(self):
        """Rows ten times as long, or a temperature ten times as low, and steps to match: the same anchors."""
        plain = lg.fit(model(), IDS, rng=0, **SHORT)
        longer = lg.LogLinear.build(10 * rows())
        scaled = lg.fit(longer, IDS, rng=0, **SHORT | {"learning_rate": SHORT["learning_rate"] / 100})
        cold = lg.fit(model(), IDS, rng=0, temperature=0.1, **SHORT | {"learning_rate": SHORT["learning_rate"] / 100})
        assert np.allclose(cold.theta, plain.theta / 10, atol=3e-3)
        assert cold.rows == pytest.approx(plain.rows, rel=0.25)
        assert scaled.rows == pytest.approx(plain.rows, rel=0.25)
        further = lg.fit(model(), IDS, rng=0, method=Anchored(reach=20.0), **SHORT)
        assert further.rows != pytest.approx(plain.rows, rel=0.25), "the reach makes no difference"

    @pytest.mark.parametrize(("option", "value"), [("size", 0), ("size", 2.5), ("reach", -1.0), ("reach", np.nan)])
    def test_bad_knobs_are_refused(self, option, value):
        with pytest.raises(ValueError, match=option):
            Anchored(**{option: value})


class TestDivergence:
    def test_a_log_likelihood_that_collapses(self, tmp_path):
        """At a temperature of 0.02 a rate of 10 leaps over the optimum, ever further."""
        options = {"temperature": 0.02, "iterations": 100, "checkpoint_every": 1}
        with pytest.raises(Diverged, match=r"learning_rate: 10 is too high.*try 1") as stop:
            lg.fit(model(), IDS, checkpoint=tmp_path / "run", **options)
        good = stop.value.fit
        assert good.log_likelihood == good.history.log_likelihood[-1]
        assert good.log_likelihood == pytest.approx(log_likelihood(good.theta, None, 0.02), abs=1e-3)
        assert good.log_likelihood > -2 * np.log(N)
        with np.load(tmp_path / "run") as held:
            assert np.array_equal(held["theta"], good.theta)
        assert lg.fit(model(), IDS, learning_rate=10 * 0.02**2, **options).log_likelihood > optimum() - 0.1

    @pytest.mark.parametrize("method", [None, lg.Exhaustive(), lg.UniformTail(k=100, l=200)], ids=str)
    @pytest.mark.parametrize("rate", [1e60, 1e300])
    def test_a_theta_that_is_not_finite(self, method, rate):
        with pytest.raises(Diverged, match="logits overflow") as stop:
            lg.fit(model(), IDS, method=method, learning_rate=rate, iterations=100)
        good = stop.value.fit
        assert np.isfinite(good.theta).all() and good.history.iteration.tolist() == [0]
        assert isinstance(stop.value, ArithmeticError)

    @pytest.mark.parametrize("method", [None, lg.Exhaustive(), lg.UniformTail(k=100, l=200)], ids=str)
    def test_scores_beyond_float32(self, method):
        huge = lg.LogLinear.build(1e18 * rows())
        with pytest.raises(Diverged):
            lg.fit(huge, IDS, method=method, learning_rate=1e3, iterations=100)

    def test_a_look_that_sees_nothing_is_made_dense(self):
        found = lg.fit(model(), IDS, method=Blind(), iterations=20)
        exact = lg.fit(model(), IDS, method=lg.Exhaustive(), iterations=20)
        assert np.array_equal(found.theta, exact.theta)


@dataclass(frozen=True)
class Blind:
    """Looks at no row."""

    def moments(self, query, f, rng):
        seen = lg.TopKOnly(1).moments(query, f, rng)
        nothing = seen.moments
        assert nothing.weighted is not None
        nothing.total[:], nothing.weighted[:] = 0.0, 0.0
        return seen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ids": []}, "ids must be the ids of one or more rows"),
        ({"ids": [[1, 2]]}, "ids must be the ids"),
        ({"ids": 3}, "ids must be the ids"),
        ({"ids": [N]}, f"ids holds {N}"),
        ({"ids": [0.5]}, "ids must hold whole numbers"),
        ({"weights": [1.0]}, "weights must be real numbers of shape"),
        ({"weights": ["a"] * 16}, "weights must be real numbers"),
        ({"weights": [-1.0] + [1.0] * 15}, "none of them negative"),
        ({"weights": [0.0] * 16}, "not all of them zero"),
        ({"weights": [np.inf] * 16}, "weights must be finite"),
        ({"method": lg.Exhaustive}, "method"),
        ({"method": lg.LazyGumbel()}, "method"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"halve_every": 0}, "halve_every must be at least 1"),
        ({"iterations": -1}, "iterations must be at least 0"),
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"theta0": np.zeros(D + 1)}, "theta0 has 9 columns"),
        ({"theta0": np.zeros((1, D))}, "theta0 must have shape"),
        ({"theta0": np.full(D, np.nan)}, "theta0 holds NaN"),
        ({"tolerance": 0.0}, "tolerance must be greater than 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"rng": -1}, "non-negative"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        lg.fit(model(), **{"ids": IDS} | options)
