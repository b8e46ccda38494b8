"""The calibrated method: draws against the softmax, estimates against the sums, claims against measurement."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import lazygumbel as lg
from lazygumbel.indexes import kmeans, partition
from lazygumbel.methods import Calibration, Query
from lazygumbel.methods.calibration import falling, neyman
from lazygumbel.methods.plan import Plan
from lazygumbel.model import describe
from statistics_helpers import chi_square_p, mean_p

N, D, CLUSTERS = 4_000, 16, 60


@cache
def rows_of(norms: str) -> np.ndarray:
    """Clustered rows: what a partition is for."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(CLUSTERS, D))[rng.integers(CLUSTERS, size=N)] + 0.7 * rng.normal(size=(N, D))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if norms == "varied":
        rows *= np.exp(0.1 * rng.normal(size=(N, 1)))
    return rows.astype(np.float32)


@cache
def index_of(norms: str, levels: int) -> lg.PartitionIndex:
    """A hundred cells: in one group, or in twelve, of which a survey opens at least two."""
    with pytest.MonkeyPatch.context() as patch:
        if levels == 2:
            patch.setattr(kmeans, "_ONE_LEVEL", 16)
            patch.setattr(partition, "_LEAST_OPENED", 2)
        index = lg.PartitionIndex.build(lg.Features.of(rows_of(norms)), cells=100, rng=0)
    assert (len(index.groups), index.opening.fewest) == ((1, 1) if levels == 1 else (12, 2))
    return index


@cache
def model_of(norms: str = "unit", miss: float = 1e-5, levels: int = 2) -> lg.LogLinear:
    model = lg.LogLinear(index_of(norms, levels))
    model.calibrate(miss=miss, rel_err=0.05, rng=1)
    return model


def exact(norms: str, theta: np.ndarray, temperature: float) -> tuple[np.ndarray, float]:
    logits = rows_of(norms).astype(np.float64) @ theta.astype(np.float64) / temperature
    log_z = float(logits.max() + np.log(np.exp(logits - logits.max()).sum()))
    return np.exp(logits - log_z), log_z


def many(model: lg.LogLinear, theta: np.ndarray, temperature: float, draws: int, seed: int) -> lg.Draws:
    """Many looks at one theta: as a batch of copies, so that no dense pass is made instead."""
    return model(np.tile(theta, (draws, 1)), temperature=temperature).sample(1, method=lg.Stratified(), rng=seed)


@pytest.mark.parametrize(("norms", "levels"), [("unit", 1), ("unit", 2), ("varied", 2)])
@pytest.mark.parametrize("temperature", [0.02, 0.05, 1.0, 50.0])
def test_draws_follow_the_softmax(norms, levels, temperature):
    theta, model = rows_of(norms)[7], model_of(norms, levels=levels, miss=1e-5 if norms == "unit" else 1e-3)
    drawn = many(model, theta, temperature, 200_000, seed=3)
    assert drawn.rows.mean() < N, "a dense pass was made: this tests nothing"
    p = chi_square_p(drawn.ids, exact(norms, theta, temperature)[0])
    assert p > 1e-4 / 12, f"seed 3: p = {p}"


def test_without_the_tail_the_same_test_rejects():
    model = model_of()
    calibration = model.calibration
    assert calibration is not None
    headless = calibration.hazards.copy()
    headless[:, 4:] = 0.0
    cut = lg.LogLinear(model.index, replace(calibration, hazards=headless))
    drawn = many(cut, rows_of("unit")[7], 1.0, 50_000, seed=3)
    assert chi_square_p(drawn.ids, exact("unit", rows_of("unit")[7], 1.0)[0]) < 1e-10


def test_values_are_gumbel_with_location_log_z():
    theta = rows_of("unit")[11]
    drawn = many(model_of(), theta, 0.2, 20_000, seed=4)
    assert stats.kstest(drawn.values[0] - exact("unit", theta, 0.2)[1], "gumbel_r").pvalue > 1e-4
    assert stats.kstest(drawn.values[0] - exact("unit", theta, 0.2)[1] - 0.05, "gumbel_r").pvalue < 1e-4


@pytest.mark.parametrize("temperature", [0.05, 0.2, 2.0])
def test_the_audit_is_the_simulated_miss_rate(temperature):
    """A loose calibration, so that misses are frequent enough to count."""
    model, thetas = model_of(miss=0.03), rows_of("unit")[:3]
    audited = model.audit(thetas, temperature=temperature, method=lg.Stratified()).miss
    query = Query.of(model.index, thetas, temperature, model.calibration)
    plan, rng = Plan.for_draws(query), np.random.default_rng(5)
    for b, theta in enumerate(thetas):
        logits = rows_of("unit").astype(np.float64) @ theta / temperature
        exponentials = rng.standard_exponential((8_000, N))
        winner = np.argmax(logits - np.log(exponentials), axis=1)
        missed = exponentials[np.arange(len(winner)), winner] >= plan.row_hazards(b)[winner]
        error = np.sqrt(audited[b] / len(winner)) + 1e-4
        assert abs(missed.mean() - audited[b]) < 4 * error, (missed.mean(), audited[b])


@pytest.mark.parametrize(("norms", "temperatures"), [("unit", (0.05, 0.1, 0.5)), ("varied", (0.2, 0.5))])
def test_fresh_thetas_meet_the_targets(norms, temperatures):
    model = model_of(norms, miss=1e-3)
    fresh = rows_of(norms)[np.random.default_rng(77).integers(N, size=200)]
    for temperature in temperatures:
        audited = model.audit(fresh, temperature=temperature, method=lg.Stratified())
        assert audited.miss.mean() < 1e-3, temperature
        estimate = model(fresh, temperature=temperature).log_partition(method=lg.Stratified(), rng=1)
        truth = np.array([exact(norms, theta, temperature)[1] for theta in fresh])
        assert np.sqrt(np.mean(np.expm1(estimate.value - truth) ** 2)) < 0.05 * 1.1, temperature
        assert estimate.label == "calibrated", temperature


def test_z_and_its_variance_are_unbiased_and_intervals_cover():
    theta, temperature, copies = rows_of("unit")[3], 0.2, 20_000
    probabilities, log_z = exact("unit", theta, temperature)
    dist = model_of()(np.tile(theta, (copies, 1)), temperature=temperature)
    for rel_err in (0.05, 0.03, 0.02):  # other rates, other stretches
        estimate = dist.log_partition(method=lg.Stratified(rel_err=rel_err), rng=6)
        relative = np.exp(estimate.value - log_z)
        assert mean_p(relative, 1.0) > 1e-4
        assert mean_p(relative * 1.005, 1.0) < 1e-10
        variance = (estimate.stderr * relative) ** 2
        # Stretches spread less than the simple sample they are taken for.
        assert 0.95 < variance.mean() / relative.var() < 1.4
        low, high = estimate.interval(0.95)
        assert 0.94 < np.mean((low <= log_z) & (log_z <= high)) < 0.98
    few = model_of()(np.tile(theta, (4_000, 1)), temperature=temperature)
    mean = few.expectation(method=lg.Stratified(rel_err=0.03), rng=7)
    low, high = mean.interval(0.95)
    truth = probabilities @ rows_of("unit").astype(np.float64)
    assert 0.94 < np.mean((low <= truth) & (truth <= high)) < 0.985
    entropy = few.entropy(method=lg.Stratified(rel_err=0.03), rng=8)
    low, high = entropy.interval(0.95)
    truth = -(probabilities @ np.log(probabilities))
    assert 0.94 < np.mean((low <= truth) & (truth <= high)) < 0.985


def test_a_tighter_error_looks_at_more_rows_and_meets_it():
    theta = rows_of("unit")[3]
    dist = model_of()(np.tile(theta, (500, 1)), temperature=0.1)
    log_z = exact("unit", theta, 0.1)[1]
    errors, rows = [], []
    for rel_err in (0.2, 0.1, 0.05):
        estimate = dist.log_partition(rel_err=rel_err, rng=9)
        errors.append(np.sqrt(np.mean(np.expm1(estimate.value - log_z) ** 2)))
        rows.append(estimate.rows.mean())
    assert rows[0] < rows[1] < rows[2]
    assert errors[0] > errors[1] > errors[2]


def test_strange_thetas_are_never_called_calibrated():
    model = model_of(miss=1e-3)
    row = rows_of("unit")[0]
    assert model(row, temperature=0.05).sample(1, rng=0).label == "calibrated"
    assert model(10 * row, temperature=0.05).sample(1, rng=0).label == "heuristic"
    rng = np.random.default_rng(0)
    elsewhere = rng.normal(size=D)
    index = model.index
    assert isinstance(index, lg.PartitionIndex)
    for _ in range(200):  # away from every centroid
        cosines = index.centroids @ elsewhere
        elsewhere = elsewhere - 0.2 * index.centroids[cosines.argmax()] * cosines.max()
    elsewhere /= np.linalg.norm(elsewhere)
    for dist in (model(elsewhere, temperature=0.05), model(10 * row, temperature=0.05)):
        estimate = dist.log_partition(rng=0)
        assert estimate.label == (
            "exact" if estimate.rows >= N else "heuristic"
        )  # if no look was good enough, all rows
    assert model(elsewhere, temperature=0.05).sample(1, rng=0).label == "heuristic"
    wide, narrow = model(10 * row, temperature=0.05), model(row, temperature=0.05)
    assert wide.sample(1, rng=0).rows != narrow.sample(1, rng=0).rows


def test_a_target_that_fresh_thetas_miss_is_not_claimed():
    calibration = model_of().calibration
    assert calibration is not None
    over = [
        facts | {"miss_mean": 2 * calibration.miss, "rel_err_rms": 2 * calibration.rel_err}
        for facts in calibration.report
    ]
    model = lg.LogLinear(model_of().index, replace(calibration, report=over))
    dist = model(rows_of("unit")[0], temperature=0.05)
    assert dist.sample(1, rng=0).label == dist.log_partition(rng=0).label == "heuristic"


def test_exclusion():
    theta, model = rows_of("unit")[5], model_of()
    probabilities, _ = exact("unit", theta, 0.1)
    heavy = np.argsort(-probabilities)[:300]
    drawn = model(np.tile(theta, (20_000, 1)), temperature=0.1).sample(1, method=lg.Stratified(), rng=2, exclude=heavy)
    probabilities[heavy] = 0
    left = probabilities / probabilities.sum()
    assert chi_square_p(drawn.ids, left) > 1e-4
    assert drawn.label == "heuristic"
    estimate = model(theta, temperature=0.1).log_partition(method=lg.Stratified(rel_err=0.01), rng=2, exclude=heavy)
    truth = exact("unit", theta, 0.1)[1] + np.log(probabilities.sum())
    assert abs(estimate.value - truth) < 4 * estimate.stderr + 1e-6


def test_many_samples_of_one_theta_make_one_dense_pass():
    drawn = model_of()(rows_of("unit")[5], temperature=0.05).sample(10_000, rng=0)
    assert drawn.rows == N
    assert drawn.label == "exact"


def test_seeds_shapes_and_large_batches():
    model, thetas = model_of(), rows_of("unit")[:700]
    for theta, shape in ((thetas[0], ()), (thetas[:1], (1,)), (thetas, (700,))):
        dist = model(theta, temperature=0.05)
        drawn = dist.sample((2, 3), method=lg.Stratified(), rng=1)
        assert drawn.ids.shape == (2, 3, *shape) and drawn.rows.shape == shape
        assert np.array_equal(drawn.ids, dist.sample((2, 3), method=lg.Stratified(), rng=1).ids)
        assert not np.array_equal(drawn.values, dist.sample((2, 3), method=lg.Stratified(), rng=2).values)
    assert model(thetas, temperature=0.05).sample(0, rng=1).ids.shape == (0, 700)


def test_a_look_that_runs_out_of_random_numbers_is_continued(monkeypatch):
    theta = rows_of("unit")[7]
    monkeypatch.setattr("lazygumbel.methods.stratified_draws._SPARE", -20)
    drawn = many(model_of(), theta, 0.1, 20_000, seed=3)
    assert chi_square_p(drawn.ids, exact("unit", theta, 0.1)[0]) > 1e-4


def test_the_calibration_is_saved_and_described(tmp_path):
    model = model_of(miss=1e-3)
    model.save(tmp_path / "model")
    loaded = lg.LogLinear.load(tmp_path / "model")
    assert isinstance(loaded.calibration, Calibration) and model.calibration is not None
    for name in ("near", "scales", "hazards", "spreads", "sizes"):
        np.testing.assert_array_equal(getattr(loaded.calibration, name), getattr(model.calibration, name))
    thetas = rows_of("unit")[:5]
    a, b = (m(thetas, temperature=0.05).sample(3, rng=0) for m in (model, loaded))
    assert np.array_equal(a.ids, b.ids) and a.label == b.label == "calibrated"
    assert describe(tmp_path / "model")["calibration"]["miss"] == 1e-3


def test_what_cannot_be_calibrated_is_refused():
    features = lg.Features.of(rows_of("unit"))
    with pytest.raises(ValueError, match="only a PartitionIndex can be calibrated"):
        lg.LogLinear(lg.ExactIndex.build(features)).calibrate()
    bare = lg.LogLinear(model_of().index)
    with pytest.raises(ValueError, match=r"call model\.calibrate"):
        bare(rows_of("unit")[0]).sample(1, method=lg.Stratified())
    with pytest.raises(ValueError, match="needs a PartitionIndex"):
        lg.LogLinear(lg.ExactIndex.build(features))(rows_of("unit")[0]).sample(1, method=lg.Stratified())
    for knobs, name in (
        ({"miss": 0.0}, "miss"),
        ({"rel_err": 2.0}, "rel_err"),
        ({"thetas": np.ones((3, D))}, "thetas"),
    ):
        with pytest.raises(ValueError, match=name):
            bare.calibrate(**knobs)


def test_neyman_rates_are_the_cheapest_of_their_variance():
    sizes, squares = np.array([50.0, 200.0, 5_000.0]), np.array([1e-2, 1e-3, 1e-5])
    rates = neyman(sizes, squares, 3, 0.05)
    assert (squares * (1 / rates - 1)).sum() == pytest.approx(0.05**2, rel=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        other = np.minimum(1.0, rates * np.exp(0.3 * rng.normal(size=3)))
        if (squares * (1 / other - 1)).sum() <= 0.05**2:
            assert other @ sizes >= rates @ sizes * (1 - 1e-9)


def test_values_fall_within_cells_and_within_groups():
    assert falling(np.array([5.0, 1.0, 3.0, 2.0, 4.0, 1.0]), 3).tolist() == [5, 3, 3, 4, 4, 1]
    assert falling(np.array([1, 2]), 2).tolist() == [2, 2]


@pytest.mark.parametrize("levels", [1, 2])
def test_a_survey_covers_every_row_once(levels):
    index = index_of("unit", levels)
    survey = index.survey(rows_of("unit")[:50])
    assert survey.edges.shape == (50, index.buckets + 1)
    begins, before = survey.begins, survey.before
    for edges in survey.edges:
        assert before[edges[0]] == 0 and (np.diff(edges) >= 0).all() and before[edges[-1]] == N
        ranges = [np.arange(begins[s], begins[s] + before[s + 1] - before[s]) for s in range(edges[0], edges[-1])]
        assert np.array_equal(np.sort(np.concatenate(ranges)), np.arange(N))


@pytest.mark.parametrize("norms", ["unit", "varied"])
def test_a_row_finds_its_own_cell_first(norms):
    index, thetas = index_of(norms, 2), rows_of(norms)
    position = index.features.positions[np.arange(N)]

    def found(thetas: np.ndarray) -> float:
        survey = index.survey(thetas)
        first = survey.edges[:, 0]
        start = survey.begins[first]
        return float(((start <= position) & (position < start + survey.before[first + 1])).mean())

    assert found(thetas) > 0.999  # groups of nearly equal score may be opened in one order here, in another there
    assert found(np.roll(thetas, 1, axis=0)) < 0.5


def test_without_replacement_follows_plackett_luce():
    theta, model = rows_of("unit")[5], model_of(miss=1e-4)
    p = exact("unit", theta, 0.1)[0]
    dist = model(np.tile(theta, (20_000, 1)), temperature=0.1)
    drawn = dist.sample_without_replacement(3, method=lg.Stratified(), rng=4)
    assert drawn.label == "calibrated" and drawn.rows.mean() < N / 2
    assert (np.diff(drawn.values, axis=1) < 0).all() and (drawn.threshold <= drawn.values[:, -1]).all()
    assert chi_square_p(drawn.ids[:, 0], p) > 1e-4
    # The second, given the first, is softmax without it; over the heaviest first row.
    heavy = int(p.argmax())
    second = drawn.ids[drawn.ids[:, 0] == heavy, 1]
    left = np.where(np.arange(N) == heavy, 0.0, p)
    assert chi_square_p(second, left / left.sum()) > 1e-4
    assert chi_square_p(second, p) < 1e-10
    estimates = np.exp(drawn.log_partition - exact("unit", theta, 0.1)[1])
    assert mean_p(estimates, 1.0) > 1e-4


def test_few_rows_of_mass_are_drawn_by_brute_force():
    drawn = model_of()(rows_of("unit")[5], temperature=0.02).sample_without_replacement(N - 1, rng=0)
    assert drawn.label == "exact" and len(set(drawn.ids.tolist())) == N - 1


def test_a_look_that_estimates_a_large_error_is_repeated():
    """A calibration that asks for too few rows by far: repeated looks put it right, with a small bias at most."""
    calibration = model_of().calibration
    assert calibration is not None
    careless = lg.LogLinear(model_of().index, replace(calibration, spreads=calibration.spreads / 400))
    theta, temperature = rows_of("unit")[3], 0.3
    log_z = exact("unit", theta, temperature)[1]
    dist = careless(np.tile(theta, (2_000, 1)), temperature=temperature)
    estimate = dist.log_partition(method=lg.Stratified(rel_err=0.03), rng=5)
    error = np.expm1(estimate.value - log_z)
    assert np.sqrt(np.mean(error**2)) < 0.03 * 1.5
    assert abs(error.mean()) < 0.03 / 4
    once = dist.log_partition(method=lg.Stratified(rel_err=0.03 * 20), rng=5)  # the same rates, content at once
    assert np.sqrt(np.mean(np.expm1(once.value - log_z) ** 2)) > 0.03 * 1.5


def test_a_large_batch_takes_little_memory():
    """In a process of its own, since a peak does not come down again."""
    script = """
import resource
import numpy as np
import lazygumbel as lg

rows = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
model = lg.LogLinear(lg.PartitionIndex.build(lg.Features.of(rows), cells=800, rng=0))
model.calibrate(miss=1e-3, rel_err=0.2, thetas=rows[:128], rng=0)
thetas = rows[:10_000]
peaks = []
for some in (thetas[:64], thetas):
    model(some, temperature=4.0).sample(1, rng=0)
    model(some, temperature=4.0).log_partition(rng=0)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(peaks[1] - peaks[0])
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    # All surveys at once would take 10,000 x 800 cells x 16 bytes, 122 MiB; the answers, and thetas, take 2.
    assert float(printed) < 40
