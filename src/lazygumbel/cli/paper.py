"""`lazygumbel paper`: the paper's evaluation on any rows, and its report."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lazygumbel.cli.console import guarded, progress, show
from lazygumbel.cli.options import Json, app
from lazygumbel.extras import require

__all__: list[str] = []


@app.command()
@guarded
def paper(
    data: Annotated[str, typer.Option(help="glove, synthetic, or a file of rows as `build` takes it.")] = "glove",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer thetas, steps and draws: a minute or two, and rougher numbers.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="One experiment by name; may be repeated.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write; a run that was stopped goes on from there.")] = Path(
        "paper"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the random draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Run the experiments of the paper, and write a report that compares."""
    from lazygumbel.paper.report import headline, write_report
    from lazygumbel.paper.run import run

    require("matplotlib", extra="plots")  # not after an hour of experiments
    with progress() as bars:
        done = run(out, data=data, quick=quick, only=only or (), seed=seed, progress=bars)
    report = write_report(out, done.header, done.sections)
    table = headline(done.sections)
    result: dict[str, Any] = {
        "report": str(report),
        "header": done.header,
        "claims": [
            {"experiment": section.name, "claim": v.claim, "paper": v.paper, "ours": v.ours, "holds": v.holds}
            for section in done.sections
            for v in section.verdicts
        ],
    }
    show(result, ([str(cell) for cell in row] for row in table.rows), table.columns, as_json=as_json)
    if not as_json:
        print(f"{table.title}: {report}")
