"""Heads of a language model, one token at a time: milliseconds against the exact total variation distance.

    python benchmarks/language_model.py --head head.npy --hidden hidden.npy [--cache DIR] [--json PATH] [--figure PATH]
                                        [--quick]

The rows of the head and some of its hidden states, as `examples/language_model.py --states` writes them, at temperature
one. Every other state sizes the codes of the index; the others are measured on. Contenders (see `heads.py`): the dense
softmax in float32 and in int8, each the quickest of some variants; the best tokens found by an HNSW graph, efSearch
swept; clusters drawn by the softmax of their centroids, the number of probes swept; `Bounded` and `Exhaustive` of this
library. They take turns in one process. Distances are exact: from the probabilities of all tokens, or in closed form;
that of drawn clusters is averaged over 200 sets of probes. Printed too: the mass that the most probable tokens leave
over, and whether the bars are met. `--json docs/language_model.json` and `python benchmarks/pages.py` write the tables
of docs/language_models.md. Needs the extras `torch` and, for the figure, `plots`.
"""

import argparse
import json
import os
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import lazygumbel as lg
from common import clock_together
from heads import Clusters, Dense, Graph, Head, Int8, Ours, Partition, logits_of, softmax

FASTER = {"dense float32": 15.0, "dense int8": 5.0}
"""Times that draws of a distance of at most 1e-4 are to be quicker."""
CLOSE, FAR = 1e-4, 1e-2
TOPS = (50, 100, 1000)
COLOURS = {"dense float32": "#000000", "dense int8": "#999999", "HNSW": "#d55e00", "clusters": "#009e73"}
OURS = "#0072b2"


class Budget(NamedTuple):
    """How much is measured."""

    thetas: int = 60
    timed: int = 30
    ks: tuple[int, ...] = (50, 200, 1000, 5000)
    probes: tuple[int, ...] = (64, 256, 1024, 4096)
    clusters: int = 8016
    rows: int | None = None


QUICK = Budget(10, 5, (50, 200), (16, 64), 200, 60_000)


class Point(NamedTuple):
    """A contender: what kind, with which setting, how quick and how far from the softmax."""

    kind: str
    setting: str
    milliseconds: float
    distance: float
    worst: float


def contenders(
    rows: np.ndarray, model: lg.LogLinear, budget: Budget, cache: Path | None
) -> dict[tuple[str, str], Head | Ours]:
    """By kind and setting."""
    found: dict[tuple[str, str], Head | Ours] = {}
    for variant in ("numpy", "torch", "torch, race"):
        found["dense float32", variant] = Dense(rows, variant)
    for variant in ("numba", "torch"):
        found["dense int8", variant] = Int8(rows, variant)
    graph = Graph.build(rows, cache and cache / "graph.faiss")
    for k in budget.ks:
        found["HNSW", f"top {k:,}"] = Graph(graph, k)
    partition = Partition.build(rows, budget.clusters, cache and cache / "clusters.npz")
    for probes in budget.probes:
        found["clusters", f"{probes:,} of {len(partition.centroids):,}"] = Clusters(partition, probes)
    for delta in ("1e-4", "1e-3"):
        found["lazygumbel", f"Bounded(delta={delta})"] = Ours(model, lg.Bounded(delta=float(delta)))
    found["lazygumbel", "Exhaustive()"] = Ours(model, lg.Exhaustive())
    return found


def measure(rows: np.ndarray, states: np.ndarray, budget: Budget, cache: Path | None) -> dict[str, Any]:
    """All points, of a dense head the quickest variant, and the mass lost by the most probable tokens."""
    model = _model(rows, states[::2], cache and cache / "index")
    thetas = np.ascontiguousarray(states[1::2][: budget.thetas])
    heads = contenders(rows, model, budget, cache)
    judged = _judged(heads, thetas, logits_of(rows, thetas), cache and cache / "distances.json")
    timed = clock_together({"|".join(name): (head.draw, thetas[: budget.timed]) for name, head in heads.items()})
    points = [Point(*name, 1e3 * timed["|".join(name)][0], *judged["|".join(name)]) for name in heads]
    for kind in FASTER:
        best = min((p for p in points if p.kind == kind), key=lambda p: p.milliseconds)
        points = [p for p in points if p.kind != kind or p is best]
    run = {"cores": os.cpu_count(), "lazygumbel": lg.__version__, "NumPy": np.__version__, "torch": torch.__version__}
    run |= {"FAISS": faiss.__version__, "thetas": len(thetas), "timed": budget.timed}
    return {"points": points, "lost": judged["lost"], "run": run}


def _model(rows: np.ndarray, like: np.ndarray, path: Path | None) -> lg.LogLinear:
    if path is not None and path.exists():
        return lg.LogLinear.load(path)
    start = perf_counter()
    model = lg.LogLinear(lg.PartitionIndex.build(rows, thetas=like, rng=0))
    print(f"{model} built in {perf_counter() - start:.1f} s", flush=True)
    if path is not None:
        model.save(path)
    return model


def _judged(
    heads: dict[tuple[str, str], Head | Ours], thetas: np.ndarray, logits: np.ndarray, path: Path | None
) -> dict[str, Any]:
    """For each contender the mean and the largest distance; kept, because they do not depend on the machine."""
    exact = [softmax(row) for row in logits]
    found: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    found["lost"] = _lost(np.array(exact))
    for name, head in heads.items():
        if "|".join(name) in found:
            continue
        if isinstance(head, Ours):
            distances = head.distances(thetas)
        else:
            laws = (head.law(theta, p) for theta, p in zip(thetas, exact, strict=True))
            distances = np.array([np.abs(law - p).sum() / 2 for law, p in zip(laws, exact, strict=True)])
        found["|".join(name)] = float(distances.mean()), float(distances.max())
        print(*name, found["|".join(name)], flush=True)
    if path is not None:
        path.write_text(json.dumps(found))
    return found


def _lost(exact: np.ndarray) -> dict[str, dict[str, float]]:
    """Of the mass outside the most probable tokens: mean, median and 95% point over thetas."""
    p = -np.sort(-exact, axis=1)
    lost = {f"{k:,}": 1 - p[:, :k].sum(axis=1) for k in TOPS}
    return {
        k: {"mean": float(v.mean()), "median": float(np.median(v)), "95%": float(np.quantile(v, 0.95))}
        for k, v in lost.items()
    }


def bars(points: list[Point]) -> list[tuple[str, float, float, bool]]:
    """What is wanted, what was measured, and whether that will do."""
    quick = min((p.milliseconds for p in points if p.kind == "lazygumbel" and p.distance <= CLOSE), default=np.inf)
    found = []
    for kind, wanted in FASTER.items():
        times = next(p.milliseconds for p in points if p.kind == kind) / quick
        found.append((f"times faster than {kind}, distance at most {CLOSE:g}", wanted, times, times >= wanted))
    rivals = [p for p in points if p.kind != "lazygumbel" and p.milliseconds <= quick and p.distance <= FAR]
    found.append((f"others as quick of distance at most {FAR:g}", 0.0, float(len(rivals)), not rivals))
    return found


def show(console: Console, points: list[Point], lost: dict[str, dict[str, float]]) -> None:
    """The tables."""
    table = Table("head", "", "ms a token", "mean TV", "largest TV")
    for p in points:
        table.add_row(p.kind, p.setting, f"{p.milliseconds:.2f}", f"{p.distance:.2g}", f"{p.worst:.2g}")
    console.print(table)
    tops = Table("the most probable", "lose, mean", "median", "95%")
    for k, share in lost.items():
        tops.add_row(k, *(f"{100 * share[name]:.1f}%" for name in ("mean", "median", "95%")))
    console.print(tops)
    for name, wanted, found, right in bars(points):
        console.print(f"{name}: {found:.3g} (wanted {wanted:g}) {'yes' if right else 'NO'}")


def draw(points: list[Point], path: Path) -> None:
    """Time against distance, both on scales of powers of ten."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "lazygumbel"
    figure, axes = pyplot.subplots(figsize=(7.5, 4.6), layout="constrained")
    floor = 1e-9
    for kind in dict.fromkeys(p.kind for p in points):
        some = sorted((p for p in points if p.kind == kind), key=lambda p: p.milliseconds)
        x, y = [p.milliseconds for p in some], [max(p.distance, floor) for p in some]
        axes.plot(x, y, "o" if kind == "lazygumbel" else "o-", color=COLOURS.get(kind, OURS), label=kind)
        for p, height in zip(some, y, strict=True):
            axes.annotate(p.setting, (p.milliseconds, height), textcoords="offset points", xytext=(5, 5), fontsize=7)
    axes.axhline(CLOSE, color="#cccccc", linewidth=0.8, zorder=0)
    axes.set(
        xscale="log", yscale="log", xlabel="milliseconds a token, head alone", ylabel="exact total variation distance"
    )
    axes.text(
        0.01,
        0.01,
        f"what is exact, or closer than {floor:g}, is drawn there",
        transform=axes.transAxes,
        fontsize=7,
        color="#666666",
    )
    axes.margins(x=0.12)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(0.7, 0.33))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--head", type=Path, required=True, help=".npy of the rows of the head, (n, d)")
    parser.add_argument("--hidden", type=Path, required=True, help=".npy of hidden states, (m, d)")
    parser.add_argument("--cache", type=Path, help="folder in which indexes and distances are kept")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help=".svg or .png")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    budget = QUICK if arguments.quick else Budget()
    rows = np.array(np.load(arguments.head, mmap_mode="r")[: budget.rows], dtype=np.float32)
    states = np.load(arguments.hidden).astype(np.float32)
    if arguments.cache is not None:
        arguments.cache.mkdir(parents=True, exist_ok=True)
    found = measure(rows, states, budget, None if arguments.quick else arguments.cache)
    points: list[Point] = found["points"]
    show(Console(), points, found["lost"])
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        met = [dict(zip(("bar", "wanted", "found", "met"), bar, strict=True)) for bar in bars(points)]
        kept = found | {"points": [p._asdict() for p in points], "bars": met}
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    if arguments.figure is not None:
        draw(points, arguments.figure)


if __name__ == "__main__":
    main()
