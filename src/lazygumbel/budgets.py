"""The paper's theorems as functions: how large must the head k and the tail l be.

n rows, failure probability delta, relative error rel_err, and the gap c of an approximate top k (in logits; 0 when
exact): no tail logit exceeds the smallest head logit by more than c. Each function implements what the proof supports,
which is not always what the text states; the docstrings say where they part.
"""

from math import ceil, exp, inf, log, sqrt

from lazygumbel._support.checks import check_count, check_number

__all__ = [
    "expectation_budget",
    "partition_budget",
    "partition_failure",
    "sampling_budget",
    "sampling_failure",
    "tail_work",
]


def tail_work(n: int, k: int, *, gap: float = 0.0) -> float:
    """Bound on the expected number of tail rows of Algorithm 1 (Theorem 3.2): n e^c / k.

    m given M is Binomial(n - k, 1 - exp(-e^(S_min + c - M))), of mean at most n e^(S_min + c - M). M is at least S_min
    + max of k Gumbels = S_min + ln k + G, so the mean is at most (n e^c / k) E[e^-G], and e^-G is a standard
    exponential.
    """
    return n * _exp(gap) / k


def sampling_failure(n: int, k: int, l: int, *, gap: float = 0.0) -> float:  # noqa: E741  # the paper's name
    """Bound on the failure probability of Algorithm 2 (Theorem 3.3): exp(-(k l / n) e^-c).

    A row that is not looked at has logit at most S_min + c and Gumbel at most B; some head row has logit at least
    S_min and the largest of k Gumbels, ln k + G. So failure needs ln k + G < B + c, that is e^-G > k e^-c (-ln(1 -
    l/n)) >= k l e^-c / n.
    """
    return exp(-k * l / n * exp(-gap))


def sampling_budget(n: int, delta: float, *, gap: float = 0.0) -> int:
    """k = l for Algorithm 2 to fail with probability at most delta: sqrt(n ln(1/delta)) e^(c/2), at most n."""
    _check(n, delta, gap)
    return _at_most(n, sqrt(n * -log(delta)) * _exp(gap / 2))


def partition_failure(n: int, k: int, l: int, rel_err: float, *, gap: float = 0.0) -> float:  # noqa: E741  # the paper's name
    """Bound on Pr(|Z_hat - Z| > rel_err Z) for Algorithm 3: 2 exp(-8 e^2 / (2 + e)^2 * k l e^-c / n), with e = rel_err.

    The tail is l draws of Q in [0, 1] (logit weights over their maximum r) with mean mu; the head holds at least k r
    e^-c, so an error of e Z is a deviation of at least a = e (mu + q) with q = k e^-c / n. The paper applies the
    Chernoff bound 2 exp(-a^2 l / (3 mu)), which holds only for a <= mu, drops to (mu + q)^2 / mu >= 2 q where 4 q
    holds, and then states 2/3 and ln(1/delta) where its own last line needs 3/2 and ln(2/delta). The bound that holds
    for every deviation is exp(-l a^2 / (2 mu + a)) above and exp(-l a^2 / (2 mu)) below. The first is weakest at mu =
    q (2 - e) / (2 + e), where it is exp(-8 e^2 / (2 + e)^2 l q); the second is never weaker. For e -> 0 this is 2
    exp(-2 e^2 k l e^-c / n).
    """
    return min(1.0, 2 * exp(-8 * rel_err**2 / (2 + rel_err) ** 2 * k * l * exp(-gap) / n))


def partition_budget(n: int, rel_err: float, delta: float, *, gap: float = 0.0) -> int:
    """k = l for Algorithm 3 to be within rel_err of Z with probability at least 1 - delta, at most n.

    k l >= n e^c (2 + e)^2 / (8 e^2) ln(2/delta); see `partition_failure` for the derivation. Corrects Theorem 3.4.
    """
    _check(n, delta, gap)
    check_number(rel_err, "rel_err", above=0.0, below=2.0)
    return _at_most(n, sqrt(n / 8 * (log(2) - log(delta))) * (2 / rel_err + 1) * _exp(gap / 2))


def expectation_budget(n: int, rel_err: float, delta: float, *, gap: float = 0.0) -> int:
    """k = l for Algorithm 4 to be within rel_err * C of E[f], |f| <= C, with probability at least 1 - delta, at most n.

    Theorem 3.5 (whose "with probability delta" means 1 - delta) splits the error in two halves, each allowed rel_err /
    2 and delta / 2. The first is Z within rel_err / 2 of its value: `partition_budget` at those figures, in place of
    the paper's restatement of Theorem 3.4. The second is Hoeffding for draws in [-1, 1], since a tail row has
    probability at most e^c / k: k^2 l >= (8 n^2 e^(2c) / rel_err^2) ln(4/delta), as stated. For vector-valued f this
    holds for each component on its own.
    """
    _check(n, delta, gap)
    check_number(rel_err, "rel_err", above=0.0, below=2.0)
    first = partition_budget(n, rel_err / 2, delta / 2, gap=gap)
    second = (8 * n**2 * (log(4) - log(delta))) ** (1 / 3) * (1 / rel_err) ** (2 / 3) * _exp(2 * gap / 3)
    return max(first, _at_most(n, second))


def _check(n: int, delta: float, gap: float) -> None:
    check_count(n, "n")
    check_number(delta, "delta", above=0.0, below=1.0)
    check_number(gap, "gap", least=0.0)


def _exp(gap: float) -> float:
    """e^gap; infinity where that overflows, so that the budget is n."""
    return exp(gap) if gap < 700 else inf


def _at_most(n: int, needed: float) -> int:
    return n if needed >= n else ceil(needed)
