"""Results as people take them away: one JSON form, tables, what is printed, and why an answer has its label."""

import json
import sys
from dataclasses import fields, replace
from importlib.util import find_spec

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel import forms
from lazygumbel.results import Draws, Estimate, Reason, Result, TopK, grounds, weakest

N, D = 3_000, 8
ROWS = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
NAMES = [f"row <{i}>" for i in range(N)]


@pytest.fixture(scope="module")
def model() -> lg.LogLinear:
    return lg.LogLinear(lg.PartitionIndex.build(lg.Features.of(ROWS, names=NAMES), rng=0))


@pytest.fixture(scope="module", params=[(), (3,)], ids=["one theta", "three thetas"])
def results(request: pytest.FixtureRequest, model: lg.LogLinear) -> dict[str, Result]:
    batch: tuple[int, ...] = request.param
    dist = model(ROWS[:3] if batch else ROWS[0])
    ordered = dist.sample_without_replacement(4, rng=0)
    return {
        "sample": dist.sample((2, 5), rng=0),
        "ordered": ordered,
        "log_partition": dist.log_partition(rng=0),
        "expectation": dist.expectation(rng=0),
        "log_prob": dist.log_prob(ordered.ids, rng=0),
        "log_prob_ordered": dist.log_prob_ordered(ordered.ids, rng=0),
        "top_k": dist.top_k(6),
        "mode": dist.mode(),
    }


KINDS = ("sample", "ordered", "log_partition", "expectation", "log_prob", "log_prob_ordered", "top_k", "mode")


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_comes_back_from_json_as_it_was(results: dict[str, Result], kind: str):
    result = results[kind]
    sent = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    read = forms.read(result.form, sent | {"version": "v"} | ({} if "top" in kind or kind == "mode" else {"seed": 1}))
    for field in fields(result):  # pyright: ignore[reportArgumentType]
        held = getattr(result, field.name)
        if isinstance(held, np.ndarray) and field.name != "grounds":
            np.testing.assert_array_equal(getattr(read, field.name), held)
    assert (read.label, read.reason) == (result.label, result.reason)
    many = (["bounded"] * 3, [result.reason] * 3) if result.rows.ndim else (None, None)
    assert (read.labels, read.reasons) == many
    if result.names is not None:
        assert read.names == result.names.tolist()


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_a_line_for_each_row_found(results: dict[str, Result], kind: str, library: str):
    result, frame = results[kind], results[kind].to_frame(library)
    assert type(frame).__module__.startswith(library)
    columns = {name: np.array(list(frame[name])) for name in frame.columns}
    batch = result.rows.shape
    assert ("theta" in columns) == bool(batch)
    if "id" in columns:
        ids: np.ndarray = result.ids  # pyright: ignore[reportAttributeAccessIssue]
        assert columns["name"].tolist() == [NAMES[i] for i in columns["id"]]
        for b in range(3 if batch else 1):
            own = columns["id"][columns["theta"] == b] if batch else columns["id"]
            of_theta = ids if not batch else ids[..., b] if result.thetas_last else ids[b]
            assert own.tolist() == of_theta.reshape(-1).tolist()
    else:
        assert isinstance(result, Estimate) and columns["value"].tolist() == result.value.reshape(-1).tolist()
    assert set(columns["label"]) == {"bounded"} and set(columns["reason"]) == {str(result.reason)}
    assert np.isfinite(columns["bound"]).all()


def test_a_table_without_a_library_names_the_cure(results: dict[str, Result], monkeypatch: pytest.MonkeyPatch):
    only_polars = {"pandas": None, "polars": find_spec("polars")}
    monkeypatch.setattr("lazygumbel.results.frames.find_spec", only_polars.get)
    assert type(results["mode"].to_frame()).__module__.startswith("polars")
    monkeypatch.setattr("lazygumbel.results.frames.find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'lazygumbel\[frames\]'"):
        results["mode"].to_frame()
    with pytest.raises(ValueError, match="library must be one of pandas, polars, not 'arrow'"):
        results["mode"].to_frame("arrow")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_says_what_it_is_its_label_its_bound_and_why(results: dict[str, Result], kind: str):
    result = results[kind]
    shown, shape = repr(result), "3 bounded" if result.rows.ndim else "bounded"
    assert shown.startswith(f"{type(result).__name__}(") and f"; {shape}, " in shown
    assert f" at most {result.bound.max():.2g}: {result.reason}; " in shown
    html = result._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert html.startswith("<table>") and result.reason in html
    if result.names is not None:
        assert "row &lt;" in html and "row <" not in html, "names are text"


def test_models_are_printed_for_people(model: lg.LogLinear):
    assert repr(model).startswith("LogLinear(PartitionIndex(n=3,000, d=8, ")
    html = model._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "3,000 of length 8" in html and "row &lt;0&gt;" in html and "Bounded(" in html


def test_reasons_stand_in_the_order_of_their_labels_and_the_weaker_one_survives_a_merge():
    labels = [reason.label for reason in Reason]
    assert [weakest(labels[: i + 1]) for i in range(len(labels))] == labels
    assert [reason.code for reason in Reason] == list(range(len(labels)))
    both = grounds([Reason.CEILINGS, Reason.EVERY_ROW]), grounds([Reason.DENSE_PASS, Reason.LIKE])
    a, b = (Draws(np.zeros((1, 2), np.int64), np.zeros((1, 2)), np.ones(2, np.int64), held) for held in both)
    assert a.merge(b).reasons.tolist() == [Reason.CEILINGS, Reason.LIKE]
    assert a.merge(b).labels.tolist() == ["bounded", "calibrated"] and a.merge(b).reason is Reason.LIKE


def test_every_theta_has_its_own_reason(model: lg.LogLinear):
    mixed = replace(model(ROWS[:2]).top_k(2), bound=np.array([0.0, np.nan]))
    assert mixed.reasons.tolist() == [Reason.NONE_MISSED, Reason.INDEX]
    assert mixed.at(0).reason is Reason.NONE_MISSED and mixed.at(slice(1, 2)).label == "heuristic"
    dist, hnsw = model(ROWS[0]), lg.LogLinear(lg.FaissIndex.build(ROWS, "HNSW8"))(ROWS[0])
    exact = lg.LogLinear(lg.ExactIndex(ROWS))(ROWS[0])
    said = {
        Reason.EVERY_ROW: dist.log_partition(method=lg.Exhaustive()),
        Reason.SURE_CEILINGS: dist.sample(method=lg.Exhaustive()),
        Reason.NONE_MISSED: exact.sample(method=lg.LazyGumbel()),
        Reason.WEIGHED: dist.log_partition(),
        Reason.RARELY_MISSED: dist.top_k(2),
        Reason.BUDGET: exact.sample(method=lg.FixedCutoff(delta=0.1)),
        Reason.NO_BUDGET: exact.log_partition(method=lg.UniformTail(k=50)),
        Reason.INDEX: hnsw.sample(method=lg.FixedCutoff(k=20)),
        Reason.NO_TAIL: dist.sample(method=lg.TopKOnly(10)),
        Reason.SHARED_NOISE: dist.log_partition(method=lg.Frozen(5)),
    }
    assert {reason: result.reason for reason, result in said.items()} == {reason: reason for reason in said}
    for reason, result in said.items():
        assert result.label == reason.label and (result.bound == 0) == (reason.label == "exact")


def test_a_race_without_patience_and_a_theta_unlike_the_calibration_say_so(
    model: lg.LogLinear, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lazygumbel.guarantees.calibrate._speed_up", lambda *_: 2.0)
    calibrated = lg.LogLinear(model.index)
    assert calibrated.calibrate(ROWS[:200], tv=0.5, rng=0).accepted
    drawn = calibrated(np.stack([ROWS[0], 50 * ROWS[0]])).sample(rng=0)
    assert drawn.reasons.tolist() == [Reason.LIKE, Reason.UNLIKE]
    monkeypatch.setattr("lazygumbel.methods.racing.patience_of", lambda _: 0)
    drawn = model(ROWS[:2]).sample(rng=0)
    assert drawn.reasons.tolist() == [Reason.DENSE_PASS] * 2 and drawn.bound.tolist() == [0, 0]


def test_a_method_that_gives_labels_alone_is_taken_at_its_word():
    labels = np.array(["exact", "bounded", "calibrated", "heuristic"])
    drawn = Draws(np.zeros((1, 4), np.int64), np.zeros((1, 4)), np.ones(4, np.int64), labels)  # pyright: ignore
    assert drawn.labels.tolist() == labels.tolist() and all("its method" in reason for reason in drawn.reasons)


def test_rows_of_a_missing_shard_are_the_reason(model: lg.LogLinear):
    best = replace(model(ROWS[0]).top_k(2), coverage=0.5, bound=np.array(np.nan))
    assert isinstance(best, TopK) and best.reason is Reason.SHARD_MISSING and "50.0% of the rows" in repr(best)


def test_the_service_documents_every_key_of_a_result(results: dict[str, Result]):
    for result in results.values():
        schema = forms.schema(result.form)
        assert set(result.to_dict()) <= set(schema["properties"])
        assert set(schema["required"]) - {"version", "seed"} <= set(result.to_dict())
