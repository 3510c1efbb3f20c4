"""`sgpa report`: one page about saved results."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sgpa.cli.options import show_tables, words
from sgpa.core.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, single cells, or results.json files.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write to; beside the results by default, runs/report for several runs."),
    ] = None,
    names: Annotated[
        str, typer.Option(help="A name for each run, if they are runs of one method with other settings.")
    ] = "",
) -> None:
    """Write one page about the saved results of one or several runs."""
    from sgpa.experiments.runner import saved_results
    from sgpa.report import merge, write_report

    all_results = [saved_results(path) for path in runs]
    results = all_results[0]
    if len(all_results) > 1 or names:
        try:
            results = merge(all_results, words(names))
        except InputError as error:
            listed = "; ".join(f"results {i} are {path}" for i, path in enumerate(runs, 1))
            raise InputError(f"{error} ({listed})") from None
    if len(all_results) > 1:
        results |= {"title": _title(all_results)}
    beside = runs[0].parent if runs[0].is_file() else runs[0]
    page = write_report(results, out or (beside if len(runs) == 1 else Path("runs") / "report"))
    show_tables(results)
    typer.echo(f"Report: {page}")


def _title(all_results: list[dict[str, Any]]) -> str:
    """Data sets and methods of several results."""
    records = [record for results in all_results for record in results["records"]]
    columns = (dict.fromkeys(record[name] for record in records) for name in ("dataset", "method"))
    return ": ".join(", ".join(names) for names in columns)
