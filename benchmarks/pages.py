"""Tables of the documentation, written from what benchmarks and examples measured and kept beside the pages.

    python benchmarks/pages.py

A block between `<!-- NAME -->` and `<!-- end -->` of a page becomes the table of that name.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import comparison_page

__all__ = ["DOCS", "PAGES", "rendered", "tables_of"]

DOCS = Path(__file__).parent.parent / "docs"
Facts = dict[str, Any]


def rendered(page: str, tables: dict[str, str]) -> str:
    """The page with its tables as measured."""

    def fill(block: re.Match[str]) -> str:
        return f"<!-- {block[1]} -->\n\n{tables.get(block[1], 'Not measured in this run.')}\n\n<!-- end -->"

    return re.sub(r"<!-- ((?!end)[\w ]+) -->\n.*?\n?<!-- end -->", fill, page, flags=re.DOTALL)


def tables_of(name: str) -> dict[str, str]:
    """The tables of a page, by name."""
    kept, make = PAGES[name]
    return make(json.loads((DOCS / kept).read_text(encoding="utf-8")))


def language_model(held: Facts) -> dict[str, str]:
    """Of `benchmarks/language_model.py`."""
    heads = ["| head | | ms a token | total variation, mean | largest |", "|---|---|---|---|---|"]
    for p in held["points"]:
        distances = f"{_short(p['distance'])} | {_short(p['worst'])}"
        heads.append(f"| {p['kind']} | {p['setting']} | {_short(p['milliseconds'])} | {distances} |")
    bars = ["| wanted | measured | |", "|---|---|---|"]
    for bar in held["bars"]:
        met = "met" if bar["met"] else "**missed**"
        bars.append(f"| {bar['bar']}: {bar['wanted']:g} | {bar['found']:.3g} | {met} |")
    lost = ["| the best | lose on average | median | 95% point |", "|---|---|---|---|"]
    lost += [
        f"| {k} | " + " | ".join(f"{100 * one[name]:.1f}%" for name in ("mean", "median", "95%")) + " |"
        for k, one in held["lost"].items()
    ]
    return {"heads": "\n".join(heads), "bars": "\n".join(bars), "lost": "\n".join(lost), "run": _run(held["run"])}


def recommender(held: Facts) -> dict[str, str]:
    """Of `examples/recommender.py`."""
    serving, policy, day = held["serving"], held["policy"], held["next_day"]
    training = ["| | a step | held-out log-likelihood | recall@20 |", "|---|---|---|---|"]
    for title, facts in (
        (f"`LogLinearLoss`, {held['steps']} steps, refreshing included", held["lazygumbel"]),
        (f"dense softmax, the same {held['steps']} batches", held["dense"]),
        (f"`LogLinearLoss`, {held['trained_on']['steps']} steps", held["trained_on"]),
    ):
        step = f"{1000 * facts['step_seconds']:,.0f} ms"
        training.append(f"| {title} | {step} | {facts['log_likelihood']:.3f} | {facts['recall']:.1%} |")
    training.append(f"| before | | {held['start'][0]:.3f} | {held['start'][1]:.1%} |")
    training += [
        "",
        f"{held['books']:,} books, {held['readers']:,} readers, {held['batch']} of them a step: "
        f"{held['speedup']:.1f} times as fast a step, and a log-likelihood that differs by {held['difference']:+.3f}.",
    ]
    logs = held["logs"]
    judged = [f"| clicks a book shown | one log | {logs['count']} logs together |", "|---|---|---|"]
    judged += [f"| as logged, temperature 1 | {policy['logged']:.4f} | |"]
    judged += [f"| temperature {held['careful']:g}, in truth | {policy['truth']:.4f} | {logs['truth']:.5f} |"]
    for name in ("ips", "snips"):
        cells = [
            f"{value:.{digits}f} +- {stderr:.{digits}f}: {(value - truth) / stderr:+.1f} standard errors off"
            for value, stderr, truth, digits in (
                (policy[name], policy[f"{name}_stderr"], policy["truth"], 4),
                (logs[f"{name}_together"], logs[f"{name}_together_stderr"], logs["truth"], 5),
            )
        ]
        judged.append(f"| by {name.upper()} | {' | '.join(cells)} |")
    judged += [
        "",
        f"One log is {serving['readers']:,} slates. Of {logs['count']} such logs the truth is within two "
        f"standard errors of IPS for {logs['ips_within']}, of SNIPS for {logs['snips_within']}; on average they are "
        f"off by {logs['ips_mean']:+.2f} and {logs['snips_mean']:+.2f} standard errors, with a standard deviation of "
        f"{logs['ips_spread']:.2f} and {logs['snips_spread']:.2f}. Of estimates without bias, whose standard errors "
        f"are right, {0.954 * logs['count']:.0f} are within two, give or take "
        f"{(0.954 * 0.046 * logs['count']) ** 0.5:.0f}; the mean is zero, give or take {logs['count'] ** -0.5:.2f}; "
        "the standard deviation is one.",
    ]
    each = 1000 * serving["seconds"] / serving["readers"]
    served = (
        f"{serving['readers']:,} slates of ten with their propensities took {each:.2f} ms each, *{serving['label']}*. "
        f"Next day {day['books']:,} books came and as many went, in {1000 * day['seconds']:.0f} ms; "
        f"{day['gone_but_shown']} of the gone were shown, {day['new_shown_first']:.1%} of the first places were new "
        f"books ({day['new_expected_first']:.1%} expected). All of it took {held['seconds'] / 60:.1f} minutes."
    )
    return {"training": "\n".join(training), "judged": "\n".join(judged), "served": served}


def characters(held: Facts) -> dict[str, str]:
    """Of `examples/characters.py`."""
    ours, theirs = held["lazygumbel"], held["dense"]
    labels = ", ".join(f"{count} steps {label}" for label, count in ours["labels"].items())
    lines = [
        "| | `LogLinearLoss` | dense softmax |",
        "|---|---|---|",
        "| a training step | " + " | ".join(f"{1000 * one['step_seconds']:.0f} ms" for one in (ours, theirs)) + " |",
        f"| rows looked at for a theta | {ours['rows_looked_at']:.2%} | 100% |",
        "| held-out log-likelihood | " + " | ".join(f"{one['log_likelihood']:.3f}" for one in (ours, theirs)) + " |",
        "",
        f"{held['rows']:,} words, {held['steps']} steps of {held['batch']} words, {held['held_out']} words held out: "
        f"{held['speedup']:.1f} times as fast a step, at a log-likelihood that differs by {held['difference']:+.4f}; "
        f"{labels}.",
    ]
    return {"characters": "\n".join(lines)}


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _run(run: Facts) -> str:
    versions = ", ".join(f"{name} {run[name]}" for name in ("lazygumbel", "NumPy", "torch", "FAISS"))
    return f"{run['cores']} cores, {versions}; {run['thetas']} hidden states, {run['timed']} of them timed."


PAGES: dict[str, tuple[str, Callable[[Facts], dict[str, str]]]] = {
    "comparison.md": ("comparison.json", comparison_page.tables),
    "language_models.md": ("language_model.json", language_model),
    "recommenders.md": ("recommender.json", recommender),
    "torch.md": ("characters.json", characters),
}


def main() -> None:
    """Write all of them, and the figure of the comparison."""
    for name in PAGES:
        page = DOCS / name
        page.write_text(rendered(page.read_text(encoding="utf-8"), tables_of(name)), encoding="utf-8")
    comparison_page.draw(json.loads(comparison_page.WRITTEN.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
