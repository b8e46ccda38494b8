"""The kernels in NumPy: slow, obvious, and the specification of `compiled`."""

from itertools import count
from time import perf_counter, sleep

import numpy as np
import numpy.typing as npt

from lazygumbel.kernels.blocks import BLOCK

__all__ = [
    "bin_scores",
    "gather_dot",
    "look",
    "pick",
    "pick_variance",
    "place",
    "score_at",
    "score_ranges",
    "spread",
    "sum_rows",
    "survey",
    "weigh",
    "winners",
]

_RANK_BINS = 2048
_NEAREST, _CODES_HELP, _ROUNDING = 6.1, 2.0, 1e-9
_CHECKED, _HEAVY, _CODED_BELOW, _NO_SHIFT = 64, 1e-3, 0.04, 300.0
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


def survey(
    routes: npt.NDArray[np.int8],
    centroids: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    queries: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    bucket_edges: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """The bucket of each cell by its rank, for each query: the nearest in direction, then by inner product times scale.

    `routes` are the centroids in whole steps, laid out in blocks, and queries are rounded to whole numbers too. What
    comes within 6.1 steps, times the norm of the query, of the largest inner product is computed anew from the
    centroids to find the nearest: that is twenty standard deviations of their rounding. `scales` are at most one; none
    are given where all are one. Returns buckets, (queries, cells); the inner product of each query with the nearest
    cell, and the largest with a row of it, by the codes; and its norm.

    Ranks are by counting: scores are told apart to 1/2046 of their range, and cells whose scores are not have the rank
    of the first of them.
    """
    (cells, d), size = centroids.shape, len(queries)
    whole = routes.reshape(*routes.shape[:2], BLOCK, 2).transpose(0, 2, 1, 3).reshape(len(routes) * BLOCK, -1)
    whole = whole[:cells, :d].astype(np.int64)
    buckets = np.empty((size, cells), dtype=np.uint8)
    alignment, reach = np.empty((2, size), dtype=np.float32)
    norms: npt.NDArray[np.float64] = np.sqrt(np.vecdot(queries, queries).astype(np.float64))
    for b, query in enumerate(queries):
        unit = max(float(np.abs(query).max()) / min(16383.0, np.floor(2.0**23 / d)), 1e-300)
        keys = whole @ np.rint(query.astype(np.float64) / unit).astype(np.int64)
        near = np.flatnonzero(keys >= keys.max() - int(_NEAREST * norms[b] / unit))
        along = centroids[near] @ query
        first, alignment[b] = near[along.argmax()], along.max()
        if len(scales):
            keys = (keys.astype(np.float32) * scales).astype(np.int32)
        width = np.float32(_RANK_BINS - 2) / np.float32(max(int(keys.max()) - int(keys.min()), 1))
        below = np.float32(keys.max()) - keys.astype(np.float32)
        bins: npt.NDArray[np.int64] = 1 + (below * width).astype(np.int64)
        bins[first] = 0
        rank = np.array([(bins < k).sum() for k in bins])
        buckets[b] = np.searchsorted(bucket_edges[1:-1], rank, side="right")
        inside = codes[offsets[first] : offsets[first + 1]]
        reach[b] = (inside @ (code_step * query)).max(initial=-np.inf) + code_low @ query
    return buckets, alignment, reach, norms


def place(
    norms: npt.NDArray[np.float64],
    alignment: npt.NDArray[np.float32],
    reach: npt.NDArray[np.float32],
    inverse_temperature: float,
    largest: float,
    ladder: npt.NDArray[np.float64],
    least_alignment: float,
    least_reach: float,
) -> npt.NDArray[np.int64]:
    """The line of each query of a survey in tables of a calibration.

    There is a line for each rung of the ladder of scales, then one for each gap between two, then all of these again,
    widened. A scale within 1% of a rung takes that, one between two rungs their gap, one beyond the ladder the widened
    last rung. A query that is unlike those of the calibration, by its best cosine or by the best row of its first cell,
    takes a widened line. A query of zeros takes the first.
    """
    rungs, scales = len(ladder), norms * inverse_temperature
    above = np.searchsorted(ladder, 0.99 * scales)
    own = (above == 0) | (ladder[np.minimum(above, rungs - 1)] < 1.02 * scales)
    lines = np.where(own, above, rungs + above - 1)
    unlike = (alignment < least_alignment * norms) | (reach < least_reach * norms * largest)
    lines = np.where(unlike, lines + 2 * rungs - 1, lines)
    return np.where(scales > 0, np.where(above == rungs, 3 * rungs - 2, lines), 0)


def _inside(
    offsets: npt.NDArray[np.int64], buckets: npt.NDArray[np.uint8], wanted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Positions of the rows of cells whose bucket is wanted."""
    return np.flatnonzero(np.repeat(wanted[buckets], np.diff(offsets)))


def _uniforms(seed: float, j: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The j-th numbers of SplitMix64, seeded by a number in [0, 1), as ones between zero and one."""
    z = np.uint64(seed * 2.0**53) + (j + 1).astype(np.uint64) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _end_to_end(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Where each ends, from zero; added up in fours, because to the last bit the order matters."""
    whole = len(lengths) - len(lengths) % 4
    a, b, c, d = lengths[:whole].reshape(-1, 4).T
    starts: npt.NDArray[np.float64] = np.cumsum([0.0, *((a + b) + (c + d))])
    inside = np.stack([a, a + b, (a + b) + c, (a + b) + (c + d)], axis=1)
    rest: npt.NDArray[np.float64] = np.cumsum([starts[-1], *lengths[whole:]])
    return np.concatenate([[0.0], (starts[:-1, None] + inside).ravel(), rest[1:]])


def _by_codes(
    codes: npt.NDArray[np.uint8],
    low: npt.NDArray[np.float32],
    step: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], float]:
    """Scores of codes, with the query in whole numbers, and by how much those may change one."""
    scaled, d = step * query, len(query)
    unit = max(float(np.abs(scaled).max()) / min(16383, 2**31 // 256 // d), 1e-300)
    whole = np.rint(scaled.astype(np.float64) / unit).astype(np.int64)
    scores = (codes.astype(np.int64) @ whole).astype(np.float32) * np.float32(unit) + np.float32(low @ query)
    return scores.astype(np.float32), 0.5 * 255 * float(np.float32(unit)) * d


def look(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    hazards: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    seeds: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Look at each row independently with the rate of its bucket, 1 - exp(-hazard), and perturb it.

    A row whose Gumbel is minus the log of E is looked at when E is below the hazard. Where that is infinite, every row
    is, and has an exponential E of its own. Elsewhere lay rows end to end as they are stored, each as long as its
    hazard: the hits of a Poisson process of rate one pick the rows, and the place of the first hit in a row is its E.
    Hazards do not increase from bucket to bucket. The seeds in [0, 1) are of the two kinds of exponentials, which are
    minus the logs of the numbers of SplitMix64.

    Returns for each row its position, logit and perturbed logit, those of infinite hazard first.
    """
    certain = _inside(offsets, buckets, np.isinf(hazards))
    widths = np.where(np.isinf(hazards), 0.0, hazards)[buckets]
    ends = _end_to_end(np.diff(offsets) * widths)
    enough = np.arange(int(ends[-1] + 20 * np.sqrt(ends[-1])) + 100)
    places: npt.NDArray[np.float64] = np.cumsum(-np.log(_uniforms(seeds[1], enough)))
    places = places[places < ends[-1]]
    cell = np.searchsorted(ends, places, side="right") - 1
    skipped = ((places - ends[cell]) / np.where(widths > 0, widths, 1.0)[cell]).astype(np.int64)
    hit = np.minimum(offsets[cell] + skipped, offsets[cell + 1] - 1)
    seen, first = np.unique(hit, return_index=True)
    inside = places - ends[cell] - (hit - offsets[cell]) * widths[cell]
    noise = np.concatenate([-np.log(_uniforms(seeds[0], np.arange(len(certain)))), np.maximum(inside[first], 1e-300)])
    seen = np.concatenate([certain, seen])
    logits = (rows[seen] @ query).astype(np.float64) * inverse_temperature
    return seen, logits, logits - np.log(noise)


def winners(
    rows: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    code_low: npt.NDArray[np.float32],
    code_step: npt.NDArray[np.float32],
    code_error: float,
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """For each query and draw the row with the largest perturbed logit of a `look`, its value, and the rows looked at.

    All three are (queries, draws). Rows of infinite hazard, which all draws share, count for the first. They are known
    by their codes, and a code by no more than `code_error` times the norm of the query: a Poisson process whose rates
    are that much too high hits one, which is kept with the probability that makes up for it. The first that is kept is
    the one that perturbing each would give, and its time gives the value. Where codes may be off by 2 nats or more,
    rows are read instead. Of `seeds`, (queries, draws, 2), the first is for these rows, the second for the others.
    Positions in banned[banned_ends[b]:banned_ends[b + 1]], sorted, cannot win query b. Where nothing could win the
    position is -1 and the value minus infinity; returned last is how many draws these are.
    """
    size, draws, _ = seeds.shape
    winning, values = np.full((size, draws), -1, dtype=np.int64), np.full((size, draws), -np.inf)
    counts = np.zeros((size, draws), dtype=np.int64)
    for b, query in enumerate(queries):
        out = banned[banned_ends[b] : banned_ends[b + 1]]
        head = np.setdiff1d(_inside(offsets, buckets[b], np.isinf(hazards[b])), out)
        scores, rounded = _by_codes(codes[head], code_low, code_step, query)
        slack = (code_error * np.sqrt(np.float64(query @ query)) + rounded) * inverse_temperature
        if slack >= _CODES_HELP:
            scores, slack = rows[head] @ query, 0.0
        logits = scores.astype(np.float64) * inverse_temperature
        rest = np.where(np.isinf(hazards[b]), 0.0, hazards[b])
        for s in range(draws):
            seen, _, perturbed = look(rows, offsets, buckets[b], rest, query, inverse_temperature, seeds[b, s])
            counts[b, s] = len(seen) + (len(head) if s == 0 else 0)
            if len(head):
                sums: npt.NDArray[np.float64] = np.cumsum(np.exp(logits - logits.max()))
                time, drawn = 0.0, 0
                for attempt in count(step=3):
                    delay, choice, chance = _uniforms(seeds[b, s, 0], np.arange(attempt, attempt + 3))
                    time -= np.log(delay)
                    drawn = min(int((sums < choice * sums[-1]).sum()), len(head) - 1)
                    true = np.float64(rows[head[drawn]] @ query) * inverse_temperature
                    if chance <= np.exp(true - logits[drawn] - slack):
                        break
                winning[b, s] = head[drawn]
                values[b, s] = logits.max() + slack + np.log(sums[-1]) - np.log(time)
            perturbed = np.where(np.isin(seen, out), -np.inf, perturbed)
            if len(seen) and perturbed.max() > values[b, s]:
                winning[b, s], values[b, s] = seen[perturbed.argmax()], perturbed.max()
    return winning, values, counts, int((winning < 0).sum())


def pick(
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniform: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    """Rows picked as often, on average, as the rate of their bucket says, times a factor.

    Those of rate one are all taken. Lay the others end to end as they are stored, each as long as its rate: from every
    stretch of length one the row at a random place is picked. The factor, at least one, makes the number of stretches
    whole. The uniform in [0, 1) seeds the places, which are numbers of SplitMix64, one after the other: with one place
    for all stretches there would be few different samples, and nothing would be known of how they spread. Rates do not
    increase from bucket to bucket.

    Returns positions of the rows of rate one, positions and buckets of the others picked, and the factor.
    """
    sure = _inside(offsets, buckets, rates >= 1)
    return sure, *_pick(offsets, buckets, rates, uniform)


def _pick(
    offsets: npt.NDArray[np.int64], buckets: npt.NDArray[np.uint8], rates: npt.NDArray[np.float64], uniform: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], float]:
    """Picks from cells of rates below one."""
    widths = np.where((rates > 0) & (rates < 1), rates, 0.0)[buckets]
    ends = _end_to_end(np.diff(offsets) * widths)
    picks = int(np.ceil(ends[-1] - _ROUNDING))
    factor = picks / float(ends[-1]) if picks > 0 else 1.0
    places = (np.arange(picks) + _uniforms(uniform, np.arange(picks))) * (1.0 / factor)
    places = places[places < ends[-1]]
    cell = np.searchsorted(ends, places, side="right") - 1
    inside = ((places - ends[cell]) * (1.0 / widths[cell])).astype(np.int64)
    return np.minimum(offsets[cell] + inside, offsets[cell + 1] - 1), buckets[cell], factor


def pick_variance(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    scale: float,
) -> float:
    """The relative variance of Z from rows picked, where the rows, as they are stored, count exp(scale score).

    From every stretch one row is picked, with the share of the stretch that it takes up for probability.
    """
    weights = np.exp(scale * scores.astype(np.float64) - scale * np.float64(scores.max(initial=-np.inf)))
    owners = np.repeat(buckets, np.diff(offsets))
    inside = (rates[owners] > 0) & (rates[owners] < 1)
    length = float(rates[owners][inside].sum())
    factor = max(np.ceil(length - _ROUNDING), 1.0) / max(length, 1e-300)
    widths = rates[owners][inside] * factor
    counted, ends = weights[inside] / widths, np.cumsum(widths)
    stretches = np.zeros((int(ends.max(initial=0.0)) + 2, 2))
    for begin, end, value in zip(ends - widths, ends, counted, strict=True):
        for stretch in range(int(begin), int(end) + 1):
            part = min(end, stretch + 1.0) - max(begin, float(stretch))
            stretches[stretch] += part * value, part * value**2
    mean, square = stretches.T
    return float(np.maximum(square - mean**2, 0.0).sum() / weights.sum() ** 2)


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
    code_error: float,
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    rates: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    largest: float,
    banned: npt.NDArray[np.int64],
    banned_ends: npt.NDArray[np.int64],
    progress: npt.NDArray[np.int64],
    shifts: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    found: npt.NDArray[np.float64],
    bell: npt.NDArray[np.int64],
    rings: int,
) -> None:
    """For each query `pick` rows and sum over them, in pieces that several calls may share; fills arrays given.

    Of the pieces of a query, as many as `counts` and `found` have columns, the first has the rows of rate one and each
    of the others the picks of an equal part of the cells. A call claims the next piece that is left, until there is
    none, and waits for those that other calls claimed; `progress` counts pieces that are claimed, and that are done.
    A call with `rings` below zero rings the bell first. Any other is one that helps: after the last piece it stays for
    half a millisecond, or until the bell was rung more often than that.

    A row counts exp(logit - shift) / rate, with the factor of its picks in the rate, or zero if `banned`; the shift is
    what the largest logit that there could be, |query| times the norm `largest`, has beyond 300. Without sums of
    weighted rows, and if codes are exact enough, logits are those of the codes: one pick in 64 is read and counts for
    64 times its difference, so that sums have the right mean. So do rows of rate one, unless all are, but such as by
    their codes hold more than 1e-3 of the sum are all read. Of the uniforms, (queries, pieces, 2), the first seed the
    picks, the others say which is the first that is read.

    `counts`, (queries, pieces), is filled with numbers of rows, and `found`, (queries, pieces, 3, 1) or
    (queries, pieces, 3, 1 + d), with sums over rows; with sums of half the squared differences of picks and those
    before, times 1 - rate, or of what rows that are not read add to the variance; and with the same of products of
    differences of weights and of weighted rows.
    """
    (size, units), cells, features = counts.shape, buckets.shape[1], found.shape[3] > 1
    bell += rings < 0
    while True:
        piece = int(progress[0])
        progress[0] += 1
        if piece >= size * units:
            break
        q, u = divmod(piece, units)
        query, out = queries[q], banned[banned_ends[q] : banned_ends[q + 1]]
        scale = np.sqrt(np.float64(query @ query)) * inverse_temperature
        shift = max(scale * largest - _NO_SHIFT, 0.0)
        coded = not features and scale * code_error < _CODED_BELOW * np.sqrt(len(query))
        unread = int(uniforms[q, u, 1] * _CHECKED)
        if u > 0:
            low, high = cells * (u - 1) // (units - 1), cells * u // (units - 1)
            seen, owners, factor = _pick(offsets[low : high + 1], buckets[q, low:high], rates[q], uniforms[q, u, 0])
            rate = factor * rates[q][owners]
        else:
            seen, rate = _inside(offsets, buckets[q], rates[q] >= 1), np.ones(1)
            shifts[q], coded = shift, coded and rates[q].min() < 1
        weights = np.exp((rows[seen] @ query).astype(np.float64) * inverse_temperature - shift)
        checks = 0.0
        if coded:
            by_codes, _ = _by_codes(codes[seen], code_low, code_step, query)
            rough = np.exp(by_codes.astype(np.float64) * inverse_temperature - shift)
            weights, rough = (np.where(np.isin(seen, out), 0.0, w) for w in (weights, rough))
            light = (rough <= _HEAVY * rough.sum()) | (u > 0)
            read = light & (np.arange(len(seen)) % _CHECKED == unread)
            change = weights - rough
            weights = np.where(light, rough + np.where(read, _CHECKED * change, 0.0), weights)
            checks = _CHECKED * (_CHECKED - 1) * (change[read] ** 2).sum()
        weights = (np.where(np.isin(seen, out), 0.0, weights) / rate)[:, None]
        values = np.concatenate([weights, weights * rows[seen].astype(np.float64)], axis=1)[:, : found.shape[3]]
        counts[q, u], found[q, u, 0] = len(seen), values.sum(axis=0)
        if u > 0:
            half, step = 0.5 * np.maximum(1 - rate[:, None], 0)[1:], np.diff(values, axis=0)
            found[q, u, 1:] = (half * step**2).sum(axis=0), (half * step[:, :1] * step).sum(axis=0)
            found[q, u, 2, 0] = 0.0
        else:
            found[q, u, 1, 0] = checks
        progress[1] += 1
    while progress[1] < size * units:
        sleep(0)
    enough = perf_counter() + 5e-4
    while rings >= 0 and bell[0] <= rings and perf_counter() < enough:
        sleep(0)


def spread(
    counts: npt.NDArray[np.int64], found: npt.NDArray[np.float64]
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
]:
    """What `weigh` filled in, all pieces of a query together.

    Returns how many rows were seen, (queries,); the relative standard error of the first totals, (queries,), infinite
    where those are not positive; totals, (queries, 1 + d), their variances, and their covariances with the first.

    From a stretch of rows of weight w and rate r one is picked, and counts w / r: that has variance sum of
    w^2 (1/r - 1) minus the products of different rows, which for rows alike are 1 - r times the square of the mean of
    w / r. Picks from neighbouring stretches have nearly the same mean, so the squares of their differences tell. One
    pick alone spreads around zero.
    """
    m = counts[..., None].astype(np.float64)
    picks = np.ones((counts.shape[1], 1), dtype=np.bool_)
    picks[0] = False
    sums, squares, cross = found[:, :, 0], found[:, :, 1], found[:, :, 2]
    alone, factor = picks & (m == 1), np.where(picks & (m > 1), m / np.maximum(m - 1, 1), 1.0)
    total = sums.sum(axis=1)
    variance = np.where(alone, sums**2, factor * squares).sum(axis=1)
    covariance = np.where(alone, sums[..., :1] * sums, factor * cross).sum(axis=1)
    seen = total[:, 0] > 0
    errors = np.where(seen, np.sqrt(variance[:, 0]) / np.where(seen, total[:, 0], 1.0), np.inf)
    return counts.sum(axis=1), errors, total, variance, covariance


def bin_scores(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    buckets: npt.NDArray[np.uint8],
    size: int,
    low: float,
    width: float,
    bins: int,
) -> npt.NDArray[np.int32]:
    """Rows by bucket and by score, (size, bins): bin floor((score - low) / width), kept in range."""
    counts = np.zeros((size, bins), dtype=np.int32)
    found = np.floor((scores - np.float32(low)) * np.float32(1.0 / width)).astype(np.int64)
    np.add.at(counts, (np.repeat(buckets, np.diff(offsets)), np.clip(found, 0, bins - 1)), 1)
    return counts
