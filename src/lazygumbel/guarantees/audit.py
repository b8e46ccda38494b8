"""How accurate is a method for a given theta? Closed forms that need all logits: an audit, not a query.

The winner of Gumbel-max is row i with probability p_i, and its perturbed value V is Gumbel(log Z), independent of i. A
lazy sampler is right unless the winner was not looked at; that *miss probability* bounds the total variation distance
to the softmax. Each method has its own (`Headed.accuracy`); races are told by their ceilings (`Raced`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lazygumbel._support.arrays import Floats, Ints, Mask
from lazygumbel.methods import Headed, Query, Raced, Sampler
from lazygumbel.methods.draw import log_sum_exp
from lazygumbel.methods.head import Head, find_heads
from lazygumbel.results import Draws, Labels, make_frame

__all__ = ["Audit", "audit", "race_distance"]


@dataclass(frozen=True, eq=False)
class Audit:
    """Accuracy of one method, theta by theta; each array has shape (B,)."""

    method: str
    temperature: float
    k: int
    """Size of the head; zero for a race with ceilings, which has none."""
    miss: Floats
    """Total variation distance of a race with ceilings; else the probability that the true winner is not looked at,
    which bounds it."""
    bound: Floats
    """What the race's theorem, or the paper's, allows the same; NaN where none applies."""
    gap: Floats
    """Largest logit outside the head minus the smallest inside: the c of Definition 3.1; -inf with nothing outside."""
    recall: Floats
    """Share of the true top k that the index found."""
    head_mass: Floats
    """Probability of the head."""
    labels: Labels
    """What draws at each theta are labelled."""
    reasons: Labels
    """Why."""
    violations: Ints
    """Rows whose logit exceeds its ceiling, of all rows; zero for methods without ceilings."""

    @classmethod
    def of_race(cls, method: str, temperature: float, distance: Floats, drawn: Draws, violations: Ints) -> "Audit":
        """Of distances and violations, (B,), with the claims of draws."""
        unknown = np.full(len(distance), np.nan)
        claims = drawn.bound, unknown, unknown, unknown, drawn.labels, drawn.reasons
        return cls(method, temperature, 0, distance, *claims, violations)

    @property
    def ceilings(self) -> bool:
        """Whether the method has ceilings in place of a head."""
        return self.k == 0

    def summary(self) -> dict[str, float | None]:
        """Mean of every column and maximum of the error columns; None where a column does not apply."""
        means = {
            "miss": self.miss,
            "bound": self.bound,
            "gap": self.gap,
            "recall": self.recall,
            "head_mass": self.head_mass,
        }
        shown = {name: float(values.mean()) for name, values in means.items()}
        shown |= {f"max_{name}": float(means[name].max()) for name in ("miss", "bound", "gap")}
        return {name: value if np.isfinite(value) else None for name, value in shown.items()}

    def to_frame(self, library: str | None = None) -> Any:
        """A table with a line a theta: of pandas, or of polars where only that is installed."""
        names = ("miss", "bound", "gap", "recall", "head_mass", "violations", "labels", "reasons")
        columns = {name.removesuffix("s") if name in names[-2:] else name: getattr(self, name) for name in names}
        return make_frame({"theta": np.arange(len(self.miss)), **columns}, library)

    def __str__(self) -> str:
        head = "" if self.ceilings else f", head k = {self.k}"
        lines = [f"{self.method} at temperature {self.temperature:g}{head}, {len(self.miss)} thetas"]
        lines.append(f"{'':24}{'mean':>12}{'95%':>12}{'max':>12}")
        for name, values in (
            ("total variation" if self.ceilings else "miss probability", self.miss),
            ("bound of the theorem" if self.ceilings else "the paper's bound", self.bound),
            ("gap c (logits)", self.gap),
            ("recall of the top k", self.recall),
            ("mass of the head", self.head_mass),
            ("ceilings too low", self.violations),
        ):
            if len(values) and np.isfinite(values).all() and (name != "ceilings too low" or self.ceilings):
                shown = (values.mean(), np.quantile(values, 0.95), values.max())
                lines.append(f"{name:24}" + "".join(f"{v:12.3g}" for v in shown))
        counts = zip(*np.unique(self.labels, return_counts=True), strict=True)
        lines.append("labels: " + ", ".join(f"{count} {label}" for label, count in counts))
        return "\n".join(lines)


def audit(query: Query, method: Sampler) -> Audit:
    """Audit a sampler with a closed form: one that is `Headed` or `Raced`."""
    if isinstance(method, type) or not isinstance(method, Headed | Raced):
        raise ValueError(f"method: no closed form is known for the miss probability of {method!r}")
    if not isinstance(method, Headed):
        return _audit_race(query, method)
    k = min(method.head_size(query.features.n), query.features.n)
    heads = find_heads(query, k)
    rows = [_audit_one(query.at(slice(b, b + 1)), method, head, k) for b, head in enumerate(heads)]
    miss, bound, gap, recall, mass = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    drawn = method.sample(query, 1, np.random.default_rng(0))
    none = np.zeros(query.size, dtype=np.int64)
    facts = miss, bound, gap, recall, mass, drawn.labels, drawn.reasons, none
    return Audit(repr(method), query.temperature, k, *facts)


def race_distance(logits: Floats, ceilings: Floats) -> float:
    """Total variation distance of a race: a row with too low a ceiling is drawn as if its logit were the ceiling."""
    log_z, lowered = log_sum_exp(logits), np.minimum(logits, ceilings)
    drawn = np.exp(lowered - log_sum_exp(lowered))
    return float(np.maximum(np.exp(logits - log_z) - drawn, 0.0).sum())


def _audit_race(query: Query, method: Raced) -> Audit:
    """A theta that gets a dense pass, as its label says, has no distance."""
    drawn = method.sample(query, 1, np.random.default_rng(0))
    miss, violations = np.zeros(query.size), np.zeros(query.size, dtype=np.int64)
    for b in range(query.size):
        one = query.at(slice(b, b + 1))
        logits, ceilings = _all_logits(one), method.ceilings(one, b)
        if drawn.labels[b] != "exact":
            miss[b] = race_distance(logits, ceilings)
            violations[b] = int((logits > ceilings).sum())
    return Audit.of_race(repr(method), query.temperature, miss, drawn, violations)


def _all_logits(query: Query) -> Floats:
    """Logits of the first theta, by id."""
    logits = np.empty(query.features.n)
    for block in query.dense():
        logits[block.ids] = block.logits[0]
    return logits


def _head_facts(logits: Floats, chosen: Mask, k: int) -> tuple[float, float, float]:
    """Gap, recall of the true top k, and mass of the head; a head of no rows has mass zero and nothing else."""
    if not chosen.any():
        return np.nan, np.nan, 0.0
    gap = float(logits[~chosen].max(initial=-np.inf) - logits[chosen].min())
    kth = np.partition(logits, len(logits) - k)[len(logits) - k]
    # Rows that tie, up to rounding, serve equally well.
    slack = 8 * np.finfo(np.float32).eps * np.abs(logits[np.isfinite(logits)]).max()
    recall = min(1.0, float((logits[chosen] >= kth - slack).sum() / k))
    mass = float(np.exp(log_sum_exp(logits[chosen]) - log_sum_exp(logits)))
    return gap, recall, mass


def _audit_one(query: Query, method: Headed, head: Head, k: int) -> tuple[float, float, float, float, float]:
    logits = _all_logits(query)
    chosen = np.zeros(len(logits), dtype=np.bool_)
    chosen[head.ids] = True
    miss, bound = method.accuracy(logits, chosen, head.floor)
    return miss, bound, *_head_facts(logits, chosen, min(k, query.left(0)))
