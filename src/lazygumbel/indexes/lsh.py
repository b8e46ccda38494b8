"""`LSHIndex`: the ladder of Theorem 3.6, signed random projections tuned to falling levels of similarity.

*Reduction* (Neyshabur and Srebro). Let M be the largest norm of a row. Each row gets one more entry, sqrt(M^2
- |phi|^2), so that all have norm M; the query theta gets a 0. Then cosine(theta, phi) = theta . phi /
(|theta| M), and the order by cosine is the order by score.

*Tables.* One bit is the sign of a random projection; row and query agree on it with probability p(s) = 1 -
arccos(s) / pi at cosine s (Charikar). Each of L tables holds all rows sorted by a code of 32 bits. Rows that
share the first K bits with the query are one range of a table, so the same tables serve every K.

*Rungs.* Rung i is tuned to a level s_i; levels fall in steps of gap / 2, or of one bit of K where that
is less. It lists the rows that share K_t bits with the query in some table t, the K_t being as long as they
may be if a row at cosine s_i is to be missed with probability prod_t (1 - p(s_i)^K_t) <= miss. At low levels
only K = 0 will do: that rung is a plain scan.

*Walk.* From the highest rung down, score the rows that are newly listed; stop at the first rung where the
k-th best so far is at least s_i - gap (as a cosine), and return the best k, called S.

*Guarantee.* Take miss = delta / k. For every query chosen without looking at the projections, with
probability at least 1 - delta over the projections, max outside S - min inside S <= gap |theta| M, up to
float32 rounding. Proof. Let x be the best row that was never listed. If k listed rows are at least as good as
x, S is a true top k. If not, x is one of the true top k. Were the gap too large, cosine(x) > min S + gap >=
s_i at the rung i of the stop. Ranges only grow from rung to rung, so x was missed at the first rung whose
level is at most cosine(x). For each of the true top k this one event has probability at most miss; the union
bound over k events gives delta.

The paper asks for miss = "delta k n_LSH", a slip for delta / (k n_LSH); nested ranges make n_LSH unnecessary.
Queries share the tables, so their failures are not independent: the expected share that fails is at most
delta. The theorem is sublinear because L grows as a power of n (`LSHIndex.tables_for`); with L fixed, the
rows that a level lists are a small but fixed share of n.
"""

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints, Mask, Vectors
from lazygumbel._support.checks import check_count
from lazygumbel._support.persist import Reader, Writer
from lazygumbel.datasets import rows_of
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.results import TopK
from lazygumbel.rows.features import Features, Source

__all__ = ["LSHIndex", "Rung", "collision_probability", "ladder", "signatures"]

Codes = npt.NDArray[np.uint32]

_BITS = 32
_FINEST = 0.01
"""Steps of less than this, where no bit is gained, are not worth their time; the guarantee needs none."""
_SCAN_SHARE = 0.25
"""When tables list this share of n, repeats counted, reading all rows in order is as quick: for one query it is
at about 0.5, for a batch, which shares the reading, at about 0.1."""
_PRODUCTS_AT_ONCE = 2**23
_QUERIES_AT_ONCE = 128


def collision_probability(cosine: float) -> float:
    """Probability that one random projection gives two vectors at this cosine the same sign."""
    return 1 - math.acos(min(max(cosine, -1.0), 1.0)) / math.pi


def signatures(vectors: Vectors, projections: Vectors) -> Codes:
    """Codes (m, L) of vectors (m, e) under projections (e, 32 L); the first bit is the most significant."""
    packed = np.packbits(vectors @ projections > 0, axis=1)
    return packed.view(">u4").astype(np.uint32)


class Rung(NamedTuple):
    """One LSH instance: it lists the rows that share `prefix[t]` bits with the query in some table t."""

    level: float
    prefix: Ints
    """How many bits to share in each table, (L,). Zero lists every row."""


def ladder(tables: int, gap: float, miss: float) -> list[Rung]:
    """Rungs from the highest level these tables can promise down to one that lists every row.

    A row at or above a rung's level is listed by it with probability at least 1 - `miss`. What one rung
    lists, all later ones list too: prefixes only get shorter. At most 33 + 4 / gap rungs.
    """
    one_table = -math.expm1(math.log(miss) / tables)
    whole = [math.cos(math.pi * (1 - one_table ** (1 / length))) for length in range(_BITS, 0, -1)]
    rungs = [Rung(whole[0], _prefixes(whole[0], tables, miss))]
    while rungs[-1].prefix.all():
        above = rungs[-1].level
        # One bit less lists twice as many rows: at high levels that is the smaller step.
        level = max([above - max(gap / 2, _FINEST), *(level for level in whole if level < above)])
        rungs.append(Rung(level, _prefixes(level, tables, miss)))
    return rungs


def _prefixes(level: float, tables: int, miss: float) -> Ints:
    """The longest prefixes, (L,), even up to one bit, with chance `miss` at most to miss a row at `level`."""
    agree = min(collision_probability(level), 1 - 1e-9)
    unlisted = np.log1p(-(agree ** np.arange(1, _BITS + 1)))  # log of the chance to miss in one table
    safe = np.flatnonzero(tables * unlisted <= math.log(miss))
    if not len(safe):
        return np.zeros(tables, dtype=np.int64)
    at = int(safe[-1])
    prefix = np.full(tables, at + 1, dtype=np.int64)
    if at + 1 < _BITS:
        spare = (math.log(miss) - tables * unlisted[at]) / (unlisted[at + 1] - unlisted[at])
        prefix[: int(spare)] += 1
    return prefix


class LSHIndex:
    """Approximate top k with a bounded gap; method, guarantee and proof are at the head of this file.

    `gap` is relative. For a query theta the bound is gap * |theta| * max_norm in units of theta . phi, so the
    constant c of the paper is gap * |theta| * max_norm / temperature. It holds with probability 1 - `delta`.
    """

    kind: ClassVar[str] = "lsh"

    def __init__(
        self,
        features: Features,
        *,
        gap: float,
        delta: float,
        max_norm: float,
        projections: Vectors,
        codes: Codes,
        order: npt.NDArray[np.uint32],
    ) -> None:
        self.features = features
        self.gap = gap
        self.delta = delta
        self.max_norm = max_norm
        """The largest norm of a row, M."""
        self.projections = projections
        """Random directions, (d + 1, 32 L)."""
        self.codes = codes
        """Codes in increasing order, (L, n)."""
        self.order = order
        """The row ids that carry them, (L, n)."""

    def __repr__(self) -> str:
        knobs = f"gap={self.gap:g}, delta={self.delta:g}, tables={self.tables}"
        return f"LSHIndex(n={self.features.n:,}, d={self.features.d}, {knobs})"

    @property
    def tables(self) -> int:
        """The number of tables, L."""
        return self.codes.shape[0]

    @classmethod
    def build(
        cls,
        features: Source | Features,
        *,
        gap: float = 0.1,
        delta: float = 0.05,
        tables: int = 64,
        rng: np.random.Generator | int | None = None,
        progress: ShowProgress = None,
    ) -> Self:
        """Hash all rows into `tables` tables, which take 8 bytes a row each.

        `gap` and `delta` hold with any number of tables; with more of them fewer rows are scored.
        """
        for name, value in (("gap", gap), ("delta", delta)):
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie strictly between 0 and 1, not {value}")
        tables, features = check_count(tables, "tables"), rows_of(features, progress := choose(progress))
        n = features.n
        if n > 2**32:
            raise ValueError(f"features has {n:,} rows; this index holds at most {2**32:,}")
        features.check_finite(progress)
        max_norm = max(float(_norms(rows).max()) for _, rows in features.blocks())
        normal = np.random.default_rng(rng).standard_normal
        projections = normal((features.d + 1, _BITS * tables), dtype=np.float32)
        codes = np.empty((tables, n), dtype=np.uint32)
        with progress.task("hashing rows", n) as task:
            for ids, rows in features.blocks(max(1, _PRODUCTS_AT_ONCE // projections.shape[1])):
                codes[:, ids] = signatures(_augmented(rows, max_norm), projections).T
                task.advance(len(ids))
        order = np.empty_like(codes)
        with progress.task("sorting tables", tables) as task:
            for t in range(tables):
                # Code and id side by side in one integer: sorting those is several times faster than argsort.
                keys = codes[t].astype(np.uint64) << np.uint64(32) | np.arange(n, dtype=np.uint64)
                keys.sort()
                codes[t], order[t] = keys >> np.uint64(32), keys & np.uint64(2**32 - 1)
                task.advance(1)
        knobs = {"gap": float(gap), "delta": float(delta), "max_norm": max_norm}
        return cls(features, **knobs, projections=projections, codes=codes, order=order)

    @staticmethod
    def tables_for(n: int, cosine: float, *, k: int = 1, delta: float = 0.05) -> int:
        """The number of tables of the theorem, about n^rho log(k / delta) with rho = log2(1 / p(cosine)).

        With so many, the rung at level `cosine` lists about one row a table of those at cosine 0.
        """
        hit = collision_probability(cosine) ** math.ceil(math.log2(max(n, 2)))
        return math.ceil(math.log(k / delta) / -math.log1p(-min(hit, 1 - 1e-9)))

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """Approximate top k with a bounded gap; `exact` when every row was scored for every query."""
        search = open_search(queries, k, self.features)
        size, n = len(search.vectors), self.features.n
        scales = _norms(search.vectors) * self.max_norm
        rungs = ladder(self.tables, self.gap, self.delta / search.k)
        seen = np.zeros(n, dtype=np.bool_)
        hits = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))] * size
        rows = np.full(size, n, dtype=np.int64)
        to_scan: list[int] = []
        for b, (query, ranges) in enumerate(zip(search.vectors, self._ranges(search.vectors), strict=True)):
            if scales[b] == 0:  # all scores are 0: the ties go to the smallest ids
                ids = np.arange(search.k)
                found = ids, self.features.score(ids, query)
            else:
                found = self._walk(query, scales[b], ranges, rungs, search.k, seen)
            if found is None:
                to_scan.append(b)
            else:
                hits[b] = best(self.features, query, *found, search.k)
                rows[b] = len(found[0])
        if to_scan:  # together, so that all of them share one pass over the rows
            scanned = ExactIndex(self.features).top_k(search.vectors[to_scan], search.k)
            for b, ids, scores in zip(to_scan, scanned.ids, scanned.scores, strict=True):
                hits[b] = ids, scores
        return pack(search, hits, rows, bound=np.where(rows == n, 0.0, np.nan))

    def _ranges(self, queries: Vectors) -> Iterator[Ints]:
        """Query by query, where the rows that share K = 0 to 32 bits with it start and stop, (2, 33, L)."""
        free = np.array([2 ** (_BITS - length) - 1 for length in range(_BITS + 1)], dtype=np.uint32)[:, None]
        for begin in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[begin : begin + _QUERIES_AT_ONCE]
            unit = np.zeros((len(some), self.features.d + 1), dtype=np.float32)
            unit[:, :-1] = some / np.maximum(_norms(some), np.finfo(np.float64).tiny)[:, None]
            # One by one: BLAS rounds a batch differently, and a query must get the same code in any company.
            codes = np.stack([signatures(one[None], self.projections) for one in unit])
            first, last = codes & ~free, codes | free
            ranges = np.empty((len(some), 2, _BITS + 1, self.tables), dtype=np.int64)
            for t, table in enumerate(self.codes):
                ranges[:, 0, :, t] = np.searchsorted(table, first[:, :, t], side="left")
                ranges[:, 1, :, t] = np.searchsorted(table, last[:, :, t], side="right")
            yield from ranges

    def _walk(
        self,
        query: Vectors,
        scale: float,
        ranges: Ints,
        rungs: list[Rung],
        k: int,
        seen: Mask,
    ) -> tuple[Ints, Vectors] | None:
        """All rows listed down to the rung that settles the query, and their scores; None if it takes a scan.

        `seen` (n,) is scratch, all False before and after, so that a query does no work proportional to n.
        """
        each = np.arange(self.tables)
        ids, scores = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        inner: Ints | None = None
        settled = False
        for level, prefix in rungs:
            outer = ranges[:, prefix, each]
            listed = int((outer[1] - outer[0]).sum())
            if listed > _SCAN_SHARE * self.features.n:
                break
            if listed < k:
                continue
            new = self._between(outer, inner)
            new = _distinct(new[~seen[new]])
            seen[new] = True
            inner, ids = outer, np.concatenate([ids, new])
            scores = np.concatenate([scores, self.features.score(new, query)])
            settled = len(ids) >= k and np.partition(scores, -k)[-k] >= (level - self.gap) * scale
            if settled:
                break
        seen[ids] = False
        return (ids, scores) if settled else None

    def _between(self, outer: Ints, inner: Ints | None) -> npt.NDArray[np.uint32]:
        """Ids, repeats included, in the ranges `outer` but not in `inner`; both (2, L): starts and stops."""
        left, right = outer[[1, 1]] if inner is None else inner
        starts = np.concatenate([outer[0], right])
        lengths = np.concatenate([left, outer[1]]) - starts
        flat = starts + np.tile(np.arange(self.tables) * self.features.n, 2)  # in all tables, end to end
        places = np.arange(int(lengths.sum())) + np.repeat(flat - np.cumsum(lengths) + lengths, lengths)
        return self.order.reshape(-1)[places]

    def save(self, writer: Writer) -> None:
        """Write the tables, the projections and the knobs."""
        knobs = {"gap": self.gap, "delta": self.delta, "max_norm": self.max_norm}
        writer.config["index"] = {"kind": self.kind, **knobs}
        for name in ("projections", "codes", "order"):
            writer.array(f"lsh_{name}", getattr(self, name))

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read back what `save` wrote; the tables stay on disk, memory-mapped."""
        n, settings = features.n, reader.config["index"]
        width = reader.array("lsh_projections").shape[-1:]
        tables = width[0] // _BITS if width else 0
        projections = reader.array("lsh_projections", np.float32, (features.d + 1, _BITS * max(tables, 1)))
        codes, order = (reader.array(f"lsh_{name}", np.uint32, (tables, n)) for name in ("codes", "order"))
        reader.demand(np.isfinite(projections).all(), "lsh_projections.npy is not finite")
        for ids, table in zip(order, codes, strict=True):
            held = np.zeros(n, dtype=np.bool_)
            if ids.max() < n:
                held[ids] = True
            reader.demand(held.all() and (table[1:] >= table[:-1]).all(), "lsh_codes.npy and lsh_order.npy do not fit")
        knobs = {name: settings.get(name) for name in ("gap", "delta", "max_norm")}
        sane = all(isinstance(knob, float) for knob in knobs.values())
        sane = sane and 0 < knobs["gap"] < 1 and 0 < knobs["delta"] < 1
        sane = sane and abs(knobs["max_norm"] - features.max_norm) <= 1e-5 * features.max_norm
        reader.demand(sane, "gap, delta or max_norm of its LSH index are not what they may be")
        return cls(features, **knobs, projections=projections, codes=codes, order=order)


def _distinct(ids: npt.NDArray[np.uint32]) -> Ints:
    """Each id once. (`np.unique` builds a hash table, which is ten times slower here.)"""
    ids = np.sort(ids)
    first = np.ones(len(ids), dtype=np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    return ids[first].astype(np.int64)


def _norms(vectors: Vectors) -> Floats:
    return np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))


def _augmented(rows: Vectors, max_norm: float) -> Vectors:
    """Rows (m, d) divided by `max_norm`, with the entry that gives them norm one, (m, d + 1)."""
    unit = np.empty((len(rows), rows.shape[1] + 1), dtype=np.float32)
    unit[:, :-1] = rows / np.float64(max_norm or 1.0)  # float64: the norm of large rows may exceed float32
    unit[:, -1] = np.sqrt(np.maximum(1 - np.square(_norms(unit[:, :-1])), 0.0))
    return unit
