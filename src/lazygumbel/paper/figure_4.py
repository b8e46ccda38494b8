"""Figure 4: relative error of the partition function against time."""

from collections.abc import Iterator
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lazygumbel.features import Features
from lazygumbel.indexes import FaissIndex
from lazygumbel.methods import Bounded, Estimator, Frozen, Normaliser, TopKOnly, UniformTail
from lazygumbel.model import LogLinear
from lazygumbel.paper import baseline
from lazygumbel.paper.bench import BRUTE_FORCE, Bench, quickest
from lazygumbel.paper.protocols import PROTOCOLS, Protocol, printed
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
_TOP_K, _TAIL, _FROZEN, _OURS = "top k only", "top k and uniform tail", "frozen noise (2016)", "Bounded (ours)"


class Point(NamedTuple):
    """One method with one setting: mean time, and relative errors of Z."""

    method: str
    setting: str
    seconds: float
    error: float
    """The mean over thetas and calls."""
    high: float
    """95% of them have less."""
    worst: float
    dense: bool = False
    """Whether some theta got a dense pass instead: then it is not on the curve."""


class _Trial(NamedTuple):
    method: str
    setting: str
    model: LogLinear
    ask: Estimator | Normaliser


def expected_seconds(bench: Bench) -> float:
    """The frozen noise needs an index for each of its lengths; other trials cost half an exact pass a theta."""
    budget = bench.budget
    trials = len(_ERRORS) + len(budget.heads) * (1 + len(_TAILS)) + 4 * len(budget.noises)
    asked = len(PROTOCOLS) * budget.partition_thetas * budget.repeats
    return len(budget.noises) * bench.build_seconds + 0.5 * bench.exact_seconds * trials * asked


def beaten(point: Point, ours: list[Point]) -> bool:
    """Whether the curve through `ours`, in logarithms, has a smaller error by the time of `point`."""
    ranked = sorted(ours, key=lambda p: p.seconds)
    seconds = np.log([p.seconds for p in ranked])
    errors = np.minimum.accumulate(np.log([p.error for p in ranked]))
    reached: Floats = np.interp([np.log(point.seconds)], seconds, errors, left=np.inf)
    return bool(reached[0] < np.log(point.error))


def run(bench: Bench, task: Task) -> Section:
    """Estimate Z at the same thetas in every way."""
    rng = bench.rng("figure-4")
    trials = list(_trials(bench))
    points: dict[Protocol, list[Point]] = {protocol: [] for protocol in PROTOCOLS}
    share = 1 / len(trials)
    while trials:  # each is let go of when it is done, and with it an index over lengthened rows
        trial = trials.pop(0)
        for protocol, found in points.items():
            found.append(_measure(bench, trial, protocol, rng))
        task.advance(share)
    exact: dict[Protocol, float] = {protocol: _exact_seconds(bench, protocol, rng) for protocol in PROTOCOLS}
    return _section(bench, points, exact)


def _trials(bench: Bench) -> Iterator[_Trial]:
    root = sqrt(bench.n)
    for rel_err in _ERRORS:
        yield _Trial(_OURS, f"rel_err = {rel_err:g}", bench.model, Bounded(rel_err=rel_err))
    for head in bench.budget.heads:
        k = min(ceil(head * root), bench.n // 2)
        yield _Trial(_TOP_K, f"k = {k:,}", bench.paper_model, TopKOnly(k))
        for tail in _TAILS:
            if k * (1 + tail) < bench.n / 2:
                yield _Trial(_TAIL, f"k = {k:,}, l = {tail * k:,}", bench.paper_model, UniformTail(k, tail * k))
    for t in bench.budget.noises:
        yield _Trial(_FROZEN, f"t = {t}", bench.model, Frozen(t, bench.seed, _index_of_lengthened))


def _index_of_lengthened(features: Features) -> FaissIndex:
    """Fewer lists than for the rows themselves: noise has no clusters, and longer rows take longer to build over."""
    return baseline.build_index(features, density=1.0)[0]


def _measure(bench: Bench, trial: _Trial, protocol: Protocol, rng: np.random.Generator) -> Point:
    """Errors come from every call that is timed."""
    thetas, repeats = bench.thetas(protocol)[: bench.budget.partition_thetas], bench.budget.repeats
    answers: list[Estimate] = []
    seconds = bench.seconds(
        trial.model, thetas, lambda dist: answers.append(dist.log_partition(method=trial.ask, rng=rng))
    )
    timed = answers[-len(thetas) * repeats :]
    log_z = np.repeat(bench.oracle(protocol).log_z[: len(thetas)], repeats)
    errors = np.abs(np.expm1(np.array([float(a.value) for a in timed]) - log_z))
    mean, high, worst = (max(float(e), _ROUNDING) for e in (errors.mean(), np.quantile(errors, 0.95), errors.max()))
    dense = any(a.exact for a in timed)
    return Point(trial.method, trial.setting, float(seconds.mean()), mean, high, worst, dense)


def _exact_seconds(bench: Bench, protocol: Protocol, rng: np.random.Generator) -> float:
    thetas = bench.thetas(protocol)[: bench.budget.partition_thetas]

    def measure() -> Floats:
        return bench.seconds(bench.model, thetas, lambda dist: dist.log_partition(method=BRUTE_FORCE, rng=rng))

    return float(quickest(measure).mean())


def _section(bench: Bench, points: dict[Protocol, list[Point]], exact: dict[Protocol, float]) -> Section:
    budget = bench.budget
    return Section(
        "figure-4",
        "Figure 4: the partition function",
        f"Z at each of {budget.partition_thetas} thetas, held-out ones and then rows of the index, one theta a call; "
        f"the time of each is the median of {budget.repeats} calls, and means over thetas are shown. The heads of the "
        "first two methods come from the paper's FAISS index, as in Table 1: it probes 1/32 of its lists, and scores "
        "all rows where those hold fewer than k. The method of 2016 searches rows lengthened by t noises with a FAISS "
        "inverted file of sqrt(n) lists; if it found every maximum, its error would be about 1 / sqrt(t - 2). The "
        "exact time is that of one pass over all rows, with one thread or with all, whichever is quicker; a setting of "
        "ours that had a theta answered by such a pass is "
        "in the table, marked so, but not on the curve."
        + ("" if len(budget.heads) == 5 else " The quick form measures fewer heads, noises and thetas."),
        [verdict for protocol, found in points.items() for verdict in _verdicts(protocol, found)],
        [_table(protocol, found) for protocol, found in points.items()],
        [_figure(protocol, found, exact[protocol]) for protocol, found in points.items()],
        {
            protocol: {"exact_seconds": exact[protocol], "points": [p._asdict() for p in found]}
            for protocol, found in points.items()
        },
    )


def _of(method: str, points: list[Point]) -> list[Point]:
    return [p for p in points if p.method == method]


def _verdicts(protocol: Protocol, points: list[Point]) -> list[Verdict]:
    called, ours = PROTOCOLS[protocol], _of(_OURS, points)
    others = [p for p in points if p not in ours]
    won = [p for p in others if beaten(p, ours)]
    frozen = min(_of(_FROZEN, points), key=lambda p: p.error)
    best, top_k, tail = (min(p.error for p in _of(method, points)) for method in (_OURS, _TOP_K, _TAIL))
    return [
        Verdict(
            f"Ours is more accurate than every other method in the same time, {called}",
            None,
            f"{len(won)} of {len(others)} settings beaten",
            len(won) == len(others),
        ),
        Verdict(
            f"Least error of the 2016 method, {called}",
            printed(protocol, f"{_PAPER_ERROR:.0%} at t = {_PAPER_NOISE}"),
            f"{frozen.error:.1%} at {frozen.setting}; ours {best:.2%}",
            best < frozen.error,
        ),
        Verdict(
            f"Without the tail the error stays large, {called}",
            printed(protocol, "needs the tail"),
            f"{top_k:.2%} top k only, {tail:.2%} with a tail",
            tail < top_k,
        ),
    ]


def _table(protocol: Protocol, points: list[Point]) -> Table:
    ours = _of(_OURS, points)
    return Table(
        f"Every setting, {PROTOCOLS[protocol]}",
        ["method", "setting", "time", "relative error of Z: mean", "95%", "max", "ours has less by then"],
        [
            [
                p.method,
                p.setting + (" (some exact)" if p.dense else ""),
                duration(p.seconds),
                *(f"{error:.2g}" for error in (p.error, p.high, p.worst)),
                None if p in ours else "yes" if beaten(p, ours) else "no",
            ]
            for p in points
        ],
    )


def _figure(protocol: Protocol, points: list[Point], exact: float) -> Figure:
    kinds: dict[str, Kind] = {_OURS: "line", _TAIL: "points", _TOP_K: "line", _FROZEN: "points"}
    drawn = {method: [p for p in _of(method, points) if not p.dense] for method in kinds}
    return Figure(
        f"figure-4-{protocol}",
        f"Time against relative error of Z, {PROTOCOLS[protocol]}",
        "relative error of Z",
        "milliseconds",
        [
            *(
                Curve(method, [p.error for p in drawn[method]], [1e3 * p.seconds for p in drawn[method]], kind)
                for method, kind in kinds.items()
            ),
            Curve("exact", [], [1e3 * exact], "level"),
        ],
        x_log=True,
        y_log=True,
        caption="Mean errors. Further left and lower is better.",
    )
