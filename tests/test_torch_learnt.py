"""Rows that learn: losses and gradients over rows that have moved since the index was built, and the index kept up."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import lazygumbel as lg
from lazygumbel.torch import LogLinearLoss
from statistics_helpers import clustered_rows, mean_p

N, D, CLUSTERS = 3_000, 16, 40
TEMPERATURE = 0.2
LOOKS = 300


def rows() -> np.ndarray:
    return clustered_rows(N, D, CLUSTERS, seed=2)


@cache
def moved() -> np.ndarray:
    """Logits change by half a nat or so."""
    return (rows() + 0.1 * np.random.default_rng(5).normal(size=(N, D))).astype(np.float32)


@cache
def index(kind: str) -> lg.PartitionIndex | lg.ExactIndex:
    if kind == "exact":
        return lg.ExactIndex.build(rows())
    return lg.PartitionIndex.build(rows(), cells=64, coordinates=(8, 8) if kind == "coarse" else None, rng=0)


def table(vectors: np.ndarray, **options) -> torch.nn.Embedding:
    return torch.nn.Embedding.from_pretrained(torch.tensor(vectors), freeze=False, **options)


def dense(theta: Tensor, target: Tensor, vectors: Tensor) -> Tensor:
    return functional.cross_entropy(theta @ vectors.T / TEMPERATURE, target, reduction="none")


class Looked:
    """Losses and gradients of a few thetas, each looked at many times, and their exact values."""

    def __init__(self, kind: str, vectors: np.ndarray) -> None:
        learnt = table(vectors)
        theta = torch.tensor(rows()[:6] * 1.5)
        target = torch.arange(1_000, 1_006)
        self.loss = LogLinearLoss(lg.LogLinear(index(kind)), temperature=TEMPERATURE, reduction="none", rng=0)
        many = theta.repeat_interleave(LOOKS, dim=0).requires_grad_()
        losses = self.loss(many, target.repeat_interleave(LOOKS), learnt)
        losses.sum().backward()
        exact_theta, now = theta.clone().requires_grad_(), torch.tensor(moved(), requires_grad=True)
        exact = dense(exact_theta, target, now)
        exact.sum().backward()
        self.ratios = (losses.detach().view(6, LOOKS) - exact.detach()[:, None]).double().exp()
        self.log_errors = self.ratios.log()
        self.by_theta = _off(many.grad.view(6, LOOKS, D).mean(dim=1), exact_theta.grad)
        self.by_rows = _off(learnt.weight.grad / LOOKS, now.grad)


def _off(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.fixture(autouse=True)
def unchecked():
    """Optimisers of sparse gradients warn where nobody has said whether these are to be checked."""
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        yield


@pytest.mark.parametrize("kind", ["fine", "coarse", "exact"])
@pytest.mark.usefixtures("codes_alone")
def test_the_sum_over_rows_that_have_moved_is_unbiased(kind):
    """An old index chooses; the mean of Z is that of the rows as they are now, and gradients are off by little."""
    looked = Looked(kind, moved())
    assert looked.loss.last.rows.mean() < N / 4, "this is as good as a dense pass, and tests nothing"
    for ratios in looked.ratios:
        assert mean_p(ratios, 1.0) > 1e-4
    # The logarithm of an unbiased estimate is too low by half its relative variance.
    stated = -0.5 * np.square(looked.loss.last.stderr).mean()
    assert abs(float(looked.log_errors.mean()) - stated) < 0.005
    assert looked.by_theta < 0.02 and looked.by_rows < 0.03, (looked.by_theta, looked.by_rows)


def test_with_the_rows_of_the_index_in_their_place_it_is_not():
    looked = Looked("fine", rows())
    assert sum(mean_p(ratios, 1.0) < 1e-10 for ratios in looked.ratios) >= 5
    assert abs(float(looked.log_errors.mean())) > 0.02
    assert looked.by_theta > 0.06 and looked.by_rows > 0.06, (looked.by_theta, looked.by_rows)


def test_the_standard_error_grows_as_rows_move_and_refreshing_brings_it_back():
    model, learnt = lg.LogLinear(index("fine")), table(moved() + rows())
    loss = LogLinearLoss(model, temperature=TEMPERATURE, rng=0)
    theta, target = torch.tensor(rows()[:200]), torch.arange(200)
    errors = []
    for vectors in (table(rows()), learnt):
        value = loss(theta, target, vectors)
        errors.append(loss.last.stderr.mean())
    loss.refresh(learnt, progress=False)
    np.testing.assert_array_equal(model.features.gather(np.arange(N)), learnt.weight.detach())
    again = loss(theta, target, learnt)
    assert errors[1] > 10 * errors[0]
    assert loss.last.stderr.mean() < 0.2 * errors[1]
    exact = dense(theta, target, learnt.weight).mean()
    assert abs(again - exact) < 0.02 and abs(value - exact) < 0.2
    assert loss.last.label == "heuristic"


def test_only_rows_that_were_chosen_get_a_gradient():
    learnt = table(moved(), sparse=True)
    loss = LogLinearLoss(lg.LogLinear(index("fine")), temperature=TEMPERATURE, rng=0)
    target = torch.tensor([5, 70, 2_999])
    loss(torch.tensor(rows()[:3]), target, learnt).backward()
    gradient = learnt.weight.grad.coalesce()
    touched = gradient.indices()[0]
    assert set(target.tolist()) <= set(touched.tolist()) and len(touched) <= loss.last.rows.sum() < N / 2
    with pytest.raises(RuntimeError, match="only once"):
        torch.autograd.gradgradcheck(
            lambda theta: loss(theta, target, learnt), torch.rand(3, D).double().requires_grad_()
        )


def test_class_vectors_and_thetas_learn_through_it():
    """Random class vectors, inputs of a few kinds: trained to nearly what the dense loss reaches in as many steps."""
    torch.manual_seed(0)
    inputs, target = torch.randn(256, 8), torch.randint(60, (256,)) ** 2 % N
    inputs += functional.one_hot(target % 8, 8) * 2
    finals = []
    for lazy in (True, False):
        torch.manual_seed(1)
        encoder, learnt = torch.nn.Linear(8, D), table(0.3 * rows(), sparse=lazy)
        model = lg.LogLinear(lg.PartitionIndex.build(0.3 * rows(), cells=64, rng=0))
        loss = LogLinearLoss(model, rng=0)
        optimiser = torch.optim.Adagrad([*encoder.parameters(), *learnt.parameters()], lr=0.3)
        for step in range(40):
            optimiser.zero_grad()
            theta = encoder(inputs)
            value = loss(theta, target, learnt) if lazy else functional.cross_entropy(theta @ learnt.weight.T, target)
            value.backward()
            optimiser.step()
            if lazy and step % 10 == 9:
                loss.refresh(learnt)
        with torch.no_grad():
            finals.append(functional.cross_entropy(encoder(inputs) @ learnt.weight.T, target).item())
    assert finals[1] < np.log(N) - 4, "there is nothing to learn"
    assert abs(finals[0] - finals[1]) < 0.1, finals


@pytest.mark.parametrize("learn", [False, True])
def test_rows_that_come_and_go(learn):
    model = lg.LogLinear(index("fine"))
    weight = torch.linspace(0.5, 2, N)
    smoothed = LogLinearLoss(model, temperature=TEMPERATURE, label_smoothing=0.2, method=lg.Exhaustive())
    weighted = LogLinearLoss(model, temperature=TEMPERATURE, weight=weight)
    theta = torch.tensor(rows()[:4])
    smoothed(theta, torch.arange(4))
    (added,) = model.add(3 * rows()[:1])
    model.remove([7, 8])
    now = torch.tensor(np.concatenate([np.delete(rows(), [7, 8], axis=0), 3 * rows()[:1]]))
    loss = LogLinearLoss(model, temperature=TEMPERATURE, rng=0)
    target, places = torch.tensor([added, 1, 2, 9]), torch.tensor([N - 2, 1, 2, 7])
    learnt = (table(np.concatenate([rows(), 3 * rows()[:1]])),) if learn else ()
    assert abs(loss(theta, target, *learnt) - dense(theta, places, now).mean()) < 0.05
    exact = functional.cross_entropy(theta @ now.T / TEMPERATURE, places, label_smoothing=0.2)
    torch.testing.assert_close(smoothed(theta, target), exact, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="target holds 7, but the row with this id was removed"):
        loss(theta, torch.tensor([7, 1, 2, 3]), *learnt)
    with pytest.raises(ValueError, match=rf"weight must have shape \({N + 1},\)"):
        weighted(theta, target)


def test_what_rows_that_learn_refuse():
    theta, target = torch.zeros(2, D), torch.tensor([0, 1])
    model = lg.LogLinear(index("fine"))
    faiss = lg.LogLinear(lg.FaissIndex.build(lg.Features.of(rows()), "HNSW16"))
    learnt = table(rows())
    for loss, given, message in (
        (LogLinearLoss(model), learnt.weight, "rows must be callable, not Parameter: give .*Embedding.from_pretrained"),
        (LogLinearLoss(model), lambda ids: ids, r"rows\(ids\) has dtype torch.int64"),
        (LogLinearLoss(model), lambda ids: learnt(ids)[:, 1:], rf"rows\(ids\) must have shape \(\d+, {D}\)"),
        (LogLinearLoss(model), lambda ids: learnt(ids).detach().numpy(), r"rows\(ids\) must be a tensor, not ndarray"),
        (LogLinearLoss(model, label_smoothing=0.1), learnt, "label_smoothing .* give 0 with rows that learn"),
        (LogLinearLoss(model, method=lg.Exhaustive()), learnt, r"method: rows that learn need Bounded"),
        (LogLinearLoss(faiss), learnt, "model: rows that learn need a LogLinear over a PartitionIndex"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(theta, target, given)
    with pytest.raises(ValueError, match="model: rows that learn need"):
        LogLinearLoss(faiss).refresh(learnt)
