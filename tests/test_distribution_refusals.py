"""What a `Distribution` refuses, by the name of the argument."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from distribution_helpers import THETAS, D, N, exact_model, raced_model
from lazygumbel import (
    Bounded,
    Distribution,
    ExactIndex,
    Exhaustive,
    FixedCutoff,
    Frozen,
    LazyGumbel,
    LogLinear,
    PartitionIndex,
    TopKOnly,
    UniformTail,
)
from statistics_helpers import make_rows

Ask = Callable[[Distribution], object]


@pytest.fixture(scope="module", params=["exact", "partition"])
def model(request: pytest.FixtureRequest) -> LogLinear:
    return exact_model() if request.param == "exact" else raced_model()


# Refusals


@pytest.mark.parametrize(
    ("theta", "name"),
    [
        ([np.nan] * D, "theta"),
        ([np.inf] * D, "theta"),
        ([1e39] * D, "theta"),
        (np.ones(D + 1), "theta"),
        (np.ones((2, D - 1)), "theta"),
        (np.ones((1, 1, D)), "theta"),
        (1.0, "theta"),
        ([], "theta"),
        (np.ones(D) * 1j, "theta"),
        (["a"] * D, "theta"),
        ("theta.npy", "theta"),
        (None, "theta"),
        (np.ones(D, dtype=np.bool_), "theta"),
    ],
)
def test_bad_thetas_are_refused(model: LogLinear, theta: npt.ArrayLike, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        model(theta)


@pytest.mark.parametrize("index", [ExactIndex, PartitionIndex])
def test_logits_that_overflow_are_refused(index) -> None:
    model = LogLinear(index.build(make_rows(300, 4)))
    theta = model.features.gather(0)
    for scale, temperature in ((1.0, 1e-38), (1e30, 1e-8), (3e38, 1.0)):
        with pytest.raises(
            ValueError, match=r"theta has norm \S+: with these rows and this temperature, logits overflow"
        ):
            model(np.stack([theta, theta * np.float32(scale)]), temperature=temperature)
    with pytest.raises(ValueError, match=r"temperature must be at least 1e-300, not 9\.99989e-321"):
        model(theta, temperature=1e-320)
    with pytest.raises(ValueError, match="queries has norm"):
        model.index.top_k(theta * np.float32(3e38), 1)
    for scale, temperature in ((1.0, 1e-36), (1e30, 1e-6), (1e-40, 1e-41), (1e36, 1.0)):  # control
        dist = model(theta * np.float32(scale), temperature=temperature)
        assert np.isfinite(dist.log_partition(rng=0).value) and dist.sample(rng=0).ids[0] < 300


@pytest.mark.parametrize("temperature", [0, 0.0, -1.0, np.nan, np.inf, "warm", None, True, 1j, [1.0]])
def test_bad_temperatures_are_refused(model: LogLinear, temperature) -> None:
    with pytest.raises(ValueError, match="temperature"):
        model(THETAS, temperature=temperature)


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda d: d.sample(-1), "size"),
        (lambda d: d.sample(2.0), "size"),
        (lambda d: d.sample(True), "size"),
        (lambda d: d.sample((2, -1)), "size"),
        (lambda d: d.sample([2, 3]), "size"),
        (lambda d: d.sample("two"), "size"),
        (lambda d: d.sample(None), "size"),
        (lambda d: d.sample_without_replacement(0), "size"),
        (lambda d: d.sample_without_replacement(2.5), "size"),
        (lambda d: d.sample_without_replacement(N + 1), "size"),
        (lambda d: d.sample_without_replacement(N, exclude=[3]), "size"),
        (lambda d: d.top_k(0), "k must"),
        (lambda d: d.top_k(2.0), "k must"),
        (lambda d: d.top_k(0, exclude=[1]), "k must"),
        (lambda d: d.log_prob(np.full(4, N)), "ids"),
        (lambda d: d.log_prob(np.full(4, -1)), "ids"),
        (lambda d: d.log_prob(np.full(4, 1.0)), "ids"),
        (lambda d: d.log_prob(["a"] * 4), "ids"),
        (lambda d: d.log_prob([1, 2, 3]), "ids"),
        (lambda d: d.log_prob(5), "ids"),
        (lambda d: d.log_prob(np.zeros((4, 2), dtype=int)), "ids"),
        (lambda d: d.log_partition(rel_err=0.0), "rel_err"),
        (lambda d: d.log_partition(rel_err=-1), "rel_err"),
        (lambda d: d.log_partition(rel_err=2.0), "rel_err"),
        (lambda d: d.log_partition(rel_err=np.nan), "rel_err"),
        (lambda d: d.log_partition(rel_err="low"), "rel_err"),
        (lambda d: d.log_partition(rel_err=0.1, method=UniformTail()), "rel_err"),
        (lambda d: d.log_partition(rel_err=0.1, method=Frozen(4)), "rel_err"),
        (lambda d: d.expectation(rel_err=0.1, method=UniformTail()), "rel_err"),
        (lambda d: d.entropy(rel_err=0.1, method=Exhaustive()), "rel_err"),
        (lambda d: d.log_prob([1, 2, 3, 4], rel_err=0.1, method=Exhaustive()), "rel_err"),
        (lambda d: d.entropy(rel_err=-1), "rel_err"),
        (lambda d: d.expectation(lambda _: 1.0), r"f must.*\(\)"),
        (lambda d: d.expectation(lambda ids: ids[:-1]), "f must"),
        (lambda d: d.expectation(lambda ids: np.ones((2, len(ids)))), "f must"),
        (lambda d: d.expectation(lambda ids: np.ones((len(ids), 2, 2))), "f must"),
        (lambda d: d.expectation(lambda ids: ids * 1j), "f must"),
        (lambda d: d.expectation(lambda ids: ids.astype(str)), "f must"),
        (lambda d: d.expectation(lambda _: [[1.0], [2.0, 3.0]]), "f must"),
        (lambda d: d.expectation(lambda _: None), "f must"),
    ],
)
def test_bad_questions_are_refused_by_name(model: LogLinear, ask: Ask, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ask(model(THETAS))


@pytest.mark.parametrize(
    ("method", "questions"),
    [
        (LazyGumbel(), ["log_partition", "expectation", "entropy", "log_prob"]),
        (FixedCutoff(), ["log_partition", "expectation", "entropy", "log_prob", "sample_without_replacement"]),
        (UniformTail(), ["sample", "sample_without_replacement"]),
        (Bounded, ["sample", "log_partition", "expectation", "entropy", "sample_without_replacement"]),
        (TopKOnly(5), ["sample_without_replacement"]),
        (Frozen(3), ["expectation", "entropy", "log_prob", "sample_without_replacement"]),
        (Frozen, ["log_partition", "sample"]),
        (Exhaustive, ["sample", "log_partition", "expectation", "entropy", "sample_without_replacement"]),
        (LazyGumbel, ["sample", "sample_without_replacement"]),
        ("exhaustive", ["sample", "log_partition", "expectation", "entropy", "sample_without_replacement"]),
    ],
)
def test_methods_without_the_capability_are_refused(model: LogLinear, method, questions: list[str]) -> None:
    dist = model(THETAS[0])
    for question in questions:
        arguments = {"log_prob": (3,), "sample": (2,), "sample_without_replacement": (2,)}.get(question, ())
        with pytest.raises(ValueError, match="method"):
            getattr(dist, question)(*arguments, method=method)


@pytest.mark.parametrize(
    "exclude",
    [
        np.ones(N, dtype=np.bool_),
        np.arange(N),
        np.zeros(N - 1, dtype=np.bool_),
        np.zeros(N + 1, dtype=np.bool_),
        [N],
        [-1],
        [0.5],
        ["a"],
        3,
        "all",
        [[1], [2], [3]],
        [[1], [2], [3], [4], [5]],
        np.zeros((3, N), dtype=np.bool_),
        np.zeros((4, N - 1), dtype=np.bool_),
        np.zeros((1, 4, N), dtype=np.bool_),
        [np.arange(N), [1], [2], [3]],
        [[1], [2], [3], [N]],
        [[1], [2], [3], 4],
        [[1], [2], [3], [[4], [5, 6]]],
    ],
)
def test_bad_exclusions_are_refused(model: LogLinear, exclude) -> None:
    dist = model(THETAS)
    for ask in (
        lambda: dist.sample(1, exclude=exclude),
        lambda: dist.log_partition(exclude=exclude),
        lambda: dist.top_k(2, exclude=exclude),
    ):
        with pytest.raises(ValueError, match="exclude"):
            ask()


def test_one_theta_takes_one_set_of_exclusions(model: LogLinear) -> None:
    for exclude in ([[1, 2]], [[1], [2, 3]], np.zeros((1, N), dtype=np.bool_)):
        with pytest.raises(ValueError, match="exclude"):
            model(THETAS[0]).sample(1, exclude=exclude)
    assert model(THETAS[:1]).sample(1, exclude=[[1, 2]], rng=0).ids.shape == (1, 1)


def test_bad_exclusions_do_not_stop_at_the_first_theta(model: LogLinear) -> None:
    """An exclusion that leaves a row for one theta and none for another is refused as well."""
    everything = np.zeros((4, N), dtype=np.bool_)
    everything[3] = True
    with pytest.raises(ValueError, match="exclude leaves no row"):
        model(THETAS).log_partition(exclude=everything)
