"""Figures from library output on 400,000 GloVe word vectors at temperature 0.05, as PNG.

    python benchmarks/figures.py [--model DIR] [--out DIR]

`ranks`: 50,000 draws of one theta, counted by the rank of the row that was drawn, against the exact softmax.
`walk-overlap`, the paper's measure: the share of the 1,000 most visited rows that two walks have in common, against
their length; on the 10,000 most frequent words, where the exact chain is quick enough. `walk-visits`: visits against
the stationary law, proportional to Z, on these words and, from a sample of rows, on all 400,000. `TopKOnly` is wrong,
for comparison. `--model` is a saved model over all words; without it one is built. Needs the extras `data` and `plots`.
"""

import argparse
from pathlib import Path

import numpy as np

import common  # noqa: F401  # finds the evaluation
import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel.methods import Sampler
from lazygumbel.progress import Silent
from lazygumbel_evaluation.harness.oracle import Oracle
from lazygumbel_evaluation.report.draw import draw
from lazygumbel_evaluation.report.section import Curve, Figure
from lazygumbel_evaluation.report.styles import SOFTMAX, key, label

WORDS = ("river", "piano")
TEMPERATURE = 0.05
DRAWS, TOP = 50_000, 100
FREQUENT, MOST_VISITED = 10_000, 1_000
CHAINS, STEPS, BURN_IN = 64, 2_000, 400
EXACT, OURS, CUT = lg.Exhaustive(by_bytes=False), lg.Bounded(), lg.TopKOnly(k=TOP)
SAMPLED, GROUPS, AT_ONCE = 3_840, 5, 64


def ranks(model: lg.LogLinear) -> Figure:
    """Probability of each group of ranks, exact and as drawn."""
    names = model.features.names
    if names is None:
        raise ValueError("model: its rows have no names")
    theta = sum(model.features.gather(names.find(word)) for word in WORDS)
    theta /= np.linalg.norm(theta)
    with Silent().task("", 1.0) as task:
        oracle = Oracle.of(model.features, theta[None], TEMPERATURE, task)
    dist, x = model(theta, temperature=TEMPERATURE), oracle.edges.astype(float).tolist()
    curves = [Curve("exact softmax", x, oracle.masses[0].tolist(), SOFTMAX, "bars")]
    for method in (lg.LazyGumbel(), OURS, CUT):
        drawn = dist.sample(DRAWS, method=method, rng=0).ids
        counts = np.bincount(oracle.groups(0, model.features.score(drawn, theta)), minlength=len(x))
        curves.append(Curve(label(method), x, (counts / DRAWS).tolist(), key(method), "bars"))
    title = f"{DRAWS:,} draws, theta: {' + '.join(WORDS)}"
    return Figure("ranks", title, "rank of the row, up to", "share of the draws", curves)


def overlaps(walks: list[tuple[Sampler, lg.Walk]]) -> Figure:
    """Shares of the top in common for windows of growing length, from the start and from the middle of two walks."""
    lengths = [STEPS // 16, STEPS // 8, STEPS // 4, STEPS // 2]
    exact, ours, cut = walks

    def shared(a: tuple[Sampler, lg.Walk], b: tuple[Sampler, lg.Walk], *, faint: bool = False) -> Curve:
        both = [(a[1].window(0, m), b[1].window(STEPS // 2, STEPS // 2 + m)) for m in lengths]
        share = [100 * first.overlap(second, k=MOST_VISITED) for first, second in both]
        said = f"{label(a[0])} and {label(b[0])}"
        return Curve(said, [float(m * CHAINS) for m in lengths], share, key(b[0]), faint=faint)

    return Figure(
        "walk-overlap",
        f"Two walks over {FREQUENT:,} words",
        f"steps of each walk, {CHAINS} chains together",
        f"% of the top {MOST_VISITED:,} in common",
        [shared(exact, exact), shared(ours, ours), shared(exact, ours, faint=True), shared(exact, cut)],
        x_log=True,
    )


def groups_of(model: lg.LogLinear, ids: np.ndarray) -> list[np.ndarray]:
    """The rows by increasing Z, cut into groups that the stationary law visits equally often."""
    log_z = np.concatenate(
        [
            model(model.features.gather(some), temperature=TEMPERATURE).log_partition(method=EXACT).value
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


def walks(model: lg.LogLinear) -> list[Figure]:
    """What the chains visit."""
    small = lg.LogLinear(lg.PartitionIndex.build(model.features.gather(np.arange(FREQUENT)), rng=0))
    options = {"chains": CHAINS, "temperature": TEMPERATURE}
    walked = [
        (method, lg.walk(small, STEPS, method=method, rng=seed, **options))
        for seed, method in enumerate((EXACT, OURS, CUT))
    ]
    groups, n = groups_of(small, np.arange(FREQUENT)), model.features.n
    found = [(method, FREQUENT, visits(path, groups)) for method, path in walked]
    sampled = groups_of(model, np.random.default_rng(1).choice(n, SAMPLED, replace=False))
    found.append((OURS, n, visits(lg.walk(model, STEPS, method=OURS, rng=0, **options), sampled)))
    x = np.arange(1.0, GROUPS + 1).tolist()
    seen = Figure(
        "walk-visits",
        f"{CHAINS * (STEPS - BURN_IN):,} steps of {CHAINS} chains",
        "rows by increasing Z, in groups of equal stationary mass",
        "visits / stationary law",
        [
            Curve(f"{label(method)}, {rows:,} words", x, share.tolist(), key(method), "points", faint=rows == n)
            for method, rows, (share, _) in found
        ],
    )
    print("largest standard error of visits:", max(float(errors.max()) for _, _, (_, errors) in found))
    return [overlaps(walked), seen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a saved model over all words")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    model = lg.LogLinear.load(given.model) if given.model else lg.LogLinear.build(datasets.glove(), rng=0)
    given.out.mkdir(parents=True, exist_ok=True)
    for figure in (ranks(model), *walks(model)):
        (given.out / f"{figure.name}.png").write_bytes(draw(figure).png)


if __name__ == "__main__":
    main()
