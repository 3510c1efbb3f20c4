"""`sgpa time`: what methods cost on this machine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from sgpa.cli.progress import console
from sgpa.core.errors import ConfigError

if TYPE_CHECKING:
    from sgpa.experiments.timing import Cost


def time(
    model: Annotated[
        str, typer.Option(help="digits or cifar10: the recipe whose model is timed.")
    ] = "cifar10",
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; the table shows medians.")] = 5,
) -> None:
    """Time a training step and a prediction of four methods on this machine."""
    from sgpa.experiments.timing import measure

    with console.status("measuring"):
        costs = measure(model, repeats)
    Console().print(as_table(costs, model))


def as_table(costs: "list[Cost]", model: str, bases: Mapping[str, str] | None = None) -> Table:
    """Seconds, and under each heading of `bases` the ratio to the contender that it names."""
    import torch

    from sgpa.experiments.timing import BASE, BATCH, PREDICTED

    bases = bases or {"ratio": BASE}
    title = f"{model} model, {torch.get_num_threads()} threads, torch {torch.__version__}"
    table = Table(title=title, title_justify="left")
    against = [next(cost for cost in costs if cost.name == base) for base in bases.values()]
    for heading in ("", f"step, batch {BATCH} (s)", *bases, f"predict {PREDICTED} (s)", *bases):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for cost in costs:
        steps = [f"{cost.step / base.step:.2f}" for base in against]
        predictions = [f"{cost.predict / base.predict:.2f}" for base in against]
        table.add_row(cost.name, f"{cost.step:.4f}", *steps, f"{cost.predict:.4f}", *predictions)
    return table


def bench() -> None:
    """The former name of `sgpa time`."""
    raise ConfigError("`sgpa bench` is called `sgpa time` now")
