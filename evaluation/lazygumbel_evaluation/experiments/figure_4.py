"""Figure 4: relative error of the partition function against time."""

from collections.abc import Iterator
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from lazygumbel._support.arrays import Floats
from lazygumbel.indexes import FaissIndex
from lazygumbel.methods import Bounded, Estimator, Frozen, Normaliser, TopKOnly, UniformTail
from lazygumbel.model import LogLinear
from lazygumbel.progress import Task
from lazygumbel.rows.features import Features
from lazygumbel_evaluation.harness import baseline, brute_force
from lazygumbel_evaluation.harness.bench import Bench
from lazygumbel_evaluation.harness.clock import Clocked
from lazygumbel_evaluation.harness.thetas import Protocol
from lazygumbel_evaluation.report.section import Curve, Figure, Kind, Section, Table, Verdict
from lazygumbel_evaluation.report.styles import key, label, setting
from lazygumbel_evaluation.report.wording import duration

__all__ = ["Point", "beaten", "expected_seconds", "run"]


_TAILS = (1, 3, 10)
"""l in units of k."""
_ERRORS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Relative errors that ours is asked for."""
_PAPER_NOISE, _PAPER_ERROR = 64, 0.15
"""The paper: the method of 2016 comes no closer than 15%, at t = 64."""
_ROUNDING = 1e-9
"""The least error that is told apart from none."""
_OURS, _TOP_K, _TAIL, _FROZEN = "Bounded", "TopKOnly", "UniformTail", "Frozen"
_KNOBS = {_OURS: ("rel_err",), _TOP_K: ("k",), _TAIL: ("k", "l"), _FROZEN: ("t",)}
_KINDS: dict[str, Kind] = {_OURS: "line", _TAIL: "points", _TOP_K: "line", _FROZEN: "points"}


class Point(NamedTuple):
    """One method with one setting: median time, and relative errors of Z."""

    method: str
    """The key of its style."""
    label: str
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
    model: LogLinear
    method: Estimator | Normaliser


def expected_seconds(bench: Bench) -> float:
    """The frozen noise needs an index for each of its lengths; other trials cost half an exact pass a theta."""
    budget = bench.budget
    trials = len(_ERRORS) + len(budget.heads) * (1 + len(_TAILS)) + 4 * len(budget.noises)
    asked = len(bench.protocols) * budget.passes
    calls = 0.5 * bench.rough_seconds["exact"] * budget.partition_thetas + budget.pace.rest_seconds
    return len(budget.noises) * bench.build_seconds + asked * trials * calls


def beaten(point: Point, ours: list[Point]) -> bool:
    """Whether the curve through `ours`, in logarithms, has a smaller error by the time of `point`."""
    ranked = sorted(ours, key=lambda p: p.seconds)
    seconds = np.log([p.seconds for p in ranked])
    errors = np.minimum.accumulate(np.log([p.error for p in ranked]))
    reached: Floats = np.interp([np.log(point.seconds)], seconds, errors, left=np.inf)
    return bool(reached[0] < np.log(point.error))


def run(bench: Bench, task: Task) -> Section:
    """Estimate Z at the same thetas in every way."""
    points: dict[Protocol, list[Point]] = {protocol: [] for protocol in bench.protocols}
    exact: dict[Protocol, list[float]] = {protocol: [] for protocol in bench.protocols}
    heats = 1 + len(bench.budget.noises)
    for trials in _heats(bench):
        for protocol, found in points.items():
            clocked = _clock(bench, trials, protocol)
            exact[protocol].append(float(np.median(clocked.pop("exact").by_argument)))
            found += [_judge(bench, protocol, trial, one) for trial, one in zip(trials, clocked.values(), strict=True)]
        task.advance(1 / heats)
    return _section(bench, points, {protocol: min(taken) for protocol, taken in exact.items()})


def _heats(bench: Bench) -> Iterator[list[_Trial]]:
    """Trials that take turns with each other; an index over lengthened rows is let go of after its heat."""
    root = sqrt(bench.n)
    first = [_Trial(bench.model, Bounded(rel_err=rel_err)) for rel_err in _ERRORS]
    for head in bench.budget.heads:
        k = min(ceil(head * root), bench.n // 2)
        tails = [UniformTail(k, tail * k) for tail in _TAILS if k * (1 + tail) < bench.n / 2]
        first += [_Trial(bench.paper_model, method) for method in (TopKOnly(k), *tails)]
    yield first
    for t in bench.budget.noises:
        yield [_Trial(bench.model, Frozen(t, bench.seed, _index_of_lengthened))]


def _index_of_lengthened(features: Features) -> FaissIndex:
    """Fewer lists than for the rows themselves: noise has no clusters, and longer rows take longer to build over."""
    return baseline.build_index(features, density=1.0)[0]


def _clock(bench: Bench, trials: list[_Trial], protocol: Protocol) -> dict[str, Clocked]:
    thetas, rng = bench.thetas(protocol)[: bench.budget.partition_thetas], bench.rng(f"figure-4 {protocol}")
    variants = brute_force.normalisers(bench.model, thetas, bench.temperature)
    calls = {
        str(i): bench.asking(trial.model, lambda dist, m=trial.method: dist.log_partition(method=m, rng=rng))
        for i, trial in enumerate(trials)
    }
    return bench.compare(variants, calls, thetas)


def _judge(bench: Bench, protocol: Protocol, trial: _Trial, clocked: Clocked) -> Point:
    """Errors come from every call that was timed."""
    log_z = np.tile(bench.oracle(protocol).log_z[: clocked.arguments], bench.budget.passes)
    errors = np.abs(np.expm1(np.array([float(answer.value) for answer in clocked.answers]) - log_z))
    mean, high, worst = (max(float(e), _ROUNDING) for e in (errors.mean(), np.quantile(errors, 0.95), errors.max()))
    dense = any(answer.exact for answer in clocked.answers)
    method = key(trial.method)
    said = label(trial.method), setting(trial.method, *_KNOBS[method])
    return Point(method, *said, float(np.median(clocked.by_argument)), mean, high, worst, dense)


def _section(bench: Bench, points: dict[Protocol, list[Point]], exact: dict[Protocol, float]) -> Section:
    budget = bench.budget
    return Section(
        "figure-4",
        "Figure 4: the partition function",
        f"Z at each of {budget.partition_thetas} thetas, those that are not rows and then rows of the index, one theta "
        f"a call; the time of each is the median of {budget.passes} calls, and the median over thetas is shown. The "
        f"heads of TopKOnly and UniformTail, {_listed(budget.heads)} times sqrt(n), come from the paper's FAISS index, "
        "as in Table 1: it probes 1/32 of its lists, and scores all rows where those hold fewer than k. UniformTail is "
        "the paper's Algorithm 3. Frozen, the method of 2016, searches rows lengthened by t = "
        f"{_listed(budget.noises)} noises with a FAISS inverted file of sqrt(n) lists; if it found every maximum, its "
        "error would be about 1 / sqrt(t - 2). The exact time is that of one pass over all rows at its quickest; a "
        "setting of Bounded that had a theta answered by such a pass is in the table, marked so, but not on the curve.",
        [verdict for protocol, called in bench.protocols.items() for verdict in _verdicts(called, points[protocol])],
        [_table(called, points[protocol]) for protocol, called in bench.protocols.items()],
        [_figure(protocol, called, points[protocol], exact[protocol]) for protocol, called in bench.protocols.items()],
        {
            protocol: {"exact_seconds": exact[protocol], "points": [p._asdict() for p in found]}
            for protocol, found in points.items()
        },
    )


def _listed(counts: tuple[int, ...]) -> str:
    *first, last = map(str, counts)
    return f"{', '.join(first)} and {last}" if first else last


def _of(method: str, points: list[Point]) -> list[Point]:
    return [p for p in points if p.method == method]


def _verdicts(called: str, points: list[Point]) -> list[Verdict]:
    ours = _of(_OURS, points)
    others = [p for p in points if p.method != _OURS]
    won = [p for p in others if beaten(p, ours)]
    best = {method: min(_of(method, points), key=lambda p: p.error) for method in _KINDS}
    return [
        Verdict(
            "More accurate than every other method in the same time",
            ours[0].label,
            None,
            f"{len(won)} of {len(others)} settings of the others beaten",
            len(won) == len(others),
            called,
        ),
        Verdict(
            f"The error stays above {_PAPER_ERROR:.0%}",
            best[_FROZEN].label,
            f"{_PAPER_ERROR:.0%} at t = {_PAPER_NOISE}",
            f"{best[_FROZEN].error:.1%} at {best[_FROZEN].setting}",
            best[_FROZEN].error >= _PAPER_ERROR,
            called,
        ),
        Verdict(
            "With a tail the error is smaller than without",
            best[_TAIL].label,
            "needs the tail",
            f"{best[_TAIL].error:.2%} against {best[_TOP_K].error:.2%} of {best[_TOP_K].label}",
            best[_TAIL].error < best[_TOP_K].error,
            called,
        ),
    ]


def _table(called: str, points: list[Point]) -> Table:
    ours = _of(_OURS, points)
    return Table(
        f"Every setting, {called}",
        ["method", "setting", "time", "error of Z: mean", "95%", "max", f"{ours[0].label} has less by then"],
        [
            [
                p.label,
                p.setting + (" (some exact)" if p.dense else ""),
                duration(p.seconds),
                *(f"{error:.2g}" for error in (p.error, p.high, p.worst)),
                None if p.method == _OURS else "yes" if beaten(p, ours) else "no",
            ]
            for p in points
        ],
    )


def _figure(protocol: Protocol, called: str, points: list[Point], exact: float) -> Figure:
    ranked = sorted((p for p in points if not p.dense), key=lambda p: p.error)
    drawn = {method: _of(method, ranked) for method in _KINDS}
    return Figure(
        f"figure-4-{protocol}",
        f"Time against relative error of Z, {called}",
        "relative error of Z",
        "milliseconds",
        [
            *(
                Curve(some[0].label, [p.error for p in some], [1e3 * p.seconds for p in some], method, _KINDS[method])
                for method, some in drawn.items()
                if some
            ),
            Curve(brute_force.QUICKEST, [], [1e3 * exact], key(brute_force.DENSE), "level"),
        ],
        x_log=True,
        y_log=True,
        caption="Mean errors. Further left and lower is better.",
    )
