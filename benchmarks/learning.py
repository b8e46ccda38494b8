"""What is built on top, against dense: learning (Table 2 of the paper), the Markov chain, the torch loss.

    python benchmarks/learning.py [--photos PATH] [--models DIR] [--only learning walk torch] [--quick] [--json PATH]
    python benchmarks/learning.py --only learning --iterations 500 --figure docs/figures/learning.svg

Learning is 5,000 steps on 16 related rows, at a rate of 10 halved every 1,000: photo descriptors (a random row and its
15 nearest) and GloVe (waters). The chain is 200,000 steps in 64 chains over GloVe at temperature 0.05. The
torch part is `examples/characters.py`. `--models` keeps built models from run to run. Exact runs are dense passes as
well written as NumPy allows; everything may use all cores. Needs the extras `data` and `torch`, and `plots` for
`--figure`.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.extras import require
from lazygumbel.learning import Anchored, Diverged

ROOT = Path(__file__).parent.parent
WATER = (
    *("river", "lake", "sea", "ocean", "stream", "creek", "pond", "bay"),
    *("lagoon", "canal", "reservoir", "estuary", "gulf", "marsh", "waterfall", "brook"),
)
TEMPERATURE = 0.05
CHAINS = 64
BLACK, ORANGE, BLUE, GREEN, PURPLE = "#222222", "#d55e00", "#0072b2", "#009e73", "#cc79a7"
STYLES = {
    "exact gradient": (BLACK, "-"),
    "Anchored (default)": (BLUE, "--"),
    "UniformTail (the paper)": (GREEN, ":"),
    "Bounded": (PURPLE, "-."),
    "TopKOnly, 100 sqrt(n)": (ORANGE, ":"),
    "TopKOnly, sqrt(n)": (ORANGE, "-"),
}


def open_model(name: str, read: Callable[[], lg.Features], folder: Path | None) -> lg.LogLinear:
    """The model of these rows: from the folder, if it was kept there."""
    if folder is not None and (folder / name).exists():
        return lg.LogLinear.load(folder / name)
    model = lg.LogLinear.build(read(), rng=0)
    if folder is not None:
        model.save(folder / name)
    return model


def methods(n: int) -> dict[str, Any]:
    """What estimates E[phi]; the paper's sizes for its own two, and a head of the size that it samples with."""
    return {
        "exact gradient": lg.Exhaustive(),
        "Anchored (default)": Anchored(),
        "UniformTail (the paper)": lg.UniformTail(k=ceil(10 * sqrt(n)), l=ceil(100 * sqrt(n))),
        "Bounded": lg.Bounded(),
        "TopKOnly, 100 sqrt(n)": lg.TopKOnly(min(n, ceil(100 * sqrt(n)))),
        "TopKOnly, sqrt(n)": lg.TopKOnly(ceil(sqrt(n))),
    }


def learn(model: lg.LogLinear, ids: np.ndarray, iterations: int, asked: list[str]) -> dict[str, Any]:
    """Table 2: for every method the final exact log-likelihood, the time of its steps, and the learning curve."""
    found: dict[str, Any] = {}
    for name, method in methods(model.features.n).items():
        if name not in asked:
            continue
        options = {"iterations": iterations, "halve_every": max(1, iterations // 5), "rng": 0}
        try:
            learnt, ended = lg.fit(model, ids, method=method, **options), ""
        except Diverged as error:
            learnt, ended = error.fit, str(error)
        steps = max(int(learnt.history.iteration[-1]), 1)
        found[name] = {
            "log-likelihood": learnt.log_likelihood,
            "steps": steps,
            "ms a step": 1e3 * float(learnt.history.seconds[-1]) / steps,
            "rows a step": learnt.rows / steps,
            "norm of theta": float(np.linalg.norm(learnt.theta)),
            "ended": ended,
            "curve": {name: column.tolist() for name, column in vars(learnt.history).items()},
            "likely": most_likely(model, learnt.theta, ids),
        }
    for facts in found.values():
        facts["speed-up"] = found["exact gradient"]["ms a step"] / facts["ms a step"]
        facts["gap"] = found["exact gradient"]["log-likelihood"] - facts["log-likelihood"]
    return found


def most_likely(model: lg.LogLinear, theta: np.ndarray, ids: np.ndarray) -> list[str]:
    """The ten most probable rows outside the training set, exactly: names, or ids."""
    others = lg.LogLinear(lg.ExactIndex(model.features))(theta).top_k(10, exclude=ids).ids
    names = model.features.names
    return [str(i) if names is None else names[int(i)] for i in others]


def walk(model: lg.LogLinear, steps: int) -> dict[str, Any]:
    """One exact run of all chains and one of ours: time, and what the most visited rows of their halves share.

    A chain is sequential: alone, an exact one scores all rows for one theta at a time. Many together share the pass.
    """
    each = max(2, steps // CHAINS)
    half, top = each // 2, min(1000, each * CHAINS // 8)
    walks: dict[str, lg.Walk] = {}
    seconds: dict[str, float] = {}
    few = max(2, each // 2)
    model(model.features.gather([0]), temperature=TEMPERATURE).sample(1, rng=0)  # compiles
    start = time.perf_counter()
    lg.walk(model, few, chains=1, temperature=TEMPERATURE, method=lg.Exhaustive(by_bytes=False), rng=2)
    alone = (time.perf_counter() - start) / few
    for seed, (name, method) in enumerate((("exact", lg.Exhaustive(by_bytes=False)), ("ours", None))):
        start = time.perf_counter()
        walks[name] = lg.walk(model, each, chains=CHAINS, temperature=TEMPERATURE, method=method, rng=seed)
        seconds[name] = time.perf_counter() - start
    halves = {name: (w.window(0, half), w.window(half, 2 * half)) for name, w in walks.items()}
    return {
        "steps": each * CHAINS,
        "chains": CHAINS,
        "top": top,
        "shared, exact and ours": walks["exact"].overlap(walks["ours"], k=top),
        "shared, half of exact and half of ours": [
            a.overlap(b, k=top) for a in halves["exact"] for b in halves["ours"]
        ],
        "shared, two halves of exact": halves["exact"][0].overlap(halves["exact"][1], k=top),
        "shared, two halves of ours": halves["ours"][0].overlap(halves["ours"][1], k=top),
        "one exact chain, ms a step": 1e3 * alone,
        "exact chains together, ms a step": 1e3 * seconds["exact"] / (each * CHAINS),
        "ours ms a step": 1e3 * seconds["ours"] / (each * CHAINS),
        "times faster than one exact chain": alone * each * CHAINS / seconds["ours"],
        "times faster than the exact chains together": seconds["exact"] / seconds["ours"],
        "ours rows a step": float(walks["ours"].rows.sum()) / (each * CHAINS),
        "label": walks["ours"].label,
    }


def torch_loss(folder: Path | None, quick: bool) -> dict[str, Any]:
    """The report of the example, run on its own: torch and this process would share the cores."""
    command = [sys.executable, str(ROOT / "examples" / "characters.py"), "--json"]
    if quick:
        command += ["--steps", "5", "--rows", "20000"]
    elif folder is not None:
        command += ["--model", str(folder / "glove")]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def show_learning(title: str, found: dict[str, Any]) -> None:
    print(f"\n{title}\n{'':26}{'log-likelihood':>15}{'gap':>11}{'ms a step':>11}{'speed-up':>10}{'rows a step':>13}")
    for name, facts in found.items():
        print(
            f"{name:26}{facts['log-likelihood']:15.5f}{facts['gap']:11.5f}{facts['ms a step']:11.3f}"
            f"{facts['speed-up']:9.1f}x{facts['rows a step']:13,.0f}"
        )
        if facts["ended"]:
            print(f"  stopped after {facts['steps']:,} steps: {facts['ended']}")
    for name in ("exact gradient", "Anchored (default)"):
        print(f"most probable others, {name}: {', '.join(found[name]['likely'])}")


def draw(found: dict[str, Any], path: Path) -> None:
    """Learning curves: against steps, and against rows scored."""
    matplotlib: Any = require("matplotlib", extra="plots")
    matplotlib.use("svg")
    plots: Any = require("matplotlib.pyplot", extra="plots")
    # A fixed salt and no date: the same figures give the same file.
    plots.rcParams.update({"svg.hashsalt": "lazygumbel", "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plots.subplots(1, 2, figsize=(10, 4), layout="constrained", facecolor="white", sharey=True)
    for name, facts in found.items():
        curve, (colour, line) = facts["curve"], STYLES[name]
        left.plot(curve["iteration"], curve["log_likelihood"], line, color=colour, label=name)
        right.plot(curve["rows"][1:], curve["log_likelihood"][1:], line, color=colour, label=name)
    values = found["exact gradient"]["curve"]["log_likelihood"]
    left.set(xlabel="steps", ylabel="exact mean log-likelihood of 16 words", ylim=(values[1] - 0.6, values[-1] + 0.1))
    right.set(xlabel="rows scored", xscale="log")
    right.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="a .npy file of SIFT descriptors, one a row")
    parser.add_argument("--models", type=Path, help="folder to keep built models in")
    parser.add_argument(
        "--only", nargs="+", choices=("learning", "walk", "torch"), default=("learning", "walk", "torch")
    )
    parser.add_argument(
        "--iterations", type=int, help="steps of learning; the rate is halved after every fifth of them"
    )
    parser.add_argument("--methods", nargs="+", choices=STYLES, default=list(STYLES), help="of learning")
    parser.add_argument("--quick", action="store_true", help="far fewer steps: shows that everything runs")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    parser.add_argument("--figure", type=Path, help="file to draw the learning curves on GloVe to")
    options = parser.parse_args()
    iterations = options.iterations or (20 if options.quick else 5000)
    results: dict[str, Any] = {}
    glove = open_model("glove", datasets.glove, options.models) if set(options.only) & {"learning", "walk"} else None
    if "learning" in options.only and options.photos is not None:
        photos = open_model("photos", lambda: datasets.photos(options.photos), options.models)
        row = photos.features.gather(np.random.default_rng(0).integers(photos.features.n))
        ids = lg.ExactIndex(photos.features).top_k(row, 16).ids
        results["photos"] = learn(photos, ids, iterations, options.methods)
        show_learning(f"Learning, photos, n = {photos.features.n:,}, {iterations:,} steps", results["photos"])
    if "learning" in options.only and glove is not None and glove.features.names is not None:
        ids = np.array([glove.features.names.find(word) for word in WATER])
        results["glove"] = learn(glove, ids, iterations, options.methods)
        show_learning(f"Learning, GloVe, n = {glove.features.n:,}, {iterations:,} steps", results["glove"])
        if options.figure is not None:
            draw(results["glove"], options.figure)
    if "walk" in options.only and glove is not None:
        results["walk"] = walk(glove, 2_000 if options.quick else 200_000)
        print("\nMarkov chain, GloVe")
        for key, value in results["walk"].items():
            print(f"{key:46}{value if isinstance(value, str | list) else format(value, ',.4g')}")
    if "torch" in options.only:
        results["torch"] = torch_loss(options.models, options.quick)
        print("\nTraining an encoder with the loss over all words\n" + json.dumps(results["torch"], indent=2))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
