"""The PyTorch loss: its gradient against the dense loss, its bias against stated bounds, training with it."""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import lazygumbel as lg
from lazygumbel import datasets, kernels
from lazygumbel.torch import LogLinearLoss, negatives
from statistics_helpers import CountingIndex, chi_square_p, clustered_rows, mean_p, probabilities_of

N, D, CLUSTERS = 3_000, 16, 40
TEMPERATURE = 0.2


def rows() -> np.ndarray:
    return clustered_rows(N, D, CLUSTERS, seed=2)


@cache
def model() -> lg.LogLinear:
    return lg.LogLinear(lg.PartitionIndex.build(rows(), cells=64, rng=0))


def dense(theta: Tensor, target: Tensor, *, temperature: float = TEMPERATURE, reduction: str = "mean") -> Tensor:
    phi = torch.from_numpy(rows().copy()).to(theta.dtype)
    return functional.cross_entropy(theta @ phi.T / temperature, target, reduction=reduction)


def batch(size: int = 8, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Thetas on a grid of 1/512, which float32 holds exactly, also after a step of the same width."""
    rng = np.random.default_rng(seed)
    theta = np.round(512 * (rows()[rng.integers(N, size=size)] + 0.1 * rng.normal(size=(size, D)))) / 512
    return torch.tensor(theta, dtype=dtype, requires_grad=True), torch.tensor(rng.integers(N, size=size))


# The loss and its gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_it_is_the_dense_loss(dtype, reduction):
    theta, target = batch(dtype=dtype)
    weights = torch.rand(8, dtype=dtype, generator=torch.Generator().manual_seed(0)) - 0.5
    found = {}
    exact = LogLinearLoss(model(), temperature=TEMPERATURE, method=lg.Exhaustive(), reduction=reduction)
    for name, loss in (("lazy", exact), ("dense", lambda *given: dense(*given, reduction=reduction))):
        value = loss(theta, target)
        # Each row has its own incoming gradient where nothing was reduced.
        (gradient,) = torch.autograd.grad((value * weights).sum() if reduction == "none" else 3 * value, theta)
        found[name] = value, gradient
    (value, gradient), (true_value, true_gradient) = found["lazy"], found["dense"]
    assert value.dtype == gradient.dtype == dtype
    assert value.shape == true_value.shape
    torch.testing.assert_close(value, true_value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, true_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_gradcheck(reduction, temperature):
    """Scores are float32, so a step must be wide: 1/512. Then rounding and curvature are both below 1e-3."""
    theta, target = batch(4)
    loss = LogLinearLoss(model(), temperature=temperature, method=lg.Exhaustive(), reduction=reduction)

    def doubled(theta: Tensor) -> Tensor:
        return loss(2 * theta - theta.detach(), target)

    assert torch.autograd.gradcheck(lambda theta: loss(theta, target), theta, eps=1 / 512, atol=1e-3, rtol=0)
    assert not torch.autograd.gradcheck(doubled, theta, eps=1 / 512, atol=1e-3, rtol=0, raise_exception=False)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_options_are_those_of_cross_entropy(reduction, smoothing, weighted):
    theta, target = batch()
    target[[2, 5]] = -7
    weight = torch.rand(N, generator=torch.Generator().manual_seed(1), dtype=theta.dtype) if weighted else None
    options = {"reduction": reduction, "weight": weight, "ignore_index": -7, "label_smoothing": smoothing}
    loss = LogLinearLoss(model(), temperature=TEMPERATURE, method=lg.Exhaustive(), **options)
    phi = torch.from_numpy(rows().copy()).double()
    found = []
    for value in (loss(theta, target), functional.cross_entropy(theta @ phi.T / TEMPERATURE, target, **options)):
        found.append((value, *torch.autograd.grad((value * torch.arange(1, 9)).sum(), theta)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not found[0][1][[2, 5]].any()
    assert len(loss.last.rows) == 6


def test_where_all_targets_are_ignored_there_is_nothing_to_average():
    theta, target = batch()
    loss = LogLinearLoss(model(), temperature=TEMPERATURE, reduction="sum")
    assert loss(theta, torch.full_like(target, -100)).item() == 0
    loss.reduction = "mean"
    assert loss(theta, torch.full_like(target, -100)).isnan()


@pytest.mark.parametrize("permuted", [False, True])
def test_the_target_is_in_the_sum_for_certain(permuted: bool):
    """The target holds 98% of the mass: were it sampled like others, losses could be negative. So they are, in the
    control, without the target of each theta and with codes that stand for other rows."""
    theta = torch.tensor(np.repeat(rows()[:20], 20, axis=0)).requires_grad_()
    ids = torch.arange(20).repeat_interleave(20)
    phi = torch.from_numpy(rows().copy())
    temperature, coarse = 0.02, lg.Bounded(rel_err=0.1)
    exact = functional.cross_entropy(theta @ phi.T / temperature, ids, reduction="none").detach()
    index = lg.PartitionIndex.build(rows(), rng=0)
    if permuted:
        sketch = index.coding.sketch
        rng = np.random.default_rng(0)
        held = [np.ascontiguousarray(rng.permutation(codes, axis=2)) for codes in (sketch.codes, sketch.more)]
        for codes in held:
            codes.flags.writeable = False
        sketch, words = sketch._replace(codes=held[0], more=held[1]), np.zeros_like(index.stored.words)
        index.__dict__["stored"] = index.stored._replace(sketch=sketch, words=words)
        kernels.pack_stored(index.stored)
    loss = LogLinearLoss(lg.LogLinear(index), temperature=temperature, method=coarse, reduction="none", rng=1)
    found = loss(theta, ids).detach()
    dist = lg.LogLinear(index)(theta.detach().numpy(), temperature=temperature)
    sampled = -torch.tensor(dist.log_prob(ids.numpy(), method=coarse, rng=1).value)
    assert (found > 0).all() and permuted == (not (sampled > 0).all())
    error = (found - exact).abs().max()
    assert error < (0.1 if permuted else 1e-4), error


def test_biases_are_a_column_more():
    theta, target = batch()
    biases = torch.linspace(-2, 2, N, dtype=torch.float64)
    with_bias = np.column_stack([rows(), biases.numpy()]).astype(np.float32)
    biased = lg.LogLinear(lg.PartitionIndex.build(with_bias, cells=64, rng=0))
    loss = LogLinearLoss(biased, temperature=TEMPERATURE, method=lg.Exhaustive())
    phi = torch.from_numpy(rows().copy()).double()
    dense_loss = functional.cross_entropy(theta @ phi.T / TEMPERATURE + biases, target)
    column = torch.full((len(theta), 1), TEMPERATURE, dtype=theta.dtype)
    torch.testing.assert_close(loss(torch.cat([theta, column], dim=1), target), dense_loss, rtol=1e-5, atol=1e-5)


def test_the_gradient_reaches_an_encoder():
    torch.manual_seed(0)
    encoder = torch.nn.Linear(5, D)
    inputs, target = torch.randn(16, 5), batch(16)[1]
    gradients = []
    for loss in (LogLinearLoss(model(), temperature=TEMPERATURE, method=lg.Exhaustive()), dense):
        encoder.zero_grad()
        loss(encoder(inputs), target).backward()
        gradients.append(encoder.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_second_derivative_is_refused():
    theta, target = batch()
    loss = LogLinearLoss(model(), temperature=TEMPERATURE)
    with pytest.raises(RuntimeError, match=r"only once; .* use the dense loss"):
        torch.autograd.gradgradcheck(lambda theta: loss(theta, target), theta)
    # Behind an encoder the incoming gradient is constant; part of the derivative exists, and must not pass for all.
    encoder = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.Tanh(), torch.nn.Linear(D, D)).double()
    (gradient,) = torch.autograd.grad(loss(encoder(theta), target), encoder[0].weight, create_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        gradient.square().sum().backward()


def test_without_gradients_only_log_z_is_estimated():
    theta, target = batch()
    losses = {}
    for name, given in (("grad", theta), ("detached", theta.detach()), ("no_grad", theta)):
        loss = LogLinearLoss(model(), temperature=TEMPERATURE, method=lg.Exhaustive())
        with torch.set_grad_enabled(name != "no_grad"):
            losses[name] = loss(given, target)
        assert losses[name].requires_grad == (name == "grad")
        assert (loss.last.moments.weighted is not None) == (name == "grad")
    for name in ("detached", "no_grad"):
        torch.testing.assert_close(losses[name], losses["grad"].detach(), rtol=1e-7, atol=0)


def test_one_search_serves_value_and_gradient():
    index = CountingIndex(lg.ExactIndex.build(lg.Features.of(rows())))
    loss = LogLinearLoss(lg.LogLinear(index), temperature=TEMPERATURE, method=lg.UniformTail())
    theta, target = batch()
    loss(theta, target).backward()
    assert (index.calls, index.queries) == (1, len(theta))


@pytest.mark.usefixtures("codes_alone")
def test_the_default_method():
    theta, target = batch(64)
    coarse = lg.LogLinear(lg.PartitionIndex.build(rows(), cells=64, coordinates=(8, 8), rng=0))
    default, same, finer = (
        LogLinearLoss(coarse, temperature=TEMPERATURE, method=method, rng=0)
        for method in (None, lg.Bounded(rel_err=0.05), lg.Bounded(rel_err=0.01))
    )
    assert default(theta, target).item() == same(theta, target).item()
    finer(theta, target)
    assert default.last.rows.mean() < 0.7 * finer.last.rows.mean()
    few = LogLinearLoss(lg.LogLinear.build(rows()), temperature=TEMPERATURE)
    few(theta, target)
    assert few.last.exact
    other = lg.LogLinear(lg.FaissIndex.build(lg.Features.of(rows()), "HNSW16"))
    bare = LogLinearLoss(other, temperature=TEMPERATURE, rng=0)
    tail = LogLinearLoss(other, temperature=TEMPERATURE, method=lg.UniformTail(), rng=0)
    assert bare(theta, target).item() == tail(theta, target).item()


def test_seeds():
    theta, target = batch()
    first, second, other = (LogLinearLoss(model(), temperature=TEMPERATURE, rng=seed) for seed in (0, 0, 1))
    values = [first(theta, target).item() for _ in range(3)]
    torch.manual_seed(5)
    assert [second(theta, target).item() for _ in range(3)] == values
    assert len(set(values)) == 3 and other(theta, target).item() != values[0]


def test_an_empty_batch_and_other_layouts():
    loss = LogLinearLoss(model(), temperature=TEMPERATURE, method=lg.Exhaustive(), reduction="none")
    theta, target = batch()
    nothing = theta[:0]
    assert loss(nothing, target[:0]).shape == (0,)
    strided = theta.detach().T.contiguous().T.requires_grad_()
    assert torch.equal(loss(strided, target.int()), loss(theta, target))
    loss(strided, target).sum().backward()
    assert strided.grad.shape == theta.shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_may_be_part_of_what_is_compiled():
    theta, target = batch()
    plain, compiled = (LogLinearLoss(model(), temperature=TEMPERATURE, rng=0) for _ in range(2))
    compiled = torch.compile(compiled, backend="eager")
    assert [plain(theta, target).item() for _ in range(2)] == [compiled(theta, target).item() for _ in range(2)]


# Bias


def biases(method, temperature: float) -> tuple[float, float]:
    """Of log Z, and of E[phi] as a share of how far rows reach from it: means over 20 thetas of 200 looks each."""
    ids = np.random.default_rng(3).integers(N, size=20)
    theta = torch.tensor(np.repeat(rows()[ids], 200, axis=0)).requires_grad_()
    loss = LogLinearLoss(model(), temperature=temperature, method=method, reduction="none", rng=1)
    losses = loss(theta, torch.full((len(theta),), 11))
    losses.sum().backward()
    assert loss.last.rows.mean() < N / 2, "this is as good as a dense pass, and tests nothing"
    found = temperature * theta.grad.numpy().reshape(20, 200, D).mean(axis=1) + rows()[11]
    log_z, shares = [], []
    for i, loss_i, mean in zip(ids, losses.detach().numpy().reshape(20, 200).mean(axis=1), found, strict=True):
        probabilities = probabilities_of(rows(), rows()[i], temperature)
        exact = probabilities @ rows()
        log_z.append(loss_i + np.log(probabilities[11]))
        shares.append(np.linalg.norm(mean - exact) / np.linalg.norm(rows() - exact, axis=1).max())
    return float(np.mean(log_z)), float(np.mean(shares))


@pytest.mark.parametrize(("rel_err", "temperature"), [(0.05, 0.1), (0.1, 0.2), (0.1, 1.0)])
def test_the_bias_is_small_beside_the_error_asked_for(rel_err, temperature):
    """Stated: on average over thetas log Z, and E[phi] in units of a row's reach, are off by less than rel_err / 4."""
    log_z, mean = biases(lg.Bounded(rel_err=rel_err), temperature)
    assert abs(log_z) < rel_err / 4 and mean < rel_err / 4, (log_z, mean)


@pytest.mark.parametrize("temperature", [0.1, 0.2, 1.0])
def test_without_the_tail_the_bias_is_beyond_that(temperature):
    log_z, mean = biases(lg.TopKOnly(100), temperature)
    assert log_z < -0.1 / 4 and mean > 0.1 / 4, (log_z, mean)


# Negatives


def test_negatives_follow_the_softmax_and_know_their_probability():
    theta, _ = batch(4, dtype=torch.float32)
    drawn = negatives(model(), theta, 20_000, temperature=TEMPERATURE, estimator=lg.Exhaustive(), rng=0)
    assert drawn.ids.shape == drawn.log_propensity.shape == (4, 20_000)
    assert drawn.ids.dtype == torch.int64 and drawn.log_propensity.dtype == theta.dtype
    assert not drawn.log_propensity.requires_grad
    for b in range(4):
        probabilities = probabilities_of(rows(), theta[b].detach(), TEMPERATURE)
        assert chi_square_p(drawn.ids[b], probabilities) > 1e-4
        np.testing.assert_allclose(drawn.log_propensity[b], np.log(probabilities[drawn.ids[b]]), atol=1e-4)
        other = probabilities_of(rows(), theta[b - 1].detach(), TEMPERATURE)
        assert chi_square_p(drawn.ids[b], other) < 1e-10
    again = negatives(model(), theta, 5, temperature=TEMPERATURE, sampler=lg.LazyGumbel(k=300), rng=0)
    assert again.ids.shape == (4, 5)


def test_one_log_z_is_shared_by_the_draws_of_a_theta():
    theta, _ = batch(3, dtype=torch.float64)
    drawn = negatives(model(), theta, 6, temperature=TEMPERATURE, rng=3)
    logits = np.einsum("bd,bkd->bk", theta.detach().numpy(), rows()[drawn.ids]) / TEMPERATURE
    log_z = logits - drawn.log_propensity.numpy()
    assert np.ptp(log_z, axis=1).max() < 1e-5
    exact = np.array([np.log(np.exp(rows() @ t / TEMPERATURE).sum()) for t in theta.detach().numpy()])
    assert 1e-4 < np.abs(log_z[:, 0] - exact).max() < 0.3


def test_sampled_softmax_with_these_negatives_is_right():
    """Rows that have moved since the index was built: Z and the gradient of log Z under the rows as they are now."""
    moved = (rows() + 0.05 * np.random.default_rng(5).normal(size=(N, D))).astype(np.float32)
    now = torch.tensor(moved)
    theta = torch.tensor(rows()[7])
    drawn = negatives(model(), theta.expand(1_000, D), 8, temperature=TEMPERATURE, rng=4)
    probabilities = probabilities_of(moved, theta, TEMPERATURE)
    true_z = np.exp(moved.astype(np.float64) @ rows()[7].astype(np.float64) / TEMPERATURE).sum()
    true_gradient = probabilities @ moved / TEMPERATURE

    def p_values(log_propensity: Tensor) -> tuple[float, float]:
        """That Z is estimated without bias, and that its gradient is, at the worst coordinate."""
        at = theta.expand(1_000, D).clone().requires_grad_()
        logits = torch.einsum("bd,bkd->bk", at, now[drawn.ids]) / TEMPERATURE
        z = torch.logsumexp(logits - log_propensity - np.log(8), dim=1).exp()
        z.sum().backward()
        off = at.grad - z.detach()[:, None] * torch.tensor(true_gradient)
        return mean_p(z.detach().double() / true_z, 1.0), min(mean_p(column, 0.0) for column in off.T)

    z, gradient = p_values(drawn.log_propensity)
    assert z > 1e-4 and gradient > 1e-4 / D
    z, gradient = p_values(torch.full_like(drawn.log_propensity, -np.log(N)))  # as if drawn uniformly
    assert z < 1e-10 and gradient < 1e-10


# Training


class Problem:
    """Theta is linear in the input, and targets were drawn from such a model: convex, with a known optimum."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.inputs = torch.tensor(rng.normal(size=(1_024, 4)), dtype=torch.float32)
        true = torch.tensor(rng.normal(size=(4, D)), dtype=torch.float32) / 2
        logits = self.inputs @ true @ torch.tensor(rows()).T / TEMPERATURE
        noise = torch.tensor(rng.gumbel(size=logits.shape), dtype=torch.float32)
        self.target = (logits + noise).argmax(dim=1)

    def exact(self, weights: Tensor) -> Tensor:
        return dense(self.inputs @ weights, self.target)

    def best(self) -> float:
        weights = torch.zeros(4, D, requires_grad=True)
        optimiser = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimiser.zero_grad()
            loss = self.exact(weights)
            loss.backward()
            return loss

        optimiser.step(closure)
        return self.exact(weights).item()

    def trained(self, model: lg.LogLinear, method) -> float:
        loss = LogLinearLoss(model, temperature=TEMPERATURE, method=method, rng=0)
        weights = torch.zeros(4, D, requires_grad=True)
        optimiser = torch.optim.Adam([weights], lr=0.2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.02, total_iters=80)
        for step in range(80):
            some = slice(128 * step % 1_024, 128 * step % 1_024 + 128)
            optimiser.zero_grad()
            loss(self.inputs[some] @ weights, self.target[some]).backward()
            optimiser.step()
            schedule.step()
        return self.exact(weights.detach()).item()


def test_training_reaches_the_dense_optimum_and_without_the_tail_does_not():
    problem = Problem()
    best = problem.best()
    assert best < np.log(N) - 0.5, "there is nothing to learn"
    for method, reached in ((None, True), (lg.TopKOnly(100), False)):
        final = problem.trained(model(), method)
        assert (final < best + 0.01) == reached, (method, final, best)


# At the door


@pytest.mark.parametrize(
    ("theta", "target", "message"),
    [
        (np.zeros((2, D)), torch.tensor([0, 1]), r"theta must be a tensor, not ndarray: .*as_tensor"),
        (torch.zeros(2, D), [0, 1], r"target must be a tensor, not list"),
        (torch.zeros(2, D, dtype=torch.float16), torch.tensor([0, 1]), r"torch\.float16; .* theta\.float\(\)"),
        (torch.zeros(2, D, dtype=torch.bfloat16), torch.tensor([0, 1]), r"torch\.bfloat16; .* theta\.float\(\)"),
        (torch.zeros(2, D, dtype=torch.int64), torch.tensor([0, 1]), r"theta has dtype torch\.int64"),
        (torch.zeros(2, D, device="meta"), torch.tensor([0, 1]), r"theta is on meta, .* theta\.cpu\(\)"),
        (torch.zeros(2, D), torch.zeros(2, dtype=torch.int64, device="meta"), r"target is on meta"),
        (torch.zeros(D), torch.tensor([0]), rf"theta must have shape \(B, {D}\), not \({D},\)"),
        (torch.zeros(2, 3), torch.tensor([0, 1]), rf"theta has 3 columns, but the features have d = {D}"),
        (torch.full((2, D), torch.nan), torch.tensor([0, 1]), r"theta holds NaN"),
        (torch.zeros(2, D), torch.tensor([0]), r"target must have shape \(2,\), .* not \(1,\)"),
        (torch.zeros(2, D), torch.tensor([[0], [1]]), r"target must have shape \(2,\), .* not \(2, 1\)"),
        (torch.zeros(2, D), torch.tensor([0.0, 1.0]), r"target must hold whole numbers"),
        (torch.zeros(2, D), torch.tensor([0, N]), rf"target holds {N}, but row ids run from 0 to {N - 1}"),
        (torch.zeros(2, D), torch.tensor([-1, 1]), r"target holds -1, "),
    ],
)
def test_what_the_loss_refuses(theta, target, message):
    with pytest.raises(ValueError, match=message):
        LogLinearLoss(model())(theta, target)


def test_what_the_knobs_refuse():
    for knobs, message in (
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"reduction": "average"}, "reduction must be 'mean', 'sum' or 'none', not 'average'"),
        ({"method": lg.LazyGumbel()}, r"method: LazyGumbel\(.*\) cannot estimate"),
        ({"weight": torch.ones(N - 1)}, rf"weight must have shape \({N},\), one for each id, not \({N - 1},\)"),
        ({"weight": torch.full((N,), -1.0)}, "weight must hold finite numbers of at least 0"),
        ({"weight": torch.ones(N, dtype=torch.int64)}, "weight has dtype torch.int64"),
        ({"label_smoothing": 1.0}, "label_smoothing must be less than 1"),
        ({"method": lg.Bounded}, "method: .* cannot estimate"),
    ):
        with pytest.raises(ValueError, match=message):
            LogLinearLoss(model(), **knobs)
    theta = torch.zeros(2, D)
    for ask in (LogLinearLoss, lambda array: negatives(array, theta, 3)):
        with pytest.raises(ValueError, match=r"model must be a LogLinear .*, not ndarray: give LogLinear\.build"):
            ask(rows())
    for arguments, knobs, message in (
        ((theta.half(), 3), {}, "theta has dtype"),
        ((theta, 0), {}, "k must be at least 1"),
        ((theta, 2.5), {}, "k must be a whole number"),
        ((theta, 3), {"estimator": lg.LazyGumbel()}, "estimator: .* cannot estimate"),
        ((theta, 3), {"sampler": lg.UniformTail()}, "it is no Sampler"),
    ):
        with pytest.raises(ValueError, match=message):
            negatives(model(), *arguments, **knobs)


BLOCKED = """
import sys
asked = []
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
import lazygumbel, lazygumbel.cli
print(asked)
try:
    import lazygumbel.torch
except ImportError as error:
    print(asked, error)
"""


def test_without_torch_only_this_door_is_closed_and_it_names_the_cure():
    ran = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True)
    before, after = ran.stdout.splitlines()
    assert before == "[]"
    assert after.startswith("['torch'] ") and after.endswith("pip install 'lazygumbel[torch]'")


# The example


def test_the_example_runs(monkeypatch, capsys, tmp_path):
    path = Path(__file__).parent.parent / "examples" / "characters.py"
    spec = importlib.util.spec_from_file_location("characters", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    names = [f"word{i}" for i in range(N)]
    monkeypatch.setattr(datasets, "glove", lambda: lg.Features.of(rows(), names=names))
    for name, value in (("BATCH", 32), ("HELD_OUT", 64)):
        monkeypatch.setattr(example, name, value)
    arguments = ["--steps", "24", "--rows", "2000", "--model", str(tmp_path / "model")]
    monkeypatch.setattr(sys, "argv", ["characters.py", *arguments, "--json", "--figure", str(tmp_path / "curves.svg")])
    example.main()
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 2_000 and report["lazygumbel"]["curve"][-1][0] == 24
    assert set(report["lazygumbel"]["labels"]) <= {"bounded", "exact"}
    assert report["lazygumbel"]["curve"][0][2] == report["dense"]["curve"][0][2]
    for name in ("lazygumbel", "dense"):
        assert report[name]["log_likelihood"] > report[name]["curve"][0][2] + 0.1
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    monkeypatch.setattr(sys, "argv", ["characters.py", *arguments])
    example.main()
    assert "2,000 words, 24 steps of 32 words" in capsys.readouterr().out
