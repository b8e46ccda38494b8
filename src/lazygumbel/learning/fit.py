"""`fit`: maximum likelihood by gradient ascent (section 4.4 of the paper).

The mean log-likelihood of some rows is theta . (their mean) / temperature - log Z(theta), which is concave; its
gradient is (their mean - E[phi]) / temperature. E[phi] may come from any method that estimates expectations. But a
learner is a hard judge of those: it walks to the thetas where the estimate is wrong, since nothing holds down rows that
are never looked at. By default it comes from `Anchored`, which never goes far from a theta where all rows were scored.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_count, check_number, check_vectors
from lazygumbel.distribution import Rng
from lazygumbel.learning.anchored import Anchored
from lazygumbel.learning.ascent import Ascent, Problem, State
from lazygumbel.learning.checkpoint import Checkpoint
from lazygumbel.learning.records import Fit, Interrupted, Record
from lazygumbel.methods import Estimator
from lazygumbel.model import LogLinear
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.protocols import Model, check_model

__all__ = ["fit"]


_CHECKPOINTS = 20


def fit(
    model: Model,
    ids: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    method: Anchored | Estimator | None = None,
    learning_rate: float = 10.0,
    halve_every: int | None = 1000,
    iterations: int = 5000,
    temperature: float = 1.0,
    l2: float = 0.0,
    theta0: npt.ArrayLike | None = None,
    tolerance: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    rng: Rng = None,
    callback: Callable[[Record], bool | None] | None = None,
    progress: ShowProgress = None,
) -> Fit:
    """Find the theta under which the rows `ids` are most likely on average, less `l2` / 2 times its squared norm.

    Ids may repeat; `weights` (m,) say how much each counts. From `theta0` (zeros), `iterations` steps are made at
    `learning_rate`, halved every `halve_every` steps; 10 temperature^2 is at any temperature what 10 is at one.
    `method` estimates E[phi]: `Anchored()` unless given, which needs no index.

    Checkpoints are the first iteration, the last, and every `checkpoint_every` (a twentieth of all). There the exact
    log-likelihood is recorded, by a dense pass that is neither timed nor counted; the file `checkpoint` is replaced;
    and `callback` is called, which may return True to stop. `tolerance` stops when the exact log-likelihood has moved
    by less than this from checkpoint to checkpoint twice in a row; the norm of a noisy gradient could not tell.

    `resume` goes on from the file `checkpoint`, to the very theta of a run that was never stopped: with the random
    numbers of the file, not `rng`. Only `iterations`, `tolerance` and `checkpoint_every` may differ. Ctrl-C raises
    `Interrupted`; logits that overflow, or a log-likelihood more than log n below the first, `Diverged`.
    """
    check_model(model)
    if resume and checkpoint is None:
        raise ValueError("resume needs checkpoint: the file to go on from")
    rows, shares = _check_rows(model, ids, weights)
    problem = Problem(
        # The rows that there are now, whatever happens to them while this runs.
        model.settled() if isinstance(model, LogLinear) else model.snapshot(),
        shares @ model.features.gather(rows).astype(np.float64),
        Anchored() if method is None else method,
        check_number(learning_rate, "learning_rate", above=0.0),
        None if halve_every is None else check_count(halve_every, "halve_every"),
        check_number(temperature, "temperature", above=0.0),
        check_number(l2, "l2", least=0.0),
    )
    start = _check_theta(theta0, model.features.d)
    last = check_count(iterations, "iterations", least=0)
    every = max(1, last // _CHECKPOINTS)
    if checkpoint_every is not None:
        every = check_count(checkpoint_every, "checkpoint_every")
    if tolerance is not None:
        check_number(tolerance, "tolerance", above=0.0)
    ascent = Ascent(problem, np.random.default_rng(rng).integers(2**63, size=2).tolist(), State(0, start))
    file = None if checkpoint is None else Checkpoint(Path(checkpoint), problem.settings(rows, shares, start))
    if file is not None:
        file.check(resume=resume)
    if file is not None and resume:
        ascent = file.load(problem)
        if ascent.state.iteration > last:
            raise ValueError(f"iterations is {last}, but {file.path} is at iteration {ascent.state.iteration} already")

    def at_checkpoint(record: Record) -> bool:
        if file is not None:
            file.save(ascent)
        return callback is not None and bool(callback(record))

    with choose(progress).task("fitting", last) as task:
        task.advance(ascent.state.iteration)
        try:
            ascent.climb(last, every, tolerance, at_checkpoint, task)
        except KeyboardInterrupt:
            if file is not None:
                file.save(ascent)
            raise Interrupted(f"interrupted at iteration {ascent.state.iteration:,}", ascent.fit()) from None
    return ascent.fit()


def _check_rows(model: Model, ids: npt.ArrayLike, weights: npt.ArrayLike | None) -> tuple[Ints, Floats]:
    """The rows to be learnt and the share of each, both (m,)."""
    rows = model.check_ids(ids, "ids")
    if rows.ndim != 1 or not len(rows):
        raise ValueError(f"ids must be the ids of one or more rows, (m,), not of shape {rows.shape}")
    if weights is None:
        return rows, np.full(len(rows), 1 / len(rows))
    given: npt.NDArray[Any] = np.asarray(weights)
    if given.dtype.kind not in "fiu" or given.shape != rows.shape:
        raise ValueError(
            f"weights must be real numbers of shape {rows.shape}, not {given.dtype} of shape {given.shape}"
        )
    shares = given.astype(np.float64)
    if not np.isfinite(shares).all() or shares.min() < 0 or not shares.sum() > 0:
        raise ValueError("weights must be finite, none of them negative and not all of them zero")
    return rows, shares / shares.sum()


def _check_theta(theta0: npt.ArrayLike | None, d: int) -> Floats:
    if theta0 is None:
        return np.zeros(d)
    if check_vectors(theta0, "theta0", d).ndim != 1:
        raise ValueError(f"theta0 must have shape ({d},), not {np.shape(theta0)}")
    return np.array(theta0, dtype=np.float64)
