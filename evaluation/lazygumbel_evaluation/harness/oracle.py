"""`Oracle`: exact answers for the thetas of a run, from all logits, once for each data set."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel.progress import Task
from lazygumbel.rows.features import Features

__all__ = ["Oracle", "edges_of"]


_SCORES_AT_ONCE = 2**23


@dataclass(frozen=True, eq=False)
class Oracle:
    """For each of T thetas: log Z, and how much probability lies in each group of ranks."""

    log_z: Floats
    """(T,)."""
    edges: Ints
    """The last rank of each group: 10, 100, ... and n, (J,)."""
    masses: Floats
    """Probability of each group, (T, J); sums to one."""
    marks: Floats
    """Scores between the last row of a group and the first of the next, (T, J - 1), decreasing."""

    @classmethod
    def of(cls, features: Features, thetas: npt.NDArray[np.float32], temperature: float, task: Task) -> "Oracle":
        """From all scores in float32, summed in float64."""
        edges = edges_of(features.n)
        log_z, masses = np.empty(len(thetas)), np.empty((len(thetas), len(edges)))
        marks = np.empty((len(thetas), len(edges) - 1))
        step = max(1, _SCORES_AT_ONCE // features.n)
        for first in range(0, len(thetas), step):
            for t, scores in enumerate(thetas[first : first + step] @ features.stored.T, first):
                ranked = np.sort(scores)[::-1].astype(np.float64)
                weights = np.exp((ranked - ranked[0]) / temperature)
                sums = np.add.reduceat(weights, [0, *edges[:-1]])
                log_z[t] = ranked[0] / temperature + np.log(sums.sum())
                masses[t] = sums / sums.sum()
                marks[t] = (ranked[edges[:-1] - 1] + ranked[edges[:-1]]) / 2
                task.advance(1 / len(thetas))
        return cls(log_z, edges, masses, marks)

    def groups(self, t: int, scores: npt.NDArray[np.float32]) -> Ints:
        """The group of each row, given its score at theta t.

        Scores come from other products than the marks and differ in the last bits; a mark is half way between two rows.
        """
        return np.searchsorted(-self.marks[t], -scores.astype(np.float64))


def edges_of(n: int) -> Ints:
    """10, 100, 1,000, ... below n, and n."""
    powers = 10 ** np.arange(1, 19)
    return np.append(powers[powers < n], n).astype(np.int64)
