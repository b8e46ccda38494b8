"""Train an encoder from the characters of a word to its GloVe vector, by the softmax over all 400,000 words.

    python examples/characters.py [--steps 300] [--rows N] [--model DIR] [--json] [--figure PATH]

Hashed character n-grams, an embedding bag and a small network give theta, of length one; the loss is the negative
log-likelihood of the word among all words at temperature 0.1. The same encoder is trained twice from the same seed on
the same batches: with `LogLinearLoss`, and with the dense softmax of torch. Printed are the time of a training step and
the exact log-likelihood of words held out. Needs the extras `data` and `torch`, and `plots` for the figure.
"""

import argparse
import json
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

import lazygumbel as lg
from lazygumbel import datasets
from lazygumbel._support.extras import require
from lazygumbel.progress import Progress, Silent, choose
from lazygumbel.torch import LogLinearLoss

BATCH = 256
HELD_OUT = 512
GRAMS = (2, 3, 4)
BUCKETS = 2**15
WIDTH = 32
HIDDEN = 256
TEMPERATURE = 0.1
LEARNING_RATE = 0.01
SCORED = 10
"""How often the held-out words are scored while training."""
BLUE, ORANGE = "#0072b2", "#d55e00"

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Words(NamedTuple):
    """Words as n-grams, ready for an embedding bag, and their ids."""

    grams: torch.Tensor
    starts: torch.Tensor
    ids: torch.Tensor

    @classmethod
    def of(cls, names: list[str], ids: np.ndarray) -> "Words":
        grams = [hashed(names[i]) for i in ids]
        starts = np.cumsum([0, *(len(g) for g in grams[:-1])])
        return cls(torch.tensor([h for g in grams for h in g]), torch.tensor(starts), torch.tensor(ids))


def hashed(word: str) -> list[int]:
    """Buckets of the n-grams of a word; its ends are marked."""
    marked = f"<{word}>"
    spans = [marked[i : i + n] for n in GRAMS for i in range(max(1, len(marked) - n + 1))]
    return [zlib.crc32(span.encode()) % BUCKETS for span in spans]


class Encoder(torch.nn.Module):
    """Characters to theta, of length one."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(BUCKETS, WIDTH)
        self.network = torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, d))

    def forward(self, words: Words) -> torch.Tensor:
        return functional.normalize(self.network(self.bag(words.grams, words.starts)))


class Trained(NamedTuple):
    """How one training went."""

    step_seconds: list[float]
    curve: list[tuple[int, float, float]]
    """Steps and seconds of training so far, and the exact log-likelihood of the held-out words."""


def train(
    loss: Loss,
    batches: list[Words],
    held_out: Words,
    rows: torch.Tensor,
    *,
    after_step: Callable[[], None],
) -> Trained:
    """Adam from a fixed seed; the time of a step is that of encoder, loss, backward pass and update."""
    torch.manual_seed(0)
    encoder = Encoder(rows.shape[1])
    optimiser = torch.optim.Adam(encoder.parameters(), lr=LEARNING_RATE)
    seconds: list[float] = []
    curve = [(0, 0.0, log_likelihood(encoder, held_out, rows))]
    for step, words in enumerate(batches, 1):
        start = time.perf_counter()
        optimiser.zero_grad()
        loss(encoder(words), words.ids).backward()
        optimiser.step()
        seconds.append(time.perf_counter() - start)
        after_step()
        if step == len(batches) or step % max(1, len(batches) // SCORED) == 0:
            curve.append((step, sum(seconds), log_likelihood(encoder, held_out, rows)))
    return Trained(seconds, curve)


@torch.no_grad()
def log_likelihood(encoder: Encoder, words: Words, rows: torch.Tensor) -> float:
    """Exact mean log-likelihood, by the dense softmax, a few words at a time."""
    pairs = zip(encoder(words).split(32), words.ids.split(32), strict=True)
    return -sum(float(dense_loss(theta, ids, rows)) * len(ids) for theta, ids in pairs) / len(words.ids)


def dense_loss(theta: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy((theta / TEMPERATURE) @ rows.T, ids)


def open_model(path: Path | None, rows: int | None, bars: Progress) -> lg.LogLinear:
    """The saved model, if there is one; else a new one, saved there."""
    if path is not None and path.exists():
        return lg.LogLinear.load(path)
    features = datasets.glove()
    if rows is not None:
        names = [features.names[i] for i in range(min(rows, features.n))] if features.names else None
        features = lg.Features.of(features.gather(np.arange(min(rows, features.n))), names=names)
    # A partition whatever the number of rows: few would otherwise be scored exhaustively, which shows nothing.
    index = lg.PartitionIndex.build(features, rng=0, progress=bars)
    model = lg.LogLinear(index)
    if path is not None:
        model.save(path)
    return model


def run(model: lg.LogLinear, steps: int, bars: Progress) -> dict[str, Any]:
    """Train with both losses; all that is reported of them."""
    features = model.features
    if features.names is None:
        raise ValueError("model: its rows have no names, so there are no characters to read")
    names = list(features.names)
    order = np.random.default_rng(0).permutation(features.n)
    held_out = Words.of(names, order[:HELD_OUT])
    fed = np.resize(order[HELD_OUT:], steps * BATCH)
    batches = [Words.of(names, ids) for ids in fed.reshape(steps, BATCH)]
    rows = torch.tensor(features.gather(np.arange(features.n)))

    lazy = LogLinearLoss(model, temperature=TEMPERATURE, rng=0)
    labels: list[str] = []
    shares: list[float] = []

    with bars.task("training with LogLinearLoss", steps) as task:

        def after_step() -> None:
            task.advance(1)
            if lazy.last is not None:
                labels.append(lazy.last.label)
                shares.append(float(lazy.last.rows.mean()) / features.n)

        ours = train(lazy, batches, held_out, rows, after_step=after_step)
    with bars.task("training with the dense softmax", steps) as task:
        dense = partial(dense_loss, rows=rows)
        theirs = train(dense, batches, held_out, rows, after_step=lambda: task.advance(1))
    return {
        "rows": features.n,
        "steps": steps,
        "batch": BATCH,
        "held_out": HELD_OUT,
        "lazygumbel": _facts(ours) | {"rows_looked_at": float(np.mean(shares)), "labels": _counts(labels)},
        "dense": _facts(theirs),
        "speedup": float(np.median(theirs.step_seconds) / np.median(ours.step_seconds)),
        "difference": ours.curve[-1][2] - theirs.curve[-1][2],
    }


def _facts(trained: Trained) -> dict[str, Any]:
    return {
        "step_seconds": float(np.median(trained.step_seconds)),
        "log_likelihood": trained.curve[-1][2],
        "curve": trained.curve,
    }


def _counts(labels: list[str]) -> dict[str, int]:
    return {label: labels.count(label) for label in sorted(set(labels))}


def show(report: dict[str, Any], console: Console) -> None:
    table = Table("", "LogLinearLoss", "dense softmax")
    ours, theirs = report["lazygumbel"], report["dense"]
    table.add_row("a training step", *(f"{1000 * r['step_seconds']:.0f} ms" for r in (ours, theirs)))
    table.add_row("rows looked at", f"{ours['rows_looked_at']:.2%}", "100%")
    table.add_row("all of the training", *(f"{r['curve'][-1][1]:.0f} s" for r in (ours, theirs)))
    table.add_row("held-out log-likelihood at the start", *(f"{r['curve'][0][2]:.3f}" for r in (ours, theirs)))
    table.add_row("at the end", *(f"{r['log_likelihood']:.3f}" for r in (ours, theirs)))
    console.print(f"\n{report['rows']:,} words, {report['steps']} steps of {report['batch']} words\n")
    console.print(table)
    labelled = ", ".join(f"{count} {label}" for label, count in ours["labels"].items())
    console.print(f"\n{report['speedup']:.1f} times as fast a step; final log-likelihood {report['difference']:+.4f}.")
    console.print(f"Steps by label: {labelled}.")


def draw(report: dict[str, Any], path: Path) -> None:
    """Held-out log-likelihood against the time spent in training steps."""
    matplotlib: Any = require("matplotlib", extra="plots")
    matplotlib.use("svg")
    plots: Any = require("matplotlib.pyplot", extra="plots")
    # A fixed salt and no date: the same numbers give the same file.
    plots.rcParams.update({"svg.hashsalt": "lazygumbel", "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plots.subplots(figsize=(6, 4), layout="constrained", facecolor="white")
    for name, label, colour, marker in (
        ("lazygumbel", "LogLinearLoss", BLUE, "o"),
        ("dense", "dense softmax", ORANGE, "x"),
    ):
        _, seconds, values = zip(*report[name]["curve"], strict=True)
        axes.plot(seconds, values, color=colour, marker=marker, label=label)
    axes.set(
        xlabel="seconds of training",
        ylabel="exact log-likelihood of held-out words",
        title=f"{report['rows']:,} classes, {report['steps']} steps of {report['batch']} words",
    )
    axes.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each loss (default 300)")
    parser.add_argument("--rows", type=int, help="take the first N words only, for a quick try")
    parser.add_argument("--model", type=Path, help="load the model from this folder, or save it there")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON and nothing else")
    parser.add_argument("--figure", type=Path, help="draw the training curves to this file (svg)")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps must be at least 1, not {options.steps}")
    if options.rows is not None and options.rows < 2 * HELD_OUT:
        parser.error(f"--rows must be at least {2 * HELD_OUT}, not {options.rows}")
    if options.json:
        report = run(open_model(options.model, options.rows, Silent()), options.steps, Silent())
        print(json.dumps(report, indent=2))
    else:
        bars = choose(None)
        report = run(open_model(options.model, options.rows, bars), options.steps, bars)
        show(report, Console(highlight=False))
    if options.figure is not None:
        draw(report, options.figure)


if __name__ == "__main__":
    main()
