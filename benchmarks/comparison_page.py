"""Tables and figure of docs/comparison.md, from what `comparison.py` measured; `pages.py` writes them."""

from pathlib import Path
from typing import Any

__all__ = ["WRITTEN", "draw", "tables"]

WRITTEN = Path(__file__).parent.parent / "docs" / "comparison.json"
FIGURE = WRITTEN.parent / "figures" / "comparison.png"
TITLES = {"photos": "photo descriptors", "sentences": "sentence embeddings", "glove": "GloVe"}
LOOKS = {
    "dense NumPy": ("#33373d", "s"),
    "dense torch": ("#8a9099", "s"),
    "FAISS IVF, top 100": ("#d16ba5", "v"),
    "FAISS IVF, top 1,000": ("#d16ba5", "^"),
    "FAISS HNSW, top 100": ("#1d955f", "v"),
    "FAISS HNSW, top 1,000": ("#1d955f", "^"),
    "the paper's, over IVF": ("#d74300", "P"),
    "lazygumbel, exact": ("#12539b", "D"),
    "lazygumbel, default": ("#12539b", "o"),
    "lazygumbel, calibrated": ("#0f9bb4", "*"),
}
EXACT = 1e-10
"""Where exact draws stand on an axis of logarithms."""


def tables(held: dict[str, Any]) -> dict[str, str]:
    """By kind and set of rows, as the page names them."""
    found = {"run run": _run(held["run"])}
    for name in TITLES:
        if name in held:
            found |= {f"draws {name}": draws(held[name]), f"sums {name}": sums(held[name])}
    return found


def draws(found: dict[str, Any]) -> str:
    """One line a contender: times, distances, memory, build."""
    lines = [
        f"{found['n']:,} x {found['d']}, {found['thetas']} thetas.",
        "",
        f"| | ms a draw | ms a draw, {found['batch']} thetas at once | total variation: mean, 95%, max | memory / rows"
        " | build, s |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found["draws"].items():
        tv = "0" if one["tv"][2] == 0 else ", ".join(_short(x) for x in one["tv"])
        times = f"{_short(one['ms'])} | {_short(one['batch ms'])}"
        lines.append(f"| {_named(name)} | {times} | {tv} | {one['memory']:.1f} | {one['build']:.1f} |")
    return "\n".join(lines)


def sums(found: dict[str, Any]) -> str:
    """One line a contender: time and errors of log Z."""
    lines = ["| | ms | error of log Z: mean, 95%, max | memory / rows |", "|---|---|---|---|"]
    for name, one in found["sums"].items():
        errors = ", ".join(_short(x) for x in one["error"])
        lines.append(f"| {_named(name)} | {_short(one['ms'])} | {errors} | {one['memory']:.1f} |")
    return "\n".join(lines)


def _run(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {run[name]}" for name in ("lazygumbel", "NumPy", "torch", "FAISS"))
    return f"{run['cores']} cores, {versions}{', in the quick form' if run['quick'] else ''}."


def _named(name: str) -> str:
    return f"**{name}**" if name == "lazygumbel, default" else name


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def draw(held: dict[str, Any]) -> None:
    """Time of a draw against its distance from the softmax, a panel for each set of rows."""
    from matplotlib.figure import Figure

    sets = [name for name in TITLES if name in held]
    sheet = Figure(figsize=(4.2 * len(sets), 4.6), layout="constrained")
    panels = sheet.subplots(1, len(sets), squeeze=False, sharex=True, sharey=True)[0]
    for axes, name in zip(panels, sets, strict=True):
        for contender, (colour, marker) in LOOKS.items():
            one = held[name]["draws"].get(contender)
            x, y = (one["ms"], max(one["tv"][0], EXACT)) if one else ([], [])
            axes.plot(x, y, marker=marker, color=colour, linestyle="none", markersize=9, label=contender)
        axes.set(xscale="log", yscale="log", xlabel="ms a draw", title=f"{TITLES[name]}, {held[name]['n']:,} rows")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(color="#e3e5e8")
        axes.set_axisbelow(True)
    panels[0].set_ylabel("mean total variation distance")
    panels[0].set_yticks([EXACT, 1e-8, 1e-6, 1e-4, 1e-2, 1.0], ["exact", "1e-8", "1e-6", "1e-4", "0.01", "1"])
    columns = 2 * len(sets) - 1 if len(sets) > 1 else 2
    sheet.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    sheet.savefig(FIGURE, dpi=150, metadata={"Software": None})
