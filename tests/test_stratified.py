"""The calibrated method: draws against the softmax, estimates against the sums, claims against measurement."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import lazygumbel as lg
from lazygumbel import kernels, methods
from lazygumbel.indexes import kmeans, partition
from lazygumbel.methods import Calibration, Query
from lazygumbel.methods.calibration import Mass, falling, neyman
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
    """A hundred cells, trained in one or two levels; with two, rows are compared with the cells of four groups only."""
    with pytest.MonkeyPatch.context() as patch:
        if levels == 2:
            patch.setattr(kmeans, "_ONE_LEVEL", 16)
            patch.setattr(partition, "_ASSIGNED", 4)
            patch.setattr(partition, "_ASSIGNED_TO_ANY", 0)
            patch.setattr(partition, "_FEW_GROUPS", 0)
        return lg.PartitionIndex.build(lg.Features.of(rows_of(norms)), cells=100, rng=0)


@cache
def model_of(norms: str = "unit", miss: float = 1e-5, levels: int = 1) -> lg.LogLinear:
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
    temperature, copies = 0.2, 5_000
    ratios, covered = [], []
    for theta in rows_of("unit")[:8]:
        log_z = exact("unit", theta, temperature)[1]
        dist = model_of()(np.tile(theta, (copies, 1)), temperature=temperature)
        for rel_err in (0.05, 0.03, 0.02):  # other rates, other stretches
            estimate = dist.log_partition(method=lg.Stratified(rel_err=rel_err), rng=6)
            relative = np.exp(estimate.value - log_z)
            assert mean_p(relative, 1.0) > 1e-4
            assert mean_p(relative * 1.01, 1.0) < 1e-10
            ratios.append(np.mean((estimate.stderr * relative) ** 2) / relative.var())
            low, high = estimate.interval(0.95)
            covered.append(np.mean((low <= log_z) & (log_z <= high)))
    # Stretches spread less, on average, than the sample that they are taken for; for one theta it may be a little more.
    assert 1.0 < np.mean(ratios) < 1.25 and min(ratios) > 0.85
    assert 0.94 < np.mean(covered) < 0.96 and min(covered) > 0.925


def test_expectations_and_entropies_are_covered():
    temperature, covered = 0.2, {"mean": [], "entropy": []}
    for theta in rows_of("unit")[:8]:
        p = exact("unit", theta, temperature)[0]
        dist = model_of()(np.tile(theta, (1_000, 1)), temperature=temperature)
        mean = dist.expectation(method=lg.Stratified(rel_err=0.03), rng=7)
        entropy = dist.entropy(method=lg.Stratified(rel_err=0.03), rng=8)
        truths = {"mean": (mean, p @ rows_of("unit").astype(np.float64)), "entropy": (entropy, -(p @ np.log(p)))}
        for name, (estimate, truth) in truths.items():
            low, high = estimate.interval(0.95)
            covered[name].append(np.mean((low <= truth) & (truth <= high)))
    assert 0.94 < np.mean(covered["mean"]) < 0.98 and 0.94 < np.mean(covered["entropy"]) < 0.98, covered


def test_a_tighter_error_looks_at_more_rows_and_meets_it():
    theta = rows_of("unit")[3]
    dist = model_of()(np.tile(theta, (500, 1)), temperature=0.1)
    log_z = exact("unit", theta, 0.1)[1]
    errors, rows = [], []
    for rel_err in (0.04, 0.03, 0.02):
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


def test_the_calibration_is_saved_and_described(tmp_path):
    model = model_of(miss=1e-3)
    model.save(tmp_path / "model")
    loaded = lg.LogLinear.load(tmp_path / "model")
    assert isinstance(loaded.calibration, Calibration) and model.calibration is not None
    for name in ("scales", "hazards", "mass", "sizes"):
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
    sizes = np.array([50.0, 200.0, 50_000.0])
    mass = Mass(np.array([0.4, 0.2, 0.1]), np.array([1e-2, 1e-3, 1e-4]))
    rates = neyman(sizes, mass, 0.05)
    assert rates @ sizes > 300  # more than the least, 256
    assert mass.variance(sizes, rates) == pytest.approx(0.05**2, rel=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        other = np.minimum(1.0, rates * np.exp(0.3 * rng.normal(size=3)))
        if mass.variance(sizes, other) <= 0.05**2:  # what picks have in common moves the best rates a little
            assert other @ sizes >= rates @ sizes * (1 - 0.02)


@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
def test_the_variance_that_rates_are_chosen_by_is_that_of_the_picks(temperature):
    """On average over thetas: of one, rows at equal distances in a cell may be more alike, or less, than others."""
    model, thetas = model_of(), rows_of("unit")[:40]
    index, expected, computed, denser, found = model.index, [], [], [], []
    for theta in thetas:
        p, log_z = exact("unit", theta, temperature)
        buckets = np.repeat(index.survey(theta[None]).buckets[0], np.diff(index.offsets))
        stored, sizes = p[index.order], np.bincount(buckets, minlength=index.buckets).astype(np.float64)
        mass = Mass(*(np.bincount(buckets, weights=w, minlength=index.buckets) for w in (stored, stored**2)))
        calibration = replace(model.calibration, sizes=sizes, mass=Mass(*(np.tile(m, (8, 1)) for m in mass)))
        dist = lg.LogLinear(index, calibration)(np.tile(theta, (500, 1)), temperature=temperature)
        relative = np.exp(dist.log_partition(method=lg.Stratified(rel_err=0.02), rng=0).value - log_z)
        rates, cells = calibration.rate_levels(0.02).table[0], index.survey(theta[None]).buckets[0]
        expected.append(mass.variance(sizes, rates))
        scores = index.features.stored @ theta
        for variances, factor in ((computed, 1.0), (denser, 1.2)):
            some = np.where(rates < 1, factor * rates, 1.0)
            variances.append(kernels.pick_variance(scores, index.offsets, cells, some, 1 / temperature))
        found.append(relative.var())
    # Codes add a little; where many cells share a stretch, picks spread a little less.
    assert 0.85 < np.mean(found) / np.mean(expected) < 1.15
    off = 4 * np.sqrt(2 / 499 * np.square(computed).sum()) / np.sum(computed) + 0.02  # errors of the variances; codes
    assert abs(np.mean(found) / np.mean(computed) - 1) < off
    # Control: rates a fifth higher have another variance.
    assert abs(np.mean(found) / np.mean(denser) - 1) > off


def test_values_fall():
    assert falling(np.array([5.0, 1.0, 3.0, 2.0, 4.0, 1.0])).tolist() == [5, 4, 4, 4, 4, 1]
    assert falling(np.array([1, 2])).tolist() == [2, 2]


@pytest.mark.parametrize("norms", ["unit", "varied"])
@pytest.mark.parametrize("size", [1, 50])
def test_a_survey_ranks_cells(norms, size):
    index, thetas = index_of(norms, 1), rows_of(norms)[:size]
    cosines = thetas @ index.centroids.T
    for cosine, buckets in zip(cosines, index.survey(thetas).buckets, strict=True):
        # Cells whose scores are too close to tell apart share a bucket, so that some hold more than they would.
        assert (buckets == 0).sum() == 1 and buckets[cosine.argmax()] == 0
        held = np.bincount(buckets, minlength=index.buckets).cumsum()
        assert (held >= index.bucket_edges[1:]).all() and (held[:-1] < index.bucket_edges[1:-1] + 5).all()
        scores = cosine * index.scales
        for k in range(1, index.buckets - 1):
            near, far = scores[buckets == k], scores[buckets > k]
            assert near.min(initial=np.inf) > far.max(initial=-np.inf) - 0.01


@pytest.mark.parametrize("norms", ["unit", "varied"])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_row_finds_its_own_cell_first(norms, levels):
    index, thetas = index_of(norms, levels), rows_of(norms)
    cell = np.searchsorted(index.offsets, index.features.positions[np.arange(N)], side="right") - 1

    def found(thetas: np.ndarray) -> float:
        return float((index.survey(thetas).buckets[np.arange(N), cell] == 0).mean())

    # Compared with all cells, all rows do; with those of four groups of twenty, most.
    assert found(thetas) == 1.0 if levels == 1 else found(thetas) > 0.97
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


def test_a_look_that_estimates_a_large_error_is_repeated(monkeypatch):
    """A calibration that asks for too few rows by far: repeated looks put it right, with a small bias at most."""
    calibration = model_of().calibration
    assert calibration is not None
    monkeypatch.setattr(methods.calibration, "_LEAST_ROWS", 10.0)
    lighter = Mass(calibration.mass.sums / 20, calibration.mass.squares / 400)
    careless = lg.LogLinear(model_of().index, replace(calibration, mass=lighter))
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
    # All surveys at once would take 10,000 x 800 cells x 5 bytes, 38 MiB; the answers, and thetas, take 2.
    assert float(printed) < 25
