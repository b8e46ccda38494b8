"""What `speed.py` measures with: brute force written for speed, exact answers, closed forms, plots."""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numba import njit

import lazygumbel as lg
from lazygumbel.extras import require
from lazygumbel.names import Names
from lazygumbel.threads import map_threads

__all__ = [
    "BruteForce",
    "Probe",
    "Setting",
    "Truth",
    "clock",
    "exponent",
    "held_bytes",
    "plot_errors",
    "plot_growth",
]

BLACK, ORANGE, BLUE, GREEN = "#222222", "#d55e00", "#0072b2", "#009e73"

_STRIPE = 512
"""Rows whose weights are summed together: a draw picks a stripe, then a row of it."""
_BLOCK = 4 * _STRIPE
"""Rows of one matrix product in a batch: for 1,024 thetas 8 MB of scores, which stay in the cache."""
_SCORES_AT_ONCE = 2**25
_LEAST_SECONDS, _TURN_SECONDS = 0.75, 0.25
_FASTMATH = {"reassoc", "contract", "nsz"}
_LOG2_E = np.float32(1.4426950408889634)


def clock(call: Callable[..., Any], *columns: Any) -> tuple[float, list[Any]]:
    """Median seconds of call(*arguments), arguments taken from the columns, and every answer; the first calls warm up.

    Each call is timed on its own, so that a median is not moved by what else the machine does; quick ones are all timed
    again and again for three quarters of a second, so that it is not by what that does in a moment either.
    """
    arguments = list(zip(*columns, strict=True))
    for some in arguments[:3]:
        call(*some)
    seconds, answers = [], []
    while sum(seconds) < _LEAST_SECONDS:
        answers = []
        for some in arguments:
            start = perf_counter()
            answers.append(call(*some))
            seconds.append(perf_counter() - start)
    return float(np.median(seconds)), answers


def clock_together(
    contenders: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]],
) -> dict[str, tuple[float, list[Any]]]:
    """`clock` for several calls with one argument each, and arguments of their own: median seconds and all answers.

    They take turns, a quarter of a second each, so that what else the machine does meets them all alike. Shorter turns
    would not do: the threads of BLAS stay busy for some hundredths of a second after a product.
    """
    for call, arguments in contenders.values():
        for some in arguments[:3]:
            call(some)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    answers: dict[str, list[Any]] = {name: [] for name in contenders}
    while any(
        len(seconds[name]) < len(arguments) or sum(seconds[name]) < _LEAST_SECONDS
        for name, (_, arguments) in contenders.items()
    ):
        for name, (call, arguments) in contenders.items():
            turn = perf_counter() + _TURN_SECONDS
            while perf_counter() < turn:
                some = arguments[len(seconds[name]) % len(arguments)]
                start = perf_counter()
                answer = call(some)
                seconds[name].append(perf_counter() - start)
                if len(answers[name]) < len(arguments):
                    answers[name].append(answer)
    return {name: (float(np.median(seconds[name])), answers[name]) for name in contenders}


class BruteForce:
    """Exact draws and log Z up to the rounding of float32; BLAS and the pool may use all cores.

    Weights are exp(logit - bound) with a Cauchy-Schwarz bound in place of the maximum, which would be another pass.
    They do not underflow while |theta| times the largest norm over the temperature is below 40.
    """

    def __init__(self, features: lg.Features, temperature: float) -> None:
        self.rows = features.stored
        self.columns = np.ascontiguousarray(self.rows.T)
        """BLAS is quicker this way round when rows are short."""
        self.temperature, self.max_norm = np.float32(temperature), np.float32(features.max_norm)
        stripes = -(-features.n // _STRIPE)
        self._weights = np.empty(features.n, dtype=np.float32)
        middle = stripes // 2 * _STRIPE
        self._halves = [slice(0, middle), slice(middle, features.n)]
        self._starts = [np.arange(0, half.stop - half.start, _STRIPE) for half in self._halves]

    def samplers(self) -> dict[str, Callable[[np.ndarray, np.random.Generator], int]]:
        """Every way to draw one row for one theta."""
        return {
            f"GEMV by {layout}, {name}": partial(draw, by_columns=layout == "columns")
            for layout in ("rows", "columns")
            for name, draw in (("inverse CDF", self.inverse_cdf), ("Gumbel-max", self.gumbel_max))
        }

    def inverse_cdf(self, theta: np.ndarray, rng: np.random.Generator, *, by_columns: bool) -> int:
        """The id drawn."""
        stripe = _search(self._masses(theta, by_columns)[0], rng)
        start = stripe * _STRIPE
        return start + _search(self._weights[start : start + _STRIPE], rng)

    def gumbel_max(self, theta: np.ndarray, rng: np.random.Generator, *, by_columns: bool) -> int:
        """The id drawn: logit - log(exponential) is largest where exponential / weight is smallest.

        Noise is float64: in float32 the smallest of a million exponentials is coarse, and may be zero.
        """
        self._masses(theta, by_columns)

        def race(half: slice, noise: np.random.Generator) -> tuple[float, int]:
            times = noise.standard_exponential(half.stop - half.start)
            times /= self._weights[half]
            first = int(times.argmin())
            return times[first], half.start + first

        return min(map_threads(race, self._halves, rng.spawn(2)))[1]

    def log_partition(self, theta: np.ndarray, *, by_columns: bool) -> float:
        """log Z."""
        masses, bound = self._masses(theta, by_columns)
        return float(bound + np.log(masses.sum(dtype=np.float64)))

    def sample_batch(self, thetas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One id for each theta: masses of stripes by matrix products, then one stripe is scored again."""
        n, size = len(self.rows), len(thetas)
        scaled = thetas * (_LOG2_E / self.temperature)  # powers of two are quicker than those of e
        bounds = np.linalg.norm(scaled, axis=1) * self.max_norm
        across = np.ascontiguousarray(scaled.T)
        scores = np.empty((_BLOCK, size), dtype=np.float32)
        masses = np.zeros((-(-n // _STRIPE), size), dtype=np.float32)
        for start in range(0, n, _BLOCK):
            rows = self.rows[start : start + _BLOCK]
            block = np.dot(rows, across, out=scores[: len(rows)])
            stripes = [block[a : a + _STRIPE] for a in range(0, len(block), _STRIPE)]
            sums = masses[start // _STRIPE :][: len(stripes)]
            list(map_threads(_add_powers, stripes, [bounds] * len(stripes), sums))
        uniforms = rng.random((2, size))
        halves = [slice(0, size // 2), slice(size // 2, size)]
        columns = (
            (scaled[h] for h in halves),
            (bounds[h] for h in halves),
            (masses[:, h] for h in halves),
            (uniforms[:, h] for h in halves),
        )
        return np.concatenate(list(map_threads(partial(_pick, self.rows), *columns)))

    def _masses(self, theta: np.ndarray, by_columns: bool) -> tuple[np.ndarray, np.float32]:
        """The mass of every stripe, in units of exp(bound), and the bound; the weights of all rows are kept."""
        scaled = theta / self.temperature
        bound = np.linalg.norm(scaled) * self.max_norm
        if by_columns:
            np.dot(scaled, self.columns, out=self._weights)
        else:
            np.dot(self.rows, scaled, out=self._weights)

        def weigh(half: slice, starts: np.ndarray) -> np.ndarray:
            weights = self._weights[half]
            weights -= bound
            return np.add.reduceat(np.exp(weights, out=weights), starts)

        return np.concatenate(list(map_threads(weigh, self._halves, self._starts))), bound


def _search(weights: np.ndarray, rng: np.random.Generator) -> int:
    ends = np.cumsum(weights, dtype=np.float64)
    return int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _add_powers(scores: np.ndarray, bounds: np.ndarray, out: np.ndarray) -> None:
    """Sum of 2^(score - bound) over the first axis, to 2e-7 of it: LLVM vectorises this, but not its own exp."""
    m, size = scores.shape
    exponents = np.empty(size, dtype=np.int32)
    whole = exponents.view(np.float32)
    for i in range(m):
        row = scores[i]
        for j in range(size):
            x = max(row[j] - bounds[j], np.float32(-126.0))
            floor = np.floor(x)
            r = x - floor
            p = np.float32(1.8775767e-3)
            p = p * r + np.float32(8.9893397e-3)
            p = p * r + np.float32(5.5826318e-2)
            p = p * r + np.float32(2.4015361e-1)
            p = p * r + np.float32(6.9315308e-1)
            row[j] = p * r + np.float32(9.9999994e-1)
            exponents[j] = (np.int32(floor) + np.int32(127)) << np.int32(23)
        for j in range(size):
            out[j] += row[j] * whole[j]


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _pick(
    rows: np.ndarray, thetas: np.ndarray, bounds: np.ndarray, masses: np.ndarray, uniforms: np.ndarray
) -> np.ndarray:
    """For each theta a stripe by its mass, then a row within the stripe by its weight."""
    stripes, size = masses.shape
    totals, passed = np.zeros(size), np.zeros(size)
    chosen = np.full(size, -1)
    for s in range(stripes):
        for b in range(size):
            totals[b] += masses[s, b]
    for s in range(stripes):
        for b in range(size):
            passed[b] += masses[s, b]
            if chosen[b] < 0 and passed[b] > uniforms[0, b] * totals[b]:
                chosen[b] = s
    ends = np.empty(_STRIPE)
    for b in range(size):
        start = chosen[b] * _STRIPE
        held, total = min(_STRIPE, rows.shape[0] - start), 0.0
        for i in range(held):
            score = np.float32(0.0)
            for c in range(rows.shape[1]):
                score += rows[start + i, c] * thetas[b, c]
            total += 2.0 ** (score - bounds[b])
            ends[i] = total
        chosen[b] = start + np.searchsorted(ends[:held], uniforms[1, b] * total, side="right")
    return chosen


class Truth(NamedTuple):
    """Exact answers for thetas, and the rows heavy enough to be missed by a sampler that looks at l of n or more."""

    l: int  # noqa: E741  # the paper's name
    log_z: np.ndarray
    """(T,)"""
    owner: np.ndarray
    """Which theta each heavy row belongs to, increasing, (m,)."""
    ids: np.ndarray
    """Heavy rows of each theta, heaviest first, (m,)."""
    p: np.ndarray
    """Their probabilities, (m,)."""

    @classmethod
    def of(cls, features: lg.Features, thetas: np.ndarray, temperature: float, l: int) -> "Truth":  # noqa: E741  # the paper's name
        """By brute force in float64, from scores in float32."""
        # A row of probability p is missed with probability p exp(-l / (n p)): less than e^-40 p if it is lighter.
        least = l / (40 * features.n)

        def exact(scores: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            logits = scores.astype(np.float64) / temperature
            top = logits.max()
            weights = np.exp(logits - top)
            total = weights.sum()
            heavy = np.flatnonzero(weights > least * total)
            heavy = heavy[np.argsort(-weights[heavy])]
            return top + np.log(total), heavy, weights[heavy] / total

        found = []
        step = max(1, _SCORES_AT_ONCE // features.n)
        for a in range(0, len(thetas), step):
            found += map_threads(exact, thetas[a : a + step] @ features.stored.T)
        log_z, ids, p = zip(*found, strict=True)
        owner = np.repeat(np.arange(len(thetas)), [len(some) for some in ids])
        return cls(l, np.array(log_z), owner, np.concatenate(ids), np.concatenate(p))


class Setting(NamedTuple):
    """How the paper's method may be run."""

    lists: int
    """Probed by FAISS."""
    l: int  # noqa: E741  # the paper's name
    rows: float
    """Looked at, the mean over thetas."""


class Probe:
    """The miss of the paper's method for any number of lists, k and l, in closed form."""

    def __init__(self, ivf: lg.FaissIndex, thetas: np.ndarray, truth: Truth) -> None:
        import faiss

        index, self.truth, self.n = ivf.index, truth, ivf.features.n
        sizes, list_of = np.empty(index.nlist, dtype=np.int64), np.empty(self.n, dtype=np.int64)
        for c in range(index.nlist):
            sizes[c] = index.invlists.list_size(c)
            list_of[faiss.rev_swig_ptr(index.invlists.get_ids(c), int(sizes[c]))] = c
        ranked = np.argsort(-(thetas @ index.quantizer.reconstruct_n(0, index.nlist).T), axis=1)
        self.rows = sizes[ranked].cumsum(axis=1).mean(axis=0)
        """In the first lists, by how many are probed; the mean over thetas."""
        rank = np.empty_like(ranked)
        np.put_along_axis(rank, ranked, np.arange(index.nlist)[None], axis=1)
        self.rank = rank[self.truth.owner, list_of[self.truth.ids]]
        self.thetas = len(thetas)
        self.firsts = np.searchsorted(self.truth.owner, np.arange(self.thetas))

    def misses(self, lists: int, k: int, l: int) -> np.ndarray:  # noqa: E741  # the paper's name
        """For each theta; as in `lazygumbel.audit.miss_fixed`."""
        tail, p = ~self._head(lists, k), self.truth.p
        missed = p[tail] * np.exp(np.log1p(-l / self.n) / p[tail])
        return np.bincount(self.truth.owner[tail], weights=missed, minlength=self.thetas)

    def cheapest(self, target: float, k: int) -> Setting:
        """The fewest rows that miss as little as the target."""
        bins = np.round(-np.log(self.truth.p) / 0.002).astype(np.int64)
        p = np.exp(-0.002 * np.arange(bins.max() + 1))
        best = Setting(0, 0, np.inf)
        for lists in np.unique(np.geomspace(1, len(self.rows), 32).astype(np.int64)).tolist():
            if k < self.n and self.rows[lists - 1] < 2 * k:  # too few for a head of k rows
                continue
            counts = np.bincount(bins[~self._head(lists, k)], minlength=len(p))
            low, high = float(self.truth.l), self.n / 2
            for _ in range(24):
                l = sqrt(low * high)  # noqa: E741  # the paper's name
                missed = counts @ (p * np.exp(np.log1p(-l / self.n) / p)) / self.thetas
                low, high = (l, high) if missed > target else (low, l)
            if self.rows[lists - 1] + high < best.rows:
                best = Setting(lists, ceil(high), float(self.rows[lists - 1] + high))
        return best

    def _head(self, lists: int, k: int) -> np.ndarray:
        """Which of the heavy rows are among the k best of the lists probed: they are sorted, heaviest first."""
        probed = self.rank < lists
        place = np.cumsum(probed)
        return probed & (place - (place - probed)[self.firsts][self.truth.owner] <= k)


def held_bytes(thing: Any, seen: set[int] | None = None) -> int:
    """Bytes of all arrays that an object of the library holds, the names of rows left out."""
    seen = set[int]() if seen is None else seen
    if id(thing) in seen or isinstance(thing, Names):
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        return sum(held_bytes(value, seen) for value in thing.values())
    if isinstance(thing, list | tuple):
        return sum(held_bytes(value, seen) for value in thing)
    return held_bytes(vars(thing), seen) if type(thing).__module__.startswith("lazygumbel") else 0


def exponent(grown: list[dict[str, float]]) -> float:
    """a of rows ~ n^a, by least squares in logs."""
    n, rows = ([facts[key] for facts in grown] for key in ("n", "rows"))
    return float(np.polyfit(np.log(n), np.log(rows), 1)[0])


def plot_errors(title: str, lines: list[Any], path: Path) -> None:
    """Error of log Z against time."""
    figure, axes = _pyplot().subplots(figsize=(6, 4), layout="constrained", facecolor="white")
    for name, colour, style in (("Stratified", BLUE, "-o"), ("UniformTail", GREEN, "s"), ("TopKOnly", ORANGE, "-x")):
        points = sorted((line for line in lines if line.contender.startswith(name)), key=lambda line: line.seconds)
        x, y = [1e3 * line.seconds for line in points], [line.log_err for line in points]
        axes.plot(x, y, style, color=colour, label=name)
    exact = min(line.seconds for line in lines if line.contender.startswith("brute force"))
    axes.axvline(1e3 * exact, color=BLACK, linestyle=":", label="brute force, exact")
    axes.set(xscale="log", yscale="log", xlabel="ms for one theta", ylabel="RMS error of log Z", title=title)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def plot_growth(grown: list[dict[str, float]], path: Path) -> None:
    """Rows and time of one sample against n."""
    figure, (left, right) = _pyplot().subplots(1, 2, figsize=(10, 4), layout="constrained", facecolor="white")
    n, rows, ours, brute = (
        np.array([facts[key] for facts in grown]) for key in ("n", "rows", "seconds", "brute-force seconds")
    )
    power = exponent(grown)
    left.plot(n, rows, "o", color=BLUE, label="Stratified")
    left.plot(n, np.exp(np.mean(np.log(rows / n**power))) * n**power, "--", color=BLUE, label=f"n^{power:.2f}")
    right.plot(n, 1e3 * brute, "-o", color=BLACK, label="brute force")
    right.plot(n, 1e3 * ours, "-o", color=BLUE, label="Stratified")
    left.set(xscale="log", yscale="log", xlabel="n", ylabel="rows looked at for one sample")
    right.set(xscale="log", yscale="log", xlabel="n", ylabel="ms for one sample")
    for axes in (left, right):
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _pyplot() -> Any:
    """matplotlib for SVG files: a fixed salt, so that the same figures give the same file."""
    require("matplotlib", extra="plots").use("svg")
    plots: Any = require("matplotlib.pyplot", extra="plots")
    plots.rcParams.update({"svg.hashsalt": "lazygumbel", "axes.spines.top": False, "axes.spines.right": False})
    return plots
