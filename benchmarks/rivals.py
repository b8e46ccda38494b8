"""What the library is compared with, as somebody who needs a softmax over many rows would write it without it.

A rival holds unit rows and a temperature. `draw` gives an id for a theta, `draw_batch` one for each theta,
`log_partition` log Z; `distance` is the total variation distance of its draws from the softmax, exact, given the true
probabilities of all rows.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import faiss
import numpy as np
import torch

import common  # noqa: F401  # finds the evaluation
import lazygumbel as lg
from lazygumbel_evaluation.harness.baseline import build_index, root
from lazygumbel_evaluation.harness.brute_force import BruteForce
from lazygumbel_evaluation.harness.clock import Contender, Pace, take_turns

__all__ = ["Deann", "DenseNumpy", "DenseTorch", "Paper", "TopKSoftmax", "build_hnsw", "cutoff_law"]

_TRIED, _AT_ONCE = 5, 32


class DenseNumpy:
    """Matrix products in float32 and the quickest way to draw from them, found by trying."""

    name, build_seconds = "dense NumPy", 0.0

    def __init__(self, features: lg.Features, thetas: np.ndarray, temperature: float) -> None:
        self._brute = BruteForce(features, temperature)
        rng = np.random.default_rng(0)
        self._draw = _quickest(self._brute.samplers(), lambda draw: lambda theta: draw(theta, rng), thetas)
        sums = {str(way): partial(self._brute.log_partition, by_columns=way) for way in (False, True)}
        self._sum = _quickest(sums, lambda sum_up: sum_up, thetas)
        self.bytes = self._brute.rows.nbytes

    def draw(self, theta: np.ndarray, rng: np.random.Generator) -> int:
        return self._draw(theta, rng)

    def draw_batch(self, thetas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._brute.sample_batch(thetas, rng)

    def log_partition(self, theta: np.ndarray, _: np.random.Generator) -> float:
        return self._sum(theta)

    def distance(self, *_: np.ndarray) -> float:
        return 0.0


class DenseTorch:
    """`softmax(rows @ theta / temperature)`, and a draw by `multinomial` or by the inverse of its sums."""

    name, build_seconds = "dense torch", 0.0

    def __init__(self, rows: np.ndarray, thetas: np.ndarray, temperature: float) -> None:
        self._rows, self._temperature, self.bytes = torch.from_numpy(rows), temperature, rows.nbytes
        ways = {"multinomial": _by_multinomial, "inverse": _by_inverse}
        self._pick = _quickest(ways, lambda pick: lambda theta: pick(self._softmax(theta)), thetas)

    def draw(self, theta: np.ndarray, _: np.random.Generator) -> int:
        return int(self._pick(self._softmax(theta)))

    def draw_batch(self, thetas: np.ndarray, _: np.random.Generator) -> np.ndarray:
        some = [self._softmax(thetas[i : i + _AT_ONCE]) for i in range(0, len(thetas), _AT_ONCE)]
        return np.concatenate([self._pick(weights).numpy().reshape(-1) for weights in some])

    def log_partition(self, theta: np.ndarray, _: np.random.Generator) -> float:
        return float(torch.logsumexp(self._logits(theta), -1))

    def distance(self, *_: np.ndarray) -> float:
        return 0.0

    def _logits(self, thetas: np.ndarray) -> torch.Tensor:
        scaled = torch.from_numpy(thetas) / self._temperature
        return self._rows @ scaled if thetas.ndim == 1 else scaled @ self._rows.T

    def _softmax(self, thetas: np.ndarray) -> torch.Tensor:
        return torch.softmax(self._logits(thetas), -1)


class TopKSoftmax:
    """The k nearest rows of a FAISS index, and a softmax over these alone."""

    def __init__(self, name: str, index: Any, seconds: float, k: int, temperature: float) -> None:
        self.name, self.build_seconds, self.bytes = f"{name}, top {k:,}", seconds, _faiss_bytes(index)
        self._index, self._k, self._temperature = index, k, temperature

    def draw(self, theta: np.ndarray, rng: np.random.Generator) -> int:
        return int(self.draw_batch(theta[None], rng)[0])

    def draw_batch(self, thetas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        ids, logits = self._search(thetas)
        ends = np.cumsum(np.exp(logits - logits[:, :1]), axis=1)  # best first
        places = (ends < rng.random((len(ids), 1)) * ends[:, -1:]).sum(axis=1)
        return ids[np.arange(len(ids)), places]

    def log_partition(self, theta: np.ndarray, _: np.random.Generator) -> float:
        return float(np.logaddexp.reduce(self._search(theta[None])[1][0]))

    def distance(self, theta: np.ndarray, probabilities: np.ndarray) -> float:
        ids, logits = self._search(theta[None])
        return 1.0 - float(probabilities[ids[0][np.isfinite(logits[0])]].sum())

    def _search(self, thetas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, ids = self._index.search(thetas, self._k)
        return ids, np.where(ids >= 0, scores.astype(np.float64) / self._temperature, -np.inf)


class Deann:
    """Near rows exactly and a uniform sample of the rest, for log Z alone: the estimator of DEANN (AISTATS 2022).

    Rows are permuted once, so that a sample is a stretch of them, which reads memory in order.
    """

    def __init__(self, hnsw: Any, seconds: float, rows: np.ndarray, k: int, sample: int, temperature: float) -> None:
        self.name, self.build_seconds = f"DEANN-style, {k:,} near + {sample:,} others", seconds
        self._index, self._k, self._sample, self._temperature = hnsw, k, sample, temperature
        self._order = np.random.default_rng(0).permutation(len(rows))
        self._permuted = rows[self._order]
        self.bytes = _faiss_bytes(hnsw) + self._permuted.nbytes

    def log_partition(self, theta: np.ndarray, rng: np.random.Generator) -> float:
        scores, ids = self._index.search(theta[None], self._k)
        near = np.logaddexp.reduce(scores[0].astype(np.float64) / self._temperature)
        start = rng.integers(len(self._order) - self._sample)
        stretch = slice(start, start + self._sample)
        rest = (self._permuted[stretch] @ theta)[~np.isin(self._order[stretch], ids[0])] / self._temperature
        weight = np.log((len(self._order) - self._k) / len(rest))
        return float(np.logaddexp(near, weight + np.logaddexp.reduce(rest.astype(np.float64))))


class Paper:
    """Algorithm 2 for draws and Algorithm 3 for log Z, over a FAISS inverted file of 4 sqrt(n) lists."""

    name = "the paper's, over IVF"

    def __init__(self, features: lg.Features, temperature: float) -> None:
        index, self.build_seconds = build_index(features)
        self.index, self._method, self._temperature = index.index, root(features.n), temperature
        self._model = lg.LogLinear(index)
        self.bytes = features.stored.nbytes + _faiss_bytes(index.index)

    def draw(self, theta: np.ndarray, rng: np.random.Generator) -> int:
        return int(self.draw_batch(theta[None], rng)[0])

    def draw_batch(self, thetas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._model(thetas, temperature=self._temperature).sample(method=self._method, rng=rng).ids[0]

    def log_partition(self, theta: np.ndarray, rng: np.random.Generator) -> float:
        return float(self._model(theta, temperature=self._temperature).log_partition(rng=rng).value)

    def distance(self, theta: np.ndarray, probabilities: np.ndarray) -> float:
        n = len(probabilities)
        head = self._model.index.top_k(theta, self._method.budget(n)[0]).ids
        return float(np.maximum(probabilities - cutoff_law(probabilities, head, self._method.cutoff(n)), 0.0).sum())


def cutoff_law(probabilities: np.ndarray, head: np.ndarray, cutoff: float) -> np.ndarray:
    """What Algorithm 2 draws from: rows outside the head take part only if their Gumbel noise exceeds the cutoff.

    As a race: row i fires at the time E / p_i, E exponential, and outside the head only if E < e^-cutoff. So it runs
    until e^-cutoff / p_i at most, and wins with p_i times the expected time that both it and the race are running.
    """
    outside = np.ones(len(probabilities), dtype=bool)
    outside[head] = False
    with np.errstate(divide="ignore"):
        ends = np.exp(-cutoff) / probabilities
    leaving = np.flatnonzero(outside & (ends * probabilities[head].sum() < 50.0))  # the others outlast every race
    leaving = leaving[np.argsort(ends[leaving])]
    spans = np.diff(ends[leaving], prepend=0.0)
    rates = 1.0 - np.concatenate([[0.0], np.cumsum(probabilities[leaving])])
    alive = np.exp(-np.concatenate([[0.0], np.cumsum(rates[:-1] * spans)]))
    running = np.cumsum((alive - np.append(alive[1:], 0.0)) / rates)
    law = probabilities * running[-1]
    law[leaving] = probabilities[leaving] * running[:-1]
    return law


def build_hnsw(rows: np.ndarray, search: int, kept: Path | None = None) -> tuple[Any, float]:
    """FAISS's graph with 16 links a row, and the seconds it took; from the file `kept` if it was built before."""
    if kept is not None and kept.exists():
        index, seconds = faiss.read_index(str(kept)), float(kept.with_suffix(".seconds").read_text())
    else:
        start = perf_counter()
        index = faiss.IndexHNSWFlat(rows.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
        index.add(rows)
        seconds = perf_counter() - start
        if kept is not None:
            kept.with_suffix(".seconds").write_text(str(seconds))
            faiss.write_index(index, str(kept))
    index.hnsw.efSearch = search
    return index, seconds


def _faiss_bytes(index: Any) -> int:
    """What an index takes, as FAISS writes it: its rows included."""
    return int(faiss.serialize_index(index).nbytes)


def _by_multinomial(weights: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(weights, 1)


def _by_inverse(weights: torch.Tensor) -> torch.Tensor:
    ends = torch.cumsum(weights, -1, dtype=torch.float64)
    return torch.searchsorted(ends, torch.rand((*ends.shape[:-1], 1), dtype=torch.float64) * ends[..., -1:])


def _quickest(ways: dict[str, Any], call: Callable[[Any], Callable[[Any], Any]], thetas: np.ndarray) -> Any:
    timed = take_turns({name: Contender(call(way), thetas[:_TRIED]) for name, way in ways.items()}, Pace(passes=2))
    return ways[min(timed, key=lambda name: timed[name].median)]
