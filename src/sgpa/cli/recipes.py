"""`sgpa recipes`: the experiments that are ready to run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import AsJson, show_json

if TYPE_CHECKING:
    from sgpa.experiments.recipes import Recipe


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="A recipe, to see its settings.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the experiments that are ready to run, or show all settings of one.

    Settings with a documented alternative are listed with the --set that chooses it.
    """
    from sgpa.experiments.recipes import RECIPES, find

    if name is not None:
        (_one_as_json if as_json else _one)(find(name))
    elif as_json:
        show_json([_summary(recipe) for recipe in RECIPES.values()])
    else:
        _list(list(RECIPES.values()))


def _list(listed: "list[Recipe]") -> None:
    from sgpa.methods import CATALOGUE

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "task", "model", "epochs", "seeds"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "seeds" else "left")
    table.add_column("methods")
    for recipe in listed:
        row = _summary(recipe)
        task = f"{row['dataset']} +" if row["augmentation"] else row["dataset"]
        model = f"{recipe.model.depth} x {recipe.model.width}"
        epochs = f"{row['epochs']} ({row['stage1_epochs']}+{row['stage2_epochs']})"
        every = recipe.methods == tuple(CATALOGUE)
        methods = f"all {len(CATALOGUE)}" if every else " ".join(recipe.methods)
        table.add_row(recipe.name, task, model, epochs, str(recipe.seeds), methods)
    Console().print(table)
    typer.echo("\ntask: + is with 3-Augment; model: layers x width; epochs: in brackets those of SGPA's two")
    typer.echo("stages, maximum likelihood and ELBO. Settings of one recipe: sgpa recipes NAME")


def _summary(recipe: "Recipe") -> dict[str, Any]:
    model = recipe.model
    return {
        "name": recipe.name,
        "dataset": recipe.task.dataset,
        "augmentation": "" if recipe.task.augmentation == "none" else recipe.task.augmentation,
        "model": f"{model.depth} layers, width {model.width}, {model.heads} heads",
        "epochs": recipe.optim.epochs,
        "stage1_epochs": recipe.stage1.epochs,
        "stage2_epochs": recipe.stage2.epochs,
        "seeds": recipe.seeds,
        "methods": list(recipe.methods),
    }


def _one_as_json(recipe: "Recipe") -> None:
    from dataclasses import asdict

    from sgpa.experiments.recipes import alternatives, leaves

    details = {
        "settings": dict(leaves(recipe)),
        "alternatives": [asdict(alternative) for alternative in alternatives(recipe.name)],
    }
    show_json(_summary(recipe) | details)


def _one(recipe: "Recipe") -> None:
    from sgpa.experiments.recipes import alternatives, leaves

    out = Console()
    settings = Table("setting", "value", box=None, pad_edge=False, title=recipe.name, title_justify="left")
    for path, value in leaves(recipe):
        text = " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        settings.add_row(path, escape(text or "-"))
    out.print(settings)
    if not (listed := alternatives(recipe.name)):
        return
    out.print("\nSettings with a documented alternative\n", style="bold")
    for alternative in listed:
        out.print(f"{alternative.field}: {alternative.chosen}", markup=False, highlight=False)
        options = " ".join(f"--set {setting}" for setting in alternative.set)
        out.print(f"  or: {alternative.other}", markup=False, highlight=False)
        out.print(f"      {options}\n", markup=False, highlight=False, style="cyan", soft_wrap=True)
