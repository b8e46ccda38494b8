"""`check_method`: what every sampler and estimator must satisfy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.distribution import Distribution
from lazygumbel.indexes import ExactIndex, Index
from lazygumbel.methods import Estimator, Normaliser, OrderedSampler, Sampler
from lazygumbel.results import Draws, Estimate, OrderedDraws, Result
from lazygumbel.rows.features import Features
from lazygumbel.testing.cases import TEMPERATURES, Case, cases
from lazygumbel.testing.statistics import LIMIT, of_ids, of_means, of_values

__all__ = ["check_method"]


_EACH, _SUMS = 10, 100
"""Draws of each copy of a theta; copies of a theta for sums."""
_JUDGED = 1e-3
"""Draws with a larger bound may be too far from the softmax to be told from wrong ones by their number."""
_ROUNDING = 1e-5
"""Of float32 logits, in units of the largest."""


def check_method(
    method: object,
    *,
    build: Callable[[Features], Index] = ExactIndex.build,
    draws: int = 2_000,
    rng: np.random.Generator | int = 0,
) -> None:
    """Raise `AssertionError` unless `method` keeps the contract of each protocol of `lazygumbel.methods` that it has.

    It is asked over indexes that `build` makes, of some hundred rows and of fewer: rows of varied norm, equal rows,
    rows of zeros, one row; theta of zeros, one row far above the rest; nothing excluded, the best rows, all but one;
    temperatures from 1e-3 to 1e6. Checked on values, against the exact softmax in float64: that excluded rows are never
    drawn; that draws and sums which are labelled exact, bounded or calibrated follow the softmax, by chi square, and
    their values Gumbel(log Z); draws without replacement Plackett-Luce; that sums are as accurate as they state and as
    their bound allows; log-probabilities at most zero; shapes of every batch; that a seed gives the same answer and
    another one another; that each theta has a label with the bound that belongs to it. Draws labelled heuristic may
    follow another law. A control makes sure that a law which is slightly wrong would have been noticed.
    """
    kinds = [kind for kind in (Sampler, OrderedSampler, Estimator, Normaliser) if isinstance(method, kind)]
    _demand(bool(kinds), f"{method!r} is no Sampler, OrderedSampler, Estimator or Normaliser")
    seed = int(np.random.default_rng(rng).integers(2**31))
    for number, case in enumerate(cases()):
        index = build(Features.of(case.rows))
        for temperature in TEMPERATURES:
            asked = _MethodAtCase(method, index, case, temperature, draws, seed)
            try:
                asked.check(first=number == 0 and temperature == 1.0)
            except AssertionError as error:
                raise AssertionError(f"{method!r}, {case.name}, temperature {temperature:g}: {error}") from None


class _MethodAtCase:
    """One method at one case."""

    def __init__(self, method: Any, index: Index, case: Case, temperature: float, draws: int, seed: int) -> None:
        self.method, self.index, self.case, self.temperature = method, index, case, temperature
        self.draws, self.seed = draws, seed
        self.truth, self.log_z = case.probabilities(temperature), case.log_z(temperature)
        self.logits = case.logits(temperature)
        largest = float(np.abs(self.logits[np.isfinite(self.logits)]).max())
        self.rounding = _ROUNDING * (1 + largest)

    def check(self, *, first: bool) -> None:
        """All of it; shapes, seeds and the control once."""
        if isinstance(self.method, Sampler):
            self.check_draws(control=first)
        if isinstance(self.method, OrderedSampler):
            self.check_ordered()
        if isinstance(self.method, Estimator):
            self.check_sums()
        elif isinstance(self.method, Normaliser):
            self.check_log_z(self.at(_SUMS).log_partition(method=self.method, rng=self.seed, exclude=self.out))
        if first:
            self.check_shapes()
            self.check_seeds()

    @property
    def out(self) -> Any:
        return self.case.excluded if len(self.case.excluded) else None

    def at(self, copies: int | None) -> Distribution:
        """The distribution at as many copies of theta: each is one replication."""
        theta = self.case.theta if copies is None else np.tile(self.case.theta, (copies, 1))
        return Distribution(self.index, theta, self.temperature)

    def check_draws(self, *, control: bool) -> None:
        given: dict[str, Any] = {"method": self.method, "rng": self.seed, "exclude": self.out}
        few = self.at(2).sample(_EACH, **given)
        copies = self.draws // _EACH if self.judged(few) else 2
        drawn = self.at(copies).sample(_EACH, **given)
        _check_record(drawn, (copies,))
        self.check_rows(drawn.ids)
        _demand(bool(np.isfinite(drawn.values).all()), "a value of a draw is not finite")
        _demand(drawn.violations.shape == (copies,), f"violations have shape {drawn.violations.shape}")
        if self.judged(drawn):
            self.check_law(drawn.ids, self.truth, "draws")
            _demand(of_values(drawn.values, self.log_z) < LIMIT, "values are not Gumbel with location log Z")
            tilted = self.truth**2 / (self.truth**2).sum()
            if control and of_ids(drawn.ids.reshape(-1), tilted) < LIMIT:
                raise AssertionError(f"{self.draws} draws are too few to tell a wrong law; ask for more")

    def check_ordered(self) -> None:
        size = min(2, self.case.left)
        given: dict[str, Any] = {"method": self.method, "rng": self.seed, "exclude": self.out}
        few = self.at(2).sample_without_replacement(size, **given)
        copies = self.draws // _EACH * 2 if self.judged(few) else 2
        drawn = self.at(copies).sample_without_replacement(size, **given)
        self.check_order(drawn, copies)
        if not self.judged(drawn):
            return
        self.check_law(drawn.ids[0], self.truth, "first rows")
        _demand(of_values(drawn.values[0], self.log_z) < LIMIT, "first values are not Gumbel with location log Z")
        likeliest = int(self.truth.argmax())
        second = drawn.ids[-1][drawn.ids[0] == likeliest]
        if size == 2 and len(second) > 100:
            rest = self.logits.copy()
            rest[likeliest] = -np.inf
            self.check_law(second, np.exp(rest - np.logaddexp.reduce(rest)), "second rows")

    def check_order(self, drawn: OrderedDraws, copies: int) -> None:
        _check_record(drawn, (copies,))
        self.check_rows(drawn.ids)
        size = len(drawn.ids)
        _demand(size == 1 or bool((drawn.ids[0] != drawn.ids[-1]).all()), "a row is drawn twice without replacement")
        _demand(bool((drawn.values[0] >= drawn.values[-1]).all()), "values do not fall in the order of drawing")
        _demand(bool((drawn.threshold <= drawn.values[-1]).all()), "the threshold lies above a row that was drawn")
        none_left = bool((np.isneginf(drawn.threshold) == (self.case.left == size)).all())
        _demand(none_left, "the threshold is minus infinity where, and only where, nothing was left out")
        error = np.abs(drawn.logits - self.logits[drawn.ids]).max()
        _demand(bool(error <= self.rounding), "logits are not theta . phi / temperature")

    def check_sums(self) -> None:
        at = self.at(_SUMS)
        given: dict[str, Any] = {"method": self.method, "rng": self.seed, "exclude": self.out}
        self.check_log_z(at.log_partition(**given))
        mean = at.expectation(**given)
        longest = max(float(np.linalg.norm(self.case.rows, axis=1).max()), 1e-30)
        self.check_error(mean, (mean.value - self.truth @ self.case.rows.astype(np.float64)) / longest, longest)
        _check_record(mean, (_SUMS,))
        entropy = at.entropy(**given)
        positive = self.truth[self.truth > 0]
        self.check_error(entropy, entropy.value + positive @ np.log(positive))
        asked = np.tile(np.argsort(-self.truth)[:3, None], (1, _SUMS))
        told = at.log_prob(asked, **given)
        _demand(bool((told.value <= 0.0).all()), "a log-probability is above zero")
        _demand(
            bool((np.isneginf(told.value) == np.isin(asked, self.case.excluded)).all()),
            "log-probabilities are minus infinity for excluded rows, and for no others",
        )

    def check_log_z(self, found: Estimate) -> None:
        _check_record(found, (_SUMS,))
        error = found.value - self.log_z
        self.check_error(found, error)
        if self.claimed(found):
            relative = np.expm1(np.minimum(error, 50.0))
            _demand(of_means(relative, self.rounding) < LIMIT, f"Z is biased: it is off by {relative.mean():.3g}")

    def check_error(self, found: Estimate, error: Floats, unit: float = 1.0) -> None:
        """Errors are what is stated and what is allowed, root mean square over replications, up to rounding."""
        stated = found.stderr.reshape(_SUMS, -1) / unit
        errors = error.reshape(_SUMS, -1)
        _demand(bool((found.stderr >= 0).all()), "a standard error is negative, or not a number")
        if not self.claimed(found):
            return
        root = float(np.sqrt(np.square(errors).sum(axis=1).mean()))
        said = float(np.sqrt(np.square(stated).sum(axis=1).mean()))
        _demand(root <= 1.5 * said + self.rounding, f"the error is {root:.3g}, but {said:.3g} is stated")
        allowed = float(np.sqrt(np.square(found.bound).mean()))
        _demand(
            np.isnan(allowed) or root <= 1.5 * allowed + self.rounding,
            f"the error is {root:.3g}, but the bound is {allowed:.3g}",
        )

    def check_rows(self, ids: Ints) -> None:
        _demand(ids.dtype == np.int64, f"ids are {ids.dtype}, not int64")
        _demand(bool(((ids >= 0) & (ids < len(self.case.rows))).all()), "an id is out of range")
        _demand(not np.isin(ids, self.case.excluded).any(), "an excluded row was drawn")

    def check_law(self, ids: Ints, law: Floats, what: str) -> None:
        off = of_ids(ids.reshape(-1), law)
        _demand(off < LIMIT, f"{what} do not follow the softmax: chi square is {off:.1f} standard deviations off")

    def judged(self, drawn: Draws | OrderedDraws) -> bool:
        """Whether draws claim to be so near the softmax that they can be told from wrong ones."""
        return self.claimed(drawn) and not (drawn.bound > _JUDGED).any()

    @staticmethod
    def claimed(found: Result) -> bool:
        return found.label != "heuristic"

    def check_shapes(self) -> None:
        """Of no theta, one, and several; of no draws, one, and several."""
        d = len(self.case.theta)
        for batch in ((), (0,), (1,), (3,)):
            at = Distribution(self.index, np.ones((*batch, d), np.float32), self.temperature)
            given: dict[str, Any] = {"method": self.method, "rng": self.seed}
            found: list[tuple[Result, tuple[int, ...], Floats | Ints]] = []
            if isinstance(self.method, Sampler):
                for size in ((), (0,), (1,), (2, 3)):
                    drawn = at.sample(size, **given)
                    found += [(drawn, size + batch, drawn.ids), (drawn, size + batch, drawn.values)]
            if isinstance(self.method, OrderedSampler):
                ordered = at.sample_without_replacement(4, **given)
                found += [(ordered, (4, *batch), ordered.ids), (ordered, batch, ordered.threshold)]
            if isinstance(self.method, Estimator):
                mean = at.expectation(**given)
                found += [(mean, (*batch, d), mean.value), (mean, (*batch, d), mean.stderr)]
            if isinstance(self.method, Estimator | Normaliser):
                log_z = at.log_partition(**given)
                found += [(log_z, batch, log_z.value), (log_z, batch, log_z.stderr)]
            for result, shape, values in found:
                _demand(values.shape == shape, f"an array has shape {values.shape}, not {shape}")
                _check_record(result, batch)

    def check_seeds(self) -> None:
        """A seed repeats an answer; another one gives another, unless nothing is random."""
        asks: list[Callable[[int], Any]] = []
        at = self.at(3)
        if isinstance(self.method, Sampler):
            asks.append(lambda seed: at.sample(50, method=self.method, rng=seed))
        if isinstance(self.method, OrderedSampler):
            asks.append(lambda seed: at.sample_without_replacement(20, method=self.method, rng=seed))
        for ask in asks:
            one, again, other = ask(self.seed), ask(self.seed), ask(self.seed + 1)
            same = np.array_equal(one.ids, again.ids) and np.array_equal(one.values, again.values)
            _demand(same, "the same seed gives another answer")
            _demand(not np.array_equal(one.ids, other.ids), "another seed gives the same draws")
            if one.label != "heuristic":
                alike = np.array_equal(one.ids[:, 0], one.ids[:, 1])
                _demand(not alike, "two thetas of a batch are given the same random numbers")
        if isinstance(self.method, Estimator | Normaliser):
            one, again = (at.log_partition(method=self.method, rng=self.seed).value for _ in range(2))
            _demand(np.array_equal(one, again), "the same seed gives another estimate")


def _check_record(found: Result, batch: tuple[int, ...]) -> None:
    """What is said of each theta is complete, and does not contradict itself."""
    for name in ("rows", "labels", "reasons", "bound"):
        shape = getattr(found, name).shape
        _demand(shape == batch, f"{name} have shape {shape}, not {batch}")
    _demand(bool((found.rows >= 0).all()), "fewer than no rows are reported as scored")
    exact, bounded = found.labels == "exact", found.labels == "bounded"
    _demand(bool(((found.bound == 0.0) == exact).all()), "a bound of zero belongs to exact answers, and to them alone")
    _demand(bool((found.bound[bounded] > 0.0).all()), "a theta labelled bounded has no bound")
    if isinstance(found, Estimate) and exact.any():
        stderr = found.stderr.reshape(*batch, -1)
        _demand(not stderr[exact].any(), "an exact estimate states an error")


def _demand(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
