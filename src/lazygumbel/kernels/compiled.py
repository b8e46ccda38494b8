"""The kernels in Numba, by name. Same signatures and results as `reference`.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process.
Parallelism is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

from lazygumbel.kernels.draws import look, winners
from lazygumbel.kernels.picks import pick, pick_variance
from lazygumbel.kernels.ranking import place, survey
from lazygumbel.kernels.scoring import bin_scores, gather_dot, score_at, score_ranges, sum_rows
from lazygumbel.kernels.sums import spread, weigh

__all__ = [
    "bin_scores",
    "gather_dot",
    "look",
    "pick",
    "pick_variance",
    "place",
    "score_at",
    "score_ranges",
    "spread",
    "sum_rows",
    "survey",
    "weigh",
    "winners",
]
