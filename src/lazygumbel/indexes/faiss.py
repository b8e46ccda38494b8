"""`FaissIndex`: any FAISS index, adopted or made from a factory string, rescored with the true rows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel._support.persist import Reader, Writer
from lazygumbel._support.threads import capped_faiss
from lazygumbel.datasets import rows_of
from lazygumbel.indexes.base import best, open_search, pack
from lazygumbel.indexes.exact import ExactIndex
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.results import TopK
from lazygumbel.rows.features import Features, Source

if TYPE_CHECKING:
    import faiss

__all__ = ["FaissIndex"]

_EXTRA = 1.25
"""Candidates fetched for each one returned: what compression or rounding misorders is put right by rescoring."""


class FaissIndex:
    """Approximate top k from FAISS. Scores are always the true inner products."""

    kind: ClassVar[str] = "faiss"

    def __init__(self, features: Features, index: "faiss.Index") -> None:
        self.features = features
        self.index = index
        """The FAISS object; its own knobs (nprobe, efSearch, ...) are set on it."""

    def __repr__(self) -> str:
        return f"FaissIndex(n={self.features.n:,}, d={self.features.d}, {type(self.index).__name__})"

    @classmethod
    def build(
        cls, features: Source | Features, factory: str, *, parameters: str | None = None, progress: ShowProgress = None
    ) -> Self:
        """Make an inner-product index from a FAISS factory string such as "HNSW32" or "IVF4096,Flat".

        `parameters` are FAISS search knobs, "nprobe=64" for instance. Without them an inverted file probes 1/32 of its
        lists: FAISS's own default of a single list is far too few for a softmax.
        """
        shown = choose(progress)
        held = rows_of(features, shown)
        held.check_finite(shown)
        with shown.task(f"building FAISS {factory}", held.n) as task, capped_faiss() as faiss:
            try:
                index: Any = faiss.index_factory(held.d, factory, faiss.METRIC_INNER_PRODUCT)
            except RuntimeError as error:
                raise ValueError(f"factory: FAISS cannot make {factory!r} for d = {held.d} ({error})") from None
            try:
                if not index.is_trained:
                    index.train(_training_rows(held))
                for _, rows in _in_id_order(held):
                    index.add(rows)
                    task.advance(len(rows))
            except RuntimeError as error:
                raise ValueError(f"factory: FAISS cannot build {factory!r} over {held.n} rows ({error})") from None
        _set_parameters(index, parameters)
        return cls(held, index)

    @classmethod
    def adopt(cls, features: Source | Features, index: "faiss.Index") -> Self:
        """Take a FAISS index that already holds these rows, added in the order of their ids."""
        held = rows_of(features)
        _check_adopted(held, index)
        adopted = cls(held, index)
        adopted._check_rows()
        return adopted

    def top_k(self, queries: npt.ArrayLike, k: int) -> TopK:
        """The k best of FAISS's candidates by true inner product; a query that FAISS starves is scanned exactly."""
        if self._is_flat():  # a full scan whose ties FAISS breaks as it likes: ours breaks them by id
            return ExactIndex(self.features).top_k(queries, k)
        search = open_search(queries, k, self.features)
        fetched = min(self.features.n, int(np.ceil(_EXTRA * search.k)))
        found, rows = self._search(search.vectors, fetched)
        hits: list[tuple[Ints, Vectors]] = []
        scanned = np.zeros(len(search.vectors), dtype=np.bool_)
        for b, query in enumerate(search.vectors):
            ids = np.unique(found[b][(found[b] >= 0) & (found[b] < self.features.n)])
            if len(ids) < search.k:
                scan = ExactIndex(self.features).top_k(query, search.k)
                hits.append((scan.ids, scan.scores))
                rows[b], scanned[b] = self.features.n, True
            else:
                hits.append(best(self.features, query, ids, self.features.score(ids, query), search.k))
        return pack(search, hits, np.maximum(rows, search.k), bound=np.where(scanned, 0.0, np.nan))

    def save(self, writer: Writer) -> None:
        """FAISS writes its own file."""
        import faiss

        writer.config["index"] = {"kind": self.kind, "faiss": type(self.index).__name__}
        faiss.write_index(self.index, str(writer.file("index.faiss")))

    @classmethod
    def load(cls, reader: Reader, features: Features) -> Self:
        """Read FAISS's file back; that it fits is checked, what is inside is between FAISS and the file."""
        import faiss

        try:
            index = faiss.read_index(str(reader.file("index.faiss")))
        except RuntimeError as error:
            raise ValueError(f"index.faiss cannot be read by FAISS ({error})") from None
        size = index.ntotal, index.d
        reader.demand(size == (features.n, features.d), f"index.faiss is over features of shape {size}, not over these")
        return cls(features, index)

    def _search(self, vectors: Vectors, k: int) -> tuple[Ints, Ints]:
        """Ids (B, k), -1 where FAISS found none, and the rows scored by each query.

        FAISS counts inner products over a whole call only, so each query of a batch reports the mean.
        """
        if not len(vectors):
            return np.empty((0, k), np.int64), np.empty(0, np.int64)
        with capped_faiss() as faiss:
            statistics: list[Any] = [faiss.cvar.indexIVF_stats, faiss.cvar.hnsw_stats]
            for statistic in statistics:
                statistic.reset()
            found: Ints = self.index.search(vectors, k)[1]
        counted = sum(int(statistic.ndis) for statistic in statistics) // len(vectors)
        scanned = min(counted, self.features.n) if counted else self.features.n
        return found, np.full(len(vectors), scanned, dtype=np.int64)

    def _is_flat(self) -> bool:
        return type(self.index).__name__ in ("IndexFlat", "IndexFlatIP", "IndexFlatL2")

    def _check_rows(self) -> None:
        """Refuse an index over other rows: hits for our own rows must score far better than rows at random."""
        rng = np.random.default_rng(0)
        ids = rng.integers(self.features.n, size=min(64, self.features.n))
        queries = self.features.gather(ids)
        found = self._search(queries, 1)[0][:, 0]
        if (found >= self.features.n).any():
            raise ValueError(
                f"index returns id {found.max()}, but features has {self.features.n} rows; ids must be 0 to n-1"
            )
        owner = np.arange(len(ids))
        hits = self.features.score(np.maximum(found, 0), queries, owner)
        random = self.features.score(rng.integers(self.features.n, size=len(ids)), queries, owner)
        if np.mean(hits >= random) < 0.7:
            raise ValueError("index does not hold these features: its hits score no better than rows at random")


def _check_adopted(features: Features, index: "faiss.Index") -> None:
    import faiss

    if not isinstance(index, faiss.Index):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise ValueError(f"index must be a FAISS index over float vectors, not {type(index).__name__}")
    if index.d != features.d:
        raise ValueError(f"index holds vectors of length {index.d}, but features has d = {features.d}")
    if index.ntotal != features.n:
        raise ValueError(f"index holds {index.ntotal} vectors, but features has {features.n} rows")
    if index.metric_type == faiss.METRIC_INNER_PRODUCT:
        return
    if index.metric_type != faiss.METRIC_L2:
        raise ValueError("index has a metric that cannot serve inner products; build it with METRIC_INNER_PRODUCT")
    low, high = np.inf, 0.0
    for _, rows in features.blocks():
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        low, high = min(low, float(norms.min())), max(high, float(norms.max()))
    # With rows of one norm, nearest in L2 is largest in inner product; otherwise the two orders differ.
    if high - low > 1e-3 * high:
        raise ValueError(
            f"index has the L2 metric, and the rows differ in norm ({low:.3g} to {high:.3g}): its nearest rows are not "
            "those of largest inner product; build it with METRIC_INNER_PRODUCT or scale the rows to unit norm"
        )


def _training_rows(features: Features) -> Vectors:
    """At most 2^19 rows at random: FAISS would subsample anyway, after copying all of them."""
    if features.n <= 2**19:
        return features.gather(np.arange(features.n))
    ids = np.random.default_rng(0).choice(features.n, 2**19, replace=False)
    return features.gather(np.sort(ids))


def _in_id_order(features: Features) -> Iterator[tuple[Ints, Vectors]]:
    if features.order is None:
        yield from features.blocks()
        return
    step = 2**16
    for start in range(0, features.n, step):
        ids = np.arange(start, min(start + step, features.n))
        yield ids, features.gather(ids)


def _set_parameters(index: "faiss.Index", parameters: str | None) -> None:
    import faiss

    space = faiss.ParameterSpace()
    if parameters is not None:
        try:
            space.set_index_parameters(index, parameters)
        except RuntimeError as error:
            raise ValueError(f"parameters: FAISS cannot set {parameters!r} ({error})") from None
        return
    inverted: Any = faiss.try_extract_index_ivf(index)
    if inverted is not None:
        inverted.nprobe = max(1, inverted.nlist // 32)
