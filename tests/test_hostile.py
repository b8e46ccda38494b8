"""Nothing in a model folder is trusted: what was edited, damaged or made by hand is refused before a kernel sees it."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

import lazygumbel as lg
from lazygumbel._support.manifest import read_config, seal
from lazygumbel._support.persist import _facts
from statistics_helpers import make_rows

N, D, CELLS = 700, 12, 9
CALIBRATION = lg.Calibration(3.0, (1.0, 0.1, 0.1), (9.0, 0.9, 0.9), 1e-3, 1e-5, 1e-4, 2e-4, 50, 1.5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind."""
    features = lg.Features.of(make_rows(N, D, seed=1), names=[f"né {i}" for i in range(N)])
    partition = lg.PartitionIndex.build(features, cells=CELLS, coordinates=(3, 2), rng=0).calibrated(CALIBRATION)
    indexes = {
        "exact": lg.ExactIndex.build(features),
        "partition": partition,
        "lsh": lg.LSHIndex.build(features, tables=3, rng=0),
        "faiss": lg.FaissIndex.build(features, "IVF4,Flat"),
    }
    root = tmp_path_factory.mktemp("models")
    for kind, index in indexes.items():
        lg.LogLinear(index).save(root / kind)
    return {kind: root / kind for kind in indexes}


def data(path: Path) -> Path:
    return next(path.glob("data-*"))


def reseal(path: Path, config: dict[str, Any]) -> None:
    """Put a config.json there with a digest that fits, as somebody would who means it."""
    (path / "config.json").write_text(json.dumps(config | {"digest": seal(config)}))


def with_array(path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    file = data(path) / f"{name}.npy"
    np.save(file, change(np.load(file)))
    refresh(path)


def refresh(path: Path) -> None:
    """Sizes and digests of the files as they are."""
    config = json.loads((path / "config.json").read_text())
    reseal(path, config | {"files": {file.name: _facts(file) for file in data(path).iterdir()}})


def use(model: lg.LogLinear) -> None:
    dist = model(model.features.gather(3), temperature=0.2)
    dist.sample(3, rng=0)
    dist.sample_without_replacement(5, rng=0)
    dist.log_partition(rng=0)
    dist.expectation(rng=0)
    dist.top_k(4)


def paths_to(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested settings."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here] * bool(here) + [place for key, held in items for place in paths_to(held, (*here, key))]


EDITS: list[Any] = [None, True, -1, 0, 7, 2**70, 0.5, -1e300, float("nan"), float("inf"), "", "../../etc", [], [[]], {}]


def edited(config: dict[str, Any], rng: np.random.Generator) -> tuple[dict[str, Any], str]:
    """Another value, or another name, somewhere in settings."""
    config = json.loads(json.dumps(config))
    places = [place for place in paths_to(config) if place != ("digest",)]
    *above, last = places[rng.integers(len(places))]
    holder = config
    for key in above:
        holder = holder[key]
    before, kind = holder[last], rng.integers(3)
    if kind == 0 and isinstance(holder, dict):
        holder[f"{last}_"] = holder.pop(last)
        return config, f"{(*above, last)} renamed"
    value = EDITS[rng.integers(len(EDITS))]
    if kind == 1 and isinstance(before, int | float):
        value = type(before)(2 * before + 1)
    holder[last] = value
    return config, f"{(*above, last)}: {before!r} to {value!r}"


@pytest.mark.parametrize("kind", ["exact", "partition", "lsh", "faiss"])
def test_an_edited_config_is_refused(kind: str, saved: dict[str, Path], tmp_path: Path):
    """By its digest at the latest."""
    path, rng = tmp_path / "model", np.random.default_rng(0)
    copytree(saved[kind], path)
    use(lg.LogLinear.load(path))  # control
    original = read_config(path)
    for _ in range(66):
        config, what = edited(original, rng)
        text = json.dumps(config)
        if json.loads(text) == original:
            continue
        (path / "config.json").write_text(text)
        try:
            lg.LogLinear.load(path)
        except ValueError:
            continue
        pytest.fail(f"not refused: {what}")


@pytest.mark.parametrize("kind", ["exact", "partition", "lsh", "faiss"])
def test_an_edited_config_with_a_digest_that_fits_is_refused(kind: str, saved: dict[str, Path], tmp_path: Path):
    path, rng = tmp_path / "model", np.random.default_rng(1)
    copytree(saved[kind], path)
    original = read_config(path)
    passed: list[str] = []
    for _ in range(300):
        config, what = edited(original, rng)
        if config == original:
            continue
        reseal(path, config)
        try:
            model = lg.LogLinear.load(path)
        except ValueError:
            continue
        use(model)
        passed.append(what)
    # What is left would be as good a model: without names, without a digest, with other promises.
    harmless = ("'names.npy'", "'sha256') renamed", "'gap'", "'delta'", "'calibration'", "'faiss'")
    assert [what for what in passed if not any(word in what for word in harmless)] == []


HOSTILE: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {}


def hostile(kind: str, name: str, **changes: Callable[[np.ndarray], np.ndarray]) -> None:
    for title, change in changes.items():
        HOSTILE[f"{kind} {name} {title}"] = kind, name, change


def put(place: Any, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


ARRAYS = {
    "exact": ("rows", "names", "name_offsets"),
    "lsh": ("lsh_projections", "lsh_codes", "lsh_order"),
    "partition": (
        *("rows", "order", "positions", "names", "name_offsets", "means", "offsets", "cell_variances"),
        *("residual_axes", "residual_around"),
        *("coder_turn_rows", "coder_turn_thetas", "coder_first", "coder_second", "codes", "more", "widths"),
        *("exponents", "code_units"),
        *("bytes", "byte_steps", "byte_error"),
    ),
}
for kind, names in ARRAYS.items():
    for name in names:
        hostile(
            kind,
            name,
            longer=lambda a: np.concatenate([a, a]),
            shorter=lambda a: a[:-1],
            empty=lambda a: a[:0],
            scalar=lambda a: a.reshape(-1)[0],
            deeper=lambda a: a[None],
            wider=lambda a: a.astype(np.float64 if a.dtype != np.float64 else np.float32),
            swapped=lambda a: a.astype(a.dtype.newbyteorder(">")) if a.itemsize > 1 else a.view(np.bool_),
            by_columns=lambda a: np.asfortranarray(a) if a.ndim > 1 else a[:, None],
            structured=lambda a: np.zeros(a.shape, dtype=[("a", a.dtype)]),
            words=lambda a: a.astype("U4"),
        )
for name in (
    *("rows", "means", "cell_variances", "residual_axes"),
    *("coder_turn_rows", "coder_turn_thetas", "coder_first", "coder_second"),
):
    hostile("partition", name, nan=put(1, np.nan), infinite=put(1, np.inf))
for name in ("widths", "code_units", "byte_steps", "byte_error", "residual_around"):
    hostile("partition", name, nan=put(0, np.nan), infinite=put(0, np.inf), negative=put(0, -1.0))
hostile("partition", "rows", huge=put(5, 1e20))
hostile("partition", "code_units", zero=put(0, 0.0))
hostile("partition", "cell_variances", zero=put(0, 0.0), negative=put(3, -1.0))
hostile("partition", "residual_around", zero=put(0, 0.0), negative=put(0, -1.0), huge=put(0, 2.0))
hostile("partition", "means", huge=put(0, 1e20))
for name in ("coder_turn_rows", "coder_turn_thetas"):
    hostile("partition", name, zero=put(0, 0.0), shrunk=lambda a: a * np.float32(0.9))
hostile("partition", "exponents", huge=put(2, 255))
hostile("partition", "byte_error", huge=put(0, 1e9))
hostile(
    "partition",
    "offsets",
    zigzag=lambda a: np.concatenate([a[:2], a[1:2] + 500, a[3:]]),
    beyond=put(-1, N + 64),
    short=put(-1, N - 1),
    late=put(0, 1),
    negative=put(1, -5),
    empty_cell=lambda a: np.concatenate([a[:1], a[:1], a[2:]]),
    huge=put(3, 2**62),
)
for name in ("order", "positions"):
    hostile("partition", name, beyond=put(7, N), negative=put(7, -1), huge=put(0, 2**62))
    hostile("partition", name, twice=lambda a: a[[0, 0, *range(2, N)]])
hostile("partition", "name_offsets", beyond=put(-1, 10**9), back=put(5, 0), late=put(0, 1), in_a_letter=put(1, 2))
hostile("partition", "names", no_letters=put(4, 255))
hostile("lsh", "lsh_order", beyond=put((1, 3), N), twice=put((1, slice(0, 2)), 5), huge=put((0, 0), 2**32 - 1))
hostile("lsh", "lsh_codes", unsorted=put((0, 0), 2**32 - 1))
hostile("lsh", "lsh_projections", nan=put(0, np.nan))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hand_made_array_is_refused(case: str, saved: dict[str, Path], tmp_path: Path):
    kind, name, change = HOSTILE[case]
    path = tmp_path / "model"
    copytree(saved[kind], path)
    with_array(path, name, change)
    with pytest.raises(ValueError, match=str(path)):
        lg.LogLinear.load(path)


def test_a_file_that_is_no_array_is_refused(saved: dict[str, Path], tmp_path: Path):
    path = tmp_path / "model"
    copytree(saved["partition"], path)
    file = data(path) / "offsets.npy"
    good = file.read_bytes()
    contents = {
        "nothing": b"",
        "text": b"hello",
        "header only": good[:128],
        "cut": good[:-8],
        "a promise": good.replace(b"(10,)", b"(9**9,)").replace(b"(10, ", b"(10**9,"),
        "an archive": b"PK\x03\x04" + good,
        "version": good[:6] + b"\x02" + good[7:],
        "open brackets": good[:10] + b"(" * (len(good) - 10),
    }
    for what, content in contents.items():
        file.write_bytes(content)
        refresh(path)
        with pytest.raises(ValueError, match=str(path)):
            what = lg.LogLinear.load(path)
        assert isinstance(what, str)
    np.save(file, np.array([None]), allow_pickle=True)
    refresh(path)
    with pytest.raises(ValueError, match="not an array of plain numbers"):
        lg.LogLinear.load(path)


def test_names_that_lead_elsewhere_are_refused(saved: dict[str, Path], tmp_path: Path):
    path = tmp_path / "model"
    copytree(saved["partition"], path)
    copytree(data(path), tmp_path / "elsewhere")
    config = read_config(path)
    for outside in ("../elsewhere", str(tmp_path / "elsewhere"), ".", "", f"{config['data']}/../../elsewhere"):
        reseal(path, config | {"data": outside})
        with pytest.raises(ValueError, match=r"config\.json has a data that no model has; it was edited"):
            lg.LogLinear.load(path)
    for name in ("../rows.npy", "/etc/hostname", "a/b.npy", "..", ".npy", "a\x00.npy"):
        (path / "config.json").write_text(json.dumps(config | {"files": config["files"] | {name: {"bytes": 1}}}))
        with pytest.raises(ValueError, match=r"config\.json has a files that no model has; it was edited"):
            lg.LogLinear.load(path)


def test_what_cannot_be_told_from_a_model_gives_answers_and_no_more(saved: dict[str, Path], tmp_path: Path):
    """Codes of other rows, units of any size: wrong answers, as from any model that somebody made up; in time."""
    rng = np.random.default_rng(0)
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "codes": lambda a: rng.integers(256, size=a.shape).astype(np.uint8),
        "more": lambda a: rng.integers(256, size=a.shape).astype(np.uint8),
        "bytes": lambda a: rng.integers(-128, 128, size=a.shape).astype(np.int8),
        "byte_steps": lambda a: a * np.float32(1e30),
        "widths": lambda a: a * np.float32(1e30),
        "code_units": lambda a: a * 1e300,
        "cell_variances": lambda a: a * 1e300,
        "exponents": lambda a: rng.integers(100, size=a.shape).astype(np.uint8),
        "means": lambda a: a[::-1].copy(),
    }
    for name, change in changes.items():
        path = tmp_path / name
        copytree(saved["partition"], path)
        with_array(path, name, change)
        with np.errstate(all="ignore"):
            use(lg.LogLinear.load(path))
