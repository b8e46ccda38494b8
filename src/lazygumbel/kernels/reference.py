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
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Look at each row independently with the rate of its cell's bucket: 1 - exp(-hazard).

    Cells fall into buckets by routing score: bucket j takes scores from thresholds[j] up to thresholds[j - 1]. A hazard
    of infinity enumerates. Within another bucket the number of rows to skip is geometric: floor(exponential / hazard).
    Each row looked at has a Gumbel conditioned to exceed the cutoff -log(hazard): minus the log of an exponential
    below the hazard, -log1p(-u (1 - exp(-hazard))), with u its uniform in (0, 1).

    Returns the number of rows m (or -1 when the random numbers ran out), and for each its position, logit, perturbed
    logit and bucket. Random numbers are used in turn, one exponential a skip, the one that leaves a bucket included,
    and one uniform a row: with longer arrays that begin alike, a look that ran out goes on as it began.
    """
    positions: list[int] = []
    buckets: list[int] = []
    used = 0
    bucket_of = (scores[:, None] < thresholds[None, :]).sum(axis=1)
    nothing = (np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int64))
    for bucket, hazard in enumerate(hazards):
        cells = np.flatnonzero(bucket_of == bucket)
        inside: list[int] = [p for c in cells for p in range(int(offsets[c]), int(offsets[c + 1]))]
        at = 0
        while hazard > 0:
            if np.isfinite(hazard):
                if used >= len(exponentials):
                    return -1, *nothing
                at += int(min(np.floor(exponentials[used] / hazard), len(inside)))
                used += 1
            if at >= len(inside):
                break
            if len(positions) >= len(uniforms):
                return -1, *nothing
            positions.append(inside[at])
            buckets.append(bucket)
            at += 1
    seen, bucket = np.array(positions, dtype=np.int64), np.array(buckets, dtype=np.int64)
    logits = (rows[seen] @ query).astype(np.float64) * inverse_temperature
    values = logits - np.log(-np.log1p(uniforms[: len(seen)] * np.expm1(-hazards[bucket])))
    return len(seen), seen, logits, values, bucket


def winners(
    rows: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    thresholds: npt.NDArray[np.float32],
    hazards: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float32],
    inverse_temperature: float,
    exponentials: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """`look` for each query: position and value of the largest perturbed logit, and the rows looked at.

    Where random numbers ran out the count is -1; where nothing was looked at it is 0, the position -1, the value -inf.
    """
    positions = np.full(len(queries), -1, dtype=np.int64)
    values = np.full(len(queries), -np.inf)
    counts = np.zeros(len(queries), dtype=np.int64)
    for b, query in enumerate(queries):
        counts[b], seen, _, perturbed, _ = look(
            rows,
            offsets,
            scores[b],
            thresholds[b],
            hazards[b],
            query,
            inverse_temperature,
            exponentials[b],
            uniforms[b],
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
