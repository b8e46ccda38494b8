"""The command line: values against the library, and one clear line for bad input."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import lazygumbel as lg
from cli_helpers import ROWS, D, refused, run, run_json

KINDS = {
    "exact": "exact",
    "partition": "partition",
    "lsh": "lsh",
    "HNSW16": "faiss",
    "IVF32,Flat": "faiss",
}
AWKWARD = ["[bold]no markup[/bold]", "[/closing]", ":heart:", "naïve", "x" * 200]
"""Names that a table could spoil: markup, emoji codes, accents, great length."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows as .npy and as named .vec, thetas, and one model of each kind of index."""
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, D)).astype(np.float32)
    np.save(path / "rows.npy", rows)
    np.save(path / "theta.npy", rows[7])
    np.savetxt(path / "theta.txt", rows[7])
    names = AWKWARD + [f"word{i}" for i in range(len(AWKWARD), 100)]
    lines = [f"{name} {' '.join(f'{x:.5f}' for x in row)}" for name, row in zip(names, rows, strict=False)]
    (path / "words.vec").write_text("\n".join([f"100 {D}", *lines]) + "\n", encoding="utf-8")
    for index in KINDS:
        run("build", path / "rows.npy", path / index, "--index", index, "--seed", 0)
    run("build", path / "words.vec", path / "words")
    return path


class TestBuildAndInfo:
    @pytest.mark.parametrize("index", KINDS)
    def test_every_index_builds_and_holds_the_rows(self, folder: Path, index: str) -> None:
        facts = run_json("info", folder / index)
        assert (facts["n"], facts["d"], facts["dtype"], facts["names"]) == (ROWS, D, "float32", False)
        assert facts["index"]["kind"] == KINDS[index]
        model = lg.LogLinear.load(folder / index)
        ids = np.arange(0, ROWS, 37)
        assert np.array_equal(model.features.gather(ids), np.load(folder / "rows.npy")[ids])

    def test_a_built_model_is_described_as_info_describes_it(self, folder: Path, tmp_path: Path) -> None:
        built = run_json("build", folder / "rows.npy", tmp_path / "model", "--cells", 40, "--seed", 0)
        assert built == run_json("info", tmp_path / "model")
        assert built["index"]["kind"] == "partition" and built["index"]["cells"] == 40
        assert "partition" in run("info", tmp_path / "model")

    def test_the_same_seed_builds_the_same_model(self, folder: Path, tmp_path: Path) -> None:
        for name in ("a", "b"):
            run("build", folder / "rows.npy", tmp_path / name, "--index", "partition", "--seed", 3)
        orders = [lg.LogLinear.load(tmp_path / name).features.order for name in ("a", "b")]
        assert np.array_equal(*orders)

    def test_names_come_from_the_file(self, folder: Path) -> None:
        assert run_json("info", folder / "words")["names"] is True
        names = lg.LogLinear.load(folder / "words").features.names
        assert names is not None and list(names)[:6] == [*AWKWARD, "word5"]

    def test_unit_norm_scales_the_rows(self, folder: Path, tmp_path: Path) -> None:
        run("build", folder / "rows.npy", tmp_path / "unit", "--unit-norm")
        rows = lg.LogLinear.load(tmp_path / "unit").features.gather(np.arange(50))
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)

    def test_a_model_is_replaced_by_a_new_one(self, folder: Path, tmp_path: Path) -> None:
        run("build", folder / "words.vec", tmp_path / "model")
        run("build", folder / "rows.npy", tmp_path / "model", "--index", "exact")
        assert run_json("info", tmp_path / "model")["n"] == ROWS
        assert len(list((tmp_path / "model").iterdir())) == 2


class TestTheta:
    @pytest.mark.parametrize("way", [("--theta", "theta.npy"), ("--theta", "theta.txt"), ("--row", "7")])
    def test_every_way_to_give_theta_gives_the_same_answer(self, folder: Path, way: tuple[str, str]) -> None:
        value = folder / way[1] if way[0] == "--theta" else way[1]
        found = run_json("top-k", folder / "exact", 5, way[0], value)
        rows = np.load(folder / "rows.npy")
        scores = rows @ rows[7]
        assert found["ids"] == np.argsort(-scores)[:5].tolist()
        assert np.allclose(found["scores"], np.sort(scores)[::-1][:5], rtol=1e-5)
        assert found["rows"] == ROWS and found["exact"] is True and found["names"] is None

    def test_a_name_is_the_row_with_that_name(self, folder: Path) -> None:
        for i, name in enumerate([*AWKWARD, "word5"]):
            by_name = run_json("top-k", folder / "words", "--name", name)
            assert by_name == run_json("top-k", folder / "words", "--row", i)
            assert by_name["names"][by_name["ids"].index(i)] == name

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "exactly one of --theta, --row and --name"),
            (("--row", 1, "--name", "word5"), "exactly one of --theta, --row and --name"),
            (("--row", 1, "--theta", "theta.npy"), "exactly one of --theta, --row and --name"),
            (("--row", 100), "100"),
            (("--row=-1",), "-1"),
            (("--name", "nobody"), "no row is named 'nobody'"),
            (("--theta", "absent.npy"), "absent.npy"),
            (("--theta", "narrow.npy"), "d = 16"),
            (("--theta", "deep.npy"), "(B, 16), not (1, 2, 16)"),
            (("--theta", "words.vec"), "cannot be read as numbers"),
            (("--theta", "empty.npy"), "empty.npy cannot be read"),
            (("--theta", "empty.txt"), "d = 16"),
            (("--theta", "nan.txt"), "NaN"),
        ],
    )
    @pytest.mark.parametrize("command", ["top-k", "sample", "log-partition"])
    def test_a_bad_theta_is_refused(self, folder: Path, command: str, arguments: tuple, said: str) -> None:
        for name, text in (("empty.npy", ""), ("empty.txt", ""), ("nan.txt", "nan " * D)):
            (folder / name).write_text(text)
        np.save(folder / "narrow.npy", np.ones((4, D - 1)))
        np.save(folder / "deep.npy", np.ones((1, 2, D)))
        placed = [folder / a if str(a).endswith((".npy", ".txt", ".vec")) else a for a in arguments]
        assert said in refused(command, folder / "words", *placed)

    def test_a_name_needs_names(self, folder: Path) -> None:
        assert "have no names" in refused("top-k", folder / "exact", "--name", "word5")


class TestSample:
    @pytest.mark.parametrize("index", KINDS)
    def test_a_seed_gives_the_draws_of_the_library(self, folder: Path, index: str) -> None:
        drawn = run_json("sample", folder / index, 20, "--row", 3, "--temperature", 5, "--seed", 1)
        model = lg.LogLinear.load(folder / index)
        expected = model(model.features.gather(3), temperature=5.0).sample(20, rng=1)
        assert drawn["ids"] == expected.ids.tolist()
        assert drawn["label"] == expected.label == {"exact": "exact", "partition": "bounded"}.get(index, "heuristic")
        assert drawn["rows"] == expected.rows and len(drawn["values"]) == 20

    @pytest.mark.parametrize("method", ["bounded", "exhaustive", "lazy", "fixed-cutoff", "top-k"])
    def test_methods(self, folder: Path, method: str) -> None:
        ids = run_json("sample", folder / "partition", 5, "--row", 3, "--method", method, "--seed", 0)["ids"]
        assert len(ids) == 5 and all(0 <= i < ROWS for i in ids)

    def test_k_sets_the_head(self, folder: Path) -> None:
        drawn = run_json(
            "sample", folder / "exact", 500, "--row", 3, "--temperature", 100, "--method", "top-k", "--k", 4
        )
        assert len(set(drawn["ids"])) == 4

    def test_truncation_is_that_of_the_library_after_what_is_excluded(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "out.txt").write_text("3\n4\n")
        rules = ("--top-k", 8, "--top-p", 0.9, "--min-p", 0.01, "--exclude", tmp_path / "out.txt")
        drawn = run_json("sample", folder / "partition", 50, "--row", 3, "--temperature", 5, "--seed", 1, *rules)
        model = lg.LogLinear.load(folder / "partition")
        left = model(model.features.gather(3), temperature=5.0).truncated(
            top_k=8, top_p=0.9, min_p=0.01, exclude=[3, 4]
        )
        assert drawn["ids"] == left.sample(50, rng=1).ids.tolist() and len(set(drawn["ids"])) <= 8
        assert "top_p must be at most 1" in refused("sample", folder / "exact", "--row", 3, "--top-p", 2)

    @pytest.mark.parametrize(
        "method", [(), ("--method", "bounded"), ("--method", "lazy"), ("--method", "exhaustive"), ("--k", 80)]
    )
    def test_without_replacement_gives_distinct_rows(self, folder: Path, method: tuple) -> None:
        drawn = run_json("sample", folder / "partition", 30, "--without-replacement", "--row", 3, "--seed", 0, *method)
        assert len(set(drawn["ids"])) == 30
        assert drawn["values"] == sorted(drawn["values"], reverse=True)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--method", "nonsense"), "bounded, calibrated, exhaustive, fixed-cutoff, lazy, top-k"),
            (("--method", "nonsense", "--without-replacement"), "bounded, calibrated, exhaustive"),
            (("--method", "top-k", "--without-replacement"), "cannot draw without replacement"),
            (("--method", "exhaustive", "--k", 5), "k:"),
            (("--method", "bounded", "--k", 5), "k: the method bounded has none"),
            (("--method", "calibrated"), "call model.calibrate(thetas) first"),
            (("--method", "top-k", "--k", 0), "k must be at least 1"),
            (("--temperature", 0), "temperature must be greater than 0"),
            (("--temperature=-1",), "temperature must be greater than 0"),
            (("--temperature", "nan"), "temperature must be finite"),
            (("--seed=-1",), "non-negative"),
        ],
    )
    def test_bad_options_are_refused(self, folder: Path, arguments: tuple, said: str) -> None:
        assert said in refused("sample", folder / "partition", "--row", 3, *arguments)

    def test_bad_sizes_are_refused(self, folder: Path) -> None:
        assert "size" in refused("sample", folder / "exact", "--row", 3, "--", "-2")
        assert "only 100 rows" in refused("sample", folder / "words", 101, "--row", 3, "--without-replacement")


class TestLogPartition:
    def exact(self, folder: Path) -> float:
        rows = np.load(folder / "rows.npy").astype(np.float64)
        return float(np.log(np.exp(rows @ rows[3] / 4).sum()))

    def test_exact(self, folder: Path) -> None:
        found = run_json("log-partition", folder / "partition", "--row", 3, "--temperature", 4, "--exact")
        assert found["value"] == pytest.approx(self.exact(folder), rel=1e-6)
        assert (found["stderr"], found["rows"], found["label"]) == (0.0, ROWS, "exact")

    @pytest.mark.parametrize("budget", [(), ("--rel-err", 0.05), ("--k", 300)])
    def test_estimates_come_with_an_error(self, folder: Path, budget: tuple) -> None:
        found = run_json("log-partition", folder / "partition", "--row", 3, "--temperature", 4, "--seed", 0, *budget)
        assert found["value"] == pytest.approx(self.exact(folder), abs=0.2)
        assert 0 < found["stderr"] < 0.2
        assert found["label"] == ("heuristic" if "--k" in budget else "bounded")

    def test_contradictions_are_refused(self, folder: Path) -> None:
        common = ("log-partition", folder / "partition", "--row", 3)
        assert "exact" in refused(*common, "--exact", "--k", 5)
        assert "rel_err" in refused(*common, "--exact", "--rel-err", 0.1)
        assert "rel_err" in refused(*common, "--rel-err", 5)


class TestAudit:
    @pytest.mark.parametrize("method", ["bounded", "exhaustive", "lazy", "fixed-cutoff", "top-k"])
    def test_the_figures_are_those_of_the_library(self, folder: Path, method: str) -> None:
        found = run_json("audit", folder / "partition", "--method", method, "--thetas", 3, "--seed", 0)
        assert found["thetas"] == 3
        assert 0 <= found["miss"] <= found["max_miss"] <= 1
        assert (found["bound"] is None) == (method not in ("bounded", "fixed-cutoff"))
        model = lg.LogLinear.load(folder / "partition")
        thetas = model.features.gather(np.random.default_rng(0).integers(ROWS, size=3))
        methods = {
            "bounded": lg.Bounded(),
            "exhaustive": lg.Exhaustive(),
            "lazy": lg.LazyGumbel(),
            "fixed-cutoff": lg.FixedCutoff(),
            "top-k": lg.TopKOnly(100),
        }
        assert found["miss"] == pytest.approx(model.audit(thetas, method=methods[method]).miss.mean())

    def test_one_theta(self, folder: Path) -> None:
        assert run_json("audit", folder / "words", "--name", "word5")["thetas"] == 1
        assert "miss probability" in run("audit", folder / "words", "--name", "word5")

    def test_no_thetas_are_refused(self, folder: Path) -> None:
        assert "thetas must be at least 1" in refused("audit", folder / "words", "--thetas", 0)


class TestManyThetas:
    """A file of thetas is asked theta by theta; answers are those of the library."""

    @pytest.fixture
    def thetas(self, folder: Path) -> Path:
        rows = np.load(folder / "rows.npy")[:3]
        np.save(folder / "thetas.npy", rows)
        np.savetxt(folder / "thetas.txt", rows)
        return folder / "thetas.npy"

    def test_as_the_library_answers(self, folder: Path, thetas: Path) -> None:
        model, asked = lg.LogLinear.load(folder / "partition"), np.load(thetas)
        given = ("--theta", thetas)
        dist = model(asked)
        best, drawn = dist.top_k(4), dist.sample(5, rng=1)
        found = run_json("top-k", folder / "partition", 4, *given)
        assert found["ids"] == best.ids.tolist() and found["labels"] == ["bounded"] * 3
        assert run_json("top-k", folder / "partition", 4, "--theta", folder / "thetas.txt")["ids"] == found["ids"]
        found = run_json("sample", folder / "partition", 5, *given, "--seed", 1)
        assert found == drawn.to_dict() and found["reasons"] == drawn.reasons.tolist()
        ordered = run_json("sample", folder / "partition", 5, *given, "--seed", 1, "--without-replacement")
        assert ordered == dist.sample_without_replacement(5, rng=1).to_dict()
        found = run_json("log-partition", folder / "partition", *given, "--seed", 1)
        assert found["value"] == dist.log_partition(rng=1).value.tolist() and len(found["rows"]) == 3
        found = run_json("log-prob", folder / "partition", 5, 7, *given, "--seed", 1)
        assert found == dist.log_prob([[5] * 3, [7] * 3], rng=1).to_dict()
        assert "3 thetas" in run("audit", folder / "partition", *given)

    def test_tables_name_the_theta(self, folder: Path, thetas: Path) -> None:
        lines = run("sample", folder / "words", 2, "--theta", thetas, "--seed", 0).splitlines()
        assert lines[0].split() == ["theta", "id", "name"] and len(lines) == 8
        assert [line.split()[0] for line in lines[1:7]] == ["0", "0", "1", "1", "2", "2"]
        assert lines[7] == "3 exact: every row was scored; 300 rows scored"
        assert len(run("log-partition", folder / "words", "--theta", thetas).splitlines()) == 5

    def test_one_theta_in_a_matrix_is_a_list_of_one(self, folder: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "one.npy", np.ones((1, D)))
        found = run_json("sample", folder / "exact", 4, "--theta", tmp_path / "one.npy")
        assert np.shape(found["ids"]) == (4, 1) and found["labels"] == ["exact"]


class TestExclude:
    def test_rows_of_a_file_are_left_out_everywhere(self, folder: Path, tmp_path: Path) -> None:
        best = run_json("top-k", folder / "words", 3, "--row", 0)
        (tmp_path / "ids.txt").write_text("".join(f"{i}\n" for i in best["ids"]))
        (tmp_path / "names.txt").write_text("\n".join(best["names"]) + "\n\n", encoding="utf-8")
        for file in ("ids.txt", "names.txt"):
            given = ("--row", 0, "--exclude", tmp_path / file)
            for command in (("top-k", folder / "words", 20), ("sample", folder / "words", 200)):
                assert not set(best["ids"]) & set(run_json(*command, *given)["ids"])
            z = run_json("log-partition", folder / "words", *given)["value"]
            assert z < run_json("log-partition", folder / "words", "--row", 0)["value"]
            found = run_json("log-prob", folder / "words", best["ids"][0], 50, *given)
            assert found["value"][0] is None and found["value"][1] < 0
            assert run_json("audit", folder / "words", *given)["thetas"] == 1

    def test_rows_that_came_after_others_went_are_left_out(self, folder: Path, tmp_path: Path) -> None:
        """Their ids are beyond the number of rows."""
        shutil.copytree(folder / "words", target := tmp_path / "changed")
        with lg.LogLinear.load(target, mode="r+") as model:
            (late,) = model.add(9 * model.features.gather([0]), names=["late"]).tolist()
            model.remove([1, 2, 3])
        (tmp_path / "ids.txt").write_text(str(late))
        assert late in run_json("top-k", target, 3, "--row", 0)["ids"]
        assert late not in run_json("top-k", target, 3, "--row", 0, "--exclude", tmp_path / "ids.txt")["ids"]

    @pytest.mark.parametrize(
        ("text", "said"), [("", "no row"), ("5000", "5000"), ("nobody", "no row is named 'nobody'")]
    )
    def test_bad_files_are_refused(self, folder: Path, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "out.txt").write_text(text)
        line = refused("sample", folder / "words", "--row", 0, "--exclude", tmp_path / "out.txt")
        assert said in line
        assert "there is no file" in refused("sample", folder / "words", "--row", 0, "--exclude", tmp_path / "absent")


class TestLogProb:
    def test_the_probabilities_of_all_rows_are_one(self, folder: Path) -> None:
        found = run_json("log-prob", folder / "words", *range(100), "--row", 3, "--exact")
        assert np.exp(found["value"]).sum() == pytest.approx(1) and found["label"] == "exact"
        table = run("log-prob", folder / "words", 3, 5, "--row", 3, "--exact").splitlines()
        assert table[0].split() == ["id", "name", "log-probability", "stderr"] and len(table) == 4

    def test_bad_ids_are_refused(self, folder: Path) -> None:
        assert "ids holds 100" in refused("log-prob", folder / "words", 100, "--row", 3)


class TestCalibrate:
    def test_a_calibration_that_pays_is_kept(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for speed_up in (0.5, 2.0):
            monkeypatch.setattr("lazygumbel.guarantees.calibrate._speed_up", lambda *_, found=speed_up: found)
            shutil.copytree(folder / "partition", target := tmp_path / f"model {speed_up}")
            found = run_json("calibrate", target, "--tv", 0.5, "--temperature", 0.5, "--seed", 0)
            kept = run_json("info", target)["index"]["calibration"]
            assert found["accepted"] == (speed_up > 1) == (kept is not None)
            assert run("calibrate", target, "--tv", 0.5, "--seed", 0).startswith(("accepted", "not accepted"))
        assert lg.LogLinear.load(target)(np.ones(D)).sample(3, rng=0).ids.shape == (3,)

    def test_refusals(self, folder: Path) -> None:
        assert "needs a PartitionIndex" in refused("calibrate", folder / "exact")
        assert "at least 20" in refused("calibrate", folder / "partition", "--theta", folder / "theta.npy")


class TestNames:
    def test_names_are_read_from_a_file_of_their_own(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "names.txt").write_text("\n".join(f"né {i}" for i in range(ROWS)), encoding="utf-8")
        run("build", folder / "rows.npy", tmp_path / "model", "--names", tmp_path / "names.txt")
        found = run_json("top-k", tmp_path / "model", 3, "--name", "né 7")
        assert found["names"] == [f"né {i}" for i in found["ids"]]
        assert found["ids"] == run_json("top-k", tmp_path / "model", 3, "--row", 7)["ids"]
        (tmp_path / "names.txt").write_text("one\ntwo\n")
        said = refused("build", folder / "rows.npy", tmp_path / "other", "--names", tmp_path / "names.txt")
        assert "names has 2 entries, but features has 2000 rows" in said and not (tmp_path / "other").exists()


class TestTables:
    """What people read: whole names, as they are, in a pipe of any width."""

    def test_names_are_printed_as_they_are(self, folder: Path) -> None:
        table = run("top-k", folder / "words", 100, "--row", 0)
        assert table.split("\n")[0].split() == ["id", "name", "score"]
        for name in AWKWARD:
            assert name in table

    def test_rows_without_names_have_no_column_of_names(self, folder: Path) -> None:
        lines = run("sample", folder / "exact", 3, "--row", 0).splitlines()
        assert (
            lines[0].strip() == "id"
            and len(lines) == 5
            and lines[4] == "exact: every row was scored; 2,000 rows scored"
        )

    def test_log_partition_and_info(self, folder: Path) -> None:
        titles, facts, trust = run("log-partition", folder / "partition", "--row", 3).splitlines()
        assert titles.split() == ["log", "Z", "stderr", "95%", "interval", "rows", "label"]
        assert facts.split()[-1] in ("exact", "bounded") and trust.startswith(facts.split()[-1])
        assert run("info", folder / "words").split("\n")[0].split() == ["path", str(folder / "words")]


class TestBadFiles:
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "target"

    @pytest.mark.parametrize(
        ("name", "options", "said"),
        [
            ("absent.npy", (), "there is no file"),
            ("rows.xyz", (), ".xyz"),
            ("nan.npy", (), "row 3"),
            ("nan.npy", ("--index", "partition"), "row 3"),
            ("nan.npy", ("--unit-norm",), "row 3"),
            ("flat.npy", (), "shape"),
            ("text.npy", (), "text.npy"),
            ("rows.npy", ("--index", "exact", "--cells", 10), "cells goes with a partition index only"),
            ("rows.npy", ("--index", "lsh", "--cells", 10), "cells goes with a partition index only"),
            ("rows.npy", ("--cells", 0), "cells must be at least 1"),
            ("rows.npy", ("--cells", 10**6), "cells must be at most"),
            ("rows.npy", ("--index", "Nonsense12"), "factory"),
        ],
    )
    def test_nothing_is_built_from_bad_input(
        self, folder: Path, tmp_path: Path, name: str, options: tuple, said: str
    ) -> None:
        rows = np.load(folder / "rows.npy")
        np.save(tmp_path / "flat.npy", rows[0])
        rows[3, 2] = np.nan
        np.save(tmp_path / "nan.npy", rows)
        (tmp_path / "text.npy").write_text("not an array")
        (tmp_path / "rows.xyz").write_text("")
        shutil.copy(folder / "rows.npy", tmp_path)
        assert said in refused("build", tmp_path / name, self.target(tmp_path), *options)
        assert not self.target(tmp_path).exists()

    def test_a_folder_of_something_else_is_left_alone(self, folder: Path, tmp_path: Path) -> None:
        mine = tmp_path / "target" / "thesis.txt"
        mine.parent.mkdir()
        mine.write_text("precious")
        assert "thesis.txt" in refused("build", folder / "words.vec", mine.parent)
        assert [p.name for p in mine.parent.iterdir()] == ["thesis.txt"] and mine.read_text() == "precious"

    def test_a_file_is_no_target(self, folder: Path) -> None:
        assert "is a file" in refused("build", folder / "words.vec", folder / "theta.txt")

    @pytest.mark.parametrize("command", ["info", "top-k", "sample", "log-partition", "audit"])
    def test_what_is_no_model_is_refused(self, folder: Path, tmp_path: Path, command: str) -> None:
        theta = () if command == "info" else ("--row", 1)
        assert "no such folder" in refused(command, tmp_path / "absent", *theta)
        assert "no model here" in refused(command, tmp_path, *theta)
        assert "lazygumbel: " in refused(command, folder / "theta.txt", *theta)

    @pytest.mark.parametrize("damage", ["config", "truncated", "missing", "flipped"])
    def test_a_damaged_model_is_refused(self, folder: Path, tmp_path: Path, damage: str) -> None:
        model = tmp_path / "model"
        shutil.copytree(folder / "partition", model)
        data = next(model.glob("data-*"))
        if damage == "config":
            text = (model / "config.json").read_text()
            (model / "config.json").write_text(text[: len(text) // 2])
        elif damage == "truncated":
            os.truncate(data / "rows.npy", 1000)
        elif damage == "missing":
            (data / "offsets.npy").unlink()
        else:
            content = bytearray((data / "means.npy").read_bytes())
            content[-1] ^= 1
            (data / "means.npy").write_bytes(content)
        named = {"config": "config.json", "truncated": "rows.npy", "missing": "offsets.npy", "flipped": "means.npy"}
        assert named[damage] in refused("sample", model, "--row", 1)
