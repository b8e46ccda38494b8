"""The default method against the exact softmax: draws by chi-square, sums by their errors, at any scale."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from lazygumbel import Bounded, Exhaustive, LogLinear, PartitionIndex, TopKOnly, kernels
from lazygumbel.indexes.partition.cost import Effort
from lazygumbel.kernels.types import GAINS, VIOLATIONS, Sketch
from statistics_helpers import chi_square_p, logits_of, probabilities_of

N, D = 3000, 24
NORMS = "unit", "lognormal", "pareto"
TEMPERATURES = 0.02, 0.05, 1.0, 50.0


@cache
def rows_of(norms: str) -> np.ndarray:
    """Clustered directions with norms of a kind, typically one."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(30, D))[rng.integers(30, size=N)] + 0.7 * rng.normal(size=(N, D))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scales = {
        "unit": np.ones(N),
        "lognormal": rng.lognormal(sigma=0.35, size=N),
        "pareto": 0.2 * (1 + rng.pareto(1.5, N)),
    }
    return (rows * scales[norms][:, None]).astype(np.float32)


@cache
def model_of(norms: str) -> LogLinear:
    return LogLinear(PartitionIndex.build(rows_of(norms), cells=20, rng=1))


def with_sketch(norms: str, sketch: Sketch) -> PartitionIndex:
    """The index of these rows with another sketch."""
    built = model_of(norms).index
    assert isinstance(built, PartitionIndex)
    coding = built.coding._replace(sketch=sketch)
    return PartitionIndex(built.features, built.partition, built.coder, coding, built.bytes)


def theta_of(kind: str, norms: str) -> np.ndarray:
    rng = np.random.default_rng(8)
    if kind == "row":
        return rows_of(norms)[11]
    theta = rng.normal(size=D)
    return (theta / np.linalg.norm(theta) * (100.0 if kind == "norm 100" else 1.0)).astype(np.float32)


def draw(
    norms: str, theta: np.ndarray, temperature: float, size: int, **options: object
) -> tuple[np.ndarray, set[str]]:
    """Draws a hundred at a time, each with a scan of its own, so that none is answered by a dense pass."""
    dist = model_of(norms)(np.broadcast_to(theta, (size // 100, D)), temperature=temperature)
    drawn = dist.sample(100, **options)
    return drawn.ids, set(drawn.labels.tolist())


@pytest.mark.parametrize("kind", ["row", "no row", "norm 100"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("norms", NORMS)
def test_draws_follow_the_softmax(norms: str, temperature: float, kind: str) -> None:
    theta = theta_of(kind, norms)
    exact = probabilities_of(rows_of(norms), theta, temperature)
    ids, labels = draw(norms, theta, temperature, 200_000, rng=3)
    assert labels <= {"bounded", "exact"}
    if exact.max() * len(ids.reshape(-1)) > ids.size - 20:  # one row has it all: chi-square has nothing to compare
        assert (ids == exact.argmax()).mean() > 1 - 1e-3
        return
    assert chi_square_p(ids, exact) > 1e-4


@pytest.mark.parametrize("norms", NORMS)
def test_draws_without_the_tail_do_not(norms: str) -> None:
    """The control: the same test rejects the softmax over the top rows."""
    theta = theta_of("no row", norms)
    exact = probabilities_of(rows_of(norms), theta, 1.0)
    ids, _ = draw(norms, theta, 1.0, 200_000, rng=3, method=TopKOnly(N // 2))
    assert chi_square_p(ids, exact) < 1e-6


@pytest.mark.parametrize("norms", NORMS)
def test_most_races_are_bounded_and_score_few_rows(norms: str) -> None:
    thetas = np.random.default_rng(2).normal(size=(100, D)) / np.sqrt(D)
    drawn = model_of(norms)(thetas, temperature=0.2).sample(1, rng=0)
    assert (drawn.labels == "bounded").mean() > 0.9
    assert np.median(drawn.rows) < N / 10
    assert (drawn.bound[drawn.labels == "bounded"] == 1e-4).all() and (drawn.bound[drawn.labels == "exact"] == 0).all()


def test_values_are_gumbel_and_independent_of_ids() -> None:
    theta = theta_of("no row", "unit")
    logits = logits_of(rows_of("unit"), theta, 0.2)
    log_z = np.logaddexp.reduce(logits)
    drawn = model_of("unit")(np.broadcast_to(theta, (400, D)), temperature=0.2).sample(50, rng=4)
    waited = np.exp(-(drawn.values.reshape(-1) - log_z))
    assert stats.kstest(waited, "expon").pvalue > 1e-4
    assert stats.kstest(waited * 1.05, "expon").pvalue < 1e-3  # a control
    likely = logits[drawn.ids.reshape(-1)] > np.median(logits[drawn.ids])
    assert stats.ks_2samp(waited[likely], waited[~likely]).pvalue > 1e-4


@pytest.mark.parametrize("size", [2, 5])
def test_draws_without_replacement_are_plackett_luce(size: int) -> None:
    rows, theta, temperature = rows_of("lognormal"), theta_of("row", "lognormal"), 0.1
    exact = probabilities_of(rows, theta, temperature)
    dist = model_of("lognormal")(np.broadcast_to(theta, (40_000, D)), temperature=temperature)
    drawn = dist.sample_without_replacement(size, rng=6)
    assert set(drawn.labels.tolist()) <= {"bounded", "exact"} and (drawn.labels == "bounded").any()
    assert chi_square_p(drawn.ids[0], exact) > 1e-4
    first = int(exact.argmax())
    others = np.where(np.arange(N) == first, 0.0, exact)
    after = drawn.ids[1, drawn.ids[0] == first]
    assert chi_square_p(after, others / others.sum()) > 1e-4
    assert chi_square_p(drawn.ids[1], exact) < 1e-6  # a control: the second is not drawn like the first
    assert (np.diff(drawn.values, axis=0) < 0).all() and (drawn.values[-1] > drawn.threshold).all()


@pytest.mark.parametrize("share", [0.5, 0.999999])
def test_exclusion_of_the_mass_keeps_the_label_and_the_law(share: float) -> None:
    theta, temperature = theta_of("row", "unit"), 0.08
    exact = probabilities_of(rows_of("unit"), theta, temperature)
    order = np.argsort(-exact)
    seen = order[: 1 + int(np.searchsorted(np.cumsum(exact[order]), share))]
    left = probabilities_of(rows_of("unit"), theta, temperature, exclude=seen)
    ids, labels = draw("unit", theta, temperature, 50_000, rng=3, exclude=seen)
    assert labels <= {"bounded", "exact"} and not np.isin(ids, seen).any()
    assert chi_square_p(ids, left) > 1e-4
    dist = model_of("unit")(theta, temperature=temperature)
    estimates = [dist.log_partition(rng=seed, exclude=seen) for seed in range(30)]
    true = np.logaddexp.reduce(np.delete(logits_of(rows_of("unit"), theta, temperature), seen))
    z = [(float(e.value) - true) / max(float(e.stderr), 1e-6) for e in estimates]
    assert np.abs(z).max() < 5 and np.std(z) < 2


@pytest.mark.parametrize("norms", NORMS)
def test_standard_errors_of_log_z_are_honest(norms: str) -> None:
    """95% intervals cover 93 to 97%, on heavy tails too; hardly any estimate is off by four standard errors."""
    rng = np.random.default_rng(12)
    rows = np.concatenate([rows_of(norms) + 0.02 * rng.normal(size=(N, D)) for _ in range(8)]).astype(np.float32)
    thetas = (rng.normal(size=(2000, D)) / np.sqrt(D)).astype(np.float32)
    index = PartitionIndex.build(rows, coordinates=(8, 8), rng=1)
    found = LogLinear(index)(thetas, temperature=0.3).log_partition(rel_err=0.015, rng=7)
    logits = thetas.astype(np.float64) @ rows.T.astype(np.float64) / 0.3
    sampled = found.labels == "bounded"
    assert sampled.mean() > 0.6
    error = (found.value - np.logaddexp.reduce(logits, axis=1))[sampled]
    z = error / found.stderr[sampled]
    assert (np.abs(z) > 4).mean() <= 1e-3
    assert np.sqrt(np.mean(error**2)) < 0.0155
    # Elsewhere the standard error is that of weights in fixed point.
    coarse = found.stderr[sampled] > 1e-3
    z = z[coarse]
    assert (found.bound[sampled] > found.stderr[sampled] / 2)[coarse].mean() > 0.995  # errors are estimates, too
    assert len(z) > 300
    assert 0.93 < (np.abs(z) < 1.96).mean() < 0.97
    assert not 0.93 < (np.abs(1.5 * z) < 1.96).mean() < 0.97  # a control


@pytest.mark.parametrize("limits", [(-np.inf, np.inf, np.inf), (-np.inf, -np.inf, np.inf)], ids=["first part", "all"])
@pytest.mark.parametrize("norms", ["unit", "pareto"])
def test_z_is_unbiased_with_codes_that_are_worthless(
    norms: str, limits: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazygumbel.methods.sums.for_sums", lambda *_: Effort(0.0, 0.0, 0.0, (np.inf, np.inf), limits))
    rng = np.random.default_rng(3)

    def garbled(lines: np.ndarray) -> np.ndarray:
        noise = lines.copy()
        codes = noise[:, :-GAINS]
        codes[:] = rng.integers(0, 256, codes.shape)
        return noise

    sketch = model_of(norms).index.coding.sketch
    index = with_sketch(norms, sketch._replace(codes=garbled(sketch.codes), more=garbled(sketch.more)))
    theta, temperature = theta_of("no row", norms), 0.5 if norms == "unit" else 5.0
    thetas = np.broadcast_to(theta, (3000, D))
    found = LogLinear(index)(thetas, temperature=temperature).log_partition(rel_err=0.2, rng=9)
    assert (found.labels == "bounded").mean() > 0.9
    true = np.logaddexp.reduce(logits_of(rows_of(norms), theta, temperature))
    ratios = np.exp(found.value - true)
    z = (ratios.mean() - 1) / (ratios.std() / np.sqrt(len(ratios)))
    assert abs(z) < 4
    assert abs((ratios.mean() * 1.05 - 1) / (ratios.std() / np.sqrt(len(ratios)))) > 4  # a control


@pytest.mark.parametrize("f", ["phi", "user"])
def test_expectations_are_right_within_their_errors(f: str) -> None:
    theta = theta_of("no row", "lognormal")
    exact = probabilities_of(rows_of("lognormal"), theta, 0.3)
    values = rows_of("lognormal")[:, :3].astype(np.float64)
    function = None if f == "phi" else lambda ids: values[ids]
    dist = model_of("lognormal")(theta, temperature=0.3)
    found = [dist.expectation(function, rng=seed) for seed in range(60)]
    z = np.array([(e.value[:3] - exact @ values) / e.stderr[:3] for e in found])
    assert all(e.label == "bounded" for e in found)
    assert 0.8 < z.std() < 1.25 and abs(z.mean()) < 4 * z.std() / np.sqrt(60)
    entropy = [dist.entropy(rng=seed) for seed in range(60)]
    true = -(exact @ np.log(exact))
    z = np.array([(float(e.value) - true) / float(e.stderr) for e in entropy])
    assert 0.6 < z.std() < 1.4


@pytest.mark.parametrize("scale", [1e-3, 1e-1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e6])
def test_any_scale_and_six_orders_of_norms_are_right_or_dense(scale: float) -> None:
    """Never silently wrong: log Z within its error, draws by the softmax, whatever |theta| / temperature is."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(N, 16)) / 4 * 10.0 ** rng.uniform(-5, 1, size=(N, 1))
    model = LogLinear(PartitionIndex.build(rows, cells=20, rng=0))
    thetas = (np.random.default_rng(2).normal(size=(200, 16)) / 4).astype(np.float32)
    logits = thetas.astype(np.float64) @ rows.astype(np.float32).astype(np.float64).T * scale
    found, rounding = (
        model(thetas, temperature=1 / scale).log_partition(rng=3),
        1e-6 * np.abs(logits).max(axis=1) + 1e-5,
    )
    off = np.abs(found.value - np.logaddexp.reduce(logits, axis=1))
    assert np.mean(off > 4 * found.stderr + rounding) <= 0.01 and (off < 8 * found.stderr + rounding).all()
    for seed in range(8):
        theta = rng.normal(size=16) / 4
        logits = logits_of(rows, theta, 1 / scale)
        true = np.logaddexp.reduce(logits)
        dist = model(theta, temperature=1 / scale)
        estimate = dist.log_partition(rng=seed)
        error, rounding = abs(float(estimate.value) - true), 1e-6 * np.abs(logits).max() + 1e-5
        assert estimate.label in ("bounded", "exact")
        assert error < 6 * float(estimate.stderr) + rounding
        assert np.isfinite(estimate.value) and (estimate.label == "exact" or 0 < float(estimate.stderr) < 0.1)
        ids = dist.sample(200, rng=seed).ids
        # Each draw has probability p with log p = -G + something fair: none may be absurdly unlikely.
        assert (logits[ids] - true > -25).all()
        assert dist.top_k(1).ids[0] == logits.argmax()


@pytest.mark.parametrize("sigma", [0.35, 1.5])
def test_standard_errors_are_honest_where_few_rows_hold_the_mass(sigma: float) -> None:
    """Thetas up to thirty times as long as codes were made for, with and without the rows that hold the most."""
    rng, far, count = np.random.default_rng(5), 0, 0
    rows = rng.normal(size=(60_000, 32)) / np.sqrt(32) * rng.lognormal(sigma=sigma, size=(60_000, 1))
    model, temperature = LogLinear(PartitionIndex.build(rows, rng=0)), 1.0
    for length in (2.0, 5.0, 10.0, 20.0, 30.0):
        for _ in range(5):
            theta = rng.normal(size=32)
            theta *= length / np.linalg.norm(theta)
            logits = logits_of(rows, theta, temperature)
            dist, best = model(theta, temperature=temperature), np.argsort(-logits)[:3]
            for excluded in ([], best.tolist()):
                logits[excluded] = -np.inf
                true = np.logaddexp.reduce(logits)
                for seed in range(40):
                    found = dist.log_partition(rng=seed, exclude=excluded)
                    assert found.label in ("bounded", "exact")
                    far += abs(float(found.value) - true) > 4 * float(found.stderr) + 3e-6 * abs(true)
                    count += 1
    assert count == 2000 and far <= 2 + 2 * np.sqrt(2)  # a thousandth, and two of its standard deviations


def test_items_of_varied_norm_and_users_of_norm_100() -> None:
    """What was once off by 245 nats with a standard error of zero: raw factors of items, a long user, many users."""
    rng = np.random.default_rng(4)
    items = (rng.normal(size=(4000, 16)) * 0.03 * rng.lognormal(sigma=1.5, size=(4000, 1))).astype(np.float32)
    items[:3] *= 11.6 / np.linalg.norm(items[:3], axis=1, keepdims=True)
    users = rng.normal(size=(50, 16))
    users *= 100 / np.linalg.norm(users, axis=1, keepdims=True)
    model = LogLinear(PartitionIndex.build(items, cells=20, rng=0))
    found = model(users).log_partition(rng=1)
    true = np.array([np.logaddexp.reduce(logits_of(items, user)) for user in users])
    assert (np.abs(found.value - true) < 6 * found.stderr + 1e-4).all()
    report = model.audit(users)
    assert report.miss.mean() < 1e-4 and report.miss.max() < 1e-2
    ids = model(users).sample(1, rng=2, exclude=np.arange(3)).ids
    assert (ids >= 3).all()


@pytest.mark.parametrize("norms", NORMS)
def test_the_audit_is_the_law_of_the_draws(norms: str) -> None:
    """With widths that claim too much, so that many ceilings are too low: draws follow the audit's law."""
    theta, temperature = theta_of("no row", norms), 1.0
    sketch = model_of(norms).index.coding.sketch
    index = with_sketch(norms, sketch._replace(widths=-40 * sketch.widths))
    model = LogLinear(index)
    logits = logits_of(rows_of(norms), theta, temperature)
    audited = model.audit(theta[None], temperature=temperature)
    assert audited.violations[0] > N / 10 and audited.miss[0] > 0.01
    # One seed of the lookup tables, so that all draws have the same ceilings.
    lowered = np.minimum(logits, Bounded().ceilings(model(theta, temperature=temperature)._query_all, 5))
    law = np.exp(lowered - np.logaddexp.reduce(lowered))
    positions, values = np.empty(100_000, dtype=np.int64), np.empty(100_000)
    asked = index.asked(temperature, delta=1e-4, size=1)
    with index.enter(theta, asked, seed=5) as entered:
        assert kernels.settle(entered.run, entered.outlook, 1)
        assert kernels.draw(entered.run, np.uint64(7), (2**40, False), positions, values)[0] == len(positions)
        assert entered.run.race.state[VIOLATIONS] > 0
    ids = index.order[positions]
    assert chi_square_p(ids, law) > 1e-4
    assert chi_square_p(ids, np.exp(logits - np.logaddexp.reduce(logits))) < 1e-6  # a control


@pytest.mark.parametrize("norms", NORMS)
def test_the_top_rows_are_found(norms: str) -> None:
    thetas = np.random.default_rng(3).normal(size=(200, D)).astype(np.float32)
    found = model_of(norms)(thetas).top_k(10)
    logits = thetas.astype(np.float64) @ rows_of(norms).T.astype(np.float64)
    exact = np.argsort(-logits, axis=1)[:, :10]
    recall = np.mean([np.isin(a, b).mean() for a, b in zip(exact, found.ids, strict=True)])
    assert recall > 0.999 and np.median(found.rows) < N / 2


def test_a_batch_is_its_thetas_one_by_one() -> None:
    """Each theta has seeds of its own, so that it does not matter on which thread, or in what company, it is raced."""
    thetas = np.random.default_rng(3).normal(size=(40, D)).astype(np.float32)
    model = model_of("unit")
    together = model(thetas).sample(3, rng=1)
    for count in (1, 7, 39):  # the seeds of the first are the same
        np.testing.assert_array_equal(model(thetas[:count]).sample(3, rng=1).ids, together.ids[:, :count])
    assert (model(thetas).sample(3, rng=2).ids != together.ids).any()
    again = model(thetas).sample(3, rng=1)
    np.testing.assert_array_equal(again.ids, together.ids)


def test_exhaustive_by_bytes_is_exact() -> None:
    theta = theta_of("no row", "lognormal")
    exact = probabilities_of(rows_of("lognormal"), theta, 0.1)
    dist = model_of("lognormal")(theta, temperature=0.1)
    by_bytes = dist.sample(100_000, method=Exhaustive(), rng=3)
    densely = dist.sample(100_000, method=Exhaustive(by_bytes=False), rng=3)
    assert by_bytes.label == densely.label == "exact" and by_bytes.bound == 0.0
    assert chi_square_p(by_bytes.ids, exact) > 1e-4 and chi_square_p(densely.ids, exact) > 1e-4
    assert by_bytes.violations == 0


def test_bounded_refuses_other_indexes_and_bad_knobs() -> None:
    from lazygumbel import ExactIndex

    rows = rows_of("unit")
    with pytest.raises(ValueError, match=r"method: Bounded needs a PartitionIndex, not ExactIndex"):
        LogLinear(ExactIndex.build(model_of("unit").features))(rows[0]).sample(method=Bounded())
    for knobs in ({"delta": 0.0}, {"delta": 0.5}, {"rel_err": 0.0}, {"rel_err": 1.0}, {"delta": "small"}):
        with pytest.raises(ValueError, match=next(iter(knobs))):
            Bounded(**knobs)


@pytest.mark.parametrize("distinct", [False, True])
def test_a_race_that_is_broken_off_is_finished_not_thrown_away(distinct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hardly any patience: rows that make a race long are as likely as ever, and times are exponential."""
    monkeypatch.setattr("lazygumbel.methods.racing.patience_of", lambda _: 20)
    coarse = Effort(
        0.0, 0.0, 0.0, (np.inf, np.inf), (-np.inf, np.inf, np.inf)
    )  # by the first part of codes, whatever that costs
    monkeypatch.setattr("lazygumbel.indexes.partition.asking.for_draws", lambda *_: coarse)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 32)) / np.sqrt(32)
    theta = 4 * rng.normal(size=32) / np.sqrt(32)
    rows[0] = theta * np.logaddexp.reduce(rows @ theta) / (theta @ theta)  # has half of the mass
    model = LogLinear(PartitionIndex.build(rows, cells=1, coordinates=(24, 24), rng=1))
    exact = probabilities_of(rows, theta)
    log_z = np.logaddexp.reduce(logits_of(rows, theta))
    dist = model(np.broadcast_to(theta, (4000, 32)))
    drawn = dist.sample_without_replacement(2, rng=3) if distinct else dist.sample(2, rng=3)
    assert (drawn.rows > 2000).mean() > 0.2  # many were finished densely
    first, values = (drawn.ids[0], drawn.values[0]) if distinct else (drawn.ids, drawn.values)
    assert chi_square_p(first, exact) > 1e-4
    assert stats.kstest(np.exp(log_z - values).reshape(-1), "expon").pvalue > 1e-4
    if distinct:
        after = drawn.ids[1, drawn.ids[0] == 0]
        assert chi_square_p(after, np.where(np.arange(2000) == 0, 0.0, exact) / (1 - exact[0])) > 1e-4
        assert (np.diff(drawn.values, axis=0) < 0).all()


def test_what_is_left_far_below_an_excluded_row_is_summed_right() -> None:
    """Weights are in units of what all rows were expected to weigh; thousands of nats below that they vanish."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(60_000, 32))
    rows *= (rng.pareto(1.2, (60_000, 1)) + 0.1) / np.linalg.norm(rows, axis=1, keepdims=True)
    rows, thetas = rows.astype(np.float32), rng.normal(size=(60, 32)).astype(np.float32)
    logits = thetas.astype(np.float64) @ rows.T.astype(np.float64)
    best, each = logits.argmax(axis=1), np.arange(60)
    logits[each, best] = -np.inf
    dist = LogLinear(PartitionIndex.build(rows, rng=0))(thetas)
    found = dist.log_partition(rng=3, exclude=[[int(b)] for b in best])
    assert np.isfinite(found.stderr).all() and np.isfinite(found.value).all()
    off = np.abs(found.value - np.logaddexp.reduce(logits, axis=1))
    assert (off < 6 * found.stderr + 1e-5 * np.abs(logits[np.isfinite(logits)]).max()).all()


@pytest.mark.parametrize("temperature", [0.3, 0.05, 0.01])
def test_intervals_cover_at_low_temperatures(temperature: float) -> None:
    """Of clustered rows at low temperatures standard errors were once a tenth of the error."""
    rng = np.random.default_rng(7)
    rows = np.repeat(rng.normal(size=(40, 16)), 100, axis=0) + 0.1 * rng.normal(size=(4_000, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    thetas = (rows[rng.integers(len(rows), size=1_000)] + 0.05 * rng.normal(size=(1_000, 16))).astype(np.float32)
    found = LogLinear(PartitionIndex.build(rows, rng=0))(thetas, temperature=temperature).log_partition(rng=1)
    sampled = found.labels == "bounded"
    assert sampled.sum() > 300
    true = np.logaddexp.reduce(thetas.astype(np.float64) @ rows.T.astype(np.float64) / temperature, axis=1)
    z = np.abs(found.value - true)[sampled] / found.stderr[sampled]
    assert (z < 1.96).mean() > 0.92 and (z > 4).mean() <= 0.005
    # Control: errors are not far below what is stated, either; at the lowest all rows that count are scored, and what
    # is stated is of rounding.
    assert (z > 0.01).mean() > 0.5 or (temperature == 0.01 and found.stderr.max() < 1e-4)


def test_what_rounds_is_in_the_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one row holds the mass it is scored, nothing else counts, and all that is left of the error is rounding."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4_000, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    thetas = rows[rng.integers(4_000, size=300)]
    dist = LogLinear(PartitionIndex.build(rows, cells=40, rng=0))(thetas, temperature=0.01)
    true = np.logaddexp.reduce(thetas.astype(np.float64) @ rows.T.astype(np.float64) / 0.01, axis=1)

    def covered() -> float:
        found = dist.log_partition(rng=1)
        sampled = found.labels == "bounded"
        assert sampled.sum() > 200
        return float((np.abs(found.value - true) < 1.96 * found.stderr)[sampled].mean())

    assert covered() > 0.95
    monkeypatch.setattr("lazygumbel.methods.sums._ROUNDING", 0.0)  # a control
    assert covered() < 0.2


def test_far_cells_are_sampled_too() -> None:
    """Rows whose rates fell to 4e-10 never were: log Z was off by many times its standard error."""
    rng = np.random.default_rng(8)
    rows = np.repeat(rng.normal(size=(60, 256)), 100, axis=0) + 0.5 * rng.normal(size=(6_000, 256))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    model = LogLinear(PartitionIndex.build(rows, cells=60, rng=0))
    thetas = rng.normal(size=(200, 256)).astype(np.float32)
    for temperature in (1.0, 4.0):
        found = model(thetas, temperature=temperature).log_partition(rng=2)
        true = np.logaddexp.reduce(thetas.astype(np.float64) @ rows.T.astype(np.float64) / temperature, axis=1)
        assert (np.abs(found.value - true) < 5 * found.stderr + 1e-5).all()
