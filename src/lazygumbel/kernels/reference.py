"""The kernels in NumPy: slow, obvious, and the specification of `compiled`."""

import numpy as np
import numpy.typing as npt

__all__ = [
    "bin_scores",
    "gather_dot",
    "look",
    "pick",
    "rank_cells",
    "score_at",
    "score_ranges",
    "sum_rows",
    "survey",
    "weigh",
    "winners",
]

_RANK_BINS = 2048
_ROUTE_STEP = np.float32(1 / 32767)
_CHECKED = 32
_GOLDEN = 0.6180339887498949


def gather_dot(
    rows: npt.NDArray[np.float32],
    positions: npt.NDArray[np.int64],
    queries: npt.NDArray[np.float32],
    owner: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    """`rows[positions[j]] . queries[owner[j]]` for every j, shape (m,)."""
    return np.einsum("md,md->m", rows[positions], queries[owner])


def score_ranges(
    rows: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    query: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Positions and scores of all rows in the half-open ranges (start <= stop), range after range."""
    ranges: list[npt.NDArray[np.int64]] = [np.arange(a, b) for a, b in zip(starts, stops, strict=True)]
    positions = np.concatenate([np.arange(0), *ranges], dtype=np.int64)
    return positions, rows[positions] @ query


def rank_cells(scores: npt.NDArray[np.float32], first: int) -> npt.NDArray[np.int32]:
    """Cells by decreasing score, cell `first` before all: scores are told apart to 1/2046 of their range, then by cell.

    That is a counting sort: many times quicker than a full one, and as good to rank by.
    """
    top, low = scores.max(), scores.min()
    step = np.float32(_RANK_BINS - 2) / (top - low) if top > low else np.float32(0.0)
    bins = 1 + ((top - scores) * step).astype(np.int64)
    bins[first] = 0
    return np.argsort(bins, kind="stable").astype(np.int32)


def survey(
    rows: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    groups: npt.NDArray[np.int16],
    cells: npt.NDArray[np.int16],
    scales: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    group_ends: npt.NDArray[np.int64],
    opened: int,
    gap: float,
    cell_edges: npt.NDArray[np.int64],
    group_edges: npt.NDArray[np.int64],
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
]:
    """Segments of storage in order of rank for each query: cells of opened groups, then the other groups.

    Groups are ranked by their inner product with the query and opened in this order: at least `opened` of them, and on
    as long as a group comes within `gap`, times the norm of the query, of the best cell so far. Cells of opened groups
    are ranked by their inner product times their scale, with the nearest in direction first. Directions are in units of
    1/32767, with zeros after the length of a query. Returns for each query where segments begin, how many rows come
    before each, the first segment of each bucket, the inner product with the nearest cell, and the largest with a row
    of the first segment. Buckets take ranks of cells by `cell_edges` (the last takes all that are left) and ranks of
    groups by `group_edges`, of those that stay closed.
    """
    size, d = queries.shape
    starts: list[npt.NDArray[np.int64]] = []
    stops: list[npt.NDArray[np.int64]] = []
    edges = np.zeros((size, len(cell_edges) + len(group_edges) - 1), dtype=np.int64)
    alignment, reach = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    for b, query in enumerate(queries):
        near = (groups[:, :d] @ query) * _ROUTE_STEP
        ranked = rank_cells(near, int(near.argmax()))
        cosines = (cells[:, :d] @ query) * _ROUTE_STEP
        margin = np.float32(gap) * np.sqrt(query @ query)
        chosen, k = np.arange(0), 0
        while k < len(groups) and (k < opened or near[ranked[k]] >= cosines[chosen].max(initial=-np.inf) - margin):
            chosen = np.append(chosen, np.arange(int(group_ends[ranked[k]]), int(group_ends[ranked[k] + 1])))
            k += 1
        alignment[b] = cosines[chosen].max()
        chosen = chosen[rank_cells(cosines[chosen] * scales[chosen], int(cosines[chosen].argmax()))]
        starts.append(np.append(offsets[chosen], offsets[group_ends[ranked[k:]]]))
        stops.append(np.append(offsets[chosen + 1], offsets[group_ends[ranked[k:] + 1]]))
        edges[b, : len(cell_edges) - 1] = np.minimum(cell_edges[:-1], len(chosen))
        edges[b, len(cell_edges) - 1 :] = len(chosen) + np.maximum(group_edges - k, 0)
        reach[b] = (rows[starts[b][0] : stops[b][0]] @ query).max(initial=-np.inf)
    most = max(map(len, starts), default=0)
    begins, before = np.zeros((size, most), dtype=np.int64), np.zeros((size, most + 1), dtype=np.int64)
    for b in range(size):
        begins[b, : len(starts[b])] = starts[b]
        before[b, 1 : len(starts[b]) + 1] = np.cumsum(stops[b] - starts[b])
    return begins, before, edges, alignment, reach


def _inside(
    begins: npt.NDArray[np.int64], before: npt.NDArray[np.int64], edges: npt.NDArray[np.int64], bucket: int
) -> npt.NDArray[np.int64]:
    """Positions of the rows in a bucket: the segments edges[bucket] up to edges[bucket + 1]."""
    segments = range(int(edges[bucket]), int(edges[bucket + 1]))
    ranges = [np.arange(int(before[s + 1] - before[s]), dtype=np.int64) + begins[s] for s in segments]
    return np.concatenate([np.empty(0, dtype=np.int64), *ranges])


def look(
    rows: npt.NDArray[np.float32],
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    hazards: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    exponentials: npt.NDArray[np.float64],
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Look at each row independently with the rate of its bucket, 1 - exp(-hazard), and perturb it.

    A row whose Gumbel is minus the log of E is looked at when E is below the hazard. Where that is infinite, every row
    is, and takes one exponential E. Elsewhere lay the rows of a bucket end to end, each as long as the hazard: the
    hits of a Poisson process of rate one pick the rows, and the place of the first hit in a row is its E. After a hit
    the process starts anew at the next row, so that one exponential a row does for both; one more leaves the bucket.

    Returns the number of rows m (-1 when the exponentials ran out), and for each its position, logit and perturbed
    logit, those of infinite hazard first. With longer arrays that begin alike, a look that ran out goes on as it began.
    """
    positions: list[int] = []
    noise: list[float] = []
    nothing = (np.empty(0, np.int64), np.empty(0), np.empty(0))
    for bucket in np.flatnonzero(np.isinf(hazards)):
        positions += _inside(begins, before, edges, int(bucket)).tolist()
    if len(positions) > len(exponentials):
        return -1, *nothing
    noise += exponentials[: len(positions)].tolist()
    used = len(positions)
    for bucket in np.flatnonzero((hazards > 0) & np.isfinite(hazards)):
        inside, at, hazard = _inside(begins, before, edges, int(bucket)), 0, hazards[bucket]
        while True:
            if used >= len(exponentials):
                return -1, *nothing
            skip = np.floor(exponentials[used] / hazard)
            if skip >= len(inside) - at:
                used += 1
                break
            positions.append(int(inside[at + int(skip)]))
            noise.append(max(float(exponentials[used] - skip * hazard), 1e-300))
            at += int(skip) + 1
            used += 1
    seen = np.array(positions, dtype=np.int64)
    logits = (rows[seen] @ query).astype(np.float64) * inverse_temperature
    return len(seen), seen, logits, logits - np.log(np.array(noise))


def winners(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    code_error: float,
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each query and draw the row with the largest perturbed logit of a `look`, and its value, (queries, draws).

    Then the rows of infinite hazard, (queries,), and the other rows looked at, (queries, draws). Of the rows of
    infinite hazard one is drawn by its probability among them, with the uniform; its value is their log-sum-exp minus
    the log of the first exponential, as if each had been perturbed. Positions in banned[banned_ends[b]:banned_ends[b +
    1]], sorted, cannot win query b. Where the exponentials ran out the count is -1; where nothing could win the
    position is -1 and the value minus infinity.
    """
    del codes, code_low, code_step, code_error  # they tell the twin which rows need not be read
    size, draws, _ = exponentials.shape
    winning, values = np.full((size, draws), -1, dtype=np.int64), np.full((size, draws), -np.inf)
    heads, counts = np.zeros(size, dtype=np.int64), np.zeros((size, draws), dtype=np.int64)
    for b, query in enumerate(queries):
        out = banned[banned_ends[b] : banned_ends[b + 1]]
        sure = np.where(np.isinf(hazards[b]), np.inf, 0.0)
        enough = np.ones(len(rows))
        _, head, logits, _ = look(rows, begins[b], before[b], edges[b], sure, query, inverse_temperature, enough)
        allowed = ~np.isin(head, out)
        head, logits = head[allowed], logits[allowed]
        heads[b] = len(head)
        for s in range(draws):
            rest = np.where(np.isinf(hazards[b]), 0.0, hazards[b])
            m, seen, _, perturbed = look(
                rows, begins[b], before[b], edges[b], rest, query, inverse_temperature, exponentials[b, s, 1:]
            )
            counts[b, s] = m
            if len(head):
                sums: npt.NDArray[np.float64] = np.cumsum(np.exp(logits - logits.max()))
                chosen = int((sums < uniforms[b, s] * sums[-1]).sum())
                winning[b, s] = head[min(chosen, len(head) - 1)]
                values[b, s] = logits.max() + np.log(sums[-1]) - np.log(exponentials[b, s, 0])
            perturbed = np.where(np.isin(seen, out), -np.inf, perturbed)
            if m > 0 and perturbed.max() > values[b, s]:
                winning[b, s], values[b, s] = seen[perturbed.argmax()], perturbed.max()
    return winning, values, heads, counts


def pick(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    part: int,
    parts: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """In each bucket one row from every stretch of 1 / rate rows, at a random place in it: floor((j + u) / rate).

    Each row is picked `rate` times on average, one at an end of a stretch at times twice; the last stretch may be
    shorter, and then picks a row with less probability. Every bucket has one uniform in [0, 1), from which stretch j
    takes j golden turns further: each such u is uniform, and they spread evenly. Of the stretches of a bucket this is
    one of `parts` equal parts. Returns positions, bucket by bucket, and where the buckets end, (K + 1,) from zero.
    """
    picked: list[npt.NDArray[np.int64]] = []
    for bucket, rate in enumerate(rates):
        inside = _inside(begins, before, edges, bucket)
        places = np.empty(0)
        if rate > 0:
            stretches = int(np.ceil(len(inside) * rate))
            j = np.arange(stretches * part // parts, stretches * (part + 1) // parts)
            turns = uniforms[bucket] + j * _GOLDEN
            places = np.floor((j + (turns - np.floor(turns))) * (1.0 / rate))
        picked.append(inside[places[places < len(inside)].astype(np.int64)])
    return np.concatenate([np.arange(0), *picked]), np.cumsum([0, *map(len, picked)])


def score_at(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], query: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """`rows[positions[j]] . query` for every j, shape (m,)."""
    return rows[positions] @ query


def sum_rows(
    rows: npt.NDArray[np.float32], positions: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Sums of weighted rows, of their squares, and of weight times weighted row, each (d,)."""
    weighted = weights[:, None] * rows[positions].astype(np.float64)
    return weighted.sum(axis=0), (weighted**2).sum(axis=0), weights @ weighted


def weigh(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    coded: bool,
    phase: int,
    positions: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    shift: float,
    banned: npt.NDArray[np.int64],
    features: bool,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Sums over the picks of each bucket, by weight exp(logit - shift) / rate, or zero for the sorted `banned`.

    When `coded`, the logits of buckets of a rate below one are those of the codes, and one pick in 32, from `phase` on,
    is read and counts for 32 times its difference: so sums have the right mean over phases 0 to 31.
    With `features` also of weighted rows. Returns sums, sums of squares, both (K, 1) or (K, 1 + d), and sums of weight
    times weighted row, (K, 0) or (K, d).
    """
    logits = (rows[positions] @ query).astype(np.float64) * inverse_temperature
    weights = np.exp(logits - shift)
    by_code = codes[positions] @ (code_step * query) + code_low @ query
    rough = np.exp(by_code.astype(np.float64) * inverse_temperature - shift)
    read = np.where(np.arange(len(positions)) % _CHECKED == phase, _CHECKED, 0)
    least = np.repeat(rates, np.diff(ends))
    weights = np.where(coded & (least < 1.0), rough + read * (weights - rough), weights)
    weights = np.where(np.isin(positions, banned), 0.0, weights / np.maximum(least, 1e-300))[:, None]
    weighted = weights * rows[positions].astype(np.float64)[:, : rows.shape[1] if features else 0]
    values = np.concatenate([weights, weighted], axis=1)

    def by_bucket(columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        found = [columns[ends[b] : ends[b + 1]].sum(axis=0) for b in range(len(rates))]
        return np.array(found, dtype=np.float64).reshape(len(rates), columns.shape[1])

    return by_bucket(values), by_bucket(values**2), by_bucket(weights * weighted)


def bin_scores(
    scores: npt.NDArray[np.float32],
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    low: float,
    width: float,
    bins: int,
) -> npt.NDArray[np.int32]:
    """Rows by bucket and by score, (buckets, bins): bin floor((score - low) / width), kept in range."""
    counts = np.zeros((len(edges) - 1, bins), dtype=np.int32)
    for bucket in range(len(edges) - 1):
        inside = scores[_inside(begins, before, edges, bucket)]
        found = np.floor((inside - np.float32(low)) * np.float32(1.0 / width)).astype(np.int64)
        np.add.at(counts[bucket], np.clip(found, 0, bins - 1), 1)
    return counts
