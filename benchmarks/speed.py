"""Speed and accuracy of the default method against brute force, the paper's method and the top k alone.

    python benchmarks/speed.py [--photos PATH] [--sentences PATH] [--glove] [--synthetic] [--growth PATH]
                               [--json PATH] [--plots DIR] [--quick]

One table for each data set; all contenders run in one process, each on all cores. Times are medians over thetas drawn
from the rows by a seed of their own; the miss is audited, and errors of Z are measured, on the same thetas. `--growth`
measures cost against n on subsets of the rows of a file. Files are `.npy` of integers, whose rows are scaled to unit
norm. The last table compares what was wanted of the library with what was measured. Needs the extra `data` for GloVe,
and `plots` for `--plots`.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import lazygumbel as lg
from common import BruteForce, Probe, Truth, clock, clock_together, exponent, held_bytes, plot_errors, plot_growth
from lazygumbel import datasets

TEMPERATURE = 0.05
MISS, REL_ERR = 2.5e-4, 0.01
ONE, BATCH, LOG_Z = "one theta, one sample", "a batch of thetas, one sample each", "one theta, log Z"
BARS = {"photos": (100, 30, 20, 15), "glove": (25, 12, 10, 8), "sentences": (25, 6, 10, 1.5)}
"""Times faster than brute force at ONE, BATCH and LOG_Z, and times fewer rows than the paper's method."""
BUILD, MEMORY, EXTRA, FEWER = (
    "build and calibration, in brute-force samples",
    "memory, over that of the float32 matrix",
    "microseconds a sample of one theta beyond the first",
    "times fewer rows than the paper's method at equal miss",
)
SWEEP = (0.1, 0.05, 0.03, 0.02, 0.005, 0.003)
"""Relative errors of Z to ask for as well."""
WARM_UP = 2_000
"""Rows of a model whose building compiles everything."""


@dataclass(frozen=True)
class Budget:
    """How much is measured."""

    thetas: int = 400
    """Over which misses and errors are averaged, and `Stratified` is timed."""
    timed: int = 100
    """Of these, how many slower contenders are timed on."""
    batch: int = 1024
    many: int = 10_000
    """Samples of one theta."""
    rows: int | None = None
    """The most rows of a data set that are used."""
    sizes: int = 6
    """How many n, from 10,000 to all rows, the growth of the cost is measured at."""


QUICK = Budget(thetas=64, timed=20, batch=64, many=1_000, rows=20_000, sizes=2)


@dataclass(frozen=True)
class Line:
    """One contender at one task."""

    task: str
    contender: str
    seconds: float
    """For one theta, the median."""
    rows: float
    """Looked at for one theta, the mean."""
    miss: float | None = None
    """Probability that the winner is not looked at, the mean over thetas, and the standard error of that."""
    miss_error: float | None = None
    rel_err: float | None = None
    """RMS relative error of Z, and RMS error of log Z."""
    log_err: float | None = None


@dataclass(frozen=True)
class Bar:
    """What is wanted, at least or at most, and what was measured."""

    data: str
    work: str
    wanted: float
    measured: float
    at_most: bool = False
    accurate: bool = True
    """Whether the accuracy that the bar asks for was met as well."""

    @property
    def met(self) -> bool:
        """Whether the bar is cleared."""
        return self.accurate and (self.measured <= self.wanted if self.at_most else self.measured >= self.wanted)


@dataclass(frozen=True)
class Report:
    """Everything measured on one data set."""

    data: str
    facts: dict[str, float | str]
    lines: list[Line]

    def faster(self, line: Line) -> float:
        """How many times than brute force at the same task."""
        return quickest(self.lines, line.task, "brute force").seconds / line.seconds

    def figures(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self) | {"lines": [asdict(line) | {"faster": self.faster(line)} for line in self.lines]}

    def bars(self) -> Iterator[Bar]:
        """What was wanted on this data set."""
        if self.data not in BARS:
            return
        ours = {ONE: "Stratified", BATCH: "Stratified", LOG_Z: f"Stratified({REL_ERR:g})"}
        for (task, contender), wanted in zip(ours.items(), BARS[self.data], strict=False):
            line = quickest(self.lines, task, contender)
            accurate = line.rel_err <= REL_ERR if line.rel_err is not None else (line.miss or 0.0) <= MISS
            yield Bar(self.data, f"times faster, {task}", wanted, self.faster(line), accurate=accurate)
        yield Bar(self.data, FEWER, BARS[self.data][3], float(self.facts[FEWER]))
        for work, wanted in ((EXTRA, 10.0), (MEMORY, 1.4), *([(BUILD, 1500.0)] if self.data == "photos" else [])):
            yield Bar(self.data, work, wanted, float(self.facts[work]), at_most=True)


class Bench:
    """A data set, models over it, fresh thetas, and exact answers for them."""

    def __init__(self, data: str, features: lg.Features, budget: Budget) -> None:
        self.data, self.features, self.budget = data, features, budget
        self.model, self.build_seconds = build(features)
        self.root = ceil(sqrt(features.n))
        self.ivf = lg.FaissIndex.build(features, f"IVF{4 * self.root},Flat")  # FAISS advises 4 to 16 sqrt(n) lists
        self.paper = lg.LogLinear(self.ivf)
        self.thetas = draw_thetas(features, budget.thetas)
        self.batches = draw_thetas(features, 9 * budget.batch).reshape(9, budget.batch, features.d)
        self.truth = Truth.of(features, self.thetas, TEMPERATURE, max(1, self.root // 4))
        self.misses = self.model.audit(self.thetas, temperature=TEMPERATURE, method=lg.Stratified()).miss
        self.probe = Probe(self.ivf, self.thetas, self.truth)
        self.accuracy = float(self.misses.mean()), standard_error(self.misses)
        self.dense = BruteForce(features, TEMPERATURE)
        self.rng = np.random.default_rng(2)

    def run(self) -> Report:
        """All contenders."""
        one, many, log_z = list(self.one_theta()), list(self.batches_of_thetas()), list(self.log_partition())
        lines = [*one, *self.paper_method(), self.top_k_only(), *many, *log_z, *self.log_partitions()]
        # The paper's head may also be every row of the lists probed: whichever of the two looks at fewer rows counts.
        whole = self.probe.cheapest(float(self.misses.mean()), self.features.n).rows
        fewest = min(whole, quickest(lines, ONE, "paper at our miss").rows)
        dense, ours = (quickest(one, ONE, name) for name in ("brute force", "Stratified"))
        facts: dict[str, float | str] = {
            "n": self.features.n,
            "d": self.features.d,
            "thetas": self.budget.thetas,
            "batch": self.budget.batch,
            "quickest for one theta": dense.contender,
            "build and calibration, seconds": self.build_seconds,
            BUILD: self.build_seconds / dense.seconds,
            MEMORY: held_bytes(self.model) / (4 * self.features.n * self.features.d),
            EXTRA: self.extra_sample(),
            "label of our samples": self.model(self.thetas, temperature=TEMPERATURE).sample(1, rng=self.rng).label,
            "rows of the paper's method at our miss, if k is all it probes": whole,
            FEWER: fewest / ours.rows,
        }
        return Report(self.data, facts, lines)

    def one_theta(self) -> Iterator[Line]:
        """One sample, by every way to write brute force, of which the quickest counts, and ours."""
        some = self.thetas[: self.budget.timed]
        ways = {name: partial(draw, rng=self.rng) for name, draw in self.dense.samplers().items()}
        ours = one_sample(self.model, self.rng, lg.Stratified()), self.thetas
        took = clock_together({**{name: (draw, some) for name, draw in ways.items()}, "ours": ours})
        seconds, draws = took.pop("ours")
        for name, (dense, _) in took.items():
            yield Line(ONE, f"brute force, {name}", dense, self.features.n, 0.0, 0.0)
        yield Line(ONE, "Stratified", seconds, mean_rows(draws), *self.accuracy)

    def batches_of_thetas(self) -> Iterator[Line]:
        """One sample for each of many thetas, by brute force and ours."""
        ways = {
            "dense": (partial(self.dense.sample_batch, rng=self.rng), self.batches[:3]),
            "ours": (one_sample(self.model, self.rng, lg.Stratified()), self.batches),
        }
        took, size = clock_together(ways), self.budget.batch
        yield Line(BATCH, "brute force, GEMM, inverse CDF", took["dense"][0] / size, self.features.n, 0.0, 0.0)
        yield Line(BATCH, "Stratified", took["ours"][0] / size, mean_rows(took["ours"][1]), *self.accuracy)

    def log_partition(self) -> Iterator[Line]:
        """log Z, by brute force and ours at the error that is wanted."""
        some = self.thetas[: self.budget.timed]
        ways = {
            f"brute force, GEMV by {layout}": (partial(self.dense.log_partition, by_columns=layout == "columns"), some)
            for layout in ("rows", "columns")
        }
        ours = f"Stratified({REL_ERR:g})"
        took = clock_together({**ways, ours: (self._asks(self.model, lg.Stratified(REL_ERR)), self.thetas)})
        for name in ways:
            yield self._compared(name, took[name][0], self.features.n, np.array(took[name][1]))
        seconds, estimates = took[ours]
        yield self._compared(ours, seconds, mean_rows(estimates), np.array([e.value for e in estimates]))

    def paper_method(self) -> Iterator[Line]:
        """FAISS and a uniform tail, at k = l = sqrt(n) and at the miss of `Stratified`."""
        index, root = self.ivf.index, self.root
        usual, equal = index.nprobe, self.probe.cheapest(float(self.misses.mean()), root)
        took = {}
        for mode in (0, 1):  # how FAISS shares one query between threads
            index.parallel_mode = mode
            took[mode] = clock(lambda theta: self.ivf.top_k(theta, root), self.thetas[:20])[0]
        index.parallel_mode = min(took, key=lambda mode: took[mode])
        for name, lists, tail in (("paper", usual, root), ("paper at our miss", equal.lists, equal.l)):
            index.nprobe = lists
            misses, method = self.probe.misses(lists, root, tail), lg.FixedCutoff(k=root, l=tail)
            yield self._one(f"{name}, k = {root:,}, l = {tail:,}, {lists} lists", self.paper, method, misses)
        index.nprobe = usual

    def top_k_only(self) -> Line:
        """The top sqrt(n) as if there were no tail: what it misses is the mass of the tail."""
        scores = self.ivf.top_k(self.thetas, self.root).scores
        mass = np.exp(scores / TEMPERATURE - self.truth.log_z[:, None]).sum(axis=1)
        return self._one(f"TopKOnly({self.root})", self.paper, lg.TopKOnly(self.root), 1 - mass)

    def extra_sample(self) -> float:
        """Microseconds of each sample of one theta beyond the first."""
        sizes = (1, self.budget.many)
        calls = [one_sample(self.model, self.rng, size=size) for size in sizes]
        first, many = (clock(call, self.thetas[:20])[0] for call in calls)
        return 1e6 * (many - first) / (self.budget.many - 1)

    def log_partitions(self) -> Iterator[Line]:
        """log Z by every method at several budgets."""
        few, root, index = self.budget.timed, self.root, self.ivf.index
        usual = index.nprobe
        for k, tail in ((0.1, 0), (0.3, 0), (1, 0), (3, 0), (10, 0), (1, 1), (3, 3), (3, 10), (10, 10), (10, 100)):
            head, more = ceil(k * root), tail * root
            index.nprobe = max(usual, ceil(12 * k))  # three times the rows of the head; FAISS needs more than one
            method = lg.UniformTail(head, more) if more else lg.TopKOnly(head)
            name = f"UniformTail({head}, {more})" if more else f"TopKOnly({head})"
            yield self._log_z(name, self.paper, method, few)
        index.nprobe = usual
        for rel_err in SWEEP:
            yield self._log_z(f"Stratified({rel_err:g})", self.model, lg.Stratified(rel_err), few)

    def _one(self, contender: str, model: lg.LogLinear, method: Any, misses: np.ndarray) -> Line:
        seconds, draws = clock(one_sample(model, self.rng, method), self.thetas)
        return Line(ONE, contender, seconds, mean_rows(draws), float(misses.mean()), standard_error(misses))

    def _asks(self, model: lg.LogLinear, method: Any) -> Callable[[np.ndarray], lg.Estimate]:
        return lambda theta: model(theta, temperature=TEMPERATURE).log_partition(method=method, rng=self.rng)

    def _log_z(self, contender: str, model: lg.LogLinear, method: Any, count: int) -> Line:
        seconds, estimates = clock(self._asks(model, method), self.thetas[:count])
        return self._compared(contender, seconds, mean_rows(estimates), np.array([e.value for e in estimates]))

    def _compared(self, contender: str, seconds: float, rows: float, values: np.ndarray) -> Line:
        error = values - self.truth.log_z[: len(values)]
        rel_err, log_err = (float(np.sqrt(np.mean(e**2))) for e in (np.expm1(error), error))
        return Line(LOG_Z, contender, seconds, rows, rel_err=rel_err, log_err=log_err)


def build(features: lg.Features) -> tuple[lg.LogLinear, float]:
    """A calibrated model, and the seconds it took; a small one before it warms up."""
    if features.n > WARM_UP:
        build(lg.Features.of(features.stored[:WARM_UP]))
    start, rng = perf_counter(), np.random.default_rng(0)
    model = lg.LogLinear.build(features, index=lg.PartitionIndex.build(features, rng=rng), rng=rng)
    return model, perf_counter() - start


def draw_thetas(features: lg.Features, count: int) -> np.ndarray:
    """Rows, by a seed that nothing else uses."""
    return features.gather(np.random.default_rng(20_170_811).integers(features.n, size=count))


def one_sample(
    model: lg.LogLinear, rng: np.random.Generator, method: Any = None, size: int = 1
) -> Callable[[np.ndarray], lg.Draws]:
    """The question that is timed."""
    return lambda theta: model(theta, temperature=TEMPERATURE).sample(size, method=method, rng=rng)


def quickest(lines: list[Line], task: str, contender: str) -> Line:
    """Of the lines of a task whose contender's name begins so."""
    found = [line for line in lines if line.task == task and line.contender.startswith(contender)]
    return min(found, key=lambda line: line.seconds)


def mean_rows(answers: list[Any]) -> float:
    return float(np.mean([answer.rows for answer in answers]))


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / sqrt(len(values)))


def growth(features: lg.Features, budget: Budget) -> list[dict[str, float]]:
    """Cost of one sample at several n, on random subsets of the rows; a model is built and calibrated for each."""
    order, found = np.random.default_rng(3).permutation(features.n), []
    for n in np.geomspace(10_000, features.n, budget.sizes).round().astype(np.int64).tolist():
        some = lg.Features.of(features.gather(np.sort(order[:n])))
        model, seconds = build(some)
        thetas, rng = draw_thetas(some, budget.thetas), np.random.default_rng(4)
        ours, draws = clock(one_sample(model, rng, lg.Stratified()), thetas)
        few, dense = thetas[: budget.timed // 4], BruteForce(some, TEMPERATURE)
        brute = min(clock(draw, few, [rng] * len(few))[0] for draw in dense.samplers().values())
        misses = model.audit(thetas[: 2 * budget.timed], temperature=TEMPERATURE, method=lg.Stratified()).miss
        facts = {"n": n, "rows": mean_rows(draws), "seconds": ours, "brute-force seconds": brute}
        facts |= {"miss": float(misses.mean()), "miss_error": standard_error(misses), "build seconds": seconds}
        found.append(facts)
    return found


def show(report: Report) -> None:
    print(f"\n{report.data}")
    for key, value in report.facts.items():
        print(f"  {key}: {value if isinstance(value, str) else format(value, ',.4g')}")
    print(f"\n{'':62}{'ms':>10}{'faster':>10}{'rows':>12}{'mean miss':>11}{'+-':>10}{'RMS of Z':>10}")
    for task in (ONE, BATCH, LOG_Z):
        print(task)
        for line in (line for line in report.lines if line.task == task):
            accuracy = ("" if a is None else format(a, ".2g") for a in (line.miss, line.miss_error, line.rel_err))
            shown = f"{1e3 * line.seconds:10.4f}{report.faster(line):9.1f}x{line.rows:12,.0f} "
            print(f"  {line.contender:60}{shown}" + "".join(f"{a:>10}" for a in accuracy))


def show_growth(grown: list[dict[str, float]]) -> None:
    print(f"\ncost against n, rows ~ n^{exponent(grown):.3f}")
    print("".join(f"{key:>21}" for key in grown[0]))
    for facts in grown:
        print("".join(f"{value:21,.4g}" for value in facts.values()))


def show_bars(bars: list[Bar]) -> None:
    print(f"\n{'bar':74}{'wanted':>12}{'measured':>12}  met")
    for bar in bars:
        sign = "<=" if bar.at_most else ">="
        met = "yes" if bar.met else "no" if bar.accurate else "no: not accurate enough"
        print(f"{bar.data + ': ' + bar.work:74}{sign + format(bar.wanted, ' g'):>12}{bar.measured:12.4g}  {met}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="a .npy of SIFT descriptors, one a row")
    parser.add_argument("--sentences", type=Path, help="a .npy of sentence embeddings, one a row")
    parser.add_argument("--glove", action="store_true", help="400,000 GloVe vectors")
    parser.add_argument("--synthetic", action="store_true", help="made-up rows of the shape of the paper's")
    parser.add_argument("--growth", type=Path, help="a .npy of rows to measure cost against n on: the photo rows")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--plots", type=Path, help="folder for plots")
    parser.add_argument("--quick", action="store_true", help="few rows and thetas: shows that everything runs")
    options = parser.parse_args()
    budget = QUICK if options.quick else Budget()
    sources: dict[str, tuple[Any, Callable[[], lg.Features]]] = {
        "photos": (options.photos, lambda: datasets.unit_rows(options.photos)),
        "glove": (options.glove, datasets.glove),
        "sentences": (options.sentences, lambda: datasets.unit_rows(options.sentences)),
        "synthetic": (options.synthetic, lambda: datasets.synthetic(budget.rows or 1_281_167, rng=0)),
        "growth": (options.growth, lambda: datasets.unit_rows(options.growth)),
    }
    if not any(wanted for wanted, _ in sources.values()):
        parser.error("choose at least one of --photos, --glove, --sentences, --synthetic and --growth")
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"budget": asdict(budget)}
    bars: list[Bar] = []
    for data, (wanted, read) in sources.items():
        if not wanted:
            continue
        features = read()
        if budget.rows is not None:
            features = lg.Features.of(features.stored[: budget.rows])
        if data == "growth":
            found = growth(features, budget)
            bars.append(Bar("photos", "a of rows ~ n^a", 0.5, exponent(found), at_most=True))
            results[data] = found
            show_growth(found)
            if options.plots:
                plot_growth(found, options.plots / "cost.svg")
        else:
            report = Bench(data, features, budget).run()
            bars += report.bars()
            results[data] = report.figures()
            show(report)
            if options.plots:
                lines = [line for line in report.lines if line.task == LOG_Z]
                plot_errors(f"{data}, n = {features.n:,}", lines, options.plots / f"{data}.svg")
        results["bars"] = [asdict(bar) | {"met": bar.met} for bar in bars]
        if options.json:  # after every part, so that a later one that fails takes nothing along
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=2))
    show_bars(bars)


if __name__ == "__main__":
    main()
