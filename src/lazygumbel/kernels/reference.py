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
    "spread",
    "sum_rows",
    "survey",
    "weigh",
    "winners",
]

_RANK_BINS = 2048
_ROUTE_STEP = np.float32(1 / 32767)
_CHECKED = 32
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


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
    fewest: int,
    most: int,
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

    Groups are ranked by their inner product with the query and opened in this order: at least `fewest` of them, and on
    up to `most` as long as a group comes within `gap`, times the norm of the query, of the best cell so far. Cells of
    opened groups are ranked by their inner product times their scale, with the nearest in direction first. Directions
    are in units of 1/32767. Returns where segments begin and how many rows of the same query come before each, query
    after query, with one entry more at the end of each that says how many rows there are; the first segment of each
    bucket, (queries, K + 1); the inner product of each query with the nearest cell, and the largest with a row of the
    first segment. Buckets take ranks of cells by `cell_edges` (the last takes all that are left) and ranks of groups by
    `group_edges`, of those that stay closed.
    """
    starts: list[npt.NDArray[np.int64]] = []
    before: list[npt.NDArray[np.int64]] = []
    edges = np.zeros((len(queries), len(cell_edges) + len(group_edges) - 1), dtype=np.int64)
    alignment, reach = np.empty(len(queries), dtype=np.float32), np.empty(len(queries), dtype=np.float32)
    used = 0
    for b, query in enumerate(queries):
        near = (groups @ query) * _ROUTE_STEP
        ranked = rank_cells(near, int(near.argmax()))
        cosines = (cells @ query) * _ROUTE_STEP
        margin = np.float32(gap) * np.sqrt(query @ query)
        chosen, k = np.arange(0), 0
        while k < len(groups) and (
            k < fewest or (k < most and near[ranked[k]] >= cosines[chosen].max(initial=-np.inf) - margin)
        ):
            chosen = np.append(chosen, np.arange(int(group_ends[ranked[k]]), int(group_ends[ranked[k] + 1])))
            k += 1
        alignment[b] = cosines[chosen].max()
        chosen = chosen[rank_cells(cosines[chosen] * scales[chosen], int(cosines[chosen].argmax()))]
        begins = np.append(offsets[chosen], offsets[group_ends[ranked[k:]]])
        stops = np.append(offsets[chosen + 1], offsets[group_ends[ranked[k:] + 1]])
        edges[b, : len(cell_edges) - 1] = used + np.minimum(cell_edges[:-1], len(chosen))
        edges[b, len(cell_edges) - 1 :] = used + len(chosen) + np.maximum(group_edges - k, 0)
        reach[b] = (rows[begins[0] : stops[0]] @ query).max(initial=-np.inf)
        starts.append(np.append(begins, 0))
        before.append(np.cumsum([0, *(stops - begins)]))
        used += len(begins) + 1
    return np.concatenate([np.arange(0), *starts]), np.concatenate([np.arange(0), *before]), edges, alignment, reach


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
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """For each query and draw the row with the largest perturbed logit of a `look`, its value, and the rows looked at.

    All three are (queries, draws); rows of infinite hazard, which all draws share, count for the first. One of these is
    drawn by its probability among them, with the uniform; its value is their log-sum-exp minus the log of the first
    exponential, as if each had been perturbed. Positions in banned[banned_ends[b]:banned_ends[b + 1]], sorted, cannot
    win query b. Where the exponentials ran out the count is -1; where nothing could win the position is -1 and the
    value minus infinity. Returned last is how many draws are of these two kinds.
    """
    del codes, code_low, code_step, code_error  # they tell the twin which rows need not be read
    size, draws, _ = exponentials.shape
    winning, values = np.full((size, draws), -1, dtype=np.int64), np.full((size, draws), -np.inf)
    counts = np.zeros((size, draws), dtype=np.int64)
    for b, query in enumerate(queries):
        out = banned[banned_ends[b] : banned_ends[b + 1]]
        sure = np.where(np.isinf(hazards[b]), np.inf, 0.0)
        enough = np.ones(len(rows))
        _, head, logits, _ = look(rows, begins, before, edges[b], sure, query, inverse_temperature, enough)
        allowed = ~np.isin(head, out)
        head, logits = head[allowed], logits[allowed]
        for s in range(draws):
            rest = np.where(np.isinf(hazards[b]), 0.0, hazards[b])
            m, seen, _, perturbed = look(
                rows, begins, before, edges[b], rest, query, inverse_temperature, exponentials[b, s, 1:]
            )
            counts[b, s] = m + len(head) if m >= 0 and s == 0 else m
            if len(head):
                sums: npt.NDArray[np.float64] = np.cumsum(np.exp(logits - logits.max()))
                chosen = int((sums < uniforms[b, s] * sums[-1]).sum())
                winning[b, s] = head[min(chosen, len(head) - 1)]
                values[b, s] = logits.max() + np.log(sums[-1]) - np.log(exponentials[b, s, 0])
            perturbed = np.where(np.isin(seen, out), -np.inf, perturbed)
            if m > 0 and perturbed.max() > values[b, s]:
                winning[b, s], values[b, s] = seen[perturbed.argmax()], perturbed.max()
    return winning, values, counts, int(((counts < 0) | (winning < 0)).sum())


def pick(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """In each bucket one row from every stretch of 1 / rate rows, at a random place in it: floor((j + u) / rate).

    Each row is picked `rate` times on average, one at an end of a stretch at times twice; the last stretch may be
    shorter, and then picks a row with less probability. The bucket's uniform in [0, 1) seeds the u of its stretches,
    which are numbers of SplitMix64, one after the other: with one u for all there would be few different samples, and
    nothing would be known of how they spread. Returns positions, bucket by bucket, and where the buckets end, (K + 1,)
    from zero.
    """
    picked = [_pick(begins, before, edges, rates, uniforms, bucket, 0, 1) for bucket in range(len(rates))]
    return np.concatenate([np.arange(0), *picked]), np.cumsum([0, *map(len, picked)])


def _pick(
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    bucket: int,
    part: int,
    parts: int,
) -> npt.NDArray[np.int64]:
    """One of equal parts of the picks of a bucket."""
    inside, rate = _inside(begins, before, edges, bucket), rates[bucket]
    if rate <= 0:
        return inside[:0]
    picks = int(np.ceil(len(inside) * rate))
    j = np.arange(picks * part // parts, picks * (part + 1) // parts)
    z = np.uint64(uniforms[bucket] * 2.0**53) + (j + 1).astype(np.uint64) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    places = np.floor((j + (z >> np.uint64(11)) * 2.0**-53) * (1.0 / rate)).astype(np.int64)
    return inside[places[places < len(inside)]]


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
    coded: npt.NDArray[np.bool_],
    begins: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    shifts: npt.NDArray[np.float64],
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    features: bool,
    part: int,
    parts: int,
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
]:
    """For each query `pick` rows, or one of equal parts of them, and sum over those of each bucket.

    A row counts exp(logit - shift) / rate, or zero if `banned`. Where a query is `coded`, the logits of buckets of a
    rate below one are those of the codes, and one pick in 32, from one on that the last uniform gives, is read and
    counts for 32 times its difference: so sums have the right mean. With `features` also of weighted rows. Returns
    picks, (queries, K), sums and sums of squares, both (queries, K, 1) or (queries, K, 1 + d), and sums of weight times
    weighted row, (queries, K, 0) or (queries, K, d).
    """
    size, buckets = rates.shape
    wide = rows.shape[1] if features else 0
    picks = np.zeros((size, buckets), dtype=np.int64)
    plain, squares = np.zeros((size, buckets, 1 + wide)), np.zeros((size, buckets, 1 + wide))
    cross = np.zeros((size, buckets, wide))
    for q, query in enumerate(queries):
        out, unread = banned[banned_ends[q] : banned_ends[q + 1]], int(uniforms[q, -1] * _CHECKED)
        for b, rate in enumerate(rates[q]):
            found = _pick(begins, before, edges[q], rates[q], uniforms[q], b, part, parts)
            weights = np.exp((rows[found] @ query).astype(np.float64) * inverse_temperature - shifts[q])
            if coded[q] and rate < 1.0:
                by_code = codes[found] @ (code_step * query) + code_low @ query
                rough = np.exp(by_code.astype(np.float64) * inverse_temperature - shifts[q])
                read = np.arange(len(found)) % _CHECKED == unread
                weights = rough + np.where(read, _CHECKED, 0) * (weights - rough)
            weights = np.where(np.isin(found, out), 0.0, weights)[:, None] / max(rate, 1e-300)
            weighted = weights * rows[found].astype(np.float64)[:, :wide]
            values = np.concatenate([weights, weighted], axis=1)
            picks[q, b], unread = len(found), (unread - len(found)) % _CHECKED
            plain[q, b], squares[q, b] = values.sum(axis=0), (values**2).sum(axis=0)
            cross[q, b] = (weights * weighted).sum(axis=0)
    return picks, plain, squares, cross


def spread(
    rates: npt.NDArray[np.float64],
    picks: npt.NDArray[np.int64],
    plain: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
    cross: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Totals of what `weigh` summed, (queries, 1 + d), their variances, and covariances with the first, (queries, d).

    Picks spread around the mean of their bucket; one that is alone, around zero.
    """
    m = picks[:, :, None].astype(np.float64)
    centre = np.where(m > 1, 1 / np.maximum(m, 1), 0.0)
    factor = (1 - rates[:, :, None]) * np.where(m > 1, m / np.maximum(m - 1, 1), 1.0)
    variance = (factor * (squares - centre * plain**2)).sum(axis=1)
    covariance = (factor * (cross - centre * plain[:, :, :1] * plain[:, :, 1:])).sum(axis=1)
    return plain.sum(axis=1), np.maximum(variance, 0.0), covariance


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
