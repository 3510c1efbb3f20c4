"""`sgpa benchmark`: methods side by side."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sgpa.cli.options import DataDir, Device, Settings, command_line, show_tables, words
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.errors import ConfigError, SgpaError
from sgpa.core.names import METHOD_NAMES, method_id

if TYPE_CHECKING:
    from sgpa.experiments.recipes import Recipe
    from sgpa.experiments.runner import Outcome


def benchmark(
    recipe: Annotated[str, typer.Argument(help="`sgpa recipes` lists them.", show_default=False)],
    methods: Annotated[
        str | None, typer.Option(help="Methods separated by commas, or all; the recipe's own by default.")
    ] = None,
    attentions: Annotated[str, typer.Option(help="kernel, sdp or both, separated by commas.")] = "kernel",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Independent runs to average over; the recipe's by default.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="Run jobs again that failed before.")] = False,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/<recipe> by default.")] = None,
    device: Device = "cpu",
    data_dir: DataDir = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Share the work over the Ray cluster at this address, or auto.", show_default=False
        ),
    ] = None,
) -> None:
    """Train and test methods over seeds, and write a report that compares them.

    Finished work is not repeated: re-run the same command to resume. If a job fails, the others are still
    run, and the exit status is 1.
    """
    from sgpa.core.devices import check_device
    from sgpa.experiments import runner
    from sgpa.experiments.recipes import plans

    check_device(device)
    folder = out or Path("runs") / recipe
    run_folder = runner.RunFolder.of(recipe, folder, settings or [], data_dir=data_dir, device=device)
    rows = plans(run_folder.recipe, chosen_methods(methods, run_folder.recipe), words(attentions))
    if not rows:
        raise ConfigError(f"nothing to run: no method of {methods} works with attention {attentions}")
    with ProgressBars() as bars:
        outcome = runner.benchmark(
            run_folder,
            rows,
            seeds=seeds,
            workers=workers,
            retry=retry,
            on_progress=bars.on_progress,
            command=command_line(),
            executor=None if cluster is None else _cluster(cluster, bars.on_progress),
        )
    conclude(outcome, folder)


def chosen_methods(listed: str | None, recipe: "Recipe") -> tuple[str, ...]:
    """The ids of the methods that were named; `all` are those that the recipe can use."""
    from sgpa.experiments.recipes import plan

    if listed is None:
        return ()
    if listed.strip() != "all":
        return tuple(dict.fromkeys(method_id(name) for name in words(listed)))
    usable = []
    for method in METHOD_NAMES:
        try:
            plan(recipe, method)
        except ConfigError:
            continue
        usable.append(method)
    return tuple(usable)


def _cluster(address: str, on_progress: Any) -> Any:
    """An executor over Ray, which is an extra."""
    try:
        ray: Any = import_module("sgpa.experiments.runner.executors.ray")
    except ImportError as error:
        raise SgpaError(f"a cluster needs Ray: pip install ray ({error})") from None
    return ray.Cluster(address, on_progress)


def conclude(outcome: "Outcome", directory: Path, note: str = "") -> None:
    """Write the report, print table, verdict and `note`, list failures; exit status 1 if there are any."""
    from sgpa.report import opening, write_report
    from sgpa.training import process_group

    if not process_group.leader():  # of the processes that torchrun started, the first one prints
        raise typer.Exit(1 if outcome.failures else 0)
    if outcome.results["records"]:
        page = write_report(outcome.results, directory)
        show_tables(outcome.results)
        Console().print(f"{opening(outcome.results)} {note}".strip(), markup=False, highlight=False)
        typer.echo(f"Report: {page}\nNumbers: {directory / 'results.json'}")
    for failure in outcome.failures:
        console.print("[bold red]failed:[/]", end=" ")
        console.print(f"{failure.job}: {failure.reason}", markup=False, highlight=False, soft_wrap=True)
    if outcome.failures:
        if any((directory / "failed").glob("*.txt")):
            text = f"Details: {directory / 'failed'}; run failed jobs again with --retry"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)
