"""Brute force in every way that may be quickest, so that what we are compared with is at its best."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from lazygumbel._support.arrays import Floats, Ints, Vectors
from lazygumbel._support.threads import map_threads
from lazygumbel.methods import Exhaustive
from lazygumbel.model import LogLinear
from lazygumbel.rows.features import Features
from lazygumbel_evaluation.harness.clock import Clocked, Contender, Pace, best_of, take_turns

__all__ = ["DENSE", "QUICKEST", "BruteForce", "Variants", "batch_samplers", "compare", "normalisers", "samplers"]

Variants = dict[str, Callable[[Vectors], Any]]
"""Calls with one theta, or one batch of them, that do the same."""

QUICKEST = "brute force"
"""What the quickest variant is called, whichever it is."""
DENSE = Exhaustive(by_bytes=False)
"""The library's own: a dense pass in float32 that owes nothing to our index."""

_STRIPE = 512
"""Rows whose weights are summed together: a draw picks a stripe, then a row of it."""
_BLOCK = 4 * _STRIPE
"""Rows of one matrix product in a batch: for 1,024 thetas 8 MB of scores, which stay in the cache."""
_SAFE = 40.0
"""Logits up to this size need no shift: `BruteForce` makes none."""
_CHOOSING, _TRIED = 2, 5
"""Passes, and thetas of each, by which the quickest variant is found."""
_FASTMATH = {"reassoc", "contract", "nsz"}
_LOG2_E = np.float32(1.4426950408889634)


def compare(
    variants: Variants, calls: Mapping[str, Callable[[Vectors], Any]], arguments: Vectors, pace: Pace
) -> dict[str, Clocked]:
    """Time calls in turns with brute force, which is called "exact", all at the same arguments.

    Brute force has two contenders, the quickest variants with all threads of BLAS and with one, and at every argument
    the quicker counts: where the machine is busy the threads of a product wait for each other, 8 ms for one of 0.1 ms,
    and what we are compared with must not be slowed by that.
    """
    chosen = {str(alone): _quickest(variants, arguments, pace, one_thread=alone) for alone in (False, True)}
    asked = {name: Contender(call, arguments) for name, call in calls.items()}
    found = take_turns(chosen | asked, pace)
    return {"exact": best_of([found.pop(name) for name in chosen])} | found


def _quickest(variants: Variants, arguments: Vectors, pace: Pace, *, one_thread: bool) -> Contender:
    """The variant that is quickest on a few of the arguments, to be timed on all."""
    tried = {name: Contender(call, arguments[:_TRIED], one_thread) for name, call in variants.items()}
    found = take_turns(tried, pace._replace(passes=_CHOOSING))
    return tried[min(found, key=lambda name: found[name].median)]._replace(arguments=arguments)


def samplers(model: LogLinear, thetas: Vectors, temperature: float, rng: np.random.Generator) -> Variants:
    """Ways to draw one row for one theta."""
    found: Variants = {"dense": lambda theta: model(theta, temperature=temperature).sample(method=DENSE, rng=rng)}
    if _is_safe(model, thetas, temperature):
        for name, draw in BruteForce(model.features, temperature).samplers().items():
            found[name] = partial(_draw, draw, rng)
    return found


def normalisers(model: LogLinear, thetas: Vectors, temperature: float) -> Variants:
    """Ways to sum over all rows for one theta."""
    found: Variants = {"dense": lambda theta: model(theta, temperature=temperature).log_partition(method=DENSE)}
    if _is_safe(model, thetas, temperature):
        brute = BruteForce(model.features, temperature)
        for layout in ("rows", "columns"):
            found[f"GEMV by {layout}"] = partial(brute.log_partition, by_columns=layout == "columns")
    return found


def batch_samplers(model: LogLinear, thetas: Vectors, temperature: float, rng: np.random.Generator) -> Variants:
    """Ways to draw one row for each theta of a batch."""
    found: Variants = {"dense": lambda batch: model(batch, temperature=temperature).sample(method=DENSE, rng=rng)}
    if _is_safe(model, thetas, temperature):
        found["products"] = partial(_draw, BruteForce(model.features, temperature).sample_batch, rng)
    return found


def _draw(draw: Callable[[Vectors, np.random.Generator], Any], rng: np.random.Generator, theta: Vectors) -> Any:
    return draw(theta, rng)


def _is_safe(model: LogLinear, thetas: Vectors, temperature: float) -> bool:
    return float(np.linalg.norm(thetas, axis=1).max()) * model.features.max_norm / temperature < _SAFE


class BruteForce:
    """Exact draws and log Z up to the rounding of float32; BLAS and the pool may use all cores.

    Weights are exp(logit - bound) with a Cauchy-Schwarz bound in place of the maximum, which would be another pass.
    They do not underflow while |theta| times the largest norm over the temperature is below 40.
    """

    def __init__(self, features: Features, temperature: float) -> None:
        self.rows = features.stored
        self.columns = np.ascontiguousarray(self.rows.T)
        """BLAS is quicker this way round when rows are short."""
        self.temperature, self.max_norm = np.float32(temperature), np.float32(features.max_norm)
        stripes = -(-features.n // _STRIPE)
        self._weights = np.empty(features.n, dtype=np.float32)
        middle = stripes // 2 * _STRIPE
        self._halves = [slice(0, middle), slice(middle, features.n)]
        self._starts = [np.arange(0, half.stop - half.start, _STRIPE) for half in self._halves]

    def samplers(self) -> dict[str, Callable[[Vectors, np.random.Generator], int]]:
        """Every way to draw one row for one theta."""
        return {
            f"GEMV by {layout}, {name}": partial(draw, by_columns=layout == "columns")
            for layout in ("rows", "columns")
            for name, draw in (("inverse CDF", self.inverse_cdf), ("Gumbel-max", self.gumbel_max))
        }

    def inverse_cdf(self, theta: Vectors, rng: np.random.Generator, *, by_columns: bool) -> int:
        """The id drawn."""
        stripe = _search(self._masses(theta, by_columns)[0], rng)
        start = stripe * _STRIPE
        return start + _search(self._weights[start : start + _STRIPE], rng)

    def gumbel_max(self, theta: Vectors, rng: np.random.Generator, *, by_columns: bool) -> int:
        """The id drawn: logit - log(exponential) is largest where exponential / weight is smallest.

        Noise is float64: in float32 the smallest of a million exponentials is coarse, and may be zero.
        """
        self._masses(theta, by_columns)

        def race(half: slice, noise: np.random.Generator) -> tuple[float, int]:
            weights = self._weights[half]
            times = noise.standard_exponential(len(weights))
            times /= weights
            first = int(times.argmin())
            return times[first], half.start + first

        return min(map_threads(race, self._halves, rng.spawn(2)))[1]

    def log_partition(self, theta: Vectors, *, by_columns: bool) -> float:
        """log Z."""
        masses, bound = self._masses(theta, by_columns)
        return float(bound + np.log(masses.sum(dtype=np.float64)))

    def sample_batch(self, thetas: Vectors, rng: np.random.Generator) -> Ints:
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

    def _masses(self, theta: Vectors, by_columns: bool) -> tuple[Vectors, np.float32]:
        """The mass of every stripe, in units of exp(bound), and the bound; the weights of all rows are kept."""
        scaled = theta / self.temperature
        bound = np.linalg.norm(scaled) * self.max_norm
        if by_columns:
            np.dot(scaled, self.columns, out=self._weights)
        else:
            np.dot(self.rows, scaled, out=self._weights)

        def weigh(half: slice, starts: Ints) -> Vectors:
            weights = self._weights[half]
            weights -= bound
            return np.add.reduceat(np.exp(weights, out=weights), starts)

        return np.concatenate(list(map_threads(weigh, self._halves, self._starts))), bound


def _search(weights: Vectors, rng: np.random.Generator) -> int:
    ends: Floats = np.cumsum(weights, dtype=np.float64)
    target = rng.random() * float(ends[-1])
    return int(np.searchsorted(ends, target, side="right"))


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _add_powers(scores: Vectors, bounds: Vectors, out: Vectors) -> None:
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
def _pick(rows: Vectors, thetas: Vectors, bounds: Vectors, masses: Vectors, uniforms: Floats) -> Ints:
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
