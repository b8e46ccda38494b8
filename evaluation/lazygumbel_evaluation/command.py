"""`lazygumbel paper`: the paper's evaluation on any rows, and its report. Found by its entry point."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lazygumbel._support.extras import require
from lazygumbel.cli.console import show
from lazygumbel.cli.options import Json
from lazygumbel.progress import choose

__all__ = ["paper"]


def paper(
    data: Annotated[str, typer.Option(help="glove, synthetic, or a file of rows as `build` takes it.")] = "glove",
    thetas: Annotated[
        Path | None, typer.Option(help="A file of your own thetas, one a row; without it rows are held out as thetas.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Divides the inner products: 0.05 as in the paper, 1 for a file of rows.")
    ] = None,
    unit_norm: Annotated[
        bool | None,
        typer.Option("--unit-norm/--raw-norm", help="Scale the rows of a file to length one; by default they are not."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer thetas, steps and draws: a few minutes, and rougher numbers.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="One experiment by name; may be repeated.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write; a run that was stopped goes on from there.")] = Path(
        "paper"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the random draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Run the experiments of the paper, and write a report that compares."""
    from lazygumbel_evaluation.harness.source import Source
    from lazygumbel_evaluation.harness.store import Store
    from lazygumbel_evaluation.report.page import headline, write_report
    from lazygumbel_evaluation.run import run

    require("matplotlib", extra="plots")  # not after an hour of experiments
    source = Source.of(data, seed, thetas=thetas, temperature=temperature, unit_norm=unit_norm)
    done = run(out, source, quick=quick, only=only or (), progress=choose(None))
    report, table, store = write_report(out, done.header, done.sections), headline(done.sections), Store.within(out)
    result: dict[str, Any] = {
        "report": str(report),
        "may_be_deleted": str(store.folder),
        "header": done.header,
        "claims": [{"experiment": section.name, **vars(v)} for section in done.sections for v in section.verdicts],
    }
    show(result, ([str(cell) for cell in row] for row in table.rows), table.columns, as_json=as_json)
    if not as_json:
        print(f"{table.title}: {report}")
        print(
            f"{store.folder} ({store.bytes / 1e6:,.0f} MB) only serves to go on with this run, and may be deleted; the "
            "rest is the report."
        )
