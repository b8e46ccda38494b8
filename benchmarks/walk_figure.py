"""The figure of docs/walk.md: the Markov chain on GloVe word vectors at temperature 0.05.

    python benchmarks/walk_figure.py [--model DIR] [--out DIR]

Left, the paper's measure: the share of the 1,000 most visited rows that two walks have in common, against their length.
On the 10,000 most frequent words, where the exact chain is quick enough. Right: visits against the stationary law,
proportional to Z, on these words and, from a sample of rows, on all 400,000. "Top 100 only" is a wrong chain, for
comparison. `--model` is a saved model over all words; without it one is built. Needs the extras `data` and `plots`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.extras import require

TEMPERATURE = 0.05
FREQUENT = 10_000
CHAINS, STEPS, BURN_IN = 64, 2_000, 400
TOP = 1_000
METHODS = {"exact": lg.Exhaustive(), "bounded": None, "top 100 only": lg.TopKOnly(k=100)}
SAMPLED, GROUPS, AT_ONCE = 3_840, 5, 64
BLACK, ORANGE, BLUE, GREEN = "#222222", "#d55e00", "#0072b2", "#009e73"


def overlaps(walks: dict[str, lg.Walk]) -> dict[str, np.ndarray]:
    """Shares of the top in common for windows of growing length, from the start and from the middle of two walks."""
    lengths = np.array([STEPS // 16, STEPS // 8, STEPS // 4, STEPS // 2])
    found = {"steps": lengths * CHAINS}
    for a, b in (("exact", "exact"), ("bounded", "bounded"), ("exact", "bounded"), ("exact", "top 100 only")):
        found[f"{a} and {b}"] = np.array(
            [walks[a].window(0, m).overlap(walks[b].window(STEPS // 2, STEPS // 2 + m), k=TOP) for m in lengths]
        )
    return found


def groups_of(model: lg.LogLinear, ids: np.ndarray) -> list[np.ndarray]:
    """The rows by increasing Z, cut into groups that the stationary law visits equally often."""
    log_z = np.concatenate(
        [
            model(model.features.gather(some), temperature=TEMPERATURE).log_partition(method=lg.Exhaustive()).value
            for some in np.split(ids, range(AT_ONCE, len(ids), AT_ONCE))
        ]
    )
    order = np.argsort(log_z)
    law = np.cumsum(np.exp(log_z[order] - log_z.max()))
    return np.split(ids[order], np.searchsorted(law, law[-1] * np.arange(1, GROUPS) / GROUPS))


def visits(walked: lg.Walk, groups: list[np.ndarray]) -> np.ndarray:
    """Visits of each group relative to the law, and their standard errors, (2, groups)."""
    settled = walked.window(BURN_IN, STEPS)
    each = np.array([[np.isin(path, group).sum() for path in settled.ids.T] for group in groups])
    # Chains are independent: their spread is the error of the sum, whatever the correlation in time.
    return np.array([each.sum(axis=1), each.std(axis=1, ddof=1) * np.sqrt(CHAINS)]) * GROUPS / each.sum()


def measure(model: lg.LogLinear) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the two panels show."""
    rows = lg.Features.of(model.features.gather(np.arange(FREQUENT)))
    small = lg.LogLinear.build(rows, index=lg.PartitionIndex.build(rows, rng=0), rng=0)
    walks = {
        name: lg.walk(small, STEPS, chains=CHAINS, temperature=TEMPERATURE, method=method, rng=seed)
        for seed, (name, method) in enumerate(METHODS.items())
    }
    groups = groups_of(small, np.arange(FREQUENT))
    visited = {f"{name}, {FREQUENT:,} words": visits(walked, groups) for name, walked in walks.items()}
    n = model.features.n
    sampled = groups_of(model, np.random.default_rng(1).choice(n, SAMPLED, replace=False))
    walked = lg.walk(model, STEPS, chains=CHAINS, temperature=TEMPERATURE, rng=0)
    visited[f"bounded, {n:,} words"] = visits(walked, sampled)
    return overlaps(walks), visited


def draw_overlaps(axes: Any, found: dict[str, np.ndarray]) -> None:
    """Left panel."""
    steps = found["steps"]
    looks = (("s-", BLACK), ("o-", BLUE), ("o--", BLUE), ("x--", ORANGE))
    for (name, shared), (style, colour) in zip(list(found.items())[1:], looks, strict=True):
        axes.plot(steps, 100 * shared, style, color=colour, label=name)
    axes.set(
        xscale="log",
        xlabel=f"steps of each walk, {CHAINS} chains together",
        ylabel=f"% of the top {TOP:,} in common",
        title=f"two walks over {FREQUENT:,} words",
    )
    axes.set_ylim(bottom=0)
    axes.set_xticks(steps, [f"{count:,}" for count in steps])
    axes.minorticks_off()
    axes.legend(frameon=False)


def draw_visits(axes: Any, found: dict[str, np.ndarray]) -> None:
    """Right panel."""
    axes.axhline(1.0, color=BLACK, linewidth=1)
    looks = (("s", BLACK), ("o", BLUE), ("x", ORANGE), ("^", GREEN))
    for i, ((name, (mean, stderr)), (marker, colour)) in enumerate(zip(found.items(), looks, strict=True)):
        at = np.arange(1, GROUPS + 1) + 0.1 * (i - 1.5)
        axes.errorbar(at, mean, 2 * stderr, fmt=marker, color=colour, label=name)
    axes.set(
        xlabel="rows by increasing Z, in groups of equal stationary mass",
        ylabel="visits / stationary law, ± 2 errors",
        title=f"{CHAINS * (STEPS - BURN_IN):,} steps of {CHAINS} chains",
    )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a saved model over all words")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    matplotlib: Any = require("matplotlib", extra="plots")
    matplotlib.use("svg")
    plots: Any = require("matplotlib.pyplot", extra="plots")
    # A fixed salt and no date: the same figures give the same file.
    plots.rcParams.update({"svg.hashsalt": "lazygumbel", "axes.spines.top": False, "axes.spines.right": False})
    model = lg.LogLinear.load(given.model) if given.model else lg.LogLinear.build(datasets.glove(), rng=0)
    shared, visited = measure(model)
    for name, values in (shared | visited).items():
        print(name, values.round(3).tolist())
    figure, (left, right) = plots.subplots(1, 2, figsize=(10, 4), layout="constrained", facecolor="white")
    draw_overlaps(left, shared)
    draw_visits(right, visited)
    given.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(given.out / "walk.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
