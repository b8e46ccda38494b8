"""Table 2 and Figures 5 and 6: learning theta from sixteen rows."""

from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.learning import Anchored
from lazygumbel.methods import Estimator, Exhaustive, TopKOnly, UniformTail
from lazygumbel.model import LogLinear
from lazygumbel.progress import Task
from lazygumbel_evaluation.harness.bench import Bench, Within
from lazygumbel_evaluation.harness.learning import RATE, Climb, training_set
from lazygumbel_evaluation.report.section import Cell, Curve, Figure, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import key, label
from lazygumbel_evaluation.report.wording import duration, instead_of, times

__all__ = ["expected_seconds", "run"]

_PAPER_ITERATIONS = 5_000
_PAPER = {"exact": (-3.170, 1.0), "top": (-4.062, 22.7), "tail": (-3.175, 9.6)}
"""Log-likelihood and speed-up, as printed; its own method is that with a tail."""
_PAPER_GAP = 0.005


class _Gradient(NamedTuple):
    label: str
    model: LogLinear
    method: Anchored | Estimator
    share: float
    """Of the time of all four."""


def expected_seconds(bench: Bench) -> float:
    """Exact gradients take two passes over the rows; the two baselines find large heads, which takes longer."""
    return 13 * bench.rough_seconds["exact"] * bench.budget.iterations


def run(bench: Bench, task: Task) -> Section:
    """Climb with four gradients from the same start."""
    row = int(bench.theta_rows[0])
    ids, described = training_set(bench.features, row)
    described = described or f"{bench.name_of(row)} and its fifteen nearest"
    gradients, climb = _gradients(bench), Climb(ids, bench.budget.iterations)

    def learn(name: str, gradient: _Gradient) -> dict[str, Any]:
        return climb.by(
            gradient.model,
            gradient.method,
            rng=bench.rng(f"table-2 {name}"),
            checkpoint=bench.store.path(f"fit-{name}.npz"),
            progress=Within(task, gradient.share),
        )

    learnt = {
        name: bench.store.once(f"table-2-{name}", lambda n=name, g=gradient: learn(n, g))
        for name, gradient in gradients.items()
    }
    learnt["exact"] |= {"seconds_a_step": min(learnt["exact"]["seconds_a_step"], _exact_seconds(bench))}
    return _section(bench, ids, described, gradients, learnt)


def _gradients(bench: Bench) -> dict[str, _Gradient]:
    k = min(ceil(10 * sqrt(bench.n)), bench.n // 4)
    wide = min(10 * k, bench.n // 2)
    exact, ours, tail, top = Exhaustive(), Anchored(), UniformTail(k, wide), TopKOnly(wide)
    return {
        "exact": _Gradient(label(exact), bench.model, exact, 0.25),
        "ours": _Gradient(label(ours), bench.model, ours, 0.1),
        "tail": _Gradient(label(tail, "k", "l"), bench.paper_model, tail, 0.4),
        "top": _Gradient(label(top, "k"), bench.paper_model, top, 0.25),
    }


def _exact_seconds(bench: Bench) -> float:
    """Of one exact gradient, by brute force at its best; it costs the same at every theta."""
    ask = bench.asking(bench.model, lambda dist: dist.expectation(method=Exhaustive()))

    def measure() -> float:
        return bench.compare({"dense": ask}, {}, bench.leading.rows[: bench.budget.thetas])["exact"].median

    return float(bench.store.once("table-2-exact-seconds", measure))


def _section(
    bench: Bench,
    ids: npt.NDArray[np.int64],
    described: str,
    gradients: dict[str, _Gradient],
    learnt: dict[str, dict[str, Any]],
) -> Section:
    speed = {name: learnt["exact"]["seconds_a_step"] / m["seconds_a_step"] for name, m in learnt.items()}
    gaps = {name: learnt["exact"]["log_likelihood"] - m["log_likelihood"] for name, m in learnt.items()}
    names = [bench.name_of(int(i)) for i in ids]
    return Section(
        "table-2",
        "Table 2, Figures 5 and 6: learning",
        f"Gradient ascent on the mean log-likelihood of {described}: {', '.join(names)}. "
        f"{instead_of(bench.budget.iterations, _PAPER_ITERATIONS)} iterations from zero with the paper's learning rate "
        f"of {RATE:g}, over the mean squared norm of these rows, halved after every fifth of them, at temperature one: "
        "the norm of theta, which is learnt, takes the place of a temperature. Anchored, the default of `fit`, samples "
        "at an earlier theta and reweighs. UniformTail is the paper's Algorithm 4 with k = 10 sqrt(n) and l = 10 k; "
        "TopKOnly has as many rows as that method draws. Heads come from the paper's FAISS index, which scores all "
        "rows where its lists hold fewer than k. Log-likelihoods are exact, taken at checkpoints; their time is not "
        "counted. The time of an exact step is that of the run, or of single gradients with one thread or with all, "
        "whichever is least.",
        [
            *(
                v
                for name in ("ours", "tail")
                for v in _verdicts(name, label(gradients[name].method), learnt, speed[name])
            ),
            Verdict(
                "Falls short of exact gradients by more than the paper's method did",
                label(gradients["top"].method),
                f"-4.062 against -3.170, and {times(_PAPER['top'][1])}",
                f"a gap of {gaps['top']:.4f}, and {times(speed['top'])}",
                gaps["top"] > _PAPER_GAP,
            ),
        ],
        [
            Table(
                "Table 2",
                [
                    "",
                    "log-likelihood, paper",
                    "log-likelihood",
                    "speed-up, paper",
                    "speed-up",
                    "one step",
                    "rows a step",
                ],
                [_row(name, gradient.label, learnt[name], speed[name]) for name, gradient in gradients.items()],
                printed_columns=[1, 3],
            ),
            Table(
                "Figure 6: the most probable rows outside the training set",
                ["", *(label(gradient.method) for gradient in gradients.values())],
                [
                    [rank + 1, *(bench.name_of(learnt[name]["best"][rank]) for name in gradients)]
                    for rank in range(len(learnt["exact"]["best"]))
                ],
            ),
        ],
        _figures(gradients, learnt),
        {"training_set": ids.tolist(), "gaps": gaps, "speedups": speed, "learnt": learnt},
    )


def _verdicts(name: str, method: str, learnt: dict[str, dict[str, Any]], speedup: float) -> list[Verdict]:
    reached, exact = learnt[name]["log_likelihood"], learnt["exact"]["log_likelihood"]
    return [
        Verdict(
            f"The log-likelihood is within {_PAPER_GAP:g} of that of exact gradients",
            method,
            f"-3.175 against -3.170, a gap of {_PAPER_GAP:g}",
            f"{reached:.4f} against {exact:.4f}, a gap of {exact - reached:.4f}",
            exact - reached <= _PAPER_GAP,
        ),
        Verdict(
            f"A step is at least {_PAPER['tail'][1]} times as fast as an exact one",
            method,
            times(_PAPER["tail"][1]),
            times(speedup),
            speedup >= _PAPER["tail"][1],
        ),
    ]


def _row(name: str, said: str, m: dict[str, Any], speedup: float) -> list[Cell]:
    printed = _PAPER.get(name)
    return [
        said + (" (diverged)" if m["ended"] else ""),
        f"{printed[0]:.3f}" if printed else None,
        f"{m['log_likelihood']:.4f}",
        times(printed[1]) if printed else None,
        times(speedup),
        duration(m["seconds_a_step"]),
        round(m["rows_a_step"]),
    ]


def _figures(gradients: dict[str, _Gradient], learnt: dict[str, dict[str, Any]]) -> list[Figure]:
    """Without the start, where the log-likelihood is far below all the rest."""
    captions = {"iteration": "Exact log-likelihood, from the first checkpoint on.", "seconds": "The same by time."}
    names = {"iteration": "figure-5", "seconds": "figure-5-time"}

    def curve(name: str, gradient: _Gradient, x: str) -> Curve:
        held = learnt[name]["curve"]
        return Curve(
            gradient.label, [float(at) for at in held[x][1:]], held["log_likelihood"][1:], key(gradient.method)
        )

    return [
        Figure(
            names[x],
            f"Learning curves, by {x}",
            x,
            "log-likelihood",
            [curve(name, gradient, x) for name, gradient in gradients.items()],
            x_log=x == "seconds",
            caption=caption,
        )
        for x, caption in captions.items()
    ]
