"""Ways to draw a token from the head of a language model, and the law that each of them draws from.

Each has `draw(theta)`, a token id, which is timed, and `law(theta, exact)`, which says what it draws: probabilities of
tokens, from logits in float64. Temperature one; rows are those of the head, theta is a hidden state.
"""

import warnings
from pathlib import Path
from typing import NamedTuple, Protocol

import faiss
import numba
import numpy as np
import torch

import lazygumbel as lg

__all__ = ["Clusters", "Dense", "Graph", "Head", "Int8", "Ours", "Partition", "logits_of", "softmax"]

PROBE_SETS = 200
"""Of which the law of drawn probes is averaged."""
CLUSTERED, ITERATIONS = 65_536, 5
"""Rows and iterations of k-means for the clusters."""
BLOCK = 512
"""Logits that are summed together before one is picked."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """In float64."""
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return weights / weights.sum()


def pick(logits: np.ndarray, rng: np.random.Generator) -> int:
    """A draw of the softmax by the inverse CDF, of blocks and then within one: a running sum of all is slow."""
    weights = np.exp(logits - logits.max())
    starts = np.arange(0, len(weights), BLOCK)
    ends = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
    at = rng.random() * ends[-1]
    block = int(np.searchsorted(ends, at, side="right"))
    within = np.cumsum(weights[starts[block] :][:BLOCK], dtype=np.float64)
    place = np.searchsorted(within, at - (ends[block - 1] if block else 0.0), side="right")
    return int(starts[block] + min(place, len(within) - 1))  # the block was summed in float32


class Head(Protocol):
    """One contender."""

    def draw(self, theta: np.ndarray) -> int:
        """A token."""
        ...

    def law(self, theta: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """Probability of every token, (n,), where the exact one is `exact`."""
        ...


class Dense:
    """All logits in float32, by NumPy or by torch: the quickest of some variants."""

    def __init__(self, rows: np.ndarray, variant: str) -> None:
        self.rows, self.weights, self.variant = rows, torch.from_numpy(rows), variant
        self.rng = np.random.default_rng(0)

    def draw(self, theta: np.ndarray) -> int:
        if self.variant == "numpy":
            return pick(self.rows @ theta, self.rng)
        logits = torch.mv(self.weights, torch.from_numpy(theta))
        if self.variant == "torch, race":
            return int(torch.argmax(logits - torch.empty_like(logits).exponential_().log_()))
        return int(torch.multinomial(torch.softmax(logits, 0), 1))

    def law(self, theta: np.ndarray, exact: np.ndarray) -> np.ndarray:  # noqa: ARG002
        return exact


@numba.njit(parallel=True, fastmath=True)
def _multiply(rows: np.ndarray, scales: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    n, d = rows.shape
    for i in numba.prange(n):
        total = np.float32(0)
        for j in range(d):
            total += np.float32(rows[i, j]) * theta[j]
        out[i] = total * scales[i]


class Int8:
    """Weights in int8, a scale for each row: compiled by Numba for all cores, or the quantised linear layer of torch.

    For torch the hidden state is in int8 too, with a scale of its own; for Numba it stays in float32: as quick, since
    memory is what takes the time, and more accurate.
    """

    def __init__(self, rows: np.ndarray, variant: str) -> None:
        self.scales = (np.abs(rows).max(axis=1) / 127).astype(np.float32)
        self.variant, self.rng = variant, np.random.default_rng(0)
        if variant == "torch":
            zeros = torch.zeros(len(rows), dtype=torch.long)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it will be gone in a later version of torch
                packed = torch.quantize_per_channel(
                    torch.from_numpy(rows), torch.from_numpy(self.scales), zeros, 0, torch.qint8
                )
            self.packed = torch.ops.quantized.linear_prepack(packed, None)
        else:
            self.rows = np.round(rows / self.scales[:, None]).astype(np.int8)
            self.room = np.empty(len(rows), dtype=np.float32)

    def logits(self, theta: np.ndarray) -> np.ndarray:
        if self.variant == "torch":
            return torch.ops.quantized.linear_dynamic(torch.from_numpy(theta)[None], self.packed)[0].numpy()
        _multiply(self.rows, self.scales, theta, self.room)
        return self.room

    def draw(self, theta: np.ndarray) -> int:
        return pick(self.logits(theta), self.rng)

    def law(self, theta: np.ndarray, exact: np.ndarray) -> np.ndarray:  # noqa: ARG002
        return softmax(self.logits(theta))


class Graph:
    """The softmax over the best `k` tokens that an HNSW graph finds with efSearch = k."""

    def __init__(self, index: faiss.IndexHNSWFlat, k: int) -> None:
        self.index, self.k, self.rng = index, k, np.random.default_rng(0)

    @staticmethod
    def build(rows: np.ndarray, path: Path | None) -> faiss.IndexHNSWFlat:
        if path is not None and path.exists():
            return faiss.read_index(str(path))
        index = faiss.IndexHNSWFlat(rows.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
        index.add(rows)
        if path is not None:
            faiss.write_index(index, str(path))
        return index

    def _search(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parameters = faiss.SearchParametersHNSW(efSearch=self.k)
        scores, ids = self.index.search(theta[None], self.k, params=parameters)
        found = ids[0] >= 0
        return ids[0][found], scores[0][found]

    def draw(self, theta: np.ndarray) -> int:
        ids, scores = self._search(theta)
        return int(ids[pick(scores, self.rng)])

    def law(self, theta: np.ndarray, exact: np.ndarray) -> np.ndarray:
        return _restricted(exact, self._search(theta)[0])


class Partition(NamedTuple):
    """Clusters of tokens: their centroids, and the rows stored cluster by cluster."""

    centroids: np.ndarray
    features: lg.Features
    """Positions are those in the order of clusters; ids are tokens."""
    offsets: np.ndarray

    @classmethod
    def build(cls, rows: np.ndarray, count: int, path: Path | None) -> "Partition":
        """Spherical k-means on some rows; every row goes to the centroid of largest inner product."""
        if path is not None and path.exists():
            stored = np.load(path)
            centroids, cluster = stored["centroids"], stored["cluster"]
        else:
            some = np.random.default_rng(0).permutation(len(rows))[: max(CLUSTERED, count)]
            means = faiss.Kmeans(
                rows.shape[1], count, niter=ITERATIONS, spherical=True, seed=1, min_points_per_centroid=1
            )
            means.train(np.ascontiguousarray(rows[some]))
            centroids = means.centroids
            cluster = np.concatenate([(block @ centroids.T).argmax(axis=1) for block in np.array_split(rows, 64)])
            if path is not None:
                np.savez(path, centroids=centroids, cluster=cluster)
        order = np.argsort(cluster, kind="stable")
        counts = np.bincount(cluster, minlength=len(centroids))
        # The mean of the rows, not of length one: what theta . row is on average.
        sums = np.add.reduceat(rows[order], np.minimum(np.cumsum(counts) - counts, len(rows) - 1))
        centroids = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        full = counts > 0
        offsets = np.concatenate([[0], np.cumsum(counts[full])])
        return cls(np.ascontiguousarray(centroids[full]), lg.Features.of(rows).reordered(order), offsets)


class Clusters:
    """Clusters drawn by the softmax of their centroids, and a token by the softmax over all that are in these.

    The rule of FlashHead as far as its text tells: so many distinct clusters (by Gumbel top-k over the scores of the
    centroids), renormalised over what they hold, without a correction. Its clusters are of equal size and quantised for
    a GPU; these are by spherical k-means, in float32.
    """

    def __init__(self, partition: Partition, probes: int) -> None:
        self.partition, self.probes, self.rng = partition, probes, np.random.default_rng(0)

    def _drawn(self, scores: np.ndarray) -> np.ndarray:
        values = scores + self.rng.gumbel(size=scores.shape)
        return np.argpartition(-values, self.probes)[: self.probes]

    def draw(self, theta: np.ndarray) -> int:
        probes = self._drawn(self.partition.centroids @ theta)
        starts, ends = self.partition.offsets[probes], self.partition.offsets[probes + 1]
        counts = ends - starts
        positions = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        scores = self.partition.features.score_at(positions, theta)
        return int(self.partition.features.order[positions[pick(scores, self.rng)]])

    def law(self, theta: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """Averaged over sets of probes: what noise that leaves adds to the distance, and little."""
        order, offsets = self.partition.features.order, self.partition.offsets
        masses = np.add.reduceat(exact[order], offsets[:-1])
        share = np.zeros(len(masses))
        scores = self.partition.centroids @ theta
        for _ in range(PROBE_SETS):
            probes = self._drawn(scores)
            share[probes] += 1 / masses[probes].sum()
        found = np.empty_like(exact)
        found[order] = exact[order] * np.repeat(share / PROBE_SETS, np.diff(offsets))
        return found


class Ours:
    """A sampler of the library."""

    def __init__(self, model: lg.LogLinear, method: lg.Bounded | lg.Exhaustive) -> None:
        self.model, self.method, self.rng = model, method, np.random.default_rng(0)

    def draw(self, theta: np.ndarray) -> int:
        return int(self.model(theta).sample(1, method=self.method, rng=self.rng).ids[0])

    def distances(self, thetas: np.ndarray) -> np.ndarray:
        """Of its draws from the softmax, which is known in closed form (`audit`)."""
        return self.model.audit(thetas, method=self.method).miss


def logits_of(rows: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """In float64, (B, n)."""
    blocks = np.array_split(rows, max(1, len(rows) // 8192))
    return np.concatenate([thetas.astype(np.float64) @ block.T.astype(np.float64) for block in blocks], axis=1)


def _restricted(exact: np.ndarray, ids: np.ndarray) -> np.ndarray:
    found = np.zeros_like(exact)
    found[ids] = exact[ids] / exact[ids].sum()
    return found
