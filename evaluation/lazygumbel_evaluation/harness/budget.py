"""`Budget`: how much of each experiment is done. The defaults are the full run."""

from dataclasses import dataclass, replace

from lazygumbel_evaluation.harness.clock import Pace

__all__ = ["FULL", "QUICK", "Budget"]


_SEVEN = Pace(passes=7)


@dataclass(frozen=True)
class Budget:
    """Counts that cost time; what is measured never depends on them."""

    thetas: int = 100
    """Of either protocol, over which times and accuracies are taken."""
    pace: Pace = _SEVEN
    """Of every timing: passes over the thetas; for each theta the median counts."""
    smallest: int = 10_000
    """Rows of the smallest subset."""
    sizes: int = 8
    """Subsets, the full set included."""
    chains: int = 100
    """Of a random walk; half of them repeat the other half, from the same rows."""
    steps: int = 1_500
    """Of each chain, exact and ours."""
    long_steps: int = 20_000
    """Of each chain of ours alone: with 100 chains, two walks of the paper's million steps."""
    partition_thetas: int = 50
    heads: tuple[int, ...] = (1, 3, 10, 30, 100)
    """Sizes of the head, in units of sqrt(n), for estimates of Z."""
    noises: tuple[int, ...] = (4, 16, 64)
    """Lengths t of the frozen noise."""
    iterations: int = 5_000
    """Of learning."""
    draws: int = 50_000
    """Of each theta, in the histograms."""
    error_thetas: int = 30
    error_draws: int = 50_000

    @property
    def passes(self) -> int:
        """Of every timing."""
        return self.pace.passes or 1

    @property
    def most_thetas(self) -> int:
        """That any experiment asks for."""
        return max(self.thetas, self.partition_thetas, self.error_thetas)

    def at_most(self, thetas: int) -> "Budget":
        """The same with so many thetas, or fewer."""
        counts = {name: min(thetas, getattr(self, name)) for name in ("thetas", "partition_thetas", "error_thetas")}
        return replace(self, **counts)


FULL = Budget()
QUICK = Budget(
    thetas=20,
    pace=Pace(passes=3),
    sizes=3,
    chains=40,
    steps=50,
    long_steps=50,
    partition_thetas=10,
    heads=(1, 10),
    noises=(16, 64),
    iterations=100,
    draws=20_000,
    error_thetas=20,
    error_draws=5_000,
)
