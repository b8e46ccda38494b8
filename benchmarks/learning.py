"""What is built on top, against dense: learning (Table 2 of the paper), the Markov chain, the torch loss.

    python benchmarks/learning.py [--photos PATH] [--models DIR] [--only learning walk torch] [--quick] [--json PATH]
    python benchmarks/learning.py --only learning --iterations 500 --figures docs/figures

Learning is 5,000 steps on 16 related rows, at a rate of 10 halved every 1,000: photo descriptors (a random row and its
15 nearest) and GloVe (waters). The chain is 200,000 steps in 64 chains over GloVe at temperature 0.05. The
torch part is `examples/characters.py`. `--models` keeps built models from run to run. Exact runs are dense passes as
well written as NumPy allows; everything may use all cores. Needs the extras `data` and `torch`, and `plots` for
`--figures`.
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

import common  # noqa: F401  # finds the evaluation
import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.learning import Anchored
from lazygumbel_evaluation.harness.learning import Climb, training_set
from lazygumbel_evaluation.harness.source import PAPER_TEMPERATURE
from lazygumbel_evaluation.report.draw import draw
from lazygumbel_evaluation.report.section import Curve, Figure
from lazygumbel_evaluation.report.styles import key, label
from lazygumbel_evaluation.report.wording import plain

ROOT = Path(__file__).parent.parent
CHAINS = 64


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
    root = sqrt(n)
    found = [lg.Exhaustive(), Anchored(), lg.UniformTail(k=ceil(10 * root), l=ceil(100 * root)), lg.Bounded()]
    heads = [lg.TopKOnly(min(n, ceil(100 * root))), lg.TopKOnly(ceil(root))]
    return {label(method): method for method in found} | {label(method, "k"): method for method in heads}


def learn(model: lg.LogLinear, row: int, iterations: int) -> dict[str, Any]:
    """Table 2: for every method the final exact log-likelihood, the time of its steps, and the learning curve."""
    climb = Climb(training_set(model.features, row)[0], iterations)
    found = {name: climb.by(model, method, rng=0) for name, method in methods(model.features.n).items()}
    exact = next(iter(found.values()))
    names = model.features.names
    for facts in found.values():
        facts["speed-up"] = exact["seconds_a_step"] / facts["seconds_a_step"]
        facts["gap"] = exact["log_likelihood"] - facts["log_likelihood"]
        facts["likely"] = [str(i) if names is None else names[int(i)] for i in facts["best"]]
    return found


def walk(model: lg.LogLinear, steps: int) -> dict[str, Any]:
    """One exact run of all chains and one of ours: time, and what the most visited rows of their halves share.

    A chain is sequential: alone, an exact one scores all rows for one theta at a time. Many together share the pass.
    """
    each = max(2, steps // CHAINS)
    half, top = each // 2, min(1000, each * CHAINS // 8)
    walks: dict[str, lg.Walk] = {}
    seconds: dict[str, float] = {}
    few = max(2, each // 2)
    model(model.features.gather([0]), temperature=PAPER_TEMPERATURE).sample(1, rng=0)  # compiles
    start = time.perf_counter()
    lg.walk(model, few, chains=1, temperature=PAPER_TEMPERATURE, method=lg.Exhaustive(by_bytes=False), rng=2)
    alone = (time.perf_counter() - start) / few
    for seed, (name, method) in enumerate((("exact", lg.Exhaustive(by_bytes=False)), ("ours", None))):
        start = time.perf_counter()
        walks[name] = lg.walk(model, each, chains=CHAINS, temperature=PAPER_TEMPERATURE, method=method, rng=seed)
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
    print(f"\n{title}\n{'':36}{'log-likelihood':>15}{'gap':>11}{'ms a step':>11}{'speed-up':>10}{'rows a step':>13}")
    for name, facts in found.items():
        print(
            f"{name:36}{facts['log_likelihood']:15.5f}{facts['gap']:11.5f}{1e3 * facts['seconds_a_step']:11.3f}"
            f"{facts['speed-up']:9.1f}x{facts['rows_a_step']:13,.0f}"
        )
        if facts["ended"]:
            print(f"  stopped after {facts['steps']:,} steps: {facts['ended']}")
    for name in list(found)[:2]:
        print(f"most probable others, {name}: {', '.join(found[name]['likely'])}")


def curves(n: int, found: dict[str, Any], x: str) -> Figure:
    """Learning curves, against iterations or rows scored, without the start, which is far below all the rest."""
    drawn = [
        Curve(name, *(plain(facts["curve"][axis][1:]) for axis in (x, "log_likelihood")), key(methods(n)[name]))
        for name, facts in found.items()
    ]
    return Figure(f"learning-{x}", "Learning from 16 words", x, "exact mean log-likelihood", drawn, x_log=x == "rows")


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
    parser.add_argument("--quick", action="store_true", help="far fewer steps: shows that everything runs")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    parser.add_argument("--figures", type=Path, help="folder to draw the learning curves on GloVe to")
    options = parser.parse_args()
    iterations = options.iterations or (20 if options.quick else 5000)
    results: dict[str, Any] = {}
    glove = open_model("glove", datasets.glove, options.models) if set(options.only) & {"learning", "walk"} else None
    if "learning" in options.only and options.photos is not None:
        photos = open_model("photos", lambda: datasets.unit_rows(options.photos), options.models)
        row = int(np.random.default_rng(0).integers(photos.features.n))
        results["photos"] = learn(photos, row, iterations)
        show_learning(f"Learning, photos, n = {photos.features.n:,}, {iterations:,} steps", results["photos"])
    if "learning" in options.only and glove is not None:
        results["glove"] = learn(glove, 0, iterations)
        show_learning(f"Learning, GloVe, n = {glove.features.n:,}, {iterations:,} steps", results["glove"])
        if options.figures is not None:
            options.figures.mkdir(parents=True, exist_ok=True)
            for figure in (curves(glove.features.n, results["glove"], x) for x in ("iteration", "rows")):
                (options.figures / f"{figure.name}.png").write_bytes(draw(figure).png)
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
        options.json.write_text(json.dumps(plain(results), indent=2))


if __name__ == "__main__":
    main()
