"""The figure of the README, from library output on 400,000 GloVe word vectors.

    python benchmarks/figures.py [--out DIR]

Left: 50,000 draws of one theta, counted by the rank of the row that was drawn, against the exact softmax. Right: how
often a sampler misses the true winner, against the rows it looks at. Needs the extras `data` and `plots`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.audit import miss_adaptive, miss_fixed
from lazygumbel.extras import require

WORDS = ("river", "piano")
TEMPERATURE = 0.05
DRAWS = 50_000
TOP = 100
THETAS = 50
PROBED = (1 / 1000, 1 / 500, 1 / 200, 1 / 100, 1 / 50, 1 / 22, 1 / 10, 1 / 5)
"""Shares of the cells that the index scans; 1 / 22 is the default."""
BLACK, ORANGE, BLUE, GREEN = "#222222", "#d55e00", "#0072b2", "#009e73"


def exact_logits(model: lg.LogLinear, theta: np.ndarray) -> np.ndarray:
    """All logits, (n,), by id."""
    logits = np.empty(model.features.n)
    for ids, rows in model.features.blocks():
        logits[ids] = (rows @ theta).astype(np.float64) / TEMPERATURE
    return logits


def by_rank(model: lg.LogLinear) -> dict[str, np.ndarray]:
    """Probability of each group of ranks, exact and as drawn."""
    names = model.features.names
    if names is None:
        raise ValueError("the GloVe rows carry no names")
    theta = sum(model.features.gather(names.find(word)) for word in WORDS)
    theta /= np.linalg.norm(theta)
    logits = exact_logits(model, theta)
    rank = np.empty(len(logits), dtype=np.int64)
    rank[np.argsort(-logits)] = np.arange(1, len(logits) + 1)
    edges = np.unique(np.round(np.geomspace(1, len(logits) + 1, 20))).astype(np.int64)
    weights = np.exp(logits - logits.max())
    dist = model(theta, temperature=TEMPERATURE)
    shares = {"edges": edges, "exact": np.histogram(rank, edges, weights=weights / weights.sum())[0]}
    for name, method in (("lazy", lg.LazyGumbel()), ("top", lg.TopKOnly(TOP))):
        drawn = rank[dist.sample(DRAWS, method=method, rng=0).ids]
        shares[name] = np.histogram(drawn, edges)[0] / DRAWS
    return shares


def misses(model: lg.LogLinear) -> dict[str, np.ndarray]:
    """Rows looked at a draw (share of n) and miss probability, each (probes, thetas), for three samplers."""
    index, n = model.index, model.features.n
    if not isinstance(index, lg.PartitionIndex):
        raise ValueError("the default index of GloVe is a PartitionIndex")
    fixed, lazy = lg.FixedCutoff(), lg.LazyGumbel()
    head_sizes = {"fixed": fixed.budget(n)[0], "lazy": int(np.ceil(np.sqrt(n))), "top": TOP}
    found = {f"{name} {what}": np.empty((len(PROBED), THETAS)) for name in head_sizes for what in ("rows", "miss")}
    thetas = model.features.gather(np.random.default_rng(1).integers(n, size=THETAS))
    for t, theta in enumerate(thetas):
        logits = exact_logits(model, theta)
        weights = np.exp(logits - logits.max())
        for p, share in enumerate(PROBED):
            probed = index.with_probe(max(1, round(share * index.cells)))
            dist = lg.LogLinear(probed)(theta, temperature=TEMPERATURE)
            for name, k in head_sizes.items():
                top = probed.top_k(theta, k)
                head = np.zeros(n, dtype=np.bool_)
                head[top.ids] = True
                rows = float(top.rows)
                if name == "fixed":
                    miss, rows = miss_fixed(logits, head, fixed.cutoff(n)), rows + fixed.budget(n)[1]
                elif name == "lazy":
                    miss = miss_adaptive(logits, head, float(logits[head].min()))
                    rows += float(dist.sample(20, method=lazy, rng=t).rows - top.rows) / 20
                else:
                    miss = 1 - weights[head].sum() / weights.sum()
                found[f"{name} rows"][p, t], found[f"{name} miss"][p, t] = rows / n, miss
    return found


def draw_ranks(axes: Any, shares: dict[str, np.ndarray]) -> None:
    """Left panel."""
    edges = shares["edges"]
    middle = np.sqrt(edges[:-1] * edges[1:])
    axes.stairs(shares["exact"], edges, fill=True, color="#cccccc", label="exact softmax")
    axes.plot(middle, shares["lazy"], "o", color=BLUE, label=f"{DRAWS:,} draws, LazyGumbel")
    axes.plot(middle, shares["top"], "x", color=ORANGE, label=f"{DRAWS:,} draws, top {TOP} only")
    axes.set(
        xscale="log",
        xlabel="rank of the row",
        ylabel="share of the draws",
        title=f"theta: {' + '.join(WORDS)}, at temperature {TEMPERATURE}",
    )
    axes.set_ylim(0, 1.3 * max(shares["exact"].max(), shares["top"].max()))
    axes.legend(frameon=False, loc="upper left", ncols=1)


def draw_misses(axes: Any, found: dict[str, np.ndarray]) -> None:
    """Right panel."""
    for name, label, colour, marker in (
        ("top", f"top {TOP} only", ORANGE, "x"),
        ("lazy", "LazyGumbel (Algorithm 1)", BLUE, "o"),
        ("fixed", "FixedCutoff (Algorithm 2)", GREEN, "s"),
    ):
        rows, miss = 100 * found[f"{name} rows"].mean(axis=1), found[f"{name} miss"]
        axes.plot(rows, miss.mean(axis=1), marker=marker, color=colour, label=label)
        axes.plot(rows, miss.max(axis=1), ":", color=colour)
    axes.plot([], [], ":", color=BLACK, label="the worst theta")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="rows looked at for one draw, % of n",
        ylabel="probability to miss the winner",
        title=f"mean over {THETAS} random words",
    )
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    out = parser.parse_args().out
    matplotlib: Any = require("matplotlib", extra="plots")
    matplotlib.use("svg")
    plots: Any = require("matplotlib.pyplot", extra="plots")
    # A fixed salt and no date: the same figures give the same file.
    plots.rcParams.update({"svg.hashsalt": "lazygumbel", "axes.spines.top": False, "axes.spines.right": False})
    model = lg.LogLinear.build(datasets.glove(), rng=0)
    figure, (left, right) = plots.subplots(1, 2, figsize=(10, 4), layout="constrained", facecolor="white")
    draw_ranks(left, by_rank(model))
    draw_misses(right, misses(model))
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "glove.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
