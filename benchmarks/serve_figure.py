"""The load figure of docs/service.md, from what `benchmarks/serve.py` kept: requests a second and latencies.

    python benchmarks/serve_figure.py [--json PATH] [--out DIR]

Needs the extra `plots`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import common  # noqa: F401  # finds the evaluation
from lazygumbel_evaluation.report.draw import draw
from lazygumbel_evaluation.report.section import Curve, Figure
from serve import WRITTEN


def figures(draws: dict[str, Any]) -> list[Figure]:
    """Against the number of connections."""
    x = [float(one["connections"]) for one in draws["load"]]
    by_name = {name: [one[name] for one in draws["load"]] for name in ("requests_per_second", "p50_ms", "p99_ms")}
    on = f"connections ({draws['machine']})" if draws["machine"] else "connections"
    rate = Curve("requests a second", x, by_name["requests_per_second"], "Bounded")
    waits = [Curve("99% are quicker", x, by_name["p99_ms"], "LazyGumbel")]
    waits.append(Curve("half are quicker", x, by_name["p50_ms"], "Bounded"))
    title = "One draw a request over 400,000 words"
    return [
        Figure("service-rate", title, on, "requests a second", [rate], x_log=True),
        Figure("service-latency", title, on, "milliseconds to the answer", waits, x_log=True, y_log=True),
    ]


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=WRITTEN)
    parser.add_argument("--out", type=Path, default=WRITTEN.parent / "figures")
    given = parser.parse_args()
    for figure in figures(json.loads(given.json.read_text(encoding="utf-8"))["draws"]):
        (given.out / f"{figure.name}.png").write_bytes(draw(figure).png)


if __name__ == "__main__":
    main()
