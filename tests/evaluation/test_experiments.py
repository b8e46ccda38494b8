"""Experiments on a small file: numbers against direct computation, and claims that can fail."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from finished_run import KEPT, D, Finished, N, Recorder, softmax

import lazygumbel as lg
from lazygumbel.walking import Walk
from lazygumbel_evaluation.experiments import amortised, bins, figure_4, relative_error, table_1, walks
from lazygumbel_evaluation.experiments.figure_4 import Point
from lazygumbel_evaluation.harness import learning, ranks
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.styles import label


def test_speed_and_accuracy_are_shown_for_both_protocols(finished: Finished) -> None:
    for name in ("figure-2", "table-1", "figure-4", "amortised", "bins", "relative-error"):
        section = finished.section(name)
        kinds = [verdict.thetas for verdict in section.verdicts]
        half = len(kinds) // 2
        assert kinds == ["held-out thetas"] * half + ["theta a row (the paper's protocol)"] * half, name
        titles = [table.title for table in section.tables if not table.printed_rows and "at once" not in table.title]
        half = len(titles) // 2
        assert ["held-out thetas" in title for title in titles] == [True] * half + [False] * half, name


def test_the_report_speaks_of_the_engine_of_today(finished: Finished) -> None:
    said = json.dumps(finished.run.as_json()).lower()
    assert "bounded (ours)" in said and "anchored (ours)" in said
    for gone in ("stratified", "calibrat", "looked at", "bruteforce"):
        assert gone not in said


def test_times_and_speed_ups_fit_together(finished: Finished) -> None:
    sizes = finished.section("figure-2").facts["sizes"]
    assert [size["n"] for size in sizes] == [2_500, KEPT]
    curves = {curve.label: curve.y for curve in finished.section("figure-2").figures[-1].curves}
    for protocol, called in finished.bench.protocols.items():
        taken = [size["seconds"][protocol] for size in sizes]
        assert curves[f"Bounded (ours), {called}"] == pytest.approx([t["exact"] / t["ours"] for t in taken])
        facts = finished.section("table-1").facts[protocol]
        for method in facts["methods"].values():
            assert method["speedup"] == pytest.approx(np.median(facts["exact_seconds"]) / np.median(method["seconds"]))
    whole = finished.section("amortised").facts["sizes"][-1]
    assert whole == sizes[-1], "measured once"


@pytest.mark.parametrize("protocol", ["held-out", "row"])
def test_distances_of_table_1_are_those_of_the_audit(finished: Finished, protocol: Protocol) -> None:
    methods = dict(finished.section("table-1").facts[protocol]["methods"])
    ours = methods.pop("Bounded (ours)")
    assert len(methods) == 2
    for method in methods.values():
        assert (np.array(method["bound"]) >= np.array(method["distance"]) - 1e-12).all()
        assert max(method["distance"]) > 0
    held = finished.bench
    audit = held.model.audit(held.thetas(protocol)[:6], temperature=0.05, method=lg.Bounded())
    np.testing.assert_allclose(ours["distance"], audit.miss)
    assert ours["bound"] == audit.bound.tolist() == [1e-4] * 6
    assert ours["labels"] == {"bounded": 6}


@pytest.mark.usefixtures("codes_alone")
def test_distances_that_are_not_zero_are_reported(finished: Finished, set_quantile: Callable[[float], None]) -> None:
    """With ceilings as they should be hardly any of so few rows is too low."""
    set_quantile(-300.0)
    held, loose = finished.bench, lg.Bounded(delta=0.019)
    thetas = held.thetas("held-out")[:6]
    contender = table_1._Contender("loose", held.model, loose)
    measured = table_1._audit(held, contender, thetas, np.random.default_rng(0))
    audit = held.model.audit(thetas, temperature=0.05, method=loose)
    assert max(measured["distance"]) > 0 and sum(measured["ceilings_too_low"]) > 0
    np.testing.assert_allclose(measured["distance"], audit.miss)
    assert measured["ceilings_too_low"] == audit.violations.tolist()


def test_a_claim_is_about_the_method_that_it_names() -> None:
    """And a bound is compared with a bound: of a hundred thetas one is farther off than its own."""
    ours = {"speedup": 5.0, "distance": [1e-7] * 99 + [1e-3], "bound": [1e-4] * 100}
    theirs = {"speedup": 1.3, "distance": [1e-7] * 100, "bound": [1e-3] * 100}
    methods = (lg.Bounded(), lg.FixedCutoff(k=70))
    contenders = [table_1._Contender(label(method), lg.LogLinear.build(np.eye(4)), method) for method in methods]
    measured = {one.label: m for one, m in zip(contenders, (ours, theirs), strict=True)}
    verdicts = table_1._verdicts("theta a row", contenders, measured)
    found = [(verdict.method, verdict.holds) for verdict in verdicts]
    assert [holds for method, holds in found if method == "Bounded (ours)"] == [True, True, False]
    assert [holds for method, holds in found if method == "FixedCutoff (the paper's)"] == [False, False, True]
    assert verdicts[1].measured == "0.0001 ± 0" and "2.5e-04" not in verdicts[2].measured and verdicts[2].paper is None
    assert "max 0.001" in verdicts[2].measured


def test_building_pays_when_its_cost_is_made_up() -> None:
    assert amortised.pays_after(build=12.0, draw=0.001, exact=0.007) == pytest.approx(2_000)
    assert amortised.pays_after(build=12.0, draw=0.007, exact=0.007) is None


def path_of(ids: np.ndarray) -> Walk:
    return Walk(ids, ids[0], N, np.zeros(len(ids), dtype=np.int64), "exact")


def test_walks_are_compared_by_the_rows_they_visit_most() -> None:
    rng = np.random.default_rng(0)
    same = [path_of(rng.geometric(0.002, size=(2_000, 40)) % N) for _ in range(2)]
    other = path_of((rng.geometric(0.002, size=(2_000, 40)) + 400) % N)
    assert walks.top_size(*same) == 1_000
    alike, apart = (walks.compare(same[0], w, lambda a, b: a.overlap(b, 1_000)) for w in (same[1], other))
    assert walks.verdict(alike, 1_000).holds and not walks.verdict(apart, 1_000).holds
    short = path_of(np.arange(40).reshape(20, 2) % 7)
    assert walks.top_size(same[0], short) == 7
    assert walks.compare(short, short, lambda a, b: a.overlap(b, 7)) == {"exact": 1, "ours": 1, "between": 1}


def test_walks_of_the_run_have_the_law_of_the_chain(finished: Finished) -> None:
    facts, held, rows = finished.section("walks").facts, finished.bench, finished.rows
    for name, steps in (("exact", 60), ("ours", 60), ("long", 80)):
        ids = np.load(held.store.path(f"walk-{name}.npz"))["ids"]
        assert ids.shape == (steps, 8)
        # Whether a step stays is a coin of known bias: together they are normal.
        before = ids[:-1].reshape(-1)
        p = np.array([softmax(rows @ rows[i] / 0.05)[i] for i in np.unique(before)])[
            np.unique(before, return_inverse=True)[1]
        ]
        z = ((ids[1:].reshape(-1) == before).sum() - p.sum()) / np.sqrt((p * (1 - p)).sum())
        assert abs(z) < 4, name
    assert facts["steps"] == 4 * 60 and 0 < facts["stayed"]["ours"] < 1
    ids, offsets = np.load(held.store.path("walk-exact.npz"))["ids"], held.index.layout.offsets
    cells = np.searchsorted(offsets, held.features.locate(ids), side="right") - 1
    first, second = (
        np.bincount(cells[:, part].reshape(-1), minlength=held.index.cells) for part in (slice(4), slice(4, 8))
    )
    assert facts["visits_by_cell"]["exact"] == pytest.approx(np.minimum(first, second).sum() / (4 * 60))


def point(seconds: float, error: float) -> Point:
    return Point("", "", "", seconds, error, error, error)


def test_a_curve_beats_what_is_slower_and_less_accurate() -> None:
    ours = [point(1.0, 0.1), point(4.0, 0.05)]
    assert figure_4.beaten(point(1.0, 0.2), ours)
    assert figure_4.beaten(point(9.0, 0.06), ours)
    assert figure_4.beaten(point(2.0, 0.08), ours), "between two points of the curve"
    assert not figure_4.beaten(point(2.0, 0.06), ours)
    assert not figure_4.beaten(point(0.5, 0.9), ours), "faster than all of the curve"


@pytest.mark.parametrize("protocol", ["held-out", "row"])
def test_errors_of_figure_4_are_relative_errors_of_z(finished: Finished, protocol: Protocol) -> None:
    points = finished.section("figure-4").facts[protocol]["points"]
    held = finished.bench
    top = next(p for p in points if p["method"] == "TopKOnly")
    found = held.paper_index[0].top_k(held.thetas(protocol)[:5], 70).ids
    missed = [1 - softmax(finished.logits(protocol, t))[found[t]].sum() for t in range(5)]
    assert top["setting"] == "k = 70" and top["error"] == pytest.approx(np.mean(missed), rel=1e-3)
    assert top["worst"] == pytest.approx(max(missed), rel=1e-3) and top["error"] < top["high"] <= top["worst"]
    ours = [p for p in points if p["method"] == "Bounded"]
    assert ours[0]["error"] > 3 * ours[-1]["error"], "a smaller error was asked for, and not had"
    assert ours[-1]["error"] < 0.005


def test_learning_is_gradient_ascent(finished: Finished) -> None:
    held, rows = finished.bench, finished.rows
    ids = np.array(finished.section("table-2").facts["training_set"])
    nearest = np.argsort(-(rows @ held.thetas("row")[0].astype(np.float64)))[:16]
    assert set(ids) == set(nearest) and held.theta_rows[0] in ids
    theta, target = np.zeros(D), rows[ids].mean(axis=0)
    for step in range(40):
        theta += 10.0 * 0.5 ** (step // 8) * (target - softmax(rows @ theta) @ rows)
    logits = rows @ theta
    reached = theta @ target - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    facts = finished.section("table-2").facts
    assert facts["learnt"]["exact"]["log_likelihood"] == pytest.approx(reached, abs=1e-4)
    assert facts["gaps"]["ours"] == pytest.approx(reached - facts["learnt"]["ours"]["log_likelihood"], abs=1e-4)
    assert abs(facts["gaps"]["ours"]) < 0.05
    ranked = np.argsort(-logits)
    best = facts["learnt"]["exact"]["best"]
    assert len(best) == 10 and set(best[:8]) <= set(ranked[~np.isin(ranked, ids)][:10])
    assert not set(best) & set(ids)
    assert facts["learnt"]["exact"]["curve"]["log_likelihood"][0] == pytest.approx(-np.log(KEPT), abs=1e-5)


def test_words_are_learnt_from_where_there_are_names() -> None:
    rows = np.random.default_rng(0).normal(size=(2_000, 4)).astype(np.float32)
    words = [*learning._WATERS, *(f"other {i}" for i in range(2_000 - 16))]
    ids, described = learning.training_set(lg.Features.of(rows, names=words), 7)
    assert ids.tolist() == list(range(16)) and described == "sixteen words about water"
    ids, described = learning.training_set(lg.Features.of(rows[20:], names=words[20:]), 7)
    assert len(ids) == 16 and described is None, "other names: a row and its nearest"


def test_draws_are_counted_by_rank(finished: Finished) -> None:
    facts = finished.section("bins").facts
    assert facts["edges"] == [10, 100, 1000, KEPT]
    assert [held["protocol"] for held in facts["thetas"]] == ["held-out", "held-out", "row", "row"]
    first = [held["true"][0] for held in facts["thetas"]]
    masses = [finished.bench.oracle(protocol).masses[:, 0] for protocol in finished.bench.protocols]
    assert first == pytest.approx([extreme for mass in masses for extreme in (mass.max(), mass.min())])
    for held in facts["thetas"]:
        assert sum(held["exact"]) == sum(held["ours"]) == 3_000
        assert held["p"]["ours"] > 1e-3 and held["p"]["exact"] > 1e-3


def test_a_wrong_sampler_fails_the_histogram(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "Bounded", lambda: lg.TopKOnly(10))
    verdicts = bins.run(finished.bench, Recorder.Stage(["", 1.0, 0.0])).verdicts
    assert not verdicts[1].holds and not verdicts[3].holds, "flat thetas have much of their mass beyond the top 10"


def test_p_values_of_counts_are_uniform() -> None:
    rng = np.random.default_rng(0)
    masses = np.array([0.7, 0.2, 0.0997, 0.0003])
    p = [bins.chi_square_p(rng.multinomial(2_000, masses), masses, rng) for _ in range(60)]
    assert 0.3 < np.mean(p) < 0.7 and min(p) > 1e-3
    assert bins.chi_square_p(np.array([1_500, 300, 199, 1]), masses, rng) < 1e-3


def test_relative_errors_are_over_events_with_enough_draws() -> None:
    errors = relative_error.errors_of(np.array([60, 36, 4]), np.array([0.5, 0.4, 0.1]))
    assert errors == pytest.approx({"groups": (0.2 + 0.1 + 0.6) / 3, "tops": (0.2 + 6 / 90) / 2})
    errors = relative_error.errors_of(np.array([6, 41, 53]), np.array([0.09, 0.5, 0.41]))
    assert errors == pytest.approx({"groups": (9 / 50 + 12 / 41) / 2, "tops": 12 / 59})


def test_the_paired_test_tells_a_shift_from_noise() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=30)
    assert relative_error.paired_p(noise - noise.mean(), rng) > 0.9
    assert relative_error.paired_p(noise + 1.5, rng) < 1e-3


@pytest.mark.parametrize("protocol", ["held-out", "row"])
def test_the_relative_error_of_a_cut_softmax_is_found_out(finished: Finished, protocol: Protocol) -> None:
    facts = finished.section("relative-error").facts[protocol]
    assert facts["p"]["groups"]["cut"] < 0.01
    assert facts["p"]["groups"]["ours"] > 1e-3 and facts["p"]["tops"]["ours"] > 1e-3
    assert all(len(values) == 12 for values in facts["errors"]["tops"].values())


def test_counted_draws_are_races(finished: Finished) -> None:
    """Too many at once would be one dense pass, and nothing would be tested."""
    held, rng = finished.bench, np.random.default_rng(0)
    together = held.model(held.thetas("row")[0], temperature=0.05).sample(30_000, method=lg.Bounded(), rng=rng)
    assert together.rows > held.n  # finished by a dense pass
    seen: list[tuple[int, str]] = []

    class Watched(lg.Bounded):
        def sample(self, query, size, rng):
            drawn = super().sample(query, size, rng)
            seen.append((size, drawn.label))
            return drawn

    counts = ranks.count_ranks(held, "row", held.oracle("row"), 0, 1_050, Watched(), rng)
    assert counts.sum() == 1_050 and seen == [(100, "bounded")] * 10 + [(50, "bounded")]
