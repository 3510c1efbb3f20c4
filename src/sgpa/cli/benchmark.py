"""`sgpa benchmark`, `sgpa report` and `sgpa bench`: methods side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sgpa.cli.options import DataDir, Device, Settings, command_line, refuse_own, show_tables
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.errors import ConfigError, InputError, SgpaError

if TYPE_CHECKING:
    from sgpa.experiments.runner import Outcome

benchmark_app = typer.Typer()
Retry = Annotated[bool, typer.Option("--retry", help="Try again what failed before.")]


@benchmark_app.command(epilog="Example: sgpa benchmark cifar10 --methods mle,sgpa --seeds 5 --workers 2")
def benchmark(
    recipe: Annotated[str, typer.Argument(help="`sgpa recipes` lists them.", show_default=False)],
    methods: Annotated[
        str | None, typer.Option(help="Ids separated by commas, or all; the recipe's own by default.")
    ] = None,
    attentions: Annotated[str, typer.Option(help="kernel, sdp or both, separated by commas.")] = "kernel",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Independent runs to average over; the recipe's by default.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    retry: Retry = False,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Folder of runs; runs/<recipe> by default.")] = None,
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

    Finished work is never done again, so the same command goes on after a stop. What fails is listed, the
    rest goes on, and the exit status is 1.
    """
    from sgpa.core.devices import check_device
    from sgpa.experiments import runner
    from sgpa.experiments.recipes import plans

    check_device(device)
    place = runner.RunFolder.of(
        recipe, out or Path("runs") / recipe, settings or [], data_dir=data_dir, device=device
    )
    rows = plans(place.recipe, chosen_methods(methods, place.recipe), names(attentions))
    if not rows:
        raise ConfigError(f"nothing to run: no method of {methods} works with attention {attentions}")
    refuse_own(place.directory)
    with ProgressBars() as bars:
        outcome = runner.benchmark(
            place,
            rows,
            seeds=seeds,
            workers=workers,
            retry=retry,
            announce=bars.announce,
            tell=bars.say,
            command=command_line(),
            executor=None if cluster is None else _cluster(cluster, bars.announce),
        )
    conclude(outcome, place.directory)


def names(listed: str) -> tuple[str, ...]:
    """Words separated by commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))


def chosen_methods(listed: str | None, recipe: Any = None) -> tuple[str, ...]:
    """The methods asked for; `all` are those of the catalogue that the recipe can use."""
    from sgpa.experiments.recipes import plan
    from sgpa.methods import CATALOGUE

    if listed is None:
        return ()
    if listed.strip() != "all":
        return names(listed)
    found = []
    for method in CATALOGUE:
        try:
            plan(recipe, method)
        except ConfigError:
            continue
        found.append(method)
    return tuple(found)


def _cluster(address: str, announce: Any) -> Any:
    """An executor over Ray, which is an extra."""
    from importlib import import_module

    try:
        found: Any = import_module("sgpa.experiments.runner.executors.ray")
    except ImportError as error:
        raise SgpaError(f"a cluster needs Ray: pip install 'sgpa[cluster]' ({error})") from None
    return found.Cluster(address, announce)


def conclude(outcome: "Outcome", directory: Path) -> None:
    """Write the report, print the table, list what failed; exit status 1 if anything did."""
    from sgpa.report import write_report
    from sgpa.training import process_group

    if not process_group.leader():  # of the processes that torchrun started one is enough to tell
        raise typer.Exit(1 if outcome.failures else 0)
    if outcome.results["records"]:
        page = write_report(outcome.results, directory)
        show_tables(outcome.results)
        typer.echo(f"Report: {page}\nNumbers: {directory / 'results.json'}")
    for failure in outcome.failures:
        console.print("[bold red]failed:[/]", end=" ")
        console.print(f"{failure.job}: {failure.reason}", markup=False, highlight=False, soft_wrap=True)
    if outcome.failures:
        console.print(f"Details: {directory / 'failed'}; try again with --retry", highlight=False)
        raise typer.Exit(1)


@benchmark_app.command(epilog="Example: sgpa report runs/cifar10 runs/imdb --out runs/report")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, single runs, or results.json files.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write; beside the results by default, runs/report for several."),
    ] = None,
    called: Annotated[
        str,
        typer.Option("--names", help="A name for each run, where they are one method's with other settings."),
    ] = "",
) -> None:
    """Write one page about saved results, of one run or of many."""
    from sgpa.experiments.runner.collect import saved_results
    from sgpa.report import merge, write_report

    found = [saved_results(path) for path in runs]
    results = found[0]
    if len(found) > 1 or called:
        try:
            results = merge(found, names(called))
        except InputError as error:
            listed = "; ".join(f"results {i} are {path}" for i, path in enumerate(runs, 1))
            raise InputError(f"{error} ({listed})") from None
    if len(found) > 1:
        results |= {"title": _title(found)}
    beside = runs[0].parent if runs[0].is_file() else runs[0]
    page = write_report(results, out or (beside if len(runs) == 1 else Path("runs") / "report"))
    show_tables(results)
    typer.echo(f"Report: {page}")


def _title(found: list[dict[str, Any]]) -> str:
    """Data sets and methods of several results."""
    records = [record for results in found for record in results["records"]]
    columns = (dict.fromkeys(record[name] for record in records) for name in ("dataset", "method"))
    return ": ".join(", ".join(names) for names in columns)


@benchmark_app.command(epilog="Example: sgpa bench --model digits --repeats 20")
def bench(
    model: Annotated[str, typer.Option(help="digits or cifar10: the model of which recipe.")] = "cifar10",
    repeats: Annotated[int, typer.Option(min=1, help="Turns; the table shows medians.")] = 5,
) -> None:
    """Time a training step and a prediction of four methods on this machine."""
    from sgpa.experiments.timing import as_table, measure

    with console.status("measuring"):
        costs = measure(model, repeats)
    Console().print(as_table(costs, model))
