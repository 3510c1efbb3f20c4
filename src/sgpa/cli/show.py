"""`sgpa recipes` and `sgpa methods`: what there is to run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import AsJson, show_json

if TYPE_CHECKING:
    from sgpa.experiments.recipes import Recipe

show_app = typer.Typer()


@show_app.command(epilog="Example: sgpa recipes cifar10")
def recipes(
    name: Annotated[
        str | None, typer.Argument(help="A recipe, to see all of it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the experiments that are ready to run, or show the settings and open questions of one.

    Where a setting can be meant in two ways, both are shown, with the --set that picks the other one.
    """
    from sgpa.experiments.recipes import RECIPES, find
    from sgpa.methods import CATALOGUE

    if name is not None:
        (_one_as_json if as_json else _one)(find(name))
        return
    if as_json:
        show_json([_summary(recipe) for recipe in RECIPES.values()])
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "task", "model", "epochs", "seeds"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "seeds" else "left")
    table.add_column("methods")
    for recipe in RECIPES.values():
        row = _summary(recipe)
        task = f"{row['dataset']} +" if row["augmentation"] else row["dataset"]
        model = f"{recipe.model.depth} x {recipe.model.width}"
        epochs = f"{row['epochs']} ({row['warm_epochs']}+{row['after_epochs']})"
        every = recipe.methods == tuple(CATALOGUE)
        listed = f"all {len(CATALOGUE)}" if every else " ".join(recipe.methods)
        table.add_row(recipe.name, task, model, epochs, str(recipe.seeds), listed)
    Console().print(table)
    typer.echo("\ntask: + is with 3-Augment; model: layers x width; epochs: in brackets those of SGPA,")
    typer.echo("first by maximum likelihood, then by the ELBO. All of one: sgpa recipes NAME")


def _summary(recipe: "Recipe") -> dict[str, Any]:
    model = recipe.model
    return {
        "name": recipe.name,
        "dataset": recipe.task.dataset,
        "augmentation": "" if recipe.task.augmentation == "none" else recipe.task.augmentation,
        "model": f"{model.depth} layers, width {model.width}, {model.heads} heads",
        "epochs": recipe.optim.epochs,
        "warm_epochs": recipe.stage1.epochs,
        "after_epochs": recipe.stage2.epochs,
        "seeds": recipe.seeds,
        "methods": list(recipe.methods),
    }


def _one_as_json(recipe: "Recipe") -> None:
    from dataclasses import asdict

    from sgpa.experiments.recipes import alternatives, settings_of

    found = {
        "settings": dict(settings_of(recipe)),
        "alternatives": [asdict(r) for r in alternatives(recipe.name)],
    }
    show_json(_summary(recipe) | found)


def _one(recipe: "Recipe") -> None:
    from sgpa.experiments.recipes import alternatives, settings_of

    out = Console()
    settings = Table("setting", "value", box=None, pad_edge=False, title=recipe.name, title_justify="left")
    for path, value in settings_of(recipe):
        text = " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        settings.add_row(path, escape(text or "-"))
    out.print(settings)
    found = alternatives(recipe.name)
    if not found:
        return
    out.print("\nWhat can be meant in two ways\n", style="bold")
    for reading in found:
        out.print(f"{reading.field}: {reading.chosen}", markup=False, highlight=False)
        options = " ".join(f"--set {setting}" for setting in reading.set)
        out.print(f"  or: {reading.other}", markup=False, highlight=False)
        out.print(f"      {options}\n", markup=False, highlight=False, style="cyan", soft_wrap=True)


WHAT = {
    "mle": "the point estimate every other method is compared with",
    "ts": "divides the outputs by a temperature fitted on held-out rows",
    "mfvi": "a Gaussian over every weight, trained by its ELBO",
    "mcd": "keeps dropout on when predicting and averages ten passes",
    "kflla": "a Laplace approximation of the last layer's posterior",
    "sngp": "a Gaussian process as last layer over distance-preserving features",
    "sgpa": "every attention layer a sparse Gaussian process, trained by the ELBO",
    "de": "an average of models trained from different seeds",
    "sgpae": "an average of SGPA models trained from different seeds",
}


@show_app.command(epilog="Example: sgpa methods --json")
def methods(as_json: AsJson = False) -> None:
    """List the methods: what they do, what they are trained as and what they can predict."""
    found = _methods()
    if as_json:
        show_json(found)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "name", "what it does", "after", "numbers", "models"):
        table.add_column(heading, no_wrap=heading != "what it does")
    for row in found:
        numbers = "yes" if row["regression"] else "no"
        table.add_row(row["id"], row["name"], row["what"], row["after"] or "-", numbers, str(row["models"]))
    Console().print(table)
    typer.echo(
        "\nafter: works on a model that this method trained; numbers: predicts them too, not only classes;"
    )
    typer.echo("models: how many are trained for one prediction")


def _methods() -> list[dict[str, Any]]:
    from sgpa.methods import CATALOGUE, Ensemble
    from sgpa.report.names import method_name

    return [
        {
            "id": id,
            "name": method_name(id),
            "what": WHAT.get(id) or (type(method).__doc__ or "").split("\n", 1)[0],
            "trains": method.trains.id,
            "after": method.trains.id if method.trains is not method else None,
            "classification": True,
            "regression": method.regression,
            "models": method.size if isinstance(method, Ensemble) else 1,
        }
        for id, method in CATALOGUE.items()
    ]
