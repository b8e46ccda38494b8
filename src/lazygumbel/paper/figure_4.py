"""Figure 4: relative error of the partition function against time."""

from collections.abc import Iterator
from functools import partial
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.indexes import PartitionIndex
from lazygumbel.methods import Estimator, Frozen, Normaliser, Stratified, TopKOnly, UniformTail
from lazygumbel.model import LogLinear
from lazygumbel.paper.bench import Bench
from lazygumbel.paper.brute_force import BruteForce
from lazygumbel.paper.section import Curve, Figure, Kind, Section, Table, Verdict
from lazygumbel.paper.wording import duration
from lazygumbel.progress import Task
from lazygumbel.results import Estimate

__all__ = ["Point", "beaten", "expected_seconds", "run"]

Floats = npt.NDArray[np.float64]

_TAILS = (1, 3, 10)
"""l in units of k."""
_ERRORS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Relative errors that ours is asked for."""
_PAPER_NOISE, _PAPER_ERROR = 64, 0.15
"""The paper: the method of 2016 comes no closer than 15%, at t = 64."""
_ROUNDING = 1e-9
"""The least error that is told apart from none."""
_TOP_K, _TAIL, _FROZEN, _OURS = "top k only", "top k and uniform tail", "frozen noise (2016)", "Stratified (ours)"


class Point(NamedTuple):
    """One method with one setting: mean time, and mean relative error of Z."""

    method: str
    setting: str
    seconds: float
    error: float
    dense: bool = False
    """Whether some theta got a dense pass instead: then it is not on the curve."""


class _Trial(NamedTuple):
    method: str
    setting: str
    model: LogLinear
    ask: Estimator | Normaliser


def expected_seconds(bench: Bench) -> float:
    """The frozen noise needs an index for each of its lengths; other trials cost up to an exact pass a theta."""
    budget = bench.budget
    trials = len(_ERRORS) + len(budget.heads) * (1 + len(_TAILS)) + 4 * len(budget.noises)
    return (
        0.4 * len(budget.noises) * bench.build_seconds
        + bench.exact_seconds * trials * budget.partition_thetas * budget.repeats
    )


def beaten(point: Point, ours: list[Point]) -> bool:
    """Whether the curve through `ours`, in logarithms, has a smaller error by the time of `point`."""
    ranked = sorted(ours, key=lambda p: p.seconds)
    seconds = np.log([p.seconds for p in ranked])
    errors = np.minimum.accumulate(np.log([p.error for p in ranked]))
    reached: Floats = np.interp([np.log(point.seconds)], seconds, errors, left=np.inf)
    return bool(reached[0] < np.log(point.error))


def run(bench: Bench, task: Task) -> Section:
    """Estimate Z at the same thetas in every way."""
    thetas = bench.thetas[: bench.budget.partition_thetas]
    log_z = bench.oracle.log_z[: len(thetas)]
    rng = bench.rng("figure-4")
    trials, points = list(_trials(bench)), list[Point]()
    share = 1 / len(trials)
    while trials:  # each is let go of when it is done, and with it an index over lengthened rows
        points.append(_measure(bench, trials.pop(0), thetas, log_z, rng))
        task.advance(share)
    exact = bench.seconds(bench.model, thetas, lambda dist: dist.log_partition(method=BruteForce(), rng=rng)).mean()
    return _section(bench, points, float(exact), len(thetas))


def _trials(bench: Bench) -> Iterator[_Trial]:
    root = sqrt(bench.n)
    for rel_err in _ERRORS:
        yield _Trial(_OURS, f"rel_err = {rel_err:g}", bench.model, Stratified(rel_err=rel_err))
    for head in bench.budget.heads:
        k = min(ceil(head * root), bench.n // 2)
        model = _headed(bench.index, k)
        yield _Trial(_TOP_K, f"k = {k:,}", model, TopKOnly(k))
        for tail in _TAILS:
            if k * (1 + tail) < bench.n / 2:
                yield _Trial(_TAIL, f"k = {k:,}, l = {tail * k:,}", model, UniformTail(k, tail * k))
    build = partial(PartitionIndex.build, cells=ceil(root), rng=bench.seed)
    for t in bench.budget.noises:
        yield _Trial(_FROZEN, f"t = {t}", bench.model, Frozen(t, bench.seed, build))


def _headed(index: PartitionIndex, k: int) -> LogLinear:
    """The same cells, with as many probed as a head of k rows needs: ten rows a head row, up to 5% of all rows."""
    share = min(10 * k / index.features.n, max(0.05, 2 * k / index.features.n), 1.0)
    return LogLinear(index.with_probe(max(1, round(share * index.cells))))


def _measure(
    bench: Bench, trial: _Trial, thetas: npt.NDArray[np.float32], log_z: Floats, rng: np.random.Generator
) -> Point:
    """Errors come from every call that is timed."""
    answers: list[Estimate] = []
    seconds = bench.seconds(
        trial.model, thetas, lambda dist: answers.append(dist.log_partition(method=trial.ask, rng=rng))
    )
    timed = answers[-len(thetas) * bench.budget.repeats :]
    log_errors = np.array([float(a.value) for a in timed]) - np.repeat(log_z, bench.budget.repeats)
    error = max(float(np.abs(np.expm1(log_errors)).mean()), _ROUNDING)
    return Point(trial.method, trial.setting, float(seconds.mean()), error, any(a.exact for a in timed))


def _section(bench: Bench, points: list[Point], exact: float, thetas: int) -> Section:
    ours = [p for p in points if p.method == _OURS]
    others = [p for p in points if p.method != _OURS]
    won = [p for p in others if beaten(p, ours)]
    frozen = min((p for p in others if p.method == _FROZEN), key=lambda p: p.error)
    top_k = min(p.error for p in others if p.method == _TOP_K)
    tail = min(p.error for p in others if p.method == _TAIL)
    kinds: dict[str, Kind] = {_OURS: "line", _TAIL: "points", _TOP_K: "line", _FROZEN: "points"}
    drawn = {method: [p for p in points if p.method == method and not p.dense] for method in kinds}
    curves = [
        Curve(method, [p.error for p in drawn[method]], [1e3 * p.seconds for p in drawn[method]], kind)
        for method, kind in kinds.items()
    ]
    return Section(
        "figure-4",
        "Figure 4: the partition function",
        f"Z at each of {thetas} random rows as theta, one theta a call; the time of each is the median of "
        f"{bench.budget.repeats} calls, and means over thetas are shown. The heads of the first two methods come from "
        "the cells of our own index, with as many cells probed as suit k. "
        "The method of 2016 searches rows lengthened by t noises with an index of sqrt(n) cells; if it found every "
        "maximum, its error would be about 1 / sqrt(t - 2). The exact time is that of one pass over all rows."
        + ("" if len(bench.budget.heads) == 5 else " The quick form measures fewer heads, noises and thetas."),
        [
            Verdict(
                "Ours is more accurate than every other method in the same time",
                None,
                f"{len(won)} of {len(others)} settings beaten",
                len(won) == len(others),
            ),
            Verdict(
                "Least error of the 2016 method",
                f"{_PAPER_ERROR:.0%} at t = {_PAPER_NOISE}",
                f"{frozen.error:.1%} at {frozen.setting}; ours {min(p.error for p in ours):.2%}",
                min(p.error for p in ours) < frozen.error,
            ),
            Verdict(
                "Without the tail the error stays large",
                "needs the tail",
                f"{top_k:.2%} top k only, {tail:.2%} with a tail",
                tail < top_k,
            ),
        ],
        [
            Table(
                "Every setting",
                ["method", "setting", "time", "relative error of Z", "ours has less by then"],
                [
                    [
                        p.method,
                        p.setting,
                        duration(p.seconds),
                        f"{p.error:.3g}",
                        None if p in ours else "yes" if p in won else "no",
                    ]
                    for p in points
                ],
            )
        ],
        [
            Figure(
                "figure-4",
                "Time against relative error of Z",
                "relative error of Z",
                "milliseconds",
                [*curves, Curve("exact", [], [1e3 * exact], "level")],
                x_log=True,
                y_log=True,
                caption="Further left and lower is better.",
            )
        ],
        {"exact_seconds": exact, "points": [p._asdict() for p in points]},
    )
