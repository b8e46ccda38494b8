"""The kernels in NumPy: slow, obvious, and the specification of `compiled`."""

import numpy as np
import numpy.typing as npt

__all__ = ["bin_scores", "gather_dot", "look", "score_ranges", "winners"]


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


def look(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    thresholds: npt.NDArray[np.float32],
    hazards: npt.NDArray[np.float64],
    query: npt.NDArray[np.float32],
    inverse_temperature: float,
    uniforms: npt.NDArray[np.float64],
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Look at each row independently with the rate of its cell's bucket: 1 - exp(-hazard).

    Cells fall into buckets by routing score: bucket j takes scores from thresholds[j] up to thresholds[j - 1]. A hazard
    of infinity enumerates. Within a bucket, rows to skip are geometric: floor(-log(u) / hazard). Each row looked at has
    a Gumbel conditioned to exceed the cutoff -log(hazard).

    Returns the number of rows m (or -1 when `uniforms` ran out), and for each its position, logit, perturbed logit and
    bucket. Uniforms, in (0, 1], are used in turn: for an enumerated row one for its Gumbel; in another bucket one for
    each skip, the one that leaves the bucket included, and one for each Gumbel.
    """
    found: list[tuple[int, float, float, int]] = []
    used = 0
    bucket_of = (scores[:, None] < thresholds[None, :]).sum(axis=1)
    nothing = (np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int64))
    for bucket, hazard in enumerate(hazards):
        cells = np.flatnonzero(bucket_of == bucket)
        inside: list[int] = [p for c in cells for p in range(int(offsets[c]), int(offsets[c + 1]))]
        at = 0
        while hazard > 0:
            if np.isfinite(hazard):
                if used >= len(uniforms):
                    return -1, *nothing
                at += int(min(np.floor(-np.log(uniforms[used]) / hazard), len(inside)))
                used += 1
            if at >= len(inside):
                break
            if used >= len(uniforms):
                return -1, *nothing
            exponential = (
                -np.log1p(uniforms[used] * np.expm1(-hazard)) if np.isfinite(hazard) else -np.log(uniforms[used])
            )
            used += 1
            position = inside[at]
            logit = float(rows[position] @ query) * inverse_temperature
            found.append((position, logit, float(logit - np.log(exponential)), bucket))
            at += 1
    if not found:
        return 0, *nothing
    positions, logits, values, buckets = map(np.array, zip(*found, strict=True))
    return len(found), positions, logits, values, buckets


def winners(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    thresholds: npt.NDArray[np.float32],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """`look` for each query: position and value of the largest perturbed logit, and the rows looked at.

    Where `uniforms` ran out the count is -1; where nothing was looked at it is 0, the position -1 and the value -inf.
    """
    positions = np.full(len(queries), -1, dtype=np.int64)
    values = np.full(len(queries), -np.inf)
    counts = np.zeros(len(queries), dtype=np.int64)
    for b, query in enumerate(queries):
        counts[b], seen, _, perturbed, _ = look(
            rows, offsets, scores[b], thresholds[b], hazards[b], query, inverse_temperature, uniforms[b]
        )
        if counts[b] > 0:
            best = perturbed.argmax()
            positions[b], values[b] = seen[best], perturbed[best]
    return positions, values, counts


def bin_scores(
    scores: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    bucket_of: npt.NDArray[np.int64],
    low: float,
    width: float,
    buckets: int,
    bins: int,
) -> npt.NDArray[np.int32]:
    """Rows by bucket of their cell and by score, (buckets, bins): bin floor((score - low) / width), kept in range."""
    counts = np.zeros((buckets, bins), dtype=np.int32)
    found = np.floor((scores - np.float32(low)) * np.float32(1.0 / width)).astype(np.int64)
    np.add.at(counts, (np.repeat(bucket_of, np.diff(offsets)), np.clip(found, 0, bins - 1)), 1)
    return counts
