"""What `speed.py` measures with: brute force written for speed, contenders that take turns."""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numba import njit

import lazygumbel as lg
from lazygumbel.names import Names
from lazygumbel.threads import map_threads

__all__ = ["BruteForce", "clock_together", "held_bytes"]

_STRIPE = 512
"""Rows whose weights are summed together: a draw picks a stripe, then a row of it."""
_BLOCK = 4 * _STRIPE
"""Rows of one matrix product in a batch: for 1,024 thetas 8 MB of scores, which stay in the cache."""
_SCORES_AT_ONCE = 2**25
_LEAST_SECONDS, _TURN_SECONDS, _REST_SECONDS = 0.75, 0.25, 0.2
_FASTMATH = {"reassoc", "contract", "nsz"}
_LOG2_E = np.float32(1.4426950408889634)


def clock_together(
    contenders: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]],
) -> dict[str, tuple[float, list[Any]]]:
    """For several calls with one argument each, and arguments of their own: median seconds and all answers.

    They take turns, a quarter of a second each, so that what else the machine does meets them all alike. Between turns
    there is a rest: the threads of BLAS stay busy for a tenth of a second after a product.
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
            sleep(_REST_SECONDS)
            call(arguments[0])  # after the rest, not timed
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
