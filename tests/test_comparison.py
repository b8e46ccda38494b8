"""What others are measured by in the comparison is right."""

import numpy as np
import pytest
from scipy.stats import chisquare

from rivals import Deann, TopKSoftmax, build_hnsw, cutoff_law

TEMPERATURE = 0.2
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((400, 8), dtype=np.float32)
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
THETA = np.ascontiguousarray(ROWS[0] + ROWS[1])
LOGITS = (ROWS @ THETA).astype(np.float64) / TEMPERATURE
LOG_Z = float(np.logaddexp.reduce(LOGITS))
PROBABILITIES = np.exp(LOGITS - LOG_Z)


@pytest.mark.parametrize("cutoff", [2.0, 4.0])
def test_a_fixed_cutoff_draws_from_its_law(cutoff: float) -> None:
    """Noise of rows outside the head counts only above the cutoff: 50,000 such draws against the closed form."""
    head, draws = np.argsort(-LOGITS)[20:60], 50_000  # a poor head: the best rows are outside
    noise = np.random.default_rng(1).gumbel(size=(draws, len(LOGITS))).astype(np.float32)
    outside = np.setdiff1d(np.arange(len(LOGITS)), head)
    noise[:, outside] = np.where(noise[:, outside] > cutoff, noise[:, outside], -np.inf)
    drawn = np.bincount((LOGITS + noise).argmax(axis=1), minlength=len(LOGITS))
    law = cutoff_law(PROBABILITIES, head, cutoff)
    assert law.sum() == pytest.approx(1.0)
    assert chisquare(drawn, draws * law).pvalue > 1e-3
    assert chisquare(drawn, draws * PROBABILITIES).pvalue < 1e-9


def test_a_softmax_over_all_hits_is_the_softmax_and_over_few_loses_the_rest() -> None:
    index, _ = build_hnsw(ROWS, 400)
    whole, few = (TopKSoftmax("HNSW", index, 0.0, k, TEMPERATURE) for k in (400, 20))
    assert whole.distance(THETA, PROBABILITIES) == pytest.approx(0.0, abs=1e-6)
    assert few.distance(THETA, PROBABILITIES) == pytest.approx(1 - np.sort(PROBABILITIES)[-20:].sum(), abs=1e-6)
    drawn = few.draw_batch(np.tile(THETA, (2_000, 1)), np.random.default_rng(2))
    assert set(drawn.tolist()) <= set(np.argsort(-LOGITS)[:20].tolist())
    share = PROBABILITIES.max() / np.sort(PROBABILITIES)[-20:].sum()
    assert np.mean(drawn == LOGITS.argmax()) == pytest.approx(share, abs=0.03)


def test_near_rows_and_a_sample_of_others_estimate_z_without_bias() -> None:
    index, _ = build_hnsw(ROWS, 400)
    deann, rng = Deann(index, 0.0, ROWS, 40, 100, TEMPERATURE), np.random.default_rng(3)
    found = np.exp([deann.log_partition(THETA, rng) - LOG_Z for _ in range(300)])
    assert found.mean() == pytest.approx(1.0, abs=0.02) and found.std() > 0.0
